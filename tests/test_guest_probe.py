"""A probe's whole path over hardware interfaces: emulated probe, cable, Soft-RoCE through libibverbs, NVMe.

Recorder, RDMA stack and drive are in a QEMU guest, the probe is at this machine's end of the cable, which loses
nothing: only injected losses occur, and the counters must match them exactly. The recording is then verified.
"""

import json
import subprocess
import sys

import pytest
from machine import HOST

from common import ROOT, WAIT_TIMEOUT_S, Probe, Recording, check_balanced, check_samples, verify

WHOLE_RUN = 2**32 - 1  # the stream number of counters of the whole run
SHAPE = ("--samples", 300)  # 96 channels
PACKETS = 11  # per shot, the last of them short
RATE = 40
SHOTS = 40
# Receives for all shots of a run are posted at its start: a guest that is not scheduled for a second loses no packet.
WINDOW = 80


class Run:
    """A recording in the guest from a probe on the host."""

    runs = 0

    def __init__(self, guest, *faults):
        Run.runs += 1
        self.guest, self.name = guest, f"run{Run.runs}.h5"
        flags = ("--links", 1, "--list-faults", *faults)
        self.probe = Probe(*flags, listen=f"{HOST}:{47910 + Run.runs}", through=guest.on_host())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.probe.__exit__()

    def spawn(self, *flags, transport="ibverbs:rxe0", rate=RATE):
        words = ["shotline", "record", "--probe", self.probe.address, "--transport", transport, "--links", 1]
        words += ["--out", f"/mnt/{self.name}", "--json", "--pool", "16MiB", *SHAPE, "--timeout-ms", 20_000]
        words += ["--window", WINDOW]
        words += ["--rate-hz", rate] if rate else []
        line = " ".join(map(str, [*words, *flags]))
        verify = f"shotline verify /mnt/{self.name}"
        return self.guest.spawn(f"{line} && {verify} >/tmp/verified && cp /mnt/{self.name} /share/")

    def end(self, job):
        """Returns the recorder's and the probe's reports, and the recording."""
        text = job.end().succeeded()
        ended = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        report = self.probe.report()
        path = self.guest.share / self.name
        verify(path)
        recording = Recording(path)
        check_balanced(ended, recording)
        check_samples(recording)
        assert ended["icrc"]["device"] >= ended["packets"] - sum(ended["packet_drops"].values()), ended
        return ended, report, recording


def faults_of(report, kind):
    """Returns (shot, packet) of every packet to which the probe applied this fault."""
    named = ((entry["fault"], entry["shot"], entry["packet"]) for entry in report.get("faults", []))
    return [
        (shot, packet)
        for fault, shot, packet in named
        if (fault if isinstance(fault, str) else next(iter(fault))) == kind
    ]


def test_shots_reach_the_drive_without_a_copy(guest):
    with Run(guest) as run:
        ended, report, recording = run.end(run.spawn("--shots", SHOTS))
    assert report["links"][0]["packets"] == ended["packets"] == SHOTS * PACKETS
    assert not recording.missing(0) and ended["packet_drops"] == {}
    assert (ended["shots_complete"], ended["copies_per_byte"]) == (SHOTS, 0.0), ended
    whole = recording.counters[WHOLE_RUN]
    assert whole["counter_rcvd_pkts"] >= ended["packets"], whole


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_injected_losses_are_exact_and_shifted_data_is_repaired(guest, seed):
    with Run(guest, "--loss", 0.01, "--corrupt", 0.005, "--duplicate", 0.01, "--reorder", 0.01, "--seed", seed) as run:
        ended, report, recording = run.end(run.spawn("--shots", 80))
    duplicated = faults_of(report, "duplicated")
    corrupted = faults_of(report, "corrupted")  # the device delivers no packet whose ICRC is wrong
    missing = set(faults_of(report, "lost")) | {key for key in corrupted if key not in duplicated}
    assert missing and recording.missing(0) == missing, (recording.missing(0), missing)
    assert ended["copies_per_byte"] > 0.0, "payloads at wrong offsets must have been moved"
    assert set(ended["packet_drops"]) <= {"duplicate", "late"}, ended
    assert ended["packets"] == report["links"][0]["packets"] - len(corrupted), (ended, report)


@pytest.mark.parametrize("kind, cause", [("key", None), ("qp", "unknown_stream"), ("long", None)])
def test_an_attacker_on_the_cable_changes_nothing(guest, kind, cause):
    count = 10
    command = guest.on_host(sys.executable, ROOT / "tests" / "attacker.py", "cable", kind, count)
    with Run(guest) as run, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout.readline() == "ready\n"
        ended, report, recording = run.end(run.spawn("--shots", SHOTS))
        assert attacker.communicate(timeout=WAIT_TIMEOUT_S)[0] == f"{count}\n"
    assert ended["packet_drops"] == ({cause: count} if cause else {}), ended
    sent, missing = report["links"][0]["packets"], len(recording.missing(0))
    injected = count if cause else 0
    assert sent + injected - ended["packets"] == missing, "missing packets must be counted exactly"
    errors = ended.get("device_drops", {}).get("queue_pair_errors", 0)
    if kind == "long":  # packets that arrive before the queue pair is ready again are lost
        assert 1 <= errors <= count and ended["shots_complete"] > 0, ended
    else:
        assert (errors, missing, ended["shots_complete"]) == (0, 0, SHOTS), ended


def test_a_loss_in_counted_framing_hides_the_whole_shot(guest):
    with Run(guest, "--loss", 0.004, "--seed", 5) as run:
        ended, report, recording = run.end(run.spawn("--shots", 80, "--framing", "counted"))
    lost = {shot for shot, _ in faults_of(report, "lost")}
    incomplete = set(range(80)) - {
        number for row, number in zip(recording.presence(0), recording.numbers(), strict=True) if row.all()
    }
    assert lost and lost <= incomplete, (lost, incomplete)
    for row, number in zip(recording.presence(0), recording.numbers(), strict=True):
        assert row.all() or not row.any(), f"shot {number} shows only some of its packets"
    assert ended["packet_drops"]["unplaced"] > 0
    assert ended["shots_complete"] >= 80 - 2 * (len(lost) + 2), ended


def test_unusable_devices_are_refused_with_a_remedy(guest):
    with Run(guest) as run:
        for flags, words in [
            ({"transport": "ibverbs:mlx5_9"}, ["mlx5_9", "rxe0"]),
            ({"transport": "ibverbs:rxe0,gid=99"}, ["GID 99", "10.77.0.2"]),
            ({"transport": "ibverbs:rxe0,port=2"}, ["port 2"]),
        ]:
            done = run.spawn("--shots", 1, **flags).end()
            assert done.code == 1 and all(word in done.output for word in words), done.output
        done = run.spawn("--shots", 1, "--framing", "udp").end()
        assert done.code == 1 and "datagrams" in done.output, done.output
        done = run.spawn("--shots", 1, "--pool-memory", "emulated").end()
        assert done.code == 1 and "expected --pool-memory heap, huge, memfd or file=PATH" in done.output, done.output


def test_the_doctor_finds_the_device_with_the_address(guest):
    with Run(guest) as run:
        text = guest.run(f"shotline doctor --probe {run.probe.address} --out /mnt/x.h5 --json").output
    report = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    check = next(check for check in report["checks"] if check["name"] == "RDMA devices")
    assert check["measured"]["devices"] == ["rxe0"] and "--transport ibverbs:rxe0" in check["found"], check
