"""Cases of fifo_sync: data and order kept under every mix of stalls, full and empty reached, one word a clock."""

import random

from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge
from drivers import case


async def start(dut):
    Clock(dut.clk, 5, "ns").start()
    dut.rst.value = 1
    dut.s_valid.value = 0
    dut.m_ready.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = 0


async def run(dut, words, offer, take):
    """Sends `words`, offering with probability `offer` and taking with `take`; the words that came, and the clocks."""
    sent, came, clocks, highest = 0, [], 0, 0
    while len(came) < len(words):
        dut.s_valid.value = int(sent < len(words) and random.random() < offer)
        dut.s_data.value = words[min(sent, len(words) - 1)]
        dut.m_ready.value = int(random.random() < take)
        await RisingEdge(dut.clk)
        # Values as they were before the edge, which are those that the module saw.
        sent += int(dut.s_valid.value) and int(dut.s_ready.value)
        if int(dut.m_valid.value) and int(dut.m_ready.value):
            came.append(int(dut.m_data.value))
        highest = max(highest, int(dut.level.value))
        clocks += 1
        await FallingEdge(dut.clk)
    return came, clocks, highest


@case()
async def words_come_out_as_they_went_in(dut):
    await start(dut)
    for offer, take in [(1, 1), (0.5, 1), (1, 0.5), (0.9, 0.1), (0.1, 0.9), (0.5, 0.5)]:
        words = [random.getrandbits(len(dut.s_data)) for _ in range(400)]
        came, _, _ = await run(dut, words, offer, take)
        assert came == words


@case()
async def it_moves_a_word_every_clock(dut):
    await start(dut)
    words = [index % 2 ** len(dut.s_data) for index in range(300)]
    came, clocks, _ = await run(dut, words, 1, 1)
    assert came == words
    assert clocks <= len(words) + 3


@case()
async def a_full_one_refuses_and_loses_nothing(dut):
    await start(dut)
    depth = 2 ** (len(dut.level) - 1)
    words = [index % 2 ** len(dut.s_data) for index in range(depth * 3)]
    dut.m_ready.value = 0
    taken = 0
    for _ in range(depth * 2):
        dut.s_valid.value = 1
        dut.s_data.value = words[taken]
        await RisingEdge(dut.clk)
        taken += int(dut.s_ready.value)
        await FallingEdge(dut.clk)
    assert taken == depth + 1, "the memory and the output register"
    assert int(dut.level.value) == depth + 1
    dut.s_valid.value = 0
    came = []
    for _ in range(depth + 4):
        dut.m_ready.value = 1
        await RisingEdge(dut.clk)
        if int(dut.m_valid.value):
            came.append(int(dut.m_data.value))
        await FallingEdge(dut.clk)
    assert came == words[:taken]
    assert int(dut.level.value) == 0
