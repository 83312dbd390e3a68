"""Recordings that the tests of the Python package share, and another interpreter to try it in."""

import fcntl
import os
import subprocess
import sys

import numpy as np
from senders.made import Made

from common import ROOT

MAKE = [sys.executable, "-m", "maturin", "develop", "--release", "--locked", "--quiet", "--skip-install"]


def build(folder):
    """Builds the package from this tree: the first time in minutes, then what is there is reused.

    Tests may run in several processes. The first one builds and leaves a mark in the folder, which they share: the
    library must not be written again while another has it loaded.
    """
    mark = folder / "shotline-package"
    with open(folder / "shotline-package.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists():
            return
        environment = os.environ | {"VIRTUAL_ENV": sys.prefix}
        done = subprocess.run(MAKE, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr
        mark.touch()


def several(folder):
    """Recordings of several kinds: the file, and the values that were sent."""
    made = {}
    for name, packing, shape in [
        ("packed", 1, (2, 7, 40, 6)),
        ("odd", 1, (2, 6, 8, 5)),
        ("int16", 0, (2, 5, 30, 4)),
        ("uint8", 2, (1, 5, 20, 3)),
    ]:
        kind = Made(values(0, packing, shape), packing, rate=40_000_000)
        kind.record(folder / f"{name}.h5")
        made[name] = folder / f"{name}.h5", np.concatenate(list(kind.values), axis=2)
    return made


def with_losses(path):
    """Two links: number 101 lacks a packet on link 1, 103 is missing on link 0, 102 and 106 to 108 on both."""
    made = Made(values(3, 1, (2, 6, 500, 12)), 1, numbers=[100, 101, 103, 104, 105, 109], rate=20_000_000)
    lost = {(1, 1, 2), *((0, 2, packet) for packet in range(made.packets))}
    made.record(path, lost)
    return path, made


def values(seed, packing, shape):
    generator = np.random.default_rng(seed)
    low, high, kind = [(-(1 << 15), 1 << 15, np.int16), (-2048, 2048, np.int16), (0, 256, np.uint8)][packing]
    return generator.integers(low, high, shape).astype(kind)


def python(*arguments, **environment):
    """Another interpreter, which must end well: a crash there is told here."""
    environment = {"PYTHONPATH": str(ROOT / "python")} | environment
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done
