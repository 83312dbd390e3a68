"""An independent initiator, written from the documents: control messages as JSON, RoCEv2 packets over UDP.

It performs valid operations, and invalid ones that a target must refuse.
"""

import json
import secrets
import select
import socket
import struct
import zlib

from common import WAIT_TIMEOUT_S

ACK, WRITE_ONLY, READ_REQUEST, READ_MIDDLE, READ_ONLY, FETCH_ADD, ATOMIC_ACK = 0x11, 0x0A, 0x0C, 0x0E, 0x10, 0x14, 0x12


def split(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Control:
    """A control connection: JSON objects, each preceded by its length."""

    def __init__(self, address, make_socket=socket.socket):
        host, port = split(address)
        self.socket = make_socket(family_of(host), socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_TIMEOUT_S)
        self.socket.connect((host, port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send_message(self, **message):
        data = json.dumps(message).encode()
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def receive_message(self):
        head = self.read_exactly(4)
        return json.loads(self.read_exactly(*struct.unpack(">I", head))) if head else None

    def read_exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                return b""
            data += piece
        return data

    def request(self, **message):
        self.send_message(**message)
        return self.receive_message()

    def hello(self, token):
        return self.request(type="hello", version=2, token=token)


def icrc(source, destination, datagram):
    """Returns the ICRC: the variable fields of the IP header, the UDP checksum and BTH byte 4 count as ones."""
    masked = bytearray(datagram[:-4])
    masked[6] = masked[7] = masked[12] = 0xFF
    if ":" in source:
        addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
        head = b"\x6f\xff\xff\xff" + struct.pack(">HBB", len(datagram), 17, 255) + addresses
    else:
        # Linux sends unconnected datagrams with "don't fragment" and identification 0.
        addresses = socket.inet_aton(source) + socket.inet_aton(destination)
        head = struct.pack(">BBHHHBBH", 0x45, 255, 20 + len(datagram), 0, 0x4000, 255, 17, 0xFFFF) + addresses
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + head + masked))


class Initiator:
    """A queue pair of an independent implementation, on loopback unless it has a `host`, its own address."""

    def __init__(self, target, host=None, make_socket=socket.socket):
        self.to = split(target.memory)
        self.host = host or self.to[0]
        family = family_of(self.host)
        self.socket = make_socket(family, socket.SOCK_DGRAM)
        self.socket.bind((self.host, 0))
        self.socket.settimeout(WAIT_TIMEOUT_S)
        self.port = self.socket.getsockname()[1]
        self.qp, self.psn = secrets.randbelow(1 << 24), secrets.randbelow(1 << 24)
        self.control = Control(target.address, make_socket)
        assert self.control.hello(target.token)["type"] == "welcome"
        self.accept = self.control.request(
            type="connect",
            kind="rc",
            address=f"[{self.host}]:{self.port}" if family == socket.AF_INET6 else f"{self.host}:{self.port}",
            qp=self.qp,
            psn=self.psn,
            mtu=1024,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
        )
        assert self.accept["type"] == "accept", self.accept
        self.keys = {key["name"]: key for key in self.accept["keys"]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.control.socket.close()
        self.socket.close()

    def packet(self, opcode, rest, psn=None, qp=None, crc=None, source=None):
        psn = self.psn if psn is None else psn % (1 << 24)
        qp = self.accept["qp"] if qp is None else qp
        padding = -len(rest) % 4
        body = struct.pack(">BBHII", opcode, padding << 4, 0xFFFF, qp, 1 << 31 | psn) + rest + bytes(padding)
        host, port = source.getsockname()[:2] if source else (self.host, self.port)
        udp = struct.pack(">HHHH", port, self.to[1], len(body) + 12, 0)
        return body + (crc or icrc(host, self.to[0], udp + body + bytes(4)))

    def send(self, *arguments, source=None, **options):
        (source or self.socket).sendto(self.packet(*arguments, source=source, **options), self.to)

    def answer(self):
        """Returns opcode, PSN and the rest of the next received packet."""
        data = self.socket.recv(4096)
        opcode, destination, psn = data[0], int.from_bytes(data[5:8]), int.from_bytes(data[9:12])
        assert destination == self.qp
        if ":" in self.host:  # over IPv4 the identification cannot be seen
            udp = struct.pack(">HHHH", self.to[1], self.port, len(data) + 8, 0)
            assert data[-4:] == icrc(self.to[0], self.host, udp + data), "an ICRC of other bytes"
        return opcode, psn, data[12:-4]

    def received_nothing(self):
        """Returns `True` if nothing came back.

        A valid operation that is answered after the refused one proves that the refused one was processed.
        """
        return not select.select([self.socket], [], [], 0)[0]

    def write(self, name, offset, data, **options):
        key = self.keys[name]
        head = struct.pack(">QII", key["address"] + offset, key["rkey"], len(data))
        self.send(WRITE_ONLY, head + data, **options)

    def write_acknowledged(self, name, offset, data):
        """Writes as a valid initiator does, and waits for the acknowledgement."""
        self.write(name, offset, data)
        opcode, psn, rest = self.answer()
        assert (opcode, psn, rest[0] >> 5) == (ACK, self.psn, 0), (opcode, psn, rest)
        self.psn = (self.psn + 1) % (1 << 24)

    def send_read(self, name, offset, count):
        key = self.keys[name]
        self.send(READ_REQUEST, struct.pack(">QII", key["address"] + offset, key["rkey"], count))

    def read(self, name, offset, count):
        self.send_read(name, offset, count)
        opcode, psn, rest = self.answer()
        assert (opcode, psn) == (READ_ONLY, self.psn)
        self.psn = (self.psn + 1) % (1 << 24)
        return rest[4 : 4 + count]

    def read_long(self, name, count, offset=0):
        """Reads `count` bytes in as many packets as it takes."""
        self.send_read(name, offset, count)
        data = b""
        while len(data) < count:
            opcode, psn, rest = self.answer()
            assert psn == self.psn, "an answer is missing"
            self.psn = (self.psn + 1) % (1 << 24)
            data += rest if opcode == READ_MIDDLE else rest[4:]  # the others begin with an acknowledgement
        return data[:count]

    def refused(self):
        return self.control.request(type="statistics")["refused"]
