"""Reference generator of the sender's frames, written from docs/wire-formats.md. The parser is frames.py.

zlib computes the CRCs; nothing is shared with the Rust crates or with the scripts that generate the RTL's tables.
"""

import struct
import zlib
from dataclasses import dataclass, replace

UD, COUNTED, UDP = range(3)


def icrc(frame: bytes) -> bytes:
    """Returns the ICRC, in wire order, of a frame without it (section 4)."""
    masked = bytearray(frame[14:])
    if masked[0] >> 4 == 4:
        covered, udp = (1, 8, 10, 11), 20
    else:
        masked[0] |= 0x0F
        covered, udp = (1, 2, 3, 7), 40
    for index in (*covered, udp + 6, udp + 7, udp + 8 + 4):
        masked[index] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


def checksum(data: bytes) -> int:
    """Returns the Internet checksum (RFC 1071); 0 for data that contains the right one."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Link:
    """Configuration of a sender."""

    framing: int = UD
    ipv6: bool = False
    packet_mode: bool = False
    mtu: int = 4096
    destination_mac: bytes = bytes.fromhex("021122334455")
    source_mac: bytes = bytes.fromhex("0266778899aa")
    source: bytes = bytes([192, 168, 0, 1])
    destination: bytes = bytes([192, 168, 0, 2])
    traffic_class: int = 0
    hop_limit: int = 64
    source_port: int = 0xC123
    destination_port: int = 4791
    destination_qp: int = 0x2B67
    source_qp: int = 0x11
    queue_key: int = 0x11223344
    packing: int = 2
    bits: int = 8
    channels: int = 1
    samples: int = 0
    rate: int = 40_000_000

    def over_ipv6(self) -> "Link":
        """Returns the same link between IPv6 addresses."""
        source, destination = b"\xfd" + bytes(14) + b"\x01", b"\xfd" + bytes(14) + b"\x02"
        return replace(self, ipv6=True, source=source, destination=destination)

    def registers(self, psn: int | None = None) -> list[tuple[str, int]]:
        """Returns the register writes, by the names of registers.toml."""
        macs = [(self.destination_mac, "destination_mac"), (self.source_mac, "source_mac")]
        writes = [(f"{name}_high", int.from_bytes(mac[:2])) for mac, name in macs]
        writes += [(f"{name}_low", int.from_bytes(mac[2:])) for mac, name in macs]
        for name, address in (("destination_ip", self.destination), ("source_ip", self.source)):
            words = struct.unpack(">4I", address.rjust(16, b"\0"))
            writes += [(f"{name}.{index}", word) for index, word in enumerate(words)]
        writes += [
            ("format", self.framing | self.ipv6 << 4 | self.packet_mode << 8 | 1 << 16),
            ("mtu", self.mtu),
            ("ports", self.source_port << 16 | self.destination_port),
            ("ip_class_hop", self.traffic_class << 8 | self.hop_limit),
            ("destination_qp", self.destination_qp),
            ("source_qp", self.source_qp),
            ("queue_key", self.queue_key),
            ("shape", self.channels << 16 | self.bits << 8 | self.packing),
            ("samples", self.samples),
            ("sample_rate", self.rate),
            ("sample_bytes", self.channels * self.samples),
        ]
        if psn is not None:
            writes.append(("psn", psn))
        return [*writes, ("control", 1 if psn is None else 3)]


@dataclass(frozen=True)
class Shot:
    """The metadata of a shot."""

    number: int
    time: int = 0
    stream: int = 3
    event: int = 0
    flags: int = 0


def record(link: Link, shot: Shot, packets: int, samples: bytes) -> bytes:
    """Returns the end-of-shot record that follows the padded samples (section 2)."""
    fields = struct.pack(
        ">4sBBBBQQIIIIHHI12x",
        b"SHOT",
        1,
        link.packing,
        link.bits,
        shot.flags,
        shot.number,
        shot.time,
        shot.stream,
        shot.event,
        link.channels * link.samples,
        link.samples,
        link.channels,
        packets,
        link.rate,
    )
    return fields + struct.pack("<I", zlib.crc32(fields, zlib.crc32(samples)))


def frame(link: Link, shot: Shot, psn: int, payload: bytes, index: int, offset: int, total: int, last: bool) -> bytes:
    """Returns one frame without FCS (section 3)."""
    if link.framing == UDP:
        header = struct.pack(">4sBBHIQIII", b"SHPK", 1, last, 0, shot.stream, shot.number, offset, len(payload), total)
        transport, tail = header + payload, 0
    else:
        opcode = 0x65 if link.framing == UD else 0x64
        pad = -len(payload) % 4
        header = struct.pack(
            ">BBHIIII",
            opcode,
            last << 7 | 0x40 | pad << 4,
            0xFFFF,
            link.destination_qp,
            psn & 0xFFFFFF,
            link.queue_key,
            link.source_qp,
        )
        if link.framing == UD:
            header += struct.pack(">I", (shot.number & 0xFFFFF) << 12 | index & 0xFFF)
        transport, tail = header + payload + bytes(pad), 4
    length = 8 + len(transport) + tail
    udp = struct.pack(">HHHH", link.source_port, link.destination_port, length, 0)
    if link.ipv6:
        ip = struct.pack(">IHBB", 6 << 28 | link.traffic_class << 20, length, 17, link.hop_limit)
        ip += link.source + link.destination
    else:
        fields = (0x45, link.traffic_class, 20 + length, 0, 0x4000, link.hop_limit, 17)
        rest = link.source + link.destination
        ip = struct.pack(">BBHHHBB", *fields)
        ip += struct.pack(">H", checksum(ip + bytes(2) + rest)) + rest
    ethernet = link.destination_mac + link.source_mac + (b"\x86\xdd" if link.ipv6 else b"\x08\x00")
    whole_frame = ethernet + ip + udp + transport
    return whole_frame + icrc(whole_frame) if tail else whole_frame


def frames(link: Link, shot: Shot, psn: int, payload: bytes) -> list[bytes]:
    """Returns all frames of an input: those of a shot, or one in packet mode."""
    if link.packet_mode:
        return [frame(link, shot, psn, payload, 0, 0, len(payload), True)]
    padded = payload + bytes(-len(payload) % 64)
    packets = -(-(len(padded) + 64) // link.mtu)
    whole = padded + record(link, shot, packets, padded)
    return [
        frame(
            link,
            shot,
            psn + index,
            whole[index * link.mtu : (index + 1) * link.mtu],
            index,
            index * link.mtu,
            len(whole),
            index == packets - 1,
        )
        for index in range(packets)
    ]
