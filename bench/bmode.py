"""Compares images by delay and sum with the software of others (`make bench-bmode`), each on one core.

The same samples of a simulated phantom are summed by all over the same grid, interpolated linearly between samples, with the
same aperture. Each peer is a process of its own (`bench/bmode/peers.py`), in an environment with the peers' packages. Runs
alternate, and the fastest of each counts: by processor time for the peers, so that other programs do not disturb them. The
images must be equal within the precision of their numbers.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from common import Failed, ratio, say

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("numpy==2.4.6", "scipy==1.17.1", "numba==0.68.1", "jax==0.10.2", "zea==0.1.8", "easydict", "jaxtyping", "tqdm"),
    *("fast-das==1.2.0", "ultraspy==1.2.7", "vbeam==1.0.10"),
)
PEERS = ("zea", "vbeam", "ultraspy", "fast-das", "matrix", "loops")
OWN = {"matrix", "loops"}  # written for this comparison
OTHER = {"fast-das"}  # its native kernel does not interpolate linearly: measured, but not a peer of the ratios
ELEMENTS, PITCH, RATE, SPEED, CENTRE, SAMPLES = 128, 0.3e-3, 20.832e6, 1540.0, 5.208e6, 1536
COLUMNS, ROWS, COLUMN_PITCH, ROW_PITCH, Z = 256, 512, 0.149e-3, SPEED / CENTRE / 4, 2e-3
F_NUMBER = 1.5
TOLERANCE = 5e-4  # of the largest value; about the precision of a delay in single precision
EDGE_TOLERANCE = 0.02  # with an aperture, at whose edges an element counts for one and not for the other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="turns, of which the fastest counts")
    parser.add_argument("--cpu", type=int, default=0, help="the core")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers")
    parser.add_argument("--waves", default="5,11", help="numbers of plane waves")
    args = parser.parse_args()
    python = environment()
    for waves in map(int, args.waves.split(",")):
        for window, f_number in (("none", 0.0), ("boxcar", F_NUMBER)):
            with tempfile.TemporaryDirectory() as folder:
                contest(Path(folder), python, waves, (window, f_number), args)


def environment():
    """Returns the Python of an environment with the peers, which is created at the first call."""
    folder = ROOT / "target" / "bmode"
    python = folder / "bin" / "python"
    mark = folder / "packages"
    wanted = "\n".join(PACKAGES)
    if not mark.exists() or mark.read_text() != wanted:
        say("installing the peers into target/bmode")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        mark.write_text(wanted)
    return python


def contest(folder, python, waves, aperture, args):
    window, f_number = aperture
    case = simulate(folder, waves, f_number)
    names = [name for name in args.peers.split(",") if name not in OTHER or window == "none"]
    peers = {name: start(folder, python, name, args.cpu) for name in names}
    try:
        say(f"{waves} waves, {ELEMENTS} elements, {COLUMNS} x {ROWS} pixels, aperture: {window}")
        ours = {kind: own(folder, case, kind, aperture, args.cpu) for kind in ("columns", "channels")}
        check(folder, names, window)
        best = dict.fromkeys(names, np.inf)
        for _ in range(args.turns):
            for name, peer in peers.items():
                best[name] = min(best[name], turn(peer))
            for kind, stages in ours.items():
                stages[:] = np.minimum(stages, own(folder, case, kind, aperture, args.cpu))
    finally:
        for peer in peers.values():
            peer.kill()
    report(f"{waves}-{window}", best, ours)


def simulate(folder, waves, f_number):
    """Writes samples of a few scatterers; returns the angles.

    The sines of the angles are such that a wave passes half of the array in a whole number of samples (see `ultraspy`).
    """
    rng = np.random.default_rng(1)
    elements = (np.arange(ELEMENTS) - (ELEMENTS - 1) / 2) * PITCH
    steps = np.round(np.linspace(-54, 54, waves))
    angles = np.arcsin(steps / (elements[-1] * RATE / SPEED))
    time = np.arange(SAMPLES)[:, None] / RATE
    rf = rng.normal(0, 20, (waves, SAMPLES, ELEMENTS))
    for x, z in zip(rng.uniform(-15e-3, 15e-3, 30), rng.uniform(5e-3, 40e-3, 30), strict=True):
        for wave, angle in enumerate(angles):
            late = time - (x * np.sin(angle) + z * np.cos(angle) + np.hypot(x - elements, z)) / SPEED
            rf[wave] += 300 * np.cos(2 * np.pi * CENTRE * late) * np.exp(-((late / 0.25e-6) ** 2))
    rf = np.clip(np.round(rf), -2048, 2047).astype("<i2")
    rf.tofile(folder / "rf")
    np.savez(
        folder / "case.npz",
        rf=np.ascontiguousarray(rf.transpose(0, 2, 1), np.float32),
        elements=elements,
        angles=angles,
        x=(np.arange(COLUMNS) - (COLUMNS - 1) / 2) * COLUMN_PITCH,
        z=Z + np.arange(ROWS) * ROW_PITCH,
        rate=RATE,
        speed=SPEED,
        f_number=f_number,
    )
    return angles


def start(folder, python, name, cpu):
    """Starts a peer and waits until it is ready."""
    peer = subprocess.Popen(
        ["taskset", "-c", str(cpu), python, ROOT / "bench" / "bmode" / "peers.py", folder, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in peer.stdout:
        if line == "ready\n":
            return peer
    raise Failed(f"{name} ended without an image: run bench/bmode/peers.py for its reason")


def turn(peer):
    """Returns the seconds of one image."""
    peer.stdin.write("\n")
    peer.stdin.flush()
    return float(peer.stdout.readline())


def own(folder, angles, kind, aperture, cpu):
    """Returns the seconds of each stage of Shotline, the fastest of several frames."""
    window, f_number = aperture
    values = {
        "rf": folder / "rf",
        "out": folder / kind,
        "frames": 40,
        "quadrature": kind,
        "elements": ELEMENTS,
        "samples": SAMPLES,
        "rate": RATE,
        "pitch": PITCH,
        "columns": COLUMNS,
        "rows": ROWS,
        "dx": COLUMN_PITCH,
        "dz": ROW_PITCH,
        "x": -(COLUMNS - 1) / 2 * COLUMN_PITCH,
        "z": Z,
        "window": window,
        "f_number": f_number,
        "angles": ",".join(map(repr, angles.tolist())),
    }
    program = ROOT / "target" / "release" / "examples" / "beamform_rate"
    command = ["taskset", "-c", str(cpu), program, *(f"{key}={value}" for key, value in values.items())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return np.array([line.split() for line in done.stdout.splitlines()], float).min(axis=0)


def check(folder, names, window):
    """Compares the images with ours; fails if they differ by more than single precision explains."""
    images = {kind: np.fromfile(folder / kind, "<f4").reshape(COLUMNS, ROWS) for kind in ("columns", "channels")}
    ours = images["columns"]
    others = {"ours, complex": images["channels"]} | {name: np.load(folder / f"{name}.npy") for name in names}
    largest = np.abs(ours).max()
    for name, image in others.items():
        difference = np.abs(image - ours) / largest
        rms = np.sqrt((difference**2).mean())
        say(f"  {name}: largest difference {difference.max():.1e} of the largest value, root mean square {rms:.1e}")
        if name in OTHER:
            continue
        if not difference.max() < (TOLERANCE if window == "none" else EDGE_TOLERANCE) or not rms < TOLERANCE:
            raise Failed(f"{name}: the image is another one")


def report(case, best, ours):
    frames = {kind: 1 / (stages[0] + stages[1]) for kind, stages in ours.items()}
    for name, seconds in best.items():
        say(f"  {name}: {1 / seconds:.2f} frames/s")
    for kind, (_, image, display, unpacked) in ours.items():
        say(
            f"  ours, {kind}: {frames[kind]:.1f} frames/s; traces {1e3 * ours[kind][0]:.2f} ms (from 12 bits "
            f"{1e3 * unpacked:.2f}), image {1e3 * image:.2f}, envelope and compression {1e3 * display:.2f}"
        )
    rates = {name: 1 / seconds for name, seconds in best.items() if name not in OTHER}
    for kind, names in (("peer", rates.keys()), ("package", rates.keys() - OWN)):
        if names:
            name = max(names, key=rates.get)
            ratio(f"bmode-{case}/{kind}", frames["columns"], name, rates[name], "frames/s")


if __name__ == "__main__":
    os.environ["PYTHONWARNINGS"] = "ignore"
    main()
