"""A relay between programs and a probe's set-up port that drops or answers datagrams as a test requires."""

import select
import socket
import threading

from forge import address_of


class Relay:
    """Forwards datagrams of any number of programs.

    `on_request` and `on_reply` get each datagram on its way to the probe and back. They return True to forward it,
    False to drop it; `on_request` may also return bytes to answer with in place of the probe.
    """

    def __init__(self, probe, on_request=lambda _: True, on_reply=lambda _: True):
        self.probe = address_of(probe.address)
        self.on_request, self.on_reply = on_request, on_reply
        self.front = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.front.bind(("::1", 0))
        self.address = f"[::1]:{self.front.getsockname()[1]}"
        self.backs = {}  # a program's address -> the socket that forwards to the probe for it
        self.ending = False
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        for end in [self.front, *self.backs.values()]:
            end.close()

    def work(self):
        while not self.ending:
            programs = {back: program for program, back in self.backs.items()}
            ready, _, _ = select.select([self.front, *programs], [], [], 0.05)
            for end in ready:
                try:
                    if end is self.front:
                        self.forward(*end.recvfrom(256))
                    else:
                        self.backward(end.recv(256), programs[end])
                except OSError:  # the other end is closed
                    continue

    def forward(self, datagram, program):
        if program not in self.backs:
            back = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            back.connect(self.probe)
            self.backs[program] = back
        verdict = self.on_request(datagram)
        if verdict is True:
            self.backs[program].send(datagram)
        elif verdict:
            self.front.sendto(verdict, program)

    def backward(self, datagram, program):
        if self.on_reply(datagram):
            self.front.sendto(datagram, program)
