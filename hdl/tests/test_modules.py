"""Lint, timing diagrams and resource usage of the modules of hdl/rtl."""

import re
import subprocess
import sys

import pytest
from content import HDL


def run(*words) -> bool:
    """Runs a script of hdl/, which must succeed. Returns `True` if all its results were cached."""
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    counts = re.search(r": (\d+) .*, (\d+) of them cached", done.stdout)
    return bool(counts) and counts[1] == counts[2]


def test_no_module_has_a_verilator_warning(record_property):
    record_property("cached", run(HDL / "scripts" / "lint.py"))


def test_timing_diagrams_match_their_waves():
    run(HDL / "scripts" / "diagrams.py", "--check", *sorted((HDL / "timing").glob("*.json")))


LARGE = [
    pytest.param(["shotline_roce_ud_tx"], marks=pytest.mark.long),
    pytest.param(["shotline_shot_packetizer"], marks=pytest.mark.long),
]


@pytest.mark.parametrize(
    "modules",
    [
        ["shotline_icrc", "shotline_axil_slave", "shotline_fifo_async", "shotline_cdc_word", "shotline_counter48"],
        *LARGE,
    ],
)
def test_synthesis_matches_the_committed_table(modules, record_property):
    """Checks the code hash of every row, and computes the figures of `modules` in the generic flow again."""
    words = ["--check", "--flow", "generic", "--jobs", 1, *modules]
    record_property("cached", run(HDL / "synth" / "synth.py", *words))
