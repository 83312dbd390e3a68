"""Reads or writes a file with zea's own code, in a separate process.

    python zea_file.py read FILE OUT.npz          writes what zea reads as arrays; prints zea's verdict on the file
    python zea_file.py write FILE IN.npz          writes raw_data of IN, with the scan of a plane-wave array

zea's file format needs no machine-learning backend, but importing the package does (docs/formats.md). Where none is
installed, its modules for files are loaded without the package's own start-up.
"""

import importlib.util
import json
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np


def without_backend():
    """Loads zea's modules for files without the rest of the package."""
    for name in ("keras", "keras.utils"):
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module
    sys.modules["keras"].KerasTensor = type("KerasTensor", (), {})
    sys.modules["keras.utils"].pad_sequences = None
    folder = Path(importlib.util.find_spec("zea").submodule_search_locations[0])
    for name, path in (("zea", folder), ("zea.data", folder / "data")):
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    from zea.data.file import File

    sys.modules["zea"].File = File


if not any(importlib.util.find_spec(backend) for backend in ("jax", "tensorflow", "torch")):
    without_backend()
from zea import File


def read(path, out):
    with File(path) as file:
        scan, probe = file.scan, file.probe
        arrays = {
            name: np.asarray(getattr(scan, name)) for name in scan.SCHEMA if getattr(scan, name, None) is not None
        }
        arrays |= {"raw_data": file.data.raw_data[:], "probe_geometry": np.asarray(probe.probe_geometry)}
        arrays |= {f"custom_{name}": file[f"custom/{name}"][:] for name in file.get("custom", {})}
        np.savez(out, **arrays)
        print(json.dumps({"verdict": file.validate(), "version": file.attrs["zea_version"]}))


def write(path, source):
    raw = np.load(source)["raw_data"]
    waves, elements = raw.shape[1], raw.shape[3]
    scan = {
        "sampling_frequency": 20e6,
        "center_frequency": 5e6,
        "demodulation_frequency": 5e6,
        "initial_times": np.zeros(waves, np.float32),
        "t0_delays": np.zeros((waves, elements), np.float32),
        "tx_apodizations": np.ones((waves, elements), np.float32),
        "focus_distances": np.full(waves, np.inf, np.float32),
        "transmit_origins": np.zeros((waves, 3), np.float32),
        "polar_angles": np.zeros(waves, np.float32),
    }
    probe = {"probe_geometry": np.zeros((elements, 3), np.float32)}
    # No compression: it would need a plugin in every reader.
    File.create(path, data={"raw_data": raw}, scan=scan, probe=probe, compression=None)


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2], sys.argv[3])
