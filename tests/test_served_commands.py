"""`--serve` of emulated instruments and of replays: their pages, and metrics that equal the final report."""

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from test_captures import frames_of, write_capture
from test_metrics import exported

from common import WAIT_TIMEOUT_S, Page, Probe, Process, get, record, run, until

SERVE = ("--serve", "127.0.0.1:0")
LINGER = (*SERVE, "--serve-linger-s", WAIT_TIMEOUT_S)
SMALL = ("--links", 2, "--channels", 16)
SHOTS, SAMPLES = 60, 700  # 5 packets a shot and link
FAULTY = ("--loss", 0.05, "--duplicate", 0.04, "--reorder", 0.03, "--corrupt", 0.02, "--seed", 5)


@contextlib.contextmanager
def sink():
    """An address whose datagrams no process reads."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{port.getsockname()[1]}"


def check_page(page, command):
    """Checks that a page describes its command, and that its metrics are valid and documented."""
    about = page.about()
    assert about["command"] == command and about["title"] and about["settings"], about
    assert [control["action"] for control in about["controls"]] == ["stop"], about
    text = get(page.url)[1]
    names = {line.split("{")[0].split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert names <= exported(), names - exported()
    if shutil.which("promtool"):
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked


def check_values(metrics, expected):
    """Checks metrics, named without their prefix."""
    found = {name: metrics.get(f"shotline_{name}") for name in expected}
    assert found == expected, {name: (found[name], value) for name, value in expected.items() if found[name] != value}


def losses(status):
    return {family["name"] for family in status["families"] if family["is_loss"]}


def end_by_page(page, process):
    """Presses Stop, which must end the command as Ctrl-C does; returns its report."""
    assert page.stop().endswith(".")
    return process.end().succeeded()


# --- probes ------------------------------------------------------------------------------------------


def of_probe(report):
    """Returns the metrics of a probe or replay that follow from its report."""
    expected = {
        "shots_skipped_total": report["pace"]["skipped"],
        "triggers_missed_total": report["pace"]["missed"],
        "runs_failed_total": report["failures"]["runs"],
        "requests_refused_total": report["requests_refused"],
        "next_shot": report["next_shot"],
    }
    names = {
        "shots": "shots_sent_total",
        "packets": "packets_sent_total",
        "bytes": "payload_sent_bytes_total",
        "discarded": "packets_discarded_total",
        "missing": "source_packets_missing_total",
        "tx_full": "sends_incomplete_total",
    }
    for index, link in enumerate(report["links"]):
        assert set(link) == {*names, "faults"}, "a counter without a metric"
        expected |= {f'{name}{{link="{index}"}}': link[key] for key, name in names.items()}
        faults = link["faults"].items()
        expected |= {f'faults_injected_total{{link="{index}",fault="{fault}"}}': count for fault, count in faults}
    if "replay" in report["source"]:
        expected["read_underruns_total"] = report["source"]["replay"]["read_underruns"]
    return expected


def is_sent(page, shots):
    """Returns True once this many shots have been sent over all links, and no more follow."""
    return page.value("shotline_shots_sent_total") == shots and page.status()["phase"] == "waiting"


def test_the_page_of_a_probe_has_the_counts_of_its_report():
    with Probe(*SMALL, *FAULTY, *SERVE) as probe:
        page = Page(probe)
        page.wait_for("waiting")
        ended = record(probe, "--discard", "--shots", SHOTS, "--samples", SAMPLES, "--rate-hz", 200).succeeded()
        until(lambda: is_sent(page, ended["shots_sent"]), "the end of the run")
        check_page(page, "emulate probe")
        status, metrics = page.status(), page.metrics()
        report = end_by_page(page, probe)
    check_values(metrics, of_probe(report))
    assert all(count > 0 for link in report["links"] for count in link["faults"].values()), report
    assert losses(status) == {"shots_skipped", "triggers_missed", "packets_discarded"}
    [table] = status["tables"]
    assert [row[2] for row in table["rows"]] == [str(SHOTS)] * 2, table


def processors(pid, thread):
    """Returns the processors that the threads with this name may use."""
    files = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    threads = [dict(line.split(":\t", 1) for line in file.splitlines()) for file in files]
    return [fields["Cpus_allowed_list"] for fields in threads if fields["Name"] == thread]


def test_the_page_of_a_pinned_probe_leaves_its_processor():
    cpu = max(os.sched_getaffinity(0))
    with Probe(*SMALL, "--cpu", cpu, *SERVE) as probe:
        page = Page(probe)
        page.wait_for("waiting")
        assert processors(probe.pid, "shotline") == [str(cpu)], "the probe is pinned"
        own = processors(os.getpid(), Path("/proc/self/comm").read_text().strip())[0]
        assert processors(probe.pid, "page") == [own], "the page may use what this test may"


def test_triggers_that_a_probe_misses_are_losses_on_its_page():
    # A shot of 700 samples takes 19 us: the probe is busy when most triggers come.
    with Probe(*SMALL, "--trigger-hz", 1e6, "--list-faults", *FAULTY, *SERVE) as probe:
        page = Page(probe)
        flags = ("--discard", "--shots", SHOTS, "--samples", SAMPLES, "--external-trigger")
        record(probe, *flags).succeeded()
        until(lambda: page.value("shotline_triggers_missed_total") > 0, "missed triggers")
        page.wait_for("waiting")
        metrics = page.metrics()
        report = probe.report()
    assert report["pace"]["missed"] > SHOTS, report["pace"]
    check_values(metrics, of_probe(report))
    counted = sum(count for link in report["links"] for count in link["faults"].values())
    assert len(report["faults"]) == counted, "the page takes no fault from the list"


def test_the_page_of_an_rtl_probe_has_the_counts_of_its_report():
    message = run("emulate", "probe", "--rtl", "--corrupt", 1).refused()
    if "built without the RTL" in message:
        pytest.skip("needs the RTL: scripts/setup.sh rtl, then build with --features rtl")
    with Probe("--rtl", "--links", 1, "--loss", 0.2, "--seed", 5, *SERVE) as probe:
        page = Page(probe)
        flags = ("--discard", "--shots", 5, "--samples", 100, "--rate-hz", 50)
        ended = record(probe, *flags).succeeded()
        until(lambda: is_sent(page, ended["shots_sent"]), "the end of the run")
        check_page(page, "emulate probe")
        metrics = page.metrics()
        report = end_by_page(page, probe)
    check_values(metrics, of_probe(report))
    assert report["links"][0]["shots"] == 5 and report["links"][0]["faults"]["lost"] > 0, report


# --- replays -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """A recording with packets missing."""
    path = tmp_path_factory.mktemp("served") / "run.h5"
    with Probe(*SMALL, "--loss", 0.05, "--seed", 5) as probe:
        flags = ("--out", path, "--shots", SHOTS, "--samples", SAMPLES, "--rate-hz", 200)
        record(probe, *flags).succeeded()
    return path


def test_the_page_of_a_replay_shows_progress_to_the_end(lossy):
    with sink() as to, Process("replay", lossy, "--to", to, "--framing", "udp", "--max", "--json", *LINGER) as replay:
        page = Page(replay)
        until(page.has_ended, "the end of the replay")
        check_page(page, "replay")
        status, metrics = page.status(), page.metrics()
        report = replay.interrupt().succeeded()
    check_values(metrics, of_probe(report) | {"run_progress_ratio": 1, 'shots_sent_total{link="1"}': SHOTS})
    assert sum(link["missing"] for link in report["links"]) > 0, report
    assert [row[1] for row in status["tables"][0]["rows"]] == [to, to], status["tables"]


def test_an_endless_replay_ends_by_its_page(lossy):
    endless = ("--framing", "udp", "--rate-hz", 100, "--loop", 0, "--json", *SERVE)
    with sink() as to, Process("replay", lossy, "--to", to, *endless) as replay:
        page = Page(replay)
        until(lambda: page.value("shotline_shots_sent_total") > 0, "shots")
        status = page.status()
        assert status["phase"] == "running" and status["progress"] is None, status
        report = end_by_page(page, replay)
    # The pace begins with the replay, not when the machine was started.
    assert report["pace"]["skipped"] < 100 * report["seconds"], report


def test_a_replay_that_waits_for_a_receiver_ends_by_its_page(lossy):
    with Process("replay", lossy, "--listen", "[::1]:0", "--json", *SERVE) as replay:
        line = replay.popen.stderr.readline()
        assert "waits for a receiver on" in line, line
        page = Page(replay)
        page.wait_for("waiting")
        assert page.status()["progress"] == 0
        check_page(page, "replay")
        assert ["set-up address", line.split()[-1]] in page.about()["settings"]
        end_by_page(page, replay)


def write_mixed_capture(path, step_s):
    """Writes 20 datagrams, an empty one, one of another flow, and two frames without datagrams."""
    head = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
    frames = [
        *frames_of(10),
        head / UDP(sport=9, dport=5000),
        *frames_of(1, port=6000),
        Ether() / ARP(),
        Ether() / ARP(),
    ]
    frames += frames_of(10)
    write_capture(path, [(frame, 1e9 + step_s * at) for at, frame in enumerate(frames)])


def of_flow(report):
    """Returns the metrics of a capture's replay that follow from its report."""
    return {
        "datagrams_sent_total": report["datagrams"],
        "payload_sent_bytes_total": report["bytes"],
        'datagrams_skipped_total{cause="malformed"}': report["malformed"],
        'datagrams_skipped_total{cause="empty"}': report["empty"],
        "datagrams_late_total": report["late"],
        "datagrams_of_other_flows_total": report["other_flows"],
        "sends_incomplete_total": report["tx_full"],
    } | {f'frames_skipped_total{{cause="{cause}"}}': count for cause, count in report["skipped"].items()}


def test_the_page_of_a_capture_has_the_counts_of_its_report(tmp_path):
    path = tmp_path / "capture.pcap"
    write_mixed_capture(path, 1e-3)
    with sink() as to, Process("replay", path, "--to", to, "--json", *LINGER) as replay:
        page = Page(replay)
        until(page.has_ended, "the end of the replay")
        check_page(page, "replay")
        metrics = page.metrics()
        report = replay.interrupt().succeeded()
    assert (report["datagrams"], report["empty"], report["other_flows"]) == (20, 1, 1), report
    assert report["skipped"] == {"other": 2}, report
    check_values(metrics, of_flow(report) | {"run_progress_ratio": 1})


def test_a_slow_capture_ends_by_its_page(tmp_path):
    path = tmp_path / "capture.pcap"
    write_mixed_capture(path, 1e5)
    with sink() as to, Process("replay", path, "--to", to, "--json", *SERVE) as replay:
        page = Page(replay)
        until(lambda: page.value("shotline_datagrams_sent_total") == 1, "the first datagram")
        status = page.status()
        assert status["phase"] == "running" and 0 < status["progress"] < 0.1, status
        report = end_by_page(page, replay)
    assert report["datagrams"] == 1, report


def test_a_damaged_capture_is_in_the_log_of_its_page(tmp_path):
    path = tmp_path / "capture.pcap"
    write_mixed_capture(path, 1e-3)
    path.write_bytes(path.read_bytes()[:-30])
    with sink() as to, Process("replay", path, "--to", to, "--json", *LINGER) as replay:
        page = Page(replay)
        until(page.has_ended, "the end of the replay")
        status = page.status()
        outcome = replay.interrupt()
    assert outcome.code == 1, outcome.stderr
    assert [(entry["level"], "within a block" in entry["text"]) for entry in status["log"]] == [("error", True)]


# --- digitizers --------------------------------------------------------------------------------------


def of_digitizers(report, block_bytes):
    expected = {}
    names = {
        "blocks_produced": "blocks_produced_total",
        "overruns": "blocks_overrun_total",
        "blocks_sent": "blocks_sent_total",
        "blocks_abandoned": "blocks_abandoned_total",
        "packets_sent": "packets_sent_total",
        "packets_discarded": "packets_discarded_total",
        "tx_full": "sends_refused_total",
        "dma_list_s": "dma_list_seconds_total",
        "dma_entries": "dma_list_entries_total",
    }
    derived = {"stream", "to", "dma_gbps", "dma_with_list_gbps", "stages"}
    for stream in report["streams"]:
        assert set(stream) == set(names) | derived, "a counter without a metric"
        of_stream = f'stream="{stream["stream"]}"'
        expected |= {f"{name}{{{of_stream}}}": stream[key] for key, name in names.items()}
        expected[f"payload_sent_bytes_total{{{of_stream}}}"] = stream["blocks_sent"] * block_bytes
        for stage in stream["stages"]:
            labels = f'{of_stream},stage="{stage["name"]}"'
            expected[f"stage_blocks_total{{{labels}}}"] = stage["blocks"]
            expected[f"stage_passed_bytes_total{{{labels}}}"] = stage["bytes"]
            expected[f"stage_queued_blocks_total{{{labels}}}"] = stage["queue_length_sum"]
            if stage["name"] != "board":
                states = ("busy", "starved", "stalled", "paced")
                times = {f'stage_seconds_total{{{labels},state="{state}"}}': stage[f"{state}_s"] for state in states}
                expected |= times
    return expected


BLOCK = 1 << 16
DIGITIZER = ("--decimation", 1, "--sample-rate-hz", 2e6, "--block", BLOCK, "--distinct", 3)


def test_the_page_of_digitizers_has_the_counts_of_their_report():
    flags = (*DIGITIZER, "--blocks", 20, "--streams", 2, "--json", *LINGER)
    with sink() as to, Process("emulate", "digitizer", "--to", to, *flags) as digitizer:
        page = Page(digitizer)
        until(page.has_ended, "the end of the blocks")
        check_page(page, "emulate digitizer")
        status, metrics = page.status(), page.metrics()
        report = digitizer.interrupt().succeeded()
    check_values(metrics, of_digitizers(report, BLOCK) | {"run_progress_ratio": 1})
    assert losses(status) == {"blocks_overrun", "packets_discarded"}
    names = [f"{stage} {stream}" for stream in range(2) for stage in ("board", "dma", "send")]
    assert [stage["name"] for stage in status["stages"]] == names
    assert all(0 <= stage[part] <= 1 for stage in status["stages"] for part in ("busy", "starved", "stalled"))
    assert [row[2] for row in status["tables"][0]["rows"]] == ["20", "20"]


def test_a_digitizer_ends_by_its_page():
    flags = (*DIGITIZER, "--rate", "max", "--link-rate", 7e7, "--json", *SERVE)
    with sink() as to, Process("emulate", "digitizer", "--to", to, *flags) as digitizer:
        page = Page(digitizer)
        until(lambda: page.value("shotline_blocks_sent_total") > 0, "blocks")
        status = page.status()
        assert status["phase"] == "running" and status["progress"] is None, status
        assert [stage["name"] for stage in status["stages"]] == ["board", "dma", "send"]
        report = end_by_page(page, digitizer)
    assert report["streams"][0]["blocks_sent"] > 0, report
