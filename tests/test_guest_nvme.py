"""Recordings on raw NVMe namespaces, by Linux's own driver in a QEMU guest: no file system, no block layer.

Everything that is recorded comes back as a file and is read by h5py here. There are drives of every kind in the guest:
with blocks of 512 and of 4096 bytes, with short commands, with partitions, with a file system, one whose commands fail, a
slow one, and one whose machine was killed.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from common import PROGRAM, ROOT, Recording, balanced, check_samples, until, verify

sys.path.insert(0, str(ROOT / "guest"))

from image import Missing
from machine import Drive, Guest, Refused

MIB = 1 << 20
SECTOR = 512
SHAPE = "--links 1 --channels 16 --samples 2700"
SLOT = 65_536  # of such a shot: 64,800 bytes of samples and a record
RATE = 40  # shots a second that the guest takes without trouble
SLOW = 300_000  # bytes/s
LIMIT = 120  # seconds that a command may take, on a machine that does much else
SHOTS = 30
PARTITION = range(8 * MIB, 72 * MIB)
# One sector never takes what is written to it, another one refuses once.
FAULTS = """
[inject-error]
event = "write_aio"
iotype = "write"
errno = "5"
sector = "4096"
once = "off"

[inject-error]
event = "write_aio"
iotype = "write"
errno = "5"
sector = "6144"
once = "on"
"""


def table(partition):
    """A partition table with one partition (MBR)."""
    start, count = partition.start // SECTOR, len(partition) // SECTOR
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + start.to_bytes(4, "little") + count.to_bytes(4, "little")
    return bytes(446) + entry + bytes(48) + b"\x55\xaa"


@pytest.fixture(scope="module")
def drives(tmp_path_factory):
    """The drives by their serial numbers."""
    folder = tmp_path_factory.mktemp("drives")
    drives = [Drive(folder / serial, serial, mdts=5) for serial in ("PLAIN", "POWER", "EXT4", "SWAP", "PARTED", "FULL")]
    drives += [Drive(folder / "LARGE", "LARGE", block=4096, mdts=1)]
    drives += [Drive(folder / "FAULTY", "FAULTY", mdts=5, faults=FAULTS)]
    drives += [Drive(folder / "SLOW", "SLOW", mdts=5, bytes_per_second=SLOW)]
    for drive in drives:
        with open(drive.file, "wb") as file:
            file.truncate(16 * MIB if drive.serial == "FULL" else 256 * MIB)
    with open(folder / "PARTED", "r+b") as file:
        file.write(table(PARTITION))
    subprocess.run([shutil.which("mkfs.ext4", path="/sbin:/usr/sbin"), "-q", folder / "EXT4"], check=True)
    return {drive.serial: drive for drive in drives}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Our program without what only debuggers need, which would take the guest long to load."""
    path = tmp_path_factory.mktemp("program") / "shotline"
    subprocess.run(["strip", "-o", path, PROGRAM], check=True)
    return path


def boot(program, drives):
    """A guest with our program. Where there can be none, that fails in CI and is said elsewhere."""
    try:
        return Guest([program], drives=drives)
    except (Missing, Refused) as error:
        if os.environ.get("CI"):
            pytest.fail(f"no guest: {error}")
        pytest.skip(f"NOT TESTED against Linux's NVMe driver: {error}")


class Machine:
    """A guest, and what is done with its drives."""

    def __init__(self, guest):
        self.guest = guest
        guest.run("cp -r /share/bin /share/lib /tmp").succeeded()  # from there it starts sooner
        said = guest.run("for c in /sys/class/nvme/*; do echo $(cat $c/serial) ${c##*/nvme}; done").succeeded()
        self.numbers = dict(line.split() for line in said.splitlines())
        self.runs = 0

    def namespace(self, serial):
        return f"nvme:/dev/ng{self.numbers[serial]}n1"

    def block(self, serial):
        return f"/dev/nvme{self.numbers[serial]}n1"

    def spawn(self, script, limit=LIMIT):
        return self.guest.spawn(f"export PATH=/tmp/bin:$PATH LD_LIBRARY_PATH=/tmp/lib\n{script}", limit)

    def run(self, script):
        return self.spawn(script).end()

    def recording(self, out, flags="", probe=""):
        """A script that records from an emulated probe in the guest itself."""
        self.runs += 1
        port = 47910 + self.runs
        return f"""
shotline emulate probe --listen [::1]:{port} {SHAPE} {probe} 2>/tmp/probe{port} &
probe=$!
until grep -q waits /tmp/probe{port}; do sleep 0.1; done
shotline record --probe [::1]:{port} --bind [::1]:0 --samples 2700 --pool 4MiB --out {out} {flags}
code=$?
kill $probe 2>/dev/null
exit $code
"""

    def record(self, out, shots=SHOTS, rate=RATE, flags=""):
        """The summary of a run."""
        script = self.recording(out, f"--shots {shots} --rate-hz {rate} --json {flags}")
        return json.loads(self.run(script).succeeded().splitlines()[-1])

    def refused(self, out, flags=""):
        """Why nothing is recorded."""
        done = self.run(f"shotline record --probe [::1]:47910 --out {out} --shots 5 {flags}")
        assert done.code == 1 and done.output.startswith("shotline: "), done.output
        return done.output

    def shotline(self, *words):
        return self.run("shotline " + " ".join(map(str, words))).succeeded()

    def json(self, *words):
        return json.loads(self.shotline(*words, "--json"))

    def fetched(self, run):
        """A run as a file of this machine."""
        name = f"run{self.runs}.h5"
        self.shotline("export", run, f"/tmp/{name}", "--force")
        self.run(f"cp /tmp/{name} /share/{name} && rm /tmp/{name}").succeeded()
        return self.guest.share / name

    def proven(self, ended, run):
        """Proves a finished run, there and here."""
        assert self.json("verify", run)["verified"]
        path = self.fetched(run)
        verify(path)
        recording = Recording(path)
        balanced(ended, recording)
        check_samples(recording)
        return recording


@pytest.fixture(scope="module")
def durable(program, drives):
    """Rows that were durable on the drive POWER when QEMU was killed. (What it had said to be written, it had handed to
    this machine's kernel: that flushes came at the right time is tested by tests/test_crash.py, on files.)"""
    with boot(program, [drives["POWER"]]) as guest:
        machine = Machine(guest)
        flags = f"--seconds 60 --capacity 2000 --rate-hz {RATE} --durable --progress"
        job = machine.spawn(machine.recording(machine.namespace("POWER") + "/cut", flags))

        def rows():
            told = [line for line in job.output().splitlines() if line.startswith("{") and line.endswith("}")]
            return max([json.loads(line)["rows"] for line in told], default=0)

        return until(lambda: rows() >= SHOTS and rows(), limit=LIMIT, what=f"{SHOTS} durable rows")


@pytest.fixture(scope="module")
def machine(program, drives, durable):
    """One guest for all tests, with every drive; POWER as the guest before it left it."""
    with boot(program, list(drives.values())) as guest:
        yield Machine(guest)


@pytest.mark.parametrize(("serial", "block", "command"), [("PLAIN", 512, 128 << 10), ("LARGE", 4096, 8 << 10)])
def test_a_run_goes_to_a_namespace_by_nvme_commands_and_comes_back_as_a_file(machine, serial, block, command):
    statistics = f"cat /sys/class/block/nvme{machine.numbers[serial]}n1/stat"
    before = machine.run(statistics).succeeded()
    ended = machine.record(f"{machine.namespace(serial)}/first")
    assert machine.run(statistics).succeeded() == before, "the block layer has seen none of it"
    assert ended["file"] == f"{machine.namespace(serial)}/first"
    assert not [warning for warning in ended["warnings"] if "register" in warning], ended
    device = machine.json("inspect", machine.namespace(serial))
    assert (device["serial"], device["block_bytes"], device["command_bytes"]) == (serial, block, command), device
    assert [run["name"] for run in device["runs"]] == ["first"] and device["runs"][0]["at"] == MIB
    assert device["runs"][0]["bytes"] < (SHOTS + 8) * SLOT, "no more than it needs"
    machine.proven(ended, f"{machine.namespace(serial)}/first")


def test_compressed_and_durable_runs_stand_beside_others(machine):
    namespace = machine.namespace("PLAIN")
    for name, flags in (("lz4", "--compress lz4"), ("durable", "--durable")):
        ended = machine.record(f"{namespace}/{name}", flags=flags)
        machine.proven(ended, f"{namespace}/{name}")


def test_a_recorder_that_is_killed_leaves_a_run_that_is_recovered(machine):
    run = machine.namespace("PLAIN") + "/killed"
    script = machine.recording(run, f"--seconds 30 --capacity 1000 --rate-hz {RATE} --progress")
    job = machine.spawn(script)
    until(lambda: job.output().count("\n") > 15, limit=LIMIT, what="progress")
    machine.run("kill -9 $(pidof shotline)")
    job.end()
    broken = machine.json("inspect", run)
    assert not broken["finished"] and broken["laid_out"] == 1000 and broken["rows"] > 0, broken
    said = machine.json("recover", run)
    assert said["rows"] >= broken["rows"] and said["lost"] == 0, said
    recording = Recording(machine.fetched(run))
    assert check_samples(recording) == said["rows"]
    assert machine.json("verify", run)["verified"]


def test_what_was_durable_is_there_when_the_machine_is_gone(machine, durable):
    run = machine.namespace("POWER") + "/cut"
    before = machine.json("inspect", run)
    assert before["rows"] >= durable and not before["finished"], (before, durable)
    said = machine.json("recover", run)
    assert said["rows"] >= before["rows"] and said["lost"] == 0, said
    recording = Recording(machine.fetched(run))
    assert check_samples(recording) == said["rows"] >= durable


def test_a_file_system_stays_until_the_drives_own_serial_number_is_typed(machine, drives):
    namespace = machine.namespace("EXT4")
    before = drives["EXT4"].file.read_bytes()
    assert "ext4" in machine.refused(namespace) and "--force --serial EXT4" in machine.refused(namespace, "--force")
    assert "serial number EXT4, not PLAIN" in machine.refused(namespace, "--force --serial PLAIN")
    assert "ext4" in machine.refused(f"block:{machine.block('EXT4')}")
    assert drives["EXT4"].file.read_bytes() == before
    ended = machine.record(namespace, shots=5, flags="--force --serial EXT4")
    machine.proven(ended, f"{namespace}/run-1")


def test_a_drive_that_is_held_is_refused_whatever_is_typed(machine):
    machine.run(f"mkswap {machine.block('SWAP')} && swapon {machine.block('SWAP')}").succeeded()
    for out in (machine.namespace("SWAP"), f"block:{machine.block('SWAP')}"):
        assert "is in use" in machine.refused(out, "--force --serial SWAP")
    machine.run(f"swapoff {machine.block('SWAP')}").succeeded()
    assert "swap space" in machine.refused(machine.namespace("SWAP"))


def test_a_partition_is_written_and_nothing_around_it(machine, drives):
    file = drives["PARTED"].file
    assert "MBR" in machine.refused(machine.namespace("PARTED"))
    partition = machine.block("PARTED") + "p1"
    ended = machine.record(f"nvme:{partition}/commands")
    machine.proven(ended, f"nvme:{partition}/commands")
    # The same bytes, by the block layer.
    ended = machine.record(f"block:{partition}/direct")
    machine.proven(ended, f"block:{partition}/direct")
    names = [[run["name"] for run in machine.json("inspect", how + partition)["runs"]] for how in ("nvme:", "block:")]
    assert names == [["commands", "direct"]] * 2
    found = file.read_bytes()
    assert found[: len(table(PARTITION))] == table(PARTITION)
    assert not any(found[SECTOR : PARTITION.start]) and not any(found[PARTITION.stop :])
    assert found[PARTITION.start :].startswith(b"SHOTLINE")


def test_a_namespace_that_is_full_says_what_there_is(machine):
    namespace = machine.namespace("FULL")
    done = machine.run(machine.recording(namespace, "--shots 1000 --quiet"))
    assert done.code == 1 and "the largest free stretch has 15728640" in done.output, done.output
    machine.proven(machine.record(f"{namespace}/a", shots=100), f"{namespace}/a")
    done = machine.run(machine.recording(f"{namespace}/b", "--shots 200 --quiet"))
    assert done.code == 1 and "for 200 rows" in done.output, done.output
    ended = machine.record(f"{namespace}/a", shots=50, flags="--force --recycle")
    machine.proven(ended, f"{namespace}/a")


def test_a_write_that_fails_costs_its_shot_and_the_run_goes_on(machine):
    run = machine.namespace("FAULTY") + "/faults"
    ended = machine.record(run, shots=60)
    assert ended["drops"]["sink_error"] == 1, ended
    recording = machine.proven(ended, run)
    assert list(recording.tables[0]["sink_error"]).count(0) == len(recording.tables[0]) - 1


def test_a_drive_that_is_too_slow_drops_whole_shots_by_name(machine):
    run = machine.namespace("SLOW") + "/slow"
    ended = machine.record(run, shots=200, rate=100)
    assert ended["drops"]["sink_busy"] > 20, ended
    machine.proven(ended, run)
