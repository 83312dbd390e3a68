"""Compares writes of 128 KiB by NVMe passthrough with fio's io_uring_cmd engine (`make bench-passthrough`).

Runs in the QEMU guest, with Linux's own driver and an emulated drive. Times are meaningless there, so instructions
(valgrind's callgrind: those of the program, not the kernel's) and system calls (strace) are counted. Each contender has a
short and a long run; the figure is the difference divided by the additional writes, which excludes start and end. Ours is
the whole recorder, with its rows and commits; fio's is the better of two: with its defaults, and with registered buffers
and files and without reading the clock.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from common import Failed, say

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "guest"))

from machine import Drive, Guest

EXAMPLE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "raw_writes"
VALGRIND = Path("/usr/libexec/valgrind")
TOOL = ["callgrind-amd64-linux", "vgpreload_core-amd64-linux.so", "default.supp"]
WRITE = 128 << 10
LIMIT = 550
DEVICE = "/dev/ng0n1"
FIO = f"fio --name=w --filename={DEVICE} --ioengine=io_uring_cmd --cmd_type=nvme --rw=write --bs={WRITE} --thread"
FIO += " --scramble_buffers=0 --zero_buffers --output=/tmp/fio"
BEST = " --fixedbufs --registerfiles --gtod_reduce=1"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=16, help="writes in flight")
    parser.add_argument("--few", type=int, default=512, help="writes of the short run")
    parser.add_argument("--many", type=int, default=1536, help="writes of the long run")
    parser.add_argument("--ours", type=Path, default=EXAMPLE, help="the example raw_writes")
    args = parser.parse_args()

    contenders = {
        "fio": lambda writes: f"{FIO} --iodepth={args.depth} --size={writes * WRITE}",
        "fio, registered": lambda writes: f"{FIO}{BEST} --iodepth={args.depth} --size={writes * WRITE}",
        "shotline": lambda writes: f"raw_writes nvme:{DEVICE}/bench {writes} {args.depth}",
    }
    file = ROOT / "target" / "passthrough.img"
    with open(file, "wb") as drive:
        drive.truncate(2 * args.many * WRITE + (64 << 20))
    found = {}
    try:
        with Guest(["/usr/bin/strace"], memory=2048, drives=[Drive(file, "BENCH", mdts=5)]) as guest:
            copy_programs(guest, args.ours)
            # Ours first, because it refuses a drive that fio has written to.
            for name in reversed(contenders):
                found[name] = each(guest, contenders[name], args)
                say(f"{name}: {found[name][0]:.0f} instructions, {found[name][1]:.2f} system calls a write")
    finally:
        file.unlink()
    say("")
    ours, peer = found["shotline"], [min(a, b) for a, b in zip(found["fio"], found["fio, registered"], strict=True)]
    say(f"system calls a write: shotline {ours[1]:.2f}, fio {peer[1]:.2f}")
    figures = f"ours {ours[0]:.0f} instructions/write, fio {peer[0]:.0f} instructions/write"
    say(f"RATIO passthrough-instructions/fio {peer[0] / ours[0]:.3f} ({figures})")


def copy_programs(guest, ours):
    """Copies the programs to the guest, without debug information."""
    for program, name in ((ours, "raw_writes"), ("/usr/bin/fio", "fio"), ("/usr/bin/valgrind.bin", "valgrind.bin")):
        guest.put(program)
        subprocess.run(["strip", "-o", guest.share / "bin" / name, program], check=True)
    (guest.share / "valgrind").mkdir()
    for name in TOOL:
        shutil.copy(VALGRIND / name, guest.share / "valgrind")


def each(guest, command, args):
    """Returns instructions and system calls per write."""
    counts = []
    for writes in (args.few, args.many):
        words = command(writes)
        traced = guest.run(f"strace -f -c -o /tmp/calls {words} >&2 && cat /tmp/calls", LIMIT).succeeded()
        calls = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)", traced, re.MULTILINE)
        tool = "VALGRIND_LIB=/share/valgrind valgrind.bin --tool=callgrind --callgrind-out-file=/dev/null"
        output = guest.run(f"{tool} --read-inline-info=no {words}", LIMIT).succeeded()
        instructions = re.search(r"Collected : (\d+)", output)
        if not calls or not instructions:
            raise Failed(f"nothing was counted: {traced}{output}")
        counts.append((int(instructions.group(1)), int(calls.group(1))))
    return [(many - few) / (args.many - args.few) for few, many in zip(*counts, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
