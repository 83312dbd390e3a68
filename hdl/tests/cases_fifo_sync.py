"""Test cases of fifo_sync: data and order under every mix of stalls, full and empty, one word per clock."""

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
    """Sends `words`, with `s_valid` of probability `offer` and `m_ready` of `take`.

    Returns the words received, the number of clocks, and the maximum level.
    """
    sent, received, clocks, highest = 0, [], 0, 0
    while len(received) < len(words):
        dut.s_valid.value = int(sent < len(words) and random.random() < offer)
        dut.s_data.value = words[min(sent, len(words) - 1)]
        dut.m_ready.value = int(random.random() < take)
        await RisingEdge(dut.clk)
        # The values from before the edge are those that the module samples.
        sent += int(dut.s_valid.value) and int(dut.s_ready.value)
        if int(dut.m_valid.value) and int(dut.m_ready.value):
            received.append(int(dut.m_data.value))
        highest = max(highest, int(dut.level.value))
        clocks += 1
        await FallingEdge(dut.clk)
    return received, clocks, highest


@case()
async def words_keep_their_data_and_order(dut):
    await start(dut)
    for offer, take in [(1, 1), (0.5, 1), (1, 0.5), (0.9, 0.1), (0.1, 0.9), (0.5, 0.5)]:
        words = [random.getrandbits(len(dut.s_data)) for _ in range(400)]
        received, _, _ = await run(dut, words, offer, take)
        assert received == words


@case()
async def throughput_is_one_word_per_clock(dut):
    await start(dut)
    words = [index % 2 ** len(dut.s_data) for index in range(300)]
    received, clocks, _ = await run(dut, words, 1, 1)
    assert received == words
    assert clocks <= len(words) + 3


@case()
async def full_fifo_refuses_words_and_loses_none(dut):
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
    received = []
    for _ in range(depth + 4):
        dut.m_ready.value = 1
        await RisingEdge(dut.clk)
        if int(dut.m_valid.value):
            received.append(int(dut.m_data.value))
        await FallingEdge(dut.clk)
    assert received == words[:taken]
    assert int(dut.level.value) == 0
