"""What the tests share: the program's processes, its files read with h5py, and network namespaces.

Nothing here uses the program's own code: expected values are derived from the documentation.
"""

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections import Counter
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

from shotline_verify import Verifier, prbs

PROGRAM = os.environ.get("SHOTLINE_BIN", str(ROOT / "target" / "debug" / "shotline"))
PACKET = 4096
PERIOD = 16  # number of distinct test patterns of an emulated probe
# Timeout of every wait, in seconds. A test that reaches it fails with the condition that it waited for.
WAIT_TIMEOUT_S = 120
CLONE_NEWNET = 0x40000000
LOST, PARTIAL, COMPLETE = range(3)


# --- processes ---------------------------------------------------------------------------------------


_processes = weakref.WeakSet()  # those of the tests of this interpreter, inside their `with`


class Process:
    """The program with some arguments, killed at the end of its `with`. `through` is the command line of a launcher."""

    def __init__(self, *arguments, netns=None, through=(), **options):
        command = [*through, PROGRAM, *map(str, arguments)]
        if netns:
            command = ["nsenter", f"--net=/run/netns/{netns}", *command]
        self.command = " ".join(command[-len(arguments) - 1 :])
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            **options,
        )
        self.pid = self.popen.pid
        _processes.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.send_signal(signal.SIGCONT)
        self.popen.communicate()
        _processes.discard(self)

    def signal(self, number):
        self.popen.send_signal(number)

    def end(self, limit=WAIT_TIMEOUT_S):
        """Waits until the program ends and returns its outcome."""
        try:
            stdout, stderr = self.popen.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {limit} s: {self.command}") from None
        return Outcome(self.command, self.popen.returncode, stdout, stderr)

    def interrupt(self):
        self.signal(signal.SIGINT)
        return self.end()

    def wait_for_packets(self, packets):
        """Waits until a recorder started with `--progress` reports at least this many received packets."""
        Progress(self).wait_for("packets", packets)
        return self

    def status(self, key):
        """Returns a field of /proc/PID/status, in KiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        raise AssertionError(f"{self.command} has no {key}: it has ended")


class Progress:
    """The progress reports of a recorder (`--progress`).

    The lines that are read here are no longer part of its captured standard error.
    """

    def __init__(self, recorder):
        self.recorder = recorder
        self.fd = recorder.popen.stderr.fileno()
        os.set_blocking(self.fd, False)
        self.rest, self.others, self.last = b"", [], {}  # incomplete line, other lines, last report

    def latest(self, what):
        """Returns a count of the latest report; 0 before the first report."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                *lines, self.rest = (self.rest + data).split(b"\n")
                for line in lines:
                    if line.startswith(b"{"):
                        self.last = json.loads(line)
                    else:
                        self.others.append(line.decode())
        return self.last.get(what, 0)

    def wait_for(self, what, minimum):
        """Waits until a count reaches a minimum."""

        def reached():
            has_ended = self.recorder.popen.poll() is not None
            if self.latest(what) >= minimum:
                return True
            assert not has_ended, f"the recorder ended before {what} was {minimum}: {self.last} {self.others}"
            return False

        until(reached, what=f"{what} of {minimum}")


class Outcome:
    """The exit code and the output of a program that has ended."""

    def __init__(self, command, code, stdout, stderr):
        self.command, self.code, self.stdout, self.stderr = command, code, stdout, stderr
        assert "panicked" not in stderr, f"{command}\n{stderr}"

    @property
    def json(self):
        lines = self.stdout.splitlines()
        assert len(lines) == 1, f"expected one JSON object, found {self.stdout!r} and {self.stderr!r}"
        return json.loads(lines[0])

    def succeeded(self):
        assert self.code == 0, f"exit code {self.code} of {self.command}\n{self.stderr}"
        return self.json

    def cut_off(self, cause):
        """Returns the summary of a run that ended early; its one line on standard error must say so, too."""
        assert self.code == 1, f"expected exit code 1, found {self.code} of {self.command}\n{self.stdout}{self.stderr}"
        ended = self.json["ended"]
        assert ended["early"] and ended["cause"] == cause, ended
        lines = self.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("shotline: ended after "), lines
        return self.json

    def refused(self):
        """Returns the one error line of an orderly refusal."""
        assert self.code == 1, f"expected exit code 1, found {self.code} of {self.command}\n{self.stdout}{self.stderr}"
        assert not self.stdout, self.stdout
        lines = self.stderr.strip().splitlines()
        assert len(lines) == 1 and lines[0].startswith("shotline: "), f"expected one clear line, found {lines}"
        return lines[0]


class Probe(Process):
    """An emulated probe that waits for a receiver at `address`."""

    def __init__(self, *arguments, listen="[::1]:0", **options):
        super().__init__("emulate", "probe", "--listen", listen, "--json", *arguments, **options)
        ready, _, _ = select.select([self.popen.stderr], [], [], WAIT_TIMEOUT_S)
        line = self.popen.stderr.readline() if ready else ""
        if "waits for a receiver on" not in line:
            self.popen.kill()
            rest = self.popen.communicate()[1]
            raise AssertionError(f"the probe did not start: {line}{rest}")
        self.address = line.split()[-1]

    def report(self):
        """Ends the probe and returns its JSON object."""
        return self.interrupt().succeeded()


class Recorder(Process):
    """`shotline record` from a probe, on a free port."""

    def __init__(self, probe, *arguments, bind="[::1]:0", **options):
        address = probe if isinstance(probe, str) else probe.address
        if "--pool" not in arguments:
            arguments = (*arguments, "--pool", "32MiB")
        super().__init__("record", "--probe", address, "--bind", bind, "--json", *arguments, **options)


def record(probe, *arguments, **options):
    """Records until the run ends."""
    with Recorder(probe, *arguments, **options) as recorder:
        return recorder.end()


def run(*arguments, limit=WAIT_TIMEOUT_S, **options):
    """Runs the program until it ends."""
    with Process(*arguments, **options) as process:
        return process.end(limit)


def until(condition, what):
    """Waits until a condition holds, and returns its value. `what` names the condition in the message of a failure."""
    end = time.monotonic() + WAIT_TIMEOUT_S
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError("\n".join([f"{what}: not within {WAIT_TIMEOUT_S} s", *failed_processes()]))
        time.sleep(0.01)
    return value


def failed_processes():
    """Returns a line for each program that has ended with a failure: the probable cause of a wait in vain."""
    failed = [process for process in list(_processes) if process.popen.poll() and not process.popen.stderr.closed]
    return [f"{each.command} ended with {each.popen.returncode}: {each.popen.stderr.read()}" for each in failed]


# --- pages -------------------------------------------------------------------------------------------


def get(url, **headers):
    """Returns the type and the text of what an address serves."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=WAIT_TIMEOUT_S) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


class Page:
    """The page that a command with `--serve` prints, and its metrics."""

    def __init__(self, process):
        line = process.popen.stderr.readline()
        assert line.startswith("page: http://"), line
        parts = urllib.parse.urlsplit(line.split()[1])
        self.address, self.token = parts.netloc, parts.fragment.removeprefix("token=")
        self.url = f"http://{self.address}/metrics"

    def about(self):
        return json.loads(get(f"http://{self.address}/api/about")[1])

    def status(self):
        return json.loads(get(f"http://{self.address}/api/status")[1])

    def phase(self):
        # Between two runs that a page starts it is opened again.
        try:
            return self.status()["phase"]
        except (urllib.error.URLError, ConnectionError):
            return None

    def wait_for(self, phase):
        until(lambda: self.phase() == phase, what=f"phase {phase}")

    def has_ended(self):
        return self.phase() == "ended"

    def table(self, title):
        """Returns the rows of a table, each by its columns; none if it is not shown."""
        tables = [table for table in self.status()["tables"] if table["title"] == title]
        return [dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"]]

    def value(self, name):
        """Returns the sum of a metric's samples."""
        lines = [line for line in get(self.url)[1].splitlines() if re.match(rf"{name}[ {{]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def metrics(self):
        """Returns the value of each sample, by its name with labels, such as `a{b="c",d="e"}`."""
        lines = [line for line in get(self.url)[1].splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def control(self, **action):
        """Presses a control; returns what the command says, also if it refuses."""
        body = json.dumps(action).encode()
        request = urllib.request.Request(f"http://{self.address}/api/control", body, method="POST")
        request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT_S) as reply:
                return json.load(reply)["done"]
        except urllib.error.HTTPError as refused:
            return json.load(refused)["error"]

    def stop(self):
        return self.control(action="stop")


# --- files -------------------------------------------------------------------------------------------


def verify(path, finished=True):
    """Runs both verifiers, which must agree, and returns the verdict of the independent one."""
    with h5py.File(path) as file:
        verdict = Verifier(file, pattern=True, rows=0).run()
    assert verdict["verified"], verdict
    own = run("verify", path, "--json").succeeded()
    assert own["verified"] and own["mismatches"] == 0, own
    assert own["finished"] == verdict["finished"], (own, verdict)
    assert [link["complete"] for link in own["links"]] == [link["complete"] for link in verdict["links"]]
    if finished:
        assert verdict["finished"], verdict
    return verdict


class Recording:
    """A recording as any user of h5py sees it."""

    def __init__(self, path):
        self.path = path
        with h5py.File(path) as file:
            self.attributes = dict(file.attrs)
            names = [f"link{index}" for index in range(int(file.attrs["links"]))]
            self.links = [dict(file[name].attrs) for name in names]
            # The samples' extent is the commit marker: a recorder that was killed may have moved the tables' already.
            self.rows = [len(file["rf" if "rf" in file else f"{name}/rf"]) for name in names]
            tables = [file[name]["shots"][...] for name in names]
            assert all(len(table) >= rows for table, rows in zip(tables, self.rows, strict=True))
            self.tables = [table[:rows] for table, rows in zip(tables, self.rows, strict=True)]
            losses = file["losses"]
            causes = {value: name for name, value in h5py.check_enum_dtype(losses.dtype["cause"]).items()}
            self.losses = [
                (int(loss["stream"]), causes[int(loss["cause"])], int(loss["first"]), int(loss["count"]))
                for loss in losses[...]
            ]
            self.counters = {}
            for entry in file["counters"][...]:
                self.counters.setdefault(int(entry["stream"]), {})[entry["name"].decode()] = int(entry["value"])

    @cached_property
    def joined(self):
        """Samples of all links, (rows, samples, channels); None if the links differ in shape."""
        with h5py.File(self.path) as file:
            return file["rf"][: self.rows[0]] if "rf" in file else None

    @cached_property
    def rf(self):
        """Samples of each link."""
        with h5py.File(self.path) as file:
            views = [file[f"link{index}/rf"] for index in range(len(self.links))]
            if self.joined is None:
                return [view[:rows] for view, rows in zip(views, self.rows, strict=True)]
            parts = np.split(self.joined, len(views), axis=2)
            last = slice(max(0, self.rows[0] - 2), self.rows[0])
            for view, part in zip(views, parts, strict=True):
                assert np.array_equal(view[last], part[last]), f"{view.name} is not a part of /rf"
            return parts

    def numbers(self, link=0):
        return [int(number) for number in self.tables[link]["number"]]

    def presence(self, link):
        """Returns (rows, packets): which packets are present."""
        packets = int(self.links[link]["packets"])
        maps = self.tables[link]["presence"]
        return np.unpackbits(maps, axis=1, bitorder="little")[:, :packets].astype(bool)

    def missing(self, link):
        """Returns every missing packet as (shot, packet), both of rows and of shots without a row."""
        rows, packets = np.nonzero(~self.presence(link))
        numbers = self.numbers(link)
        missing = {(numbers[row], int(packet)) for row, packet in zip(rows, packets)}
        stream = int(self.links[link]["stream"])
        for lossy_stream, _, first, count in self.losses:
            if lossy_stream == stream:
                every_packet = range(int(self.links[link]["packets"]))
                missing |= {(shot, packet) for shot in range(first, first + count) for packet in every_packet}
        return missing


def packed(samples):
    """Returns 12-bit samples as bytes in the documented bit order."""
    a, b = samples.reshape(-1, 2).astype(np.uint16).T & 0xFFF
    return np.stack([a >> 4, (a & 0xF) << 4 | b >> 8, b & 0xFF], axis=1).astype(np.uint8).reshape(-1)


def unpacked(data):
    """Returns the samples in packed 12-bit bytes."""
    x, y, z = data.reshape(-1, 3).astype(np.int16).T
    pairs = np.stack([x << 4 | y >> 4, (y & 0xF) << 8 | z], axis=1).reshape(-1)
    return np.where(pairs >= 2048, pairs - 4096, pairs).astype(np.int16)


def zero_missing_packets(samples, present, packing):
    """Returns samples as a reader must see them: bytes of missing packets are zero, all others are unchanged."""
    data = packed(samples) if packing == 1 else samples.astype("<i2").reshape(-1).view(np.uint8)
    data = data.copy()
    for packet in np.flatnonzero(~present):
        data[packet * PACKET : (packet + 1) * PACKET] = 0
    values = unpacked(data) if packing == 1 else data.view("<i2")
    return values.reshape(samples.shape)


def check_samples(recording, pattern=None):
    """Checks that every value is the pattern's, or zero where its packet is missing; returns the compared rows."""
    patterns = {}
    pattern = pattern or (lambda link, number: prbs(int(link["stream"]), number % PERIOD, *shape(link)))
    for index, link in enumerate(recording.links):
        present = recording.presence(index)
        for row, number in enumerate(recording.numbers(index)):
            key = index, number % PERIOD
            if key not in patterns:
                patterns[key] = pattern(link, number)
            expected = zero_missing_packets(patterns[key], present[row], int(link["packing"]))
            found = recording.rf[index][row]
            assert np.array_equal(found, expected), f"link {index}, shot {number}: {differences(found, expected)}"
    return len(recording.numbers())


def shape(link):
    return int(link["channels"]), int(link["samples"]), int(link["bits"])


def differences(found, expected):
    places = np.argwhere(found != expected)
    return f"{len(places)} of {found.size} values differ, the first at (sample, channel) {tuple(places[0])}"


def check_balanced(ended, recording=None):
    """Checks that the counters of a run balance: in its JSON object, in its file, and between the two."""
    if ended["shots_sent"] is not None:
        accounted = ended["shots_complete"] + ended["shots_partial"] + sum(ended["drops"].values())
        assert ended["shots_sent"] == accounted, ended
    if recording is None:
        return
    placed = arrived = 0
    for stream in recording.counters.values():
        counters = Counter(stream)  # a missing counter is 0
        placed, arrived = placed + counters["packets_placed"], arrived + counters["packets_in"]
        drops = sum(counters[f"packets_{cause}"] for cause in CAUSES)
        assert counters["packets_in"] == counters["packets_placed"] + drops, counters
        drops = sum(counters[f"shots_{cause}"] for cause in CAUSES + NEVER_ARRIVED)
        assert counters["shots_seen"] == counters["shots_complete"] + counters["shots_partial"] + drops, counters
    assert arrived == ended["packets"], (arrived, ended)
    assert placed == ended["packets"] - sum(ended["packet_drops"].values()), (placed, ended)


CAUSES = ["bad_icrc", "malformed", "duplicate", "late", "unknown_stream", "no_buffer", "sink_busy", "sink_error"]
CAUSES += ["channel_stopped", "before_start", "bad_record", "sink_full", "not_data", "power_cut", "not_triggered"]
CAUSES += ["unplaced", "sender_restart"]
NEVER_ARRIVED = ["wire_gap", "overrun"]


# --- namespaces --------------------------------------------------------------------------------------


def command(*words, **options):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def socket_in(netns, *arguments):
    """Returns a socket of a network namespace; this thread enters the namespace only to create it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{netns}") as away:
        assert libc.setns(away.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            return socket.socket(*arguments)
        finally:
            assert libc.setns(home.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())


class Namespaces:
    """Two network namespaces joined by a cable. Offloads are disabled, so no packets are coalesced."""

    def __init__(self, mtu=9000):
        name = f"shotline{os.getpid()}x{time.monotonic_ns() % 100_000}"
        self.names = [name + "p", name + "r"]
        self.ipv4 = ["10.91.7.1", "10.91.7.2"]
        self.ipv6 = ["fd91:7::1", "fd91:7::2"]
        try:
            for name in self.names:
                command("ip", "netns", "add", name)
            link = ["type", "veth", "peer", "name", "cable", "netns", self.names[1]]
            command("ip", "-n", self.names[0], "link", "add", "cable", "mtu", mtu, *link)
            for index, name in enumerate(self.names):
                command("ip", "-n", name, "link", "set", "lo", "up")
                command("ip", "-n", name, "link", "set", "cable", "mtu", mtu, "up")
                command("ip", "-n", name, "address", "add", f"{self.ipv4[index]}/24", "dev", "cable")
                command("ip", "-n", name, "address", "add", f"{self.ipv6[index]}/64", "dev", "cable", "nodad")
                offloads = ["tso", "gso", "gro", "tx", "rx", "tx-udp-segmentation"]
                off = [word for offload in offloads for word in (offload, "off")]
                command("nsenter", f"--net=/run/netns/{name}", "ethtool", "-K", "cable", *off)
        except BaseException:
            self.close()
            raise

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=WAIT_TIMEOUT_S, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
