"""`shotline trigger`: every trigger is a measured time or a named loss, consistent with the probe's own report."""

import json
import signal

import pytest
from relay import Relay

from common import Probe, Process, Recorder, Recording, run, until, verify

WARM_UP = 20
COUNT = 8
MAGIC = b"SHTR"
ACKNOWLEDGE, COMMAND_ONLY = 1, 2


def measure(target, *arguments, count=COUNT, **options):
    """Returns the JSON objects, one for each setting, and the rest of the output."""
    flags = ["--probe", target.address] if target else []
    end = run("trigger", "--json", "--count", count, *flags, *arguments, **options)
    assert end.code == 0, end.stderr
    return [json.loads(line) for line in end.stdout.splitlines()], end.stderr


def check_counters(point):
    """Checks that each trigger is in exactly one counter, and that only complete shots are timed."""
    counters = ["complete", "partial", "shots_lost", "busy", "refused", "unanswered"]
    assert point["triggers"] == sum(point[name] for name in counters), point
    assert sum(bin["count"] for bin in point["histogram"]) == point["complete_us"]["count"], point
    assert point["complete_us"]["count"] <= point["complete"] <= point["complete_us"]["count"] + WARM_UP, point


def is_shot(datagram):
    """Returns `True` for a trigger that takes a shot."""
    return datagram[:4] == MAGIC and not datagram[5] & COMMAND_ONLY


@pytest.fixture(scope="module", autouse=True)
def without_replies():
    """A measurement with a probe that does not acknowledge, and the probe.

    It takes six seconds to detect that, during which the other tests run.
    """

    def drop_flagged(datagram):
        return datagram[:4] != MAGIC  # like a probe whose firmware does not support the flags

    with (
        Probe() as target,
        Relay(target, on_request=drop_flagged) as relay,
        Process("trigger", "--probe", relay.address, "--samples", 125, "--json") as process,
    ):
        yield process, target


@pytest.fixture(scope="module", autouse=True)
def killed_probe(without_replies):
    """A measurement whose probe was killed during a million commands, and the probe's address.

    It takes six seconds to detect that, too.
    """
    flags = ["--samples", 125, "--framing", "ud", "--wait", "sleep", "--count", 1_000_000, "--json"]
    with Probe() as target, Process("trigger", "--probe", target.address, *flags) as process:
        until(lambda: run("probe", "status", target.address, "--json").json["running"], what="the measurement")
        target.signal(signal.SIGKILL)
        target.popen.wait()
        yield process, target.address


def test_every_setting_yields_complete_shots_with_ordered_times():
    flags = ["--samples", "125,1000", "--framing", "ud,counted,udp", "--wait", "poll,sleep"]
    points, _ = measure(None, *flags)
    settings = [(point["wait"], point["framing"], point["samples"]) for point in points]
    assert settings == [(w, f, n) for w in ("poll", "sleep") for f in ("ud", "counted", "udp") for n in (125, 1000)]
    for point in points:
        check_counters(point)
        assert point["complete"] == point["triggers"] == COUNT + WARM_UP and point["packets_missing"] == 0, point
        assert point["sampling_us"] == pytest.approx(point["samples"] / 40 + 1.85)
        assert point["packets"] == point["triggers"] * point["packets_per_shot"]
        times = [point[f"{name}_us"] for name in ("first_packet", "last_packet", "complete")]
        for quantile in ("min", "p50", "p90", "p99", "p99.9", "max"):
            first, last, complete = (time[quantile] for time in times)
            assert point["sampling_us"] <= first <= last <= complete, point
        assert point["command_us"]["count"] == COUNT and point["commands_lost"] == 0


def test_the_probe_takes_exactly_the_requested_shots():
    with Probe() as target:
        points, _ = measure(target, "--samples", "125,500", "--framing", "ud", "--wait", "sleep", "--links", 2)
        report = target.report()
    assert report["next_shot"] == 2 * (COUNT + WARM_UP), "commands alone must take no shot"
    assert report["pace"]["missed"] == 0
    for point in points:
        check_counters(point)
        assert point["packets"] == 2 * point["triggers"] * point["packets_per_shot"], "both links must send"


def test_trigger_prints_a_table_and_a_histogram():
    end = run("trigger", "--samples", 125, "--framing", "ud", "--wait", "sleep", "--count", COUNT)
    assert end.code == 0, end.stderr
    for words in ["p99.9", "Times of the steps", "first packet", "sampling", "|10 us", "125 ud sleep"]:
        assert words in end.stdout, end.stdout


@pytest.mark.parametrize("wait", ["poll", "sleep"])
def test_lost_triggers_are_counted_and_never_retransmitted(wait):
    sent = []

    def lose(datagram):
        if not is_shot(datagram):
            return True
        sent.append(datagram)
        return len(sent) not in (3, 25)  # one of them during the warm-up

    with Probe() as target, Relay(target, on_request=lose) as relay:
        (point,), messages = measure(relay, "--samples", 125, "--framing", "ud", "--wait", wait)
        report = target.report()
    check_counters(point)
    assert len(set(sent)) == len(sent) == point["triggers"] == COUNT + WARM_UP, "each must be sent once"
    assert point["unanswered"] == 2 and point["complete"] == report["next_shot"] == COUNT + WARM_UP - 2, point
    assert point["complete_us"]["count"] == COUNT - 1 and point["packets_missing"] == 0
    assert report["pace"]["missed"] == 2, "the probe must see the skipped numbers"
    assert "2 triggers yielded neither a reply nor a shot" in messages, messages


def test_lost_answers_are_counted_apart_from_lost_triggers():
    answers = []

    def lose(datagram):
        if is_shot(datagram):
            answers.append(datagram)
            return len(answers) not in (5, 24)
        return True

    with Probe() as target, Relay(target, on_reply=lose) as relay:
        (point,), messages = measure(relay, "--samples", 125, "--framing", "ud", "--wait", "sleep")
    check_counters(point)
    assert point["answers_lost"] == 2 and point["complete"] == point["triggers"], point
    assert "2 triggers were not answered, but their shots were received" in messages


def test_commands_with_lost_answers_are_counted():
    answers = []

    def lose(datagram):
        if datagram[:4] == MAGIC and datagram[5] & COMMAND_ONLY:
            answers.append(datagram)
            return len(answers) not in (22, 28)  # the first one only tests whether the probe acknowledges
        return True

    with Probe() as target, Relay(target, on_reply=lose) as relay:
        (point,), _ = measure(relay, "--samples", 125, "--framing", "ud", "--wait", "poll")
    assert point["commands_lost"] == 2 and point["command_us"]["count"] == COUNT - 2, point
    assert point["complete"] == point["triggers"], point


@pytest.mark.parametrize("framing", ["ud", "counted", "udp"])
def test_shots_with_lost_packets_are_not_timed(framing):
    with Probe("--loss", 0.02, "--seed", 5) as target:
        (point,), messages = measure(target, "--samples", 125, "--framing", framing, "--wait", "sleep")
        report = target.report()
    check_counters(point)
    lost = report["links"][0]["faults"]["lost"]
    assert lost > 0 and point["packets_missing"] == lost, (point, report)
    assert point["partial"] > 0 and point["triggers"] == report["next_shot"] == COUNT + WARM_UP
    assert point["complete"] == point["triggers"] - point["partial"] - point["shots_lost"]
    assert "triggers yielded shots with missing packets" in messages


def test_lost_shots_are_counted_apart_from_lost_triggers():
    # One packet a shot: a lost packet is a lost shot.
    with Probe("--loss", 0.1, "--seed", 7) as target:
        (point,), messages = measure(target, "--samples", 20, "--framing", "ud", "--wait", "sleep")
        report = target.report()
    check_counters(point)
    assert point["packets_per_shot"] == 1
    assert point["shots_lost"] == report["links"][0]["faults"]["lost"] > 0, (point, report)
    assert point["complete"] == point["triggers"] - point["shots_lost"]
    assert "triggers were accepted, but no shot was received" in messages


def test_a_recording_probe_is_used_only_with_take_over(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--rate-hz", 200, "--samples", 500, "--capacity", 5000, "--out", path]
    with Probe() as target, Recorder(target, *flags) as recorder:
        until(path.exists, what="the file")
        until(lambda: run("probe", "status", target.address, "--json").json["next_shot"] > 10, what="shot 10")
        message = run("trigger", "--probe", target.address, "--samples", 125, "--json").refused()
        assert "another receiver" in message and "--take-over" in message, message
        points, _ = measure(target, "--samples", 125, "--framing", "ud", "--wait", "sleep", "--take-over")
        check_counters(points[0])
        assert points[0]["complete"] == points[0]["triggers"]
        recorder.end().cut_off("taken-over")
    assert len(Recording(path).numbers()) > 10
    verify(path)


def test_an_interrupted_measurement_reports_and_stops_the_probe():
    with Probe() as target:

        def status():
            return run("probe", "status", target.address, "--json").json

        flags = ["--samples", 125, "--framing", "ud", "--wait", "sleep", "--count", 1000]
        # Commands are measured first: by the first shot the measurement has run for some time.
        with Process("trigger", "--probe", target.address, "--json", *flags) as process:
            until(lambda: status()["next_shot"] > 2 * WARM_UP, what="timed shots")
            process.signal(signal.SIGINT)
            end = process.end()
        assert not status()["running"]
    point = end.succeeded()
    check_counters(point)
    assert point["complete"] == point["triggers"] >= 2 * WARM_UP, point


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--framing", "morse"], ["ud, counted, udp", "morse"]),
        (["--wait", "hope"], ["poll or sleep", "hope"]),
        (["--count", "0"], ["0"]),
        (["--probe", "[::1]:9", "--probe-cpu", "0"], ["--probe-cpu", "--probe"]),
    ],
)
def test_wrong_flags_are_named(flags, words):
    end = run("trigger", *flags)
    assert end.code == 2 and all(word in end.stderr for word in words), end.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--links", "3"], ["2 links", "3"]),
        (["--samples", "3000"], ["refused", "samples"]),
        (["--cpu", "4000"], ["4000"]),
    ],
)
def test_impossible_settings_are_refused(flags, words):
    with Probe() as target:
        message = run("trigger", "--probe", target.address, "--json", *flags).refused()
        assert all(word in message for word in words), message


def test_a_probe_without_acknowledgements_is_refused(without_replies):
    process, target = without_replies
    message = process.end().refused()
    assert "does not acknowledge triggers" in message and "firmware" in message, message
    assert target.report()["next_shot"] == 0


def test_a_killed_probe_ends_the_measurement(killed_probe):
    process, address = killed_probe
    message = process.end().refused()
    assert address in message and "does not answer" in message, message


def test_the_help_has_examples():
    end = run("trigger", "--help")
    assert end.code == 0 and "Examples" in end.stdout and "--json" in end.stdout
