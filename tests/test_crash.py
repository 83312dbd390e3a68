"""Crash consistency: after any kill, drive error or power cut the file opens, and it and `recover` report the truth.

Runs of the program are recorded onto a `FaultDrive`, which logs every write. The log is then cut at every moment, and
the possible contents of the drive (see `crash.py`) are checked with h5py. A failure names the log, the moment and the
seed; with `SHOTLINE_CRASH_LOG=run.log` the tests of its scenario use that log again, and with `SHOTLINE_CRASH_SEED=n`
they begin with another seed.
"""

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  (registers the filters that read compressed chunks)
import numpy as np
import pytest
from crash import Replay, Shots, final_disk, open_image
from faultfs import FaultDrive, skip_if_impossible

from common import (
    COMPLETE,
    LOST,
    PARTIAL,
    PROGRAM,
    WAIT_TIMEOUT_S,
    Probe,
    Verifier,
    run,
    until,
)

NAME = "run.h5"
SHAPE = ("--channels", 4, "--samples", 1000, "--bits", 8)  # two packets in a slot of 8192 bytes, and compressible
SLOT = 8192
ROWS = 8
FAULTS = ("--loss", 0.25, "--reorder", 0.05, "--seed", 3)
FIRST_SEED = int(os.environ.get("SHOTLINE_CRASH_SEED", "0"))
OTHER_SEEDS = [pytest.param(FIRST_SEED + other, marks=pytest.mark.long) for other in (1, 2, 3)]
every_seed = pytest.mark.parametrize("seed", [FIRST_SEED, *OTHER_SEEDS])


# --- runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """A run to be logged."""

    name: str
    links: int = 2
    flags: tuple = ()
    kill_at: int = 0  # number of rows after which the recorder is killed; 0: it is not killed
    old: bool = False  # whether the file name is that of an older recording

    @property
    def durable(self):
        return "--durable" in self.flags

    @property
    def compressed(self):
        return "--compress" in self.flags

    @property
    def recycled(self):
        return "--recycle" in self.flags

    def __str__(self):
        return self.name


SCENARIOS = [
    Scenario("full to the last row"),
    Scenario("with spare capacity", flags=("--capacity", 70)),
    Scenario("durable", 1, ("--durable", "--capacity", 40)),
    Scenario("durable with two links", 2, ("--durable",)),
    Scenario("killed", 2, ("--capacity", 40), kill_at=ROWS),
    Scenario("killed durable", 1, ("--durable", "--capacity", 40), kill_at=ROWS),
    Scenario("over an old recording", 1, ("--durable", "--force"), old=True),
    Scenario("compressed", 2, ("--compress", "lz4", "--durable", "--capacity", 40)),
    Scenario("compressed and killed", 1, ("--compress", "zstd", "--capacity", 40), kill_at=ROWS),
    Scenario("recycled", 1, ("--force", "--recycle", "--capacity", 40), kill_at=ROWS // 2, old=True),
]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


class ScenarioLog:
    """The log of a scenario's drive, with the progress reports that were written to the same drive."""

    def __init__(self, scenario, path):
        self.scenario, self.path = scenario, path
        self.log = pickle.loads(path.read_bytes())
        self.shots = Shots(self.log, NAME)
        self.old = self.log.before.read(NAME)

    def reported_rows(self, disk):
        """Returns the number of rows that the recorder had reported when the drive had these contents."""
        lines = (disk.read("progress") or b"").splitlines(keepends=True)
        rows = [json.loads(line)["rows"] for line in lines if line.endswith(b"\n") and line.startswith(b"{")]
        return max(rows, default=0)

    def image(self, disk):
        """Returns the recording's bytes; None while its name is missing or still that of the old recording."""
        data = disk.read(NAME)
        if self.old is not None and not self.scenario.recycled:
            assert data is not None, "the old recording's name is gone, and the new one has none yet"
        return None if data is not None and data == self.old else data

    def at_every_moment(self, model, seed, check, share=1.0):
        """Calls check(replay, bytes of the recording) for possible contents at every moment, or at a share of them."""
        rng, last = random.Random(seed), None
        replay = Replay(self.log)
        ends = {op.end for op in self.log.ops}
        for moment in range(self.log.moments):
            replay.forward(moment)
            # After a power cut a write in flight and a completed one have the same possible outcomes.
            if (model == "cut" or share < 1) and moment not in ends or rng.random() >= share:
                continue
            try:
                data = self.image(replay.cut(seed) if model == "cut" else replay.killed(seed))
                if data is not None and data != last:
                    check(replay, data)
                last = data
            except Exception as error:
                where = f"{self.scenario}, {model} at moment {moment} of {self.path}, seed {seed}"
                raise AssertionError(f"{where}: {error}") from error


@pytest.fixture(scope="module")
def log_of(tmp_path_factory):
    """Returns a function that records a scenario once and returns its log."""
    skip_if_impossible()
    folder = tmp_path_factory.mktemp("crash")

    @cache
    def log_of(scenario):
        given = os.environ.get("SHOTLINE_CRASH_LOG")
        name = scenario.name.replace(" ", "-")
        if given and Path(given).stem != name:
            pytest.skip(f"only {given} was requested")
        path = Path(given or folder / f"{name}.log")
        if not given:
            mount = folder / name
            mount.mkdir()
            path.write_bytes(pickle.dumps(make_log(mount, scenario)))
        return ScenarioLog(scenario, path)

    return log_of


def make_log(mount, scenario):
    with FaultDrive(mount) as drive:
        if scenario.old:
            record_onto(mount, Scenario("old", scenario.links))
            drive.put(NAME, (mount / NAME).read_bytes())
        record_onto(mount, scenario)
        log = drive.log()
        assert final_disk(log).read(NAME) == (mount / NAME).read_bytes(), (
            "the log differs from the contents of the drive"
        )
    return log


def record_onto(mount, scenario):
    """Records a run of the scenario. Its reports go to the same drive, so that the log has both in one order."""
    with Probe("--links", scenario.links, *SHAPE, *FAULTS) as probe, open(mount / "progress", "wb") as progress:
        flags = ["--probe", probe.address, "--bind", "[::1]:0", "--json", "--progress", "--pool", "4MiB"]
        flags += ["--samples", SHAPE[3], "--rate-hz", 30, *(() if scenario.kill_at else ("--shots", ROWS))]
        words = [PROGRAM, "record", *flags, "--in-flight", 8, *scenario.flags, "--out", mount / NAME]
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=progress) as recorder:
            if scenario.kill_at:
                # Until it has reported more than once, so that there are writes after rows were reported.
                until(
                    lambda: (
                        len(reported := reported_rows_of(mount / "progress")) > 1 and max(reported) >= scenario.kill_at
                    ),
                    "rows",
                )
                recorder.kill()
            code = recorder.wait(WAIT_TIMEOUT_S)
    assert code == (-signal.SIGKILL if scenario.kill_at else 0), (mount / "progress").read_text()


def reported_rows_of(progress):
    lines = [line for line in progress.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    return {json.loads(line)["rows"] for line in lines} - {0}


# --- invariants --------------------------------------------------------------------------------------


def read_all(file, samples=True):
    """Reads every dataset up to its extent, those of samples only if requested."""

    def read(name, item):
        if isinstance(item, h5py.Dataset) and (samples or not name.endswith("rf")):
            item[...]

    file.visititems(read)


def verified(file, rows=0):
    """Returns the independent verifier's verdict; `rows` limits it to the first ones."""
    verdict = Verifier(file, pattern=True, rows=rows).run()
    assert verdict["verified"], verdict["first_mismatches"]
    return verdict


@every_seed
@every_scenario
def test_a_kill_at_any_write_keeps_every_reported_shot(log_of, scenario, seed):
    logged, seen = log_of(scenario), set()

    def check(replay, data):
        with open_image(data) as file:
            read_all(file, samples=False)  # the verifier reads all samples
            rows = verified(file)["links"][0]["rows"]
        assert rows >= logged.reported_rows(replay.now), (
            f"{logged.reported_rows(replay.now)} rows were reported, {rows} are in the file"
        )
        seen.add(rows)

    logged.at_every_moment("killed", seed, check)
    assert any(seen), "no cut left a visible row"


@every_seed
@every_scenario
def test_a_power_cut_at_any_write_keeps_every_durable_shot(log_of, scenario, seed):
    logged, durable_counts = log_of(scenario), set()

    def check(replay, data):
        with open_image(data) as file:
            # Samples that were never synced may be torn, and a torn compressed chunk cannot be read.
            read_all(file, scenario.durable or not scenario.compressed)
            reported = logged.reported_rows(replay.now) if scenario.durable else 0
            if reported:
                durable_counts.add(reported)
                rows = file["link0/rf"].shape[0]
                assert rows >= reported, f"{reported} rows were reported, {rows} are in the file"
                verified(file, reported)

    logged.at_every_moment("cut", seed, check)
    assert durable_counts or not scenario.durable


@every_seed
@pytest.mark.parametrize("model", ["killed", "cut"])
@every_scenario
def test_recover_reports_exactly_which_shots_are_complete(log_of, scenario, model, seed):
    logged = log_of(scenario)

    def add(replay, data):
        # Only the file has the location of a compressed shot.
        whole = None if scenario.compressed else logged.shots.complete_shots(data)
        kept = None if model == "killed" else logged.reported_rows(replay.now) if scenario.durable else 0
        batch.add(replay.moment, data, whole, kept)

    with RecoveryBatch(logged.path) as batch:
        logged.at_every_moment(model, seed, add, share=0.3 if seed == FIRST_SEED else 0.6)
        batch.recover()
    assert batch.adopted > 0 or scenario.durable, "no cut left shots to adopt"


@every_seed
@pytest.mark.parametrize("model", ["killed", "cut"])
@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if s.kill_at and not s.durable], ids=str)
def test_a_recovery_cut_at_any_write_is_completed_by_the_next(log_of, tmp_path, scenario, model, seed):
    """Recovers a broken recording on a drive that logs, and cuts that log at every moment."""
    logged, broken = log_of(scenario), []
    logged.at_every_moment("cut", seed, lambda _, data: broken.append(data))
    data = random.Random(seed).choice(broken[len(broken) // 2 :])
    whole = None if scenario.compressed else logged.shots.complete_shots(data)
    mount, path = tmp_path / "drive", tmp_path / "recovery.log"
    mount.mkdir()
    with FaultDrive(mount) as drive:
        drive.put(NAME, data)
        run("recover", "--json", mount / NAME).succeeded()
        log = drive.log()
    path.write_bytes(pickle.dumps(log))
    with RecoveryBatch(path) as batch:
        replay, ends = Replay(log), [op.end for op in log.ops]
        for moment in ends:
            replay.forward(moment)
            disk = replay.cut(seed) if model == "cut" else replay.killed(seed)
            with open_image(disk.read(NAME)) as file:
                read_all(file, not scenario.compressed)
            batch.add(moment, disk.read(NAME), whole, 0)
        batch.recover()


def test_a_recovery_cut_between_two_pointers_is_completed(log_of, tmp_path):
    """After the cut some datasets point to the new tail and others to the old one: in no combination is a table lost.

    The new tail overlaps the old one's rows of those shots whose samples the power cut removed.
    """
    scenario = next(s for s in SCENARIOS if s.kill_at and not s.durable and not s.compressed)
    logged = log_of(scenario)
    with FaultDrive(tmp_path) as drive:
        drive.put(NAME, rows_without_samples(logged))
        run("recover", "--json", tmp_path / NAME).succeeded()
        log = drive.log()
    replay, moves = Replay(log), 0
    for op, next_op in zip(log.ops, log.ops[1:]):
        replay.forward(op.end)
        pointers = replay.pending
        if next_op.kind == "sync" and len(pointers) > 4 and all(op.size == 8 for op in pointers):
            moves += 1
            recover_every_choice(f"moment {op.end}", replay.durable, pointers)
    assert moves > 0, "the recovery did not move the tail"


def rows_without_samples(logged):
    """Returns a recording whose tables have every row, with at most one visible row and no samples."""
    shots, replay = logged.shots, Replay(logged.log)
    replay.forward(logged.log.ops[-1].end)
    samples = range(shots.data_start, min(offset for offset, _ in shots.tables))
    disk = replay.durable.copy()
    for op in replay.pending:
        if op.kind == "write":
            is_marker = op.size == 8 and op.at < shots.data_start
            if op.at in samples or (is_marker and int.from_bytes(op.data, "little") > 1):
                continue
        disk.apply(op)
    return disk.read(NAME)


def recover_every_choice(name, safe, pending):
    """Recovers the contents of a drive for every subset of these writes."""
    with RecoveryBatch(name) as batch:
        for chosen in range(1 << len(pending)):
            disk = safe.copy()
            for index, op in enumerate(pending):
                if chosen >> index & 1:
                    disk.apply(op)
            batch.add(f"writes {chosen:b}", disk.read(NAME), None, 0)
        batch.recover()


class RecoveryBatch:
    """Broken recordings, which one call of the program recovers together."""

    MAX_PENDING = 40  # recordings per call

    def __init__(self, log):
        self.log = log
        self.folder = Path(tempfile.mkdtemp(prefix="crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.waiting = []
        self.adopted = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def add(self, moment, data, whole, kept):
        """Adds a recording.

        `whole` are the complete shots in it (None: unknown), and `kept` is the number of rows that must not change
        (None: all).
        """
        path = self.folder / f"{len(self.waiting)}.h5"
        path.write_bytes(data)
        self.waiting.append((moment, path, whole, [table[:kept] for table in shot_tables(data)]))
        if len(self.waiting) == self.MAX_PENDING:
            self.recover()

    def recover(self):
        """Recovers the pending recordings, and checks the reports and results of `recover`."""
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        ended = run("recover", "--json", *(path for _, path, _, _ in waiting))
        assert ended.code == 0, ended.stderr
        reports = [json.loads(line) for line in ended.stdout.splitlines()]
        assert len(reports) == len(waiting), ended.stdout
        for (moment, path, whole, kept), report in zip(waiting, reports, strict=True):
            self.adopted += report["adopted"]
            try:
                check_recovered(path, whole, kept, report)
            except Exception as error:
                raise AssertionError(f"moment {moment} of {self.log}: {error}") from error


def shot_tables(data):
    with open_image(data) as file:
        return [file[f"link{index}/shots"][...] for index in range(int(file.attrs["links"]))]


def check_recovered(path, whole, kept, report):
    data = path.read_bytes()
    with open_image(data) as file:
        read_all(file)
        verified(file)
    tables = shot_tables(data)
    found = {
        (link, int(row["number"])) for link, table in enumerate(tables) for row in table if row["state"] == COMPLETE
    }
    assert whole in (None, found), (
        f"complete shots: {sorted(whole - found)} not recovered, {sorted(found - whole)} not on the drive"
    )
    for before, after in zip(kept, tables, strict=False):
        assert np.array_equal(before, after[: len(before)]), "rows that were visible have changed"
    states = Counter(int(state) for table in tables for state in table["state"])
    assert [report[name] for name in ("complete", "partial", "lost")] == [states[s] for s in (COMPLETE, PARTIAL, LOST)]
    assert (report["rows"], report["file_bytes"]) == (len(tables[0]), len(data)), (report, len(data))


# --- rings -------------------------------------------------------------------------------------------

RING_ROWS = 44


LEASE_SHIM = r"""
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    long argument = va_arg(more, long);
    va_end(more);
    return command == F_SETLEASE ? 0 : (int)syscall(SYS_fcntl, fd, command, argument);
}
"""


def lease_environment(folder):
    """Returns an environment in which every file system grants leases.

    FUSE does not grant them, and a FaultDrive has no other users.
    """
    library = folder / "leases.so"
    gcc = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(gcc, input=LEASE_SHIM, text=True, check=True, timeout=WAIT_TIMEOUT_S)
    return os.environ | {"LD_PRELOAD": str(library)}


def ring_log(mount, environment):
    """Records a bounded run that laps, on a drive that logs."""
    with FaultDrive(mount) as drive:
        with Probe("--links", 2, *SHAPE, *FAULTS) as probe, open(mount / "progress", "wb") as progress:
            flags = ["--probe", probe.address, "--bind", "[::1]:0", "--json", "--progress", "--pool", "4MiB"]
            flags += ["--samples", SHAPE[3], "--rate-hz", 100, "--shots", RING_ROWS, "--in-flight", 8]
            flags += ["--roll-shots", 4, "--keep", "3MiB", "--out", mount / NAME]
            words = list(map(str, [PROGRAM, "record", *flags]))
            quiet = {"stdout": subprocess.DEVNULL, "stderr": progress}
            ended = subprocess.run(words, check=False, timeout=WAIT_TIMEOUT_S, env=environment, **quiet)
        assert ended.returncode == 0, (mount / "progress").read_text()
        with h5py.File(mount / NAME) as file:
            counts = {entry["name"]: int(entry["value"]) for entry in file["counters"][...]}
        assert counts.get(b"ring_reused_files", 0) > 0, "no file was reused: nothing is tested"
        return drive.log()


def around_reuse(log):
    """Returns the moments at which changes end while a part is reused, and those of name changes, by kind of change."""
    files, moments = {op.file for op in log.of("rename") if op.names[0].startswith("run-")}, {}
    inside = set()
    for op in log.ops:
        if op.kind == "rename" and op.names[0].startswith("run-"):
            inside.add(op.file)
        if op.names or op.file in inside:
            names = tuple(re.sub(r"\d+", "N", name) for name in op.names)
            moments.setdefault((op.kind, names, op.size), []).append(op.end)
        if op.kind == "rename" and op.names[0].startswith(".run-"):
            inside.discard(op.file)
    assert len(files) > 1, "no part was reused"
    return moments


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """The path of a ring's log, and the log."""
    skip_if_impossible()
    mount = tmp_path_factory.mktemp("ring")
    log = ring_log(mount, lease_environment(tmp_path_factory.mktemp("leases")))
    path = mount.with_suffix(".log")
    path.write_bytes(pickle.dumps(log))
    return path, log


@every_seed
@pytest.mark.parametrize("model", ["killed", "cut"])
def test_a_ring_cut_while_reusing_a_part_holds_only_its_own_rows(ring, tmp_path, model, seed):
    path, log = ring
    replay, rng = Replay(log), random.Random(seed)
    # One moment of each kind, or almost all.
    each = 1 if seed == FIRST_SEED else 8
    kinds = around_reuse(log).values()
    for moment in sorted(moment for kind in kinds for moment in rng.sample(kind, min(len(kind), each))):
        replay.forward(moment)
        disk = replay.cut(seed) if model == "cut" else replay.killed(seed)
        if NAME not in disk.names:
            continue
        folder = tmp_path / "drive"
        folder.mkdir()
        for name in disk.names:
            (folder / name).write_bytes(disk.read(name))
        try:
            check_ring(folder, model, rows_reported_on(replay.now))
        except Exception as error:
            raise AssertionError(f"ring, {model} at moment {moment} of {path}, seed {seed}: {error}") from error
        shutil.rmtree(folder)


def rows_reported_on(disk):
    """Returns the number of rows that the recorder had reported when the drive had these contents."""
    lines = (disk.read("progress") or b"").splitlines(keepends=True)
    return max((json.loads(x)["rows"] for x in lines if x.endswith(b"\n") and x.startswith(b"{")), default=0)


def check_ring(folder, model, reported):
    """Checks that a broken ring opens; after a kill it must verify as it is, and after `recover` in any case."""
    master = folder / NAME
    with h5py.File(master) as file:
        read_all(file)
        if model == "killed":
            verified(file)
    recovered = run("recover", "--json", master)
    assert recovered.code == 0, recovered.stderr
    reported_files = {Path(path).name for path in json.loads(recovered.stdout.splitlines()[-1])["unchanged"]}
    with h5py.File(master) as file:
        rows = verified(file)["links"][0]["rows"]
        removed, last = file.attrs.get("ring_removed_rows", 0), int(file.attrs.get("ring_removed_last", -1))
        numbers = file["link0/shots"]["number"].tolist()
        listed = {entry["file"].decode() for entry in file["parts"][...]}
    assert all(number > last for number in numbers) and numbers == sorted(set(numbers)), (last, numbers)
    assert model == "cut" or rows + removed >= reported, (
        f"{reported} rows were reported, {rows} are there, {removed} removed"
    )
    left = {entry.name for entry in folder.iterdir()} - {NAME, "progress"}
    assert left == listed | reported_files, "files remain that are neither parts of the run nor reported by recovery"
    for name in reported_files:
        # A part that the ring discarded and had not yet overwritten, or a draft whose header the power cut removed.
        assert name.startswith("run-") or model == "cut", name
        if name.startswith("run-"):
            with h5py.File(folder / name) as file:
                assert file["link0/shots"]["number"][-1] <= last, (name, last)
    own = run("verify", "--json", master).succeeded()
    assert own["verified"], own
