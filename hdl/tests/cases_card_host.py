"""Test cases of card: packets into the memory of a host, on cocotbext-pcie's model of the integrated block."""

import logging
import os
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer
from cocotbext.axi import AxiStreamBus
from cocotbext.pcie.core import RootComplex
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice
from drivers import REGISTERS, case
from pcie import offer

PARAMETERS = eval(os.environ["SHOTLINE_PARAMETERS"])
CHANNELS = 1 << PARAMETERS["CHANNELS_LOG2"]
RING_LOG2, BUFFER, GENERATION = 5, 512, 7
RING = 1 << RING_LOG2
# Memory of a channel: ring and report, and from the middle on the buffers.
SPACE = 2 * RING * BUFFER
# Addresses with this bit are outside of the window.
OUTSIDE = 1 << 62
COMPLETION, REFUSED = 2, 4


class Channel:
    """A channel in the host's memory: ring, buffers, report, and what must be in them."""

    def __init__(self, number, host, header=0):
        self.number, self.header = number, header
        self.bar, self.memory, self.base = host.bar, host.memory, host.base
        self.ring = number * SPACE
        self.report = self.ring + RING * 16
        self.buffers = self.ring + SPACE // 2
        self.used = 0
        self.expected = []  # place and data

    async def start(self, ring=None, outside=0):
        """Starts the channel with descriptors in its ring; `outside` is added to their addresses."""
        for i in range(RING):
            address = self.base + self.buffers + i * BUFFER + outside
            at = self.ring + 16 * i
            self.memory[at : at + 16] = struct.pack("<QHBBI", address, i, self.number, GENERATION, 0)
        ring, report = self.base + self.ring if ring is None else ring, self.base + self.report
        settings = {
            "ring_low": ring & 0xFFFFFFFF,
            "ring_high": ring >> 32,
            "ring": RING_LOG2,
            "buffer": BUFFER | self.header << 16,
            "report_low": report & 0xFFFFFFFF,
            "report_high": report >> 32,
            "report": 4,
            "interrupt": 1 << 31 | 1,
            "control": 1 | GENERATION << 8,
            "software_pointer": RING,
        }
        for name, value in settings.items():
            await self.bar.write_dword(register(f"card_channel.{name}", self.number), value)

        # A read follows the writes, and reading the descriptors takes no longer than this.
        await self.bar.read_dword(register("card.id"))
        await Timer(1, "us")

    async def stop(self):
        await self.bar.write_dword(register("card_channel.control", self.number), GENERATION << 8)

    async def stopped(self):
        """Waits until the channel has stopped; returns the error."""
        while (state := await self.bar.read_dword(register("card_channel.state", self.number))) & 3:
            pass
        return state >> 4

    def expect(self, packet):
        """Adds a packet, whose data the card puts into buffers."""
        step = 2 if self.header else 1
        head, rest = packet[: self.header], packet[self.header :]
        parts = [rest[at : at + BUFFER] for at in range(0, len(rest), BUFFER)]
        if self.header:
            self.expected.append((self.buffers + self.used * BUFFER, head))
        first = self.used + step - 1
        self.expected += [(self.buffers + (first + step * i) * BUFFER, data) for i, data in enumerate(parts)]
        self.used += step * max(1, len(parts))

    def check(self, error=0):
        """Checks the final report and the buffers."""
        found = struct.unpack_from("<HBBI", self.memory[self.report : self.report + 8])
        assert found == (self.used, GENERATION, 1 | error << 4, 0), f"report of channel {self.number}"
        for at, data in self.expected:
            assert self.memory[at : at + len(data)] == data, f"channel {self.number}, {len(data)} bytes at {at:#x}"
            assert not any(self.memory[at + len(data) : at + BUFFER]), "bytes after the packet"


def register(name, channel=0):
    return REGISTERS[name] + (0x80 * channel if name.startswith("card_channel") else 0)


class Host:
    """The root complex with its memory, and the card's registers in its address space."""

    INPUT = "s_valid"  # of packets

    def __init__(self, dut):
        self.dut = dut
        self.interrupts = []

    async def start(self):
        """Starts the clocks, enumerates the device, and waits until its channels are cleared."""
        dut = self.dut
        # Enumeration warns of each absent device.
        logging.getLogger("cocotb.pcie").setLevel(logging.ERROR)
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.ERROR)
        dut.rst.value = 1
        getattr(dut, self.INPUT).value = 0
        dut.window_base.value = 0
        dut.window_mask.value = OUTSIDE >> 12
        Clock(dut.clk, 5, "ns").start()
        device = UltraScalePlusPcieDevice(
            pcie_generation=3,
            pcie_link_width=16,
            user_clk_frequency=250e6,
            alignment="dword",
            rq_straddle=True,
            max_payload_size=512,
            enable_client_tag=True,
            enable_extended_tag=True,
            user_clk=dut.pcie_clk,
            user_reset=dut.pcie_rst,
            rq_bus=AxiStreamBus.from_prefix(dut, "m_axis_rq"),
            rc_bus=AxiStreamBus.from_prefix(dut, "s_axis_rc"),
            cq_bus=AxiStreamBus.from_prefix(dut, "s_axis_cq"),
            cc_bus=AxiStreamBus.from_prefix(dut, "m_axis_cc"),
        )
        dut.pcie_tfc_nph_av.value = 15  # the model does not drive it
        device.functions[0].configure_bar(0, 1 << 16)
        root = RootComplex()
        root.max_payload_size = 2
        root.split_on_all_rcb = True
        root.make_port().connect(device)
        await Timer(200, "ns")
        dut.rst.value = 0
        await root.enumerate()
        function = root.find_device(device.functions[0].pcie_id)
        await function.enable_device()
        await function.set_master()
        self.memory = root.mem_pool.alloc_region(CHANNELS * SPACE)
        self.base = self.memory.get_absolute_address(0)
        self.bar = function.bar_window[0]
        cocotb.start_soon(self.watch())
        await self.ready()

    async def ready(self):
        """Waits until the channels are cleared, after a reset."""
        assert await self.bar.read_dword(register("card.id")) == 0x53484344
        while not await self.bar.read_dword(register("card.status")):
            pass
        # Writes of up to 512 bytes.
        await self.bar.write_dword(register("card.max_write"), 2)

    async def watch(self):
        dut = self.dut
        while True:
            await FallingEdge(dut.pcie_clk)
            await ReadOnly()
            if int(dut.interrupt_valid.value):
                self.interrupts.append(int(dut.interrupt_channel.value))

    async def send(self, packets):
        """Sends packets (data, channel) on the packed bus, without gaps; at most one begins in a word."""
        dut, stream, starts = self.dut, bytearray(), {}
        for data, channel in packets:
            if len(stream) // 64 in starts:
                stream += bytes(-len(stream) % 64)
            starts[len(stream) // 64] = (len(stream) % 64 // 8, len(data), channel)
            stream += data + bytes(-len(data) % 8)

        def drive(at):
            first = starts.get(at // 64)
            dut.s_data.value = int.from_bytes(stream[at : at + 64], "little")
            dut.s_first.value = int(first is not None)
            if first:
                dut.s_first_block.value, dut.s_length.value, dut.s_channel.value = first

        await FallingEdge(dut.clk)
        await offer(dut.clk, dut.s_valid, dut.s_ready, range(0, len(stream), 64), drive)


async def start(dut):
    host = Host(dut)
    await host.start()
    return host


@case()
async def packets_arrive_in_the_memory_of_a_host(dut):
    host = await start(dut)
    channels = [Channel(number, host, 64 if number % 2 else 0) for number in range(CHANNELS)]
    for channel in channels:
        await channel.start()
    packets = []
    while free := [channel for channel in channels if channel.used <= RING - 6]:
        channel = random.choice(free)
        packet = random.randbytes(random.choice([1, 60, 64, 65, 80, 600, random.randint(1, 1500)]))
        channel.expect(packet)
        packets.append((packet, channel.number))
    await host.send(packets)
    await Timer(5, "us")
    for channel in channels:
        await channel.stop()
    for channel in channels:
        assert await channel.stopped() == 0
        channel.check()
    assert set(host.interrupts) == set(range(CHANNELS))


@case()
async def a_channel_that_fails_stops_alone(dut):
    host = await start(dut)
    good, lost, wild = (Channel(number, host) for number in (0, 1, 2))
    await good.start()
    await lost.start(ring=OUTSIDE)  # no memory: the root complex refuses the read
    await wild.start(outside=OUTSIDE)
    packets = [random.randbytes(100) for _ in range(10)]
    for packet in packets:
        good.expect(packet)
    await host.send([(packet, channel) for packet in packets for channel in (0, 2)])
    assert await lost.stopped() == COMPLETION
    assert await wild.stopped() == REFUSED
    await good.stop()
    assert await good.stopped() == 0
    good.check()
    lost.check(COMPLETION)
    report = struct.unpack_from("<HBBI", host.memory[wild.report : wild.report + 8])
    assert report[1:] == (GENERATION, 1 | REFUSED << 4, 0) and 0 < report[0] <= len(packets)
