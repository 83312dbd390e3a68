"""Test cases of card_pcie: requests by the rules of PG213, their cost, completions, accesses of the host."""

import os
import random
from collections import deque
from itertools import pairwise

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly
from drivers import case
from pcie import (
    ATOMIC,
    IO_READ,
    IO_WRITE,
    MESSAGE,
    READ,
    WRITE,
    AnswerSink,
    RequestSink,
    access,
    bits,
    completion,
    offer,
    stream,
)

PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
CHANNELS, TAGS = 1 << PARAMETERS["CHANNELS_LOG2"], 1 << PARAMETERS["TAGS_LOG2"]
# A window of 1 GiB at 2^40; addresses with bit 63 are outside.
BASE, MASK = 1 << 40, ~((1 << 30) - 1) & (1 << 64) - 1
PAYLOAD, REPORT, INTERRUPT = 0, 1, 2
FINAL, REFUSED = 0, 1


class Slot:
    """A write of the DMA module."""

    def __init__(self, kind, address=0, data=b"", channel=0):
        self.kind, self.address, self.data, self.channel = kind, address, data, channel
        self.block = 0  # lane of the first block
        self.refused = kind != INTERRUPT and (address ^ BASE) & MASK != 0

    def halves(self):
        return -(-(16 + len(self.data)) // 32)


def somewhere(length, refused=0.0):
    """Returns an address for `length` bytes within 4 KiB."""
    page = random.getrandbits(18) << 12
    offset = 8 * random.randrange((4096 - length) // 8 + 1)
    return (BASE | page | offset) ^ (1 << 63 if random.random() < refused else 0)


def payload(length, refused=0.0):
    return Slot(PAYLOAD, somewhere(length, refused), random.randbytes(length), random.randrange(CHANNELS))


def report(final=False, refused=0.0):
    data = random.getrandbits(24) | final << 24 | random.getrandbits(4) << 28
    return Slot(REPORT, somewhere(8, refused), data.to_bytes(8, "little"), random.randrange(CHANNELS))


def rows(slots, hole=0.0):
    """Puts the blocks of payload into words, and sets the lanes of the slots. Returns words: data, keep."""
    words, position = [], 0
    for slot in slots:
        if slot.kind != PAYLOAD:
            continue
        if random.random() < hole:
            position += random.randrange(12)
        slot.block = position % 8
        for at in range(0, len(slot.data), 8):
            while len(words) <= position // 8:
                words.append([random.getrandbits(512), 0])
            lane = position % 8
            block = int.from_bytes(slot.data[at : at + 8].ljust(8, b"\xee"), "little")
            words[-1][0] = words[-1][0] & ~(2**64 - 1 << 64 * lane) | block << 64 * lane
            words[-1][1] |= 1 << lane
            position += 1
    return [tuple(word) for word in words]


class Card:
    """The device with its model: what was sent, and what arrived."""

    def __init__(self, dut, ready=lambda: True):
        self.dut = dut
        self.sink = RequestSink(dut, ready)
        self.answers = AnswerSink(dut, lambda: random.random() < 0.6)
        self.interrupts, self.notices, self.beats = [], [], []  # with the number of TLPs that had left
        self.memory, self.writes = {}, []

    async def start(self, clock=5000, pcie_clock=4000):
        dut = self.dut
        Clock(dut.clk, clock, "ps").start()
        Clock(dut.pcie_clk, pcie_clock, "ps").start()
        for name in ("s_data_valid", "s_slot_valid", "s_read_valid", "s_axis_rc_tvalid", "s_axis_cq_tvalid"):
            getattr(dut, name).value = 0
        for name in ("m_axis_rq_tready", "m_axis_cc_tready", "s_axis_rc_tuser", "s_axis_cq_tuser"):
            getattr(dut, name).value = 0
        for name in ("awready", "wready", "arready", "bvalid", "rvalid", "bresp", "rresp"):
            getattr(dut, f"m_axil_{name}").value = 0
        dut.pcie_tfc_nph_av.value = 15
        dut.s_axis_rc_tkeep.value = 0xFFFF
        dut.s_axis_cq_tkeep.value = 0xFFFF
        dut.window_base.value = BASE >> 12
        dut.window_mask.value = MASK >> 12
        dut.rst.value = 1
        dut.pcie_rst.value = 1
        await self.wait(8)
        dut.rst.value = 0
        dut.pcie_rst.value = 0
        await self.wait(16)
        for task in (self.sink, self.answers):
            cocotb.start_soon(task.run())
        for task in (self.watch, self.watch_pcie, self.registers):
            cocotb.start_soon(task())

    async def wait(self, clocks):
        for _ in range(clocks):
            await FallingEdge(self.dut.clk)

    async def watch(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            await ReadOnly()
            if int(dut.notice_valid.value):
                left = len(self.sink.tlps)
                self.notices.append((int(dut.notice_kind.value), int(dut.notice_channel.value), left))
            if int(dut.m_completion_valid.value):
                error = int(dut.m_completion_error.value)
                data = None if error else int(dut.m_completion_data.value).to_bytes(32, "little")
                self.beats.append((int(dut.m_completion_tag.value), data))

    async def watch_pcie(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.pcie_clk)
            await ReadOnly()
            if int(dut.interrupt_valid.value):
                self.interrupts.append((int(dut.interrupt_channel.value), len(self.sink.tlps)))

    async def registers(self):
        """A subordinate on `m_axil` that accepts address and data of a write in one clock."""
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            for name in ("awready", "wready", "arready", "bvalid", "rvalid"):
                getattr(dut, f"m_axil_{name}").value = 0
            await ReadOnly()
            write, read = int(dut.m_axil_awvalid.value), int(dut.m_axil_arvalid.value)
            if not write and not read:
                continue
            await self.wait(random.randrange(3))
            await FallingEdge(dut.clk)
            if write:
                dut.m_axil_awready.value = 1
                dut.m_axil_wready.value = 1
            else:
                dut.m_axil_arready.value = 1
            await ReadOnly()
            address = int(dut.m_axil_awaddr.value if write else dut.m_axil_araddr.value)
            if write:
                assert int(dut.m_axil_wvalid.value)
                strobe = int(dut.m_axil_wstrb.value)
                self.memory[address] = int(dut.m_axil_wdata.value)
                self.writes.append((address, self.memory[address], strobe))
            await FallingEdge(dut.clk)
            dut.m_axil_awready.value = 0
            dut.m_axil_wready.value = 0
            dut.m_axil_arready.value = 0
            dut.m_axil_rdata.value = self.memory.get(address, 0)
            getattr(dut, f"m_axil_{'bvalid' if write else 'rvalid'}").value = 1

    async def send_data(self, words, pause=0.0):
        dut = self.dut

        def drive(word):
            dut.s_data.value, dut.s_data_keep.value = word

        await FallingEdge(dut.clk)
        await offer(dut.clk, dut.s_data_valid, dut.s_data_ready, words, drive, pause)

    async def send_slots(self, entries, pause=0.0):
        """Sends entries of slot 0 and slot 1, of which one may be None."""
        dut = self.dut
        await FallingEdge(dut.clk)
        for entry in entries:
            while random.random() < pause:
                await FallingEdge(dut.clk)
            values = dict.fromkeys(("valid", "kind", "address", "length", "block", "channel"), 0)
            for i, slot in enumerate(entry):
                if slot:
                    values["valid"] |= 1 << i
                    values["kind"] |= slot.kind << 2 * i
                    values["address"] |= slot.address << 64 * i
                    values["length"] |= len(slot.data) << 11 * i
                    values["block"] |= slot.block << 3 * i
                    values["channel"] |= slot.channel << 8 * i
            if entry[0] and entry[0].kind == REPORT:
                dut.s_slot_report.value = int.from_bytes(entry[0].data, "little")
            for name, value in values.items():
                getattr(dut, f"s_slot_{name}").value = value
            await ReadOnly()
            while not int(dut.s_slot_ready.value):
                await FallingEdge(dut.clk)
                await ReadOnly()
            await FallingEdge(dut.clk)
            dut.s_slot_valid.value = 0

    async def send_reads(self, reads, pause=0.0):
        dut = self.dut

        def drive(read):
            dut.s_read_address.value, dut.s_read_tag.value = read

        await FallingEdge(dut.clk)
        await offer(dut.clk, dut.s_read_valid, dut.s_read_ready, reads, drive, pause)

    async def quiet(self, clocks=100):
        """Waits until nothing has arrived for some clocks."""
        seen, since = None, 0
        while since < clocks:
            await self.wait(1)
            now = len(self.sink.tlps), len(self.beats), len(self.notices), len(self.answers.answers)
            since = since + 1 if now == seen else 0
            seen = now

    def check(self, entries, reads=()):
        """Asserts that exactly these writes and reads left, each in its order, and the events after their writes."""
        found = [tlp for tlp in self.sink.tlps if tlp.kind == WRITE]
        places = [i for i, tlp in enumerate(self.sink.tlps) if tlp.kind == WRITE]
        slots = [slot for entry in entries for slot in entry if slot]
        expected = [slot for slot in slots if slot.kind != INTERRUPT and not slot.refused]
        assert [(tlp.address, tlp.data) for tlp in found] == [(slot.address, slot.data) for slot in expected]
        assert all(tlp.end - tlp.begin + 1 == slot.halves() for tlp, slot in zip(found, expected, strict=True))
        asked = [(tlp.address, tlp.tag) for tlp in self.sink.tlps if tlp.kind == READ]
        assert asked == list(reads)

        # The number of TLPs with the last write that precedes each event.
        interrupts, notices, sent = [], [], 0
        for slot in slots:
            sent += slot.kind != INTERRUPT and not slot.refused
            after = places[sent - 1] + 1 if sent else 0
            if slot.kind == INTERRUPT:
                interrupts.append((slot.channel, after))
            if slot.refused:
                notices.append((REFUSED, slot.channel, 0))
            if slot.kind == REPORT and slot.data[3] & 1:
                notices.append((FINAL, slot.channel, after))
        for events, arrived in ((interrupts, self.interrupts), (notices, self.notices)):
            assert [event[:-1] for event in arrived] == [event[:-1] for event in events]
            assert all(now[-1] >= event[-1] for now, event in zip(arrived, events, strict=True)), (
                "event before its write"
            )


async def start(dut, ready=lambda: True, **clocks):
    card = Card(dut, ready)
    await card.start(**clocks)
    return card


def mixture(count, longest, refused=0.0):
    """Returns entries of all kinds."""
    entries = []
    while len(entries) < count:
        kind = random.random()
        if kind < 0.75:
            first = payload(random.choice([random.randint(1, 40), random.randint(1, longest)]), refused)
            second = payload(random.randint(1, longest), refused) if random.random() < 0.5 else None
            entries.append((first, second))
        elif kind < 0.95:
            first = report(final=random.random() < 0.3, refused=refused)
            entries.append((first, Slot(INTERRUPT, channel=first.channel) if random.random() < 0.5 else None))
        else:
            entries.append((None, Slot(INTERRUPT, channel=random.randrange(CHANNELS))))
    return entries


def some_reads(count):
    return [(BASE | random.getrandbits(20) << 8, i % TAGS) for i in range(count)]


async def exchange(card, entries, reads, hole, pauses):
    """Sends data, slots and reads at the same time, and checks what leaves."""
    words = rows([slot for entry in entries for slot in entry if slot], hole)
    tasks = [card.send_data(words, pauses[0]), card.send_slots(entries, pauses[1]), card.send_reads(reads, pauses[2])]
    for task in [cocotb.start_soon(task) for task in tasks]:
        await task
    await card.quiet()
    card.check(entries, reads)


@case()
async def requests_of_all_kinds_keep_the_rules(dut):
    card = await start(dut, lambda: random.random() < 0.7)
    await exchange(card, mixture(250, 300, 0.1), some_reads(60), 0.3, (0.1, 0.3, 0.8))


@case()
async def a_slow_stream_loses_nothing(dut):
    card = await start(dut, lambda: random.random() < 0.5, pcie_clock=9000)
    await exchange(card, mixture(200, 1024), some_reads(60), 0.0, (0.0, 0.0, 0.5))


@case()
async def a_fast_stream_never_pauses_in_a_request(dut):
    card = await start(dut, clock=7000, pcie_clock=3000)
    await exchange(card, mixture(200, 1024, 0.05), some_reads(60), 0.2, (0.3, 0.0, 0.5))


@case()
async def long_stalls_lose_nothing(dut):
    bursts = deque()

    def ready():
        if not bursts:
            bursts.extend([False] * random.randint(1, 120) + [True] * random.randint(1, 60))
        return bursts.popleft()

    card = await start(dut, ready)
    await exchange(card, mixture(250, 200, 0.1), some_reads(60), 0.1, (0.0, 0.0, 0.5))


@case()
async def reads_wait_for_credits_and_writes_do_not(dut):
    card = await start(dut, lambda: random.random() < 0.7)
    dut.pcie_tfc_nph_av.value = 0
    entries, reads = mixture(80, 200), some_reads(40)
    cocotb.start_soon(card.send_reads(reads))
    words = rows([slot for entry in entries for slot in entry if slot])
    data = cocotb.start_soon(card.send_data(words))
    await card.send_slots(entries)
    await data
    await card.quiet()
    card.check(entries)
    # Credits come one by one or in bursts; the block's number is late by the clocks of its pipeline.
    granted, late = 0, deque([0] * random.randint(1, 25))
    for _ in range(4000):
        await FallingEdge(dut.pcie_clk)
        used = sum(tlp.kind == READ for tlp in card.sink.tlps)
        assert used <= granted, "a read without a credit"
        if used == len(reads):
            break
        granted += random.choice([1, 1, 3, 20]) if random.random() < 0.05 else 0
        late.append(used)
        dut.pcie_tfc_nph_av.value = min(15, granted - late.popleft())
    card.check(entries, reads)


@case()
async def requests_cost_their_halves_and_no_bubble(dut):
    # The stream is the slower side and begins late, so requests always wait.
    card = await start(dut, pcie_clock=9000)
    sink = card.sink
    lengths = [[length] for length in (*range(1, 34), 48, 49, 64, 80, 81, 128, 255, 256, 512, 1000, 1024)]
    for choice in [*lengths, [8, 24], [1, 8, 16, 17, 48], [8, 64, 112, 300]]:
        sink.tlps, sink.clocks, sink.empty = [], [], 0
        pairs = 150 if len(choice) > 1 else max(4, 1000 // choice[0])
        entries = [(payload(random.choice(choice)), payload(random.choice(choice))) for _ in range(pairs)]
        words = rows([slot for entry in entries for slot in entry])
        begin = sink.clock + 40
        sink.ready = lambda begin=begin: sink.clock > begin
        task = cocotb.start_soon(card.send_data(words))
        await card.send_slots(entries)
        await task
        await card.quiet(90)
        halves = sum(slot.halves() for entry in entries for slot in entry)
        # At first only one request may be there, so up to two beats may lack a half.
        assert sink.clocks[-1] - sink.clocks[0] + 1 <= (halves + 1) // 2 + 1, f"{choice} bytes: a clock without a beat"
        assert sink.empty <= 2, f"{choice} bytes: {sink.empty} halves unused"
        card.check(entries)


async def share(dut, entries, pattern):
    """Sends entries and as many reads as there are credits at the same time; `pattern` must not occur while both wait."""
    card = await start(dut, pcie_clock=9000)
    await exchange(card, entries, some_reads(15), 0.0, (0.0, 0.0, 0.0))
    kinds = "".join("rw"[tlp.kind] for tlp in card.sink.tlps)
    both = kinds[8 : kinds.rindex("r")]
    assert both.count("r") >= 8 and "rr" not in both and pattern not in both, both
    assert card.sink.empty <= 3


@case()
async def reads_take_turns_with_single_writes(dut):
    await share(dut, [(payload(64) if i % 2 else report(), None) for i in range(150)], "ww")


@case()
async def reads_take_turns_with_pairs_of_writes(dut):
    await share(dut, [(payload(64), payload(8)) for _ in range(150)], "www")


async def report_densely(dut, **clocks):
    card, entries = await start(dut, **clocks), []
    for _ in range(300):
        first = report(final=random.random() < 0.9, refused=0.5)
        entries.append((first, Slot(INTERRUPT, channel=first.channel) if random.random() < 0.4 else None))
    await exchange(card, entries, [], 0.0, (0.0, 0.0, 0.0))


@case()
async def many_events_wait_for_their_turn(dut):
    await report_densely(dut)


@case()
async def notices_wait_for_a_slow_clock(dut):
    await report_densely(dut, clock=9000, pcie_clock=3000)


@case()
async def refusals_do_not_wait_for_the_stream(dut):
    card = await start(dut, lambda: False)
    await exchange(card, mixture(30, 100, refused=1.0), [], 0.0, (0.0, 0.0, 0.0))


@case()
async def completions_become_beats_of_their_tags(dut):
    card = await start(dut)
    tags = random.sample(range(TAGS), min(TAGS, 32))
    contents = {tag: random.randbytes(256) for tag in tags}
    parts, errors = {}, {}
    for tag in tags:
        cuts = sorted({0, 256, *(64 * random.randrange(5) for _ in range(2))})
        parts[tag] = deque(pairwise(cuts))
        errors[tag] = random.choice([None] * 4 + ["status", "poisoned", "error", "empty", "odd", "lost"])
    beats, expected = [], {tag: [] for tag in tags}
    while any(parts.values()):
        tag = random.choice([tag for tag in tags if parts[tag]])
        begin, end = parts[tag].popleft()
        data, options, error = contents[tag][begin:end], {}, errors[tag]
        if error and (not parts[tag] or random.random() < 0.3):
            options = {"status": {"status": 1}, "poisoned": {"poisoned": True}, "error": {"error": 2}}.get(error, {})
            data = {"empty": b"", "odd": data[:-16], "status": b""}.get(error, data)
            parts[tag].clear()
            expected[tag].append(None)
        else:
            expected[tag] += [data[at : at + 32] for at in range(0, len(data), 32)]
            error = None
        packet = completion(tag, data, begin, 256 - begin, **options)
        if error == "lost":
            # The words that are complete before it are given; the error follows.
            at = random.randrange(len(packet))
            packet[at] = (packet[at][0], packet[at][1] | 1 << 96, packet[at][2])
            given = data[: 64 * max(0, at - 1)]
            expected[tag][-1:-1] = [given[i : i + 32] for i in range(0, len(given), 32)]
        beats += packet
    if TAGS < 256:
        beats += completion(TAGS, random.randbytes(64)) + completion(255, b"", error=6)
    await FallingEdge(dut.pcie_clk)
    await stream(dut.pcie_clk, dut, "s_axis_rc", beats, 0.05)
    await card.quiet()
    for tag in tags:
        assert [data for found, data in card.beats if found == tag] == expected[tag], f"tag {tag}: {errors[tag]}"
    assert len(card.beats) == sum(map(len, expected.values()))


def answer(tag, address, enables, data):
    """Returns the completion of a register read: descriptor and data."""
    on = [i for i in range(4) if enables >> i & 1] or [0]
    lower = address & 0x7C | on[0]
    count = on[-1] - on[0] + 1
    head = lower | count << 16 | (1 | 0x1234 << 16) << 32 | (tag | 3 << 8 | 2 << 25 | 5 << 28) << 64
    return head | data << 96, 0x000F


@case()
async def the_host_reads_and_writes_registers(dut):
    card = await start(dut)
    beats, writes, answers, memory = [], [], [], {}
    for tag in range(250):
        address = 0xF000_0000 + 4 * random.randrange(64)
        value, enables = random.getrandbits(32), random.choice([15, random.randrange(16)])
        at = address & 0xFFFF
        match random.choice(["write", "read", "read", "long", "bar", "other", "far"]):
            case "write":
                beats += access(WRITE, address, [value], 0, tag, enables=enables)
                memory[at] = value
                writes.append((at, value, enables))
            case "read":
                beats += access(READ, address, [], 0, tag, enables=enables)
                answers.append(answer(tag, address, enables, memory.get(at, 0)))
            case "long":
                count = random.choice([2, 12, 13, 40])
                beats += access(WRITE, address, [value] * count, 0, tag, count)
            case "bar":
                beats += access(WRITE, address, [value], 1, tag)
            case "other":
                beats += access(MESSAGE, address, [], 0, tag, 0)
            case "far":
                kind, count = random.choice([(READ, 2), (IO_READ, 1), (IO_WRITE, 1), (ATOMIC, 1), (7, 1)])
                packet = access(kind, address, [value] if kind in (IO_WRITE, ATOMIC) else [], 0, tag, count)
                beats += packet
                data, user, _ = packet[0]
                head = (kind == 7) << 29 | 20 << 16 | (5 | 1 << 11 | 0x1234 << 16) << 32
                head |= (tag | 3 << 8 | 2 << 25 | 5 << 28) << 64
                signals = bits(user, 3, 0) | bits(user, 11, 8) << 4
                answers.append((head | signals << 96 | bits(data, 127, 0) << 128, 0x00FF))
    await FallingEdge(dut.pcie_clk)
    await stream(dut.pcie_clk, dut, "s_axis_cq", beats, 0.1)
    await card.quiet()
    assert card.writes == writes
    assert list(card.answers.answers) == answers


@case()
async def either_reset_clears_both_sides(dut):
    card = await start(dut, lambda: False)
    entries = mixture(10, 100)
    words = rows([slot for entry in entries for slot in entry if slot])
    tasks = [cocotb.start_soon(card.send_data(words)), cocotb.start_soon(card.send_slots(entries))]
    for task in tasks:
        await task
    for reset in (dut.pcie_rst, dut.rst):
        reset.value = 1
        await card.wait(4)
        assert int(dut.dma_rst.value)
        reset.value = 0
        await card.wait(12)
        assert not int(dut.dma_rst.value) and not int(dut.m_axis_rq_tvalid.value)
    card.sink.ready = lambda: True
    await exchange(card, mixture(30, 100), some_reads(10), 0.1, (0.0, 0.0, 0.5))
