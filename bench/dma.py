"""Measures throughput and resource usage of the packet card's DMA module (`make bench-dma`).

All figures are deterministic. Clocks come from Verilator's model of the module (`crates/rtl`), whose bus is always ready
and whose channels have all descriptors that it holds; LUTs and block RAMs from the committed table of synthesis
(hdl/synth, `make synth`). The throughput is formula 1 of Kubálek: the line's rate by the share of packets that pass, of
packets as dense as 100G Ethernet brings them. `--write` writes the tables to docs/packet-card.md.

The module with one PCIe transaction of 64 bytes a clock, as Kubálek's, is the same model on a bus that takes a write in
as many clocks as it has such transactions.

Behind a PCIe link the card has its bus side, and the link takes its requests at the rate of the model of `shotline plan
--packet-card`. The limit is that of the same model: the slowest of module, requester stream and link, with the descriptor
reads and reports that were sent. The next packet is always there, so a limit may be above the line rate.
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
PAGE = ROOT / "docs" / "packet-card.md"
MODULE, DEFAULT = "shotline_card_dma", 128
LINE_GBPS = 100
CHANNELS = (16, 128, 256)
# Kubálek, section 7: the one point that the text gives, at the length in bytes with FCS.
PAPER = {117: 68.8}
# Kubálek, table 1: LUTs and block RAMs of 36 kbit for a number of channels.
PAPER_COST = {
    8: (10524, 57.5),
    16: (12029, 73.5),
    32: (15188, 105.5),
    64: (20644, 169.5),
    128: (33463, 297.5),
    256: (59930, 553.5),
}
SHOWN = [64, 65, 68, 69, 76, 84, 85, 100, 116, 117, 128, 180, 181, 244, 245, 256, 512, 1024, 1518, 1526]
LINKS = {
    "gen 3 x16, 256 bytes": "3x16/256",
    "gen 3 x16, 512 bytes": "3x16/512",
    "gen 4 x8, 256 bytes": "4x8/256",
}
HEADER = 64  # bytes of a header's buffer
MODULES = 2
SUSTAINED = 200_000  # frames: many times the descriptors that the module holds
TIMEOUT_S = 3000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=1, help="step between lengths, which all loads measure")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curves over the length")
    parser.add_argument("--write", action="store_true", help="write the tables to docs/packet-card.md")
    args = parser.parse_args()

    curves = {f"{channels} channels": load(args.step, channels) for channels in CHANNELS}
    split = load(args.step, 256, header=HEADER)
    single = load(args.step, 16, single=True)
    two = load(args.step, 256, modules=MODULES)
    for name, rates in {**curves, "256 channels, header split": split, "one transaction a clock": single}.items():
        length = min(rates, key=rates.get)
        below = sum(rate < 1 for rate in rates.values())
        say(
            f"{name}: {len(rates)} lengths, {below} below the line rate, the worst {length} bytes: {gbps(rates[length])}"
        )
    links = {name: behind(args.step, link) for name, link in LINKS.items()}
    split_links = {name: behind(args.step, link, HEADER) for name, link in LINKS.items()}
    for channels in (1, 2, *CHANNELS):
        for header in (0, HEADER):
            how = f"header split of {header} bytes" if header else "one buffer a packet"
            share = sustained(channels, header)
            say(f"{SUSTAINED} frames of 64 bytes, {channels} channels, {how}: {100 * share:.2f} % written")
    cost = costs()
    if args.write:
        text = PAGE.read_text()
        tables = {
            "throughput": throughput(curves, split, single),
            "link": link_table(links, split_links),
            "cost": cost_table(cost),
        }
        for name, lines in tables.items():
            begin, end = f"<!-- begin: {name} (python3 bench/dma.py --write) -->", f"<!-- end: {name} -->"
            text = text.split(begin)[0] + begin + "\n" + lines + end + text.split(end)[1]
        PAGE.write_text(text)
    else:
        say("\n".join(["", throughput(curves, split, single), link_table(links, split_links), cost_table(cost)]))
    if args.plot:
        plot(args.plot, {"two writes a clock, 256 channels": curves["256 channels"], "one transaction a clock": single})

    worst = min((min(rates.values()), name) for name, rates in curves.items())
    length = min(curves[worst[1]], key=curves[worst[1]].get)
    ratio("dma-worst-length/100G", worst[0] * LINE_GBPS, f"the line, {length} bytes, {worst[1]}", LINE_GBPS, "Gbit/s")
    length = min(two, key=two.get)
    ratio("dma-two-modules/200G", two[length] * LINE_GBPS, f"two lines, {length} bytes", MODULES * LINE_GBPS, "Gbit/s")
    for prefix, found in (("dma-pcie", links), ("dma-pcie-split", split_links)):
        share, length, name = min(
            (rate / limit, length, name) for name, of in found.items() for length, (rate, limit) in of.items()
        )
        rate, limit = (LINE_GBPS * of for of in found[name][length])
        ratio(f"{prefix}/limit", rate, f"the model's limit, {name}, {length} bytes", limit, "Gbit/s")
    for length, paper in PAPER.items():
        rates = curves["16 channels"]
        if length in rates:
            ratio(f"dma-{length}/paper", min(1, rates[length]) * LINE_GBPS, "Kubálek", paper, "Gbit/s")
    for channels in (128, 256):
        luts, blocks = cost[channels][:2]
        wanted_luts, wanted_blocks = PAPER_COST[channels]
        # Fewer is better, so the ratios are inverted.
        say(
            f"RATIO dma-lut-{channels}/{wanted_luts} {wanted_luts / luts:.3f} (ours {luts} LUT, Kubálek {wanted_luts} LUT)"
        )
        say(
            f"RATIO dma-ram-{channels}/{wanted_blocks} {wanted_blocks / blocks:.3f} "
            f"(ours {blocks} RAMB36, Kubálek {wanted_blocks} RAMB36)"
        )


def gbps(rate):
    return f"{min(1, rate) * LINE_GBPS:.1f} Gbit/s, {rate:.4f} of the line rate"


def card_load(*words):
    path = EXAMPLES / "card_load"
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline-rtl --features model --examples")
    done = subprocess.run([path, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise Failed(f"card_load: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def load(step, channels, header=0, single=False, modules=1):
    """Returns the packets that the modules accept, relative to those on one line, of each length."""
    words = ["--step", step, "--channels", channels, "--header", header, "--modules", modules]
    lines = card_load(*words, *(["--single"] if single else []))
    lost = [line["length"] for line in lines if line["lost"]]
    if lost:
        raise Failed(f"packets of {lost} bytes were lost, though descriptors were there")
    return {line["length"]: line["rate"] for line in lines}


def behind(step, link, header=0):
    """Returns what goes through a link, and the limit of its model, relative to the line, of each length."""
    lines = card_load("--step", step, "--channels", 16, "--header", header, "--link", link)
    return {line["length"]: (line["rate"], line["limit"]) for line in lines}


def sustained(channels, header):
    """Returns the share of the shortest frames that is written while the descriptors of each are fetched."""
    (line,) = card_load("--to", 64, "--channels", channels, "--header", header, "--packets", SUSTAINED)
    return 1 - line["lost"] / (SUSTAINED * (64 + 12))


def costs():
    """Returns LUTs, block RAMs of 36 kbit and levels of logic for each number of channels."""
    figures = json.loads(FIGURES.read_text())
    found = {}
    for channels in PAPER_COST:
        name = MODULE if channels == DEFAULT else f"{MODULE} CHANNELS_LOG2={channels.bit_length() - 1}"
        xcup, generic = figures[name]["xcup"], figures[name]["generic"]
        if not (xcup and generic):
            raise Failed(f"{FIGURES.name} has no figures of {name}: make synth ARGS='\"{name}\"'")
        found[channels] = xcup["LUT"], xcup["RAMB36"] + xcup["RAMB18"] / 2, generic["levels"]
    return found


def cost_table(cost):
    lines = ["| channels | LUT | Kubálek | RAMB36 | Kubálek | levels of logic |", "|" + "---:|" * 6]
    for channels, (luts, blocks, levels) in cost.items():
        other_luts, other_blocks = PAPER_COST[channels]
        lines.append(f"| {channels} | {luts} | {other_luts} | {blocks:g} | {other_blocks} | {levels} |")
    return "\n".join(lines) + "\n"


def throughput(curves, split, single):
    heads = [*curves, "header split", "one transaction a clock", "Kubálek"]
    lines = [f"| length | {' | '.join(heads)} |", "|" + "---:|" * (len(heads) + 1)]
    columns = [*curves.values(), split, single]
    for length in (length for length in SHOWN if length in columns[0]):
        cells = [f"{min(1, rates[length]) * LINE_GBPS:.1f}" for rates in columns]
        lines.append(f"| {length} | {' | '.join(cells)} | {PAPER.get(length, '')} |")
    worst = [f"{min(rates.values()):.4f}" for rates in columns]
    lines.append(f"| worst, of the line rate | {' | '.join(worst)} | |")
    return "\n".join(lines) + "\n"


def link_table(links, split_links):
    """Returns the lengths below the line rate, their worst, and the lowest share of the limit, of each link."""
    lines = ["| link, maximum payload | writes of a packet | below the line rate | worst | of the limit, at least |"]
    lines.append("|---|---|---:|---:|---:|")
    for how, found in (("one", links), (f"two: {HEADER} bytes, and the rest", split_links)):
        for name, of in found.items():
            below = sum(rate < 1 for rate, _ in of.values())
            (worst, _), length = min((of[length], length) for length in of)
            share = min(rate / limit for rate, limit in of.values())
            lines.append(
                f"| {name} | {how} | {below} of {len(of)} lengths | {worst * LINE_GBPS:.1f} Gbit/s, {length} bytes | {share:.4f} |"
            )
    return "\n".join(lines) + "\n"


def plot(file, curves):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for name, rates in curves.items():
        axes.plot(list(rates), [min(1, rate) * LINE_GBPS for rate in rates.values()], label=name, linewidth=1)
    axes.plot(list(PAPER), list(PAPER.values()), "o", label="Kubálek, as published")
    axes.set(xlabel="length of an Ethernet frame with FCS in bytes", ylabel="throughput in Gbit/s", ylim=(0, 105))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(file)
    say(f"wrote {file}")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"dma: {error}")
