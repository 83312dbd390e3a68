"""The Python package and its environment: damaged files, h5py, xarray and dask in one process, installation."""

import ast
import os
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from recordings import NATIVE, python

from common import ROOT, WAIT_TIMEOUT_S

# --- hostile files -----------------------------------------------------------------------------------


def test_a_file_that_is_no_recording_is_refused(shotline, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"run\.h5"):
        shotline.open(tmp_path / "run.h5")
    with pytest.raises(IsADirectoryError):
        shotline.open(tmp_path)
    for content in (b"", b"\x89HDF\r\n\x1a\n", b"no HDF5 at all" * 100):
        (tmp_path / "run.h5").write_bytes(content)
        with pytest.raises(ValueError, match=r"run\.h5"):
            shotline.open(tmp_path / "run.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["rf"] = np.zeros((3, 4, 5), np.int16)
    with pytest.raises(ValueError, match="format = shotline"):
        shotline.open(tmp_path / "other.h5")


def test_a_repacked_recording_is_refused_or_read_correctly(shotline, runs, tmp_path):
    if not shutil.which("h5repack"):
        pytest.skip("h5repack is not installed: scripts/setup.sh test installs hdf5-tools")
    path, expected = runs["packed"]
    subprocess.run(["h5repack", path, tmp_path / "moved.h5"], check=True, timeout=WAIT_TIMEOUT_S)
    try:
        run = shotline.open(tmp_path / "moved.h5")
    except ValueError as error:
        assert "moved.h5" in str(error)
    else:
        assert np.array_equal(run.samples[...], expected)


HOSTILE = """
import random, shutil, sys
import shotline
from pathlib import Path
source, scratch, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
content, random = source.read_bytes(), random.Random(seed)
# Damages heaps of strings and everything from the first slot on: slots, indexes, tables. Not object headers: about one
# damaged header in a thousand crashes libhdf5 1.10 itself.
data_start = shotline.open(source).native.stored(0, 0)[1]
heaps = [at for at in range(0, data_start, 8) if content[at : at + 4] == b"GCOL"]
opened = 0
for _ in range(60):
    data = bytearray(content)
    if random.random() < 0.3:
        del data[random.randrange(len(data)):]
    for _ in range(random.choice([0, 1, 1, 3, 30])):
        at = random.choice(heaps) + random.randrange(4096) if random.random() < 0.3 else random.randrange(data_start, len(content))
        if at >= len(data):
            continue
        piece = random.choice([bytes([random.randrange(256)]), b"\\xff" * 8, bytes(8), random.randbytes(8)])
        data[at : at + len(piece)] = piece
    scratch.write_bytes(data)
    try:
        run = shotline.open(scratch)
        opened += 1
        shots = run.shots[:20]
        for use in (lambda: shots.samples[...], lambda: list(shots), lambda: run.losses, lambda: run.counters,
                    lambda: [link.shots[0].raw.sum() for link in run.links], lambda: shots.times, lambda: run.events[:1]):
            use()
    except (OSError, ValueError, IndexError, MemoryError):
        pass
print(opened)
"""


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_raise_and_never_crash(shotline, runs, tmp_path, seed):
    name = sorted(runs)[seed]
    done = python("-c", HOSTILE, runs[name][0], tmp_path / "damaged.h5", random.Random(seed).randrange(1 << 30))
    assert int(done.stdout) > 0, "some damage must be harmless"


# --- with other libraries ----------------------------------------------------------------------------


@pytest.mark.parametrize("first, second", [("h5py", "shotline"), ("shotline", "h5py")])
def test_h5py_and_the_package_import_in_either_order(shotline, runs, first, second):
    script = f"""
import {first}, {second}, sys, threading
import numpy as np
path = sys.argv[1]
with h5py.File(path) as file, shotline.open(path) as run:
    assert np.array_equal(file["rf"][...], run.samples[...])
    work = lambda: [np.array_equal(file["rf"][...], shotline.open(path).samples[...]) or sys.exit(1) for _ in range(20)]
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
"""
    python("-c", script, runs["packed"][0])


@pytest.mark.parametrize("dask", [True, False], ids=["dask", "without dask"])
def test_xarray_sees_a_run_lazily(shotline, broken, monkeypatch, dask):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed: scripts/setup.sh test installs it")
    pytest.importorskip("dask", reason="dask is not installed: scripts/setup.sh test installs it")
    from shotline import _lazy

    if not dask:
        monkeypatch.setattr(_lazy, "find_spec", lambda name: None)
    path, sent = broken
    with shotline.open(path) as run:
        expected, read = run.samples[...], []
        original = shotline.Samples._read
        monkeypatch.setattr(shotline.Samples, "_read", lambda *a: read.append(len(a[1].rows)) or original(*a))
        data = run.to_xarray()
        assert isinstance(data, xarray.Dataset) and dict(data.sizes) == {"shot": 6, "sample": 500, "channel": 24}
        assert data.number.values.tolist() == sent.numbers and data.state.values[0] == shotline.State.COMPLETE
        assert np.allclose(data.time, np.arange(500) / 20e6) and data.stamp.dtype.kind == "M"
        part = data.samples.isel(shot=slice(1, 3), channel=5)
        assert not sum(read), "nothing may be read before it is used"
        assert np.array_equal(part.values, expected[1:3, :, 5])
        assert sum(read) <= (6 if dask else 2)
        assert np.array_equal(data.where(data.state == 2, drop=True).samples.values, expected[[0, 3, 4, 5]])


def test_dask_reads_a_run_in_chunks(shotline, runs):
    pytest.importorskip("dask", reason="dask is not installed: scripts/setup.sh test installs it")
    path, expected = runs["packed"]
    with shotline.open(path) as run:
        array = run.to_dask(shots_per_chunk=2)
        assert array.chunks[0] == (2, 2, 2, 1) and array.dtype == np.int16
        assert int(array.astype(np.int64).sum().compute()) == int(expected.astype(np.int64).sum())
        assert np.array_equal(array[3, ::2, 4].compute(scheduler="threads"), expected[3, ::2, 4])
        assert run.to_dask(2).name == array.name, "the same samples must have the same name"


# --- the package -------------------------------------------------------------------------------------


def test_the_stubs_match_the_native_module(shotline):
    from shotline import _native

    tree = ast.parse((ROOT / "python" / "shotline" / "_native.pyi").read_text())
    public = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert public == {name for name in dir(_native) if not name.startswith("_")}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert "Recording" in {node.name for node in classes}
    for node in classes:
        members = (member.name for member in node.body if isinstance(member, ast.FunctionDef))
        methods = {name for name in members if not name.startswith("_")}
        native = getattr(_native, node.name)
        inherited = set(dir(Exception)) if issubclass(native, Exception) else set()
        assert methods == {name for name in dir(native) if not name.startswith("_")} - inherited, node.name


def test_everything_public_is_documented(shotline):
    for name in shotline.__all__:
        thing = getattr(shotline, name)
        assert thing.__doc__, name
        for method, member in vars(thing).items() if isinstance(thing, type) else ():
            if not method.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{name}.{method}"


# A replacement for cargo that reports the library that is already built, in the build messages that maturin parses.
CARGO = """#!{python}
import json, os, subprocess, sys
if sys.argv[1] != "rustc":
    os.execvp("cargo", ["cargo", *sys.argv[1:]])
manifest = sys.argv[sys.argv.index("--manifest-path") + 1]
metadata = ["cargo", "metadata", "--no-deps", "--locked", "--format-version=1", "--manifest-path", manifest]
packages = json.loads(subprocess.run(metadata, check=True, capture_output=True).stdout)["packages"]
(package,) = [package for package in packages if package["manifest_path"] == manifest]
(target,) = [target for target in package["targets"] if "cdylib" in target["kind"]]
profile = dict(opt_level="1", debuginfo=2, debug_assertions=True, overflow_checks=True, test=False)
built = dict(reason="compiler-artifact", package_id=package["id"], manifest_path=manifest, target=target, profile=profile,
             features=[], filenames=["{native}"], executable=None, fresh=True)
print(json.dumps(built))
print(json.dumps(dict(reason="build-finished", success=True)))
"""


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.long)], ids=["prebuilt", "compiled"])
def test_pip_install_yields_a_working_package(shotline, runs, tmp_path, compiled):
    """Installs as `pip install .` does, with the tools that are already installed.

    Compiling the optimised library takes minutes, so the default is the library that cargo has built for all tests.
    """
    wheel = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # maturin is one of them
    if not compiled:
        tools["CARGO"] = str(tmp_path / "cargo")
        Path(tools["CARGO"]).write_text(CARGO.format(python=sys.executable, native=NATIVE))
        Path(tools["CARGO"]).chmod(0o755)
    done = subprocess.run(wheel, cwd=ROOT, env=os.environ | tools, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("shotline-*.whl")
    assert "abi3" in wheel.name, "one wheel must serve every Python from 3.11 on"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"shotline/py.typed", "shotline/_native.pyi", "shotline/_native.abi3.so"} <= names
    assert not any("verify" in name or "plot" in name for name in names), "scripts must not be in the wheel"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", tmp_path / "site", wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=WAIT_TIMEOUT_S)
    script = "import shotline, sys; print(shotline.__file__); print(shotline.open(sys.argv[1]).samples[...].sum())"
    path, expected = runs["int16"]
    done = python("-c", script, path, PYTHONPATH=str(tmp_path / "site"))
    where, total = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path) and int(total) == int(expected.sum())


def test_types_of_the_package_are_complete(tmp_path):
    checked = ["python/shotline", "examples/python", "tests/typed_endpoints.py"]
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, *checked]
    environment = os.environ | {"MYPYPATH": "python"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_those_of_the_native_part(shotline, tmp_path):
    site = Path(shotline.__file__).parent.parent
    allowed = tmp_path / "allowed"
    # Made by PyO3; the buffer protocol before Python 3.12.
    allowed.write_text("shotline._native.__all__\nshotline._native.Slot.__buffer__\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", "--allowlist", allowed, "shotline._native"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site), "MYPYPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
