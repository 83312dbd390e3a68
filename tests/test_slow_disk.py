"""A drive slower than the wire, at any number of writes in flight: paper 0's figure 7, in small.

Below 0.9 of the drive's speed nothing is lost. Above it the file gets what the drive takes, and whole shots are
dropped, counted and named. The drive is a `FaultDrive` that takes bytes one behind the other at a fixed speed. (FUSE
hands it one io_uring write of a file at a time; what differs with `--in-flight` is how many the recorder holds.)
"""

from collections import Counter
from pathlib import Path

import pytest
from faultfs import FaultDrive, skip_if_impossible

from common import COMPLETE, LOST, Probe, Recording, balanced, record, run

SPEED = 8_000_000  # bytes/s of the drive
SHAPE = ("--links", 1, "--channels", 16, "--samples", 2700)
SLOT = 65_536  # of such a shot: 64,800 bytes of samples and a record
IN_FLIGHT = [1, 2, 8, 32]
POOL = "16MiB"  # 2 s of the drive


@pytest.fixture
def slow_drive(tmp_path):
    skip_if_impossible()
    mount = tmp_path / "drive"
    mount.mkdir()
    with FaultDrive(mount) as drive:
        yield drive


def record_at(drive, times, shots, in_flight):
    """Offers shots at so many times the drive's speed; the run's summary, its file, and what the drive took."""
    path = Path(drive.folder) / "run.h5"
    flags = ["--rate-hz", times * SPEED / SLOT, "--shots", shots, "--in-flight", in_flight, "--pool", POOL]
    with Probe(*SHAPE) as probe:
        drive.speed(SPEED)
        ended = record(probe, *flags, "--samples", SHAPE[5], "--out", path).succeeded()
    recording = Recording(path)
    balanced(ended, recording)
    assert run("verify", path, "--json").succeeded()["verified"]
    return ended, recording


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_a_drive_that_is_fast_enough_loses_nothing(slow_drive, in_flight):
    ended, recording = record_at(slow_drive, 0.8, 500, in_flight)
    assert "sink_busy" not in ended["drops"] and "no_buffer" not in ended["drops"], ended
    # Packets that the machine itself lost on the way are not the drive's.
    assert ended["shots_complete"] + ended["shots_partial"] + ended["drops"].get("wire_gap", 0) == 500, ended
    assert not recording.tables[0]["sink_busy"].any()


@pytest.mark.parametrize("in_flight", IN_FLIGHT)
def test_a_drive_that_is_too_slow_gets_what_it_takes_and_the_rest_is_named(slow_drive, in_flight):
    shots = 1200
    ended, recording = record_at(slow_drive, 3, shots, in_flight)
    dropped = ended["drops"]["sink_busy"]
    # 1200 shots pass in 1.3 s, in which the drive takes 400, and the pool holds 256.
    assert dropped > shots // 8, ended
    named = Counter()
    for _, cause, _, count in recording.losses:
        named[cause] += count
    assert named == Counter(ended["drops"]), "every dropped shot is named"
    assert len(recording.numbers()) + named.total() == shots == ended["shots_sent"], ended
    table = recording.tables[0]
    assert not (table["state"] == LOST).any() and not table["sink_busy"].any(), "no row is touched by it"
    partial = int((table["state"] != COMPLETE).sum())
    assert partial == ended["shots_partial"] and (partial == 0 or ended["packets_missing"] > 0), ended
    assert rate(slow_drive) <= 1.05 * SPEED


def rate(drive):
    """Bytes/s of the drive between its first slot and its last."""
    writes = [op for op in drive.log().of("write") if op.size == SLOT]
    return (len(writes) - 1) * SLOT / (writes[-1].time - writes[0].time)
