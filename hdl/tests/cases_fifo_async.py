"""Test cases of fifo_async at several ratios and phases of its clocks."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer
from drivers import case

RATIOS = [(8334, 6250), (6250, 3104), (3104, 6250), (5000, 5000), (2000, 17002), (17002, 2000)]


async def start(dut, ratio):
    s_ps, m_ps = ratio
    Clock(dut.s_clk, s_ps, "ps").start()
    await Timer(random.randrange(1, m_ps), "ps")
    Clock(dut.m_clk, m_ps, "ps").start()
    dut.s_rst.value = dut.m_rst.value = 1
    dut.s_valid.value = dut.m_ready.value = 0
    await Timer(4 * max(ratio), "ps")
    await FallingEdge(dut.s_clk)
    dut.s_rst.value = 0
    await FallingEdge(dut.m_clk)
    dut.m_rst.value = 0


async def write(dut, words, offer):
    for word in words:
        while random.random() >= offer:
            await FallingEdge(dut.s_clk)
            dut.s_valid.value = 0
        await FallingEdge(dut.s_clk)
        dut.s_valid.value = 1
        dut.s_data.value = word
        await ReadOnly()
        while not int(dut.s_ready.value):
            assert int(dut.s_level.value) == 2 ** (len(dut.s_level) - 1), "`s_ready` fell before the FIFO was full"
            await FallingEdge(dut.s_clk)
            await ReadOnly()
    await FallingEdge(dut.s_clk)
    dut.s_valid.value = 0


async def read(dut, count, take):
    words = []
    for _ in range(60 * count):
        await FallingEdge(dut.m_clk)
        ready = random.random() < take
        dut.m_ready.value = int(ready)
        await ReadOnly()
        if ready and int(dut.m_valid.value):
            words.append(int(dut.m_data.value))
            if len(words) == count:
                break
    await FallingEdge(dut.m_clk)
    dut.m_ready.value = 0
    return words


@case()
@cocotb.parametrize(ratio=RATIOS)
async def words_cross_in_order_at_every_ratio(dut, ratio):
    await start(dut, ratio)
    for offer, take in [(1, 1), (1, 0.3), (0.3, 1)]:
        words = [random.getrandbits(len(dut.s_data)) for _ in range(150)]
        writer = cocotb.start_soon(write(dut, words, offer))
        assert await read(dut, len(words), take) == words
        await writer
    # An empty FIFO outputs no word.
    dut.m_ready.value = 1
    for _ in range(10):
        await FallingEdge(dut.m_clk)
        assert not int(dut.m_valid.value)
