"""Compares Shotline with its build before a change, in pairs of runs (`make bench-before REV=COMMIT`).

Runs Shotline's own contenders of `bench-receive`, `bench-record` and `bench-rdma`. The peers are the same for both
builds, so a ratio here is the factor by which the change affects the ratios of those benchmarks. A pair is one run of each build, one
directly after the other, in alternating order; the ratio is the median over all pairs, because a disturbance that lasts
longer than a pair affects both of its runs. `interval` is the 95 % confidence interval of the median. `best` compares
the best run of each build, because a disturbance can only make a run slower.
"""

import argparse
import math
import os
import sys
import tempfile
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import rdma

from common import HERE, Failed, program, run_shotline, say, wide_socket_buffers

RECEIVED = [(500, "ud"), (1000, "ud"), (2000, "ud"), (4000, "ud"), (4000, "udp")]
RECORDED_SAMPLES = 4000
NEW = "new"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the target folder of the earlier build")
    parser.add_argument("--name", default="before", help="name of the earlier build, such as its commit")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of runs")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a run")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="START", help="figures with this prefix: receive rdma/shm"
    )
    parser.add_argument("--dir", type=Path, default=HERE.parent / "target", help="a folder on the disk to record to")
    args = parser.parse_args()

    targets = {
        NEW: os.environ.get("CARGO_TARGET_DIR", str(HERE.parent / "target")),
        args.name: str(args.before.resolve()),
    }
    with tempfile.TemporaryDirectory(prefix="bench-", dir=args.dir) as folder, wide_socket_buffers():
        figures = [figure for figure in wanted(args, Path(folder)) if figure.name.startswith(tuple(args.only))]
        for figure in figures:
            for number in range(args.pairs):
                figure.pair(targets, number)
            figure.show(args.name)
    sys.exit(0 if all(figure.pairs for figure in figures) else 1)


@dataclass
class Figure:
    """One figure, measured for both builds."""

    name: str
    unit: str
    run: object  # -> the figure of one run
    less_is_better: bool = False
    pairs: list = field(default_factory=list)  # (new, before)

    def pair(self, targets, number):
        """Runs each build once. If a run fails, the pair does not count."""
        order = list(targets) if number % 2 == 0 else list(targets)[::-1]
        values = {}
        try:
            for name in order:
                os.environ["CARGO_TARGET_DIR"] = targets[name]
                program()
                values[name] = self.run()
        except (Failed, OSError) as error:
            say(f"  FAILED {self.name} of {name}: {error}")
            return
        new, before = (values[name] for name in targets)
        self.pairs.append((new, before))

    def show(self, before):
        if not self.pairs:
            say(f"NO RATIO {self.name}: no pair of runs")
            return
        ratios = sorted(old / new if self.less_is_better else new / old for new, old in self.pairs)
        ours, theirs = (median(column) for column in zip(*self.pairs))
        low, high = interval(ratios)
        best_new, best_old = (min(column) if self.less_is_better else max(column) for column in zip(*self.pairs))
        best = best_old / best_new if self.less_is_better else best_new / best_old
        say(
            f"RATIO {self.name} {median(ratios):.3f} (ours {ours:.2f} {self.unit}, {before} {theirs:.2f} {self.unit}) "
            f"interval {low:.3f} to {high:.3f} of {len(ratios)} pairs, best {best:.3f}"
        )


def interval(ordered):
    """Returns the 95 % confidence interval of the median, by the binomial distribution of the ranks."""
    count, below, rank = len(ordered), 0.0, 0
    while below + math.comb(count, rank) / 2**count <= 0.025:
        below += math.comb(count, rank) / 2**count
        rank += 1
    outer = max(rank - 1, 0)
    return ordered[outer], ordered[-1 - outer]


def wanted(args, folder):
    for samples, framing in RECEIVED:
        yield Figure(f"receive/{framing}-{samples}", "Gbit/s", received(samples, framing, args.seconds))
    yield Figure("record", "Gbit/s", recorded(folder / "shots.h5", args.seconds))
    seen = set()
    for ratio in rdma.wanted_ratios(Namespace(seconds=args.seconds)):
        for contender in (ratio.ours, *ratio.peers):
            if contender.name.startswith(rdma.OURS) and contender.name not in seen:
                seen.add(contender.name)
                name = "rdma/" + contender.name.removeprefix(rdma.OURS).replace(" ", "-")
                less_is_better = contender.unit != "Gbit/s"
                yield Figure(name, contender.unit, contender.run, less_is_better)


def received(samples, framing, seconds):
    """Returns a function that measures the receive rate at full speed, at which shots may be lost."""
    return lambda: run_shotline(samples, seconds, None, framing)[0].gbps


def recorded(file, seconds):
    def run():
        file.unlink(missing_ok=True)
        os.sync()
        report = run_shotline(RECORDED_SAMPLES, seconds, None, out=file)[1]
        file.unlink(missing_ok=True)
        return report["write_gbps"]

    return run


if __name__ == "__main__":
    main()
