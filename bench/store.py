"""Compares writing to a drive with its alternatives (`make bench-store`).

Four comparisons, each the median of several rounds with the contenders interleaved:

- 64 MiB blocks (rows of four links, 16 MiB each) and shots of one link (288 kB of samples in slots of 290,816
  bytes), each compared with fio's best of several block sizes and depths: O_DIRECT, io_uring, registered buffers and
  files. Every file is new and preallocated. h5py (contiguous, and direct chunks), zarr-python and numpy.tofile
  write the same shots, each followed by an fsync; ours ends with one, too.
- CPU time: user and system seconds of the whole process per GB of shots, fio's over ours.
- Warm memory: an existing file on tmpfs is overwritten, by h5py into its contiguous dataset and its chunks, by ours
  with --recycle.
- Compression and unpacking: bench/compress.py and bench/unpack.py, run from here with --all.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy
import zarr

from common import HERE, MIB, Failed, foreground, json_of, ratio, say

POOL = 256 * MIB
SHOT_SAMPLES, BLOCK_SAMPLES = 2000, 116_507  # a slot of 290,816 bytes; of 16 MiB
SLOT, LINKS = 290_816, 4
DEPTHS = {"shot": (8, 16, 32), "64MiB": (1, 2, 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=HERE.parent / "target", help="a folder on the drive to measure")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a folder on tmpfs")
    parser.add_argument("--gib", type=float, default=4, help="bytes written by one run, in GiB")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each contender")
    parser.add_argument("--all", action="store_true", help="also run compress.py and unpack.py")
    args = parser.parse_args()

    args.dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=args.dir) as folder:
        drive(Path(folder), args)
    with tempfile.TemporaryDirectory(prefix="shotline-bench-", dir=args.memory) as folder:
        memory(Path(folder), args)
    for other in ("compress.py", "unpack.py") if args.all else ():
        subprocess.run([sys.executable, HERE / other], check=True)


# --- the drive ---------------------------------------------------------------------------------------


def drive(folder, args):
    best = {kind: best_fio(folder, kind, args.gib) for kind in DEPTHS}
    blocks = {
        "ours": lambda: ours(folder, args.gib, BLOCK_SAMPLES, LINKS, 16),
        "fio": lambda: fio(folder, args.gib, *best["64MiB"]),
    }
    shots = {
        "ours": lambda: ours(folder, args.gib, SHOT_SAMPLES, 1, 16),
        "fio": lambda: fio(folder, args.gib, *best["shot"]),
    }
    others = {
        "h5py contiguous": h5py_contiguous,
        "h5py direct chunk": h5py_direct_chunk,
        "zarr-python": zarr_python,
        "numpy.tofile": numpy_tofile,
    }
    shots |= {name: lambda write=write: peer(folder, args.gib, write) for name, write in others.items()}
    say("\n64 MiB blocks")
    block_rates = rounds(blocks, args.rounds)
    say("\nshots of 290,816 bytes")
    shot_rates = rounds(shots, args.rounds)

    say("")
    rate, cpu = 0, 1
    ratio("store-64MiB/fio", block_rates["ours"][rate], "fio", block_rates["fio"][rate], "GB/s")
    ratio("store-shot/fio", shot_rates["ours"][rate], "fio", shot_rates["fio"][rate], "GB/s")
    for name in others:
        ratio(f"store-shot/{name.replace(' ', '-')}", shot_rates["ours"][rate], name, shot_rates[name][rate], "GB/s")
    # GB per second, so that more is better: the ratio is fio's seconds over ours.
    ratio("store-cpu/fio", 1 / shot_rates["ours"][cpu], "fio", 1 / shot_rates["fio"][cpu], "GB per CPU second")


def best_fio(folder, kind, gib):
    """Returns fio's fastest block size and depth, of the shot's or block's own size and generally fast ones."""
    own = SLOT if kind == "shot" else 64 * MIB
    tries = [(own, depth) for depth in DEPTHS[kind]] + [(MIB, 8), (MIB, 16)]
    rates = {choice: statistics.median(fio(folder, gib / 2, *choice)[0] for _ in range(2)) for choice in tries}
    best = max(rates, key=rates.get)
    say(f"fio's best for {kind}: blocks of {best[0]} bytes, {best[1]} in flight ({rates[best]:.2f} GB/s)")
    return best


def fio(folder, gib, block, depth):
    """Returns the rate, and CPU seconds per GB."""
    file = folder / "fio"
    with fresh(file):
        size = int(gib * 1024 * MIB) // block * block
        before = children()
        text = foreground(
            [
                *("fio", "--name=peer", f"--filename={file}", f"--size={size}", "--rw=write", f"--bs={block}"),
                *("--ioengine=io_uring", f"--iodepth={depth}", "--direct=1", "--fixedbufs=1", "--registerfiles=1"),
                *("--fallocate=native", "--end_fsync=1", "--thread", "--output-format=json"),
            ]
        )
        total = children() - before
    job = json.loads(text[text.index("{") :])["jobs"][0]
    seconds = job["write"]["runtime"] / 1000
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds
    if cpu > total:
        raise Failed(f"fio reports {cpu:.3f} s of CPU time, the kernel {total:.3f} s")
    return job["write"]["bw_bytes"] / 1e9, cpu / (size / 1e9)


def ours(folder, gib, samples, links, depth, file=None, recycle=False):
    path = file or folder / "ours.h5"
    with contextlib.nullcontext() if file else fresh(path):
        words = ["write", path, gib, samples, links, depth, *(["recycle"] if recycle else [])]
        report = json_of(foreground([example(), *map(str, words)]))
    if report["lost"]:
        raise Failed(f"{report['lost']} shots lost")
    gigabytes = report["bytes"] / 1e9
    return gigabytes / report["seconds"], report["cpu_s"] / gigabytes


def example():
    path = HERE.parent / "target" / "release" / "examples" / "store_bench"
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline-store --example store_bench")
    return str(path)


# --- peers in Python ---------------------------------------------------------------------------------


def pool():
    """Returns random shots of a pool as large as ours, so that memory is equally cold."""
    return numpy.random.default_rng(1).integers(0, 256, (POOL // SLOT, SLOT), numpy.uint8)


SHOTS = pool()


def peer(folder, gib, write):
    path = folder / "peer"
    shots = int(gib * 1024 * MIB) // SLOT
    with fresh(path):
        cpu, start = own_cpu(), time.monotonic()
        write(path, shots)
        os.sync()
        elapsed, cpu = time.monotonic() - start, own_cpu() - cpu
    gigabytes = shots * SLOT / 1e9
    return gigabytes / elapsed, cpu / gigabytes


def h5py_contiguous(path, shots):
    with h5py.File(path, "w") as file:
        data = file.create_dataset("shots", (shots, SLOT), "u1")
        for shot in range(shots):
            data.write_direct(SHOTS, numpy.s_[shot % len(SHOTS)], numpy.s_[shot])


def h5py_direct_chunk(path, shots):
    with h5py.File(path, "w") as file:
        data = file.create_dataset("shots", (shots, SLOT), "u1", chunks=(1, SLOT))
        for shot in range(shots):
            data.id.write_direct_chunk((shot, 0), SHOTS[shot % len(SHOTS)])


def zarr_python(path, shots):
    data = zarr.create_array(path, shape=(shots, SLOT), chunks=(16, SLOT), dtype="u1", compressors=None)
    for shot in range(0, shots - 15, 16):
        at = shot % (len(SHOTS) - 16)
        data[shot : shot + 16] = SHOTS[at : at + 16]


def numpy_tofile(path, shots):
    with open(path, "wb", buffering=0) as file:
        for shot in range(shots):
            SHOTS[shot % len(SHOTS)].tofile(file)


# --- memory ------------------------------------------------------------------------------------------


def memory(folder, args):
    """Compares overwriting files on tmpfs. Each is written once before the measurement, so all pages are resident."""
    say("\nwarm files on tmpfs")
    gib = min(args.gib, 2)
    shots = int(gib * 1024 * MIB) // SLOT
    ours_file, contiguous, chunked = (folder / name for name in ("ours.h5", "contiguous.h5", "chunked.h5"))
    ours(folder, gib, SHOT_SAMPLES, 1, 16, ours_file)
    h5py_contiguous(contiguous, shots)
    h5py_direct_chunk(chunked, shots)

    def rewrite(path, put):
        with h5py.File(path, "r+") as file:
            data = file["shots"]
            cpu, start = own_cpu(), time.monotonic()
            for shot in range(shots):
                put(data, shot)
            file.flush()
            elapsed, cpu = time.monotonic() - start, own_cpu() - cpu
        gigabytes = shots * SLOT / 1e9
        return gigabytes / elapsed, cpu / gigabytes

    def contiguous_put(data, shot):
        data.write_direct(SHOTS, numpy.s_[shot % len(SHOTS)], numpy.s_[shot])

    def chunk_put(data, shot):
        data.id.write_direct_chunk((shot, 0), SHOTS[shot % len(SHOTS)])

    rates = rounds(
        {
            "ours": lambda: ours(folder, gib, SHOT_SAMPLES, 1, 16, ours_file, recycle=True),
            "h5py contiguous": lambda: rewrite(contiguous, contiguous_put),
            "h5py direct chunk": lambda: rewrite(chunked, chunk_put),
        },
        args.rounds,
    )
    best = max(("h5py contiguous", "h5py direct chunk"), key=lambda name: rates[name][0])
    say("")
    ratio("store-tmpfs/h5py", rates["ours"][0], best, rates[best][0], "GB/s")


# --- helpers -----------------------------------------------------------------------------------------


def rounds(contenders, count):
    """Returns the medians of rate and CPU seconds per GB, with the contenders interleaved."""
    found = {name: [] for name in contenders}
    for _ in range(count):
        for name, run in contenders.items():
            found[name].append(run())
    for name, runs in found.items():
        rates, cpu = sorted(run[0] for run in runs), statistics.median(run[1] for run in runs)
        middle = statistics.median(rates)
        say(f"  {name:18} {middle:6.2f} GB/s ({rates[0]:.2f} to {rates[-1]:.2f}), {cpu:.3f} CPU s for each GB")
    return {
        name: tuple(statistics.median(run[part] for run in runs) for part in (0, 1)) for name, runs in found.items()
    }


@contextlib.contextmanager
def fresh(path):
    """Removes a path before and after the block, and flushes the drive before it."""
    remove(path)
    os.sync()
    try:
        yield
    finally:
        remove(path)


def remove(path):
    if path.is_dir():
        for part in sorted(path.rglob("*"), reverse=True):
            part.rmdir() if part.is_dir() else part.unlink()
        path.rmdir()
    path.unlink(missing_ok=True)


def own_cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(str(failure))
