"""Files that others made, or put in the way: they are refused in words, and lead to no other file."""

import json
import os
import shutil
import subprocess

import h5py
import numpy as np
import pytest
from formats.source import export

from common import PATIENCE, PROGRAM, Probe, record, run


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A short recording of two links."""
    path = tmp_path_factory.mktemp("source") / "run.h5"
    with Probe("--channels", 4, "--samples", 300) as device:
        record(device, "--out", path, "--shots", 6, "--samples", 300, "--channels", 4).succeeded()
    return path


def refused_within(limit, *arguments):
    """The refusal of the program with so many bytes of memory of its own."""
    command = ["prlimit", f"--data={limit}", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1, f"{done.returncode}: {done.stderr}"
    return done.stderr


@pytest.mark.parametrize("command", ["verify", "inspect", "recover", "export", "import"])
def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path, command):
    os.mkfifo(tmp_path / "run.h5")
    to = [tmp_path / "to.zarr"] if command in ("export", "import") else []
    assert "regular file" in run(command, tmp_path / "run.h5", *to).refused()


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_has_the_hidden_name_of_a_recording_and_is_no_file_stays(tmp_path, kind):
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


def test_numbers_of_exports_and_imports_are_finite(source, tmp_path):
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
