"""Compares recording a probe to disk with its limits, receive rate and fio, and with h5py (`make bench-record`).

The recorder's limit is the lower of two rates. One is Shotline's own receive rate with shots discarded. The other is
fio's O_DIRECT io_uring rate into a new preallocated file while the bare socket loop runs, because a recorder has to
receive while it writes. That loop is paced at the rate which a perfect recorder would sustain, the lower of the receive
rate and fio alone: without pacing it would use more CPU time and memory bandwidth than any recording, and lower the limit
too much. h5py writes the same shots.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy

from common import (
    HERE,
    MIB,
    POOL_MIB,
    Contender,
    Failed,
    Run,
    build_socket_loop,
    foreground,
    interleave,
    ratio,
    run_shotline,
    say,
    shot_bytes,
    slot_bytes,
    socket_loop,
    wide_socket_buffers,
)

SAMPLES = 4000
CALIBRATIONS = 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=HERE.parent / "target", help="a folder on the disk to measure")
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each contender")
    parser.add_argument("--mib", type=int, default=4096, help="bytes written by one run, in MiB")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone")
    args = parser.parse_args()

    args.dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(args.dir).free // MIB
    if free < 2 * args.mib:
        sys.exit(f"{args.dir} has {free} MiB free; twice --mib ({2 * args.mib}) is needed: use --dir or a lower --mib")

    with tempfile.TemporaryDirectory(prefix="bench-", dir=args.dir) as folder, wide_socket_buffers():
        complete = measure(Path(folder), args)
    sys.exit(0 if complete else 1)


def measure(folder, args):
    loop = build_socket_loop(folder)
    file = folder / "shots.h5"
    alone = max(fio(file, args.mib) for _ in range(CALIBRATIONS))
    receive = None if args.peers_only else run_shotline(SAMPLES, 3, None)[0].gbps
    pace = min(alone, receive or alone)
    say(
        f"fio alone {alone:.2f} Gbit/s, receive rate {receive or 0:.2f}: the loop next to fio runs at {pace:.2f} Gbit/s"
    )

    seconds = args.mib * MIB * 8e-9 / pace
    contenders = {
        "fio": Contender("fio", lambda _: fio_with_loop(file, args.mib, loop, pace, seconds), args.runs, paced=False),
        "h5py": Contender("h5py", lambda _: h5py_run(file, args.mib), args.runs, paced=False),
    }
    if not args.peers_only:
        contenders["receive"] = Contender("receive", lambda p: run_shotline(SAMPLES, seconds, p)[0], args.runs)
        contenders["record"] = Contender("record", lambda p: record(file, seconds, p), args.runs, pace=pace)
    complete = interleave(list(contenders.values()))

    rate = {name: c.median().gbps for name, c in contenders.items() if c.median()}
    say("")
    for name, gbps in rate.items():
        say(f"{name:8} {gbps:6.2f} Gbit/s ({gbps / 8:.2f} GB/s)")
    say("")
    if {"record", "receive", "fio"} <= rate.keys():
        ratio("record/limit", rate["record"], "limit", min(rate["receive"], rate["fio"]), "Gbit/s")
    if {"record", "h5py"} <= rate.keys():
        ratio("record/h5py", rate["record"], "h5py", rate["h5py"], "Gbit/s")
    return complete


def record(file, seconds, pace):
    """Records to the file; the rate is of bytes in the file, until the end of the last fsync."""
    with fresh(file):
        run, report = run_shotline(SAMPLES, seconds, pace, out=file)
        run.gbps = report["write_gbps"]
        return run


def fio(file, mib):
    with fresh(file):
        text = foreground(
            [
                *("fio", "--name=limit", f"--filename={file}", f"--size={mib}M", "--rw=write", "--bs=1M"),
                *("--ioengine=io_uring", "--iodepth=8", "--direct=1", "--fixedbufs=1", "--fallocate=native"),
                *("--end_fsync=1", "--output-format=json"),
            ]
        )
    return json.loads(text[text.index("{") :])["jobs"][0]["write"]["bw_bytes"] * 8e-9


def fio_with_loop(file, mib, loop, pace, seconds):
    with socket_loop(loop, 1.5 * seconds + 0.5, pace) as figures:
        rate = fio(file, mib)
        figures()  # the loop only generates load; its lost packets do not matter for fio
    return Run(gbps=rate, packets=0, lost=0, seconds=0)


def h5py_run(file, mib):
    """Writes the same shots from a pool of the same size as direct chunks, one per shot."""
    size = shot_bytes(SAMPLES)
    pool = numpy.full((POOL_MIB * MIB // slot_bytes(SAMPLES), size), 7, numpy.uint8)
    shots = mib * MIB // size
    with fresh(file):
        start = time.monotonic()
        with h5py.File(file, "w") as h5:
            data = h5.create_dataset("shots", (shots, size), "u1", chunks=(1, size))
            for shot in range(shots):
                data.id.write_direct_chunk((shot, 0), pool[shot % len(pool)])
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        elapsed = time.monotonic() - start
    return Run(gbps=shots * size * 8e-9 / elapsed, packets=0, lost=0, seconds=elapsed)


@contextlib.contextmanager
def fresh(file):
    """Removes the file before and after the block, and flushes the disk before it."""
    file.unlink(missing_ok=True)
    os.sync()
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
