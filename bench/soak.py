"""Receives for minutes at half the loss-free rate and samples the receiver's resident memory.

The memory must not grow after the pool is allocated, and nothing may be dropped; otherwise the exit status is 1.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import (
    MIB,
    POOL_MIB,
    PROBE_PORT,
    background,
    run_shotline,
    say,
    shotline_probe,
    shotline_record,
    wait_for_port,
    wide_socket_buffers,
)

SAMPLES = 4000
SETTLED_S = 10  # by then all pages are resident
ALLOWED_GROWTH = 4 * MIB  # allocator's slack; a leak of one shot's metadata per second would be far more


def resident(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(seconds, pace):
    with background(shotline_probe(SAMPLES)) as probe:
        wait_for_port("udp6", PROBE_PORT, probe)
        command = shotline_record(SAMPLES, seconds, pace)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
            begun = time.monotonic()
            sizes = []
            while receiver.poll() is None and time.monotonic() - begun < seconds + 60:
                time.sleep(min(5, seconds / 10))
                if receiver.poll() is None:
                    sizes.append((time.monotonic() - begun, resident(receiver.pid)))
            report = json.loads(receiver.communicate(timeout=60)[0])
        probe.send_signal(signal.SIGINT)
        probe.communicate(timeout=60)
    return report, [size for at, size in sizes if SETTLED_S <= at <= seconds]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    args = parser.parse_args()
    seconds = args.minutes * 60
    with wide_socket_buffers():
        full, _ = run_shotline(SAMPLES, 3, None)
        pace = full.gbps / 2
        say(f"full speed {full.gbps:.1f} Gbit/s; {args.minutes:g} minutes at {pace:.1f} Gbit/s")
        report, sizes = soak(seconds, pace)
    growth = max(sizes) - sizes[0]
    dropped = sum(report["drops"].values()) + report["shots_partial"]
    say(f"received {report['receive_gbps']:.2f} Gbit/s, {report['shots_complete']} shots, {report['packets']} packets")
    say(f"resident memory {sizes[0] / MIB:.1f} MiB (pool {POOL_MIB} MiB), growth {growth / MIB:.2f} MiB")
    say(f"shots dropped or partial: {dropped} {report['drops']}, packets missing: {report['packets_missing']}")
    if growth > ALLOWED_GROWTH or dropped:
        sys.exit("memory grew, or shots were lost")


if __name__ == "__main__":
    main()
