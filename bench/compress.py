"""Compares compression while recording with h5py and hdf5plugin (`make bench-compress`).

Both write the same shots in the same chunks to the same tmpfs. `ours` is the recorder, fed from memory, with two
compressor threads; `theirs` is two processes, each of which writes half of the shots through `hdf5plugin.Bitshuffle` with
the same codec at the same level. GB/s are bytes of the samples as h5py reads them (16 bits for 12-bit samples, too), from
the first shot until the file is closed. The files are read back with h5py and compared. The result is the lowest ratio
over all data sets.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import hdf5plugin
import numpy

from common import HERE, MIB, Failed, foreground, json_of, ratio, say

SHARED = HERE.parent.parent / "shared" / "data"
PROCESSES = 2
INT16, PACKED12, BYTES = range(3)


@dataclass
class Data:
    """A data set; `shots` has the shape (shot, sample, channel)."""

    name: str
    shots: numpy.ndarray
    packing: int


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm"), help="a folder on a tmpfs with enough space")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender")
    parser.add_argument("--mib", type=int, default=384, help="samples of one run, in MiB")
    parser.add_argument("--level", type=int, default=1, help="level of zstd, for both")
    parser.add_argument("--data", help="only these data sets, such as rf12,iq")
    parser.add_argument("--peer", nargs=6, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(*args.peer)

    lowest = {}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=args.dir) as folder:
        folder = Path(folder)
        for data in every_data():
            if args.data and data.name not in args.data.split(","):
                continue
            shape = " x ".join(map(str, data.shots.shape[1:]))
            say(f"{data.name}: chunks of {shape} {data.shots.dtype}, {data.shots[0].nbytes // 1024} KiB")
            data.shots.tofile(folder / "samples")
            for codec in ("lz4", "zstd"):
                rates = measure(folder, data, codec, args)
                if codec not in lowest or rates[0] / rates[1] < lowest[codec][0] / lowest[codec][1]:
                    lowest[codec] = rates
    say("")
    for codec, (ours, theirs) in lowest.items():
        ratio(f"compress-{codec}/hdf5plugin", ours, "hdf5plugin", theirs, "GB/s")
    return 0


def measure(folder, data, codec, args):
    """Runs both alternately; returns the medians of their GB/s."""
    count = max(2, args.mib * MIB // data.shots[0].nbytes) // PROCESSES * PROCESSES
    rates = {"ours": [], "hdf5plugin": []}
    for run in range(args.runs):
        for name, contender in (("ours", ours), ("hdf5plugin", theirs)):
            seconds, stored, files = contender(folder, data, codec, args.level, count)
            rates[name].append(count * data.shots[0].nbytes / seconds / 1e9)
            if run == 0:
                check(files, data, count)
                say(f"  {codec:4} {name:10} ratio {count * data.shots[0].nbytes / stored:.3f}")
            for file in files:
                file.unlink()
    median = {name: statistics.median(values) for name, values in rates.items()}
    say(f"  {codec:4} " + ", ".join(f"{name} {rate:.2f} GB/s" for name, rate in median.items()))
    ratio(f"compress-{codec}-{data.name}/hdf5plugin", median["ours"], "hdf5plugin", median["hdf5plugin"], "GB/s")
    return median["ours"], median["hdf5plugin"]


# --- the contenders ------------------------------------------------------------------------------------


def ours(folder, data, codec, level, count):
    target = os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")
    program = Path(target) / "release" / "examples" / "compress_throughput"
    if not program.exists():
        sys.exit(f"{program} is missing: cargo build --release --package shotline-store --examples")
    file = folder / "ours.h5"
    _, samples, channels = data.shots.shape
    words = [program, folder / "samples", file, channels, samples, data.packing, codec, level, PROCESSES, count]
    result = json_of(foreground([str(word) for word in words]))
    if result["chunks"]["uncompressed"]:
        raise Failed(f"{result['chunks']['uncompressed']} shots of {count} were stored uncompressed")
    return result["seconds"], result["chunks"]["bytes_stored"], [file]


def theirs(folder, data, codec, level, count):
    """Runs two processes, which start together."""
    files = [folder / f"theirs{part}.h5" for part in range(PROCESSES)]
    shape = "x".join(map(str, data.shots.shape))
    each = [str(word) for word in (folder / "samples", shape, data.shots.dtype.str, codec, level, count // PROCESSES)]
    peers = [
        subprocess.Popen(
            [sys.executable, __file__, "--peer", *each[:5], f"{each[5]}:{part}:{file}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part, file in enumerate(files)
    ]
    try:
        for process in peers:
            process.stdout.readline()  # its samples are loaded
        for process in peers:
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json_of(process.communicate(timeout=600)[0]) for process in peers]
    finally:
        for process in peers:
            process.kill()
            process.wait()
    seconds = max(result["end"] for result in results) - min(result["begin"] for result in results)
    return seconds, sum(result["stored"] for result in results), files


def peer(samples, shape, dtype, codec, level, rest):
    """Runs as one of the two processes."""
    count, part, file = rest.split(":", 2)
    count, part = int(count), int(part)
    shots = numpy.fromfile(samples, dtype).reshape([int(extent) for extent in shape.split("x")])
    options = {"clevel": int(level)} if codec == "zstd" else {}
    filters = hdf5plugin.Bitshuffle(cname=codec, **options)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    with h5py.File(file, "w") as h5:
        size = (count, *shots.shape[1:])
        rf = h5.create_dataset("rf", size, shots.dtype, chunks=(1, *size[1:]), compression=filters)
        for row in range(count):
            rf[row] = shots[(part * count + row) % len(shots)]
        h5.flush()
        stored = rf.id.get_storage_size()
    end = time.monotonic()
    print(json.dumps({"begin": begin, "end": end, "stored": stored}))
    return 0


def check(files, data, count):
    """Compares some rows of the files with the shots."""
    row = 0
    for file in files:
        with h5py.File(file) as h5:
            rf = h5["rf"]
            for at in (0, len(rf) // 2, len(rf) - 1):
                found = rf[at].reshape(data.shots.shape[1:])
                if not numpy.array_equal(found, data.shots[(row + at) % len(data.shots)]):
                    raise Failed(f"{file.name}: row {at} differs from the shot written")
            row += len(rf)
    if row != count:
        raise Failed(f"expected {count} shots in the files, found {row}")


# --- the data ------------------------------------------------------------------------------------------


def every_data():
    rf = ultrasound()
    # The upper 12 of its 15 bits, as from a 12-bit converter.
    yield Data("rf12", (rf >> 3).clip(-2048, 2047), PACKED12)
    yield Data("rf16", rf, INT16)
    yield Data("iq", tones(), INT16)
    capture = SHARED / "iq" / "dump1090_modes1_cu8_2MSps_1090MHz.bin"
    if capture.exists():
        samples = numpy.fromfile(capture, numpy.uint8)
        shots = numpy.concatenate([numpy.roll(samples, 2 * turn * 1000) for turn in range(8)])
        pairs = 1 << 18
        shots = shots[: len(shots) // (2 * pairs) * 2 * pairs]
        yield Data("iq8", shots.reshape(-1, pairs, 2), BYTES)
    else:
        say(f"skipped iq8: {capture} is missing")


def ultrasound():
    """Returns (64, 2000, 96) int16: real RF of a muscle if the file exists, else synthetic echoes."""
    source = SHARED / "ultrasound" / "muscle_rf_real_192ch.hdf5"
    if not source.exists():
        say(f"{source} is missing: RF is synthetic")
        return echoes()
    with h5py.File(source) as h5:
        frames = [h5[f"data/rf_data/frame_{frame}/shot_1"][...] for frame in (1, 2)]
    every = numpy.concatenate(frames, axis=1).astype(numpy.int16)  # 192 channels, 2816 samples
    halves = [numpy.ascontiguousarray(half.T) for half in (every[:96], every[96:])]
    starts = [(37 * shot) % (halves[0].shape[0] - 2000) for shot in range(64)]
    return numpy.stack([halves[shot % 2][start : start + 2000] for shot, start in enumerate(starts)])


def echoes():
    """Returns (64, 2000, 96) int16: scatterers' echoes that decay with depth, and noise."""
    random = numpy.random.default_rng(1)
    pulse = numpy.sin(numpy.arange(24) * 2 * numpy.pi / 8) * numpy.hanning(24)
    decay = 4000 * numpy.exp(-numpy.arange(2000) / 400)[:, None]
    shots = []
    for _ in range(64):
        scatterers = random.normal(size=(2000, 96))
        rf = numpy.apply_along_axis(numpy.convolve, 0, scatterers, pulse, "same") * decay
        shots.append((rf + random.normal(scale=8, size=rf.shape)).clip(-16384, 16383))
    return numpy.array(shots).astype(numpy.int16)


def tones():
    """Returns (64, 65536, 2) int16: three tones and noise of a receiver with 16-bit samples, 256 KiB per chunk."""
    random = numpy.random.default_rng(2)
    time_axis = numpy.arange(64 * 65536)
    signal = sum(a * numpy.exp(2j * numpy.pi * f * time_axis) for a, f in ((900, 0.0371), (250, 0.1213), (60, -0.2017)))
    signal += random.normal(scale=20, size=len(signal)) + 1j * random.normal(scale=20, size=len(signal))
    iq = numpy.stack([signal.real, signal.imag], axis=-1)
    return iq.round().astype(numpy.int16).reshape(64, 65536, 2)


if __name__ == "__main__":
    sys.exit(main())
