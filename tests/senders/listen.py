"""`shotline record --listen`, and the expected recording of a sender's datagrams."""

import atexit
import contextlib
import json
import select
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from common import CAUSES, WAIT_TIMEOUT_S, Process, until

HERE = Path(__file__).resolve().parent
SPEAD2 = [sys.executable, HERE / "spead2_send.py"]


def free_port(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Listener(Process):
    """A recorder that waits for a sender without set-up; its port is open when the constructor returns."""

    def __init__(self, framing, *arguments, host="127.0.0.1", port=None, json=True, **options):
        self.host, self.port = host, port or free_port(host)
        at = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        if "--pool" not in arguments:
            arguments = (*arguments, "--pool", "32MiB")
        output = ["--json"] if json else []
        super().__init__("record", "--listen", at, "--framing", framing, *output, *arguments, **options)
        until(lambda: self.popen.poll() is not None or self.queued() is not None, what="the recorder's socket")

    def queued(self):
        """Returns the bytes in the socket's receive queue; None if there is no such socket."""
        table = "udp6" if ":" in self.host else "udp"
        with contextlib.suppress(OSError):
            for row in Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, _, queues, *_ = row.split()
                if int(local.rsplit(":", 1)[1], 16) == self.port:
                    return int(queues.split(":")[1], 16)
        return None

    def end_when_drained(self):
        """Interrupts the recorder when it has read everything that was sent, unless it has already ended."""
        until(lambda: self.popen.poll() is not None or not self.queued(), what="an empty receive queue")
        return self.interrupt()

    def wait_for_space(self, max_bytes=64 << 10):
        """Waits until the receive queue has space, so that it never overflows, or until the recorder has ended."""
        until(
            lambda: self.popen.poll() is not None or (self.queued() or 0) < max_bytes, what="space in the receive queue"
        )


@contextlib.contextmanager
def spead2_sender(port, host="127.0.0.1", netns=None, **settings):
    """Starts spead2 as a sender that ends with the block; it prints a line when it has sent everything."""
    command = [*SPEAD2, json.dumps({"host": host, "port": port, **settings})]
    if netns:
        command = ["nsenter", f"--net=/run/netns/{netns}", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send_with_spead2(port, host="127.0.0.1", netns=None, **settings):
    """Sends heaps with spead2 and returns when everything is sent."""
    if netns:
        with spead2_sender(port, host, netns, **settings) as process:
            output, errors = process.communicate(timeout=WAIT_TIMEOUT_S)
            assert output == "sent\n", errors
        return
    if not spead2_server:
        spead2_server.append(subprocess.Popen(SPEAD2, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        atexit.register(spead2_server[0].stdin.close)  # which ends it
    (server,) = spead2_server
    server.stdin.write(json.dumps({"host": host, "port": port, **settings}) + "\n")
    server.stdin.flush()
    ready, _, _ = select.select([server.stdout], [], [], WAIT_TIMEOUT_S)
    assert ready and server.stdout.readline() == "sent\n", "spead2 did not send: see standard error"


spead2_server = []  # one sending process for all tests of a worker: loading spead2 takes longer than most tests


class ExpectedBytes:
    """The expected contents of a recording, computed from the datagrams that reached the recorder.

    `pieces` are (shot, offset, bytes) of good packets in the order of their arrival; of duplicates the first one
    counts.
    """

    def __init__(self, pieces, size):
        self.size, self.shots, self.repeated = size, {}, 0
        for shot, offset, data in pieces:
            pieces_by_offset = self.shots.setdefault(shot, {})
            self.repeated += offset in pieces_by_offset
            pieces_by_offset.setdefault(offset, bytes(data))

    def bytes_of(self, shot):
        pieces_by_offset = self.shots[shot]
        data = np.zeros(
            max([self.size, *(offset + len(piece) for offset, piece in pieces_by_offset.items())]), np.uint8
        )
        for offset, piece in pieces_by_offset.items():
            data[offset : offset + len(piece)] = np.frombuffer(piece, np.uint8)
        return data[: self.size]

    def missing(self, packets):
        """Returns the number of packets that never arrived, of all shots from the first to the last."""
        shots = range(min(self.shots), max(self.shots) + 1)
        return sum(packets - len(self.shots.get(shot, ())) for shot in shots)

    def check(self, recording, packets):
        """Checks every byte of every row, and which packets each row has."""
        assert recording.numbers() == sorted(self.shots), "there must be a row for each shot of which a packet arrived"
        for row, number in enumerate(recording.numbers()):
            found, expected = recording.rf[0][row].reshape(-1), self.bytes_of(number)
            assert np.array_equal(found.view(np.uint8), expected), f"shot {number}"
            entry = recording.tables[0][row]
            assert entry["placed"] == len(self.shots[number]) and entry["packets"] == packets, entry
            assert entry["wire_gap"] == packets - len(self.shots[number]), entry
            assert bool(entry["record_good"]) == (len(self.shots[number]) == packets), entry


def check_drops(ended, **expected):
    """Checks the number of dropped packets for each cause; `repeated` is the sum of duplicate and late ones."""
    drops = dict(ended["packet_drops"])
    assert set(drops) <= set(CAUSES), drops
    repeated = drops.pop("duplicate", 0) + drops.pop("late", 0)
    assert repeated == expected.pop("repeated", 0), ended["packet_drops"]
    assert drops == {cause: count for cause, count in expected.items() if count}, ended["packet_drops"]
