"""Independent connection managers, written from the documents: management datagrams in RoCEv2 packets over UDP.

rdma_cm.py ADDRESS COUNT: sends COUNT connection requests, each from a different forged address.
"""

import contextlib
import secrets
import socket
import struct
import sys

from initiator import icrc

from common import WAIT_TIMEOUT_S

ROCE, Q_KEY, UD_SEND_ONLY = 4791, 0x8001_0000, 0x64
RC_SEND_ONLY, RC_WRITE_ONLY, RC_ACK = 0x04, 0x0A, 0x11
INTRODUCTION = 56  # bytes; perftest sends its key, address and queue pair in it
REQ, REJ, REP, RTU, DREQ = 0x10, 0x12, 0x13, 0x14, 0x15


def address_number(number):
    """Returns the loopback address with this number."""
    return socket.inet_ntoa(struct.pack(">I", 127 << 24 | 93 << 16 | number))


def roce_packet(source, port, destination, header, payload):
    body = header + payload
    udp = struct.pack(">HHHH", port, ROCE, len(body) + 12, 0)
    return body + icrc(source, destination, udp + body + bytes(4))


class CmPeer:
    """Queue pair 1 of a loopback address. With `port=0` it receives no answer, as if its address were forged."""

    def __init__(self, target, address, port=0):
        self.target, self.address = target, address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.socket.settimeout(WAIT_TIMEOUT_S)
        self.port = self.socket.getsockname()[1]
        self.new_connection()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def new_connection(self):
        """Chooses new identifiers, so that the next request opens another connection."""
        self.name, self.transaction, self.qp = (secrets.randbits(bits) for bits in (32, 64, 24))

    def send(self, header, payload=b""):
        packet = roce_packet(self.address, self.port, self.target, header, payload)
        self.socket.sendto(packet, (self.target, ROCE))

    def send_message(self, kind, body):
        """Sends a management datagram of 256 bytes: a header of 24, and the message."""
        mad = struct.pack(">4sIQHHI", b"\x01\x07\x02\x03", 0, self.transaction, kind, 0, 0) + body
        header = struct.pack(">BBHII", UD_SEND_ONLY, 0x40, 0xFFFF, 1, 0) + struct.pack(">II", Q_KEY, 1)
        self.send(header, mad.ljust(256, b"\0"))

    def request_connection(self, port=7174):
        """Sends a REQ to a program of the TCP port space."""
        body = bytearray(232)
        struct.pack_into(">I", body, 0, self.name)
        struct.pack_into(">Q", body, 8, 0x0106_0000 | port)
        struct.pack_into(">I", body, 32, self.qp << 8 | 1)
        body[39] = 1
        body[43] = 18 << 3
        struct.pack_into(">I", body, 44, 0 << 8 | 18 << 3 | 7)
        body[48:50] = b"\xff\xff"
        body[50] = 3 << 4 | 7
        self.send_message(REQ, bytes(body))

    def receive_message(self, kind):
        """Returns the message of the next management datagram of this kind."""
        while True:
            data = self.socket.recv(4096)
            if data[0] == UD_SEND_ONLY and data[20 + 16 : 20 + 18] == struct.pack(">H", kind):
                return data[20 + 24 : 20 + 256]

    def connect(self, port=7174):
        """Requests a connection, waits for the reply, and confirms it."""
        self.request_connection(port)
        self.wait_for_reply()
        self.confirm()

    def wait_for_reply(self):
        reply = self.receive_message(REP)
        while int.from_bytes(reply[4:8]) != self.name:
            reply = self.receive_message(REP)
        self.theirs, self.their_qp = int.from_bytes(reply[:4]), int.from_bytes(reply[12:15])
        self.psn = int.from_bytes(reply[20:23])  # of the first packet of this side

    def confirm(self):
        self.send_message(RTU, struct.pack(">II", self.name, self.theirs))

    def request(self, opcode, payload):
        self.send(struct.pack(">BBHII", opcode, 0x40, 0xFFFF, self.their_qp, 1 << 31 | self.psn), payload)

    def wait_for_packet(self, opcode):
        """Returns what follows the header of the next packet to this queue pair with this opcode."""
        while True:
            data = self.socket.recv(4096)
            if data[0] == opcode and int.from_bytes(data[5:8]) == self.qp:
                return data[12:-4]

    def exchange_introductions(self):
        """Exchanges introductions, as perftest does over its first connection; returns the received key and address."""
        self.request(RC_SEND_ONLY, bytes(INTRODUCTION))
        introduction = self.wait_for_packet(RC_SEND_ONLY)
        return struct.unpack_from(">I", introduction, 16)[0], struct.unpack_from(">Q", introduction, 24)[0]

    def is_write_acknowledged(self, key, address, data):
        """Returns `True` if a WRITE is acknowledged, `False` if it is refused by a NAK."""
        self.request(RC_WRITE_ONLY, struct.pack(">QII", address, key, len(data)) + data)
        return self.wait_for_packet(RC_ACK)[0] >> 5 == 0

    def acknowledge(self, stop):
        """Acknowledges each request on its queue pair, as a live peer does, until `stop` is set."""
        self.socket.settimeout(0.02)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                data = self.socket.recv(4096)
                if int.from_bytes(data[5:8]) == self.qp:
                    header = struct.pack(">BBHI", RC_ACK, 0x40, 0xFFFF, self.their_qp) + b"\0" + data[9:12]
                    self.send(header, struct.pack(">I", 0x1F << 24))


def forge_requests(target, count, first=1 << 8):
    """Requests connections from `count` addresses of loopback, and receives no answer."""
    for number in range(first, first + count):
        with CmPeer(target, address_number(number)) as peer:
            peer.request_connection()


if __name__ == "__main__":
    forge_requests(sys.argv[1], int(sys.argv[2]))
