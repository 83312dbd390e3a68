"""Measures throughput and resource usage of the RTL of hdl/ (`make bench-rtl`).

All figures but the soak's speed are deterministic. Clocks come from Verilator's cycle-accurate model of the sender
(`crates/rtl`); LUTs from the committed table of synthesis (hdl/synth, `make synth`). `--write` writes the table over
packet lengths to docs/rtl.md.

The limit of a length is its frame on a bus of 64 bytes: one word per clock, the last one possibly partial. On 100 Gbit/s
Ethernet a frame has 24 bytes more: preamble, FCS, gap. The throughput of the link is the lower of the two.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from common import Failed, ratio, say

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples"
FIGURES = ROOT / "hdl" / "synth" / "table.json"
PAGE = ROOT / "docs" / "rtl.md"
BEGIN, END = "<!-- begin: throughput (python3 bench/rtl.py --write) -->", "<!-- end: throughput -->"
BUS, OVERHEAD, LINK_GBPS = 64, 24, 100  # bytes per word; preamble, FCS and gap of a frame in bytes; Ethernet
SHOWN = [1, 16, 18, 64, 128, 256, 512, 1024, 1500, 2048, 3000, 4032, 4096]
CLOCKS_MHZ = (160, 200)
TIMEOUT_S = 3000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="step between payload lengths")
    parser.add_argument("--frames", type=int, default=300_000, help="frames of the soak test; 10 million take minutes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the soak test")
    parser.add_argument("--write", action="store_true", help="write the table to docs/rtl.md")
    args = parser.parse_args()

    runs = [Clocks(**json.loads(line)) for line in run("rtl_throughput", args.step).splitlines()]
    for clocks in runs:
        length, worst = clocks.worst()
        say(
            f"{clocks.name}: {len(clocks.rows)} lengths, the worst {length} bytes: {worst:.4f} words per clock, limit 1"
        )
    if args.write:
        text = PAGE.read_text()
        before, rest = text.split(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + table(runs) + END + rest.split(END)[1])
    else:
        say("\n" + table(runs))

    ud4, ud6 = runs[0], runs[1]
    for clocks, wanted in ((ud4, "97.7"), (ud6, "97.3")):
        say(f"{clocks.name}, 4096 bytes: {clocks.gbps(4096, 200):.2f} Gbit/s of payload at 200 MHz (link: {wanted})")
    say(
        f"{ud4.name}, 4096 bytes: {ud4.gbps(4096, 160):.2f} Gbit/s at 160 MHz; 66 words: 79.44; Cossettini et al.: 90.4"
    )
    ratio("rtl-payload-gbps-4096/97.7", ud4.gbps(4096, 200), "100G Ethernet", 97.7, "Gbit/s at 200 MHz")
    clocks = min(runs, key=lambda clocks: clocks.worst()[1])
    length, worst = clocks.worst()
    ratio("rtl-words/limit-worst", worst, f"the limit ({clocks.name}, {length} bytes)", 1.0, "words per clock")

    figures = json.loads(FIGURES.read_text())
    for module, name, allowed in (
        ("shotline_icrc", "icrc-lut/3400", 3400),
        ("shotline_roce_ud_tx", "sender-lut/12000", 12000),
    ):
        luts, levels = figures[module]["generic"]["LUT6"], figures[module]["generic"]["levels"]
        # Fewer is better, so the ratio is inverted.
        say(
            f"RATIO {name} {allowed / luts:.3f} (ours {luts} LUT6 and {levels} levels of logic, allowed {allowed} LUT6)"
        )

    soak = json.loads(run("rtl_soak", args.frames, args.seed).splitlines()[-1])
    say(f"soak: {soak['frames']} random packets correct, {soak['clocks']} clocks in {soak['seconds']} s")
    rate = soak["clocks_per_processor_second"] / 1e6
    ratio("soak/million", rate, "target", 1.0, "million clocks per second of CPU time")


class Clocks:
    """Clocks per packet of each length, in one framing over one IP version."""

    def __init__(self, framing, ip, packets, rows):
        self.name, self.packets = f"{framing} over IPv{ip}", packets
        self.rows = {length: (frame, clocks / packets) for length, frame, clocks in rows}

    def words(self, length):
        return -(-self.rows[length][0] // BUS)

    def worst(self):
        """Returns the length furthest from its limit, and its fraction of the limit."""
        fractions = {length: self.words(length) / clocks for length, (_, clocks) in self.rows.items()}
        length = min(fractions, key=fractions.get)
        return length, fractions[length]

    def gbps(self, length, mhz):
        """Returns the payload rate over a 100G link."""
        frame, clocks = self.rows[length]
        return min(length * 8 * mhz / 1e3 / clocks, LINK_GBPS * length / (frame + OVERHEAD))


def table(runs):
    """Returns the table of lengths and their limits for framing `ud`, over IPv4 and IPv6."""
    lines = []
    for clocks in (run for run in runs if run.name in ("ud over IPv4", "ud over IPv6")):
        lines += [f"`{clocks.name.split()[0]}` {clocks.name.split(' ', 1)[1]}:", ""]
        lines.append(
            "| payload bytes | frame bytes | words: the limit in clocks | clocks | words per clock | Gbit/s at 160 MHz | at 200 MHz | 100G Ethernet |"
        )
        lines.append("|" + "---:|" * 8)
        for length in (length for length in SHOWN if length in clocks.rows):
            frame, used = clocks.rows[length]
            words = clocks.words(length)
            rates = [f"{clocks.gbps(length, mhz):.1f}" for mhz in CLOCKS_MHZ]
            ethernet = LINK_GBPS * length / (frame + OVERHEAD)
            cells = [length, frame, words, f"{used:g}", f"{words / used:.3f}", *rates, f"{ethernet:.1f}"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
        length, worst = clocks.worst()
        least = f"the lowest rate is {worst:.3f} words per clock, at {length} bytes"
        if worst >= 1:
            least = "each takes as many clocks as it has words"
        lines += [
            "",
            f"Of all {len(clocks.rows)} lengths {least}.",
            "",
        ]
    return "\n".join(lines) + "\n"


def run(example, *arguments):
    """Runs an example and returns its standard output."""
    path = EXAMPLES / example
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline-rtl --features model --examples")
    words = [str(path), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise Failed(f"{example}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()
