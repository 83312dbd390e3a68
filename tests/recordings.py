"""Recordings that the tests of the Python package share, and another interpreter to try it in."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from senders.generated import GeneratedShots

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S

NATIVE = Path(PROGRAM).with_name("libshotline_native.so")


def build(folder):
    """Puts the package of this tree first on the path: its Python files, and the native part that cargo has built.

    Tests may run in several processes. The first one creates the package in the folder, which they share.
    """
    site = folder / "shotline-site"
    with open(folder / "shotline-site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.exists():
            assert NATIVE.exists(), f"there is no {NATIVE}: cargo build makes it"
            partial = folder / "shotline-site.partial"
            ignore = shutil.ignore_patterns("*.so", "__pycache__")
            shutil.copytree(ROOT / "python" / "shotline", partial / "shotline", ignore=ignore)
            shutil.copy(NATIVE, partial / "shotline" / "_native.abi3.so")
            partial.rename(site)
    sys.path.insert(0, str(site))


def several(folder):
    """Records shots of several shapes; returns the file and the sent values of each by name."""
    recordings = {}
    for name, packing, shape in [
        ("packed", 1, (2, 7, 40, 6)),
        ("odd", 1, (2, 6, 8, 5)),
        ("int16", 0, (2, 5, 30, 4)),
        ("uint8", 2, (1, 5, 20, 3)),
    ]:
        sent = GeneratedShots(values(0, packing, shape), packing, rate=40_000_000)
        sent.record(folder / f"{name}.h5")
        recordings[name] = folder / f"{name}.h5", np.concatenate(list(sent.values), axis=2)
    return recordings


def with_losses(path):
    """Records two links: number 101 lacks a packet on link 1, 103 is missing on link 0, 102 and 106 to 108 on both."""
    sent = GeneratedShots(values(3, 1, (2, 6, 500, 12)), 1, numbers=[100, 101, 103, 104, 105, 109], rate=20_000_000)
    lost = {(1, 1, 2), *((0, 2, packet) for packet in range(sent.packets))}
    sent.record(path, lost)
    return path, sent


def values(seed, packing, shape):
    generator = np.random.default_rng(seed)
    low, high, kind = [(-(1 << 15), 1 << 15, np.int16), (-2048, 2048, np.int16), (0, 256, np.uint8)][packing]
    return generator.integers(low, high, shape).astype(kind)


def python(*arguments, cwd=None, **environment):
    """Runs another interpreter, which must succeed: a crash in it is reported as a failure of the test."""
    site = next(path for path in sys.path if Path(path).name == "shotline-site")
    environment = {"PYTHONPATH": site} | environment
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done
