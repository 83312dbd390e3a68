"""Failures around a run leave one clear message or count, and a valid file."""

import ctypes
import os
import random
import re
import resource
import signal
import subprocess
import time

import h5py
import pytest
from file_state import visible_rows, wait_for_rows
from forge import Eavesdropper, Forger, Target
from requirements import need_root

from common import (
    LOST,
    PROGRAM,
    WAIT_TIMEOUT_S,
    Probe,
    Process,
    Progress,
    Recorder,
    Recording,
    check_balanced,
    check_samples,
    command,
    record,
    run,
    until,
    verify,
)

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
SAMPLES = 100
SLOT, BYTES, PACKETS = 16_384, 14_464, 4  # per shot of this many samples
# The pool holds five seconds at this rate, and no shot times out when its probe is not scheduled.
LOW_RATE = ("--rate-hz", 200, "--samples", SAMPLES, "--timeout-ms", 60_000)
ENDLESS = (*LOW_RATE, "--capacity", 5000)


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    """Recorders whose probe was killed, which they detect after seconds: one has recorded, the other has not started.

    Both timeouts pass together, while the other tests run.
    """
    path = tmp_path_factory.mktemp("silent") / "run.h5"
    with Probe() as probe, Recorder(probe, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, 30)
        probe.signal(signal.SIGKILL)
        probe.popen.wait()
        with Recorder(probe, "--shots", 10, "--out", path.with_name("other.h5")) as other:
            yield probe.address, (path, recorder), other


@pytest.fixture(scope="module", autouse=True)
def start_silent_early(silent):
    """Starts the silent recorders before the first test, so that they have ended when their own tests run."""


def check_complete(recording, shots_with_faults=()):
    """Checks that only the given shots lack packets, and that every sample is right."""
    for link in range(len(recording.links)):
        missing = {shot for shot, _ in recording.missing(link)}
        assert missing <= set(shots_with_faults), sorted(missing)[:10]
    return check_samples(recording)


# --- ends --------------------------------------------------------------------------------------------


MOMENTS = [0, *(pytest.param(moment, marks=pytest.mark.long) for moment in range(1, 6))]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_recorder_leaves_a_file_with_only_valid_shots(tmp_path, moment):
    path = tmp_path / "run.h5"
    least = random.Random(moment).randint(1, 200)
    faults = ["--loss", 0.01, "--reorder", 0.01, "--seed", moment]
    with Probe(*faults) as probe, Recorder(probe, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, least)
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    rows = check_samples(Recording(path))
    assert rows >= least
    verdict = verify(path, finished=False)
    assert not verdict["finished"] and {link["rows"] for link in verdict["links"]} == {rows}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_recorder_killed_under_load_accounts_for_every_number(tmp_path, moment):
    path = tmp_path / "run.h5"
    flags = ["--gbps", 1, "--samples", 8, "--capacity", 20_000, "--out", path]  # one packet is one shot
    with Probe("--loss", 0.01, "--seed", moment) as probe, Recorder(probe, *flags) as recorder:
        wait_for_rows(path, random.Random(moment).randint(1, 3000))
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    assert run("verify", path, "--json").succeeded()["verified"]


def test_a_recorder_killed_before_the_first_shot_leaves_a_file(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--external-trigger", "--samples", 500, "--capacity", 100, "--out", path]
    with Probe() as probe, Recorder(probe, *flags) as recorder:
        until(path.exists, what="the file")
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    assert visible_rows(path) == 0
    verify(path, finished=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_recorder_stores_everything_received(tmp_path, number):
    path = tmp_path / "run.h5"
    with Probe() as probe, Recorder(probe, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, 50)
        recorder.signal(number)
        ended = recorder.end().succeeded()
        report = probe.report()
    assert ended["shots_sent"] == 2 * report["next_shot"] == ended["shots_complete"] >= 100, ended
    recording = Recording(path)
    assert recording.numbers() == list(range(report["next_shot"]))
    check_balanced(ended, recording)
    check_complete(recording)
    verify(path)
    assert path.stat().st_size < 1.2 * len(recording.numbers()) * 2 * SLOT + (4 << 20), "unused space was not released"


def test_the_first_signal_ends_in_order_and_the_second_at_once(tmp_path):
    for signals, code in ([signal.SIGTERM], 1), ([signal.SIGINT, signal.SIGTERM], 130):
        path = tmp_path / f"{len(signals)}.h5"
        with Process("record", "--listen", "127.0.0.1:0", "--framing", "udp", "--out", path) as recorder:
            until(path.exists, what="the file")
            # Both are sent while the process is stopped, so that it receives them together.
            for number in (signal.SIGSTOP, *signals, signal.SIGCONT):
                recorder.signal(number)
            ended = recorder.end()
        assert ended.code == code, ended
        assert ("no shot was received" in ended.stderr) == (code == 1), "only an orderly end reports an empty run"


def test_a_run_with_a_duration_ends_on_time(tmp_path):
    path = tmp_path / "run.h5"
    seconds = 3  # longer than a machine stalls, so that shots arrive
    with Probe() as probe:
        start = time.monotonic()
        ended = record(probe, *ENDLESS, "--seconds", seconds, "--out", path).succeeded()
        assert time.monotonic() - start > seconds
    assert 0 < ended["shots_complete"] == ended["shots_sent"], ended
    verify(path)


def test_a_full_file_ends_the_run_and_names_later_shots(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        end = record(probe, *LOW_RATE, "--capacity", 40, "--seconds", 1000, "--out", path)
    ended = end.cut_off("full")
    assert re.search(r"after 0?\.?\d+(\.\d+)? of 1000 s: the file is full", end.stderr), end.stderr
    assert ended["limited_by"] == "the space for the recording", ended
    assert ended["shots_complete"] == 80 and set(ended["drops"]) <= {"sink_full"}, ended
    recording = Recording(path)
    assert recording.numbers() == list(range(40))
    check_balanced(ended, recording)
    verify(path)


def test_a_new_recorder_takes_over_from_a_killed_one(tmp_path):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    with Probe() as probe:
        with Recorder(probe, *ENDLESS, "--out", first) as recorder:
            wait_for_rows(first, 20)
            recorder.signal(signal.SIGKILL)
            recorder.popen.wait()
        message = record(probe, *ENDLESS, "--out", second).refused()
        assert "another receiver" in message and "take over" in message, message
        assert not second.exists(), "a refused run must leave no file"
        ended = record(probe, *ENDLESS, "--shots", 50, "--take-over", "--out", second).succeeded()
    assert ended["shots_complete"] == 100 and not ended["drops"], ended
    recording = Recording(second)
    assert recording.numbers()[0] > Recording(first).numbers()[-1]
    check_complete(recording)
    verify(second)
    verify(first, finished=False)


def test_a_stopped_recorder_names_the_shots_it_missed(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--rate-hz", 1000, "--samples", SAMPLES, "--capacity", 20_000, "--receive-buffer", "1MiB", "--out", path]
    with Probe() as probe, Recorder(probe, *flags) as recorder:
        wait_for_rows(path, 50)
        recorder.signal(signal.SIGSTOP)
        # The buffer holds some hundreds of packets, and 800 shots of two links have 6400.
        awake = next_shot(probe)
        until(lambda: next_shot(probe) > awake + 800, what="shots sent while the recorder is stopped")
        recorder.signal(signal.SIGCONT)
        wait_for_rows(path, visible_rows(path) + 100)
        ended = recorder.interrupt().succeeded()
        probe.report()
    assert ended["packets_missing"] > 100 or ended["drops"].get("wire_gap", 0) > 100, ended
    # The backlog after it continues may exceed what the drive sustains.
    assert set(ended["drops"]) <= {"wire_gap", "no_buffer", "sink_busy"}, ended
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording)
    verify(path)


def next_shot(probe):
    return int(run("probe", "status", probe.address, "--json").succeeded()["next_shot"])


# --- drives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_a_stalled_drive_drops_named_shots_by_policy(drive, policy):
    folder = drive(100)
    path = folder / "run.h5"
    flags = ["--rate-hz", 400, "--samples", SAMPLES, "--capacity", 2000, "--policy", policy, "--in-flight", 4]
    flags += ["--pool", "8MiB", "--timeout-ms", 60_000, "--progress"]
    with Probe() as probe, Recorder(probe, *flags, "--out", path) as recorder:
        wait_for_rows(path, 50)
        command("fsfreeze", "--freeze", folder)
        stalled_at = visible_rows(path)
        progress = Progress(recorder)
        progress.wait_for("shots_dropped", 300)
        command("fsfreeze", "--unfreeze", folder)
        wait_for_rows(path, stalled_at + 300)
        ended = recorder.interrupt().succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    assert ended["drops"].get("sink_busy", 0) >= 300 and set(ended["drops"]) == {"sink_busy"}, ended
    assert ended["packets_missing"] == 0, "the network must not have lost anything"
    lost = sorted({n for _, cause, first, count in recording.losses for n in range(first, first + count)})
    assert {cause for _, cause, _, _ in recording.losses} == {"sink_busy"}
    assert 2 * len(lost) == ended["drops"]["sink_busy"], lost
    # The shots dropped during the stall have consecutive numbers. A busy machine may lose others before and after.
    stalled = max(consecutive_runs(lost), key=len)
    assert len(stalled) > 100, lost
    all_numbers = sorted(set(recording.numbers()) | set(lost))
    assert all_numbers == list(range(ended["shots_sent"] // 2)), "every shot must be in a row or in /losses"
    verify(path)
    check_samples(recording)
    # The pool holds 8 MiB / (2 x 16 KiB) = 256 events: drop-newest kept the first of the stall, drop-oldest the last.
    assert (stalled[0] - stalled_at > 80) == (policy == "drop-newest"), (stalled_at, stalled[0], stalled[-1])


def consecutive_runs(numbers):
    """Splits ascending numbers where one is missing."""
    found = [[numbers[0]]]
    for number in numbers[1:]:
        if number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def test_a_drive_without_space_is_refused_before_the_run(drive):
    folder = drive(8)
    path = folder / "run.h5"
    with Probe() as probe:
        message = record(probe, "--shots", 1000, "--out", path).refused()
        status = probe.report()
    assert "needs" in message and "free" in message and str(path) in message, message
    assert not list(folder.glob("run*")), "no file may be left"
    assert status["next_shot"] == 0, "the probe must not have been started"


def test_a_full_tmpfs_is_refused_before_the_run(tmp_path):
    need_root("mount")
    folder = tmp_path / "small"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=8m", "none", folder)
    try:
        with Probe() as probe:
            message = record(probe, "--shots", 1000, "--out", folder / "run.h5").refused()
            assert "needs" in message and "free" in message, message
            left = list(folder.iterdir())
            assert not left, left
    finally:
        command("umount", folder)


def test_a_recording_on_tmpfs_works(tmp_path):
    need_root("mount")
    folder = tmp_path / "memory"
    folder.mkdir()
    command("mount", "-t", "tmpfs", "-o", "size=64m", "none", folder)
    try:
        path = folder / "run.h5"
        with Probe() as probe:
            ended = record(probe, "--shots", 50, *LOW_RATE, "--out", path).succeeded()
        assert ended["shots_complete"] == 100, ended
        verify(path)
    finally:
        command("umount", folder)


def test_failed_writes_are_counted_and_the_file_stays_valid(tmp_path):
    path = tmp_path / "run.h5"

    def ignore():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    flags = [*ENDLESS, "--shots", 150, "--out", path]
    with Probe() as probe, Recorder(probe, *flags, preexec_fn=ignore, restore_signals=False) as recorder:
        wait_for_rows(path, 50)
        # From now on no byte can be written beyond a quarter of the laid-out space.
        limit = path.stat().st_size // 4
        resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (limit, limit))
        end = recorder.end()
    recording = Recording(path)
    check_samples(recording)
    verdict = verify(path, finished=False)
    if end.code == 0:
        ended = end.json
        assert ended["drops"]["sink_error"] > 0, ended
        check_balanced(ended, recording)
        lost = sum(int(entry["state"] == LOST) for table in recording.tables for entry in table)
        assert lost == ended["drops"]["sink_error"], ended
    else:
        ended = end.cut_off("recorder-failed")
        assert "write" in ended["ended"]["error"] and ended["shots_recorded"] is None, ended
        assert ended["rows"] == len(recording.numbers()) >= 50, ended
        seen = ended["rows"] * len(recording.links) - ended["shots_partial"]
        assert ended["shots_complete"] == seen and ended["drops"]["sink_error"] > 0, ended
        assert sum(link["complete"] for link in verdict["links"]) >= 100


# --- refusals ----------------------------------------------------------------------------------------


def test_an_existing_file_is_replaced_only_with_force(tmp_path):
    path = tmp_path / "run.h5"
    path.write_text("other data")
    with Probe() as probe:
        flags = ["--shots", 10, "--samples", 100, "--rate-hz", 1000, "--out", path]
        message = record(probe, *flags).refused()
        assert "exists" in message and "--force" in message, message
        assert path.read_text() == "other data"
        record(probe, *flags, "--force").succeeded()
    verify(path)


def test_a_recording_in_progress_is_not_replaced_even_with_force(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe, Probe() as other, Recorder(probe, *ENDLESS, "--out", path) as recorder:
        wait_for_rows(path, 5)
        message = record(other, *ENDLESS, "--force", "--out", path).refused()
        assert "in use" in message, message
        ended = recorder.interrupt().succeeded()
    assert ended["shots_complete"] == ended["shots_sent"], ended
    verify(path)


def test_a_missing_folder_is_one_clear_error(tmp_path):
    with Probe() as probe:
        message = record(probe, "--shots", 10, "--out", tmp_path / "nowhere" / "run.h5").refused()
    assert "nowhere" in message and "directory" in message, message


def test_a_folder_without_permission_is_one_clear_error(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)

    def obey_permissions():
        # Without this capability root, too, obeys file permissions.
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)

    with Probe() as probe:
        message = record(probe, "--shots", 10, "--out", folder / "run.h5", preexec_fn=obey_permissions).refused()
    assert "ermission denied" in message and str(folder) in message, message


def test_more_samples_than_the_probe_has_are_refused(tmp_path):
    with Probe("--samples", 1000) as probe:
        message = record(probe, "--shots", 10, "--samples", 1001, "--out", tmp_path / "run.h5").refused()
    assert "from 1 to 1000, found 1001" in message, message
    assert not (tmp_path / "run.h5").exists()


def test_a_port_in_use_is_one_clear_error(tmp_path):
    path = tmp_path / "run.h5"
    with (
        Probe() as probe,
        Probe() as other,
        Eavesdropper(probe) as proxy,
        Recorder(proxy, *ENDLESS, "--out", path) as recorder,
    ):
        wait_for_rows(path, 5)
        port = Target(proxy.configured[0]).port
        flags = ["--shots", 10, "--out", tmp_path / "other.h5"]
        message = record(other, *flags, bind=f"[::1]:{port}").refused()
        assert str(port) in message and "in use" in message.lower(), message
        assert not (tmp_path / "other.h5").exists()
        recorder.interrupt().succeeded()
    verify(path)


INVALID_SETTINGS = [
    (["--links", "3"], ["2 links", "--links from 1 to 2", "found 3"]),
    (["--gbps=-1"], ["--gbps above 0", "found -1"]),
    (["--gbps", "1e9"], ["0.001 to 1e9 shots/s", "--gbps 1000000000"]),
    (["--pool", "1MiB"], ["--pool"]),
    (["--rate-hz", "10", "--gbps", "1"], ["--rate-hz", "--gbps"]),
    (["--rate-hz", "nan"], ["NaN"]),
    (["--policy", "block"], ["block", "credits"]),
    (["--samples", "0"], ["sample"]),
    (["--shots", "0"], ["--shots from 1", "found 0"]),
    (["--in-flight", "0"], ["--in-flight from 1 to 4096"]),
    (["--cpu", "1000"], ["processor 1000", "does not exist"]),
]


def test_impossible_settings_are_refused(tmp_path):
    with Probe() as probe:
        for flags, words in INVALID_SETTINGS:
            count = () if "--shots" in flags else ("--shots", 10)
            message = record(probe, *count, "--out", tmp_path / "run.h5", *flags).refused()
            assert all(word in message for word in words), (flags, message)
            assert not (tmp_path / "run.h5").exists(), flags


@pytest.mark.parametrize("ppb", [-1_000_001, 1_000_001])
def test_a_probes_clock_drifts_by_a_thousandth_at_most(ppb):
    ended = run("emulate", "probe", "--listen", "[::1]:0", "--clock-drift-ppb", ppb)
    assert ended.code == 2 and f"{ppb} is not in -1000000..=1000000" in ended.stderr, ended.stderr


def test_too_many_links_are_refused_with_the_allowed_range():
    with Probe("--links", 9, "--channels", 1, "--samples", 100) as probe:
        message = record(probe, "--discard", "--shots", 1).refused()
        assert "9 links" in message and "--links from 1 to 8, found 9" in message, message


def test_flags_that_contradict_the_probes_samples_are_refused(tmp_path):
    with Probe("--links", 1, "--channels", 16, "--samples", 100) as probe:
        right = [
            "--channels",
            16,
            "--bits",
            12,
            "--sample-rate-hz",
            40_000_000,
            "--sample-format",
            "packed12_msb_first",
        ]
        for flag, other in zip(right[::2], [17, 11, 40_000_001, "int16_le"], strict=True):
            message = record(probe, "--shots", 1, "--discard", flag, other).refused()
            assert "the probe has 16 channels of 12 bits" in message and flag in message, message
        assert record(probe, "--shots", 1, "--discard", *right).succeeded()["shots_complete"] == 1


def test_a_configuration_file_is_applied_and_errors_are_named(tmp_path):
    path, settings = tmp_path / "run.h5", tmp_path / "run.toml"
    settings.write_text(f'out = "{path}"\nshots = 15\nsamples = 200\nrate_hz = 1000\n')
    with Probe() as probe:
        ended = record(probe, "--config", settings).succeeded()
        assert ended["shots_complete"] == 30, ended
        settings.write_text("shots = 15\nsampels = 200\n")
        end = record(probe, "--config", settings)
    assert end.code == 1 and "sampels" in end.stderr and "line 2" in end.stderr, end.stderr
    verify(path)


def test_a_file_that_is_no_recording_is_not_verified(tmp_path):
    path = tmp_path / "run.h5"
    path.write_bytes(os.urandom(10_000))
    assert str(path) in run("verify", path).refused()
    assert "nowhere" in run("verify", tmp_path / "nowhere.h5").refused()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    assert "format" in run("verify", tmp_path / "other.h5").refused()


# --- a second sender ---------------------------------------------------------------------------------


def test_a_second_sender_changes_only_the_counters(tmp_path):
    path = tmp_path / "run.h5"
    random_bytes = random.Random(5).randbytes
    rounds = 60
    with Probe() as probe, Eavesdropper(probe) as proxy, Recorder(proxy, *ENDLESS, "--out", path) as recorder:
        assert proxy.started.wait(WAIT_TIMEOUT_S)
        links = [Target(proxy.configured[link]) for link in (0, 1)]
        with Forger(links[0].port) as forger:
            for number in range(rounds):
                link = links[number % 2]
                # Correct in everything but the address, for past, current and future shots.
                wait_for_rows(path, number // 2)
                forger.roce(link.qp, link.q_key, number, number % (PACKETS - 1))
                forger.roce(link.qp, link.q_key, number + 100_000, 0)
                forger.roce(link.qp, link.q_key ^ 1, number, 0)
                forger.roce(link.qp ^ 1, link.q_key, number, 0)
                forger.roce(0xFFFFFF, 0, number, 4095, payload=b"")
                forger.roce(link.qp, link.q_key, number, 0, icrc=1)
                forger.roce(link.qp, link.q_key, number, PACKETS - 1, payload=random_bytes(9000), icrc=7)
                forger.raw(random_bytes(4124))
                forger.raw(random_bytes(60_000))
                forger.raw(random_bytes(30))
                forger.raw(random_bytes(number % 16))
                forger.raw(b"")
        ended = interrupt_when_drained(path, recorder)
    assert ended["shots_sent"] == ended["shots_complete"] and not ended["drops"], ended
    assert ended["packets"] == ended["shots_sent"] * PACKETS + 12 * rounds, "every forged packet must be counted"
    drops = ended["packet_drops"]
    assert drops["unknown_stream"] == 5 * rounds, drops
    assert drops["bad_icrc"] + drops["malformed"] == 7 * rounds, drops
    assert set(drops) == {"unknown_stream", "bad_icrc", "malformed"}, drops
    recording = Recording(path)
    check_balanced(ended, recording)
    check_complete(recording)
    verify(path)


def interrupt_when_drained(path, recorder):
    """Interrupts a recorder once 40 later shots are in the file, so that it has read what is in its socket now."""
    wait_for_rows(path, visible_rows(path) + 40)
    return recorder.interrupt().succeeded()


def test_plain_udp_from_a_second_sender_changes_only_counters(tmp_path):
    path = tmp_path / "run.h5"
    rounds = 50
    flags = (*ENDLESS, "--framing", "udp", "--out", path)
    with Probe() as probe, Eavesdropper(probe) as proxy, Recorder(proxy, *flags) as recorder:
        assert proxy.started.wait(WAIT_TIMEOUT_S)
        with Forger(Target(proxy.configured[0]).port) as forger:
            for number in range(rounds):
                wait_for_rows(path, number // 2)
                for stream in (0, 1, 7):
                    forger.plain(stream, number, 0, shot_bytes=BYTES)
                forger.raw(b"SHPK" + bytes(number % 28))
                forger.raw(b"")
        ended = interrupt_when_drained(path, recorder)
    assert ended["shots_complete"] == ended["shots_sent"] and not ended["drops"], ended
    assert ended["packets"] == ended["shots_sent"] * PACKETS + 5 * rounds
    assert ended["packet_drops"] == {"unknown_stream": 3 * rounds, "malformed": 2 * rounds}, ended
    check_complete(Recording(path))
    verify(path)


def test_a_non_regular_file_is_not_replaced_even_with_force(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with Probe() as probe:
        for name in ("fifo", "link"):
            error = record(probe, "--out", tmp_path / name, "--force", "--shots", 1).refused()
            assert "not a regular file" in error and name in error
    assert (tmp_path / "fifo").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_recorder_ends_with_a_warning_when_its_probe_is_taken(tmp_path):
    with Probe() as probe, Recorder(probe, *ENDLESS, "--out", tmp_path / "first.h5") as first:
        wait_for_rows(tmp_path / "first.h5", 20)
        flags = (*LOW_RATE, "--shots", 50, "--take-over", "--out", tmp_path / "second.h5")
        second = record(probe, *flags).succeeded()
        ended = first.end().cut_off("taken-over")
    assert second["shots_complete"] == 100
    assert any("taken over the probe" in warning for warning in ended["warnings"]), ended
    assert not ended["drops"] and ended["packets_missing"] == 0, "the other recorder's shots are not losses of this one"
    verify(tmp_path / "first.h5")
    verify(tmp_path / "second.h5")


def test_a_full_disk_at_standard_output_is_one_clear_error():
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [PROGRAM, "plan"], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=WAIT_TIMEOUT_S
        )
    assert ended.returncode == 1 and ended.stderr.startswith("shotline: cannot print on standard output"), ended
    assert len(ended.stderr.splitlines()) == 1


# --- probes that fall silent -------------------------------------------------------------------------


def test_a_killed_probe_ends_the_run_with_a_valid_file(silent):
    _, (path, recorder), _ = silent
    ended = recorder.end().cut_off("probe-lost")
    assert ended["shots_sent"] is None and ended["shots_complete"] >= 60, ended
    assert any("probe" in warning for warning in ended["warnings"]), ended["warnings"]
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording)
    verify(path)


def test_a_missing_probe_is_one_clear_error(silent):
    address, _, recorder = silent
    message = recorder.end().refused()
    assert address in message and "answer" in message, message
