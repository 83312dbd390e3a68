"""A drive slower than the wire, at any number of writes in flight: figure 7 of Cossettini et al., on a small scale.

At 0.8 of the drive's speed nothing is lost. Above its speed the file contains what the drive sustains, and whole shots
are dropped, counted and listed in `/losses`. The drive is a `FaultDrive` that completes writes one after the other at a
fixed speed. (FUSE submits one io_uring write of a file at a time; `--in-flight` changes how many the recorder holds.)
"""

from collections import Counter
from pathlib import Path

import pytest

from common import COMPLETE, LOST, Probe, Progress, Recorder, Recording, check_balanced, run

SHAPE = ("--links", 1, "--channels", 16, "--samples", 2700)
SLOT = 65_536  # per shot: 64,800 bytes of samples and a record
IN_FLIGHT = [1, 32, *(pytest.param(count, marks=pytest.mark.long) for count in (2, 8))]


class Run(Recorder):
    """A recorder of `offered_hz` shots a second onto a drive that sustains `sustained_hz`."""

    def __init__(self, probe, drive, offered_hz, sustained_hz, *arguments):
        self.path = Path(drive.folder) / "run.h5"
        drive.speed(sustained_hz * SLOT)
        flags = ("--rate-hz", offered_hz, "--samples", SHAPE[5], "--timeout-ms", 60_000)
        super().__init__(probe, *flags, *arguments, "--out", self.path)


def check_valid(path, ended):
    recording = Recording(path)
    check_balanced(ended, recording)
    assert run("verify", path, "--json").succeeded()["verified"]
    return recording


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_a_fast_enough_drive_loses_nothing(fault_drive, in_flight):
    # The pool has 256 slots: enough for a second in which the drive or the process that emulates it is stalled.
    shots, flags = 320, ("--in-flight", in_flight, "--pool", "16MiB")
    with Probe(*SHAPE) as probe, Run(probe, fault_drive, 240, 300, "--shots", shots, *flags) as recorder:
        ended = recorder.end().succeeded()
    recording = check_valid(recorder.path, ended)
    assert "sink_busy" not in ended["drops"] and "no_buffer" not in ended["drops"], ended
    # Packets lost in the network, on a busy machine, are not caused by the drive.
    assert ended["shots_complete"] + ended["shots_partial"] + ended["drops"].get("wire_gap", 0) == shots, ended
    assert not recording.tables[0]["sink_busy"].any()


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_a_slow_drive_stores_what_it_can_and_names_the_rest(fault_drive, in_flight):
    flags = ("--in-flight", in_flight, "--pool", "4MiB", "--capacity", 1000, "--progress")
    with Probe(*SHAPE) as probe, Run(probe, fault_drive, 360, 120, *flags) as recorder:
        progress = Progress(recorder)
        progress.wait_for("shots_dropped", 40)
        # Then the overload continues for at least 40 more rows and 40 more dropped shots.
        progress.wait_for("rows", progress.latest("rows") + 40)
        progress.wait_for("shots_dropped", progress.latest("shots_dropped") + 40)
        ended = recorder.interrupt().succeeded()
    recording = check_valid(recorder.path, ended)
    assert ended["drops"]["sink_busy"] >= 80, ended
    dropped = Counter()
    for _, cause, _, count in recording.losses:
        dropped[cause] += count
    assert dropped == Counter(ended["drops"]), "every dropped shot must be in /losses"
    assert len(recording.numbers()) + dropped.total() == ended["shots_sent"], ended
    table = recording.tables[0]
    assert not (table["state"] == LOST).any() and not table["sink_busy"].any(), "no row may be affected"
    partial = int((table["state"] != COMPLETE).sum())
    assert partial == ended["shots_partial"] and (partial == 0 or ended["packets_missing"] > 0), ended
