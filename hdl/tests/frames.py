"""Frames and shots in Python, written from docs/wire-formats.md and independent of both the RTL and the Rust crates."""

import struct
import zlib
from dataclasses import dataclass

TRIGGER_PORT = 47910
GOOD_SHOT = 0xDEBB20E3  # CRC register over a whole shot


def crc_register(data: bytes) -> int:
    """Ethernet's CRC-32 register before the last inversion."""
    return zlib.crc32(data) ^ 0xFFFFFFFF


def ones_sum(data: bytes) -> int:
    """The ones' complement sum of big-endian 16-bit words."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclass
class Packet:
    """What a frame of framing `ud` says."""

    shot: int  # modulo 2^20
    index: int
    sequence: int
    last: bool
    payload: bytes
    source: bytes
    destination: bytes


def parse_ud(frame: bytes) -> Packet:
    """Reads a frame of framing `ud` and checks every field and both checksums; AssertionError where one is wrong."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    if kind == 0x0800:
        ip, udp_at = frame[14:34], 34
        assert ip[0] == 0x45 and ones_sum(ip) == 0xFFFF, "IPv4 header"
        assert struct.unpack_from(">H", ip, 2)[0] == len(frame) - 14 and ip[9] == 17
        masked = bytearray(ip)
        for at in (1, 8, 10, 11):
            masked[at] = 0xFF
        source, destination = ip[12:16], ip[16:20]
    else:
        assert kind == 0x86DD, f"EtherType {kind:#x}"
        ip, udp_at = frame[14:54], 54
        assert ip[0] >> 4 == 6 and ip[6] == 17
        assert struct.unpack_from(">H", ip, 4)[0] == len(frame) - 54
        masked = bytearray(ip)
        masked[0:4] = bytes([ip[0] | 0x0F, 0xFF, 0xFF, 0xFF])
        masked[7] = 0xFF
        source, destination = ip[8:24], ip[24:40]
    udp = bytearray(frame[udp_at : udp_at + 8])
    assert struct.unpack_from(">H", udp, 4)[0] == len(frame) - udp_at, "UDP length"
    udp[6:8] = b"\xff\xff"
    bth = bytearray(frame[udp_at + 8 : udp_at + 20])
    flags = bth[1]
    sequence = int.from_bytes(bth[9:12], "big")
    assert bth[0] == 0x65 and flags & 0x3F == 0, "opcode, pad count, version"
    bth[4] = 0xFF
    icrc = zlib.crc32(b"\xff" * 8 + bytes(masked) + bytes(udp) + bytes(bth) + frame[udp_at + 20 : -4])
    assert icrc.to_bytes(4, "little") == frame[-4:], "ICRC"
    immediate = struct.unpack_from(">I", frame, udp_at + 28)[0]
    payload = frame[udp_at + 32 : -4]
    return Packet(immediate >> 12, immediate & 0xFFF, sequence, bool(flags & 0x80), payload, source, destination)


@dataclass
class Shot:
    """A whole shot, with what its record says."""

    number: int
    time: int
    event: int
    flags: int
    samples: int
    channels: int
    data: bytes
    good: bool


def parse_shot(packets: list[Packet], mtu: int = 4096) -> Shot:
    """Puts packets, in order and complete, together; AssertionError where anything but the record's CRC is wrong."""
    for index, packet in enumerate(packets):
        last = index == len(packets) - 1
        assert packet.index == index and packet.last == last and (last or len(packet.payload) == mtu)
        assert packet.sequence == (packets[0].sequence + index) % 2**24
    whole = b"".join(packet.payload for packet in packets)
    record = whole[-64:]
    magic, version, packing, _, flags, number, time, _, event, sample_bytes, samples, channels, count, _ = (
        struct.unpack(">4sBBBBQQIIIIHHI", record[:48])
    )
    assert (magic, version, packing, count) == (b"SHOT", 1, 1, len(packets))
    assert sample_bytes == samples * channels * 3 // 2 and record[48:60] == bytes(12)
    assert len(whole) == -(-sample_bytes // 64) * 64 + 64
    assert whole[sample_bytes:-64] == bytes(len(whole) - 64 - sample_bytes), "padding"
    assert all(packet.shot == number % 2**20 for packet in packets)
    good = crc_register(whole) == GOOD_SHOT
    return Shot(number, time, event, flags, samples, channels, whole[:sample_bytes], good)


def shots(frames: list[bytes], mtu: int = 4096) -> list[Shot]:
    """All shots of the frames, which must be whole and behind one another; sequence numbers go on through all."""
    whole, packets, previous = [], [], None
    for frame in frames:
        packet = parse_ud(frame)
        assert previous is None or packet.sequence == (previous + 1) % 2**24, "sequence number"
        previous = packet.sequence
        packets.append(packet)
        if packet.last:
            whole.append(parse_shot(packets, mtu))
            packets = []
    assert not packets, "a shot without its end"
    return whole


def trigger_datagram(sequence: int, flags: int = 0) -> bytes:
    """The 64 bytes of a trigger command."""
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
    """An Ethernet frame with a UDP datagram, as an operating system would send it."""
    if ipv6:
        source = bytes.fromhex("fd00000000000000000000000000000a")
        destination = destination or bytes.fromhex("fd000000000000000000000000000001")
    else:
        source, destination = bytes([192, 168, 0, 10]), destination or bytes([192, 168, 0, 1])
    udp = bytearray(struct.pack(">HHHH", 40000, port, 8 + len(payload), 0) + payload)
    if checksum:
        pseudo = source + destination + struct.pack(">IHBB", len(udp), 0, 0, 17)
        udp[6:8] = ((ones_sum(pseudo + bytes(udp)) ^ 0xFFFF) or 0xFFFF).to_bytes(2, "big")
    if ipv6:
        ip = struct.pack(">IHBB", 0x6000_0000, len(udp), 17, 64) + source + destination
        kind = b"\x86\xdd"
    else:
        head = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 7, 0x4000, 64, 17, 0) + source + destination)
        head[10:12] = (ones_sum(bytes(head)) ^ 0xFFFF).to_bytes(2, "big")
        ip, kind = bytes(head), b"\x08\x00"
    return mac + b"\x02\x00\x00\x00\x00\x0a" + kind + ip + bytes(udp)
