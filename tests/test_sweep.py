"""Sweeps end to end, at a small scale: counts balance, output can be parsed, invalid settings are refused."""

import importlib
import json
import signal
import struct
import sys

import pytest
from requirements import need_root

from common import ROOT, WAIT_TIMEOUT_S, Probe, Process, command, run

SPREAD = {"mean", "std", "min", "max"}
TINY = ("--pool", "16MiB", "--seconds", 0.1)
LONG_ENOUGH = ("--pool", "16MiB", "--seconds", 3)  # longer than a machine stalls, so that shots arrive


def parse_sweep(ended):
    """Returns the JSON lines of a successful sweep by kind."""
    assert ended.code == 0, f"exit code {ended.code} of {ended.command}\n{ended.stderr}"
    return by_kind(ended.stdout)


def by_kind(text):
    """Returns JSON lines by kind; the header must be first and the end last."""
    found = [json.loads(line) for line in text.splitlines()]
    assert found[0]["kind"] == "header" and found[-1]["kind"] == "end", text
    kinds = {}
    for line in found:
        kinds.setdefault(line["kind"], []).append(line)
    assert len(kinds["header"]) == len(kinds["end"]) == 1
    return kinds


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A network sweep and one of the disk: their files, and their output."""
    folder = tmp_path_factory.mktemp("measured")
    files = [folder / "network.jsonl", folder / "disk.jsonl"]
    disk = folder / "disk"
    disk.mkdir()
    points = ["--trigger-hz", "200,400", "--repeats", 2]
    network = parse_sweep(sweep("network", "--samples", "500,1000", *points, "--out", files[0]))
    written = parse_sweep(sweep("disk", "--dir", disk, "--samples", 500, *points, "--out", files[1]))
    return files, network, written, disk


def sweep(*arguments, **options):
    return run("sweep", *arguments, "--json", *TINY, **options)


def check_counters(point):
    """Checks that every trigger became a shot or was missed, and every packet is recorded or its loss has a cause."""
    for counts in point["runs"]:
        assert counts["shots_sent"] is not None, counts
        if counts["triggers"] is not None:
            assert counts["triggers"] == counts["shots_sent"] + counts["triggers_missed"], counts
        lost = counts["shots_partial"] + sum(counts["shots_dropped"].values())
        assert counts["shots_sent"] == counts["shots_complete"] + lost, counts
        assert counts["packets_expected"] == counts["shots_sent"] * point["shot_packets"], counts
        accounted = counts["packets_placed"] + counts["packets_missing"] + counts["packets_unplaced"]
        assert counts["packets_expected"] == accounted, counts
    for name in ("frame_rate_hz", "bandwidth_gbps"):
        values = [counts[name] for counts in point["runs"]]
        spread = point[name]
        assert set(spread) == SPREAD and spread["min"] == min(values) and spread["max"] == max(values), point
        assert spread["mean"] == pytest.approx(sum(values) / len(values)) and spread["std"] >= 0, point


# --- points ------------------------------------------------------------------------------------------


def test_a_network_sweep_has_every_point_with_balanced_counts(measured):
    files, found, _, _ = measured
    requested = [(f, n, hz, 0) for f in ("ud", "udp") for n in (500, 1000) for hz in (200, 400)]
    assert [(p["framing"], p["samples"], p["trigger_hz"], p["link"]) for p in found["point"]] == requested
    for point in found["point"]:
        assert len(point["runs"]) == 2 and point["shot_bytes"] == point["samples"] * 144 + 64, point
        check_counters(point)
    runs = [counts for point in found["point"] for counts in point["runs"]]
    assert sum(counts["shots_complete"] for counts in runs) > 0, "there must be shots"
    assert found["end"][0]["interrupted"] is False and by_kind(files[0].read_text()) == found


def test_the_header_describes_the_machine_and_settings(measured):
    header = measured[1]["header"][0]
    assert (
        header["sweep"] == "network" and header["emulated"] and header["timing"] == "trigger" and header["links"] == 1
    )
    assert header["cores"] >= 1 and header["receive_buffer_bytes"] > 0 and header["seconds"] == 0.1, header
    assert header["kernel"].startswith("Linux ") and header["cpu"] and header["shotline"][0].isdigit(), header
    assert header["sample_rate_hz"] == 40_000_000 and header["shot_overhead_s"] == pytest.approx(1.85e-6), header


def test_every_second_trigger_above_the_highest_rate_is_missed():
    # 16000 samples occupy the device for 401.85 us: 2488 Hz at most.
    flags = ["--samples", 16_000, "--framing", "ud", "--trigger-hz", 3000, "--repeats", 1, "--pool", "64MiB"]
    (point,) = parse_sweep(run("sweep", "network", *flags, "--json", "--seconds", 0.1))["point"]
    check_counters(point)
    for counts in point["runs"]:
        # A busy machine may miss more.
        assert counts["triggers_missed"] >= counts["shots_sent"] - 1, counts


def test_links_are_counted_separately():
    found = parse_sweep(
        sweep("network", "--links", 2, "--samples", 500, "--framing", "udp", "--trigger-hz", 200, "--repeats", 1)
    )
    assert [point["link"] for point in found["point"]] == [0, 1]
    for point in found["point"]:
        check_counters(point)
    taken = [[counts["shots_sent"] for counts in point["runs"]] for point in found["point"]]
    assert taken[0] == taken[1], "both links must take the shot of one trigger"


@pytest.mark.parametrize("points", [1, pytest.param(13, marks=pytest.mark.long)])
def test_default_frequencies_follow_from_the_device_and_shape(points):
    """Checks only the lowest and the highest: the crate's tests check the frequencies in between."""
    flags = ["--samples", 16_000, "--framing", "ud", "--repeats", 1, "--pool", "64MiB", "--seconds", 0.02]
    highest = 1 / 401.85e-6
    with Process("sweep", "network", *flags, "--json") as process:
        found = [json.loads(process.popen.stdout.readline()) for _ in range(1 + points)]
        if points < 13:
            process.signal(signal.SIGINT)
        assert process.end().code == 0
    hz = [point["trigger_hz"] for point in found[1:]]
    assert hz == sorted(hz) and hz[0] == pytest.approx(0.05 * highest, rel=0.01), hz
    assert points < 13 or hz[-1] == pytest.approx(1.25 * highest, rel=0.01), hz


def test_losses_are_counted_with_a_self_timed_probe():
    with Probe("--loss", 0.02, "--seed", 7, "--links", 1) as probe:
        flags = ["--probe", probe.address, "--bind", "[::1]:0", "--timing", "rate", "--samples", 500, "--framing", "ud"]
        found = parse_sweep(
            run("sweep", "network", *flags, *LONG_ENOUGH, "--trigger-hz", 200, "--repeats", 1, "--json")
        )
        sent = probe.report()["links"][0]
    assert not found["header"][0]["emulated"] and found["header"][0]["timing"] == "rate"
    for point in found["point"]:
        check_counters(point)
        assert all(counts["triggers"] is None for counts in point["runs"]), (
            "without a trigger source there is no trigger count"
        )
    runs = [counts for point in found["point"] for counts in point["runs"]]
    assert sum(counts["shots_sent"] for counts in runs) == sent["shots"]
    assert sum(counts["packets_missing"] for counts in runs) >= sent["faults"]["lost"] > 0, sent


def test_the_frequency_of_an_external_generator_is_used_as_given():
    with Probe("--trigger-hz", 300) as probe:
        flags = ["--probe", probe.address, "--bind", "[::1]:0", "--generator-hz", 300, "--links", 1, "--repeats", 1]
        found = parse_sweep(sweep("network", *flags, "--samples", "500,1000", "--framing", "ud"))
        taken = probe.report()["next_shot"]
    assert [(point["samples"], point["trigger_hz"]) for point in found["point"]] == [(500, 300), (1000, 300)]
    for point in found["point"]:
        check_counters(point)
    assert sum(point["runs"][0]["shots_sent"] for point in found["point"]) == taken


# --- the disk ----------------------------------------------------------------------------------------


def test_a_disk_sweep_writes_counts_and_cleans_up(measured):
    _, _, found, folder = measured
    assert [point["trigger_hz"] for point in found["point"]] == [200, 400]
    for point in found["point"]:
        check_counters(point)
        assert set(point["write_gbps"]) == SPREAD, point
    assert list(folder.iterdir()) == []


def test_a_drive_that_fills_early_yields_no_measurement(tmp_path):
    need_root("mount")
    command("mount", "-t", "tmpfs", "-o", "size=32m", "none", tmp_path)
    try:
        flags = ["--dir", tmp_path, "--samples", 500, "--json", "--pool", "16MiB", "--seconds", WAIT_TIMEOUT_S / 2]
        for words in [
            ["disk", "--trigger-hz", 400, "--repeats", 1],
            ["search", "--framing", "ud", "--from", 1, "--to", 2],
        ]:
            ended = run("sweep", *words, *flags)
            assert ended.code == 1 and "point" not in ended.stdout and "trial" not in ended.stdout, ended.stdout
            (line,) = ended.stderr.splitlines()
            assert all(word in line for word in ["the file is full", "--seconds", "--dir"]), line
            assert list(tmp_path.iterdir()) == []
    finally:
        command("umount", tmp_path)


def test_kept_files_are_valid_recordings(tmp_path):
    flags = ["--dir", tmp_path, "--keep", "--samples", 500, "--trigger-hz", 200, "--repeats", 2]
    (point,) = parse_sweep(sweep("disk", *flags))["point"]
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    for file, counts in zip(files, point["runs"]):
        verdict = run("verify", file, "--json").succeeded()
        assert verdict["verified"] and verdict["links"][0]["complete"] == counts["shots_complete"], verdict


# --- the search --------------------------------------------------------------------------------------


def test_a_search_narrows_the_rate_and_reports_every_trial(tmp_path):
    flags = ["--samples", 500, "--framing", "ud", "--discard", "--precision", "20%", "--trials", 6]
    found = parse_sweep(sweep("search", *flags))
    (result,) = found["loss_free_rate"]
    assert result["trials"] == len(found["trial"]) <= 6 and result["confidence"] == 0.95, result
    low, high = result["low_gbps"] or 0, result["high_gbps"] or float("inf")
    assert low <= result["rate_gbps"] <= high, result
    assert result["rate_hz"] * (500 * 144 + 64) * 8e-9 == pytest.approx(result["rate_gbps"])
    for trial in found["trial"]:
        assert trial["passed"] == (trial["failed_by"] is None), trial
        assert trial["shots_lost"] == 0 or not trial["passed"], trial
    causes = {trial["failed_by"] for trial in found["trial"]} - {None}
    assert causes <= {"sender", "receiver"}, causes
    assert result["limited_by"] in causes | {None}, result


def test_a_search_above_the_probes_rate_names_the_limit():
    flags = ["--samples", 500, "--framing", "ud", "--discard", "--from", 1000, "--to", 2000, "--trials", 2]
    found = parse_sweep(sweep("search", *flags))
    assert {trial["failed_by"] for trial in found["trial"]} <= {"sender", "receiver"}, found
    (result,) = found["loss_free_rate"]
    assert result["low_gbps"] is None and result["limited_by"] in ("sender", "receiver"), result


def test_a_search_can_record_and_count_in_shots(tmp_path):
    flags = ["--dir", tmp_path, "--samples", 500, "--framing", "udp", "--unit", "hz", "--from", 100, "--to", 400]
    found = parse_sweep(sweep("search", *flags, "--trials", 3))
    assert all(trial["sink"] == "record" and 99 <= trial["requested_hz"] <= 410 for trial in found["trial"]), found
    assert len(found["trial"]) <= 3 and list(tmp_path.iterdir()) == []


# --- ends --------------------------------------------------------------------------------------------


def test_an_interrupted_sweep_reports_its_measurements(tmp_path):
    file = tmp_path / "sweep.jsonl"
    flags = ["--samples", 500, "--framing", "ud", "--trigger-hz", ",".join(map(str, range(200, 1200))), "--repeats", 2]
    with Process("sweep", "network", *flags, *TINY, "--json", "--out", file) as process:
        first = process.popen.stdout.readline() + process.popen.stdout.readline()  # header and point
        process.signal(signal.SIGINT)
        ended = process.end()
    assert ended.code == 0, ended.stderr
    found = by_kind(first + ended.stdout)
    assert found["end"][0]["interrupted"] is True and len(found["point"]) < 1000
    for point in found["point"]:
        assert 1 <= len(point["runs"]) <= 2
        check_counters(point)
    assert by_kind(file.read_text()) == found


def test_a_sweep_prints_a_table(tmp_path):
    file = tmp_path / "sweep.jsonl"
    flags = ["--samples", 500, "--framing", "udp", "--trigger-hz", "200,400", "--repeats", 1, "--out", file]
    ended = run("sweep", "network", *flags, *TINY)
    assert ended.code == 0 and "\x1b" not in ended.stdout + ended.stderr, ended.stderr
    rows = ended.stdout.splitlines()
    assert "receive buffer" in rows[0] and "trigger Hz" in rows[2], ended.stdout
    assert [row.split()[:4] for row in rows[3:]] == [["udp", "500", "0", "200"], ["udp", "500", "0", "400"]]
    assert len(by_kind(file.read_text())["point"]) == 2
    again = run("sweep", "network", *flags, *TINY)
    assert "--force" in again.refused()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["network", "--seconds", "0"], ["--seconds", "found 0"]),
        (["network", "--trigger-hz", "0"], ["Hz", "found 0"]),
        (["network", "--trigger-hz", "100,nan"], ["Hz", "found NaN"]),
        (["network", "--framing", "morse"], ["ud, counted, udp", "morse"]),
        (["network", "--samples", "0"], ["--samples", "found 0"]),
        (["network", "--repeats", "0"], ["--repeats", "found 0"]),
        (["network", "--links", "0"], ["--links", "found 0"]),
        (["network", "--probe", "[::1]:9"], ["--generator-hz", "--timing rate"]),
        (
            ["network", "--probe", "[::1]:9", "--generator-hz", "5", "--timing", "rate"],
            ["--generator-hz", "--timing rate"],
        ),
        (["disk", "--dir", "/nowhere"], ["--dir", "/nowhere"]),
        (["search", "--precision", "0"], ["precision", "found 0"]),
        (["search", "--confidence", "100%"], ["confidence", "found 1"]),
        (["search", "--from", "5", "--to", "2"], ["--from below --to", "5 to 2 Gbit/s"]),
        (["search", "--unit", "hz", "--from", "500", "--to", "200"], ["--from below --to", "500 to 200 shots/s"]),
        (["network", "--out", "/dev/full", "--force"], ["cannot write /dev/full", "No space"]),
        (["search", "--trials", "0"], ["trial", "found 0"]),
    ],
)
def test_invalid_sweep_settings_are_refused(arguments, words):
    message = run("sweep", *arguments).refused()
    assert all(word in message for word in words), message


def test_more_samples_than_the_probe_has_are_refused():
    with Probe("--samples", 500) as probe:
        flags = ["--probe", probe.address, "--timing", "rate", "--samples", "500,4000"]
        message = run("sweep", "network", *flags).refused()
    assert "500" in message and "4000" in message and "--samples" in message


def test_every_sweep_has_help_with_examples():
    for name in ("network", "disk", "search"):
        ended = run("sweep", name, "--help")
        assert ended.code == 0 and f"shotline sweep {name}" in ended.stdout and "Examples" in ended.stdout
        assert "--json" in ended.stdout


# --- figures -----------------------------------------------------------------------------------------


@pytest.fixture
def plot():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: scripts/setup.sh plot installs it")
    sys.path.insert(0, str(ROOT / "python"))
    return importlib.import_module("shotline_plot")


def test_figures_show_the_papers_statements(tmp_path, measured, plot, monkeypatch):
    files = measured[0]
    figures = plot.draw(plot.read(files))
    assert {name: len(figure.axes) for name, figure in figures.items()} == {
        "sweep-roce": 2,
        "sweep-udp": 2,
        "sweep-disk": 2,
    }
    for name, words in [("sweep-roce", "RDMA above 40"), ("sweep-udp", "22-25"), ("sweep-disk", "NVMe 12")]:
        legends = [axes.get_legend() for axes in figures[name].axes]
        texts = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
        assert any(words in text and "(text)" in text for text in texts), texts
    out = tmp_path / "img"
    monkeypatch.setattr(sys, "argv", ["shotline_plot", *map(str, files), "--out", str(out), "--svg"])
    plot.main()
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{n}.{k}" for n in figures for k in ("png", "svg"))
    for path in out.glob("*.png"):
        data = path.read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND" and len(data) < 150_000, path
        width, height = struct.unpack(">II", data[16:24])
        assert width >= 600 and height >= 400


def test_the_ideal_device_halves_its_rate_above_the_highest(plot):
    header = {"sample_rate_hz": 40_000_000, "shot_overhead_s": 1.85e-6}
    khz, rate = plot.ideal(header, 2000, [1000, 40_000])
    highest = 1 / 51.85e-6
    for f, found in zip(khz, rate):
        assert found == pytest.approx(f * 1e3 / (1 if f * 1e3 <= highest else 2 if f * 1e3 <= 2 * highest else 3))


def test_a_file_that_is_no_sweep_is_refused(tmp_path, plot):
    file = tmp_path / "other.jsonl"
    for text in ("hello\n", '{"a": 1}\n', "[1]\n", '{"kind": "point"}\n'):
        file.write_text(text)
        with pytest.raises(plot.Unreadable, match=r"other\.jsonl, line 1"):
            plot.read([file])


def test_paper_statements_are_quoted_with_their_location(plot):
    for name, entry in plot.PAPER.items():
        if isinstance(entry, dict):
            assert set(entry) == {"value", "where", "text"} and entry["where"] and entry["text"], name
