"""RoCEv2 senders built with scapy from docs/wire-formats.md and NVIDIA's user guide; scapy computes every ICRC."""

import json
import socket
import struct
import zlib

import numpy as np
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapWriter

from common import PACKET, command, packed, socket_in

ROCE_PORT = 4791
UD_SEND_ONLY_IMM, UC_WRITE_ONLY, UC_WRITE_ONLY_IMM = 0x65, 0x2A, 0x2B
METADATA = 128


class Wire:
    """The sender's end of a cable between namespaces: whole Ethernet frames, sent directly or by tcpreplay."""

    def __init__(self, cable):
        self.netns = cable.names[0]
        links = [json.loads(command("ip", "-j", "-n", name, "link", "show", "cable")) for name in cable.names]
        self.macs = [link["address"] for (link,) in links]
        self.socket = socket_in(self.netns, socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind(("cable", 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, frames):
        for frame in frames:
            self.socket.send(frame)

    def replay(self, path, mbps=300):
        """Sends a capture with tcpreplay, byte for byte."""
        words = ["tcpreplay", "-q", "-i", "cable", f"--mbps={mbps}", path]
        command("nsenter", f"--net=/run/netns/{self.netns}", *words)


def write_pcap(path, frames):
    with PcapWriter(str(path), linktype=1) as writer:
        for frame in frames:
            writer.write(frame)


class Endpoint:
    """Source and destination addresses of a flow."""

    def __init__(self, source, destination, port=49443, macs=("02:00:00:00:00:01", "02:00:00:00:00:02")):
        self.source, self.destination, self.port, self.macs = source, destination, port, macs

    def frame(self, opcode, qp, psn, body, icrc=None, **bth):
        """Returns one packet; `icrc` replaces the correct ICRC."""
        ends = {"src": self.source, "dst": self.destination}
        ether = Ether(src=self.macs[0], dst=self.macs[1])
        # A UDP checksum of 0 is allowed over IPv4 and not over IPv6.
        if ":" in self.source:
            packet = ether / IPv6(**ends) / UDP(sport=self.port, dport=ROCE_PORT)
        else:
            packet = ether / IP(flags="DF", id=0, **ends) / UDP(sport=self.port, dport=ROCE_PORT, chksum=0)
        bth = BTH(opcode=opcode, migreq=1, dqpn=qp, psn=psn & 0xFFFFFF, icrc=icrc, **bth)
        return bytes(packet / bth / Raw(body))


def corrupted(frame, random):
    """Returns a frame with one payload bit flipped and a stale ICRC; the UDP checksum, if present, is recomputed."""
    packet = Ether(frame)
    body = bytearray(bytes(packet[BTH].payload))
    body[random.randrange(28, len(body))] ^= 1 << random.randrange(8)
    bth = packet[BTH].copy()
    bth.remove_payload()
    ip = packet.payload.copy()
    ip[UDP].remove_payload()
    if ip.version == 6:
        ip[UDP].chksum = None
    return bytes(Ether(src=packet.src, dst=packet.dst) / ip / bth / Raw(bytes(body)))


# --- ud ----------------------------------------------------------------------------------------------


class UdSender:
    """Shots of 12-bit samples in the framing `ud`, with a record built by this test."""

    def __init__(self, endpoint, channels=32, samples=500, stream=0, qp=0x2B67, q_key=0x11223344, seed=1):
        self.endpoint, self.channels, self.samples, self.stream = endpoint, channels, samples, stream
        self.qp, self.q_key, self.seed = qp, q_key, seed
        self.sample_bytes = channels * samples * 3 // 2
        self.shot_bytes = -(-self.sample_bytes // 64) * 64 + 64
        self.packets = -(-self.shot_bytes // PACKET)
        self.psn = 0xFFFFF0

    def values(self, shot):
        """Returns (sample, channel) int16 of 12 bits."""
        random = np.random.default_rng([self.seed, shot])
        return random.integers(-2048, 2048, (self.samples, self.channels), dtype=np.int16)

    def stamp(self, shot):
        return 1_800_000_000_000_000_000 + shot * 1_000_000

    def bytes_of(self, shot):
        data = packed(self.values(shot)).tobytes()
        data += bytes(-len(data) % 64)
        head = struct.pack(">4sBBBBQQ", b"SHOT", 1, 1, 12, 1, shot, self.stamp(shot))
        head += struct.pack(">IIIIHHI", self.stream, 0, self.sample_bytes, self.samples, self.channels, self.packets, 0)
        data += head + bytes(12)
        return data + struct.pack("<I", zlib.crc32(data))

    def frames(self, shot):
        data = self.bytes_of(shot)
        for index in range(self.packets):
            last = index + 1 == self.packets
            deth = struct.pack(">II", self.q_key, 0x11)
            immediate = struct.pack(">I", (shot & 0xFFFFF) << 12 | index)
            body = deth + immediate + data[index * PACKET : (index + 1) * PACKET]
            yield self.endpoint.frame(UD_SEND_ONLY_IMM, self.qp, self.psn, body, solicited=last)
            self.psn += 1


def ud_position(frame):
    """Returns (shot modulo 2^20, packet index) of a `ud` frame, from its immediate data."""
    udp = 14 + (40 if frame[14] >> 4 == 6 else 20)
    (immediate,) = struct.unpack_from(">I", frame, udp + 8 + 20)
    return immediate >> 12, immediate & 0xFFF


# --- sensor bridge -----------------------------------------------------------------------------------


class Bridge:
    """A Holoscan Sensor Bridge: frames written into a ring of pages, each followed by metadata at a multiple of 128."""

    def __init__(self, endpoint, size, payload=1408, pages=4, apart=False, qp=2, rkey=0x1234, psn=0, first_page=0):
        self.endpoint, self.size, self.payload, self.pages, self.apart = endpoint, size, payload, pages, apart
        self.qp, self.rkey, self.psn, self.page = qp, rkey, psn, first_page
        self.base, self.padded = 0x1000_0000, -(-size // METADATA) * METADATA
        self.step = self.padded + METADATA

    def data(self, number):
        return np.random.default_rng([self.size, number]).integers(0, 256, self.size, dtype=np.uint8)

    def stamp(self, number):
        return 1_795_208_429_703_417_270 + number * 4_445_589

    def metadata(self, number, psn):
        def time(ns):
            return struct.pack(">QI", ns // 10**9, ns % 10**9)

        words = struct.pack(">III", 0, psn, 0) + time(self.stamp(number)) + struct.pack(">QHH", self.size, 0, number)
        return (words + time(self.stamp(number) + 353_000)).ljust(METADATA, b"\0")

    def frames(self, number):
        """Returns the packets of one frame."""
        data = self.data(number).tobytes()
        pieces = [(at, data[at : at + self.payload]) for at in range(0, self.size, self.payload)]
        psn = (self.psn + len(pieces) - (0 if self.apart else 1)) & 0xFFFFF
        if self.apart:
            pieces.append((self.padded, self.metadata(number, psn)))
        else:
            whole = data.ljust(self.padded, b"\0") + self.metadata(number, psn)
            pieces = [(at, whole[at : at + self.payload]) for at in range(0, len(whole), self.payload)]
        address = self.base + self.page * self.step
        for index, (at, piece) in enumerate(pieces):
            last = index + 1 == len(pieces)
            body = struct.pack(">QII", address + at, self.rkey, len(piece))
            if last:
                body += struct.pack(">I", self.psn << 12 | self.page)
            opcode = UC_WRITE_ONLY_IMM if last else UC_WRITE_ONLY
            yield self.endpoint.frame(opcode, self.qp, self.psn, body + piece, fecn=1, becn=1, resv6=0x3F)
            self.psn = (self.psn + 1) & 0xFFFFF
        self.page = (self.page + 1) % self.pages


class BridgeWrites:
    """The memory writes in a bridge's packets, by the addresses in their RETH: frames in the order of their packets."""

    def __init__(self, frames):
        self.writes, self.ends = [], []
        for frame in frames:
            bth = frame[14 + 20 + 8 :]
            opcode, psn = bth[0], int.from_bytes(bth[9:12], "big")
            address, _, length = struct.unpack_from(">QII", bth, 12)
            head = 32 if opcode == UC_WRITE_ONLY_IMM else 28
            data = bth[head:-4]
            assert length == len(data)
            self.writes.append((psn, address, data))
            if opcode == UC_WRITE_ONLY_IMM:
                seconds, ns, valid = struct.unpack_from(">QIQ", data, len(data) - METADATA + 12)
                self.ends.append((len(self.writes), address + length - METADATA, seconds * 10**9 + ns, valid))

    def frames(self):
        """Returns (page address, bytes, timestamp, packets) of each whole frame of a capture without faults."""
        begin = 0
        for end, metadata, stamp, valid in self.ends:
            page = metadata - -(-valid // METADATA) * METADATA
            data = bytearray(valid + 2 * METADATA)
            for _, address, piece in self.writes[begin:end]:
                data[address - page : address - page + len(piece)] = piece
            yield page, np.frombuffer(bytes(data[:valid]), np.uint8), stamp, end - begin
            begin = end
