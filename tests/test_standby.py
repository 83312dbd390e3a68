"""Runs that the page of a recorder starts."""

import json
import os
import signal
import socket

import pytest

from common import Page, Probe, Process, Recorder, Recording, check_balanced, run, until, verify

SERVED = ["--serve", "127.0.0.1:0", "--standby"]
SHORT = [*SERVED, "--rate-hz", "500", "--shots", "40"]
ENDLESS = [*SERVED, "--rate-hz", "500", "--keep", "64MiB"]


def start_and_wait(page, path, **fields):
    assert page.control(action="start", **fields) == "The run starts."
    # The file appears when the run begins, and the phase is `ended` before and after it.
    until(path.exists, what=path.name)
    page.wait_for("ended")


def setting(page, name):
    return dict(page.about()["settings"]).get(name)


def test_the_page_starts_runs_with_other_numbers_of_samples(tmp_path):
    samples = [400, 250, 400]
    with (
        Probe() as probe,
        Recorder(probe, *SHORT, "--samples", samples[0], "--out", tmp_path / "run.h5") as recorder,
    ):
        page = Page(recorder)
        page.wait_for("standby")
        controls = {control["action"]: control for control in page.about()["controls"]}
        assert controls["start"]["input"]["value"] == 400 and controls["start"]["phases"] == ["standby", "ended"]
        assert not list(tmp_path.iterdir()) and not page.status()["log"], "nothing happens before the start"
        start_and_wait(page, tmp_path / "run.h5")
        start_and_wait(page, tmp_path / "run-2.h5", samples=250)
        assert setting(page, "samples") == "250" and "run-2.h5" in page.about()["title"]
        start_and_wait(page, tmp_path / "run-3.h5")
        ended = recorder.interrupt()
    assert ended.code == 0, ended.stderr
    reports = [json.loads(line) for line in ended.stdout.splitlines()]
    for report, name, number in zip(reports, ["run.h5", "run-2.h5", "run-3.h5"], samples, strict=True):
        check_balanced(report)
        recording = Recording(tmp_path / name)
        assert all(rf.shape[1] == number for rf in recording.rf), [rf.shape for rf in recording.rf]
        assert report["rows"] == 40
        verify(tmp_path / name)


def test_stop_ends_a_run_and_not_the_recorder(tmp_path):
    with Probe() as probe, Recorder(probe, *ENDLESS, "--out", tmp_path / "run.h5") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        page.control(action="start")
        page.wait_for("running")
        assert "in progress" in page.control(action="start")
        page.control(action="stop")
        page.wait_for("ended")
        seconds = page.status()["seconds"]
        assert page.status()["seconds"] == seconds, "the time of a run ends with it"
        page.control(action="start", samples=300)
        page.wait_for("running")
        ended = recorder.interrupt()
    assert ended.code == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 2
    for name in ("run.h5", "run-2.h5"):
        verify(tmp_path / name)


def test_a_run_that_fails_is_followed_by_the_next(tmp_path):
    with Probe("--samples", "500") as probe, Recorder(probe, *SHORT, "--out", tmp_path / "run.h5") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        assert "expected 1 to" in page.control(action="start", samples=0)
        page.control(action="start", samples=700)
        page.wait_for("ended")
        log = page.status()["log"]
        assert any("from 1 to 500" in entry["text"] and entry["level"] == "error" for entry in log), log
        # Without a number the probe's own limit applies.
        start_and_wait(page, tmp_path / "run.h5")
        ended = recorder.interrupt()
    assert ended.code != 0 and "found 700" in ended.stderr and "1 of 2 runs have failed" in ended.stderr, ended.stderr
    verify(tmp_path / "run.h5")


def test_a_run_without_a_packet_is_an_error_on_the_page(tmp_path):
    flags = ["--framing", "udp", "--channels", "8", "--samples", "100", "--bits", "12", "--sample-rate-hz", "1000000"]
    flags += [*SERVED, "--json", "--pool", "32MiB", "--out", tmp_path / "run.h5"]
    with Process("record", "--listen", "[::1]:0", *flags) as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        page.control(action="start")
        page.wait_for("waiting")
        page.control(action="stop")
        page.wait_for("ended")
        until(lambda: any("no shot was received" in entry["text"] for entry in page.status()["log"]), what="the error")
        assert recorder.interrupt().code != 0


def test_triggers_count_only_during_a_run(tmp_path):
    flags = [*ENDLESS[:-2], "--pre-trigger", "0.05", "--capacity", "10000", "--samples", "200"]
    with Probe() as probe, Recorder(probe, *flags, "--out", tmp_path / "run.h5") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        assert "no run" in page.control(action="trigger") and "no run" in page.control(action="stop")
        recorder.signal(signal.SIGUSR1)
        page.control(action="start")
        page.wait_for("running")
        dropped = r'shotline_shots_dropped_total\{stream="0",cause="not_triggered"\}'
        until(lambda: page.value(dropped) > 0, what="a shot that no trigger has selected")
        assert page.value("shotline_triggers_total") == 0, "the signal came before the run"
        recorder.signal(signal.SIGUSR1)
        until(lambda: page.value("shotline_triggers_total") == 1, what="the trigger")
        ended = recorder.interrupt().succeeded()
    assert ended["triggers"] == 1


def test_standing_by_is_reported_to_a_service_manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with Recorder("[::1]:9", *SERVED, "--out", tmp_path / "run.h5", env=environment) as recorder:
            assert manager.recv(100) == b"READY=1"
            assert recorder.interrupt().code == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--discard"], "--out"),
        ([], "--out"),
        (["--out", "nvme:/dev/ng0n1"], "nvme:/dev/ng0n1"),
        (["--out", "run.h5", "--force"], "omit --force"),
    ],
)
def test_runs_that_would_have_no_file_of_their_own_are_refused(flags, words):
    assert words in run("record", "--probe", "[::1]:9", *SERVED, *flags).refused()


def test_the_outputs_of_a_settings_file_are_those_of_the_runs(tmp_path):
    (tmp_path / "probe.toml").write_text(f'out = "{tmp_path}/run.h5"\nshots = 20\nrate_hz = 500\n')
    with Probe() as probe, Recorder(probe, *SERVED, "--config", tmp_path / "probe.toml") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        start_and_wait(page, tmp_path / "run.h5")
        recorder.interrupt().succeeded()
    verify(tmp_path / "run.h5")
