"""What is refused so that nothing is lost: folders of others in the way of an export."""

import shutil

import h5py
import pytest
from formats.source import export

from common import Probe, record, run


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two links, ten shots, of which some are lost and some partial."""
    path = tmp_path_factory.mktemp("small") / "run.h5"
    with Probe("--channels", 4, "--samples", 500, "--loss", 0.4, "--seed", 7) as device:
        record(device, "--out", path, "--shots", 10, "--samples", 500, "--channels", 4).succeeded()
    return path


# --- exports -----------------------------------------------------------------------------------------


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def written(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def without_mark(folder):
    with h5py.File(folder / "link0/drf_properties.h5", "r+") as file:
        del file.attrs["shotline_run_id"]


FOREIGN = {
    "notes": ("zarr", "notes.txt", lambda to: written(to / "notes.txt")),
    "folder": ("zarr", "thesis", lambda to: written(to / "thesis/t.tex")),
    "array": ("zarr", "link1/filtered", lambda to: written(to / "link1/filtered/zarr.json")),
    "deep": ("zarr", "link0/rf/c/notes.txt", lambda to: written(to / "link0/rf/c/notes.txt")),
    "link": ("zarr", "link0/rf/c/9", lambda to: (to / "link0/rf/c/9").symlink_to("0")),
    "root": ("zarr", "zarr.json", lambda to: (to / "zarr.json").write_text('{"zarr_format": 3}')),
    "channel": ("digital-rf", "ch0", lambda to: (to / "link1").rename(to / "ch0")),
    "beside": ("digital-rf", "link0/thesis.tex", lambda to: written(to / "link0/thesis.tex")),
    "unmarked": ("digital-rf", "link0/drf_properties.h5", without_mark),
}


@pytest.mark.parametrize(("kind", "foreign", "put"), FOREIGN.values(), ids=FOREIGN)
def test_a_forced_export_leaves_a_folder_that_has_something_of_others(tmp_path, small, kind, foreign, put):
    to = tmp_path / "out"
    export(small, to, "--format", kind)
    put(to)
    before = contents(tmp_path)
    said = run("export", small, to, "--format", kind, "--force").refused()
    assert f"{to / foreign} " in said and "move it away, or choose another name" in said, said
    assert contents(tmp_path) == before
    shutil.rmtree(to)


@pytest.mark.parametrize("kind", ["zarr", "digital-rf"])
def test_a_forced_export_replaces_what_is_an_export_alone(tmp_path, small, kind):
    to = tmp_path / "out"
    export(small, to, "--format", kind)
    export(small, to, "--format", kind, "--links", 1, "--force")
    assert [path.name for path in to.iterdir() if path.name.startswith("link")] == ["link1"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the old one is gone"
