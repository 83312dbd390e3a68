"""Compares the five-point stencil with STREAM's triad and with other codes (`make bench-stencil`), on all processors.

All work on the same matrix, which no cache holds, with the same weights and fixed borders, in huge pages if there are any.
Contenders run in turn, each in a process of its own; the fastest pass of each turn counts, and the median of the turns.
Rates are bytes per second, 10^9 to the GB: a step reads and writes each value once, and the triad reads two arrays and
writes one with streaming stores. With eight steps the bytes of all steps count, though memory is accessed less often: that
is what temporal blocking gains. Sums of some values must be those of Shotline.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import Failed, ratio, say

HERE = Path(__file__).resolve().parent / "stencil"
ROOT = HERE.parent.parent
TILES = ((32, 2048), (64, 1024), (64, 2048), (128, 1024))
BYTES = {"f32": 4, "f64": 8}
TOLERANCE = 1e-4  # relative difference of the sums: the peers may add in another order


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="turns of all contenders, of which the median counts")
    parser.add_argument("--passes", type=int, default=3, help="passes in a turn, of which the fastest counts")
    parser.add_argument("--size", type=int, default=16384, help="rows and columns of the float32 matrix")
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        peers = {values: build(folder, values) for values in BYTES}
        for values, program in peers.items():
            # The same number of bytes for both types.
            shape = (args.size, args.size * 4 // BYTES[values])
            compare(values, shape, args, program, threads)


def build(folder, values):
    """Compiles the peers for a type of values."""
    program = f"{folder}/peers-{values}"
    real = "double" if values == "f64" else "float"
    flags = ["-O3", "-march=native", "-fopenmp", f"-DREAL={real}"]
    subprocess.run(["gcc", *flags, HERE / "peers.c", "-o", program], check=True)
    return program


def compare(values, shape, args, peers, threads):
    ours = ROOT / "target" / "release" / "examples" / "stencil_rate"

    def own(steps):
        return [ours, *shape, steps, threads, values, args.passes]

    def peer(kind, steps, *tile):
        return [peers, kind, *shape, steps, args.passes, *tile]

    numba = [sys.executable, HERE / "numba_peer.py", *shape, 8, values, args.passes]
    contenders = {
        "stream": (peer("triad", 1), 3),
        "copy": (peer("copy", 1), 2),
        "step": (own(1), 2),
        "eight": (own(8), 16),
        "gcc-openmp": (peer("plain", 8), 16),
        "numba": (numba, 16),
    } | {f"tiled {rows}x{columns}": (peer("tiled", 8, rows, columns), 16) for rows, columns in TILES}
    say(f"{shape[0]} x {shape[1]} {values}, {threads} threads")
    found = {name: [] for name in contenders}
    for _ in range(args.turns):  # in turn, so that disturbances affect all
        sums = {}
        for name, (command, transfers) in contenders.items():
            sums[name], seconds = run(command)
            found[name].append(transfers * BYTES[values] * shape[0] * shape[1] / seconds / 1e9)
        same = {name: total for name, total in sums.items() if name not in ("stream", "copy", "step")}
        for name, total in same.items():
            if abs(total - sums["eight"]) > TOLERANCE * abs(total):
                raise Failed(f"{name} computed another result: expected about {sums['eight']}, found {total}")
    rates = {name: statistics.median(rates) for name, rates in found.items()}
    best = max((name for name in rates if name.startswith("tiled")), key=rates.get)
    say(f"  streaming copy: {rates['copy']:.2f} GB/s; fastest of the tiled loops: {best}")
    suffix = "" if values == "f32" else "-f64"
    ratio(f"stencil-step{suffix}/stream", rates["step"], "stream", rates["stream"], "GB/s")
    ratio(f"stencil-blocked{suffix}/stream", rates["eight"], "stream", rates["stream"], "GB/s")
    for name, key in (("gcc-openmp", "gcc-openmp"), ("numba", "numba"), ("tiled", best)):
        ratio(f"stencil-8{suffix}/{name}", rates["eight"], name, rates[key], "GB/s")


def run(command):
    """Runs a contender and returns its sum and the seconds of its fastest pass."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{command[0]}: {done.stderr.strip()}")
    _, total, *seconds = done.stdout.split()
    return float(total), min(map(float, seconds))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"stencil: {error}")
