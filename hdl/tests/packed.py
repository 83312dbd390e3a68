"""Frames for receive side scaling with what a card must find in them, and a receiver of the packed bus.

The generator knows the tuple because it made it; nothing here parses a frame.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from cocotb.triggers import FallingEdge, ReadOnly

# The key of Microsoft's verification suite for RSS.
KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
IPV4, IPV6, PORTS, VLAN = 1, 2, 4, 8
TCP, UDP, ICMP = 6, 17, 1
HEADER = 16


def toeplitz(data: bytes, key: bytes = KEY) -> int:
    """Returns the Toeplitz hash by its definition: a window of 32 bits of the key for each bit of the data."""
    bits, number, total = 8 * len(key), int.from_bytes(key, "big"), 0
    for i in range(8 * len(data)):
        if data[i // 8] >> (7 - i % 8) & 1:
            total ^= number >> (bits - 32 - i) & 0xFFFFFFFF
    return total


@dataclass
class Frame:
    """A frame with FCS, the flags and the data of the hash that a card must find."""

    data: bytes
    flags: int
    tuple: bytes


def ipv4(source: bytes, destination: bytes, protocol: int, options: int = 0, fragment: int = 0) -> bytes:
    """Returns an IPv4 header; `fragment` is the field of flags and offset, `options` a number of 32-bit words."""
    fixed = struct.pack(">BBHHHBBH", 0x45 + options, 0, 1000, 7, fragment, 64, protocol, 0)
    return fixed + source + destination + random.randbytes(4 * options)


def ipv6(source: bytes, destination: bytes, protocol: int) -> bytes:
    return struct.pack(">IHBB", 0x60000000 | random.getrandbits(28), 1000, protocol, 64) + source + destination


def ethernet(length: int, tags: int, ethertype: int, packet: bytes) -> bytes:
    """Returns a frame of `length` bytes; the data after the packet and the FCS are random, and it may be cut."""
    tag = b"".join(random.choice([b"\x81\x00", b"\x88\xa8"]) + random.randbytes(2) for _ in range(tags))
    head = random.randbytes(12) + tag + struct.pack(">H", ethertype) + packet
    return (head + random.randbytes(max(0, length - len(head))))[: max(0, length - 4)] + random.randbytes(
        min(4, length)
    )


def random_frame(length: int) -> Frame:
    """Returns a frame with IPv4, IPv6 or another protocol, 0 to 2 VLAN tags, options, fragments."""
    tags = random.randrange(3)
    vlan = VLAN if tags else 0
    end, at = length - 4, 14 + 4 * tags
    protocol = random.choice([TCP, UDP, TCP, UDP, ICMP, 44, 50])
    ports = random.randbytes(4)
    match random.randrange(5):
        case 0 | 1:
            source, destination = random.randbytes(4), random.randbytes(4)
            options = random.choice([0, 0, 1, 5, 10])
            # Not a fragment (or "do not fragment"), the first one, later ones.
            fragment = random.choice([0, 0, 0x4000, 0x2000, 0x2001, 0x0100, 0x00FF, 0x1F00])
            data = ethernet(length, tags, 0x0800, ipv4(source, destination, protocol, options, fragment) + ports)
            whole = protocol in (TCP, UDP) and not fragment & 0x3FFF and at + 24 + 4 * options <= end
            return Frame(data, IPV4 | vlan | PORTS * whole, source + destination + ports * whole)
        case 2 | 3:
            source, destination = random.randbytes(16), random.randbytes(16)
            data = ethernet(length, tags, 0x86DD, ipv6(source, destination, protocol) + ports)
            if at + 40 > end:
                return Frame(data, vlan, b"")
            whole = protocol in (TCP, UDP) and at + 44 <= end
            return Frame(data, IPV6 | vlan | PORTS * whole, source + destination + ports * whole)
    v4, v6 = ipv4(b"abcd", b"efgh", TCP), ipv6(b"a" * 16, b"b" * 16, UDP)
    ethertype, packet = random.choice(
        [
            (0x0806, v4),
            (0x86DD, v4),  # the version contradicts the EtherType
            (0x0800, v6),
            (0x0800, b"\x44" + v4[1:]),  # header of less than 20 bytes
            (0x0600, v6),
        ]
    )
    return Frame(ethernet(length, tags, ethertype, packet), vlan, b"")


@dataclass
class Packet:
    """A packet of the packed bus, with the channel and the block at which it began."""

    data: bytes
    channel: int
    block: int

    def fields(self) -> tuple[int, int, int, int]:
        """Returns the header: length, flags, hash, time."""
        return struct.unpack_from("<HHIQ", self.data)


class PackedSink:
    """Receives packets from `m_*`; `ready()` gives the value of `m_ready` in each clock.

    It checks that an offered word stays, that no packet begins before the end of the last, and that unused bytes are zero.
    """

    def __init__(self, dut, ready: Callable[[], bool] = lambda: True) -> None:
        self.dut = dut
        self.ready = ready
        self.packets: list[Packet] = []
        self.left = 0  # bytes of the incomplete packet
        self.words = 0
        self.adjacent = 0  # packets that began at the next block after another in the same word

    async def run(self) -> None:
        dut, previous, offered = self.dut, None, None
        while True:
            await FallingEdge(dut.clk)
            ready = self.ready()
            if ready != previous:
                dut.m_ready.value = int(ready)
                previous = ready
            await ReadOnly()
            if not int(dut.m_valid.value):
                assert offered is None, "an offered word did not stay"
                continue
            first = int(dut.m_first.value)
            word = [int(dut.m_data.value), first]
            if first:
                word += [int(dut.m_first_block.value), int(dut.m_length.value), int(dut.m_channel.value)]
            assert offered in (None, word), "an offered word changed"
            offered = None if ready else word
            if ready:
                self.take(*word)

    def take(self, number: int, first: int, block: int = 8, length: int = 0, channel: int = 0) -> None:
        self.words += 1
        data, end = number.to_bytes(64, "little"), 0
        if self.left:
            end = min(self.left, 64)
            self.packets[-1].data += data[:end]
            self.left -= end
        begin = 8 * block
        assert begin >= end and not any(data[end:begin]), "data between packets"
        if first:
            assert not self.left, "a packet begins before the end of the last"
            self.adjacent += end > 0 and block == -(-end // 8)
            taken = min(length, 64 - begin)
            self.packets.append(Packet(data[begin : begin + taken], channel, block))
            self.left = length - taken
            assert not any(data[begin + taken :]), "data after a packet"

    def gapless(self) -> bool:
        """Returns `True` if each packet but the first began at the next block after the one before."""
        return all((a.block + -(-len(a.data) // 8)) % 8 == b.block for a, b in pairwise(self.packets))
