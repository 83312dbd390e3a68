"""Test cases of the whole packetizer: lane octets in, frames out, decoded and compared sample by sample.

The environment variable SHOTLINE_CLOCKS sets the three periods in picoseconds, so one build runs at several ratios.
"""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer
from drivers import AxiLite, Sink, case, words
from frames import shots, trigger_datagram, udp_frame

AFE_PS, CLK_PS, MAC_PS = (int(ps) for ps in os.environ.get("SHOTLINE_CLOCKS", "8334,6250,3104").split(","))
PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
AFE_LANES = PARAMETERS.get("LANES", 16)
LANES = PARAMETERS.get("AFES", 3) * AFE_LANES
ADJACENT = PARAMETERS.get("ADJACENT", 1)
CHANNELS = 2 * LANES
STAMP, STEP = 1_700_000_000_000_000_000, 25  # time of instant 0, and time between instants, in nanoseconds
OWN_MAC = b"\x02\x00\x00\x00\x00\x01"


def packed(octets: list[bytes]) -> bytes:
    """Returns an instant in packing 1, from the three octets of each lane.

    Lane l of a front end has a[11:4], a[3:0] b[11:8], b[7:0] of its channels a and b: 2l and 2l + 1 if `ADJACENT`, else
    l and `AFE_LANES` + l.
    """
    pairs = [int.from_bytes(bytes(octet[lane] for octet in octets), "big") for lane in range(LANES)]
    if not ADJACENT:
        ends = [pairs[at : at + AFE_LANES] for at in range(0, LANES, AFE_LANES)]
        channels = [pair >> shift & 0xFFF for end in ends for shift in (12, 0) for pair in end]
        pairs = [a << 12 | b for a, b in zip(channels[::2], channels[1::2], strict=True)]
    return b"".join(pair.to_bytes(3, "big") for pair in pairs)


class Bench:
    """A packetizer between emulated converters and a MAC."""

    def __init__(self, dut, ready=lambda: True) -> None:
        self.dut = dut
        self.axil = AxiLite(dut)
        self.sink = Sink(dut, dut.mac_clk, "m_axis", ready)
        self.instants: list[bytes] = []  # in packing 1
        self.fault = None  # "short" or "silent": fault injected at the next instants
        self.seen = 0

    async def begin(self) -> None:
        dut = self.dut
        for clock, ps in ((dut.afe_clk, AFE_PS), (dut.clk, CLK_PS), (dut.mac_clk, MAC_PS)):
            Clock(clock, ps // 2 * 2, "ps").start()
        dut.afe_valid.value = dut.afe_sof.value = dut.trigger.value = 0
        dut.afe_locked.value = 1
        dut.s_axis_rx_tvalid.value = 0
        dut.m_axis_tready.value = 0
        dut.async_rst.value = 1
        await Timer(100, "ns")
        dut.async_rst.value = 0
        await Timer(100, "ns")
        cocotb.start_soon(self.convert())
        cocotb.start_soon(self.sink.run())

    async def convert(self) -> None:
        """Drives random samples: three octets per lane and instant."""
        dut, random_bytes = self.dut, random.Random(7).randbytes
        while True:
            octets = [random_bytes(LANES) for _ in range(3)]
            self.instants.append(packed(octets))
            stamp = STAMP + STEP * (len(self.instants) - 1)
            count = 2 if self.fault == "short" else 3
            self.fault = None if self.fault == "short" else self.fault
            for octet in range(count):
                await FallingEdge(dut.afe_clk)
                dut.afe_valid.value = int(self.fault != "silent")
                dut.afe_sof.value = int(octet == 0)
                dut.afe_data.value = int.from_bytes(octets[octet], "little")
                dut.afe_tai.value = stamp + octet

    async def configure(
        self, samples: int, *, mode: int = 0, shots: int = 0, first: int | None = None, ipv6=False
    ) -> None:
        """Writes both register blocks and starts a run."""
        sample_bytes = samples * CHANNELS * 3 // 2
        for name, value in {
            "sender.format": 1 << 16 | int(ipv6) << 4,
            "sender.mtu": 4096,
            "sender.destination_mac_high": 0x0200,
            "sender.destination_mac_low": 2,
            "sender.source_mac_high": 0x0200,
            "sender.source_mac_low": 1,
            "sender.destination_qp": 0x2B67,
            "sender.source_qp": 0x11,
            "sender.queue_key": 0x11223344,
            "sender.shape": CHANNELS << 16 | 12 << 8 | 1,
            "sender.samples": samples,
            "sender.sample_bytes": sample_bytes,
            "sender.control": 1,
            "packetizer.samples": samples,
            "packetizer.mode": mode,
            "packetizer.shot_limit_low": shots,
            "packetizer.own_mac_high": 0x0200,
            "packetizer.own_mac_low": 1,
        }.items():
            assert await self.axil.write(name, value) == 0, name
        base = 0x840
        own_ip = (0xFD000000, 0, 0, 1) if ipv6 else (0, 0, 0xFFFF, 0xC0A80001)
        for index, value in enumerate(own_ip):
            assert await self.axil.write(base + 4 * index, value) == 0
        for _ in range(100):
            if await self.axil.read("sender.control") & 1 == 0:
                break
        if first is not None:
            assert await self.axil.write("packetizer.first_number_low", first & 0xFFFFFFFF) == 0
            assert await self.axil.write("packetizer.first_number_high", first >> 32) == 0
        await Timer(200, "ns")
        await self.start(4 if first is not None else 0)

    async def start(self, flags: int = 0) -> None:
        assert await self.axil.write("packetizer.control", 1 | flags) == 0

    async def wait_idle(self, microseconds: int = 400) -> None:
        """Waits until no run and no shot is in progress, and all frames have left."""
        for _ in range(microseconds):
            if await self.axil.read("packetizer.status") & 3 == 0:
                await Timer(2, "us")
                return
            await Timer(1, "us")
        raise AssertionError("the packetizer is still busy")

    def check(self, samples: int, *, damaged: tuple[int, ...] = ()) -> list:
        """Decodes all frames received since the last check, and compares every sample with the converters' output."""
        found = shots(self.sink.frames[self.seen :])
        self.seen = len(self.sink.frames)
        for shot in found:
            assert (shot.samples, shot.channels) == (samples, CHANNELS)
            first, rest = divmod(shot.time - STAMP, STEP)
            assert rest == 0 and 0 <= first < len(self.instants), "time of the first octet"
            truth = b"".join(self.instants[first : first + samples])
            if shot.number in damaged:
                assert not shot.good, "a receiver must see that samples are missing"
                right = next((i for i in range(len(truth)) if truth[i] != shot.data[i]), len(truth))
                assert shot.data[right:].strip(b"\0") == b"", "nothing but zeros after the gap"
            else:
                assert shot.good and shot.data == truth
        return found

    async def counts(self, *names: str) -> tuple[int, ...]:
        return tuple([await self.axil.read(f"packetizer.{name}") for name in names])

    async def pulse(self) -> None:
        """Sends a pulse to the trigger input."""
        await Timer(random.randrange(1, 20), "ns")
        self.dut.trigger.value = 1
        await Timer(40, "ns")
        self.dut.trigger.value = 0
        await Timer(40, "ns")

    async def receive(self, frame: bytes, user: int = 0) -> None:
        """Sends a frame to the MAC's receive port."""
        dut = self.dut
        for data, keep, last in words(frame):
            await FallingEdge(dut.mac_clk)
            dut.s_axis_rx_tdata.value = data
            dut.s_axis_rx_tkeep.value = keep
            dut.s_axis_rx_tlast.value = last
            dut.s_axis_rx_tuser.value = user & last
            dut.s_axis_rx_tvalid.value = 1
        await FallingEdge(dut.mac_clk)
        dut.s_axis_rx_tvalid.value = 0


@case()
async def shots_arrive_with_every_sample_at_its_offset(dut):
    bench = Bench(dut)
    await bench.begin()
    await bench.configure(90, shots=3, first=0x1_2345_FFFF)
    await bench.wait_idle()
    found = bench.check(90)
    assert [shot.number for shot in found] == [0x1_2345_FFFF, 0x1_2346_0000, 0x1_2346_0001]
    assert all(shot.flags == 1 for shot in found), "locked, and no trigger"
    assert await bench.counts("shots", "missed", "damaged", "next_number") == (3, 0, 0, 0x1_2346_0002)
    # Another shape, over IPv6: one sample of each channel, and a partial last word.
    dut.afe_locked.value = 0
    await bench.configure(1, shots=2, ipv6=True)
    await bench.wait_idle()
    found = bench.check(1)
    assert [(shot.number, shot.flags) for shot in found] == [(0x1_2346_0002, 0), (0x1_2346_0003, 0)]


@case()
async def triggers_during_a_shot_are_missed_and_counted(dut):
    bench = Bench(dut)
    await bench.begin()
    for index, event in enumerate((7, 300, 65535)):
        assert await bench.axil.write("packetizer.event", index << 16 | event) == 0
    assert await bench.axil.write("packetizer.event_count", 3) == 0
    await bench.pulse()
    await bench.configure(40, mode=2 | 1 << 4, first=5)
    for _ in range(4):
        await bench.pulse()
        await bench.pulse()
        await bench.pulse()
        for _ in range(100):
            await Timer(500, "ns")
            if not int(dut.busy.value):
                break
    assert await bench.axil.write("packetizer.control", 1) != 0, "no start while a run is in progress"
    assert await bench.axil.write("packetizer.control", 2) == 0
    await bench.wait_idle()
    found = bench.check(40)
    assert [(shot.number, shot.event, shot.flags) for shot in found] == [
        (5, 7, 3),
        (6, 300, 3),
        (7, 65535, 3),
        (8, 7, 3),
    ]
    assert await bench.counts("shots", "missed", "unexpected") == (4, 8, 1)


@case()
async def trigger_commands_act_once_and_gaps_count_as_missed(dut):
    bench = Bench(dut)
    await bench.begin()
    await bench.configure(2, mode=2 | 1 << 5, first=100)
    # 5, its repetition, 8 (skips 6 and 7), the old number 6, two command-only commands, 9; then 10, and 11 while busy.
    for sequence, flags in [(5, 0), (5, 0), (8, 1), (6, 0), (9, 2), (9, 3), (9, 0)]:
        await bench.receive(udp_frame(trigger_datagram(sequence, flags)))
        await Timer(3, "us")
    await bench.receive(udp_frame(trigger_datagram(10)))
    await bench.receive(udp_frame(trigger_datagram(11)))
    # Frames that are damaged, truncated, or for another port.
    await Timer(3, "us")
    good = udp_frame(trigger_datagram(12))
    await bench.receive(good, user=1)
    await bench.receive(good[:-1])
    await bench.receive(udp_frame(trigger_datagram(12), port=47911))
    await Timer(3, "us")
    assert await bench.counts("shots", "missed", "repeated") == (4, 2 + 1, 2)
    assert await bench.axil.write("packetizer.control", 2) == 0
    await bench.wait_idle()
    assert [shot.number for shot in bench.check(2)] == [100, 101, 102, 103]
    await bench.configure(2, mode=2 | 1 << 5, ipv6=True)
    await bench.receive(udp_frame(trigger_datagram(5), ipv6=True))
    await Timer(3, "us")
    assert await bench.axil.write("packetizer.control", 2) == 0
    await bench.wait_idle()
    assert [shot.number for shot in bench.check(2)] == [104], "a new run accepts any first number"


@case()
async def a_slow_mac_delays_shots_and_damages_none(dut):
    rate = random.Random(3)
    bench = Bench(dut, ready=lambda: rate.random() < 0.45)
    await bench.begin()
    await bench.configure(130, shots=2, first=0)
    await bench.wait_idle()
    assert len(bench.check(130)) == 2
    assert await bench.counts("damaged", "missed") == (0, 0)


@case()
async def a_stalled_mac_damages_one_shot_and_not_the_next(dut):
    mac_ready = [True]
    bench = Bench(dut, ready=lambda: mac_ready[0])
    await bench.begin()
    # 300 samples are 43,200 bytes, far more than all FIFOs hold (see the parameters in test_packetizer.py).
    await bench.configure(300, mode=2 | 1 << 4, first=50)
    await bench.pulse()
    await Timer(2, "us")
    mac_ready[0] = False
    await Timer(12, "us")
    await bench.pulse()
    await bench.pulse()
    assert await bench.counts("shots", "missed") == (1, 2), "busy, although all samples are converted"
    mac_ready[0] = True
    await Timer(10, "us")
    await bench.pulse()
    await Timer(1, "us")
    assert await bench.axil.write("packetizer.control", 2) == 0
    await bench.wait_idle()
    found = bench.check(300, damaged=(50,))
    assert [shot.number for shot in found] == [50, 51]
    assert await bench.counts("damaged", "damaged_number") == (1, 50)
    assert await bench.axil.read("packetizer.status") >> 4 & 3 == 1


@case()
async def missing_octets_and_dead_lanes_damage_a_shot(dut):
    bench = Bench(dut)
    await bench.begin()
    await bench.configure(120, mode=2 | 1 << 4, first=0)
    for number, fault in ((0, "short"), (1, None), (2, "silent"), (3, None)):
        await bench.pulse()
        await Timer(1, "us")
        bench.fault = fault
        await Timer(9 if fault != "silent" else 2, "us")
        if fault == "silent":
            await Timer(AFE_PS * 2 ** PARAMETERS.get("TIMEOUT_LOG2", 12) // 1000, "ns")
            await Timer(5, "us")
            # A trigger now is refused, because no first sample arrives.
            await bench.pulse()
            await Timer(AFE_PS * 2 ** PARAMETERS.get("TIMEOUT_LOG2", 12) // 1000 + 5000, "ns")
            bench.fault = None
            await Timer(1, "us")
        assert int(dut.busy.value) == 0, number
        if fault:
            assert await bench.axil.read("packetizer.status") >> 4 & 3 == {"short": 2, "silent": 3}[fault]
    assert await bench.axil.write("packetizer.control", 2) == 0
    await bench.wait_idle()
    found = bench.check(120, damaged=(0, 2))
    assert [shot.number for shot in found] == [0, 1, 2, 3], "a refused shot uses no number"
    assert await bench.counts("damaged", "refused", "missed", "shots") == (2, 1, 1, 4)


@case()
async def a_reset_within_a_shot_clears_everything(dut):
    bench = Bench(dut)
    await bench.begin()
    await bench.configure(100, first=3)
    await Timer(6, "us")
    assert int(dut.busy.value) == 1
    # The frame being sent is truncated, which a MAC detects.
    bench.sink.gaps = True
    dut.async_rst.value = 1
    await Timer(50, "ns")
    bench.sink.frame = b""
    bench.seen = len(bench.sink.frames)
    bench.sink.gaps = False
    dut.async_rst.value = 0
    await Timer(200, "ns")
    assert await bench.counts("shots", "next_number") == (0, 0)
    await bench.configure(20, shots=2)
    await bench.wait_idle()
    assert [shot.number for shot in bench.check(20)] == [0, 1]
