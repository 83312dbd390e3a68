"""Compares `shotline record --listen` with spead2's receivers, on heaps from spead2's sender (`make bench-spead`)."""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import (
    HERE,
    POOL_MIB,
    RECEIVE_CPU,
    SEND_CPU,
    SOCKET_BUFFER,
    SPEAD2_PORT,
    TIME_LIMIT,
    Contender,
    Failed,
    background,
    foreground,
    interleave,
    json_of,
    program,
    ratio,
    say,
    wait_for_port,
    wide_socket_buffers,
)

HEAP = 1 << 20
PEER = HERE / "spead2_peer.py"


@dataclass
class Run:
    """Heaps received and lost, and the CPU time of the receiving process."""

    packets: int  # heaps, the unit of loss here
    lost: int
    gbps: float
    gb_per_cpu_s: float


def send(gbps, seconds):
    """Runs spead2's sender, for any receiver."""
    words = ["send", SPEAD2_PORT, SEND_CPU, gbps, seconds]
    return json_of(foreground([sys.executable, str(PEER), *map(str, words)]))


def cpu_so_far(pid):
    """Returns the CPU seconds of all threads of a process."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) * 1e-9


def measured(command, gbps, seconds):
    """Runs the receiver `command` against spead2's sender; it prints one JSON object after the stop heap.

    Returns the sender's report, that object, and the receiver's CPU seconds before the first heap.
    """
    with background(command) as receiver:
        wait_for_port("udp6", SPEAD2_PORT, receiver)
        before = cpu_so_far(receiver.pid)
        sent = send(gbps, seconds)
        try:
            report = json_of(receiver.communicate(timeout=TIME_LIMIT)[0])
        except subprocess.TimeoutExpired:
            raise Failed("the receiver did not end: the stop heap was lost") from None
    return sent, report, before


def run(sent, heaps, cpu_s):
    if not heaps:
        raise Failed("no heap arrived")
    payload = heaps * HEAP
    return Run(heaps, sent["heaps"] - heaps, payload * 8e-9 / sent["seconds"], payload * 1e-9 / cpu_s)


def run_shotline(gbps, seconds):
    command = [
        *(program(), "record", "--json", "--listen", f"[::1]:{SPEAD2_PORT}", "--framing", "spead", "--discard"),
        *("--pool", f"{POOL_MIB}MiB", "--receive-buffer", str(SOCKET_BUFFER), "--cpu", str(RECEIVE_CPU)),
        *("--idle-s", "3"),
    ]
    sent, report, before = measured(command, gbps, seconds)
    return run(sent, report["shots_complete"], report["cpu_user_s"] + report["cpu_sys_s"] - before)


def run_spead2(kind, gbps, seconds, *more):
    command = [sys.executable, str(PEER), kind, str(SPEAD2_PORT), str(RECEIVE_CPU), *more]
    sent, report, _ = measured(command, gbps, seconds)
    return run(sent, report["heaps"], report["cpu_s"])  # measured from `ready` on


def median(contender):
    """Returns the lossless run with the median payload per CPU second."""
    if len(contender.good) < contender.wanted:
        return None
    return sorted(contender.good, key=lambda run: run.gb_per_cpu_s)[contender.wanted // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gbps", type=float, default=6, help="payload rate of the sender, the same for all")
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each contender")
    parser.add_argument("--seconds", type=float, default=4, help="length of a run")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, wide_socket_buffers():
        library = str(Path(folder) / "spead2_place.so")
        source = str(HERE / "spead2_place.c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        runs = {
            "shotline": lambda _: run_shotline(args.gbps, args.seconds),
            "spead2-ring": lambda _: run_spead2("ring", args.gbps, args.seconds),
            "spead2-chunk": lambda _: run_spead2("chunk", args.gbps, args.seconds, library),
        }
        say(f"heaps of {HEAP} bytes at {args.gbps:g} Gbit/s, packets of 8192 bytes of payload, for {args.seconds:g} s")
        contenders = [Contender(name, run, args.runs, paced=False) for name, run in runs.items()]
        complete = interleave(contenders)

    say("")
    say("Medians of lossless runs. CPU is user and system of the receiving process, from when its port is open.")
    say("| receiver | Gbit/s | payload per CPU second |")
    say("|---|---|---|")
    medians = {contender.name: median(contender) for contender in contenders}
    for name, found in medians.items():
        say(f"| {name} | {found.gbps:.2f} | {found.gb_per_cpu_s:.2f} GB |" if found else f"| {name} | none | |")
    say("")
    ours = medians.pop("shotline")
    peers = [found.gb_per_cpu_s for found in medians.values() if found]
    if ours and peers:  # the better one of spead2's receivers
        ratio("receive/spead2-receiver", ours.gb_per_cpu_s, "spead2", max(peers), "GB/CPU-s")
    sys.exit(0 if complete else 1)


if __name__ == "__main__":
    main()
