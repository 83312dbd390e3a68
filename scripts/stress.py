"""Runs the suite under stops and load: `make test-stress`.

The suite's whole process tree, including QEMU, is stopped and continued at random, while another program saturates the
memory bandwidth. A test that fails here depends on timing. target/stress.log has the time and length of every stop.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / "target" / "stress.log"
MAX_STOP_S = 2.0
MAX_RUN_S = 10.0  # maximum time between two stops
# Copies between two arrays larger than any cache, until its parent process ends.
HOG = """
import os
a, b, parent = bytearray(1 << 28), bytearray(1 << 28), os.getppid()
while os.getppid() == parent: a[:] = b
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="number of runs of the suite (%(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the times and lengths of stops (default: random)")
    parser.add_argument("arguments", nargs="*", help="arguments of scripts/test.py, after --")
    arguments = parser.parse_args()
    LOG.parent.mkdir(exist_ok=True)
    passed = 0
    for number in range(arguments.runs):
        seed = random.randrange(2**32) if arguments.seed is None else arguments.seed + number
        print(f"stress: run {number + 1} of {arguments.runs}, --seed {seed}", flush=True)
        passed += stressed([sys.executable, ROOT / "scripts" / "test.py", *arguments.arguments], seed) == 0
    print(f"stress: {passed} of {arguments.runs} runs passed")
    return 0 if passed == arguments.runs else 1


def stressed(command, seed):
    """Runs a command under stops and load, and returns its exit status."""
    group = make_group()
    rng = random.Random(seed)
    hog = subprocess.Popen([sys.executable, "-c", HOG])
    suite = subprocess.Popen([*group.command_prefix(), *map(str, command)], start_new_session=True)
    try:
        with open(LOG, "a") as log:
            print(f"seed {seed}: {' '.join(map(str, command))}", file=log, flush=True)
            while not ended_within(suite, rng.uniform(0, MAX_RUN_S)):
                length = rng.uniform(0, MAX_STOP_S)
                print(f"{time.time():.3f} stopped for {length:.3f} s", file=log, flush=True)
                with group.stopped():
                    time.sleep(length)
            print(f"{time.time():.3f} exit status {suite.returncode}", file=log, flush=True)
        return suite.returncode
    finally:
        hog.kill()
        hog.wait()
        group.end()


def ended_within(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


class Stopped:
    """Stops a group of processes during its `with` block."""

    def __init__(self, group):
        self.group = group

    def __enter__(self):
        self.group.stop()

    def __exit__(self, *_):
        self.group.resume()


class ControlGroup:
    """A control group, whose processes the kernel stops and continues together (cgroup-v2.rst, freezer)."""

    def __init__(self, parent):
        self.path = parent / f"shotline-stress-{os.getpid()}"
        self.path.mkdir()

    def command_prefix(self):
        """Returns the arguments before a command that make it, and all its children, members of the group."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh"]

    def stop(self):
        (self.path / "cgroup.freeze").write_text("1")

    def resume(self):
        (self.path / "cgroup.freeze").write_text("0")

    def stopped(self):
        return Stopped(self)

    def end(self):
        """Kills the remaining processes."""
        self.resume()
        (self.path / "cgroup.kill").write_text("1")
        while "populated 1" in (self.path / "cgroup.events").read_text():
            time.sleep(0.01)
        self.path.rmdir()


class ProcessTree:
    """Fallback without a control group: every descendant of this process gets the signal, parents before children."""

    def __init__(self):
        self.stopped_pids = []

    def command_prefix(self):
        """Returns no arguments, because every descendant of this process is a member."""
        return []

    def stop(self):
        self.stopped_pids = []
        while new := [pid for pid in descendants(os.getpid()) if pid not in self.stopped_pids]:
            for pid in new:
                send(pid, signal.SIGSTOP)
            self.stopped_pids += new

    def resume(self):
        for pid in reversed(self.stopped_pids):
            send(pid, signal.SIGCONT)

    def stopped(self):
        return Stopped(self)

    def end(self):
        for pid in descendants(os.getpid()):
            send(pid, signal.SIGKILL)


def descendants(root):
    """Returns all descendants of a process, parents before children."""
    found = []
    for task in Path(f"/proc/{root}/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            found += [pid, *descendants(pid)]
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended in the meantime


def make_group():
    """Returns a control group if this user may create one, else the process tree."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for words in mounts:
        if words[2] == "cgroup2" and os.access(words[1], os.W_OK):
            return ControlGroup(Path(words[1]))
    return ProcessTree()


if __name__ == "__main__":
    sys.exit(main())
