"""Compares one-sided operations over emulated paths with the rates of the paths (part of `make bench-stencil`).

`shotline perf --transport shm --memory emulated:PATH` writes and reads the memory of a target of its own. The limit is the
path's rate, which Cilardo et al. measured (Sensors 2021, 21, 7759); a path cannot be faster than this processor copies, so
the same operations on memory without a path, and a bare memmove of the same messages, are measured in each turn. The median
of the turns counts. The table has the rates by message size, as figures 3, 4 and 6 of the paper do.
"""

import argparse
import ctypes
import mmap
import statistics
import sys
import time

from common import MIB, Failed, foreground, json_of, program, ratio, say

# GB/s to and from the accelerator, of 10^9 bytes: the presets in crates/memory/src/region/emulated/model.rs.
PATHS = {
    "path1": {"write": 12.5, "read": 12.5},
    "path2": {"write": 4.8, "read": 1.2},
    "path3": {"write": 10.0, "read": 8.9},
    "path3-250mhz": {"write": 7.6, "read": 7.1},
}
SIZES = (4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB)
GROUP, DEPTH = 4, 2  # of messages of 1 MiB
IN_FLIGHT = GROUP * DEPTH * MIB
MAX_DEPTH = 64  # of shorter messages, each a group of its own


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="turns of all paths, of which the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one measurement")
    args = parser.parse_args()
    rates(args)
    sizes(args)


def rates(args):
    """Prints the ratio of each path and direction for messages of 1 MiB in groups."""
    cases = [(verb, path) for path in (None, *PATHS) for verb in ("write", "read")]
    found = {case: [] for case in cases}
    bare = []
    for _ in range(args.turns):  # in turn, so that disturbances affect all
        bare.append(memmove(args.seconds))
        for verb, path in cases:
            found[verb, path].append(measure(verb, path, MIB, GROUP, DEPTH, args.seconds))
    say(f"messages of 1 MiB, {GROUP} per group, {DEPTH} groups in flight; memmove of as much: {median(bare):.2f} GB/s")
    for path, limits in PATHS.items():
        for verb, limit in limits.items():
            ours, copy = median(found[verb, path]), median(found[verb, None])
            ratio(f"accel-path-{verb}-{path}/limit", ours, "limit", limit, "GB/s")
            if copy < limit:
                say(f"  limited by this processor: without a path it copies {copy:.2f} GB/s")


def sizes(args):
    """Prints a table of the rates by message size."""
    columns = [(path, verb) for path in PATHS for verb in ("write", "read")]
    say("GB/s by message size, each message signalled:")
    say(f"{'size':>9}" + "".join(f"{f'{path} {verb}':>20}" for path, verb in columns))
    for size in SIZES:
        depth = max(1, min(MAX_DEPTH, IN_FLIGHT // size))
        row = [
            median(measure(verb, path, size, 1, depth, args.seconds) for _ in range(args.turns))
            for path, verb in columns
        ]
        name = f"{size // MIB} MiB" if size >= MIB else f"{size >> 10} KiB"
        say(f"{name:>9}" + "".join(f"{rate:>20.2f}" for rate in row))


def measure(verb, path, size, group, depth, seconds):
    """Returns the rate in GB/s over a path, or without one."""
    command = [program(), "perf", verb, "--transport", "shm", "--json", "--size", size, "--group", group]
    command += ["--depth", depth, "--seconds", seconds, "--memory", f"emulated:{path}" if path else "memfd"]
    report = json_of(foreground([str(word) for word in command]))
    return report["gbps"]["average"] / 8


def memmove(seconds):
    """Returns the rate in GB/s of bare copies between shared memory of two mappings, a message at a time."""
    first, second = mmap.mmap(-1, IN_FLIGHT), mmap.mmap(-1, IN_FLIGHT)
    source, target = (ctypes.addressof(ctypes.c_char.from_buffer(mapping)) for mapping in (first, second))
    for at in range(0, IN_FLIGHT, mmap.PAGESIZE):
        first[at] = second[at] = 1
    start, copied = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        at = copied % IN_FLIGHT
        ctypes.memmove(target + at, source + at, MIB)
        copied += MIB
    return copied / elapsed / 1e9


def median(values):
    return statistics.median(values)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"accel_path: {error}")
