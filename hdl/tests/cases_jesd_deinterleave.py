"""Test cases of jesd_deinterleave: every sample at its channel's position, frames with pauses, framing errors."""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from drivers import case

PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
AFES, LANES, ADJACENT = (PARAMETERS[name] for name in ("AFES", "LANES", "ADJACENT"))


def octets(channels):
    """Returns the octets of one instant: three words with one octet per lane."""
    lanes = [b"", b"", b""]
    for afe in range(AFES):
        for lane in range(LANES):
            first = 2 * lane if ADJACENT else lane
            a, b = (
                channels[afe * 2 * LANES + first],
                channels[afe * 2 * LANES + (first + 1 if ADJACENT else LANES + lane)],
            )
            frame = (a << 12 | b).to_bytes(3, "big")
            lanes = [lane_octets + frame[i : i + 1] for i, lane_octets in enumerate(lanes)]
    return [int.from_bytes(lane, "little") for lane in lanes]


async def start(dut):
    Clock(dut.clk, 8, "ns").start()
    dut.rst.value = 1
    dut.lane_valid.value = 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    beats, errors = [], []

    async def watch():
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            errors.append(int(dut.m_error.value))
            if int(dut.m_valid.value):
                data, flags = int(dut.m_data.value), (int(dut.m_first.value), int(dut.m_last.value))
                beats.append(([data >> 12 * i & 0xFFF for i in range(2 * LANES)], flags, int(dut.m_time.value)))

    cocotb.start_soon(watch())
    return beats, errors


async def drive(dut, octet, data, tai, pause=0.0):
    while random.random() < pause:
        await FallingEdge(dut.clk)
        dut.lane_valid.value = 0
    await FallingEdge(dut.clk)
    dut.lane_valid.value = 1
    dut.lane_sof.value = int(octet == 0)
    dut.lane_data.value = data
    dut.tai.value = tai


async def end(dut):
    await FallingEdge(dut.clk)
    dut.lane_valid.value = 0
    for _ in range(6):
        await FallingEdge(dut.clk)


def expected(instants):
    beats = []
    for stamp, channels in instants:
        for afe in range(AFES):
            part = channels[afe * 2 * LANES : (afe + 1) * 2 * LANES]
            beats.append((part, (int(afe == 0), int(afe == AFES - 1)), stamp))
    return beats


@case()
async def every_sample_is_at_its_channels_position(dut):
    beats, errors = await start(dut)
    instants = []
    for number in range(60):
        channels = [random.getrandbits(12) for _ in range(2 * AFES * LANES)]
        instants.append((1000 * number, channels))
        for octet, data in enumerate(octets(channels)):
            await drive(dut, octet, data, 1000 * number + octet, pause=0.0 if number < 30 else 0.3)
    await end(dut)
    assert beats == expected(instants)
    assert not any(errors)


@case()
async def framing_errors_are_reported_and_shift_no_sample(dut):
    beats, errors = await start(dut)
    instants, wrong = [], 0
    for number in range(80):
        channels = [random.getrandbits(12) for _ in range(2 * AFES * LANES)]
        words = list(enumerate(octets(channels)))
        fault = random.choice([None, "short", "long"]) if number % 2 else None
        if fault == "short":
            words = words[: random.choice([1, 2])]
        elif fault == "long":
            words += [(3, random.getrandbits(8 * AFES * LANES))] * random.choice([1, 2])
        if fault != "short":
            instants.append((number, channels))
        # A short frame is detected at the next start of frame, an extra octet immediately.
        wrong += {None: 0, "short": 1, "long": len(words) - 3}[fault]
        for octet, data in words:
            await drive(dut, octet, data, number)
    await end(dut)
    # The last frame (of an odd number) may be short: then no start of frame follows to detect it.
    assert beats == expected(instants)
    assert wrong - 1 <= sum(errors) <= wrong
