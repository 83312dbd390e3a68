"""A relay between an initiator and a target over a SpaceFibre link: it sees, and may change, every datagram of the link."""

import contextlib
import json
import select
import socket
import struct
import threading

from forge import address_of

LONGEST = 65536


class LinkRelay:
    """Passes one control connection at a time, and the datagrams of the link that it sets up.

    In the control messages it replaces the addresses of both ends by its own. `on_datagram` gets the direction, "out"
    (to the target) or "in", and a datagram; it returns the datagrams to send in its place.
    """

    def __init__(self, target, on_datagram):
        self.target, self.on_datagram = target, on_datagram
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address, self.token = f"127.0.0.1:{self.listener.getsockname()[1]}", target.token
        self.ends = {side: self.datagram_socket() for side in ("initiator", "target")}
        self.peers = {}  # side -> address of the datagrams of this side
        self.error = None
        self.ending = False
        self.thread = threading.Thread(target=self.work)

    @staticmethod
    def datagram_socket():
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        end.bind(("127.0.0.1", 0))
        return end

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        for end in [self.listener, *self.ends.values()]:
            end.close()
        if self.error:
            raise self.error

    def work(self):
        try:
            while not self.ending:
                if select.select([self.listener], [], [], 0.02)[0]:
                    with (
                        self.listener.accept()[0] as initiator,
                        socket.create_connection(address_of(self.target.address)) as target,
                    ):
                        self.pass_connection({"initiator": initiator, "target": target})
        except Exception as error:  # noqa: BLE001 (raised at the end of the `with`)
            self.error = error

    def pass_connection(self, streams):
        buffers = {"initiator": b"", "target": b""}
        sides = {end: (side, True) for side, end in streams.items()} | {
            end: (side, False) for side, end in self.ends.items()
        }
        while not self.ending:
            for end in select.select([*sides], [], [], 0.02)[0]:
                side, is_stream = sides[end]
                other = "target" if side == "initiator" else "initiator"
                if not is_stream:
                    self.pass_datagram(side, other, end.recv(LONGEST))
                    continue
                try:
                    if not (data := end.recv(LONGEST)):
                        return
                    buffers[side] = self.pass_messages(side, other, buffers[side] + data, streams[other])
                except ConnectionError:  # as a program that ends
                    return

    def pass_messages(self, side, other, data, to):
        """Passes whole control messages on; returns the rest of the bytes."""
        while len(data) >= 4 and len(data) >= 4 + (length := struct.unpack(">I", data[:4])[0]):
            message = json.loads(data[4 : 4 + length])
            data = data[4 + length :]
            if message["type"] in ("connect", "accept"):
                self.peers[side] = address_of(message["address"])
                message["address"] = f"127.0.0.1:{self.ends[other].getsockname()[1]}"
            encoded = json.dumps(message).encode()
            to.sendall(struct.pack(">I", len(encoded)) + encoded)
        return data

    def pass_datagram(self, side, other, data):
        for passed in self.on_datagram("out" if side == "initiator" else "in", data):
            if other in self.peers:
                with contextlib.suppress(OSError):  # the other end is closed
                    self.ends[other].sendto(passed, self.peers[other])
