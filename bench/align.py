"""Measures the events per second that the aligner joins from four sources on one core (`make bench-align`).

No peer does the same work, so the figures are compared with the target. The slowest of four cases counts: by number and
by stamp, each with everything in order and with 1 % lost and 1 % out of order.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from common import HERE, TIME_LIMIT, json_of, ratio, say

TARGET = 1.0  # million events per second


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case, of which the median counts")
    parser.add_argument("--events", type=int, default=4_000_000, help="events of a run")
    args = parser.parse_args()

    rates = []
    for by in ("number", "stamp"):
        for how in ("clean", "faulty"):
            reports = sorted((run(by, how, args.events) for _ in range(args.runs)), key=rate)
            report = reports[len(reports) // 2]
            rates.append(rate(report))
            complete = 100 * report["complete"] / report["events"]
            say(f"  by {by}, {how}: {rates[-1]:.2f} Mevent/s, {complete:.2f} % complete, {report['late']} items late")
            if how == "clean" and report["complete"] < 0.999 * args.events:
                sys.exit(f"by {by}: only {report['complete']} of {args.events} events are complete")
    ratio("align/million", min(rates), "bar", TARGET, "Mevent/s")
    sys.exit(0 if min(rates) >= TARGET else 1)


def rate(report):
    return report["events"] / report["seconds"] / 1e6


def run(by, how, events):
    command = [example(), by, how, str(events)]
    return json_of(subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT).stdout)


def example():
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")
    path = Path(target) / "release" / "examples" / "align_throughput"
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline-acquire --example align_throughput")
    return str(path)


if __name__ == "__main__":
    main()
