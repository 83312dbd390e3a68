"""Metrics of a recording, scraped by Prometheus; the alerts and the dashboard in monitoring/."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.parse

import pytest

from common import ROOT, WAIT_TIMEOUT_S, Page, Probe, Recorder, command, get, until

MONITORING = ROOT / "monitoring"
SHOTS = 300
# Names in expressions that are neither functions nor labels.
METRIC = re.compile(r"\b(?:shotline|process)_[a-z_]+")
# A probe whose packets get lost, and a run whose final state is served until it is scraped.
LOSSY = ["--loss", "0.01", "--corrupt", "0.01", "--seed", "5"]
# The pool holds all shots, so that a slow drive loses none.
RUN = [
    "--shots",
    SHOTS,
    "--samples",
    "200",
    "--rate-hz",
    "500",
    "--serve",
    "127.0.0.1:0",
    "--serve-linger-s",
    WAIT_TIMEOUT_S,
]


def need_prometheus():
    missing = [tool for tool in ("prometheus", "promtool") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: scripts/setup.sh web installs them")


@contextlib.contextmanager
def lossy_run(folder, *arguments):
    """A recorder whose run has ended with losses, and which still serves its page."""
    with (
        Probe("--links", "2", *LOSSY) as probe,
        Recorder(probe, "--out", folder / "run.h5", *RUN, *arguments) as recorder,
    ):
        page = Page(recorder)
        until(lambda: page.value("shotline_running") == 0, "the end of the run")
        yield recorder, page


class Prometheus:
    """Debian's Prometheus with the alerts of this repository, which scrapes one recorder."""

    def __init__(self, folder, target):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = (MONITORING / "prometheus.yml").read_text()
        config = config.replace("127.0.0.1:8080", target).replace("2s", "200ms")
        config = config.replace("- alerts.yml", f"- {MONITORING / 'alerts.yml'}")
        (folder / "prometheus.yml").write_text(config)
        options = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "data"}
        options |= {"web.listen-address": self.address}
        words = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
        self.log = open(folder / "prometheus.log", "w+")  # noqa: SIM115
        self.popen = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def __enter__(self):
        until(self.is_ready, "Prometheus")
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        try:
            self.popen.wait(WAIT_TIMEOUT_S)
        finally:
            self.popen.kill()
            self.log.close()

    def is_ready(self):
        if self.popen.poll() is not None:
            self.log.seek(0)
            raise AssertionError(f"Prometheus has ended: {self.log.read()}")
        with contextlib.suppress(OSError):
            return "eady" in get(f"http://{self.address}/-/ready")[1]
        return False

    def api(self, what, **parameters):
        reply = json.loads(get(f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}")[1])
        assert reply["status"] == "success", reply
        return reply["data"]

    def query(self, expression):
        """Returns pairs of labels and value."""
        return [(each["metric"], float(each["value"][1])) for each in self.api("query", query=expression)["result"]]

    def by_cause(self, name):
        """Returns the counts of a metric by cause, without those that are 0."""
        return {labels["cause"]: int(count) for labels, count in self.query(f"sum by (cause) ({name}) > 0")}

    def alerts(self):
        """Returns the names and causes of the alerts that are pending or firing."""
        return {(each["labels"]["alertname"], each["labels"].get("cause")) for each in self.api("alerts")["alerts"]}


# Values of Prometheus and how they follow from the summary of the run.
VALUES = {
    "sum(shotline_packets_missing_total)": lambda ended: ended["packets_missing"],
    "sum(shotline_packets_received_total)": lambda ended: ended["packets"],
    "sum(shotline_shots_complete)": lambda ended: ended["shots_complete"],
    "sum(shotline_shots_partial)": lambda ended: ended["shots_partial"],
    "shotline_rows_total": lambda ended: ended["rows"],
    "sum(shotline_shot_latency_from_kernel_seconds_count)": lambda ended: ended["shots_complete"],
    'sum(shotline_shot_latency_from_kernel_seconds_bucket{le="+Inf"})': lambda ended: ended["shots_complete"],
    'shotline_run_end{cause="shots"}': lambda _: 1,
    "shotline_run_progress_ratio": lambda ended: ended["rows"] / SHOTS,
}
# Alerts of such a run, each with its cause.
ALERTS = {
    ("ShotlineDataLost", None),
    ("ShotlinePacketsMissing", None),
    ("ShotlinePacketsDropped", "bad_icrc"),
    ("ShotlineRunEnded", None),
}
MEDIAN_US = "histogram_quantile(0.5, sum by (le) (shotline_shot_latency_from_kernel_seconds_bucket)) * 1e6"


def test_prometheus_has_the_losses_of_the_summary(tmp_path):
    need_prometheus()
    with lossy_run(tmp_path) as (recorder, page), Prometheus(tmp_path, page.address) as prometheus:
        until(lambda: prometheus.query("shotline_running == 0"), "a scrape of the final state")
        # Groups of rules are evaluated one after the other.
        until(lambda: prometheus.alerts() >= ALERTS, "alerts of losses")
        values = {expression: [value for _, value in prometheus.query(expression)] for expression in VALUES}
        drops = [prometheus.by_cause(f"shotline_{what}_dropped_total") for what in ("packets", "shots")]
        [(_, median)] = prometheus.query(MEDIAN_US)
        ended = recorder.interrupt().succeeded()
    assert ended["packets_missing"] > 0 and ended["packet_drops"]["bad_icrc"] > 0, ended
    assert drops == [ended["packet_drops"], ended["drops"]]
    assert values == {expression: [value(ended)] for expression, value in VALUES.items()}
    # The bucket of the median is an octave wide, and the summary's median is accurate to an eighth.
    p50 = ended["latency_from_kernel"]["p50_us"]
    assert p50 / 2.3 < median < p50 * 2.3, (median, p50)


def test_both_text_formats_are_valid(tmp_path):
    need_prometheus()
    with lossy_run(tmp_path) as (_, page):
        kind, text = get(page.url)
        assert kind.startswith("text/plain; version=0.0.4"), kind
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked
        kind, text = get(page.url, Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert kind.startswith("application/openmetrics-text; version=1.0.0") and text.endswith("# EOF\n"), kind


def test_promtool_accepts_the_rules_and_their_tests():
    need_prometheus()
    command("promtool", "check", "rules", "--lint-fatal", MONITORING / "alerts.yml")
    command("promtool", "check", "config", MONITORING / "prometheus.yml")
    command("promtool", "test", "rules", MONITORING / "alerts_test.yml")


def exported():
    """Returns the names of all metrics, from the table that a Rust test compares with the program."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    parts = [(name + suffix) for name, kind in rows if kind == "histogram" for suffix in ("_bucket", "_count", "_sum")]
    return {name for name, _ in rows} | set(parts)


def used(text):
    return set(METRIC.findall(text))


def test_a_scrape_has_no_metric_without_documentation(tmp_path):
    with lossy_run(tmp_path) as (_, page):
        names = {line.split("{")[0].split()[0] for line in get(page.url)[1].splitlines() if not line.startswith("#")}
    assert len(names) > 30 and names <= exported(), names - exported()


def test_rules_and_dashboard_use_exported_metrics():
    for name in ["alerts.yml", "alerts_test.yml", "grafana.json"]:
        names = used((MONITORING / name).read_text())
        assert names and names <= exported(), f"{name}: {names - exported()}"


def test_every_alert_names_a_command_that_helps():
    text = (MONITORING / "alerts.yml").read_text()
    alerts = text.split("- alert: ")[1:]
    assert len(alerts) > 10
    for alert in alerts:
        assert "summary:" in alert and "severity:" in alert and "shotline " in alert, alert


def test_grafana_reads_the_dashboard_without_loss():
    try:
        from grafana_foundation_sdk.cog import encoder, plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard
    except ImportError:
        pytest.skip("needs grafana-foundation-sdk: scripts/setup.sh web installs it")
    plugins.register_default_plugins()
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    read = json.loads(encoder.JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert not list(lost(dashboard, read)), "fields or values that Grafana's types do not have"
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert {"heatmap", "timeseries", "stat"} == {panel["type"] for panel in panels}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(panel["description"] and panel["targets"] for panel in panels)


def lost(written, read, path=""):
    """Yields the places where a value that was written was not read."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            yield from lost(value, read.get(key), f"{path}/{key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for index, pair in enumerate(zip(written, read, strict=True)):
            yield from lost(*pair, f"{path}/{index}")
    elif written != read:
        yield path, written, read


def test_prometheus_parses_every_query_of_the_dashboard(tmp_path):
    need_prometheus()
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 20
    # Variables as Grafana fills them in.
    filled = [
        text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*") for text in expressions
    ]
    with Prometheus(tmp_path, "127.0.0.1:9") as prometheus:
        for expression in filled:
            assert "$" not in expression, expression
            prometheus.query(expression)


def test_what_the_recorder_discards_is_counted_during_the_run(tmp_path):
    flags = ["--pre-trigger", "0.05", "--rate-hz", "500", "--samples", "200", "--capacity", "10000"]
    with Probe() as probe, Recorder(probe, *flags, "--out", tmp_path / "run.h5", "--serve", "127.0.0.1:0") as recorder:
        page = Page(recorder)
        discarded = r'shotline_shots_dropped_total\{stream="0",cause="not_triggered"\}'
        until(lambda: page.value(discarded) > 0, "a shot that no trigger has selected")
        lines = [line for line in get(page.url)[1].splitlines() if 'stream="0"' in line]
        counts = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines}
        total = sum(count for name, count in counts.items() if "shots_" in name and "seen" not in name)
        assert counts['shotline_shots_seen_total{stream="0"}'] == total, "each shot is in one counter"
        recorder.interrupt().succeeded()
