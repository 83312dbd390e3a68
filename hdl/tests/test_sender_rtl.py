"""Runs the cocotb benches of the sender, and checks that what scripts make is what is committed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

runner = pytest.importorskip("cocotb_tools.runner")

HERE = Path(__file__).resolve().parent
RTL = HERE.parent / "rtl"
SCRIPTS = HERE.parent / "scripts"


def simulate(top: str, bench: str, folder: Path) -> None:
    """Builds a module with all that it uses and runs a bench; by Icarus, unless SIM says otherwise."""
    simulator = os.environ.get("SIM", "icarus" if shutil.which("iverilog") else "verilator")
    arguments = {
        "icarus": ["-g2012", f"-y{RTL}", "-Y.sv"],
        "verilator": ["-y", str(RTL), "--assert", "-Wno-fatal"],
    }[simulator]
    sim = runner.get_runner(simulator)
    sim.build(
        sources=[RTL / f"{top}.sv"],
        hdl_toplevel=top,
        includes=[RTL],
        build_args=arguments,
        build_dir=folder,
        timescale=("1ns", "1ps"),
    )
    results = sim.test(
        hdl_toplevel=top, test_module=bench, test_dir=HERE, build_dir=folder, results_xml=str(folder / "results.xml")
    )
    total, failed = runner.get_results(results)
    assert total > 0
    assert failed == 0


def test_the_icrc_is_right_at_every_length(tmp_path: Path) -> None:
    simulate("icrc", "bench_icrc", tmp_path)


def test_the_sender_makes_the_frames_of_the_format(tmp_path: Path) -> None:
    simulate("roce_ud_tx", "bench_sender", tmp_path)


@pytest.mark.parametrize("script", ["registers.py", "crc_tables.py"])
def test_what_scripts_make_is_what_is_committed(script: str) -> None:
    subprocess.run([sys.executable, SCRIPTS / script, "--check"], check=True)
