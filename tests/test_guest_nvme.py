"""Recordings on raw NVMe namespaces, by Linux's own driver in a QEMU guest: no file system, no block layer.

Everything that is recorded is fetched as a file and read by h5py here. The guest has drives of every kind: with blocks
of 512 and of 4096 bytes, with short commands, with partitions, with a file system, one whose commands fail, a slow one,
and one for a power cut.
"""

import json

import pytest
from guest_setup import MIB, PARTITION, SECTOR, table

from common import Recording, check_balanced, check_samples, until, verify

SHAPE = "--links 1 --channels 16 --samples 2700"
SLOT = 65_536  # per shot: 64,800 bytes of samples and a record
RATE = 40  # shots a second that the guest sustains
SHOTS = 15


class Machine:
    """A guest, and operations on its drives."""

    def __init__(self, guest):
        self.guest, self.numbers, self.runs = guest, guest.numbers, 0

    def namespace(self, serial):
        return f"nvme:/dev/ng{self.numbers[serial]}n1"

    def block(self, serial):
        return f"/dev/nvme{self.numbers[serial]}n1"

    def spawn(self, script):
        return self.guest.spawn(script)

    def run(self, script):
        return self.guest.run(script)

    def recording(self, out, flags="", pool="4MiB"):
        """Returns a script that records from an emulated probe in the guest itself."""
        self.runs += 1
        port = 48910 + self.runs
        return f"""
shotline emulate probe --listen [::1]:{port} {SHAPE} 2>/tmp/probe{port} &
probe=$!
until grep -q waits /tmp/probe{port}; do sleep 0.02; done
shotline record --probe [::1]:{port} --bind [::1]:0 --samples 2700 --pool {pool} --timeout-ms 20000 --out {out} {flags} &
echo $! >/tmp/recorder
wait $!
code=$?
kill $probe 2>/dev/null
exit $code
"""

    def record(self, out, shots=SHOTS, rate=RATE, flags="", pool="4MiB"):
        """Returns the summary of a run."""
        script = self.recording(out, f"--shots {shots} --rate-hz {rate} --json {flags}", pool)
        return json.loads(self.run(script).succeeded().splitlines()[-1])

    def refused(self, out, flags=""):
        """Returns the reason for a refusal."""
        done = self.run(f"shotline record --probe [::1]:47910 --out {out} --shots 5 {flags}")
        assert done.code == 1 and done.output.startswith("shotline: "), done.output
        return done.output

    def shotline(self, *words):
        return self.run("shotline " + " ".join(map(str, words))).succeeded()

    def json(self, *words):
        return json.loads(self.shotline(*words, "--json"))

    def fetched(self, run):
        """Returns a run as a file of this machine."""
        name = f"run{self.runs}.h5"
        self.shotline("export", run, f"/tmp/{name}", "--force")
        self.run(f"cp /tmp/{name} /share/{name} && rm /tmp/{name}").succeeded()
        return self.guest.share / name

    def check_valid(self, ended, run):
        """Verifies a finished run, there and here."""
        assert self.json("verify", run)["verified"]
        path = self.fetched(run)
        verify(path)
        recording = Recording(path)
        check_balanced(ended, recording)
        check_samples(recording)
        return recording


@pytest.fixture(scope="module")
def machine(guest):
    return Machine(guest)


def rows(job):
    """Returns how many rows a recorder with --progress has reported."""
    reports = [line for line in job.output().splitlines() if line.startswith("{") and line.endswith("}")]
    return max([json.loads(line)["rows"] for line in reports], default=0)


@pytest.mark.parametrize(("serial", "block", "command"), [("PLAIN", 512, 128 << 10), ("LARGE", 4096, 8 << 10)])
def test_a_run_on_an_nvme_namespace_is_fetched_as_a_file(machine, serial, block, command):
    read_statistics = f"cat /sys/class/block/nvme{machine.numbers[serial]}n1/stat"
    before = machine.run(read_statistics).succeeded()
    ended = machine.record(f"{machine.namespace(serial)}/first")
    assert machine.run(read_statistics).succeeded() == before, "the block layer must not have been used"
    assert ended["file"] == f"{machine.namespace(serial)}/first"
    assert not [warning for warning in ended["warnings"] if "register" in warning], ended
    device = machine.json("inspect", machine.namespace(serial))
    assert (device["serial"], device["block_bytes"], device["command_bytes"]) == (serial, block, command), device
    assert [run["name"] for run in device["runs"]] == ["first"] and device["runs"][0]["at"] == MIB
    assert device["runs"][0]["bytes"] < (SHOTS + 8) * SLOT, "the run must be no larger than needed"
    machine.check_valid(ended, f"{machine.namespace(serial)}/first")


def test_compressed_and_durable_runs_share_a_namespace(machine):
    namespace = machine.namespace("PLAIN")
    for name, flags in (("lz4", "--compress lz4"), ("durable", "--durable")):
        ended = machine.record(f"{namespace}/{name}", flags=flags)
        machine.check_valid(ended, f"{namespace}/{name}")


def test_a_killed_recorder_leaves_a_recoverable_run(machine):
    run = machine.namespace("PLAIN") + "/killed"
    script = machine.recording(run, f"--seconds 600 --capacity 1000 --rate-hz {RATE} --progress")
    job = machine.spawn(script)
    until(lambda: rows(job) >= SHOTS, what=f"{SHOTS} rows")
    machine.run("kill -9 $(pidof shotline)")
    job.end()
    broken = machine.json("inspect", run)
    assert not broken["finished"] and broken["allocated_rows"] == 1000 and broken["rows"] > 0, broken
    report = machine.json("recover", run)
    assert report["rows"] >= broken["rows"] and report["lost"] == 0, report
    recording = Recording(machine.fetched(run))
    assert check_samples(recording) == report["rows"]
    assert machine.json("verify", run)["verified"]


def test_durable_shots_survive_a_power_cut(machine, drives):
    """Resets the drive to its contents in the middle of a run, copied while the whole guest was stopped.

    (By then QEMU had passed all writes of the guest on to this machine's kernel. tests/test_crash.py tests the timing
    of flushes, on files.)
    """
    run = machine.namespace("POWER") + "/cut"
    flags = f"--seconds 600 --capacity 500 --rate-hz {RATE} --durable --progress"
    job = machine.spawn(machine.recording(run, flags))
    durable = until(lambda: rows(job) >= SHOTS and rows(job), what=f"{SHOTS} durable rows")
    contents = machine.guest.power_failure_image(drives["POWER"])
    machine.run("kill -INT $(cat /tmp/recorder)").succeeded()
    job.end().succeeded()
    with open(drives["POWER"].file, "r+b") as file:
        file.write(contents)
    before = machine.json("inspect", run)
    assert before["rows"] >= durable and not before["finished"], (before, durable)
    report = machine.json("recover", run)
    assert report["rows"] >= before["rows"] and report["lost"] == 0, report
    recording = Recording(machine.fetched(run))
    assert check_samples(recording) == report["rows"] >= durable


def test_a_file_system_is_kept_until_its_serial_number_is_given(machine, drives):
    namespace = machine.namespace("EXT4")
    before = drives["EXT4"].file.read_bytes()
    assert "ext4" in machine.refused(namespace) and "--force --serial EXT4" in machine.refused(namespace, "--force")
    assert "serial number EXT4, not PLAIN" in machine.refused(namespace, "--force --serial PLAIN")
    assert "ext4" in machine.refused(f"block:{machine.block('EXT4')}")
    assert drives["EXT4"].file.read_bytes() == before
    ended = machine.record(namespace, shots=5, flags="--force --serial EXT4")
    machine.check_valid(ended, f"{namespace}/run-1")


def test_a_drive_in_use_is_refused_even_with_force(machine):
    machine.run(f"mkswap {machine.block('SWAP')} && swapon {machine.block('SWAP')}").succeeded()
    for out in (machine.namespace("SWAP"), f"block:{machine.block('SWAP')}"):
        assert "is in use" in machine.refused(out, "--force --serial SWAP")
    machine.run(f"swapoff {machine.block('SWAP')}").succeeded()
    assert "swap space" in machine.refused(machine.namespace("SWAP"))


def test_only_the_given_partition_is_written(machine, drives):
    file = drives["PARTED"].file
    assert "MBR" in machine.refused(machine.namespace("PARTED"))
    partition = machine.block("PARTED") + "p1"
    ended = machine.record(f"nvme:{partition}/commands")
    machine.check_valid(ended, f"nvme:{partition}/commands")
    # the same partition, through the block layer
    ended = machine.record(f"block:{partition}/direct")
    machine.check_valid(ended, f"block:{partition}/direct")
    names = [[run["name"] for run in machine.json("inspect", how + partition)["runs"]] for how in ("nvme:", "block:")]
    assert names == [["commands", "direct"]] * 2
    found = file.read_bytes()
    assert found[: len(table(PARTITION))] == table(PARTITION)
    assert not any(found[SECTOR : PARTITION.start]) and not any(found[PARTITION.stop :])
    assert found[PARTITION.start :].startswith(b"SHOTLINE")


def test_a_full_namespace_is_refused_with_its_free_space(machine):
    namespace = machine.namespace("FULL")
    done = machine.run(machine.recording(namespace, "--shots 1000 --quiet"))
    assert done.code == 1 and "the largest free extent has 15728640" in done.output, done.output
    machine.check_valid(machine.record(f"{namespace}/a", shots=30), f"{namespace}/a")
    done = machine.run(machine.recording(f"{namespace}/b", "--shots 200 --quiet"))
    assert done.code == 1 and "for 200 rows" in done.output, done.output
    ended = machine.record(f"{namespace}/a", shots=15, flags="--force --recycle")
    machine.check_valid(ended, f"{namespace}/a")


def test_a_failed_write_loses_its_shot_and_the_run_continues(machine):
    run = machine.namespace("FAULTY") + "/faults"
    ended = machine.record(run, shots=40)
    assert ended["drops"]["sink_error"] == 1, ended
    recording = machine.check_valid(ended, run)
    assert list(recording.tables[0]["sink_error"]).count(0) == len(recording.tables[0]) - 1


def test_a_slow_drive_drops_whole_named_shots(machine):
    run = machine.namespace("SLOW") + "/slow"
    ended = machine.record(run, shots=150, rate=200, pool="3MiB")
    assert ended["drops"]["sink_busy"] > 20, ended
    machine.check_valid(ended, run)
