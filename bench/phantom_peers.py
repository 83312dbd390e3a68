"""Beamforms the phantom of an emulated probe with other programs, and compares the images with the true positions.

    python3 bench/phantom_peers.py [--work FOLDER]

Records the phantom, exports it to UFF and zea, and images the surroundings of each wire with the beamformers that are
installed: vbeam reads UFF (`pip install vbeam jax`), zea reads its own format (`pip install 'zea[jax]'`). Prints how far
the brightest pixel is from each wire. It is an error if one is further away than a quarter of a wavelength.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
import numpy as np

from common import Failed, program, say

PORT = 14794
ANGLES = [-10, -5, 0, 5, 10]
LIMIT = 0.25  # wavelengths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="folder for the files, which are kept [default: a temporary one]")
    parser.add_argument("--shotline", metavar="PROGRAM", help="program [default: the release build]")
    args = parser.parse_args()
    shotline = args.shotline or program()
    peers = {"vbeam": (vbeam, "uff"), "zea": (zea, "zea")}
    installed = {name: peer for name, peer in peers.items() if all(map(importlib.util.find_spec, (name, "jax")))}
    if not installed:
        raise Failed("no peer is installed: pip install vbeam 'zea[jax]'")
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        work.mkdir(exist_ok=True)
        phantom = record(shotline, work)
        wavelength = phantom["array"]["sound_speed_m_s"] / phantom["array"]["centre_hz"]
        for name, (beamform, form) in installed.items():
            compare(name, beamform(export(shotline, work, form)), phantom["wires"], wavelength)


def record(shotline, work):
    """Records one frame and returns the probe's report on its phantom."""
    address = f"[::1]:{PORT}"
    command = [shotline, "emulate", "probe", "--phantom", "--json", "--pace", "100hz", "--listen", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as probe:
        try:
            probe.stderr.readline()  # it is ready
            out = ["--out", work / "run.h5", "--shots", str(len(ANGLES)), "--force"]
            subprocess.run([shotline, "record", "--probe", address, *out], check=True, capture_output=True)
        finally:
            probe.terminate()
        return json.loads(probe.communicate()[0])["source"]["phantom"]


def export(shotline, work, form):
    to = work / f"run-{form}.hdf5"
    angles = "--angles=" + ",".join(map(str, ANGLES))
    command = [shotline, "export", work / "run.h5", to, "--format", form, angles, "--force"]
    subprocess.run(command, check=True, capture_output=True)
    return to


def compare(name, image, wires, wavelength):
    """Prints the offset of the brightest pixel from each wire."""
    dx, dz = np.arange(-1e-3, 1.01e-3, 0.05e-3), np.arange(-0.6e-3, 0.61e-3, 0.02e-3)
    for wire in wires:
        values = image(wire["x_m"] + dx, wire["z_m"] + dz)
        at = np.unravel_index(values.argmax(), values.shape)
        offset = dx[at[0]], dz[at[1]]
        place = f"wire at x {wire['x_m'] * 1e3:7.2f} mm, z {wire['z_m'] * 1e3:6.2f} mm"
        say(f"{name:>6}  {place}: image at {offset[0] * 1e3:+.2f} mm, {offset[1] * 1e3:+.2f} mm from it")
        if np.hypot(*offset) > LIMIT * wavelength:
            raise Failed(f"{name} has the wire in another place")


def vbeam(path):
    """Returns a function of x and z that images them with vbeam."""
    import pyuff_ustb
    from vbeam.beamformers import get_das_beamformer
    from vbeam.data_importers import import_pyuff
    from vbeam.scan import linear_scan

    data = pyuff_ustb.Uff(str(path)).read("channel_data")

    def image(x, z):
        setup = import_pyuff(data, linear_scan(x, z), frames=0)
        beamform = get_das_beamformer(setup, log_compress=False, scan_convert=False)
        return np.abs(np.asarray(beamform(**setup.data))).reshape(len(x), len(z))

    return image


def zea(path):
    """Returns a function of x and z that images them with zea."""
    from zea import File
    from zea.beamform.beamformer import tof_correction

    with File(path) as file:
        raw, parameters = file.data.raw_data[:1][0, ..., 0], file.load_parameters()
    rate, carrier = parameters.sampling_frequency, parameters.center_frequency
    spectrum = np.fft.fft(raw.astype(float), axis=1)
    spectrum[:, raw.shape[1] // 2 :] = 0
    time = np.arange(raw.shape[1])[:, None] / rate
    baseband = 2 * np.fft.ifft(spectrum, axis=1) * np.exp(-2j * np.pi * carrier * time)
    iq = np.stack([baseband.real, baseband.imag], axis=-1).astype(np.float32)
    names = ("t0_delays", "tx_apodizations", "sound_speed", "probe_geometry", "initial_times", "sampling_frequency")
    names += ("polar_angles", "focus_distances", "t_peak", "transmit_origins")
    known = {name: getattr(parameters, name) for name in names}

    def image(x, z):
        x, z = np.meshgrid(x, z, indexing="ij")
        grid = np.stack([x.ravel(), 0 * x.ravel(), z.ravel()], axis=-1).astype(np.float32)
        delayed = tof_correction(iq, grid, **known, demodulation_frequency=carrier, f_number=1.5)
        return np.linalg.norm(np.asarray(delayed).sum(axis=(0, 2)), axis=-1).reshape(x.shape)

    return image


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"phantom_peers: {failed}")
