"""Runs of many files: parts that roll, striped drives, a bound on disk use, capture before a trigger."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from file_state import disk_usage_bytes, visible_rows, wait_for_rows
from requirements import need_root

from common import (
    PERIOD,
    ROOT,
    WAIT_TIMEOUT_S,
    Probe,
    Progress,
    Recorder,
    Recording,
    check_balanced,
    check_samples,
    command,
    prbs,
    record,
    run,
    until,
    verify,
)

LONG_TIMEOUT = ("--timeout-ms", 60_000)  # so long that no shot times out when its probe is not scheduled
SHORT = ("--samples", 100, "--rate-hz", 500, *LONG_TIMEOUT)
FAST = ("--samples", 100, "--rate-hz", 1000, *LONG_TIMEOUT)
SLOT = 16_384  # per shot of 100 samples of 96 channels at 12 bit
TINY, TINY_SLOT = ("--samples", 8, *LONG_TIMEOUT), 4096  # a shot of one packet


def parts(master):
    """Returns the files of a run that the master lists."""
    with h5py.File(master) as file:
        return [Path(master).parent / entry["file"].decode() for entry in file["parts"][...]]


def check_valid(master, finished=True):
    """Checks that both verifiers accept the run, and each of its files."""
    verdict = verify(master, finished)
    for part in parts(master):
        verify(part, finished)
    return verdict


def rows_in_master(path):
    """Returns the number of rows that a reader of a master or part sees now, in every table."""
    try:
        with h5py.File(path) as file:
            packets = file["link0/shots"]["packets"]
            absent = np.flatnonzero(packets == 0)
            return int(absent[0]) if len(absent) else len(packets)
    except (OSError, KeyError):
        return 0


# --- parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "roll", [("--roll-shots", 37), ("--roll-size", "1MiB"), ("--roll-seconds", 0.06), ("--roll-shots", 1)]
)
def test_rolled_parts_are_one_recording_through_the_master(tmp_path, roll):
    master, by_time = tmp_path / "run.h5", roll[0] == "--roll-seconds"
    shots = 4 if roll[1] == 1 else 100
    count = () if by_time else ("--shots", shots)
    with Probe() as probe, Recorder(probe, *SHORT, *count, *roll, "--out", master) as recorder:
        if by_time:  # the number of shots in a part depends on the machine
            until(lambda: rows_in_master(tmp_path / "run-00002.h5"), "a shot in the third part")
            recorder.interrupt()
        ended = recorder.end().succeeded()
    recording = Recording(master)
    if by_time:
        shots = len(recording.numbers())
    assert ended["shots_complete"] == 2 * shots and not ended["drops"], ended
    assert recording.numbers() == list(range(shots))
    assert check_samples(recording) == shots
    check_balanced(ended, recording)
    check_valid(master)
    files = parts(master)
    assert len(files) >= 3 and sorted(files) == files == sorted(tmp_path.glob("run-*.h5")), files
    attributes = Recording(files[1]).attributes
    assert attributes["run_id"] == recording.attributes["run_id"] and attributes["part"] == 1
    assert int(recording.attributes["parts"]) == len(files)
    if roll[0] == "--roll-shots":
        assert len(files) == -(-shots // roll[1])
    if roll[0] == "--roll-size":
        assert all(file.stat().st_size <= 1 << 20 for file in files)
    assert ended["file_bytes"] == disk_usage_bytes(tmp_path)


def test_losses_are_in_the_part_of_their_shot_numbers(tmp_path):
    master = tmp_path / "run.h5"
    faults = ["--loss", 0.05, "--reorder", 0.02, "--corrupt", 0.02, "--seed", 11]
    with Probe(*faults) as probe:
        flags = ["--samples", 8, "--rate-hz", 1000, "--shots", 200, "--roll-shots", 50, "--out", master]
        ended = record(probe, *flags).succeeded()
    recording = Recording(master)
    check_balanced(ended, recording)
    assert recording.losses and ended["drops"], "shots of one packet are lost whole"
    check_samples(recording)
    verdict = check_valid(master)
    of_parts = [loss for part in parts(master) for loss in Recording(part).losses]
    assert sum(count for *_, count in of_parts) == verdict["lost_shots"] == sum(ended["drops"].values())


def test_a_reader_sees_the_run_grow_over_its_parts(tmp_path):
    master = tmp_path / "run.h5"
    seen = []
    with Probe() as probe, Recorder(probe, *SHORT, "--roll-shots", 50, "--out", master) as recorder:
        until(master.exists, what="the master")

        def check_newest_row():
            seen.append(rows_in_master(master))
            with h5py.File(master) as file:
                last = seen[-1] - 1
                if last >= 0:
                    number = int(file["link0/shots"][last]["number"])
                    assert number == last
                    assert np.array_equal(file["rf"][last, :, 96:], prbs(1, number % PERIOD, 96, 100, 12))
            return seen[-1] > 150 and len(set(seen)) > 5

        until(check_newest_row, what="rows of four parts, in six steps")
        recorder.interrupt().succeeded()
    assert seen == sorted(seen), "visible rows must never disappear"
    check_valid(master)


def test_a_run_can_be_moved_with_its_folder(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    with Probe() as probe:
        record(probe, *SHORT, "--shots", 50, "--roll-shots", 20, "--out", old / "run.h5").succeeded()
    old.rename(new)
    assert check_samples(Recording(new / "run.h5")) == 50
    check_valid(new / "run.h5")


def test_a_missing_part_is_one_clear_error(tmp_path):
    master = tmp_path / "run.h5"
    with Probe() as probe:
        record(probe, *SHORT, "--shots", 50, "--roll-shots", 20, "--out", master).succeeded()
    (tmp_path / "run-00001.h5").unlink()
    assert "run-00001.h5" in run("verify", master).refused()


def test_a_modified_part_is_found_through_the_master(tmp_path):
    master = tmp_path / "run.h5"
    with Probe() as probe:
        record(probe, *SHORT, "--shots", 50, "--roll-shots", 20, "--out", master).succeeded()
    part = tmp_path / "run-00001.h5"
    with h5py.File(part) as file:
        at = file["rf"].id.get_chunk_info_by_coord((3, 0, 96)).byte_offset
    with open(part, "r+b") as file:
        file.seek(at + 100)
        byte = file.read(1)[0]
        file.seek(at + 100)
        file.write(bytes([byte ^ 1]))
    own = run("verify", master)
    assert own.code == 1 and "shot 23" in own.stderr, own.stderr
    independent = subprocess.run(
        [sys.executable, ROOT / "python" / "shotline_verify.py", master],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT_S,
    )
    assert independent.returncode == 1 and "shot 23" in independent.stdout, independent.stdout


def test_existing_parts_are_replaced_only_with_force(tmp_path):
    master = tmp_path / "run.h5"
    existing = tmp_path / "run-00003.h5"
    existing.write_text("other data")
    with Probe() as probe:
        flags = [*SHORT, "--shots", 50, "--roll-shots", 20, "--out", master]
        message = record(probe, *flags).refused()
        assert "run-00003.h5" in message and "--force" in message, message
        assert existing.read_text() == "other data" and not master.exists()
        # Not even with --force: the file is no part of the run that is replaced.
        message = record(probe, *flags, "--force").refused()
        assert "run-00003.h5" in message and "move it away" in message, message
        assert existing.read_text() == "other data" and not master.exists()
        existing.unlink()
        record(probe, *flags).succeeded()
        # A second run with larger parts leaves none of the first run's parts.
        record(probe, *SHORT, "--shots", 50, "--roll-shots", 40, "--out", master, "--force").succeeded()
    assert len(list(tmp_path.iterdir())) == 3
    check_valid(master)


# --- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [0, 1, *(pytest.param(moment, marks=pytest.mark.long) for moment in range(2, 6))])
def test_a_killed_run_shows_everything_that_was_committed(tmp_path, moment):
    (tmp_path / "other").mkdir()
    master = tmp_path / "run.h5"
    flags = ["--samples", 100, "--rate-hz", 1000, "--roll-shots", 60, "--out", master]
    if moment % 2:
        flags += ["--out", tmp_path / "other"]
    with Probe("--loss", 0.01, "--seed", moment) as probe, Recorder(probe, *flags) as recorder:
        # A row of the first three parts.
        least = random.Random(moment).randint(1, 150)
        before = until(lambda: rows_in_master(master) >= least and rows_in_master(master), what=f"row {least}")
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    assert rows_in_master(master) >= before
    verdict = verify(master, finished=False)
    assert not verdict["finished"]
    found = verdict["links"][0]["rows"]
    assert found >= before
    with h5py.File(master) as file:
        numbers = file["link0/shots"]["number"][:found]
        for row in {0, found // 2, found - 1}:
            if file["link0/shots"][row]["state"] == 2:
                expected = prbs(0, int(numbers[row]) % PERIOD, 96, 100, 12)
                assert np.array_equal(file["rf"][row, :, :96], expected), row
    for part in parts(master):
        verify(part, finished=False)


# --- drives ------------------------------------------------------------------------------------------


def test_two_striped_drives_form_one_recording(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    master = folders[0] / "run.h5"
    outs = ["--out", master, "--out", folders[1]]
    with Probe("--loss", 0.01, "--seed", 3) as probe:
        ended = record(probe, *SHORT, "--shots", 151, "--roll-shots", 51, *outs).succeeded()
    recording = Recording(master)
    check_balanced(ended, recording)
    assert check_samples(recording) >= 140
    check_valid(master)
    assert any("one file system" in warning for warning in ended["warnings"]), ended["warnings"]
    assert [file.name for file in sorted(folders[1].iterdir())] == [f"run-0000{part}-s1.h5" for part in range(3)]
    first, second = (Recording(file).numbers() for file in parts(master)[:2])
    assert abs(len(first) - len(second)) <= 1 and not set(first) & set(second)
    # Collected in one folder, the files are still found, each by its own name.
    gathered = tmp_path / "gathered"
    shutil.copytree(folders[0], gathered)
    for file in folders[1].iterdir():
        shutil.move(file, gathered)
    shutil.rmtree(folders[1])
    assert check_samples(Recording(gathered / "run.h5")) == len(recording.numbers())
    assert run("verify", gathered / "run.h5", "--json").succeeded()["verified"]


def test_parts_alternate_between_two_file_systems(drive, tmp_path):
    folder = drive(64)
    master = tmp_path / "run.h5"
    with Probe() as probe:
        outs = ["--out", master, "--out", folder / "run.h5"]
        ended = record(probe, *SHORT, "--shots", 150, "--roll-shots", 50, *outs).succeeded()
    # The only permitted warning is that the recorder had to wait, on a slow machine.
    assert ended["shots_complete"] == 300 and all("recorder waited" in warning for warning in ended["warnings"]), ended
    assert check_samples(Recording(master)) == 150
    check_valid(master)


def test_a_full_drive_is_dropped_and_the_run_continues(tmp_path):
    need_root("mount")
    folder = tmp_path / "small"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=2m", "none", folder)
    try:
        master = tmp_path / "run.h5"
        with Probe() as probe:
            outs = ["--out", master, "--out", folder / "run.h5"]
            ended = record(probe, *SHORT, "--shots", 200, "--roll-shots", 30, *outs).succeeded()
        assert any("continues without it" in warning for warning in ended["warnings"]), ended["warnings"]
        recording = Recording(master)
        check_balanced(ended, recording)
        assert ended["shots_complete"] == 400, ended
        assert recording.numbers() == list(range(200))
        check_samples(recording)
        check_valid(master)
    finally:
        command("umount", folder)


# At 100 kHz all shots have arrived before the recorder detects that the drive is full.
@pytest.mark.parametrize("flags", [SHORT, ("--samples", 100, "--rate-hz", 100_000, "--shots", 600, *LONG_TIMEOUT)])
def test_a_run_ends_in_order_when_every_drive_is_full(tmp_path, flags):
    need_root("mount")
    folder = tmp_path / "small"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=8m", "none", folder)
    try:
        master = folder / "run.h5"
        with Probe() as probe:
            ended = record(probe, *flags, "--roll-shots", 30, "--out", master).cut_off("full")
        assert set(ended["drops"]) <= {"sink_full", "sink_busy"} and ended["shots_complete"] >= 100, ended
        assert any("the run ends" in warning for warning in ended["warnings"]), ended["warnings"]
        recording = Recording(master)
        check_balanced(ended, recording)
        check_valid(master)
    finally:
        command("umount", folder)


# --- a bound on disk use -----------------------------------------------------------------------------


@pytest.mark.parametrize("stripes", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_bounded_run_never_exceeds_its_bound(tmp_path, stripes):
    folders = [tmp_path / name for name in "ab"[:stripes]]
    outs = []
    for folder in folders:
        folder.mkdir()
        outs += ["--out", folder / "run.h5"]
    master = folders[0] / "run.h5"
    keep, max_used = 8 << 20, 0
    flags = [*SHORT, "--shots", 500, "--keep", "8MiB", *outs]
    with Probe() as probe, Recorder(probe, *flags) as recorder:
        while recorder.popen.poll() is None:
            max_used = max(max_used, disk_usage_bytes(*folders))
            time.sleep(0.001)
        ended = recorder.end().succeeded()
    max_used = max(max_used, disk_usage_bytes(*folders))
    assert keep // 2 < max_used <= keep, f"{max_used} of {keep} bytes"
    assert ended["shots_complete"] + sum(ended["drops"].values()) == 1000, ended
    recording = Recording(master)
    removed = int(recording.attributes["ring_removed_rows"])
    assert removed == ended["ring_removed_rows"] > 200
    assert recording.numbers()[0] == int(recording.attributes["ring_removed_last"]) + 1
    # An overloaded machine loses shots, possibly the last ones; they are then in `/losses`.
    assert recording.numbers()[-1] == 499 or ended["drops"], ended
    assert recording.counters[0xFFFFFFFF]["ring_removed_rows"] == removed
    assert recording.counters[0]["ring_removed_shots"] == removed
    check_samples(recording)
    check_valid(master)


def test_a_killed_bounded_run_records_what_it_removed(tmp_path):
    master = tmp_path / "run.h5"
    flags = [*SHORT, "--keep", "4MiB", "--out", master]

    def removed():
        try:
            with h5py.File(master) as file:
                return int(file.attrs.get("ring_removed_rows", 0))
        except OSError:
            return 0

    with Probe() as probe, Recorder(probe, *flags) as recorder:
        until(lambda: removed() > 30, what="the first removals")
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    assert disk_usage_bytes(tmp_path) <= 4 << 20
    verify(master, finished=False)
    with h5py.File(master) as file:
        assert int(file["link0/shots"][0]["number"]) == int(file.attrs["ring_removed_last"]) + 1


def test_a_lapping_ring_reuses_files_and_holds_the_newest_shots(tmp_path):
    master = tmp_path / "run.h5"
    keep, max_used = 8 << 20, 0

    def newest():
        nonlocal max_used
        assert recorder.popen.poll() is None, recorder.end().stderr
        max_used = max(max_used, disk_usage_bytes(tmp_path))
        return max((part_number(part) for part in tmp_path.glob("run-*.h5")), default=0)

    def inodes():
        return {entry.inode() for entry in os.scandir(tmp_path) if entry.name.startswith("run-")}

    flags = [*SHORT, "--roll-shots", 20, "--keep", "8MiB"]
    with Probe("--loss", 0.01, "--seed", 5) as probe, Recorder(probe, *flags, "--out", master) as recorder:
        until(lambda: newest() >= 10, what="the second lap")
        early = inodes()
        until(lambda: newest() >= 25, what="laps")
        ended = recorder.interrupt().succeeded()
    late = inodes()
    assert max_used <= keep, f"{max_used} of {keep} bytes"
    assert len(late & early) > len(late) / 2, f"most files must be the same: {early}, later {late}"
    recording = Recording(master)
    assert recording.counters[0xFFFFFFFF]["ring_reused_files"] > 12, recording.counters
    check_balanced(ended, recording)
    numbers, last = recording.numbers(), int(recording.attributes["ring_removed_last"])
    named = {n for _, _, first, count in recording.losses for n in range(first, first + count)}
    newest_shots = set(range(last + 1, ended["shots_sent"] // 2))
    assert set(numbers) | {n for n in named if n > last} == newest_shots, "every newest shot must be recorded or named"
    check_samples(recording)
    check_valid(master)
    reused = [part for part in map(Recording, parts(master)) if part.attributes["recycled"]]
    assert reused and all(part.attributes["stale_to"] < part.numbers()[0] for part in reused)


def part_number(part):
    return int(part.stem.split("-")[1])


@pytest.mark.parametrize("lap", [0, *(pytest.param(lap, marks=pytest.mark.long) for lap in (1, 2, 3))])
def test_a_ring_killed_while_a_part_is_reused_is_recovered(tmp_path, lap):
    master = tmp_path / "run.h5"
    flags = [*SHORT, "--roll-shots", 30, "--keep", "8MiB", "--out", master]
    with Probe() as probe, Recorder(probe, *flags) as recorder:
        # Each part is recorded for some tenths of a second; if this poll is late, it finds a later one.
        until(lambda: max(map(part_number, tmp_path.glob("run-*.h5")), default=0) >= 8 + lap, what="the second lap")
        # While a part is reused, it has the draft name `.run-*.new`.
        until(lambda: not list(tmp_path.glob(".run-*.new")), what="the end of the reuse in progress")
        end = time.monotonic() + WAIT_TIMEOUT_S
        while not list(tmp_path.glob(".run-*.new")):
            assert time.monotonic() < end, "no part was reused"
            time.sleep(0.0005)
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    before = rows_in_master(master)
    assert before > 0 and verify(master, finished=False)["links"][0]["rows"] == before
    assert run("recover", "--json", master).code == 0
    assert not list(tmp_path.glob(".run-*.new")), "unfinished drafts must be gone"
    check_valid(master, finished=False)
    recording = Recording(master)
    numbers = recording.numbers()
    assert len(numbers) >= before and numbers == sorted(set(numbers)), "stale or duplicate rows"
    removed = int(recording.attributes["ring_removed_last"])
    # A busy machine may have lost shots in the network.
    assert removed < numbers[0] <= removed + 30 and numbers[-1] - numbers[0] < 2 * len(numbers), (removed, numbers)
    check_samples(recording)


# --- capture before a trigger ------------------------------------------------------------------------


def lost_numbers(recording, cause=None):
    """Returns the numbers in `/losses` of link 0's shots, for one cause or for all."""
    stream = int(recording.links[0]["stream"])
    return {
        n
        for lossy_stream, found, first, count in recording.losses
        if lossy_stream == stream and cause in (found, None)
        for n in range(first, first + count)
    }


@pytest.mark.parametrize("roll", [(), ("--roll-shots", 50)])
def test_flag_triggers_record_exactly_the_configured_window(tmp_path, roll):
    path = tmp_path / "run.h5"
    flags = [*FAST, "--shots", 500, "--pre-trigger", 0.04, "--post-trigger", 0.02, "--trigger", "flag", *roll]
    with Probe("--mark-every", 100) as probe:
        ended = record(probe, *flags, "--out", path).succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    table = recording.tables[0]
    triggered = [int(row["number"]) for row in table if row["flags"] & 2]
    assert triggered == [100, 200, 300, 400] and ended["triggers"] == 4
    # The window is checked by the stamps of the shots: 1 ms apart, or more on a busy machine.
    stamps = {int(row["number"]): int(row["stamp_tai_ns"]) for row in table}
    befores, afters = [], []
    for at in triggered:
        around = [number for number in stamps if abs(number - at) < 50]
        assert around == list(range(around[0], around[-1] + 1)), "there must be no gap"
        befores.append(stamps[at] - stamps[around[0]])
        afters.append(stamps[around[-1]] - stamps[at])
    assert max(befores) <= 0.04e9 and max(afters) <= 0.02e9, "nothing outside the window may be recorded"
    assert max(befores) > 0.03e9 and max(afters) > 0.01e9, (befores, afters)
    assert recording.numbers() == sorted(recording.numbers())
    # A machine that stalls loses other shots in the network, with another cause.
    assert lost_numbers(recording) == set(range(500)) - set(recording.numbers())
    assert set(ended["drops"]) <= {"not_triggered", "wire_gap", "sink_busy"}, ended
    assert len(lost_numbers(recording, "not_triggered")) > 200
    assert sum(ended["drops"].values()) == 2 * (500 - len(table)), ended
    counters = recording.counters[0xFFFFFFFF]
    assert counters["triggers"] == 4 and counters["trigger_2_shot"] == 300
    assert counters["trigger_2_tai_ns"] == stamps[300] and counters["trigger_2_signal"] == 0
    check_samples(recording)
    verify(path)


def test_a_signal_records_the_pre_trigger_shots(tmp_path):
    path = tmp_path / "run.h5"
    # All shots lie within the windows before and after the signal.
    flags = [*TINY, "--rate-hz", 100, "--capacity", 10_000, "--pre-trigger", 50, "--post-trigger", 50]
    flags += ["--progress", "--pool", "64MiB", "--out", path]
    with Probe() as probe, Recorder(probe, *flags) as recorder:
        progress = Progress(recorder)
        progress.wait_for("shots_complete", 60)
        assert progress.latest("rows") == visible_rows(path) == 0, "nothing may be recorded before a trigger"
        recorder.signal(signal.SIGUSR1)
        wait_for_rows(path, 60)
        ended = recorder.interrupt().succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    assert ended["triggers"] == 1 and not ended["drops"], ended
    counters = recording.counters[0xFFFFFFFF]
    assert counters["trigger_0_signal"] == 1
    assert recording.numbers() == list(range(ended["shots_sent"] // 2))
    stamps = dict(zip(recording.numbers(), recording.tables[0]["stamp_tai_ns"], strict=True))
    assert counters["trigger_0_shot"] >= 29 and int(stamps[29]) < counters["trigger_0_tai_ns"] < int(
        max(stamps.values())
    )
    check_samples(recording)
    verify(path)


def test_a_run_without_a_trigger_names_every_dropped_shot(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        ended = record(probe, *SHORT, "--shots", 60, "--pre-trigger", 0.02, "--out", path).succeeded()
    assert ended["triggers"] == 0 and ended["drops"] == {"not_triggered": 120}, ended
    recording = Recording(path)
    assert not recording.numbers() and lost_numbers(recording, "not_triggered") == set(range(60))
    verify(path)


def test_a_pool_too_small_for_a_known_rate_is_refused(tmp_path):
    path = tmp_path / "run.h5"
    with Probe("--mark-every", 700) as probe:
        flags = [*TINY, "--rate-hz", 1000, "--shots", 720, "--pre-trigger", 10, "--out", path, "--pool", "4MiB"]
        message = record(probe, *flags).refused()
        needed = re.search(r"--pool (\d+)MiB", message).group(1)
        assert not path.exists()
        assert int(needed) == pytest.approx(2 * 10_000 * TINY_SLOT / (1 << 20), rel=0.7), message
        ended = record(probe, *flags[:-1], f"{needed}MiB").succeeded()
    assert not any("--pool" in warning for warning in ended["warnings"]), ended
    # A pool of 4 MiB would hold 512 of these shots, minus the slots of open shots.
    assert Recording(path).numbers()[:701] == list(range(701))


def test_a_pool_too_small_for_an_unknown_rate_warns(tmp_path):
    path = tmp_path / "run.h5"
    with Probe("--mark-every", 700, "--pace", "1000hz") as probe:
        flags = [*TINY, "--shots", 720, "--pre-trigger", 60, "--post-trigger", 0.01, "--out", path, "--pool", "5MiB"]
        ended = record(probe, *flags).succeeded()
    assert any("--pool" in warning for warning in ended["warnings"]), ended["warnings"]
    recording = Recording(path)
    assert 700 in recording.numbers() and 100 < len(recording.numbers()) < 540
    assert recording.counters[0xFFFFFFFF]["pre_trigger_min_ns"] > 0.05e9
    check_balanced(ended, recording)
    verify(path)


# --- metadata and refusals ---------------------------------------------------------------------------


def test_a_run_records_its_operator_host_and_configuration(tmp_path):
    master = tmp_path / "run.h5"
    environment = {**os.environ, "USER": "ada"}
    with Probe() as probe:
        flags = [*SHORT, "--shots", 30, "--roll-shots", 20, "--notes", "phantom, first series", "--out", master]
        record(probe, *flags, env=environment).succeeded()
        other_flags = [*SHORT, "--shots", 30, "--operator", "grace", "--out", tmp_path / "other.h5"]
        record(probe, *other_flags, env=environment).succeeded()
    for path in [master, *parts(master)]:
        attributes = Recording(path).attributes
        assert attributes["notes"] == "phantom, first series" and attributes["operator"] == "ada"
        assert attributes["host"] == os.uname().nodename
        assert attributes["instrument"] == "Shotline emulated probe"
        assert re.fullmatch(r"shotline \d+\.\d+\.\d+( \([0-9a-f]{12}(-dirty)?\))?", attributes["software"])
        for setting in ("pool = 33554432", "roll_shots = 20", 'policy = "drop-newest"', "window = ", "in_flight = 16"):
            assert setting in attributes["config"], attributes["config"]
    assert Recording(tmp_path / "other.h5").attributes["operator"] == "grace"
    inspected = run("inspect", master)
    assert inspected.code == 0
    for words in ("phantom, first series", "ada on", "2 of 2 parts", attributes["run_id"]):
        assert words in inspected.stdout, inspected.stdout
    assert "part of a run" in run("inspect", parts(master)[1]).stdout


INVALID_SETTINGS = [
    (["--keep", "100KiB"], ["--keep", "holds no shot"]),
    (["--keep", "2MiB", "--roll-shots", "50"], ["--keep", "2097152"]),
    (["--keep", "9000TiB"], ["free", "--keep"]),
    (["--roll-size", "1KiB"], ["holds no shot", "--roll-size"]),
    (["--roll-seconds", "0"], ["--roll-seconds"]),
    (["--roll-shots", "0"], ["--roll-shots"]),
    (["--pre-trigger=-1"], ["--pre-trigger"]),
    (["--out", "{out}"], ["twice"]),
    (["--out", "/nowhere/run.h5"], ["nowhere", "directory"]),
]


def test_impossible_long_run_settings_are_refused(tmp_path):
    out = tmp_path / "run.h5"
    with Probe() as probe:
        for flags, words in INVALID_SETTINGS:
            flags = [flag.format(out=out) for flag in flags]
            message = record(probe, *SHORT, "--shots", 10, "--out", out, *flags).refused()
            assert all(word in message for word in words), (flags, message)
            assert not list(tmp_path.iterdir()), f"{flags}: files are left"
        assert probe.report()["next_shot"] == 0, "the probe was started"
