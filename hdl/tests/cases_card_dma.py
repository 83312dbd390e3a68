"""Test cases of card_dma against a plain host: rings in memory, writes that take their payload from lanes."""

import os
import random
import struct
from collections import deque

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from drivers import REGISTERS, AxiLite, case

PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
CHANNELS = 1 << PARAMETERS["CHANNELS_LOG2"]
BLOCKS = 1 << PARAMETERS.get("BLOCKS_LOG2", 3)
CAUSES = ["received", "stopped", "no_descriptor", "late"]
PAYLOAD, REPORT, INTERRUPT = range(3)
DESCRIPTOR = struct.Struct("<QHBBI")
RING, RING_LOG2 = 0x1000_0000_0000, 6
RUNNING, STOPPED = 2, 0


def number(signal, low, width):
    """Returns bits of a signal, of which others may be undefined."""
    return int(signal.value[low + width - 1 : low])


class Card:
    """The device, the memory of its host, and a driver for each channel that is used."""

    RESET = "rst"
    # Inputs that are 0 at first.
    INPUTS = ("s_valid", "m_data_ready", "m_slot_ready", "m_read_ready", "s_completion_valid", "s_completion_error")
    INPUTS += ("notice_valid",)

    def __init__(self, dut, stalls=0.0):
        self.dut, self.stalls = dut, stalls
        self.memory: dict[int, int] = {}  # bytes by address
        self.packets, self.lanes, self.slots = deque(), [deque() for _ in range(BLOCKS)], deque()
        self.reads, self.notices = [], deque()
        self.reports: dict[int, list[int]] = {}
        self.interrupts: list[int] = []
        self.generation: dict[int, int] = {}

    async def start(self):
        dut = self.dut
        Clock(dut.clk, 5, "ns").start()
        for name in self.INPUTS:
            getattr(dut, name).value = 0
        self.axil = AxiLite(dut)
        await self.reset()
        cocotb.start_soon(self.feed())
        cocotb.start_soon(self.serve())
        await self.ready()

    async def reset(self):
        for value in (1, 0):
            getattr(self.dut, self.RESET).value = value
            for _ in range(4):
                await FallingEdge(self.dut.clk)

    async def ready(self):
        while not await self.axil.read("card.status"):
            pass

    async def register(self, channel, name, value=None):
        address = REGISTERS[f"card_channel.{name}"] + 0x80 * channel
        if value is None:
            return await self.axil.read(address)
        assert await self.axil.write(address, value) == 0, f"{name} of channel {channel} was refused"

    async def open(self, channel, buffer=2048, header=0, count=1, generation=1):
        """Configures a channel and starts it."""
        self.generation[channel], self.reports[channel] = generation, []
        ring, report = RING + (channel << 20), 0x2000_0000 + 64 * channel
        for name, value in {
            "ring_low": ring & 0xFFFFFFFF,
            "ring_high": ring >> 32,
            "ring": RING_LOG2,
            "buffer": buffer | header << 16,
            "report_low": report,
            "report_high": 0,
            "report": count | 1 << 16,
            "interrupt": 1 << 31 | 4,
            "control": generation << 8 | 1,
        }.items():
            await self.register(channel, name, value)

    def buffer(self, channel, index):
        """Returns the address of a descriptor's buffer: not aligned to more than 8 bytes."""
        return (channel + 1 << 32) + (index % (1 << RING_LOG2)) * 0x4000 + 8 * (index * 37 % 509)

    async def give(self, channel, begin, end, spoil=None):
        for index in range(begin, end):
            place = RING + (channel << 20) + 16 * (index % (1 << RING_LOG2))
            fields = self.buffer(channel, index), index + (index == spoil), channel, self.generation[channel], 0
            self.put(place, DESCRIPTOR.pack(*fields))
        await self.register(channel, "software_pointer", end)

    async def counters(self, channel):
        return {
            cause: [await self.register(channel, f"{kind}_{cause}") for kind in ("packets", "bytes")]
            for cause in CAUSES
        }

    def put(self, address, data):
        self.memory.update(zip(range(address, address + len(data)), data, strict=True))

    def get(self, address, length):
        return bytes(self.memory.get(at, 0xEE) for at in range(address, address + length))

    def stalled(self):
        return random.random() < self.stalls

    async def feed(self):
        """Puts the packets on the packed bus, each at the next block after the last, or after a gap."""
        dut, word, at, begun = self.dut, bytearray(), 0, None
        while True:
            if self.packets and at == 0 and self.stalled():
                await FallingEdge(dut.clk)
                continue
            while self.packets and begun is None and at < BLOCKS:
                channel, data = self.packets.popleft()
                begun = at, len(data), channel
                word[8 * at :] = data.ljust(-(-len(data) // 8) * 8, b"\0")
                at += -(-len(data) // 8)
            if not at:
                await FallingEdge(dut.clk)
                continue
            dut.s_valid.value = 1
            dut.s_data.value = int.from_bytes(word[: 8 * BLOCKS], "little")
            dut.s_first.value = int(begun is not None)
            if begun:
                dut.s_first_block.value, dut.s_length.value, dut.s_channel.value = begun
            await ReadOnly()
            while not int(dut.s_ready.value):
                await FallingEdge(dut.clk)
                await ReadOnly()
            await FallingEdge(dut.clk)
            dut.s_valid.value = 0
            del word[: 8 * BLOCKS]
            at, begun = max(0, at - BLOCKS), None

    async def serve(self):
        """The bus: takes payload, slots and reads, and answers the latter out of order."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            for name in ("m_data_ready", "m_slot_ready", "m_read_ready"):
                getattr(dut, name).value = int(not self.stalled())
            dut.notice_valid.value = int(bool(self.notices))
            if self.notices:
                dut.notice_kind.value, dut.notice_channel.value = self.notices.popleft()
            dut.s_completion_valid.value = int(bool(self.reads))
            if self.reads:
                read = random.choice(self.reads)
                tag, address, beat = read
                dut.s_completion_tag.value = tag
                dut.s_completion_data.value = int.from_bytes(self.get(address + 32 * beat, 32), "little")
                read[2] += 1
                if read[2] == 8:
                    self.reads.remove(read)
            await ReadOnly()
            if int(dut.m_data_valid.value) and int(dut.m_data_ready.value):
                for lane in range(BLOCKS):
                    if number(dut.m_data_keep, lane, 1):
                        self.lanes[lane].append(number(dut.m_data, 64 * lane, 64).to_bytes(8, "little"))
            if int(dut.m_read_valid.value) and int(dut.m_read_ready.value):
                assert int(dut.m_read_address.value) % 256 == 0
                self.reads.append([int(dut.m_read_tag.value), int(dut.m_read_address.value), 0])
            if int(dut.m_slot_ready.value):
                for slot in range(2):
                    if number(dut.m_slot_valid, slot, 1):
                        self.slots.append(self.slot(slot))
            while self.slots and self.carry_out(*self.slots[0]):
                self.slots.popleft()

    def slot(self, slot):
        dut, lane_bits = self.dut, BLOCKS.bit_length() - 1
        kind = number(dut.m_slot_kind, 2 * slot, 2)
        if kind == INTERRUPT:
            return kind, 0, 0, 0, number(dut.m_slot_channel, 8 * slot, 8), 0
        address, length = number(dut.m_slot_address, 64 * slot, 64), number(dut.m_slot_length, 11 * slot, 11)
        assert 1 <= length <= 256 and address // 4096 == (address + length - 1) // 4096
        if kind == REPORT:
            return kind, address, length, 0, number(dut.m_slot_channel, 8 * slot, 8), int(dut.m_slot_report.value)
        lane = number(dut.m_slot_block, lane_bits * slot, lane_bits)
        return kind, address, length, lane, number(dut.m_slot_channel, 8 * slot, 8), 0

    def carry_out(self, kind, address, length, lane, channel, report):
        """Carries out a write if its payload is there."""
        if kind == INTERRUPT:
            self.interrupts.append(channel)
        elif kind == REPORT:
            assert report >> 16 & 0xFF == self.generation[channel] and report >> 32 == 0
            self.reports[channel].append(report & 0xFFFF)
            if report >> 24 & 1:
                self.notices.append((0, channel))
        else:
            wanted = [(lane + block) % BLOCKS for block in range(-(-length // 8))]
            if any(len(self.lanes[at]) < wanted.count(at) for at in wanted):
                return False
            self.put(address, b"".join(self.lanes[at].popleft() for at in wanted)[:length])
        return True

    async def until(self, done):
        for _ in range(20_000):
            await FallingEdge(self.dut.clk)
            if done():
                return
        raise AssertionError("an expected report never came")

    async def settle(self):
        """Waits until all packets have been accepted and decided."""
        await self.until(lambda: not self.packets)
        for _ in range(600):
            await FallingEdge(self.dut.clk)


def descriptors(length, buffer, header):
    """Returns what a packet uses: the bytes of each of its descriptors."""
    first, rest = min(length, header), max(0, length - header)
    parts = [min(buffer, rest - at) for at in range(0, rest, buffer)] or [0]
    return parts if not header else [x for i, part in enumerate(parts) for x in (first if i == 0 else 0, part)]


@case
async def packets_reach_the_buffers_of_their_channels(dut):
    card = Card(dut, stalls=0.1)
    await card.start()
    shapes = {0: (2048, 0), 1: (256, 0), CHANNELS - 1: (2048, 64), 5: (128, 16)}
    for channel, (buffer, header) in shapes.items():
        await card.open(channel, buffer, header)
        await card.give(channel, 0, 64)
    for _ in range(300):
        await FallingEdge(dut.clk)
    sent, used = {channel: [] for channel in shapes}, dict.fromkeys(shapes, 0)
    for _ in range(60):
        channel, length = random.choice(list(shapes)), random.choice([1, 60, 76, 129, 300, random.randrange(1, 400)])
        needed = len(descriptors(length, *shapes[channel]))
        # All that a channel holds at the start, so that none may be dropped.
        if used[channel] + needed <= min(64, 1 << PARAMETERS["PREFETCH_LOG2"]):
            sent[channel].append((used[channel], random.randbytes(length)))
            used[channel] += needed
            card.packets.append((channel, sent[channel][-1][1]))
    await card.until(lambda: all(not used[c] or (card.reports[c] and card.reports[c][-1] == used[c]) for c in shapes))
    for channel, (buffer, header) in shapes.items():
        for index, data in sent[channel]:
            at = 0
            for part, length in enumerate(descriptors(len(data), buffer, header)):
                assert card.get(card.buffer(channel, index + part), length) == data[at : at + length]
                at += length
        total = [len(sent[channel]), sum(len(data) for _, data in sent[channel])]
        assert await card.counters(channel) == {cause: [0, 0] for cause in CAUSES} | {"received": total}
    assert set(card.interrupts) == {channel for channel in shapes if sent[channel]}
    assert not any(card.lanes), "payload without a write"


@case
async def every_dropped_packet_is_counted_by_its_cause(dut):
    card = Card(dut)
    await card.start()
    card.packets += [(3, bytes(100))] * 2  # stopped
    await card.settle()
    await card.open(3, buffer=64)
    await card.settle()
    card.packets += [(3, bytes(70))] * 3  # no descriptor
    await card.settle()
    await card.give(3, 0, 16)
    await card.settle()
    card.packets += [(3, bytes(64 * 17)), (3, bytes(64 * 16)), (3, b"\0")]  # too long, kept, no descriptor
    await card.until(lambda: card.reports[3] == [16])
    await card.settle()
    await card.register(3, "control", 0)
    await card.until(lambda: card.reports[3] == [16, 16])
    await card.settle()
    assert await card.register(3, "state") == STOPPED
    card.packets.append((3, bytes(5)))  # stopped
    await card.settle()
    assert await card.counters(3) == {
        "received": [1, 1024],
        "stopped": [3, 205],
        "no_descriptor": [5, 3 * 70 + 64 * 17 + 1],
        "late": [0, 0],
    }


@case
async def a_wrong_descriptor_stops_only_its_channel(dut):
    card = Card(dut)
    await card.start()
    for channel in (2, 6):
        await card.open(channel)
        await card.give(channel, 0, 32, spoil=20 if channel == 2 else None)
    await card.until(lambda: card.reports[2] == [0])
    await card.settle()
    assert await card.register(2, "state") == STOPPED | 1 << 4
    assert await card.register(6, "state") == RUNNING
    card.packets += [(6, bytes([7] * 90)), (2, bytes(90))]
    await card.until(lambda: card.reports[6] == [1])
    assert card.get(card.buffer(6, 0), 90) == bytes([7] * 90)
    assert (await card.counters(2))["stopped"] == [1, 90]
    # The next run begins at the first descriptor again.
    await card.open(2, generation=9)
    await card.give(2, 0, 16)
    await card.settle()
    card.packets.append((2, bytes([8] * 90)))
    await card.until(lambda: card.reports[2] == [1])
    assert card.get(card.buffer(2, 0), 90) == bytes([8] * 90)
