"""Test cases of the CMAC FIFO: frames leave complete and without a gap, for any gaps at its input."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer
from drivers import Sink, case, words

RATIOS = [(6250, 3104), (5000, 3104), (3104, 5000), (5000, 5000), (16000, 2000)]


async def start(dut, ratio, ready):
    Clock(dut.s_clk, ratio[0], "ps").start()
    await Timer(random.randrange(1, ratio[1]), "ps")
    Clock(dut.m_clk, ratio[1], "ps").start()
    dut.s_rst.value = dut.m_rst.value = 1
    dut.s_axis_tvalid.value = dut.m_axis_tready.value = 0
    await Timer(4 * max(ratio), "ps")
    await FallingEdge(dut.s_clk)
    dut.s_rst.value = 0
    await FallingEdge(dut.m_clk)
    dut.m_rst.value = 0
    # The sink fails if `tvalid` falls within a frame.
    sink = Sink(dut, dut.m_clk, "m_axis", ready)
    cocotb.start_soon(sink.run())
    return sink


async def write(dut, frames, offer):
    for frame in frames:
        for data, keep, last in words(frame):
            while random.random() >= offer:
                await FallingEdge(dut.s_clk)
                dut.s_axis_tvalid.value = 0
            await FallingEdge(dut.s_clk)
            dut.s_axis_tvalid.value = 1
            dut.s_axis_tdata.value = data
            dut.s_axis_tkeep.value = keep
            dut.s_axis_tlast.value = last
            await ReadOnly()
            while not int(dut.s_axis_tready.value):
                await FallingEdge(dut.s_clk)
                await ReadOnly()
    await FallingEdge(dut.s_clk)
    dut.s_axis_tvalid.value = 0


@case()
@cocotb.parametrize(ratio=RATIOS)
async def frames_leave_complete_and_without_a_gap(dut, ratio):
    take = [1.0]
    sink = await start(dut, ratio, lambda: random.random() < take[0])
    depth = 2 ** len(dut.words.write_pointer) // 2
    truth = []
    # Every length of the last word, and frames up to the FIFO's capacity.
    lengths = [*range(1, 130), 64 * depth, 64 * depth - 1, *(random.randrange(1, 64 * depth) for _ in range(20))]
    random.shuffle(lengths)
    for at in range(0, len(lengths), 25):
        take[0] = random.choice([1.0, 0.5])
        frames = [random.randbytes(length) for length in lengths[at : at + 25]]
        truth += frames
        await write(dut, frames, random.choice([1.0, 0.3]))
    for _ in range(4000):
        await FallingEdge(dut.m_clk)
        if len(sink.frames) == len(truth):
            break
    assert sink.frames == truth
