"""Recovery of runs of many files: it changes only files of the run, in folders given by the user."""

import json
import shutil
import signal
import uuid

import h5py
import numpy as np
import pytest

from common import Probe, Recorder, record, run, until, verify

SHORT = ("--samples", 100, "--rate-hz", 500, "--timeout-ms", 60_000)
PARTS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A complete run of five parts, verified once."""
    folder = tmp_path_factory.mktemp("whole")
    with Probe() as probe:
        out = folder / "run.h5"
        record(probe, *SHORT, "--shots", 10 * PARTS, "--roll-shots", 10, "--out", out).succeeded()
    verify(out)
    return folder


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The files of a killed run over two drives, one folder each."""
    folder = tmp_path_factory.mktemp("broken")
    outs = [folder / name / "run.h5" for name in "ab"]
    for out in outs:
        out.parent.mkdir()
    flags = ["--roll-shots", 20, "--out", outs[0], "--out", outs[1]]
    with Probe() as probe, Recorder(probe, *SHORT, *flags) as recorder:
        until(lambda: len(list(folder.rglob("run-00002-s?.h5"))) == 2, what="the third part")
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    return folder


def bytes_of(folder):
    """Returns every file below a folder with its contents."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


def forge(master, name, run_id=None, first=0):
    """Rewrites a master so that it lists its parts from `first` on as unfinished and under other names."""
    with h5py.File(master, "r+") as file:
        entries = file["parts"][...][first:]
        fields = {field: entries.dtype.fields[field] for field in entries.dtype.names}
        text = h5py.string_dtype("utf-8", 512)
        row = np.dtype(
            {
                "names": list(fields),
                "formats": [text if field == "file" else kind for field, (kind, _) in fields.items()],
                "offsets": [at for _, at in fields.values()],
                "itemsize": fields["file"][1] + 512,
            }
        )
        forged = np.zeros(len(entries), row)
        for field in fields:
            forged[field] = entries[field]
        forged["file"] = [name(entry["file"].decode()).encode() for entry in entries]
        forged["state"], forged["rows"] = 0, 0
        del file["parts"]
        file["parts"] = forged
        if run_id:
            file.attrs["run_id"] = run_id


OUTSIDE = {
    "above": lambda folder: lambda name: f"../{name}",
    "absolute": lambda folder: lambda name: str(folder / name),
    "linked": lambda folder: lambda name: name,
    "dot-dot": lambda folder: lambda name: f"d/../../{name}",
}


@pytest.mark.parametrize("own_id", [True, False], ids=["same-run", "other-run"])
@pytest.mark.parametrize("way", OUTSIDE)
def test_recovery_touches_nothing_outside_the_masters_folder(whole, tmp_path, way, own_id):
    folder = tmp_path / "t1"
    shutil.copytree(whole, folder)
    # Parts 0 to 3 look as if `--keep` had discarded them; the last one has free space, as in a killed run.
    inside = folder / "d"
    (inside / "d").mkdir(parents=True)
    shutil.copy(folder / "run.h5", inside / "run.h5")
    forge(inside / "run.h5", OUTSIDE[way](folder), None if own_id else str(uuid.uuid4()), first=PARTS - 1)
    if way == "linked":
        for part in folder.glob("run-*.h5"):
            (inside / part.name).symlink_to(part)
    with open(folder / "run-00004.h5", "ab") as last:
        last.write(bytes(1 << 20))
    before = bytes_of(folder)
    for flags in ["--dry-run"], []:
        ended = run("recover", inside / "run.h5", "--json", *flags)
        assert ended.code == 1, ended.stdout
        assert bytes_of(folder) == before, flags
        if way != "linked":
            assert "nothing was changed" in ended.stderr and f"--drive {folder}" in ended.stderr, ended.stderr
    # --drive permits changes only to files of this run, and never the removal of a file that holds a shot.
    ended = run("recover", inside / "run.h5", "--json", "--drive", folder)
    after = bytes_of(folder)
    assert set(after) == set(before), "no file may be removed"
    changed = {path.name for path in before if after[path] != before[path]}
    assert changed == ({"run-00004.h5", "run.h5"} if own_id else set())
    assert (after[folder / "run.h5"], ended.code) == (before[folder / "run.h5"], 0 if own_id else 1)
    verify(folder / "run.h5")


def test_a_striped_run_is_recovered_in_the_given_folders(broken, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(broken, folder)
    master = folder / "a" / "run.h5"
    (master.parent / ".run.h5.new").write_bytes(b"an unfinished draft of the killed recorder")
    before, originals = bytes_of(folder), bytes_of(broken)
    # The master still names the drive's old location.
    message = run("recover", master).refused()
    assert f"--drive {broken / 'b'}" in message, message
    assert bytes_of(folder) == before
    drive = ["--drive", folder / "b"]
    predicted = reported_files(run("recover", master, "--json", "--dry-run", *drive))
    assert bytes_of(folder) == before, "a dry run must change nothing"
    done = reported_files(run("recover", master, "--json", *drive))
    assert done == predicted
    after = bytes_of(folder)
    assert {str(path) for path in before if path not in after} == predicted["removed"]
    assert {str(path) for path in after if after[path] != before.get(path)} == predicted["changed"]
    assert bytes_of(broken) == originals, "only the copy may be changed"
    verify(master, finished=False)
    again = reported_files(run("recover", master, "--json", *drive))
    assert not again["changed"] and not again["removed"], again


def reported_files(ended):
    """Returns the files that recovery reports as changed and removed."""
    assert ended.code == 0, ended.stderr
    *files, of_run = map(json.loads, ended.stdout.splitlines())
    changed = {file["path"] for file in files if file["changes"]}
    return {
        "changed": changed | ({of_run["master"]} if of_run["rewritten"] else set()),
        "removed": set(of_run["removed"]),
        "unchanged": set(of_run["unchanged"]),
    }


def test_a_dry_run_names_every_file(broken, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(broken, folder)
    master = folder / "a" / "run.h5"
    words = run("recover", master, "--dry-run", "--drive", folder / "b").stdout
    done = reported_files(run("recover", master, "--json", "--drive", folder / "b"))
    assert "would be changed" in words and "would be rewritten" in words, words
    for path in done["changed"] | done["removed"]:
        assert path in words, path
    assert ("would be removed" in words) == bool(done["removed"])
