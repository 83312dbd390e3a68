"""Recordings of any shape with any values: shots generated here, sent in the framing `udp`, recorded by the program."""

import socket
import struct
import zlib

import numpy as np

from common import PACKET, WAIT_TIMEOUT_S, packed
from senders.listen import Listener

FORMATS = ("int16_le", "packed12_msb_first", "uint8")  # indexed by the number of their packing
RECORD = struct.Struct(">4sBBBBQQIIIIHHI12s")


class GeneratedShots:
    """Shots of one shape: `values` is (link, shot, sample, channel)."""

    def __init__(self, values, packing, numbers=None, rate=0):
        self.values, self.packing, self.rate = values, packing, rate
        self.links, self.shots, self.samples, self.channels = values.shape
        self.numbers = range(self.shots) if numbers is None else numbers
        self.bits = (16, 12, 8)[packing]
        size = self.samples * self.channels * self.bits // 8
        self.shot_bytes = -(-size // 64) * 64 + 64
        self.packets = -(-self.shot_bytes // PACKET)

    def bytes_of(self, link, shot):
        """Returns one shot as it is on the wire."""
        values = self.values[link, shot]
        data = packed(values) if self.packing == 1 else values.reshape(-1).view(np.uint8)
        head = bytes(data) + bytes(-len(data) % 64)
        geometry = (len(data), self.samples, self.channels, self.packets, self.rate)
        ids = (b"SHOT", 1, self.packing, self.bits, 1, self.numbers[shot], self.stamp(shot), link, 0)
        head += RECORD.pack(*ids, *geometry, bytes(12))[:60]
        return head + struct.pack("<I", zlib.crc32(head))

    def stamp(self, shot):
        return 1_700_000_000_000_000_000 + 1000 * self.numbers[shot]

    def packet(self, link, shot, index, data):
        piece = data[index * PACKET : (index + 1) * PACKET]
        place = (link, self.numbers[shot], index * PACKET, len(piece), len(data))
        return struct.pack(">4sBBHIQIII", b"SHPK", 1, index + 1 == self.packets, 0, *place) + piece

    def record(self, path, lost=(), flags=()):
        """Records everything except the lost packets (link, shot, packet); returns the program's JSON object."""
        shape = ("--channels", self.channels, "--samples", self.samples, "--sample-format", FORMATS[self.packing])
        shape += ("--links", self.links, *(("--sample-rate-hz", self.rate) if self.rate else ()))
        # Where packets are lost, the run ends when the rest has arrived.
        end = ("--progress",) if lost else ("--shots", self.shots)
        end += ("--timeout-ms", 1000 * WAIT_TIMEOUT_S, "--out", path)
        with Listener("udp", *shape, *end, *flags) as recorder, socket.socket(type=socket.SOCK_DGRAM) as out:
            for shot in range(self.shots):
                for link in range(self.links):
                    data = self.bytes_of(link, shot)
                    for index in range(self.packets):
                        if (link, shot, index) not in lost:
                            out.sendto(self.packet(link, shot, index, data), (recorder.host, recorder.port))
                recorder.wait_for_space()
            if lost:
                return (
                    recorder.wait_for_packets(self.links * self.shots * self.packets - len(lost))
                    .interrupt()
                    .succeeded()
                )
            return recorder.end().succeeded()
