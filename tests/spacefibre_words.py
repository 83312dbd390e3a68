"""SpaceFibre in datagrams, and the RDMA packets in it, decoded from sections 10 to 12 of docs/wire-formats.md alone."""

import struct
import zlib
from dataclasses import dataclass, field
from functools import cache

HEADER, RECORD = 24, 4
WORDS, DATA_FRAME, BROADCAST_FRAME = 1, 2, 3
NOT_ENDED, ENDED, CUT = 0, 1, 2
ENDS = {ENDED: 0xFD, CUT: 0xFE}  # EOP, EEP
FILL = 0xFB
MAX_ROWS = 64  # data words of a frame on each lane
OPERATIONS = {1: "read", 2: "write", 4: "send", 8: "compare and swap", 9: "fetch and add"}
DATA_LENGTHS = {1: (0,), 8: (16,), 9: (8,)}
COMMAND, REPLY = 40, 20


def crc_table(polynomial):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


CRC16, CRC8 = crc_table(0x8408), crc_table(0xE0)


def crc16(data):
    state = 0xFFFF
    for byte in data:
        state = state >> 8 ^ CRC16[(state ^ byte) & 0xFF]
    return state


def crc8(data):
    state = 0
    for byte in data:
        state = CRC8[state ^ byte]
    return state


def key_stream(count):
    """Returns the first bytes of the generator of random bytes."""
    state, stream = 0xFFFF, []
    for _ in range(count):
        byte = 0
        for bit in range(8):
            out = state >> 15
            byte |= out << bit
            state = (state << 1) & 0xFFFF ^ (0x0039 if out else 0)
        stream.append(byte)
    return bytes(stream)


KEY_STREAM = key_stream(4 * MAX_ROWS)


@cache
def key_stream_of_rows(lanes):
    """Returns the random bytes of the data words of a frame: all lanes use the same ones."""
    return b"".join(KEY_STREAM[4 * row : 4 * row + 4] * lanes for row in range(MAX_ROWS))


def xor(left, right):
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))


class Malformed(Exception):
    """The datagram or the packet breaks a rule of the page."""


def check(condition, what):
    if not condition:
        raise Malformed(what)


@dataclass
class DataFrame:
    vc: int
    seq: int
    data: bytes  # descrambled
    end: int


@dataclass
class Control:
    name: str
    vc: int | None = None
    credit: int | None = None  # words
    seq: int | None = None
    late: bool = False  # of a broadcast message
    delayed: bool = False


@dataclass
class Datagram:
    initialises: bool
    scrambled: bool
    lanes: int
    number: int
    session: int
    peer: int
    items: list = field(default_factory=list)


def datagram(data):
    """Decodes a datagram, with all CRCs checked."""
    found = header(data)
    found.items = list(contents(data, found))
    for item in found.items:
        if isinstance(item, Malformed):
            raise item
    return found


def header(data):
    """Decodes the header of a datagram."""
    check(len(data) >= HEADER, "shorter than its header")
    magic, version, flags, lanes, zero, number, session, peer, crc = struct.unpack(">2s4B2x4I", data[:HEADER])
    check((magic, version) == (b"SF", 1), "another magic or version")
    check(crc == zlib.crc32(data[:20]), "header CRC-32")
    check(flags < 4 and zero == 0 and data[6:8] == bytes(2), "a reserved bit is set")
    check(1 <= lanes <= 16 and session != 0, "lanes or session")
    found = Datagram(bool(flags & 1), bool(flags & 2), lanes, number, session, peer)
    check(not found.initialises or number == 0 and len(data) == HEADER, "it initialises, and has contents")
    return found


def contents(data, found):
    """Yields the frames and control words of a datagram; in place of a damaged one, what is wrong with it."""
    at = HEADER
    while at < len(data):
        kind, end, characters, stop = record_header(data, at, found.lanes)
        at += RECORD
        step = 4 if kind == WORDS else stop - at
        for start in range(at, stop, step):
            words = data[start : start + step]
            try:
                if kind == DATA_FRAME:
                    yield data_frame(words, end, characters, found)
                else:
                    yield control(words) if kind == WORDS else broadcast_frame(words)
            except Malformed as damage:
                yield damage
        at = stop


def broadcast_frame(words):
    check(words[:2] == b"\xfc\x5d" and words[12] == 0x5C, "not a broadcast frame")
    check(crc8(words) == 0, "CRC-8 of a broadcast frame")
    return Control("EBF", seq=words[14], late=bool(words[13] & 1), delayed=bool(words[13] & 2))


def record_header(data, at, lanes):
    """Returns kind, end, characters, and the offset of the next record."""
    head = data[at : at + RECORD]
    check(len(head) == RECORD and crc8(head) == 0, "record CRC-8")
    kind, fields = head[0], int.from_bytes(head[1:3])
    end, characters = fields >> 14, fields & 0x1FFF
    check(fields >> 13 & 1 == 0 and WORDS <= kind <= BROADCAST_FRAME, "kind or reserved bit of a record")
    words = characters // 4
    if kind == DATA_FRAME:
        check(end in (ENDED, CUT) or end == NOT_ENDED and characters % 4 == 0, "end of a frame")
        data_words = words + (end != NOT_ENDED)
        check(0 < data_words <= MAX_ROWS * lanes, "data words of a frame")
        words = 1 + data_words + lanes
    else:
        check(end == 0 and characters % 4 == 0, "end or characters of words")
        check(kind == WORDS or characters == 16, "length of a broadcast frame")
    stop = at + RECORD + 4 * words
    check(stop <= len(data), "a cut record")
    return kind, end, characters, stop


def data_frame(words, end, characters, found):
    """Decodes SDF, data words and an EDF per lane, each with its own CRC-16."""
    lanes = found.lanes
    data_words = len(words) // 4 - 1 - lanes
    sdf, body, edfs = words[:4], words[4 : 4 + 4 * data_words], words[4 + 4 * data_words :]
    check(sdf[:2] == b"\xfc\x50" and sdf[2] < 32 and sdf[3] == 0, "SDF")
    for lane in range(lanes):
        edf = edfs[4 * lane : 4 * lane + 4]
        check(edf[0] == 0x1C and edf[1] == edfs[1], "EDF, or its sequence number")
        of_lane = b"".join(body[4 * word : 4 * word + 4] for word in range(lane, data_words, lanes))
        check(crc16(sdf + of_lane + edf[:2]) == int.from_bytes(edf[2:], "little"), f"CRC-16 of lane {lane}")
    rest = body[characters:]
    if end:
        check(rest == bytes([ENDS[end], *[FILL] * (len(rest) - 1)]), "the end of a packet and its Fills")
    data = body[:characters]
    if found.scrambled:
        data = xor(data, key_stream_of_rows(lanes)[: len(data)])
    return DataFrame(sdf[2], edfs[1], data, end)


CONTROL = {0x44: "SIF", 0xA2: "ACK", 0xBB: "NACK", 0x6F: "FULL"}


def control(word):
    if word == b"\xfc\x87\0\0":
        return Control("RETRY")
    check(crc8(word) == 0, f"CRC-8 of the control word {word.hex(' ')}")
    if word[0] == 0x7C:
        return Control("FCT", vc=word[1] & 31, credit=64 * ((word[1] >> 5) + 1), seq=word[2])
    check(word[0] == 0xFC and word[1] in CONTROL, f"an unknown control word {word.hex(' ')}")
    return Control(CONTROL[word[1]], seq=word[2])


class Stream:
    """What an end receives, in its order: control words, and packets of each virtual channel.

    With `errors`, damaged, repeated and late items are skipped, as a receiver does; else there must be none.
    """

    def __init__(self, lanes, errors=False):
        self.lanes, self.errors = lanes, errors
        self.initialised, self.session, self.next_number = False, None, 0
        self.count = 0  # sequence number of the last item
        self.skipped = 0
        self.open, self.packets, self.controls, self.scrambled = {}, [], [], set()

    def take(self, data):
        """Takes the next datagram of a link that is not reset."""
        try:
            found = header(data)
            self.take_datagram(found, contents(data, found))
        except Malformed:
            assert self.errors, "a damaged datagram"
            self.skipped += 1

    def take_datagram(self, found, items):
        assert found.lanes == self.lanes and self.session in (None, found.session), "other lanes, or a second session"
        self.session = found.session
        if found.initialises:
            assert self.errors or self.next_number == 0, "it initialises a link that is up"
            self.initialised = True
            return
        assert found.peer != 0
        if self.errors and found.number < self.next_number:
            self.skipped += 1
            return
        assert self.errors or found.number == self.next_number
        self.next_number = found.number + 1
        self.scrambled.add(found.scrambled)
        for item in items:
            if isinstance(item, Malformed):
                assert self.errors, item
                self.skipped += 1
            else:
                self.take_item(item)

    def take_item(self, item):
        counted = isinstance(item, DataFrame) or item.name in ("FCT", "EBF")
        if counted or item.name in ("SIF", "FULL"):
            is_next = item.seq % 128 == (self.count + counted) % 128
            assert self.errors or is_next and item.seq < 128, f"{item} after number {self.count}"
            if not is_next:
                self.skipped += 1
                return
            self.count += counted
        if not isinstance(item, DataFrame):
            self.controls.append(item)
            return
        packet = self.open.pop(item.vc, b"") + item.data
        if item.end == NOT_ENDED:
            self.open[item.vc] = packet
        else:
            assert item.end == ENDED, "a cut packet"
            self.packets.append(rdma_packet(packet))


@dataclass
class Packet:
    name: str
    fields: dict
    data: bytes


def rdma_packet(packet):
    """Decodes an RDMA packet, both CRCs checked."""
    check(len(packet) >= REPLY and packet[1] == 0xF0, "not an RDMA packet")
    is_command = packet[2] >> 6 == 1
    check(packet[2] >> 6 < 2 and packet[3] == (0x10 if is_command else 0x1F), "version or packet type")
    length = COMMAND if is_command else REPLY
    check(len(packet) >= length and crc8(packet[:length]) == 0, "header CRC-8")
    fields = command(packet) if is_command else reply(packet)
    data = packet[length:]
    if fields["data_length"]:
        data, crc = data[:-4], data[-4:]
        check(zlib.crc32(data) == int.from_bytes(crc, "little"), "data CRC-32")
    check(len(data) == fields["data_length"], "data length")
    operation = packet[2] >> 2 & 15
    if is_command:
        check(operation in OPERATIONS, "operation")
        check(len(data) in DATA_LENGTHS.get(operation, range(1 << 16 | 1)), "data length of the operation")
        return Packet(OPERATIONS[operation], fields, data)
    check(operation in (1, 2, 8), "kind of reply")
    return Packet({1: "read reply", 2: "acknowledgement", 8: "atomic reply"}[operation], fields, data)


def command(packet):
    key, qp, transaction = (int.from_bytes(packet[at : at + count]) for at, count in ((4, 4), (9, 3), (13, 3)))
    address, total, offset = struct.unpack(">QII", packet[16:32])
    length = int.from_bytes(packet[36:39])
    check(packet[12] == 0 and packet[2] >> 2 & 15 in OPERATIONS, "a reserved byte, or an unknown operation")
    check(packet[2] >> 2 & 15 in (1, 8, 9) or offset + length <= total, "a segment after the end of its operation")
    return {
        "key": key,
        "qp": qp,
        "transaction": transaction,
        "address": address,
        "total": total,
        "offset": offset,
        "data_length": length,
    }


def reply(packet):
    qp, transaction, operations, length = (int.from_bytes(packet[at : at + 3]) for at in (5, 9, 12, 16))
    return {
        "status": packet[4],
        "qp": qp,
        "transaction": transaction,
        "operations": operations,
        "data_length": length,
    }
