"""Compares 12-bit unpacking with numpy, and measures opening a run of a million shots (`make bench-unpack`).

Both unpack the same bytes, those of one shot, on one thread of one process, into preallocated memory. For numpy the
fastest of several implementations counts. Rates are those of the output, 16-bit samples.
"""

import argparse
import os
import re
import struct
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np
import shotline

from common import Failed, background, program, ratio, say, wait_for_port

CHANNELS, SAMPLES = 96, 2000
FLOOR_GB_PER_S, FLOOR_RATIO = 10, 10
MILLION, LIMIT_MS = 1_000_000, 100
PORT = 14794


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs of each, of which the median counts")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a run")
    parser.add_argument("--dir", default="target", help="where the run of a million shots is made (4 GiB)")
    args = parser.parse_args()

    os.sched_setaffinity(0, {0})
    packed = np.random.default_rng(1).integers(0, 256, CHANNELS * SAMPLES // 2 * 3, np.uint8)
    out = np.empty(CHANNELS * SAMPLES, np.int16)
    expected = shotline.unpack12(packed)
    ways = {"shotline": lambda: shotline.unpack12(packed, out)} | numpy_ways(packed, out)
    for name, way in ways.items():
        out[:] = 0
        way()
        if not np.array_equal(out, expected):
            raise Failed(f"{name} unpacks different samples")
    rates = {name: [] for name in ways}
    for _ in range(args.runs):  # interleaved, so that disturbances affect all
        for name, way in ways.items():
            rates[name].append(rate(way, out.nbytes, args.seconds))
    medians = {name: sorted(found)[len(found) // 2] for name, found in rates.items()}
    for name, found in medians.items():
        say(f"  {name}: {found:.2f} GB/s")
    ours = medians.pop("shotline")
    best = max(medians, key=medians.get)
    ratio("unpack12/numpy", ours, f"numpy, {best}", medians[best], "GB/s")
    opened = open_million(Path(args.dir), args.runs)
    ratio("open-million/100ms", opened, "limit", LIMIT_MS, "ms")
    sys.exit(0 if ours >= FLOOR_GB_PER_S and ours / medians[best] >= FLOOR_RATIO and opened <= LIMIT_MS else 1)


def rate(way, size, seconds):
    """Returns GB/s of output."""
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for _ in range(4):
            way()
        count += 4
    return count * size / spent / 1e9


def numpy_ways(packed, out):
    """Returns numpy's implementations: whole-array expressions without loops, with minimal allocations."""
    triples, pairs = packed.reshape(-1, 3), out.reshape(-1, 2)
    half = np.empty(len(triples), np.int16)
    words = np.empty((len(triples), 4), np.uint8)
    shifted = np.empty(len(triples), np.int32)
    bytes_of = out.view(np.uint8).reshape(-1, 4)

    def columns():
        """Computes each sample from its two bytes."""
        first, second = pairs[:, 0], pairs[:, 1]
        np.left_shift(triples[:, 0].view(np.int8), 4, out=first, dtype=np.int16)
        np.right_shift(triples[:, 1], 4, out=half, casting="unsafe")
        np.bitwise_or(first, half, out=first)
        np.left_shift(triples[:, 1], 12, out=half, dtype=np.int16, casting="unsafe")
        np.right_shift(half, 4, out=half)
        np.bitwise_or(half, triples[:, 2], out=second)

    def gather():
        """Reorders the bytes, as Shotline's kernel does, then shifts 16-bit numbers."""
        np.take(triples, (1, 0, 2, 1), axis=1, out=bytes_of, mode="clip")
        np.left_shift(pairs[:, 1], 4, out=pairs[:, 1])
        np.right_shift(out, 4, out=out)

    def slices():
        """Reorders the bytes by strided copies."""
        bytes_of[:, 0::3], bytes_of[:, 1] = triples[:, 1, None], triples[:, 0]
        bytes_of[:, 2] = triples[:, 2]
        np.left_shift(pairs[:, 1], 4, out=pairs[:, 1])
        np.right_shift(out, 4, out=out)

    def numbers():
        """Processes each pair as one 32-bit number."""
        words[:, 1:] = triples[:, ::-1]
        number = words.view(np.int32)[:, 0]
        np.right_shift(number, 20, out=shifted)
        pairs[:, 0] = shifted
        np.left_shift(number, 12, out=shifted)
        np.right_shift(shifted, 20, out=shifted)
        pairs[:, 1] = shifted

    first_of, second_of = (np.ndarray(len(triples), ">i2", packed, offset, (3,)) for offset in (0, 1))

    def views():
        """Reads both samples as overlapping big-endian numbers."""
        np.right_shift(first_of, 4, out=pairs[:, 0])
        np.left_shift(second_of, 4, out=half)
        np.right_shift(half, 4, out=pairs[:, 1])

    return {way.__name__: way for way in (columns, gather, slices, numbers, views)}


def open_million(folder, runs):
    """Returns the milliseconds to open a run of a million shots and get their number."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch) / "million.h5"
        make_million(path)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            with shotline.open(path) as run:
                if len(run.shots) != MILLION:
                    raise Failed(f"{len(run.shots)} shots in a run of {MILLION}")
                times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


def make_million(path):
    """Creates a run of a million visible rows.

    It records some of a million small slots, kills the recorder, and sets the markers of docs/file-format.md that make all
    rows visible. Opening it then reads the same data as for a complete run.
    """
    probe = [program(), "emulate", "probe", "--listen", f"[::1]:{PORT}", "--links", "1", "--channels", "1"]
    record = [program(), "record", "--json", "--probe", f"[::1]:{PORT}", "--samples", "4", "--shots", str(MILLION)]
    with background([*probe, "--samples", "4"]) as device:
        wait_for_port("udp6", PORT, device)
        with background([*record, "--rate-hz", "500", "--out", str(path)]) as recorder:
            deadline = time.monotonic() + 60
            while visible(path) < 10:
                if recorder.poll() is not None or time.monotonic() > deadline:
                    raise Failed("the run of a million shots was not created")
                time.sleep(0.1)
    with open(path, "r+b") as file:
        head = file.read(1 << 16)
        for shape in (b"", struct.pack("<QQ", 4, 1)):
            message = bytes([1, 1 + len(shape) // 8, 1]) + bytes(5)
            pattern = re.escape(message) + b"(.{8})" + re.escape(shape + b"\xff" * 8 + shape)
            (mark,) = (found for found in re.finditer(pattern, head, re.DOTALL) if any(found[1]))
            file.seek(mark.start(1))
            file.write(struct.pack("<Q", MILLION))


def visible(path):
    try:
        with h5py.File(path) as file:
            return file["rf"].shape[0]
    except (OSError, KeyError):
        return 0


if __name__ == "__main__":
    main()
