"""Compares receiving from a memif with dpdk-testpmd, and receives a probe's shots through one (`make bench-memif`).

Two processes, one core each. The sender of the frames is dpdk-testpmd for both contenders; the receivers are testpmd's
rxonly, which reads no byte of them, and Shotline's, which copies every payload into registered memory. The probe is
Shotline's, ICRC computed and checked, with payloads of 4096 bytes into contiguous shot buffers.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from common import PAYLOAD, RECEIVE_CPU, SEND_CPU, Failed, background, foreground, json_of, ratio, say

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "dpdk_throughput"
PAPER_GBPS = 90.5  # Cossettini et al. (docs/plan.md), table I: 84.26 in units of 2^30 bit/s
FRAMES = [4096, 9000]
BUFFER_BYTES = 10240  # size of a memif buffer, at both ends
HUGE_PAGES = 512
RATE = re.compile(r"Rx-pps:\s+(\d+)\s+Rx-bps:\s+(\d+)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, with one run of each contender")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a run")
    parser.add_argument("--pool", type=int, default=32, metavar="MIB", help="memory that our receivers cycle through")
    parser.add_argument("--only", nargs="+", default=[""], metavar="START", help="ratios with this prefix: memif-probe")
    args = parser.parse_args()

    runs = {}
    for frame in FRAMES:
        if f"memif-{frame}/testpmd".startswith(tuple(args.only)):
            runs[f"testpmd {frame}"] = lambda huge, frame=frame: testpmd(frame, args.seconds, huge)
            runs[f"shotline {frame}"] = lambda huge, frame=frame: slots(frame, args.seconds, args.pool, huge)
    if "memif-probe/paper".startswith(tuple(args.only)):
        runs["probe"] = lambda _: probe(args.seconds, args.pool)
    figures = {name: [] for name in runs}
    with huge_pages() as huge:
        say(f"huge pages: {'yes' if huge else 'no'}; our receivers cycle through {args.pool} MiB")
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            for name, run in runs.items():
                try:
                    figures[name].append(run(huge))
                    say(f"  {name}: {figures[name][-1]:.1f} Gbit/s")
                except Failed as error:
                    say(f"  FAILED {name}: {error}")
    say("")
    for frame in FRAMES:
        ours, peer = figures.get(f"shotline {frame}"), figures.get(f"testpmd {frame}")
        if ours and peer:
            ratio(f"memif-{frame}/testpmd", median(ours), "testpmd rxonly", median(peer), "Gbit/s")
    if figures.get("probe"):
        ratio("memif-probe/paper", median(figures["probe"]), "the paper", PAPER_GBPS, "Gbit/s")
    sys.exit(0 if all(len(values) == args.rounds for values in figures.values()) else 1)


# --- contenders --------------------------------------------------------------------------------------


def testpmd(frame, seconds, huge):
    with socket() as path:
        receiver = [*pmd("rx", RECEIVE_CPU, memif("server", path), huge), "--forward-mode=rxonly"]
        with background(receiver) as process, sending(path, frame, huge):
            time.sleep(seconds + 5)  # includes the start of both
            process.terminate()
            output = process.stdout.read()
    # The first and the last second are incomplete.
    rates = [int(bits) * 1e-9 for _, bits in RATE.findall(output) if int(bits) > 0][1:-1]
    if not rates:
        raise Failed("testpmd received nothing")
    return median(rates)


def slots(frame, seconds, pool, huge):
    with socket() as path, sender_later(path, lambda: sending(path, frame, huge)):
        return received("slots", path, seconds, frame, pool)


def probe(seconds, pool):
    def sending_shots():
        return background(ours(SEND_CPU, "probe", memif("client", path), 60, PAYLOAD, pool))

    with socket() as path, sender_later(path, sending_shots):
        return received("shots", path, seconds, PAYLOAD, pool)


def received(role, path, seconds, size, pool):
    figures = json_of(foreground(ours(RECEIVE_CPU, role, memif("server", path), seconds, size, pool)))
    if figures.get("faults") or figures["link_downs"] or not figures.get("shots_compared", 1):
        raise Failed(f"not every packet was good: {figures}")
    return figures["gbps"]


def sending(path, frame, huge):
    where = ["--tx-ip=198.18.0.1,198.18.0.2", "--tx-udp=49152,4791", f"--txpkts={frame}"]
    return background([*pmd("tx", SEND_CPU, memif("client", path), huge), "--forward-mode=txonly", *where])


@contextlib.contextmanager
def sender_later(path, start):
    """Starts the sender in a thread once the receiver listens, because the receiver runs in the foreground."""
    stop, failed = threading.Event(), []

    def run():
        try:
            while not Path(path).exists() and not stop.wait(0.05):
                pass
            time.sleep(0.2)
            with start():
                stop.wait()
        except Failed as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# --- commands ----------------------------------------------------------------------------------------


def ours(cpu, role, device, seconds, size, pool):
    return ["taskset", "-c", str(cpu), str(EXAMPLE), role, device, f"{seconds:g}", str(size), str(pool)]


def pmd(name, cpu, device, huge):
    pages = ["--in-memory", "-m", "256"] if huge else ["--no-huge", "--no-shconf", "-m", "512"]
    return [
        *("dpdk-testpmd", *pages, "--no-pci", "--no-telemetry", f"--file-prefix=shotline-bench-{name}"),
        *(f"--lcores=0@(0,1),1@{cpu}", "--vdev", device, "--"),
        # With a period it runs until it gets a signal, not until the end of its standard input.
        *(f"--mbuf-size={BUFFER_BYTES + 128}", "--total-num-mbufs=4096", "--stats-period=1"),
    ]


def memif(role, path):
    return f"net_memif_{role},role={role},id=0,socket={path},socket-abstract=no,bsize={BUFFER_BYTES}"


@contextlib.contextmanager
def socket():
    with tempfile.TemporaryDirectory() as folder:
        yield f"{folder}/memif.sock"


@contextlib.contextmanager
def huge_pages():
    """Reserves huge pages during the block if possible; yields `True` if there are enough."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    before = setting.read_text()
    try:
        with contextlib.suppress(OSError):
            setting.write_text(str(max(HUGE_PAGES, int(before))))
        yield int(setting.read_text()) >= HUGE_PAGES
    finally:
        with contextlib.suppress(OSError):
            setting.write_text(before)


if __name__ == "__main__":
    main()
