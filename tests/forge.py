"""A sender of forged packets, a proxy that observes the set-up of a probe, and a sender of repeated frames."""

import socket
import struct
import threading
import zlib

from common import PACKET, socket_in


class Eavesdropper:
    """A proxy between a recorder and a probe's set-up port that forwards messages and keeps them."""

    def __init__(self, probe):
        self.probe = address_of(probe.address)
        self.front = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.front.bind(("::1", 0))
        self.back = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.back.connect(self.probe)
        for end in (self.front, self.back):
            end.settimeout(0.05)
        self.address = f"[::1]:{self.front.getsockname()[1]}"
        self.recorder = None
        self.configured = {}  # link -> the reply to Configure
        self.started = threading.Event()
        self.ending = False
        self.threads = [threading.Thread(target=work) for work in (self.forwards, self.backwards)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        for thread in self.threads:
            thread.join()
        self.front.close()
        self.back.close()

    def forwards(self):
        while not self.ending:
            try:
                message, self.recorder = self.front.recvfrom(256)
                self.back.send(message)
            except OSError:
                continue

    def backwards(self):
        while not self.ending:
            try:
                message = self.back.recv(256)
            except OSError:
                continue
            if message[5] == 0x82:
                self.configured[message[16]] = message
            if message[5] == 0x83:
                self.started.set()
            self.front.sendto(message, self.recorder)


class Target:
    """The destination of a link's packets, parsed from a reply to Configure."""

    def __init__(self, reply):
        (self.port,) = struct.unpack_from(">H", reply, 22)
        self.qp, self.q_key = struct.unpack_from(">II", reply, 40)


class Forger:
    """Sends datagrams of any kind to an IPv6 loopback port, at a rate that does not overflow its buffer."""

    def __init__(self, port):
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.bind(("::1", 0))
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def raw(self, datagram):
        self.socket.sendto(datagram, ("::1", self.port))

    def roce(self, qp, q_key, shot, index, payload=bytes(PACKET), opcode=0x65, version=0, **damage):
        """Sends a RoCEv2 datagram with a correct ICRC, unless `damage` says otherwise."""
        header = struct.pack(">BBHI", opcode, 0x40 | version, 0xFFFF, qp)
        header += struct.pack(">III", damage.get("psn", 0), q_key, 0x11)
        header += struct.pack(">I", (shot & 0xFFFFF) << 12 | index)
        datagram = header + payload
        crc = self.icrc(datagram) ^ damage.get("icrc", 0)
        self.raw(datagram + struct.pack("<I", crc))

    def plain(self, stream, shot, index, shot_bytes=72_064):
        """Sends a datagram of the framing `udp`."""
        body = bytes(min(PACKET, shot_bytes - index * PACKET))
        header = struct.pack(">4sBBHIQIII", b"SHPK", 1, 0, 0, stream, shot, index * PACKET, len(body), shot_bytes)
        self.raw(header + body)

    def icrc(self, datagram):
        """Returns the ICRC over IPv6, by docs/wire-formats.md, section 4."""
        length = 8 + len(datagram) + 4
        loopback = socket.inet_pton(socket.AF_INET6, "::1")
        ip = struct.pack(">BBHHBB", 0x6F, 0xFF, 0xFFFF, length, 17, 0xFF) + loopback + loopback
        udp = struct.pack(">HHHH", self.socket.getsockname()[1], self.port, length, 0xFFFF)
        return zlib.crc32(b"\xff" * 8 + ip + udp + datagram[:4] + b"\xff" + datagram[5:])


class Replayer:
    """Repeats some of the frames that pass the sender's end of a cable, as `change` returns them.

    `change` gets the count and the bytes of each RoCEv2 frame and returns additional frames to send.
    """

    def __init__(self, netns, change):
        self.change = change
        self.socket = socket_in(netns, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind(("cable", 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.settimeout(0.05)
        self.count = 0
        self.ending = False
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        self.socket.close()

    def work(self):
        while not self.ending:
            try:
                frame, address = self.socket.recvfrom(10_000)
            except TimeoutError:
                continue
            udp = 14 + (20 if frame[14] >> 4 == 4 else 40)
            if address[2] != socket.PACKET_OUTGOING or len(frame) < udp + 28:
                continue
            if struct.unpack_from(">H", frame, udp + 2) == (4791,):
                for other in self.change(self.count, frame, udp):
                    self.socket.send(other)
                self.count += 1


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)
