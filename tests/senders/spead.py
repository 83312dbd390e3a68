"""SPEAD packets parsed by the documents alone, and a relay that injects faults."""

import socket
import struct
import threading
from dataclasses import dataclass

HEAP_COUNTER, HEAP_SIZE, HEAP_OFFSET, PAYLOAD_LENGTH, DESCRIPTOR, STREAM_CONTROL = range(1, 7)


@dataclass
class Piece:
    """The header fields of one packet, and its payload."""

    heap: int
    size: int
    offset: int
    data: bytes
    control: bool

    @classmethod
    def of(cls, datagram):
        magic, version, id_bytes, address_bytes, _, items = struct.unpack_from(">BBBBHH", datagram)
        assert (magic, version, id_bytes + address_bytes) == (0x53, 4, 8)
        bits = 8 * address_bytes
        fields, control = {}, False
        for item in struct.unpack_from(f">{items}Q", datagram, 8):
            number, value = (item & ~(1 << 63)) >> bits, item & ((1 << bits) - 1)
            control |= number in (DESCRIPTOR, STREAM_CONTROL)
            if item >> 63:
                fields[number] = value
        data = datagram[8 + 8 * items :]
        assert fields[PAYLOAD_LENGTH] == len(data)
        return cls(fields[HEAP_COUNTER], fields[HEAP_SIZE], fields[HEAP_OFFSET], data, control)


def packet(heap, size, offset, data, flavour=48, items=()):
    """Returns a SPEAD packet with these header fields."""
    address_bytes = flavour // 8
    words = [(HEAP_COUNTER, heap), (HEAP_SIZE, size), (HEAP_OFFSET, offset), (PAYLOAD_LENGTH, len(data)), *items]
    head = struct.pack(">BBBBHH", 0x53, 4, 8 - address_bytes, address_bytes, 0, len(words))
    return head + b"".join(struct.pack(">Q", 1 << 63 | number << flavour | value) for number, value in words) + data


def through_faults(faults):
    """Returns a function for `Relay` that applies faults to data.

    Descriptors and stop heaps pass unchanged, after all delayed packets.
    """

    def transform(datagram):
        return [*faults.drain(), datagram] if Piece.of(datagram).control else faults(datagram)

    return transform


class Relay:
    """A relay between a sender and a recorder.

    `transform` returns the datagrams to forward for each received one. `passed` has all forwarded datagrams in order.
    """

    def __init__(self, port, transform):
        self.transform, self.passed, self.ending = transform, [], False
        self.front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.front.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.front.bind(("127.0.0.1", 0))
        self.front.settimeout(0.05)
        self.port = self.front.getsockname()[1]
        self.back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.back.connect(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        self.front.close()
        self.back.close()

    def work(self):
        while not self.ending:
            try:
                datagram = self.front.recv(1 << 16)
            except TimeoutError:
                continue
            for forwarded in self.transform(datagram):
                self.passed.append(forwarded)
                self.back.send(forwarded)

    def pieces(self, size):
        """Returns (heap, offset, data) of every forwarded data packet of heaps of this size."""
        pieces = map(Piece.of, self.passed)
        return [(piece.heap, piece.offset, piece.data) for piece in pieces if piece.size == size and not piece.control]
