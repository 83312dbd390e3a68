"""Runs Verilator's lint with all warnings on every module of hdl/rtl; fails on any warning.

Each module is linted as the top, with default parameters; submodules are found by name. Clean results are cached by the
content of a module's files.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from content import BUILD, RTL, below, digest, once

WORDS = ["verilator", "--lint-only", "-Wall", "--quiet", f"-I{RTL}"]


def main():
    modules = sorted(path.stem for path in RTL.glob("*.sv"))
    if not modules:
        sys.exit(f"lint: no module in {RTL}")
    verilator = subprocess.run(["verilator", "--version"], capture_output=True, text=True, check=True).stdout
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(modules, pool.map(lambda module: lint(module, verilator), modules), strict=True))
    bad = [module for module, kept in found.items() if kept is None]
    if bad:
        sys.exit(f"lint: {len(bad)} of {len(modules)} modules have warnings: {', '.join(bad)}")
    print(f"lint: {len(modules)} modules without a warning, {sum(found.values())} of them cached")


def lint(module, verilator):
    """Returns `True` if the module's clean result was cached, None if it has warnings, which are printed."""

    def run(_):
        subprocess.run([*WORDS, "--top-module", module, str(RTL / f"{module}.sv")], check=True)

    try:
        return once(BUILD / "lint" / module, digest(verilator, repr(WORDS), *below(module)), run)
    except subprocess.CalledProcessError:
        return None


if __name__ == "__main__":
    main()
