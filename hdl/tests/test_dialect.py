"""Tests of the SystemVerilog dialect of hdl/rtl: one form of each construct, and parameters checked at elaboration."""

import re
import subprocess

import pytest
from content import RTL
from runner import verilator_on_path

MODULES = sorted(RTL.glob("*.sv"))
# Older or ambiguous constructs, and what this dialect uses instead.
REPLACED = {
    r"\balways\b": "always_ff or always_comb",
    r"\breg\b": "logic",
    r"\binteger\b": "int",
    r"\bparameter (?!int|logic)": "a parameter with a type",
    r"\blocalparam (?!int|logic)": "a localparam with a type",
    r"\bfunction (?!automatic logic)": "function automatic logic",
    r"\.([a-z]\w*)\(\1\)": "an implicit port connection (.name)",
}
# One value outside the range of each parameter.
OUT_OF_RANGE = [
    ("afe_window", {"BEAT": 2}),
    ("afe_window", {"LEVEL": 1}),
    ("afe_window", {"TIMEOUT_LOG2": 0}),
    ("axil_slave", {"ADDRESS_BITS": 33}),
    ("card", {"CHANNELS_LOG2": 2}),
    ("card", {"PREFETCH_LOG2": 11}),
    ("card", {"TAGS_LOG2": 9}),
    ("card", {"ROWS_LOG2": 4}),
    ("card", {"LANE_LOG2": 5}),
    ("card_classifier", {"CHANNELS_LOG2": 2}),
    ("card_classifier", {"TABLE_LOG2": 13}),
    ("card_counters", {"CHANNELS_LOG2": 9}),
    ("card_distributor", {"CHANNELS_LOG2": 9}),
    ("card_distributor", {"TABLE_LOG2": 0}),
    ("card_distributor", {"BUFFER_LOG2": 17}),
    ("card_distributor_registers", {"CHANNELS_LOG2": 9}),
    ("card_distributor_registers", {"TABLE_LOG2": 13}),
    ("card_distributor_registers", {"BUFFER_LOG2": 1}),
    ("card_dma", {"CHANNELS_LOG2": 9}),
    ("card_dma", {"PREFETCH_LOG2": 4}),
    ("card_dma", {"TAGS_LOG2": 9}),
    ("card_dma", {"ROWS_LOG2": 13}),
    ("card_dma", {"BLOCKS_LOG2": 5}),
    ("card_ethernet", {"CHANNELS_LOG2": 9}),
    ("card_ethernet", {"TABLE_LOG2": 13}),
    ("card_ethernet", {"BUFFER_LOG2": 17}),
    ("card_ethernet", {"CROSSING_LOG2": 1}),
    ("card_ethernet", {"PREFETCH_LOG2": 4}),
    ("card_ethernet", {"TAGS_LOG2": 9}),
    ("card_ethernet", {"ROWS_LOG2": 13}),
    ("card_ethernet", {"LANE_LOG2": 5}),
    ("card_frames", {"CHANNELS_LOG2": 2}),
    ("card_frames", {"BUFFER_LOG2": 1}),
    ("card_gate", {"CHANNELS_LOG2": 2}),
    ("card_gate", {"ROWS_LOG2": 4}),
    ("card_gate", {"BLOCKS_LOG2": 2}),
    ("card_packer", {"CHANNELS_LOG2": 9}),
    ("card_pcie", {"CHANNELS_LOG2": 9}),
    ("card_pcie", {"TAGS_LOG2": 1}),
    ("card_pcie", {"LANE_LOG2": 13}),
    ("card_pcie_completions", {"TAGS_LOG2": 9}),
    ("card_pcie_plan", {"TAGS_LOG2": 1}),
    ("card_pcie_requests", {"CHANNELS_LOG2": 2}),
    ("card_pcie_requests", {"TAGS_LOG2": 9}),
    ("card_pcie_requests", {"LANE_LOG2": 5}),
    ("card_pcie_slots", {"LANE_LOG2": 5}),
    ("card_port", {"CHANNELS_LOG2": 9}),
    ("card_port", {"TABLE_LOG2": 13}),
    ("card_port", {"BUFFER_LOG2": 17}),
    ("card_port", {"CROSSING_LOG2": 1}),
    ("card_port", {"PREFETCH_LOG2": 4}),
    ("card_port", {"TAGS_LOG2": 9}),
    ("card_port", {"ROWS_LOG2": 13}),
    ("card_reads", {"CHANNELS_LOG2": 2}),
    ("card_reads", {"PREFETCH_LOG2": 11}),
    ("card_reads", {"TAGS_LOG2": 1}),
    ("card_registers", {"CHANNELS_LOG2": 9}),
    ("card_registers", {"PREFETCH_LOG2": 11}),
    ("card_registers", {"TAGS_LOG2": 1}),
    ("card_registers", {"BLOCKS_LOG2": 2}),
    ("card_reports", {"CHANNELS_LOG2": 2}),
    ("card_rings", {"CHANNELS_LOG2": 9}),
    ("card_rings", {"PREFETCH_LOG2": 4}),
    ("card_rings", {"TAGS_LOG2": 9}),
    ("card_scheduler", {"CHANNELS_LOG2": 2}),
    ("card_scheduler", {"PREFETCH_LOG2": 11}),
    ("card_scheduler", {"BLOCKS_LOG2": 5}),
    ("card_writes", {"BLOCKS_LOG2": 5}),
    ("cdc_reset", {"STAGES": 1}),
    ("cdc_sync", {"WIDTH": 0}),
    ("cdc_sync", {"STAGES": 1}),
    ("cdc_word", {"WIDTH": 0}),
    ("fifo_async", {"WIDTH": 0}),
    ("fifo_async", {"DEPTH_LOG2": 1}),
    ("fifo_small", {"WIDTH": 0}),
    ("fifo_small", {"DEPTH_LOG2": 0}),
    ("fifo_sync", {"WIDTH": 0}),
    ("fifo_sync", {"DEPTH_LOG2": 0}),
    ("frame_fifo_async", {"DEPTH_LOG2": 1}),
    ("frame_fifo_async", {"BYTES": 48}),
    ("jesd_deinterleave", {"AFES": 4}),
    ("jesd_deinterleave", {"LANES": 0}),
    ("jesd_deinterleave", {"ADJACENT": 2}),
    ("lut_ram", {"WIDTH": 0}),
    ("lut_ram", {"DEPTH_LOG2": 0}),
    ("lut_ram", {"READS": 0}),
    ("packetizer_registers", {"CHANNELS": 65536}),
    ("sample_packer", {"SAMPLES": 31}),
    ("shot_assembler", {"BEAT": 1}),
    ("shot_assembler", {"AFES": 4}),
    ("shot_packetizer", {"AFES": 4}),
    ("shot_packetizer", {"LANES": 22}),
    ("shot_packetizer", {"ADJACENT": 2}),
    ("shot_packetizer", {"AFE_FIFO_LOG2": 1}),
    ("shot_packetizer", {"CMAC_FIFO_LOG2": 6}),
    ("shot_packetizer", {"TIMEOUT_LOG2": 0}),
]
# Parameters for which every value is valid.
UNRESTRICTED = {("crc32_words", "START")}


def code(path):
    """Returns a file without comments."""
    return re.sub(r"//.*|/\*.*?\*/", "", path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_module_is_written_in_the_dialect(path):
    text = code(path)
    assert re.findall(r"^module (\w+)", text, re.MULTILINE) == [path.stem]
    assert path.stem.startswith("shotline_")
    assert text.lstrip().startswith("`default_nettype none") and text.rstrip().endswith("`default_nettype wire")
    found = {instead: found for pattern, instead in REPLACED.items() if (found := re.findall(pattern, text))}
    assert not found, f"{path.name}: write instead {found}"
    ports = text[text.index("module ") : text.index("\n);")]
    assert not re.search(r"\b(input|output)\b(?! +(wire|logic) )", ports), "a port without wire or logic"
    headings = re.findall(r"^    // .+", path.read_text().split("\n);")[0], re.MULTILINE)
    assert headings, f"{path.name}: its port groups have no headings"


def test_every_parameter_is_tested_out_of_range():
    declared = {
        (path.stem.removeprefix("shotline_"), name)
        for path in MODULES
        for name in re.findall(r"\bparameter (?:int|logic(?: \[[^\]]*\])?) (\w+)", code(path))
    }
    tested = {(module, name) for module, values in OUT_OF_RANGE for name in values}
    assert tested | UNRESTRICTED == declared


@pytest.mark.parametrize("module, values", OUT_OF_RANGE, ids=lambda value: str(value))
def test_elaboration_rejects_a_parameter_out_of_range(module, values):
    assert verilator_on_path()
    name = f"shotline_{module}"
    words = ["verilator", "--lint-only", "--quiet", f"-I{RTL}", "--top-module", name]
    words += [f"-G{parameter}={value}" for parameter, value in values.items()]
    done = subprocess.run([*words, RTL / f"{name}.sv"], capture_output=True, text=True, timeout=120, check=False)
    (parameter,) = values
    assert done.returncode != 0
    assert f"{name}: {parameter} must be" in done.stderr, done.stderr
