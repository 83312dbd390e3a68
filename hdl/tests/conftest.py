"""Import path of tests and cases, the `simulate` fixture, and the summary of cached verdicts."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# The simulator processes use this path, too.
sys.path[:0] = [path for path in (str(TESTS), str(TESTS.parent / "scripts")) if path not in sys.path]


@pytest.fixture
def simulate(record_property):
    """`runner.simulate`, reduced to the number of cocotb tests that ran or whose results were cached."""
    import runner

    def run(*args, **options):
        ran, cached = runner.simulate(*args, **options)
        record_property("cached", cached)
        return ran

    return run


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("passed", [])
    cached = [report.nodeid for report in reports if ("cached", True) in report.user_properties]
    if cached:
        terminalreporter.section("cached")
        for test in cached:
            terminalreporter.line(f"CACHED {test}")
        terminalreporter.line(
            f"{len(cached)} results are cached for unchanged inputs; remove target/hdl and .cache/synth to clear them"
        )
