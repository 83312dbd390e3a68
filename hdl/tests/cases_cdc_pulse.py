"""Test cases of cdc_pulse: every pulse crosses exactly once, at several ratios of the clocks."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer
from drivers import case

RATIOS = [(8334, 6250), (6250, 3104), (3104, 6250), (5000, 5000), (2000, 17002), (17002, 2000)]


@case()
@cocotb.parametrize(ratio=RATIOS)
async def every_pulse_crosses_once(dut, ratio):
    s_ps, m_ps = ratio
    Clock(dut.s_clk, s_ps, "ps").start()
    await Timer(random.randrange(1, m_ps), "ps")
    Clock(dut.m_clk, m_ps, "ps").start()
    dut.s_rst.value = dut.m_rst.value = 1
    dut.s_pulse.value = 0
    await Timer(4 * max(ratio), "ps")
    await FallingEdge(dut.s_clk)
    dut.s_rst.value = 0
    await FallingEdge(dut.m_clk)
    dut.m_rst.value = 0
    pulses = [0]

    async def count():
        while True:
            await FallingEdge(dut.m_clk)
            await ReadOnly()
            pulses[0] += int(dut.m_pulse.value)

    cocotb.start_soon(count())
    # At the minimum distance, and further apart.
    closest = -(-2 * m_ps // s_ps) + 1
    for _ in range(60):
        await FallingEdge(dut.s_clk)
        dut.s_pulse.value = 1
        for _ in range(random.choice([closest, closest, closest + 1, closest + 7])):
            await FallingEdge(dut.s_clk)
            dut.s_pulse.value = 0
    await Timer(6 * max(ratio), "ps")
    assert pulses[0] == 60
