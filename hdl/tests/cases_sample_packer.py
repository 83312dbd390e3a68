"""Test cases of sample_packer against samples packed in Python: all lengths, stalls and fills of the last word."""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from drivers import Sink, case

SAMPLES = eval(os.environ["SHOTLINE_PARAMETERS"])["SAMPLES"]


def pack(samples):
    """Returns samples in packing 1 of docs/wire-formats.md: two samples in three bytes, most significant bit first."""
    pairs = zip(samples[0::2], samples[1::2], strict=True)
    return b"".join((a << 12 | b).to_bytes(3, "big") for a, b in pairs)


async def start(dut, ready):
    Clock(dut.clk, 5, "ns").start()
    dut.rst.value = 1
    dut.s_valid.value = 0
    dut.m_axis_tready.value = 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    sink = Sink(dut, dut.clk, "m_axis", ready, gaps=True)
    cocotb.start_soon(sink.run())
    return sink


async def send(dut, samples, bad, pause):
    """Sends a shot; returns the number of clocks in which `s_ready` was low."""
    waited = 0
    for at in range(0, len(samples), SAMPLES):
        while random.random() < pause:
            await FallingEdge(dut.clk)
            dut.s_valid.value = 0
        beat = samples[at : at + SAMPLES]
        await FallingEdge(dut.clk)
        dut.s_valid.value = 1
        dut.s_data.value = sum(sample << 12 * i for i, sample in enumerate(beat))
        dut.s_last.value = int(at + SAMPLES >= len(samples))
        dut.s_bad.value = int(bad)
        await ReadOnly()
        while not int(dut.s_ready.value):
            waited += 1
            await FallingEdge(dut.clk)
            await ReadOnly()
    return waited


async def finish(dut, sink, count):
    await FallingEdge(dut.clk)
    dut.s_valid.value = 0
    for _ in range(2000):
        await FallingEdge(dut.clk)
        if len(sink.frames) == count:
            return
    raise AssertionError(f"{len(sink.frames)} of {count} frames")


@case()
async def shots_of_every_length_are_packed_despite_stalls(dut):
    stall = [0.0]
    sink = await start(dut, lambda: random.random() >= stall[0])
    truth, bad = [], []
    for beats in range(1, 34):
        stall[0], pause = random.choice([(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.4, 0.4)])
        truth.append([random.getrandbits(12) for _ in range(SAMPLES * beats)])
        bad.append(random.getrandbits(1))
        await send(dut, truth[-1], bad[-1], pause)
    await finish(dut, sink, len(truth))
    assert sink.frames == [pack(samples) for samples in truth]
    assert sink.users == bad


@case()
async def throughput_is_one_beat_per_clock(dut):
    sink = await start(dut, lambda: True)
    waited = 0
    for _ in range(3):
        waited += await send(dut, [0xABC] * SAMPLES * 64, False, 0.0)
    await finish(dut, sink, 3)
    assert waited <= 2, "one clock after a shot that spills over, no other"
