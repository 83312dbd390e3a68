"""Runs the sweeps of docs/sweep.md in about five minutes, and plots their figures (`make bench-sweep`)."""

import argparse
import subprocess
import sys
from pathlib import Path

from common import HERE, RECEIVE_CPU, SEND_CPU, program, say, wide_socket_buffers

ROOT = HERE.parent
MAX_FIGURE_BYTES = 150_000  # because figures are committed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=ROOT / "target" / "sweep", help="a folder on the disk to measure")
    parser.add_argument("--img", type=Path, default=ROOT / "docs" / "img", help="where the figures go")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a run; to disk twice as long")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each point")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)

    points = ["--repeats", args.repeats, "--seconds"]
    with wide_socket_buffers():
        files = [
            sweep(args.dir, "network", *points, args.seconds),
            # A small pool, so that short runs measure the disk and not the pool.
            sweep(args.dir, "disk", "--dir", args.dir, "--pool", "64MiB", *points, 2 * args.seconds),
        ]
        sweep(args.dir, "search", "--discard", "--trials", 40)
    plot = [sys.executable, ROOT / "python" / "shotline_plot.py", *files, "--out", args.img]
    subprocess.run(plot, check=True)
    for figure in args.img.glob("sweep-*.png"):
        if figure.stat().st_size > MAX_FIGURE_BYTES:
            sys.exit(f"{figure} has {figure.stat().st_size} bytes, more than {MAX_FIGURE_BYTES}")


def sweep(folder, name, *arguments):
    file = folder / f"{name}.jsonl"
    cpus = ["--probe-cpu", SEND_CPU, "--cpu", RECEIVE_CPU]
    command = [program(), "sweep", name, "--out", file, "--force", *cpus, *arguments]
    say(f"\nshotline {' '.join(map(str, command[1:]))}")
    subprocess.run(list(map(str, command)), check=True)
    return file


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failure:
        sys.exit(f"{failure.cmd[0]} ended with status {failure.returncode}")
