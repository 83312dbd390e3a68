"""Corner cases of `roce_ud_tx`: lengths around word boundaries, reconfiguration between shots, pauses on both sides."""

import random
from dataclasses import replace

import cocotb
import registers
import wire
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge
from drivers import case

ADDRESSES = {
    register.name + (f".{word}" if register.count > 1 else ""): register.address + 4 * word
    for device in registers.parse(registers.SOURCE.read_text())
    for block in device.blocks
    if block.name == "sender"
    for register in block.registers
    for word in range(register.count)
}


class Bench:
    """Drives the module's ports and collects its frames."""

    def __init__(self, dut, seed: int, pause: float = 0.0) -> None:
        self.dut = dut
        self.rng = random.Random(seed)
        self.pause = pause
        self.frames: list[bytes] = []

    async def start(self) -> "Bench":
        dut = self.dut
        cocotb.start_soon(Clock(dut.clk, 5, unit="ns").start())
        dut.rst.value = 1
        for name in ("s_axis_tvalid", "m_axis_tready", "s_axil_awvalid", "s_axil_wvalid", "s_axil_arvalid"):
            getattr(dut, name).value = 0
        dut.s_axil_bready.value = 1
        dut.s_axil_rready.value = 1
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self.collect())
        return self

    async def collect(self) -> None:
        dut = self.dut
        frame = b""
        while True:
            await FallingEdge(dut.clk)
            dut.m_axis_tready.value = self.rng.random() >= self.pause
            await ReadOnly()
            if dut.rst.value == 1:
                frame = b""
            elif dut.m_axis_tvalid.value == 1 and dut.m_axis_tready.value == 1:
                keep = int(dut.m_axis_tkeep.value)
                count = keep.bit_count()
                assert keep == (1 << count) - 1
                last = dut.m_axis_tlast.value == 1
                assert last or count == 64
                word = dut.m_axis_tdata.value
                text = str(word)[512 - 8 * count :]
                frame += int(text, 2).to_bytes(count, "little")
                if last:
                    self.frames.append(frame)
                    frame = b""

    async def write(self, name: str, value: int) -> None:
        dut = self.dut
        await FallingEdge(dut.clk)
        dut.s_axil_awaddr.value = ADDRESSES[name]
        dut.s_axil_wdata.value = value
        dut.s_axil_wstrb.value = 15
        dut.s_axil_awvalid.value = 1
        dut.s_axil_wvalid.value = 1
        await RisingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.s_axil_awvalid.value = 0
        dut.s_axil_wvalid.value = 0
        while dut.s_axil_bvalid.value != 1:
            await FallingEdge(dut.clk)
        assert dut.s_axil_bresp.value == 0

    async def configure(self, link: wire.Link, psn: int | None = None) -> None:
        for name, value in link.registers(psn):
            await self.write(name, value)

    async def send(self, shot: wire.Shot, payload: bytes) -> None:
        dut = self.dut
        for at in range(0, len(payload), 64):
            word = payload[at : at + 64]
            await FallingEdge(dut.clk)
            while self.rng.random() < self.pause:
                dut.s_axis_tvalid.value = 0
                await FallingEdge(dut.clk)
            dut.s_axis_tdata.value = int.from_bytes(word.ljust(64, b"\xa5"), "little")
            dut.s_axis_tkeep.value = (1 << len(word)) - 1
            dut.s_axis_tlast.value = at + 64 >= len(payload)
            dut.s_axis_tuser.value = at + 64 < len(payload)  # evaluated with the last word only
            dut.s_axis_tvalid.value = 1
            first = at == 0
            dut.s_shot_number.value = shot.number if first else 0
            dut.s_shot_time.value = shot.time if first else 0
            dut.s_shot_stream.value = shot.stream if first else 0
            dut.s_shot_event.value = shot.event if first else 0
            dut.s_shot_flags.value = shot.flags if first else 0
            while True:
                await ReadOnly()
                taken = dut.s_axis_tready.value == 1
                await RisingEdge(dut.clk)
                if taken:
                    break
                await FallingEdge(dut.clk)
        await FallingEdge(dut.clk)
        dut.s_axis_tvalid.value = 0

    async def expect(self, expected: list[bytes]) -> None:
        for _ in range(3000):
            if len(self.frames) >= len(expected):
                break
            await FallingEdge(self.dut.clk)
        for _ in range(20):
            await FallingEdge(self.dut.clk)
        assert [len(frame) for frame in self.frames] == [len(frame) for frame in expected]
        for index, (frame, right) in enumerate(zip(self.frames, expected, strict=True)):
            assert frame == right, f"frame {index}"
        self.frames.clear()


@case()
async def lengths_around_words_in_every_framing(dut) -> None:
    """Packets that end around a word boundary, and whose ICRC crosses a word boundary."""
    bench = await Bench(dut, 1).start()
    psn = 0xFFFFF0
    for framing in (wire.UD, wire.COUNTED, wire.UDP):
        for ipv6 in (False, True):
            link = wire.Link(framing=framing, packet_mode=True)
            link = link.over_ipv6() if ipv6 else link
            await bench.configure(link, psn)
            expected = []
            lengths = [1, 2, 3, 4, *range(30, 67, 4), 61, 62, 63, 64, 65, 118, 122, 126, 127, 128, 129]
            for number, length in enumerate(lengths):
                payload = bench.rng.randbytes(length)
                shot = wire.Shot(number=number)
                expected += wire.frames(link, shot, psn + number, payload)
                await bench.send(shot, payload)
            await bench.expect(expected)


@case()
async def shots_with_new_configurations_between_them(dut) -> None:
    """Framing, addresses, MTU and shape change between shots, without waiting; sequence numbers continue."""
    bench = await Bench(dut, 2).start()
    psn = 100
    expected = []
    first = wire.Link(samples=300, mtu=128)
    links = [first, replace(first, framing=wire.COUNTED, samples=64), replace(first, framing=wire.UDP).over_ipv6()]
    for number, link in enumerate([*links, replace(links[0], samples=128, destination_qp=7, mtu=4096)]):
        await bench.configure(link, psn if number == 0 else None)
        shot = wire.Shot(number=1 << 40 | number, time=10**18 + number, stream=5, event=number, flags=number)
        payload = bench.rng.randbytes(link.samples)
        frames = wire.frames(link, shot, psn, payload)
        psn += len(frames)
        expected += frames
        await bench.send(shot, payload)
    await bench.expect(expected)


@case()
async def pauses_on_both_sides(dut) -> None:
    """A MAC and a source that pause at random."""
    bench = await Bench(dut, 3, pause=0.4).start()
    link = wire.Link(samples=500, mtu=192).over_ipv6()
    await bench.configure(link, 0)
    expected = []
    for number in range(6):
        payload = bench.rng.randbytes(500)
        shot = wire.Shot(number=number)
        expected += wire.frames(link, shot, len(expected), payload)
        await bench.send(shot, payload)
    await bench.expect(expected)


@case()
async def a_packet_leaves_27_clocks_after_its_last_word(dut) -> None:
    """The store-and-forward latency, from the last word accepted to the first word valid."""
    bench = await Bench(dut, 4).start()
    link = wire.Link(packet_mode=True)
    await bench.configure(link, 0)
    for _ in range(40):
        await FallingEdge(dut.clk)
    shot = wire.Shot(number=1)
    await bench.send(shot, bytes(200))
    # `send` returns half a clock after the edge that accepted the last word.
    clocks = 1
    while dut.m_axis_tvalid.value != 1:
        await FallingEdge(dut.clk)
        clocks += 1
    assert clocks == 27
    await bench.expect(wire.frames(link, shot, 0, bytes(200)))


@case()
async def a_reset_within_a_frame_clears_everything(dut) -> None:
    """After half a shot in and half a frame out, a reset restores the initial state."""
    bench = await Bench(dut, 5).start()
    link = wire.Link(samples=6000)
    for clocks in (0, 40, 75, 80):
        await bench.configure(link, 0)
        sending = cocotb.start_soon(bench.send(wire.Shot(number=1), bench.rng.randbytes(6000)))
        for _ in range(30 + clocks):
            await FallingEdge(dut.clk)
        sending.cancel()
        dut.rst.value = 1
        dut.s_axis_tvalid.value = 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        dut.rst.value = 0
        bench.frames.clear()
        short = wire.Link(samples=100)
        await bench.configure(short, 9)
        payload = bench.rng.randbytes(100)
        await bench.send(wire.Shot(number=2), payload)
        await bench.expect(wire.frames(short, wire.Shot(number=2), 9, payload))
