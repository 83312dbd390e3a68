"""Test cases of card_distributor: hashes, padding, frames of all lengths, causes of loss, the rate of 100G Ethernet."""

import os
import random
from ipaddress import ip_address

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from drivers import case, words
from packed import (
    HEADER,
    ICMP,
    IPV4,
    IPV6,
    KEY,
    PORTS,
    TCP,
    UDP,
    Frame,
    PackedSink,
    ethernet,
    ipv4,
    ipv6,
    random_frame,
    toeplitz,
)

PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
ENTRIES = 1 << PARAMETERS["TABLE_LOG2"]
CHANNELS = 1 << PARAMETERS["CHANNELS_LOG2"]
BUFFER = 1 << PARAMETERS["BUFFER_LOG2"]
MAX_LENGTH = 1526
PAD = 2
CAUSES = ["error", "runt", "giant", "overflow"]
# Bytes that 100G Ethernet carries in a clock of 5 ns, and its preamble and gap.
WIRE, GAP = 62.5, 20
# From the MS-RSS verification suite: addresses, ports, hash of addresses and ports, hash of addresses.
VECTORS = [
    ("66.9.149.187", "161.142.100.80", 2794, 1766, 0x51CCC178, 0x323E8FC2),
    ("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x40207D3D, 0x2CC18CD5),
]


class Card:
    """The device with a source of frames, a sink, and the packets that must arrive.

    Each frame is padded or not, at random unless `pad` says it.
    """

    def __init__(self, dut, ready=lambda: True, key=KEY):
        self.dut = dut
        self.sink = PackedSink(dut, ready)
        self.key = key
        self.table = [random.randrange(CHANNELS) for _ in range(ENTRIES)]
        self.now = random.getrandbits(62)
        self.pad = None
        self.sent = []  # frames, the times of their first words, and whether they are padded
        self.clocks = 0

    async def start(self):
        dut = self.dut
        Clock(dut.clk, 5, "ns").start()
        dut.rst.value = 1
        dut.time_tai.value = 0
        dut.max_length.value = MAX_LENGTH
        dut.pad.value = 0
        dut.key.value = int.from_bytes(self.key, "little")
        dut.s_axis_tvalid.value = 0
        dut.s_axis_tuser.value = 0
        dut.m_ready.value = 0
        for index, channel in enumerate(self.table):
            await FallingEdge(dut.clk)
            dut.table_write.value = 1
            dut.table_index.value = index
            dut.table_channel.value = channel
        for _ in range(4):
            await FallingEdge(dut.clk)
            dut.table_write.value = 0
        dut.rst.value = 0
        cocotb.start_soon(self.sink.run())

    async def idle(self, clocks):
        for _ in range(clocks):
            await FallingEdge(self.dut.clk)
            self.dut.s_axis_tvalid.value = 0
            self.clocks += 1

    async def send(self, frame, error=False, pause=0.0):
        dut, first = self.dut, True
        for data, keep, last in words(frame.data):
            while random.random() < pause:
                await self.idle(1)
            await FallingEdge(dut.clk)
            self.clocks += 1
            self.now += 5
            dut.time_tai.value = self.now
            dut.s_axis_tvalid.value = 1
            dut.s_axis_tdata.value = data
            dut.s_axis_tkeep.value = keep
            dut.s_axis_tlast.value = last
            dut.s_axis_tuser.value = int(error and last)
            # What `pad` becomes within a frame is not for this frame.
            pad = random.random() < 0.5 if self.pad is None else self.pad
            dut.pad.value = int(pad)
            if first:
                self.sent.append((frame, self.now, pad))
            first = False

    async def counts(self):
        """Returns the counters when all frames have passed: delivered, then the causes."""
        quiet, seen = 0, -1
        while quiet < 60:
            await self.idle(1)
            quiet = quiet + 1 if self.sink.words == seen else 0
            seen = self.sink.words
        return [int(getattr(self.dut, f"count_{name}").value) for name in ["delivered", *CAUSES]]

    def expected(self, frame, time, pad):
        """Returns the packet of a frame and its channel."""
        number = toeplitz(frame.tuple, self.key)
        data = bytes(PAD * pad) + frame.data[:-4]
        length = (len(data) + HEADER).to_bytes(2, "little")
        header = length + frame.flags.to_bytes(2, "little") + number.to_bytes(4, "little") + time.to_bytes(8, "little")
        return header + data, self.table[number % ENTRIES]

    def check(self, sent):
        """Asserts that exactly these frames were delivered, in order."""
        found = [(packet.data, packet.channel) for packet in self.sink.packets]
        assert len(found) == len(sent), f"{len(found)} packets of {len(sent)} frames"
        for i, (packet, (frame, time, pad)) in enumerate(zip(found, sent, strict=True)):
            assert packet == self.expected(frame, time, pad), (
                f"packet {i} of a frame of {len(frame.data)} bytes, {pad=}"
            )


async def start(dut, *args):
    card = Card(dut, *args)
    await card.start()
    return card


@case()
async def hashes_match_the_published_vectors(dut):
    card, expected = await start(dut), []
    for *names, source_port, destination_port, with_ports, without in VECTORS:
        source, destination = (ip_address(name).packed for name in names)
        ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
        addresses = source + destination
        header, ethertype, flag = (ipv4, 0x0800, IPV4) if len(source) == 4 else (ipv6, 0x86DD, IPV6)
        for tags in range(3):
            for protocol in (TCP, UDP, ICMP):
                data = ethernet(100, tags, ethertype, header(source, destination, protocol) + ports)
                vlan = 8 if tags else 0
                whole = protocol != ICMP
                await card.send(Frame(data, flag | vlan | PORTS * whole, addresses + ports * whole))
                expected.append(with_ports if whole else without)
    assert await card.counts() == [len(expected), 0, 0, 0, 0]
    assert [packet.fields()[2] for packet in card.sink.packets] == expected
    card.check(card.sent)


@case()
async def frames_of_every_length_arrive_whole(dut):
    stall = [0.0]
    card = await start(dut, lambda: random.random() >= stall[0], random.randbytes(40))
    lengths = [(length, pad) for length in range(64, MAX_LENGTH + 1) for pad in (False, True)]
    random.shuffle(lengths)
    for length, card.pad in lengths:
        stall[0], pause = random.choice([(0.0, 0.0), (0.2, 0.4), (0.0, 0.5), (0.4, 0.7)])
        await card.send(random_frame(length), pause=pause)
    assert await card.counts() == [len(lengths), 0, 0, 0, 0]
    card.check(card.sent)


@case()
async def bad_frames_are_counted_once_by_cause(dut):
    card = await start(dut, lambda: random.random() < 0.9)
    good, bad = [], dict.fromkeys(CAUSES, 0)
    lengths = {"runt": (1, 63), "giant": (MAX_LENGTH + 1, MAX_LENGTH + 300), "error": (1, 2000), "good": (64, 300)}
    edges = [("runt", 63), ("good", 64), ("giant", MAX_LENGTH + 1), ("good", MAX_LENGTH), ("giant", 16384 + 64)]
    kinds = [(kind, random.randint(*lengths[kind])) for kind in random.choices(list(lengths), k=400)]
    for kind, length in edges + kinds:
        await card.send(random_frame(length), error=kind == "error", pause=random.choice([0.0, 0.3]))
        if kind == "good":
            good.append(card.sent[-1])
        else:
            bad[kind] += 1
    assert min(bad["error"], bad["runt"], bad["giant"]) > 20
    assert await card.counts() == [len(good), *bad.values()]
    card.check(good)


@case()
async def no_packet_is_longer_than_its_length_field(dut):
    card = await start(dut)
    dut.max_length.value = 16383
    for card.pad, longest in ((False, 16371), (True, 16369)):
        for length in (longest, longest + 1, 64, 17000, longest - 1):
            await card.send(random_frame(length))
    assert await card.counts() == [6, 0, 0, 4, 0]
    card.check([frame for i, frame in enumerate(card.sent) if i % 5 in (0, 2, 4)])
    assert [len(packet.data) for packet in card.sink.packets[::3]] == [16383, 16383]


@case()
async def overflow_drops_whole_frames_and_counts_them(dut):
    """Frames longer than the free space are dropped, shorter ones that fit are not; all are delivered or counted."""
    stall = [1.0]
    card = await start(dut, lambda: random.random() >= stall[0])
    for phase in range(24):
        stall[0] = [1.0, 0.0, 0.7, 0.3][phase % 4]
        short = phase % 3 == 0
        for _ in range(2 * BUFFER if short else 60):
            await card.send(random_frame(random.randint(64, 90 if short else 1000)))
    stall[0] = 0.0
    delivered, *dropped = await card.counts()
    assert delivered and dropped[3] and not any(dropped[:3])
    assert delivered + dropped[3] == len(card.sent) and delivered == len(card.sink.packets)
    by_time = {entry[1]: entry for entry in card.sent}
    card.check([by_time[packet.fields()[3]] for packet in card.sink.packets])
    times = [packet.fields()[3] for packet in card.sink.packets]
    assert times == sorted(times)


@case()
async def queued_packets_leave_without_a_gap(dut):
    stall = [1.0]
    card = await start(dut, lambda: random.random() >= stall[0])
    await card.idle(20)
    for _ in range(BUFFER // 4):
        await card.send(random_frame(random.randint(64, 150)))
    await card.idle(20)
    stall[0] = 0.0
    delivered, *dropped = await card.counts()
    assert not any(dropped) and delivered == BUFFER // 4
    card.check(card.sent)
    assert card.sink.gapless() and card.sink.adjacent > 0
    blocks = sum(-(-len(packet.data) // 8) for packet in card.sink.packets)
    assert card.sink.words == -(-blocks // 8)


@case(timeout_time=4)
async def no_length_overflows_at_the_rate_of_the_wire(dut):
    """Each frame takes its time on 100G Ethernet, or a clock for each of its words where that is longer."""
    card, owed = await start(dut), 0.0
    edges = [
        length for words in range(1, 24) for length in (64 * words, 64 * words + 1, 64 * words + 4, 64 * words + 5)
    ]
    short = [*range(64, 84)]
    lengths = [*short, *short, *(length for length in edges if length <= MAX_LENGTH), MAX_LENGTH]
    lengths += random.sample(range(64, MAX_LENGTH), 40)
    runs = [[length] * max(24, 16 * BUFFER * 64 // length) for length in lengths]
    runs += [[random.choice([64, 65, 69, 128, 129, MAX_LENGTH]) for _ in range(400)]]
    for number, run in enumerate(runs):
        card.pad = number < len(short) if number < 2 * len(short) else random.random() < 0.5
        frame = {length: random_frame(length) for length in set(run)}
        for length in run:
            begin = card.clocks
            await card.send(frame[length])
            owed = max(0.0, owed + (length + GAP) / WIRE - (card.clocks - begin))
            await card.idle(int(owed))
            owed -= int(owed)
    assert await card.counts() == [len(card.sent), 0, 0, 0, 0]
    card.check(card.sent)
