"""Runs that the page of a recorder starts."""

import json

from common import Page, Probe, Recorder, Recording, check_balanced, until, verify

STANDBY = ["--serve", "127.0.0.1:0", "--standby", "--rate-hz", "500", "--shots", "40", "--samples", "400"]


def start_and_wait(page, path, **fields):
    page.control(action="start", **fields)
    # The file appears when the run begins, and the phase is `ended` before and after it.
    until(path.exists, what=path.name)
    page.wait_for("ended")


def test_the_page_starts_runs_with_other_numbers_of_samples(tmp_path):
    with Probe() as probe, Recorder(probe, *STANDBY, "--out", tmp_path / "run.h5") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        controls = {control["action"]: control for control in page.about()["controls"]}
        assert controls["start"]["input"]["value"] == 400 and controls["start"]["phases"] == ["standby", "ended"]
        assert "no run" in page.control(action="stop")
        assert not list(tmp_path.iterdir()) and not page.status()["log"], "nothing happens before the start"
        start_and_wait(page, tmp_path / "run.h5")
        start_and_wait(page, tmp_path / "run-2.h5", samples=250)
        ended = recorder.interrupt()
    assert ended.code == 0, ended.stderr
    reports = [json.loads(line) for line in ended.stdout.splitlines()]
    for report, (name, samples) in zip(reports, [("run.h5", 400), ("run-2.h5", 250)], strict=True):
        check_balanced(report)
        recording = Recording(tmp_path / name)
        assert all(rf.shape[1] == samples for rf in recording.rf), [rf.shape for rf in recording.rf]
        assert report["rows"] == 40
        verify(tmp_path / name)


def test_stop_ends_a_run_and_not_the_recorder(tmp_path):
    endless = [*STANDBY[:4], "500", "--out", tmp_path / "run.h5", "--keep", "64MiB"]
    with Probe() as probe, Recorder(probe, *endless) as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        page.control(action="start")
        page.wait_for("running")
        assert "in progress" in page.control(action="start")
        page.control(action="stop")
        page.wait_for("ended")
        page.control(action="start", samples=300)
        page.wait_for("running")
        ended = recorder.interrupt()
    assert ended.code == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 2
    for name in ("run.h5", "run-2.h5"):
        verify(tmp_path / name)


def test_a_run_that_fails_is_followed_by_the_next(tmp_path):
    with Probe("--samples", "500") as probe, Recorder(probe, *STANDBY, "--out", tmp_path / "run.h5") as recorder:
        page = Page(recorder)
        page.wait_for("standby")
        assert "expected 1 to" in page.control(action="start", samples=0)
        page.control(action="start", samples=700)
        page.wait_for("ended")
        log = page.status()["log"]
        assert any("from 1 to 500" in entry["text"] and entry["level"] == "error" for entry in log), log
        start_and_wait(page, tmp_path / "run.h5", samples=500)
        ended = recorder.interrupt()
    assert ended.code == 0 and "700" in ended.stderr, ended.stderr
    verify(tmp_path / "run.h5")
