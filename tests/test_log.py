"""`shotline record --log`: what happens in a run, as lines on standard error."""

import datetime
import json
import signal

import pytest
from senders.listen import free_port

from common import Probe, Recorder, record, run, until

# The pool holds all shots, so that a slow drive loses none.
RUN = ["--shots", 200, "--samples", 200, "--rate-hz", 500]


def events(outcome):
    """Returns the events of an outcome by name, each with its fields."""
    lines = [json.loads(line) for line in outcome.stderr.splitlines() if line.startswith("{")]
    found = [line for line in lines if "event" in line]
    times = [datetime.datetime.fromisoformat(line["time"]) for line in found]
    assert times == sorted(times)
    assert all(line["level"] in ("info", "warning", "error") and line["message"] for line in found), found
    return found


def names(found):
    return [line["event"] for line in found]


def total(found, event, **fields):
    """Returns the sum of the counts of an event, which must agree with the last total of each stream."""
    matching = [line for line in found if line["event"] == event and fields.items() <= line.items()]
    last = {line.get("stream"): line["total"] for line in matching}
    assert sum(line["count"] for line in matching) == sum(last.values())
    return sum(last.values())


def test_losses_of_the_log_are_those_of_the_summary(tmp_path):
    faults = ["--loss", "0.01", "--corrupt", "0.01", "--seed", "3"]
    with Probe("--links", "2", *faults) as probe:
        outcome = record(probe, "--out", tmp_path / "run.h5", *RUN, "--log", "json")
    ended, found = outcome.succeeded(), events(outcome)
    assert len(found) == len(outcome.stderr.splitlines()), outcome.stderr
    assert names(found)[0] == "run_started" and names(found)[-1] == "run_ended"
    assert names(found).count("listening") == names(found).count("first_packet") == 1
    known = next(line for line in found if line["event"] == "sender_known")
    assert (known["links"], known["bits"], known["instrument"]) == (2, 12, "Shotline emulated probe")
    assert total(found, "packets_missing") == ended["packets_missing"] > 0
    assert total(found, "packets_dropped", cause="bad_icrc") == ended["packet_drops"]["bad_icrc"] > 0
    last = found[-1]
    assert (last["cause"], last["early"], last["after_shots"]) == ("shots", False, 200)


def test_progress_and_log_share_standard_error(tmp_path):
    with Probe() as probe:
        outcome = record(probe, "--out", tmp_path / "run.h5", *RUN, "--log", "json", "--progress")
    lines = [json.loads(line) for line in outcome.stderr.splitlines()]
    progress = [line for line in lines if "event" not in line]
    assert progress and all("rows" in line for line in progress)
    assert names(events(outcome))[-1] == "run_ended" and outcome.succeeded()["rows"] == progress[-1]["rows"]


def test_text_has_time_level_and_a_sentence(tmp_path):
    with Probe() as probe:
        outcome = record(probe, "--out", tmp_path / "run.h5", *RUN, "--log", "text")
    lines = [line.split(maxsplit=2) for line in outcome.stderr.splitlines()]
    assert lines[0][1:] == ["info", "The run starts."], outcome.stderr
    assert lines[-1][2] == "The run has ended after 200 of 200 shots: all shots have arrived."
    assert all(datetime.datetime.fromisoformat(line[0]) for line in lines)


def test_a_lost_probe_is_logged_before_the_end():
    with Probe() as probe, Recorder(probe, "--discard", "--seconds", 600, "--log", "json", "--progress") as recorder:
        recorder.wait_for_packets(100)
        probe.signal(signal.SIGKILL)
        outcome = recorder.end()
    assert outcome.json["ended"]["cause"] == "probe-lost"
    found = events(outcome)
    assert names(found)[-2:] == ["probe_lost", "run_ended"], names(found)
    assert [line["level"] for line in found[-2:]] == ["error", "error"] and found[-1]["cause"] == "probe-lost"


def test_triggers_by_signals_are_logged(tmp_path):
    flags = ["--pre-trigger", 0.01, "--post-trigger", 0.01, "--trigger", "signal", "--rate-hz", 500, "--log", "json"]
    with Probe() as probe, Recorder(probe, "--out", tmp_path / "run.h5", *flags, "--capacity", 1000) as recorder:
        found = []

        def has(name):
            found.append(json.loads(recorder.popen.stderr.readline()))
            return found[-1]["event"] == name

        until(lambda: has("first_packet"), "the first packet")
        recorder.signal(signal.SIGUSR1)
        until(lambda: has("triggered"), "the trigger")
        assert (found[-1]["count"], found[-1]["total"]) == (1, 1)
        assert recorder.interrupt().succeeded()["triggers"] == 1


def test_an_error_before_the_run_is_its_last_event():
    outcome = run("record", "--probe", f"[::1]:{free_port('::1')}", "--discard", "--log", "json")
    assert outcome.code == 1
    *lines, error = outcome.stderr.splitlines()
    found = [json.loads(line) for line in lines]
    assert names(found) == ["run_started", "run_failed"] and found[-1]["error"] in error, outcome.stderr


@pytest.mark.parametrize("arguments", [["--log", "xml"], ["--serve-linger-s", "3"]])
def test_senseless_options_are_refused(arguments):
    outcome = run("record", "--probe", "[::1]:1", "--discard", *arguments)
    assert outcome.code == 2 and arguments[0] in outcome.stderr
