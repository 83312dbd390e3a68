"""Refusals: exports over folders with other files, out-of-range numbers in a source, and options without effect."""

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from formats.source import Source, export, import_file

from common import Probe, record, run, verify


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two links, ten shots, some lost and some partial."""
    path = tmp_path_factory.mktemp("small") / "run.h5"
    with Probe("--channels", 4, "--samples", 500, "--loss", 0.4, "--seed", 7) as device:
        record(device, "--out", path, "--shots", 10, "--samples", 500, "--channels", 4).succeeded()
    return path


# --- exports -----------------------------------------------------------------------------------------


def contents(folder):
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def write_file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")


def remove_mark(folder):
    with h5py.File(folder / "link0/drf_properties.h5", "r+") as file:
        del file.attrs["shotline_run_id"]


OTHER_FILES = {
    "notes": ("zarr", "notes.txt", lambda to: write_file(to / "notes.txt")),
    "folder": ("zarr", "thesis", lambda to: write_file(to / "thesis/t.tex")),
    "array": ("zarr", "link1/filtered", lambda to: write_file(to / "link1/filtered/zarr.json")),
    "deep": ("zarr", "link0/rf/c/notes.txt", lambda to: write_file(to / "link0/rf/c/notes.txt")),
    "link": ("zarr", "link0/rf/c/9", lambda to: (to / "link0/rf/c/9").symlink_to("0")),
    "root": ("zarr", "zarr.json", lambda to: (to / "zarr.json").write_text('{"zarr_format": 3}')),
    "channel": ("digital-rf", "ch0", lambda to: (to / "link1").rename(to / "ch0")),
    "inside": ("digital-rf", "link0/thesis.tex", lambda to: write_file(to / "link0/thesis.tex")),
    "unmarked": ("digital-rf", "link0/drf_properties.h5", remove_mark),
}


@pytest.mark.parametrize(("kind", "other", "put"), OTHER_FILES.values(), ids=OTHER_FILES)
def test_a_forced_export_refuses_a_folder_with_other_files(tmp_path, small, kind, other, put):
    to = tmp_path / "out"
    export(small, to, "--format", kind)
    put(to)
    before = contents(tmp_path)
    message = run("export", small, to, "--format", kind, "--force").refused()
    assert f"{to / other} " in message and "move it away, or choose another name" in message, message
    assert contents(tmp_path) == before
    shutil.rmtree(to)


@pytest.mark.parametrize("kind", ["zarr", "digital-rf"])
def test_a_forced_export_replaces_a_folder_with_only_an_export(tmp_path, small, kind):
    to = tmp_path / "out"
    export(small, to, "--format", kind)
    export(small, to, "--format", kind, "--links", 1, "--force")
    assert [path.name for path in to.iterdir() if path.name.startswith("link")] == ["link1"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "the old export must be gone"


# --- imports -----------------------------------------------------------------------------------------

LARGEST = 2**64 - 1


def change_captures(keep=None, numbers=True, first=None, last=None, **others):
    """Returns a change of SigMF metadata: of the first or last of the `keep` captures, or of the global object."""

    def change(folder):
        path = folder / "run.sigmf-meta"
        meta = json.loads(path.read_text())
        captures = meta["captures"] = meta["captures"][:keep]
        assert keep or len(captures) > 1
        captures[0].update(first or {})
        captures[-1].update(last or {})
        if not numbers:
            meta["captures"] = [
                {name: value for name, value in capture.items() if name != "shotline:number"} for capture in captures
            ]
        meta["global"].update({f"{name.replace('_', ':', 1)}": value for name, value in others.items()})
        path.write_text(json.dumps(meta))

    return change


def set_radio_attribute(name, value):
    """Returns a change of an attribute of Digital RF properties."""

    def change(folder):
        with h5py.File(folder / "run/link0/drf_properties.h5", "r+") as file:
            del file.attrs[name]
            file.attrs[name] = value

    return change


def change_radio_index(change_index):
    """Returns a change of the index in the last Digital RF file."""

    def change(folder):
        with h5py.File(max((folder / "run").glob("link0/*/rf@*.h5")), "r+") as file:
            index = change_index(file["rf_data_index"][...])
            del file["rf_data_index"]
            file["rf_data_index"] = index

    return change


def set_zarr_column(name, kind, index, value):
    """Returns a change of one value in a Zarr array of numbers."""

    def change(folder):
        path = next((folder / "run" / name / "c").rglob("0"))
        path = path if path.is_file() else path / "0"
        numbers = np.fromfile(path, kind)
        numbers[index] = value
        numbers.tofile(path)

    return change


def set_zarr_metadata(name, *path, value):
    """Returns a change of one value in the metadata of a Zarr node."""

    def change(folder):
        file = folder / "run" / name / "zarr.json"
        meta = at = json.loads(file.read_text())
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value
        file.write_text(json.dumps(meta))

    return change


def reshape_array(name, *shape):
    """Returns a change that gives an HDF5 array a shape without stored data."""

    def change(folder):
        with h5py.File(folder / "run.h5", "r+") as file:
            name_there = name if name in file else f"tracks/track_0/{name}"
            kind = file[name_there].dtype
            del file[name_there]
            file.create_dataset(name_there, shape, kind, chunks=tuple(min(n, 64) for n in shape))

    return change


SIGMF, RADIO, ZARR, UFF, ZEA = (
    ("run.sigmf-meta", ()),
    ("run", ("--format", "digital-rf")),
    ("run", ("--format", "zarr")),
    ("run.h5", ("--format", "uff")),
    ("run.h5", ("--format", "zea")),
)
NUMBERS = {
    "sigmf-number": (SIGMF, change_captures(first={"shotline:number": LARGEST}), f"shotline:number.*{LARGEST}"),
    "sigmf-number-words": (SIGMF, change_captures(first={"shotline:number": "1"}), 'shotline:number.*"1"'),
    "sigmf-falling": (SIGMF, change_captures(last={"shotline:number": 0}), "shotline:number.* found 0"),
    "sigmf-last-number": (SIGMF, change_captures(last={"shotline:number": 2**48}), f"shotline:number.*{2**48}"),
    "sigmf-gap": (SIGMF, change_captures(numbers=False, last={"core:global_index": 2**62}), "shots .*--pauses"),
    "sigmf-ahead": (
        SIGMF,
        change_captures(shotline_tai_minus_utc_s=2**62 - 1),
        f"shotline:tai_minus_utc_s.*{2**62 - 1}",
    ),
    "sigmf-behind": (SIGMF, change_captures(shotline_tai_minus_utc_s=-1001), "shotline:tai_minus_utc_s.*-1001"),
    "sigmf-ahead-words": (SIGMF, change_captures(shotline_tai_minus_utc_s=LARGEST), "shotline:tai_minus_utc_s"),
    "sigmf-late": (SIGMF, change_captures(first={"core:datetime": "9999-12-31T23:59:59Z"}), "core:datetime.*9999"),
    "sigmf-slow": (SIGMF, change_captures(keep=1, core_sample_rate=1e-300), "time of sample"),
    "radio-ahead": (
        RADIO,
        set_radio_attribute("shotline_tai_minus_utc_s", 2**62),
        "shotline_tai_minus_utc_s.*46116860184",
    ),
    "radio-channels": (RADIO, set_radio_attribute("num_subchannels", 2**62), "num_subchannels.*46116860184"),
    "radio-rate": (RADIO, set_radio_attribute("sample_rate_denominator", 2**63), "rate"),
    "radio-late": (
        RADIO,
        change_radio_index(lambda index: index + np.array([2**62 - int(index[-1, 0]), 0], np.uint64)),
        "shots|time",
    ),
    "radio-narrow": (RADIO, change_radio_index(lambda index: index[:, :1]), "rf_data_index"),
    "zarr-number": (ZARR, set_zarr_column("link1/number", "<u8", 1, LARGEST), f"link1/number.*{LARGEST}"),
    "zarr-falling": (ZARR, set_zarr_column("link0/number", "<u8", 1, 0), "number"),
    "zarr-differing": (ZARR, set_zarr_column("link1/number", "<u8", -1, 2**40), f"link1/number.*{2**40}"),
    "zarr-loss": (ZARR, set_zarr_column("losses/runs", "<u8", 2, LARGEST), f"losses/runs.*{LARGEST}"),
    "zarr-losses": (ZARR, set_zarr_column("losses/runs", "<u8", 3, LARGEST), f"losses/runs.*{LARGEST}"),
    "zarr-ahead": (
        ZARR,
        set_zarr_metadata("", "attributes", "run", "clock", "tai_minus_utc_s", value=2**62),
        "tai_minus_utc_s",
    ),
    "uff-shots": (UFF, reshape_array("channel_data/data", 2**40, 2**30, 8, 500), "shots"),
    "uff-channels": (UFF, reshape_array("channel_data/data", 1, 1, 2**62, 500), "channels"),
    "zea-masks": (ZEA, reshape_array("custom/shot_state", 1, 1, 2), "shot_state"),
    "zea-shots": (ZEA, reshape_array("data/raw_data", 2**40, 2**30, 500, 8, 1), "shots"),
    "zea-channels": (ZEA, reshape_array("data/raw_data", 1, 1, 500, 2**40, 2**30), "channels"),
}


@pytest.mark.parametrize(("source", "change", "words"), NUMBERS.values(), ids=NUMBERS)
def test_out_of_range_source_numbers_are_refused_by_name(tmp_path, small, source, change, words):
    (name, flags), links = source, () if source in (ZARR, UFF, ZEA) else ("--links", 0)
    export(small, tmp_path / name, *flags, *links)
    change(tmp_path)
    message = run("import", tmp_path / name, tmp_path / "again.h5").refused()
    assert Path(name).stem in message and re.search(words, message), message
    assert not (tmp_path / "again.h5").exists()


def test_a_zarr_row_without_a_shot_on_any_link_is_skipped(tmp_path, small):
    """Runs that join shots by their stamps have such rows: there is no number to record as missing."""
    report = export(small, tmp_path / "run", "--format", "zarr", "--links", 0, "--shots", 3)
    assert report["links"] == 1
    set_zarr_column("link0/number", "<u8", 2, LARGEST)(tmp_path)
    set_zarr_column("link0/state", "u1", 2, 0)(tmp_path)
    import_file(tmp_path / "run", tmp_path / "again.h5")
    verify(tmp_path / "again.h5")
    there, again = Source(small).numbers(), Source(tmp_path / "again.h5").numbers()
    assert again and set(again) <= set(there[:2])


def test_options_without_effect_on_a_source_are_refused(tmp_path, small):
    assert "link 0 is named twice" in run("export", small, tmp_path / "a.uff", "--links", "0,1,0").refused()
    given = {"--samples": 5, "--sample-rate-hz": 5, "--channel": "link0", "--pauses": None}
    sources = {
        "run.uff": ("uff", UFF, ()),
        "run.hdf5": ("zea", ZEA, ()),
        "run": ("digital-rf", RADIO, ("--samples", "--channel", "--pauses")),
        "run.zarr": ("zarr", ZARR, ()),
        "run.sigmf-meta": ("sigmf", SIGMF, ("--samples", "--sample-rate-hz", "--pauses")),
        "run.npy": ("npy", None, ("--sample-rate-hz",)),
    }
    np.save(tmp_path / "run.npy", np.zeros((2, 30, 4), np.int16))
    for name, (kind, source, used) in sources.items():
        if source:
            export(small, tmp_path / name, *source[1], "--links", 0)
        for option, value in given.items():
            done = run("import", tmp_path / name, tmp_path / "b.h5", option, *filter(None, [value]), "--force")
            if option in used:
                assert done.code == 0, done.stderr
            else:
                assert f"{kind} does not support {option}: omit it" in done.refused()
    assert (
        "--sample-rate-hz: expected"
        in run("import", tmp_path / "run.npy", tmp_path / "c.h5", "--sample-rate-hz", 0).refused()
    )


def test_options_without_effect_on_a_format_are_refused(tmp_path, small):
    for name, option, formats in [
        ("run.uff", ("--zstd", 3), "zarr"),
        ("run.uff", ("--chunk", "1,1,1"), "zarr"),
        ("run.uff", ("--iq",), "digital-rf or sigmf"),
        ("run.zarr", ("--pitch-mm", 0.2), "uff or zea"),
        ("run.zarr", ("--angles", "0,1"), "uff or zea"),
        ("run.pcapng", ("--zstd", 3), "zarr"),
    ]:
        kind = name.split(".")[1]
        refused = run("export", small, tmp_path / name, *option).refused()
        assert f"{kind} does not support {option[0]}: omit it, or export to {formats}" in refused
    assert not list(tmp_path.iterdir())
