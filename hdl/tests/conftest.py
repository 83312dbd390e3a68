"""Where modules lie that tests and cases import, and what the summary says of kept verdicts."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
# The simulated cases get this path, too.
sys.path[:0] = [path for path in (str(TESTS), str(TESTS.parent / "scripts")) if path not in sys.path]


@pytest.fixture
def simulate(record_property):
    """`runner.simulate`, which tells how many cocotb tests ran, or did so before for the same content."""
    import runner

    def run(*args, **options):
        ran, kept = runner.simulate(*args, **options)
        record_property("cached", kept)
        return ran

    return run


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.stats.get("passed", [])
    kept = [report.nodeid for report in reports if ("cached", True) in report.user_properties]
    if kept:
        terminalreporter.section("cached")
        for test in kept:
            terminalreporter.line(f"CACHED {test}")
        terminalreporter.line(
            f"{len(kept)} verdicts are kept for the same content; without target/hdl and .cache/synth they are made anew"
        )
