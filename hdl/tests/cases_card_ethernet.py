"""Test cases of card_ethernet: frames of a MAC into the memory of a host, with the real ratios of all three clocks."""

import random

import cocotb
from cases_card_host import BUFFER, CHANNELS, PARAMETERS, RING, SPACE, Channel, Host, register
from cases_card_port import ENTRIES, MAC_PERIOD_PS, Mac
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge, Timer
from cocotb.utils import get_sim_time
from drivers import RESETS, case
from packed import random_frame

# 100 Gbit/s; preamble, start of frame and the gap between frames.
BYTE_PS, BETWEEN = 80, 20
# The channels that are used: the first, the last, and some between.
NUMBERS = [(CHANNELS - 1) * i // 7 for i in range(8)]
DROPS = ("error", "runt", "giant", "overflow")


class Card(Mac, Host):
    """The host, and a MAC that sends frames as dense as 100G Ethernet brings them."""

    INPUT = "s_axis_tvalid"

    async def start(self):
        self.wire = 0  # when it is free
        self.seen = 0  # frames since the reset
        self.begin()
        self.table = [random.choice(NUMBERS) for _ in range(ENTRIES)]
        await super().start()
        await self.configure()
        cocotb.start_soon(self.feed())
        cocotb.start_soon(self.count())

    async def configure(self):
        for address, value in self.settings():
            await self.bar.write_dword(address, value)
        # A read follows the writes.
        assert await self.read("card_distributor.table") == ENTRIES - 1 | self.table[-1] << 16
        await Timer(1, "us")

    def stalled(self):
        now = get_sim_time("ps")
        if now < self.wire:
            return True
        self.wire = max(self.wire, now - MAC_PERIOD_PS) + BYTE_PS * (len(self.frames[0][0].data) + BETWEEN)
        return False

    async def count(self):
        """Counts the frames that begin while the input is open, and checks that it does not open within one."""
        dut, within, before = self.dut, False, True
        while True:
            await FallingEdge(dut.mac_clk)
            await ReadOnly()
            closed = bool(int(dut.closed.value))
            assert closed or not before or not within, "the input opens within a frame"
            before = closed
            if closed:
                self.seen = 0
            if int(dut.s_axis_tvalid.value):
                self.seen += not within and not closed
                within = not int(dut.s_axis_tlast.value)

    async def read(self, name, channel=0):
        return await self.bar.read_dword(register(name, channel))

    async def open(self):
        """Starts the channels, some with header split, in memory that is all 0."""
        header = 80 if self.pad else 64
        self.channels = {number: Channel(number, self, header if number % 2 else 0) for number in NUMBERS}
        for channel in self.channels.values():
            self.memory[channel.ring : channel.ring + SPACE] = bytes(SPACE)
            await channel.start()
        self.before = await self.stopped()
        self.room = dict.fromkeys(NUMBERS, RING)
        self.sent = {number: [] for number in NUMBERS}

    async def stopped(self):
        """Returns the frames of each channel that it was not running for."""
        return {number: await self.read("card_channel.packets_stopped", number) for number in NUMBERS}

    def offer(self, length, damaged=False, good=True):
        """Sends a frame if its channel has descriptors for it; returns `True` if so."""
        frame = random_frame(length)
        packet, number = self.packet(frame, 0)
        header = self.channels[number].header
        needed = (2 if header else 1) * max(1, -(-(len(packet) - header) // BUFFER))
        if self.room[number] < needed:
            return False
        entry = [frame, damaged]
        if good and not damaged:
            self.room[number] -= needed
            self.sent[number].append(entry)
        self.frames.append(entry)
        return True

    async def settle(self):
        while self.frames:
            await RisingEdge(self.dut.mac_clk)
        await Timer(4, "us")

    async def close(self, stopped=()):
        """Stops all channels and checks reports, memory and counters; frames of `stopped` channels may be lost."""
        for channel in self.channels.values():
            await channel.stop()
        found = await self.stopped()
        for number, channel in self.channels.items():
            entries = self.sent[number]
            assert await channel.stopped() == 0
            packets = [self.packet(frame, time)[0] for frame, _, time in entries]
            count = await self.read("card_channel.packets_received", number)
            lost = len(packets) - count
            assert lost == found[number] - self.before[number] and (not lost or number in stopped)
            assert await self.read("card_channel.bytes_received", number) == sum(map(len, packets[:count]))
            for packet in packets[:count]:
                channel.expect(packet)
            channel.check()


async def start(dut):
    card = Card(dut)
    await card.start()
    return card


@case()
async def registers_of_both_blocks_are_in_the_bar(dut):
    card = Card(dut)
    card.configure = card.ready  # their values after a reset
    await card.start()
    await card.bar.write_dword(register("card.max_write"), RESETS["card.max_write"])
    found = {name: await card.read(name) for name in RESETS if name.split(".")[0] in ("card", "card_distributor")}
    assert found.items() <= RESETS.items() and {"card.id", "card_distributor.max_length"} <= found.keys()
    names = [("CHANNELS_LOG2", 0), ("PREFETCH_LOG2", 4), ("TAGS_LOG2", 8)]
    assert await card.read("card.parameters") == sum(PARAMETERS[name] << at for name, at in names) | 3 << 12
    names = [("TABLE_LOG2", 0), ("BUFFER_LOG2", 4)]
    assert await card.read("card_distributor.parameters") == sum(PARAMETERS[name] << at for name, at in names)
    await card.bar.write_dword(register("card_distributor.max_length"), 9018)
    await card.bar.write_dword(register("card.read_timeout"), 1000)
    assert (await card.read("card_distributor.max_length"), await card.read("card.read_timeout")) == (9018, 1000)


@case()
async def frames_of_many_lengths_arrive_whole(dut):
    card = await start(dut)
    await card.open()
    bad = dict.fromkeys(DROPS, 0)
    for length in [64, 65, 68, 69, 76, 127, 128, 129, 512, 513, 1517, 1518]:
        card.offer(length)
    for _ in range(200):
        if random.random() < 0.2:
            damaged, length = random.random() < 0.5, random.choice([20, 63, 1523, 1600])
            bad["error" if damaged else "runt" if length < 64 else "giant"] += card.offer(length, damaged, False)
        else:
            card.offer(random.choice([64, random.randrange(64, 300), random.randrange(64, 1519)]))
    sent = sum(map(len, card.sent.values()))
    assert sent > 60
    await card.settle()
    await card.close()
    assert {name: await card.read(f"card_distributor.{name}") for name in DROPS} == bad
    assert await card.read("card_distributor.delivered") == sent == card.seen - sum(bad.values())
    assert set(card.interrupts) == set(NUMBERS)


@case()
async def a_channel_is_stopped_while_its_frames_come(dut):
    card = await start(dut)
    await card.open()
    while min(card.room.values()) >= 8:
        card.offer(random.randrange(64, 200))
    await Timer(random.randrange(300, 600), "ns")
    await card.channels[NUMBERS[1]].stop()
    await card.settle()
    await card.close(stopped=NUMBERS[1:2])
    assert await card.read("card_distributor.delivered") == card.seen


@case()
async def either_reset_resets_all_and_the_card_works_again(dut):
    card = await start(dut)
    # The reset of the PCIe side comes within frames and TLPs; the other alone may not.
    for clock, reset, load in [(dut.pcie_clk, dut.pcie_rst, True), (dut.clk, dut.rst, False)]:
        await card.open()
        await card.bar.write_dword(register("card_distributor.max_length"), 9018)
        card.frames += [[random_frame(random.randrange(64, 1519)), False] for _ in range(200 if load else 20)]
        await Timer(random.randrange(1_000_000, 3_000_000) if load else 20_000_000, "ps")
        assert bool(card.frames) == load
        await RisingEdge(clock)
        reset.value = 1
        for _ in range(random.randrange(1, 5)):
            await RisingEdge(clock)
        reset.value = 0
        await card.ready()
        assert len(card.frames) > 50 or not load
        assert await card.read("card_distributor.max_length") == RESETS["card_distributor.max_length"]
        assert not any([await card.read("card_channel.state", number) for number in NUMBERS])
        # Frames still come, for channels that no longer run; those before the channels are cleared fill the buffer.
        await card.settle()
        delivered, overflow = [await card.read(f"card_distributor.{name}") for name in ("delivered", "overflow")]
        assert delivered == sum((await card.stopped()).values()) and delivered + overflow == card.seen
        assert bool(card.seen) == load
        await card.configure()
        await card.open()
        while min(card.room.values()) >= 8:
            card.offer(random.randrange(64, 700))
        await card.settle()
        await card.close()
        assert await card.read("card_distributor.delivered") == card.seen - overflow
