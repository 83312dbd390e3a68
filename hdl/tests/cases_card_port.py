"""Test cases of card_port: frames of a MAC reach the buffers of the channels that their hashes choose."""

import random

from cases_card_dma import CAUSES, CHANNELS, PARAMETERS, RUNNING, Card, descriptors
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge
from drivers import REGISTERS, case, words
from packed import HEADER, KEY, random_frame, toeplitz

ENTRIES = 1 << PARAMETERS["TABLE_LOG2"]
MAX_LENGTH = 700
REFUSED = 2
MAC_PERIOD_PS = 3104


class Mac:
    """A source of frames in the domain of its own clock, and the packets that the card must make of them."""

    def begin(self):
        """Starts the clock."""
        self.frames, self.now, self.pad = [], random.getrandbits(62), False
        self.table = [random.randrange(CHANNELS) for _ in range(ENTRIES)]
        for name in ("s_axis_tvalid", "s_axis_tlast", "s_axis_tuser"):
            getattr(self.dut, name).value = 0
        Clock(self.dut.mac_clk, MAC_PERIOD_PS, "ps").start()

    def settings(self):
        """Returns the registers that the distributor needs, with their values; every second time with padding."""
        self.pad = not self.pad
        yield REGISTERS["card_distributor.pad"], int(self.pad)
        keys = [int.from_bytes(KEY[at : at + 4], "little") for at in range(0, 40, 4)]
        yield from ((REGISTERS["card_distributor.key"] + 4 * index, value) for index, value in enumerate(keys))
        yield from ((REGISTERS["card_distributor.table"], i | channel << 16) for i, channel in enumerate(self.table))

    async def feed(self):
        """Sends frames back to back, unless stalled; each is `[frame, error]`, to which its time is appended."""
        dut = self.dut
        while True:
            if not self.frames or self.stalled():
                await FallingEdge(dut.mac_clk)
                dut.s_axis_tvalid.value = 0
                continue
            entry = self.frames.pop(0)
            for index, (data, keep, last) in enumerate(words(entry[0].data)):
                await FallingEdge(dut.mac_clk)
                self.now += 3
                dut.time_tai.value = self.now
                dut.s_axis_tvalid.value = 1
                dut.s_axis_tdata.value = data
                dut.s_axis_tkeep.value = keep
                dut.s_axis_tlast.value = last
                dut.s_axis_tuser.value = int(entry[1] and last)
                if index == 0:
                    entry.append(self.now)

    def packet(self, frame, time):
        """Returns the packet of a frame and its channel."""
        number, data = toeplitz(frame.tuple), bytes(2 * self.pad) + frame.data[:-4]
        header = (len(data) + HEADER).to_bytes(2, "little") + frame.flags.to_bytes(2, "little")
        return header + number.to_bytes(4, "little") + time.to_bytes(8, "little") + data, self.table[number % ENTRIES]


class Port(Mac, Card):
    """The device with the MAC's frames."""

    RESET = "async_rst"
    INPUTS = Card.INPUTS[1:]

    async def start(self):
        self.begin()
        await super().start()
        for address, value in self.settings():
            assert await self.axil.write(address, value) == 0
        await self.write("max_length", MAX_LENGTH)

    async def write(self, name, value, offset=0, response=0):
        assert await self.axil.write(REGISTERS[f"card_distributor.{name}"] + offset, value) == response

    async def settle(self):
        await self.until(lambda: not self.frames)
        for _ in range(900):
            await FallingEdge(self.dut.clk)


@case
async def frames_reach_the_buffers_of_their_channels(dut):
    await receive(Port(dut, stalls=0.1), False)


@case
async def padded_frames_reach_the_buffers_of_their_channels(dut):
    await receive(Port(dut, stalls=0.1), True)


async def receive(card, pad):
    """Compares frames in memory with those that were sent, and all counters."""
    await card.start()
    await card.write("pad", int(pad))
    card.pad = pad
    # Two channels are not started.
    header = 80 if pad else 64
    shapes = {channel: (2048 if channel % 2 else 256, header if channel == 3 else 0) for channel in range(CHANNELS - 2)}
    for channel, (buffer, header) in shapes.items():
        await card.open(channel, buffer, header)
        await card.give(channel, 0, 64)
    await card.settle()
    prefetch = 1 << PARAMETERS["PREFETCH_LOG2"]
    used, wanted = dict.fromkeys(range(CHANNELS), 0), []
    bad = {"error": 0, "runt": 0, "giant": 0}
    for _ in range(90):
        length = random.choice([64, 65, 68, 69, random.randrange(1, MAX_LENGTH + 100)])
        frame, damaged = random_frame(length), random.random() < 0.1
        _, channel = card.packet(frame, 0)
        needed = len(descriptors(length - 4 + HEADER + 2 * pad, *shapes.get(channel, (2048, 0))))
        reason = "error" if damaged else "runt" if length < 64 else "giant" if length > MAX_LENGTH else None
        if reason:
            bad[reason] += 1
        elif used[channel] + needed <= prefetch:
            used[channel] += needed
        else:
            continue
        entry = [frame, damaged]
        card.frames.append(entry)
        wanted += [] if reason else [entry]
    await card.settle()
    index, counters = dict.fromkeys(range(CHANNELS), 0), {}
    for channel in range(CHANNELS):
        counters[channel] = dict.fromkeys(CAUSES, (0, 0))
    for frame, _, time in wanted:
        data, channel = card.packet(frame, time)
        cause = "received" if channel in shapes else "stopped"
        packets, size = counters[channel][cause]
        counters[channel][cause] = packets + 1, size + len(data)
        at = 0
        for length in descriptors(len(data), *shapes[channel]) if channel in shapes else []:
            assert card.get(card.buffer(channel, index[channel]), length) == data[at : at + length]
            at, index[channel] = at + length, index[channel] + 1
    assert counters[0]["received"] > (0, 0) and counters[CHANNELS - 1]["stopped"] > (0, 0)
    for channel, expected in counters.items():
        assert await card.counters(channel) == {cause: list(count) for cause, count in expected.items()}
    found = {name: await card.axil.read(f"card_distributor.{name}") for name in ("delivered", *bad, "overflow")}
    assert found == {"delivered": len(wanted), **bad, "overflow": 0}


@case
async def registers_of_both_modules_are_on_one_bus(dut):
    card = Port(dut)
    await card.start()
    assert await card.axil.read("card_distributor.max_length") == MAX_LENGTH
    assert await card.axil.read("card_distributor.pad") == 1
    await card.write("pad", 2, response=REFUSED)
    await card.write("pad", 0)
    assert await card.axil.read("card_distributor.pad") == 0
    await card.write("pad", 1)
    assert await card.axil.read("card.max_write") == 1
    parameters = PARAMETERS["TABLE_LOG2"] | PARAMETERS["BUFFER_LOG2"] << 4
    assert await card.axil.read("card_distributor.parameters") == parameters
    assert await card.axil.read(REGISTERS["card_distributor.key"] + 36) == int.from_bytes(KEY[36:], "little")
    await card.write("table", ENTRIES, response=REFUSED)
    await card.write("table", CHANNELS << 16, response=REFUSED)
    await card.write("max_length", 16372, response=REFUSED)
    await card.write("key", 1, offset=2, response=REFUSED)
    await card.write("parameters", 1, response=REFUSED)
    await card.write("delivered", 1, response=REFUSED)
    await card.open(1)
    await card.settle()
    assert await card.register(1, "state") == RUNNING
    await card.reset()
    await card.ready()
    assert await card.axil.read("card_distributor.max_length") == 1522
    assert await card.axil.read("card_distributor.pad") == 0
    assert await card.axil.read("card_distributor.delivered") == 0
