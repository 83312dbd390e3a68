"""Parser of frames and shots, and generator of trigger frames, written from docs/wire-formats.md.

It is independent of both the RTL and the Rust crates.
"""

import struct
import zlib
from dataclasses import dataclass

import wire

TRIGGER_PORT = 47910
GOOD_SHOT = 0xDEBB20E3  # residue: CRC register after a shot whose record has the right CRC


def crc_register(data: bytes) -> int:
    """Returns Ethernet's CRC-32 register before the final inversion."""
    return zlib.crc32(data) ^ 0xFFFFFFFF


@dataclass
class Packet:
    """The fields of a frame of framing `ud`."""

    shot: int  # modulo 2^20
    index: int
    sequence: int
    last: bool
    payload: bytes
    source: bytes
    destination: bytes


def parse_ud(frame: bytes) -> Packet:
    """Parses a frame of framing `ud`; raises AssertionError if a field or a checksum is wrong."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == 0x0800:
        ip, udp_at = frame[14:34], 34
        assert ip[0] == 0x45 and wire.checksum(ip) == 0, "IPv4 header"
        assert struct.unpack_from(">H", ip, 2)[0] == len(frame) - 14 and ip[9] == 17
        source, destination = ip[12:16], ip[16:20]
    else:
        assert kind == 0x86DD, f"EtherType {kind:#x}"
        ip, udp_at = frame[14:54], 54
        assert ip[0] >> 4 == 6 and ip[6] == 17
        assert struct.unpack_from(">H", ip, 4)[0] == len(frame) - 54
        source, destination = ip[8:24], ip[24:40]
    assert struct.unpack_from(">H", frame, udp_at + 4)[0] == len(frame) - udp_at, "UDP length"
    bth = frame[udp_at + 8 : udp_at + 20]
    flags = bth[1]
    sequence = int.from_bytes(bth[9:12], "big")
    assert bth[0] == 0x65 and flags & 0x3F == 0, "opcode, pad count, version"
    assert wire.icrc(frame[:-4]) == frame[-4:], "ICRC"
    immediate = struct.unpack_from(">I", frame, udp_at + 28)[0]
    payload = frame[udp_at + 32 : -4]
    return Packet(immediate >> 12, immediate & 0xFFF, sequence, bool(flags & 0x80), payload, source, destination)


@dataclass
class Shot:
    """A complete shot with the fields of its record."""

    number: int
    time: int
    event: int
    flags: int
    samples: int
    channels: int
    data: bytes
    good: bool


def parse_shot(packets: list[Packet], mtu: int = 4096) -> Shot:
    """Assembles a shot's packets, which must be complete and in order.

    Raises AssertionError if anything but the record's CRC is wrong; `good` says if the CRC is right.
    """
    for index, packet in enumerate(packets):
        last = index == len(packets) - 1
        assert packet.index == index and packet.last == last and (last or len(packet.payload) == mtu)
        assert packet.sequence == (packets[0].sequence + index) % 2**24
    payload = b"".join(packet.payload for packet in packets)
    record = payload[-64:]
    magic, version, packing, _, flags, number, time, _, event, sample_bytes, samples, channels, count, _ = (
        struct.unpack(">4sBBBBQQIIIIHHI", record[:48])
    )
    assert (magic, version, packing, count) == (b"SHOT", 1, 1, len(packets))
    assert sample_bytes == samples * channels * 3 // 2 and record[48:60] == bytes(12)
    assert len(payload) == -(-sample_bytes // 64) * 64 + 64
    assert payload[sample_bytes:-64] == bytes(len(payload) - 64 - sample_bytes), "padding"
    assert all(packet.shot == number % 2**20 for packet in packets)
    good = crc_register(payload) == GOOD_SHOT
    return Shot(number, time, event, flags, samples, channels, payload[:sample_bytes], good)


def shots(frames: list[bytes], mtu: int = 4096) -> list[Shot]:
    """Returns all shots of the frames, which must be complete, in order, with consecutive sequence numbers."""
    found, packets, previous = [], [], None
    for frame in frames:
        packet = parse_ud(frame)
        assert previous is None or packet.sequence == (previous + 1) % 2**24, "sequence number"
        previous = packet.sequence
        packets.append(packet)
        if packet.last:
            found.append(parse_shot(packets, mtu))
            packets = []
    assert not packets, "a shot without its end"
    return found


def trigger_datagram(sequence: int, flags: int = 0) -> bytes:
    """Returns the 64 bytes of a trigger command."""
    return struct.pack(">4sBBBBIIQQ", b"SHTR", 1, flags, 0, 0, sequence, 0, 0x1797_9D06_D389_3200, 0) + bytes(32)


def udp_frame(
    payload: bytes,
    *,
    ipv6: bool = False,
    port: int = TRIGGER_PORT,
    mac: bytes = b"\x02\x00\x00\x00\x00\x01",
    destination: bytes | None = None,
    checksum: bool = True,
) -> bytes:
    """Returns an Ethernet frame with a UDP datagram, as an operating system would send it."""
    if ipv6:
        source = bytes.fromhex("fd00000000000000000000000000000a")
        destination = destination or bytes.fromhex("fd000000000000000000000000000001")
    else:
        source, destination = bytes([192, 168, 0, 10]), destination or bytes([192, 168, 0, 1])
    udp = bytearray(struct.pack(">HHHH", 40000, port, 8 + len(payload), 0) + payload)
    if checksum:
        pseudo = source + destination + struct.pack(">IHBB", len(udp), 0, 0, 17)
        udp[6:8] = (wire.checksum(pseudo + bytes(udp)) or 0xFFFF).to_bytes(2, "big")
    if ipv6:
        ip = struct.pack(">IHBB", 0x6000_0000, len(udp), 17, 64) + source + destination
        kind = b"\x86\xdd"
    else:
        head = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 7, 0x4000, 64, 17, 0) + source + destination)
        head[10:12] = wire.checksum(bytes(head)).to_bytes(2, "big")
        ip, kind = bytes(head), b"\x08\x00"
    return mac + b"\x02\x00\x00\x00\x00\x0a" + kind + ip + bytes(udp)
