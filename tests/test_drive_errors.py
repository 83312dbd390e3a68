"""A drive that fails or is full: a failed write of a shot loses that shot, others end the run, which is recoverable."""

import os
from pathlib import Path

import h5py
import pytest
from crash import Shots, final_disk
from test_crash import NAME, SHAPE, SLOT, check_recovered, read_all

from common import COMPLETE, LOST, Probe, Progress, Recorder, Recording, check_balanced, record, run, verify


def recorder_onto(drive, probe, *flags):
    """Starts a recorder of small shots onto a drive; it reports its progress."""
    common = ("--samples", SHAPE[3], "--pool", "8MiB", "--timeout-ms", 60_000, "--progress")
    return Recorder(probe, *common, *flags, "--out", Path(drive.folder) / NAME)


def test_a_failed_write_loses_exactly_one_named_shot(fault_drive):
    path = Path(fault_drive.folder) / NAME
    flags = ["--shots", 60, "--rate-hz", 200, "--in-flight", 4]
    fault_drive.fail(nth=30, min_bytes=SLOT)
    with Probe(*SHAPE) as probe, recorder_onto(fault_drive, probe, *flags) as recorder:
        ended = recorder.end().succeeded()
    assert ended["drops"] == {"sink_error": 1} and ended["shots_complete"] == 119, ended
    recording = Recording(path)
    check_balanced(ended, recording)
    lost = [(link, row) for link, table in enumerate(recording.tables) for row in table if row["state"] != COMPLETE]
    assert len(lost) == 1 and lost[0][1]["state"] == LOST and lost[0][1]["sink_error"] > 0, lost
    verify(path)


ANY, TABLE, MARKER = (1, 1 << 20), (9, SLOT - 1), (8, 8)  # sizes of such writes, in bytes
FAILING = [(1, ANY), (1, TABLE), (2, MARKER)]
MORE_FAILING = [*((nth, ANY) for nth in range(2, 7)), (2, TABLE), *((nth, MARKER) for nth in (1, 3, 4))]


@pytest.mark.parametrize(
    ("nth", "sizes"), [*FAILING, *(pytest.param(*failing, marks=pytest.mark.long) for failing in MORE_FAILING)]
)
def test_a_table_or_marker_error_ends_the_run_and_is_recoverable(fault_drive, nth, sizes):
    path = Path(fault_drive.folder) / NAME
    with Probe(*SHAPE) as probe, recorder_onto(fault_drive, probe, "--rate-hz", 200, "--capacity", 500) as recorder:
        progress = Progress(recorder)
        progress.wait_for("rows", 10)
        fault_drive.fail(nth, 1 << 30, *sizes)
        ended = recorder.end()
    assert ended.code == 1, ended.stderr
    words = [line for line in (*progress.others, *ended.stderr.splitlines()) if not line.startswith("{")]
    assert len(words) == 1 and "error" in words[0].lower(), words
    fault_drive.fail(1 << 30)
    check_recovery(fault_drive, path)


def test_a_full_drive_ends_the_run_and_is_recoverable(fault_drive):
    path = Path(fault_drive.folder) / NAME
    with Probe(*SHAPE) as probe, recorder_onto(fault_drive, probe, "--rate-hz", 200, "--capacity", 500) as recorder:
        Progress(recorder).wait_for("rows", 10)
        fault_drive.full_from(0)
        ended = recorder.end()
    assert ended.code == 1 and "No space left on device" in ended.stderr, ended.stderr
    fault_drive.full_from(None)
    check_recovery(fault_drive, path)


def test_a_drive_error_during_layout_leaves_no_file(fault_drive):
    with Probe(*SHAPE) as probe:
        for nth in range(1, 8):
            fault_drive.fail(nth, count=1 << 30)
            message = record(probe, "--shots", 10, "--out", Path(fault_drive.folder) / NAME).refused()
            assert "Input/output error" in message, message
            assert os.listdir(fault_drive.folder) == [], nth


def check_recovery(drive, path):
    """Recovers a file and compares the shots in it with the log."""
    log = drive.log()
    whole = Shots(log, NAME).complete_shots(final_disk(log).read(NAME))
    assert len(whole) > 20
    with h5py.File(path) as file:
        read_all(file)
    report = run("recover", "--json", path).succeeded()
    check_recovered(path, whole, [], report)
    verify(path, finished=False)
