"""The demonstration, and the bound of the pool on memory use."""

import subprocess
from pathlib import Path

import pytest

from common import PROGRAM, Probe, Progress, Recorder, Recording, check_balanced, check_samples, run, until, verify

POOL_MIB = 4
OTHER_MIB = 64  # program, HDF5, tables and scratch memory, in addition to the pool
SMALL = ("--samples", 500, "--gbps", 0.4)
PACKETS = 18  # per shot of 500 samples


def test_the_demo_prints_one_json_object_that_proves_the_run(tmp_path, loopback_netns):
    path = tmp_path / "demo.h5"
    done = run("demo", "--json", *SMALL, "--shots", 100, "--faults", 4e-3, "--out", path, netns=loopback_netns)
    proof = done.succeeded()
    assert proof["verified"] is True
    assert proof["shots_sent"] == 200 and proof["shots_recorded"] == 200 and proof["drops"] == {}, proof
    assert proof["shots_partial"] == 200 - proof["shots_complete"] > 0, "the demo must show losses"
    assert proof["receive_gbps"] > 0 and proof["write_gbps"] > 0, proof
    assert proof["injected"]["lost"] + proof["injected"]["corrupted"] >= proof["packets_missing"] > 0, proof
    assert proof["packets_compared"] == 200 * PACKETS - proof["packets_missing"], proof
    recording = Recording(path)
    check_balanced(proof, recording)
    assert check_samples(recording) == 100
    verify(path)


@pytest.mark.parametrize("framing", ["counted", "udp"])
def test_the_demo_works_in_every_framing(tmp_path, loopback_netns, framing):
    path = tmp_path / "demo.h5"
    # Plain UDP has no ICRC: there, only a shot's CRC detects corruption on loopback.
    flags = ["--framing", framing, "--shots", 50, "--faults", 4e-3 if framing == "counted" else 0]
    proof = run("demo", "--json", *SMALL, *flags, "--out", path, netns=loopback_netns).succeeded()
    assert proof["verified"] is True and proof["shots_recorded"] == 100, proof
    verify(path)


def test_the_demo_prints_a_table(tmp_path, loopback_netns):
    path = tmp_path / "demo.h5"
    done = run("demo", *SMALL, "--shots", 50, "--out", path, netns=loopback_netns)
    assert done.code == 0, done.stderr
    rows = dict(line.strip().rsplit("  ", 1) for line in done.stdout.splitlines())
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert rows["shots sent"] == rows["shots recorded"] == "100" and rows["verified"] == "yes", rows
    for name in ("shots partial", "received", "written", "shots dropped"):
        assert name in rows, rows


def test_a_demo_with_an_unwritable_path_fails_with_one_line(tmp_path, loopback_netns):
    message = run(
        "demo", "--json", "--shots", 10, "--out", tmp_path / "nowhere" / "x.h5", netns=loopback_netns
    ).refused()
    assert "nowhere" in message


def test_a_killed_demo_leaves_no_probe_process(tmp_path, loopback_netns):
    command = ["demo", "--shots", "2000", "--gbps", "0.5", "--out", str(tmp_path / "demo.h5")]
    prefix = ["nsenter", f"--net=/run/netns/{loopback_netns}"] if loopback_netns else []
    with subprocess.Popen([*prefix, PROGRAM, *command], stderr=subprocess.PIPE, text=True) as demo:
        assert "waits on" in demo.stderr.readline()
        children = [int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()]
        demo.kill()
        demo.stderr.read()
    assert len(children) == 1
    until(lambda: not Path(f"/proc/{children[0]}").exists(), what="the end of the demo's probe")


def test_memory_is_bounded_by_the_pool_and_does_not_grow(tmp_path):
    path = tmp_path / "run.h5"
    # Shots of one packet, so that there are many of them.
    flags = ["--rate-hz", 4000, "--samples", 8, "--capacity", 100_000, "--pool", f"{POOL_MIB}MiB", "--progress"]
    faults = ["--loss", 1e-3, "--corrupt", 1e-3, "--duplicate", 1e-3, "--reorder", 1e-3]
    with Probe(*faults) as probe, Recorder(probe, *flags, "--out", path) as recorder:
        progress, resident = Progress(recorder), []
        for shots in (8000, 24_000):
            progress.wait_for("shots_complete", shots)
            resident.append((recorder.status("VmRSS"), probe.status("VmRSS")))
        peak = recorder.status("VmHWM")
        ended = recorder.interrupt().succeeded()
        probe.report()
    (early, early_probe), (late, late_probe) = resident
    # Slots of the pool become resident when a slow drive needs them; the rest may grow by less than 33 bytes a shot.
    assert late - early < (POOL_MIB << 10) + 512, f"from {early} to {late} KiB in 16,000 shots"
    assert late_probe - early_probe < 1024, f"the probe from {early_probe} to {late_probe} KiB in 16,000 shots"
    assert peak < (POOL_MIB + OTHER_MIB) << 10, f"{peak} KiB"
    # A shared drive may be busy for a moment; the counters then report it.
    assert set(ended["drops"]) <= {"wire_gap", "sink_busy", "no_buffer"}, ended
    assert set(ended["packet_drops"]) <= {"bad_icrc", "duplicate", "late"}, ended
    check_balanced(ended)
    assert run("verify", path, "--json").succeeded()["verified"]
