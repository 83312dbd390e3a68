"""Malformed and malicious files: they are refused with a message, and cause no access to other files."""

import json
import os
import shutil
import subprocess

import h5py
import numpy as np
import pytest
from formats.source import export

from common import PROGRAM, WAIT_TIMEOUT_S, Probe, record, run


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A short recording of two links."""
    path = tmp_path_factory.mktemp("source") / "run.h5"
    with Probe("--channels", 4, "--samples", 300) as device:
        record(device, "--out", path, "--shots", 6, "--samples", 300, "--channels", 4).succeeded()
    return path


def refused_with_memory_limit(limit, *arguments):
    """Runs the program, which must fail, with a limit on its own memory in bytes; returns its standard error."""
    command = ["prlimit", f"--data={limit}", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 1, f"{done.returncode}: {done.stderr}"
    return done.stderr


@pytest.mark.parametrize("command", ["verify", "inspect", "recover", "export", "import"])
def test_a_pipe_in_place_of_a_file_is_refused(tmp_path, command):
    os.mkfifo(tmp_path / "run.h5")
    to = [tmp_path / "to.zarr"] if command in ("export", "import") else []
    assert "regular file" in run(command, tmp_path / "run.h5", *to).refused()


@pytest.mark.parametrize("command", ["verify", "inspect", "recover"])
def test_another_format_version_is_refused_with_a_remedy(source, tmp_path, command):
    shutil.copy(source, tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file.attrs["format_version"] = np.uint32(1)
    message = run(command, tmp_path / "run.h5").refused()
    assert "expected format version 2, found 1: read it with the version of Shotline that wrote it" in message, message


def test_verify_fails_on_a_part_that_is_a_pipe(tmp_path):
    with Probe("--channels", 4, "--samples", 300) as device:
        flags = ("--out", tmp_path / "run.h5", "--shots", 20, "--samples", 300, "--channels", 4)
        record(device, *flags, "--roll-shots", 10).succeeded()
    part = tmp_path / "run-00001.h5"
    part.unlink()
    os.mkfifo(part)
    ended = run("verify", tmp_path / "run.h5")
    assert ended.code == 1 and part.name in ended.stdout + ended.stderr, ended.stderr


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_non_file_with_the_draft_name_of_a_recording_is_kept(tmp_path, kind):
    hidden = tmp_path / ".run.h5.new"
    if kind == "pipe":
        os.mkfifo(hidden)
    else:
        hidden.symlink_to(tmp_path / "precious")
        (tmp_path / "precious").write_text("mine")
    with Probe("--channels", 4, "--samples", 300) as device:
        flags = ("--out", tmp_path / "run.h5", "--shots", 2, "--samples", 300, "--channels", 4)
        assert "regular file" in record(device, *flags).refused()
    assert hidden.lstat() and not (tmp_path / "run.h5").exists()


def test_export_and_import_numbers_must_be_finite(source, tmp_path):
    for flags in (
        ("--centre-mhz", "nan"),
        ("--centre-mhz", "inf"),
        ("--centre-mhz", "-1"),
        ("--initial-us", "nan"),
        ("--initial-us", "inf"),
        ("--angles", "nan"),
        ("--pitch-mm", "0"),
        ("--sound-speed", "-inf"),
    ):
        for name in ("a.uff", "a.sigmf-meta"):
            done = run("export", source, tmp_path / name, f"{flags[0]}={flags[1]}")
            assert done.code == 2 and flags[0] in done.stderr, done.stderr
    for scale in ("nan", "inf", "0"):
        done = run("import", source, tmp_path / "b.h5", f"--scale={scale}")
        assert done.code == 2 and "--scale" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["custom/missing", "custom/shot_state", "custom/stamp_tai_ns", "scan"])
def test_zea_metadata_in_external_files_is_refused(source, tmp_path, where):
    path, secret = tmp_path / "run.hdf5", tmp_path / "secret.h5"
    export(source, path, "--format", "zea")
    with h5py.File(path, "r+") as file, h5py.File(secret, "w") as other:
        if where == "scan":
            scan = "tracks/track_0/scan" if "tracks" in file else "scan"
            where = f"{scan}/sampling_frequency"
        data = file[where][...]
        other["data"] = data
        del file[where]
        file[where] = h5py.ExternalLink("secret.h5", "data")
    assert "in others" in run("import", path, tmp_path / "b.h5").refused()


@pytest.mark.parametrize("way", ["linked", "external", "pipe", "symlink"])
def test_digital_rf_is_read_only_from_its_own_folder(source, tmp_path, way):
    export(source, tmp_path / "in", "--format", "digital-rf", "--links", 0)
    path = next((tmp_path / "in").glob("*/*/rf@*.h5"))
    if way == "pipe":
        path.unlink()
        os.mkfifo(path)
    elif way == "symlink":
        shutil.move(path, tmp_path / "secret.h5")
        path.symlink_to(tmp_path / "secret.h5")
    else:
        with h5py.File(path, "r+") as file, h5py.File(tmp_path / "secret.h5", "w") as other:
            index = file["rf_data_index"][...]
            other["data"] = index
            del file["rf_data_index"]
            if way == "linked":
                file["rf_data_index"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "data")
            else:
                index.tofile(tmp_path / "secret")
                stored = [(str(tmp_path / "secret"), 0, index.nbytes)]
                file.create_dataset("rf_data_index", index.shape, index.dtype, external=stored)
    words = {"pipe": "regular file", "symlink": "within the folder"}.get(way, "in others")
    assert words in run("import", tmp_path / "in", tmp_path / "b.h5").refused()


@pytest.mark.parametrize("way", ["symlink", "pipe", "device"])
@pytest.mark.parametrize("name", ["link0/zarr.json", "link0/rf/c/0/0/0"])
def test_zarr_is_read_only_from_its_own_folder(source, tmp_path, way, name):
    export(source, tmp_path / "in.zarr")
    path = tmp_path / "in.zarr" / name
    secret = tmp_path / "secret"
    shutil.move(path, secret)
    if way == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if way == "device" else secret)
    message = refused_with_memory_limit(256 << 20, "import", tmp_path / "in.zarr", tmp_path / "b.h5")
    assert "within the folder" in message or "regular file" in message, message


def change_json(path, change):
    """Changes a JSON file in place."""
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))


def test_zarr_with_a_false_size_allocates_no_memory(source, tmp_path):
    export(source, tmp_path / "in.zarr")

    def large_shard(meta):
        _, samples, channels = meta["shape"]
        meta["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 20, samples, channels]
        meta["codecs"][0]["configuration"]["chunk_shape"] = [1 << 20, samples, channels]

    def many_rows(meta):
        meta["shape"][0] = 1 << 40
        meta["chunk_grid"]["configuration"]["chunk_shape"][0] = 1

    for name, change in (("link0/rf", large_shard), ("losses/runs", many_rows)):
        shutil.copytree(tmp_path / "in.zarr", tmp_path / "bad.zarr")
        change_json(tmp_path / "bad.zarr" / name / "zarr.json", change)
        message = refused_with_memory_limit(256 << 20, "import", tmp_path / "bad.zarr", tmp_path / "b.h5")
        assert name in message and "expected" in message, message
        shutil.rmtree(tmp_path / "bad.zarr")


def test_a_numpy_array_with_a_false_size_allocates_no_memory(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((2, 300, 4), np.int16))
    path.write_bytes(path.read_bytes().replace(b"(2, 300, 4), }        ", b"(99999999, 300, 4), } "))
    message = refused_with_memory_limit(256 << 20, "import", path, tmp_path / "b.h5", "--sample-rate-hz", 1000)
    assert "expected" in message and "bytes" in message, message
