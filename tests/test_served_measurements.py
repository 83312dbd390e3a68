"""The pages of commands that measure and show: `--serve` of `perf`, `sweep`, `trigger`, `link`, `images`, `stencil`."""

import json
import re
import shutil
import subprocess
import urllib.request

import numpy as np
import pytest
from image_pattern import BAR, pattern
from memory_target import Target
from test_pictures import watch

from common import ROOT, WAIT_TIMEOUT_S, Process, until

SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Served(Process):
    """A command with a page, whose final state is served until a signal."""

    def __init__(self, *arguments):
        linger = ("--serve", "127.0.0.1:0", "--serve-linger-s", 10 * WAIT_TIMEOUT_S)
        super().__init__(*arguments, *linger)
        self.url = None
        while self.url is None:
            line = self.popen.stderr.readline()  # an empty line: it has ended
            assert line, f"{self.command} has no page: {self.popen.communicate()}"
            if found := re.match(r"page: (http://[^/]+)/#token=([0-9a-f]{32})$", line):
                self.url, self.token = found.groups()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=WAIT_TIMEOUT_S) as reply:
            return reply.read().decode()

    def status(self):
        return json.loads(self.get("/api/status"))

    def about(self):
        return json.loads(self.get("/api/about"))

    def metrics(self):
        """Returns the values of all metrics by name and labels. The text must be valid, and every name documented."""
        text = self.get("/metrics")
        if shutil.which("promtool"):
            words = ["promtool", "check", "metrics"]
            checked = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
            assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked
        metrics = Metrics(text)
        assert metrics.names() <= documented(), metrics.names() - documented()
        return metrics

    def stop(self):
        """Ends the command by the page."""
        headers = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + "/api/control", b'{"action": "stop"}', headers)
        with urllib.request.urlopen(request, timeout=WAIT_TIMEOUT_S) as reply:
            assert json.loads(reply.read())["done"], "what has happened"

    def final(self):
        """Returns the final state, its metrics, and what the program has printed, as JSON lines."""
        until(lambda: self.status()["phase"] == "ended", "the end of the command")
        status, metrics = self.status(), self.metrics()
        assert metrics("running") == 0 and metrics("run_phase", phase="ended") == 1
        ended = self.interrupt()
        assert ended.code == 0, ended.stderr
        return status, metrics, [json.loads(line) for line in ended.stdout.splitlines()]


def documented():
    """Returns the names of all metrics in the documentation."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE)
    parts = [name + end for name, kind in rows if kind == "histogram" for end in ("_bucket", "_count", "_sum")]
    return {name for name, _ in rows} | set(parts)


class Metrics:
    """Metrics of a scrape."""

    def __init__(self, text):
        self.values = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = SAMPLE.match(line).groups()
            self.values[name, frozenset(LABEL.findall(labels or ""))] = float(value)

    def __call__(self, name, **labels):
        """Returns the value of a metric with exactly these labels."""
        return self.values[f"shotline_{name}", frozenset((key, str(value)) for key, value in labels.items())]

    def sum(self, name, **labels):
        """Returns the sum over all samples that have these labels."""
        wanted = {(key, str(value)) for key, value in labels.items()}
        return sum(
            value for (known, has), value in self.values.items() if known == f"shotline_{name}" and wanted <= has
        )

    def names(self):
        return {name for name, _ in self.values}


def table(status, title):
    """Returns the rows of a table as dictionaries."""
    (found,) = [table for table in status["tables"] if table["title"] == title]
    assert all(len(row) == len(found["columns"]) for row in found["rows"]), found
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def family(status, name):
    return [family for family in status["families"] if family["name"] == name]


def losses(status):
    """Returns the metrics whose counts are losses."""
    return {family["name"] for family in status["families"] if family["is_loss"]}


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-15)


def check_latency(status, metrics, name, quantiles, **labels):
    """Checks a distribution against the quantiles of a report in microseconds."""
    expected = [[key, str(value)] for key, value in labels.items()]
    found = [each for each in status["latencies"] if each["name"] == name and each["labels"] == expected]
    assert len(found) == 1, (name, labels, status["latencies"])
    assert found[0]["count"] == quantiles["count"]
    assert found[0]["quantiles_s"] == near([quantiles[key] / 1e6 for key in ("min", "p50", "p99", "p99.9", "max")])
    assert metrics(f"{name}_seconds_count", **labels) == quantiles["count"]
    assert metrics(f"{name}_seconds_bucket", le="+Inf", **labels) == quantiles["count"]
    counts = [count for _, count in found[0]["bins"]]
    assert counts == sorted(counts) and counts[-1] <= quantiles["count"]


# --- perf --------------------------------------------------------------------------------------------

GBPS = 1e9 / 8


def check_perf_row(status, metrics, row):
    labels = {"operation": row["verb"], "size": row["size"], "group": row["group"]}
    for statistic in ("average", "worst"):
        of = labels | {"statistic": statistic}
        assert metrics("perf_rate_bytes_per_second", direction="forward", **of) == near(row["gbps"][statistic] * GBPS)
        assert metrics("perf_operation_rate_hertz", **of) == near(row["operations_per_s"][statistic])
        for side in ("initiator", "target"):
            percent = row[f"cpu_{side}_percent"][statistic]
            assert metrics("perf_cpu_ratio", side=side, **of) == near(percent / 100)
    assert metrics("perf_measured_seconds", **labels) == near(row["seconds"])
    check_latency(status, metrics, "perf_time", row["time_us"], **labels)


def test_results_of_perf_are_on_its_page():
    points = ("--size", "4K,64K", "--group", "1,2", "--queue-pairs", 2, "--iterations", 2, "--seconds", 0.1)
    with Served("perf", "write", *points, "--json") as perf:
        about = perf.about()
        status, metrics, rows = perf.final()
    assert about["command"] == "perf" and [control["action"] for control in about["controls"]] == ["stop"]
    assert ["queue pairs", "2"] in about["settings"]
    assert len(rows) == 4 and status["progress"] == 1
    for row in rows:
        check_perf_row(status, metrics, row)
    assert metrics("perf_operations_total") == sum(row["operations"] for row in rows)
    assert metrics("perf_payload_bytes_total") == sum(row["bytes"] for row in rows)
    assert metrics("packets_retransmitted_total") == sum(row["retransmitted"] for row in rows)
    assert metrics("acknowledgement_timeouts_total") == sum(row["timeouts"] for row in rows)
    assert metrics("perf_iterations_total") == 8 and metrics("target_connected") == 0
    shown = table(status, "Results")
    assert [(cells["operation"], cells["size"], cells["group"]) for cells in shown] == [
        ("write", size, group) for size in ("4 KiB", "64 KiB") for group in ("1", "2")
    ]
    for cells, row in zip(shown, rows, strict=True):
        assert cells["Gbit/s"] == f"{row['gbps']['average']:.2f} ({row['gbps']['worst']:.2f})", (cells, row)
        assert (cells["queue pairs"], cells["iterations"]) == ("2", "2")


def test_the_present_point_of_perf_is_shown(tmp_path):
    transport = ("--transport", "spacefibre:lanes=2,vcs=2")
    with Target("--region", "data=1M,rights=rw", *transport) as target:
        to = ("--to", target.address, "--token", target.token, *transport)
        endless = ("--size", "4K", "--seconds", 0.05, "--iterations", 1000)
        with Served("perf", "write", *endless, *to, "--queue-pairs", 2, "--service-level", "0,1") as perf:
            live = until(lambda: (status := perf.status())["phase"] == "running" and status, "the first point")
            live = until(lambda: (status := perf.status())["progress"] > 0 and status, "an iteration")
            assert perf.metrics()("target_connected") == 1
            perf.stop()
            ended = perf.end()
        target.end_report()
    assert ended.code == 0 and "Averages over the iterations" in ended.stdout, ended.stderr
    (now,) = table(live, "Now")
    assert (now["operation"], now["size"], now["group"]) == ("write", "4 KiB", "1") and int(now["iterations"]) > 0
    pairs = table(live, "Queue pairs")
    assert [(pair["service"], pair["service level"]) for pair in pairs] == [("RC", "0"), ("RC", "1")]
    assert len({pair["number"] for pair in pairs}) == 2
    assert 0 < live["progress"] < 1


def test_latencies_and_links_of_perf_are_on_its_page():
    arguments = ("--operation", "write,ping", "--seconds", 0.1, "--transport", "spacefibre:shm", "--json")
    with Served("perf", "latency", *arguments) as perf:
        status, metrics, rows = perf.final()
    assert [row["verb"] for row in rows] == ["write latency", "ping latency"]
    for row in rows:
        check_perf_row(status, metrics, row)
    (link,) = rows[-1]["spacefibre"]["links"]
    of_link = {"link": link["number"]}
    assert metrics("link_sent_bytes_total", vc=0, **of_link) == 4 * link["channels"][0]["words_out"]
    assert metrics("link_events_total", event="retries", **of_link) == link["counters"]["retries"]
    assert metrics("packets_sent_total") == rows[-1]["spacefibre"]["packets"]["packets_out"]


# --- sweep -------------------------------------------------------------------------------------------

TINY = ("--pool", "16MiB", "--seconds", 0.1, "--json")


def check_sweep(status, metrics, lines):
    """Checks the counters of all runs, and the rates of all points."""
    points = [line for line in lines if line["kind"] == "point"]
    runs = [run for point in points for run in point["runs"]]
    for name, field in {
        "shots_complete": "shots_complete",
        "shots_partial": "shots_partial",
        "shots_sent_total": "shots_sent",
        "triggers_seen_total": "triggers",
        "triggers_missed_total": "triggers_missed",
        "packets_expected_total": "packets_expected",
        "packets_placed_total": "packets_placed",
        "packets_missing_total": "packets_missing",
        "packets_unplaced_total": "packets_unplaced",
    }.items():
        assert metrics(f"sweep_{name}", link=0) == sum(run[field] for run in runs), name
    for name in ("shots_dropped", "packets_dropped"):
        expected = {}
        for cause, count in [pair for run in runs for pair in run[name].items()]:
            expected[cause] = expected.get(cause, 0) + count
        samples = [sample for family_ in family(status, f"sweep_{name}") for sample in family_["samples"]]
        found = {dict(sample["labels"])["cause"]: int(sample["value"]) for sample in samples if sample["value"]}
        assert found == {cause: count for cause, count in expected.items() if count}, name
    assert {
        f"sweep_{name}" for name in ("shots_partial", "shots_dropped", "packets_dropped", "packets_missing")
    } <= losses(status)
    names = {
        "frame_rate_hz": ("sweep_frame_rate_hertz", 1),
        "bandwidth_gbps": ("sweep_payload_rate_bytes_per_second", GBPS),
    }
    names |= {"write_gbps": ("sweep_write_rate_bytes_per_second", GBPS)} if "write_gbps" in points[0] else {}
    for point in points:
        # Numbers as the page writes them: without a fraction that is 0.
        hz = str(point["trigger_hz"]).removesuffix(".0")
        labels = {"framing": point["framing"], "samples": point["samples"], "trigger_hz": hz, "link": point["link"]}
        for field, (name, scale) in names.items():
            for statistic, value in point[field].items():
                assert metrics(name, statistic=statistic, **labels) == near(value * scale), (name, labels)
    shown = table(status, "Points")
    assert [cells["shots/s"] for cells in shown] == [f"{point['frame_rate_hz']['mean']:.1f}" for point in points]
    assert metrics("sweep_runs_total") == len(runs) == len(table(status, "Newest runs")) and status["progress"] == 1


def test_points_of_a_network_sweep_are_on_its_page():
    points = ("--samples", "500,1000", "--framing", "ud", "--trigger-hz", "200,400", "--repeats", 2)
    with Served("sweep", "network", *points, *TINY) as sweep:
        about = sweep.about()
        status, metrics, lines = sweep.final()
    assert about["title"] == "network sweep"
    assert ["probe", lines[0]["probe"] + ", emulated"] in about["settings"]
    check_sweep(status, metrics, lines)


def test_points_of_a_disk_sweep_are_on_its_page(tmp_path):
    points = ("--samples", "500", "--trigger-hz", "200", "--repeats", 2)
    with Served("sweep", "disk", "--dir", tmp_path, *points, *TINY) as sweep:
        status, metrics, lines = sweep.final()
    check_sweep(status, metrics, lines)


def test_trials_and_result_of_a_search_are_on_its_page():
    search = ("--framing", "ud", "--samples", 500, "--trials", 4, "--from", 0.1, "--to", 0.4)
    with Served("sweep", "search", *search, *TINY) as sweep:
        status, metrics, lines = sweep.final()
    trials = [line for line in lines if line["kind"] == "trial"]
    (result,) = [line for line in lines if line["kind"] == "loss_free_rate"]
    assert metrics.sum("sweep_trials_total", framing="ud", sink="receive") == len(trials) == result["trials"]
    passed = sum(trial["passed"] for trial in trials)
    assert metrics.sum("sweep_trials_total", result="passed") == passed
    for bound, gbps, hz in [
        ("estimate", "rate_gbps", "rate_hz"),
        ("low", "low_gbps", "low_hz"),
        ("high", "high_gbps", "high_hz"),
    ]:
        if result[gbps] is not None:
            labels = {"framing": "ud", "sink": "receive", "bound": bound}
            assert metrics("sweep_loss_free_payload_bytes_per_second", **labels) == near(result[gbps] * GBPS)
            assert metrics("sweep_loss_free_hertz", **labels) == near(result[hz])
    assert len(table(status, "Newest trials")) == len(trials)
    (shown,) = table(status, "Loss-free rates")
    assert (shown["Gbit/s"], shown["trials"]) == (f"{result['rate_gbps']:.3f}", str(result["trials"]))


# --- trigger -----------------------------------------------------------------------------------------


def test_times_of_triggers_are_on_their_page():
    arguments = ("--samples", "125,250", "--framing", "ud", "--wait", "sleep", "--count", 20, "--json")
    with Served("trigger", *arguments) as trigger:
        status, metrics, rows = trigger.final()
    assert len(rows) == 2 and status["progress"] == 1
    for row in rows:
        labels = {"samples": row["samples"], "framing": "ud", "wait": "sleep"}
        times = {"shot": "complete_us", "command": "command_us", "first_packet": "first_packet_us"}
        for name, field in (times | {"last_packet": "last_packet_us"}).items():
            check_latency(status, metrics, f"trigger_{name}", row[field], **labels)
        assert metrics("trigger_sampling_seconds", **labels) == near(row["sampling_us"] / 1e6)
        for name, field in {
            "trigger_commands_total": "triggers",
            "trigger_shots_complete": "complete",
            "trigger_shots_partial": "partial",
            "trigger_shots_lost_total": "shots_lost",
            "triggers_missed_total": "busy",
            "triggers_refused_total": "refused",
            "triggers_unanswered_total": "unanswered",
            "trigger_answers_lost_total": "answers_lost",
            "commands_lost_total": "commands_lost",
            "trigger_packets_received_total": "packets",
            "trigger_packets_missing_total": "packets_missing",
        }.items():
            assert metrics(name, **labels) == row[field], name
    shown = table(status, "Times from the command to the complete shot, in us")
    assert [cells["p50"] for cells in shown] == [f"{row['complete_us']['p50']:.1f}" for row in rows]


# --- link --------------------------------------------------------------------------------------------


def check_links(status, metrics, reading):
    """Checks everything that a reading has."""
    assert metrics("packets_sent_total") == reading["packets"]["packets_out"]
    assert metrics("packets_received_total") == reading["packets"]["packets_in"]
    assert metrics("links") == reading["open"] and metrics("links_ended_total") == reading["ended"]["count"]
    shown = table(status, "Links")
    assert [cells["link"] for cells in shown] == [str(link["number"]) for link in reading["links"]]
    for link, cells in zip(reading["links"], shown, strict=True):
        number = link["number"]
        assert metrics("link_up", link=number) == link["is_up"]
        for name, count in link["counters"].items():
            assert metrics("link_events_total", link=number, event=name) == count, name
        for name, count in link["datagrams"].items():
            event = name if name.startswith("datagrams") else f"datagrams_{name}"
            assert metrics("link_events_total", link=number, event=event) == count, name
        for vc, channel in enumerate(link["channels"]):
            of = {"link": number, "vc": vc}
            assert metrics("link_sent_bytes_total", **of) == 4 * channel["words_out"]
            assert metrics("link_received_bytes_total", **of) == 4 * channel["words_in"]
            assert metrics("link_credit_bytes", **of) == 4 * channel["credit"]
            assert metrics("link_share_ratio", **of) == near(channel["share"])
            assert metrics("link_used_ratio", **of) == near(link["rates"]["channels"][vc]["used"])
        assert cells["out Gbit/s"] == f"{link['rates']['out_gbps']:.3f}"
        assert cells["retries"] == str(link["counters"]["retries"])


def test_readings_of_a_demonstration_are_on_its_page():
    demo = ("--demo", "lanes=2,vc=60%,vc=40%,ber=1e-6", "--interval", 0.1, "--count", 5, "--gbps", 0.1)
    with Served("link", *demo, "--json") as link:
        status, metrics, readings = link.final()
    assert len(readings) == 5 and status["progress"] == 1
    check_links(status, metrics, readings[-1])
    assert len(table(status, "Virtual channels")) == 2


def test_links_of_a_target_are_on_the_page_of_their_watcher():
    with Target("--region", "data=1M,rights=rw", "--transport", "spacefibre:lanes=2") as target:
        watch = (target.address, "--token", target.token, "--interval", 0.1, "--count", 2, "--json")
        with Served("link", *watch) as link:
            about = link.about()
            status, metrics, readings = link.final()
        target.end_report()
    assert target.address in about["title"] and status["tables"]
    check_links(status, metrics, readings[-1])


# --- images ------------------------------------------------------------------------------------------

FRAMES = ("--display", "none", "--mode", "1300x100@60", "--count", 5)


def check_images(status, metrics, report):
    """Checks the metrics against the report."""
    for name, value in {
        "images_written_total": report["images"],
        "image_written_bytes_total": report["images"] * report["image_bytes"],
        "images_other_sizes_total": report["other_sizes"],
        "images_read_total": report["images_read"],
        "image_read_bytes_total": report["bytes_read"],
        "frames_presented_total": report["presented"],
        "frames_shown": report["shown"],
        "frames_skipped": report["skipped"],
        "frames_late": report["late"],
        "frames_repeated_total": report["repeated"],
        "frames_verified_total": report["verified"],
        "frames_mismatched_total": report["mismatched"],
        "display_refreshes_total": report["refreshes"],
        "display_resizes_total": report["resizes"],
        "display_stalls_total": report["stalls"],
        "target_stalls_total": report["target_stalls"],
    }.items():
        assert metrics(name) == value, name
    assert metrics("frame_rate_hertz") == near(report["images_per_s"])
    assert metrics("display_refresh_rate_hertz") == near(report["refresh_hz"])
    assert metrics("image_read_mean_seconds") == near(report["read_ms"] / 1e3)
    assert metrics("image_read_max_seconds") == near(report["read_max_ms"] / 1e3)
    assert metrics("image_writing_seconds") == near(report["write_s"])
    assert metrics("images_shown_for_seconds") == near(report["seconds"])
    assert metrics("images_cpu_seconds", side="initiator") == near(report["cpu_s"])
    assert metrics("images_cpu_seconds", side="target") == near(report["target_cpu_s"])
    assert losses(status) == {"frames_mismatched"}


def test_frames_and_statistics_of_images_are_on_their_page():
    with Served("images", *FRAMES, "--frames", 12, "--json") as images:
        about = images.about()
        status, metrics, (report,) = images.final()
    assert about["command"] == "images" and [picture["kind"] for picture in about["pictures"]] == ["frame"]
    check_images(status, metrics, report)
    (shown,) = status["tables"]
    rows = dict(shown["rows"])
    assert rows["images shown"] == "12" and rows["end"] == "done" and status["progress"] == 1


def test_the_picture_of_images_is_the_frame_that_is_shown():
    one = ("--display", "none", "--mode", "320x100@60", "--count", 1, "--frames", 2)
    with Served("images", *one) as images:
        until(lambda: images.status()["phase"] == "ended", "the last frame")
        _, pictures = watch(images.url.removeprefix("http://"), count=1)
        assert images.interrupt().code == 0
    ((header, points),) = pictures["frame"]
    assert (header["shot"], header["note"]) == (2, "")
    assert (points.reshape(100, 320, 3)[BAR:] == pattern(0, 320, 100)[BAR:]).all()


# --- stencil -----------------------------------------------------------------------------------------

STAGES = ("writing", "waiting", "computing", "exchanging", "waiting_for_halos", "reading")


def check_stencil(metrics, report):
    """Checks the metrics against the report."""
    for name, value in {
        "stencil_steps_total": report["steps"],
        "stencil_rows": report["rows"],
        "stencil_columns": report["columns"],
        "stencil_matrix_bytes": report["bytes"],
        "stencil_round_steps": report["round_steps"],
        "stencil_tile_rows": report["tile_rows"],
        "stencil_round_tiles": report["tiles"],
        "stencil_time_seconds": near(report["seconds"]),
        "stencil_update_rate_hertz": near(report["updates_per_s"]),
        "stencil_transfer_rate_bytes_per_second": near(report["bytes_per_s"]),
        "stencil_change_max": near(report["max_change"]),
        "stencil_change_l2": near(report["l2_change"]),
        "values_verified_total": report["values_verified"],
    }.items():
        assert metrics(name) == value, name
    for index, node in enumerate(report["nodes"]):
        assert metrics("node_tiles_total", node=index) == node["tiles"]
        assert metrics("node_written_bytes_total", node=index) == node["bytes_out"]
        assert metrics("node_read_bytes_total", node=index) == node["bytes_back"]
        assert metrics("node_exchanged_bytes_total", node=index) == node["bytes_exchanged"]
        assert metrics("node_lost", node=index) == 0 and node["lost"] is None
        for stage in STAGES:
            assert metrics("node_stage_seconds_total", node=index, stage=stage) == near(node[f"{stage}_s"]), stage


@pytest.mark.parametrize("resident", [(), ("--resident",)], ids=["tiles that come and go", "tiles that stay"])
def test_nodes_and_result_of_a_stencil_are_on_its_page(resident):
    arguments = ("300x130", "--steps", 30, "--round-steps", 5, "--node-memory", "256K", "--verify", *resident)
    with Served("stencil", *arguments, "--json") as stencil:
        about = stencil.about()
        status, metrics, (report,) = stencil.final()
    assert about["title"] == "a matrix of 300 x 130 f32"
    assert [picture["kind"] for picture in about["pictures"]] == ["matrix"]
    check_stencil(metrics, report)
    assert metrics("stencil_tiles_total") == metrics("stencil_tiles_planned") == report["tiles"] * 6
    shown = table(status, "Nodes")
    assert [(cells["node"], cells["tiles"]) for cells in shown] == [
        (str(index), str(node["tiles"])) for index, node in enumerate(report["nodes"])
    ]
    phases = [(cells["phase"], cells["state"]) for cells in table(status, "Phases")]
    assert phases == [(phase, "over") for phase in ("prepare", "compute", "verify", "save")]
    assert status["progress"] == 1 and [stage["name"] for stage in status["stages"]] == [
        "write",
        "compute",
        "read back",
    ]


def test_the_picture_of_a_stencil_is_its_result(tmp_path):
    out = tmp_path / "out.npy"
    with Served("stencil", "1200x48", "--values", "f64", "--steps", 20, "--out", out) as stencil:
        until(lambda: stencil.status()["phase"] == "ended", "the end")
        _, pictures = watch(stencil.url.removeprefix("http://"), count=1)
        assert stencil.interrupt().code == 0
    ((header, points),) = pictures["matrix"]
    result = np.load(out)[::3, ::3]
    value = header["value"]
    assert header["note"] == "reduced from 1200 x 48 values"
    assert (value["from"], value["to"]) == (result.min(), result.max())
    shown = value["from"] + points / 255 * (value["to"] - value["from"])
    assert np.abs(shown - result).max() <= (value["to"] - value["from"]) / 255


def test_a_stencil_that_the_page_stops_has_no_result(tmp_path):
    out = tmp_path / "out.npy"
    arguments = ("512x512", "--steps", 10_000_000, "--out", out)
    with Served("stencil", *arguments) as stencil:
        live = until(lambda: len((status := stencil.status())["tables"]) == 2 and status, "the nodes")
        assert stencil.metrics().sum("node_written_bytes_total") > 0 and 0 < live["progress"] < 1
        stencil.stop()
        message = stencil.end().refused()
    assert "interrupted" in message and not out.exists()


# --- the page's Stop ---------------------------------------------------------------------------------

ENDLESS = {
    "perf": ("perf", "read", "--size", "4K", "--iterations", 1000, "--json"),
    "sweep network": ("sweep", "network", "--framing", "ud", "--samples", 500, "--json"),
    "sweep search": ("sweep", "search", "--framing", "ud", "--samples", 500, "--json"),
    "trigger": ("trigger", "--samples", 125, "--count", 10_000_000, "--wait", "sleep", "--json"),
    "link": ("link", "--demo", "--duration", 1000, "--json"),
    "images": ("images", *FRAMES, "--seconds", 1000, "--json"),
}


@pytest.mark.parametrize("arguments", ENDLESS.values(), ids=ENDLESS)
def test_the_page_stops_the_command(arguments):
    with Served(*arguments) as served:
        live = until(lambda: (status := served.status())["phase"] == "running" and status, "work")
        assert served.metrics()("running") == 1 and live["progress"] < 1, live
        served.stop()
        ended = served.end()
    assert ended.code == 0, ended.stderr
    assert ended.stdout and all(json.loads(line) for line in ended.stdout.splitlines())
