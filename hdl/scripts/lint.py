"""Verilator's lint, all warnings on, of every module of hdl/rtl by itself: no warning may be left."""

import subprocess
import sys
from pathlib import Path

RTL = Path(__file__).resolve().parent.parent / "rtl"


def main():
    modules = sorted(RTL.glob("*.sv"))
    if not modules:
        sys.exit(f"lint: no module in {RTL}")
    # Each is a top by itself: its parameters then have their defaults, and whatever it uses is found by name.
    bad = [module.stem for module in modules if subprocess.call(words(module))]
    if bad:
        sys.exit(f"lint: {len(bad)} of {len(modules)} modules have warnings: {', '.join(bad)}")
    print(f"lint: {len(modules)} modules without a warning")


def words(module):
    lint = ["verilator", "--lint-only", "-Wall", "--quiet", f"-I{RTL}", "--top-module", module.stem]
    return [*lint, str(module)]


if __name__ == "__main__":
    main()
