#!/usr/bin/env python3
"""Plots the results of `shotline sweep` in the style of figures 5 to 7 of the ultrasound probe's paper.

    shotline_plot.py FILE.jsonl... --out DIR [--svg]

Writes sweep-roce.png, sweep-counted.png, sweep-udp.png and sweep-disk.png into DIR, each if the files have points for
it. Several files are plotted together, for example one for each setting of a generator. Values stated in the paper's
text are plotted for comparison, from paper0.json.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

PAPER = json.loads((Path(__file__).parent / "paper0.json").read_text())
NAMES = {"ud": ("roce", "RoCEv2"), "counted": ("counted", "RoCEv2 without immediate"), "udp": ("udp", "UDP")}
KHZ = 1e-3


class Unreadable(Exception):
    """Raised with the reason if a file is not the output of a sweep."""


# --- measurements ------------------------------------------------------------------------------------


def read(paths):
    """Returns the points by sweep ("network" or "disk"), each with the header of its file.

    Raises:
        Unreadable: If a file is not the output of a sweep.
        OSError: If a file cannot be read.
    """
    points = {"network": [], "disk": []}
    for path in paths:
        header = None
        for number, text in enumerate(Path(path).read_text().splitlines(), 1):
            try:
                line = json.loads(text)
                kind = line["kind"]
            except (json.JSONDecodeError, KeyError, TypeError):
                raise Unreadable(
                    f"{path}, line {number}: expected a line of shotline sweep, found {text[:60]!r}"
                ) from None
            if kind == "header":
                header = line
            elif kind == "point" and header is None:
                raise Unreadable(f"{path}, line {number}: a point before the header")
            elif kind == "point":
                points[header["sweep"]].append(line | {"header": header})
    return points


def ideal(header, samples, measured):
    """Returns frequencies in kHz over the range measured, and the shots per second of an ideal device.

    It is busy for N_s / sample rate plus `shot_overhead_s` (1.85 us in the paper) per shot: above its highest rate it
    misses every second trigger, then two of three, and so on.
    """
    busy = samples / (header["sample_rate_hz"] or math.inf) + header["shot_overhead_s"]
    first, last = measured[0], measured[-1]
    fine = [first * (last / first) ** (step / 400) for step in range(401)]
    return [hz * KHZ for hz in fine], [hz / math.ceil(hz * busy) for hz in fine]


def curves(points):
    """Returns the points of each curve, by number of samples and link, in the order of their frequencies."""
    found = {}
    for point in sorted(points, key=lambda point: point["trigger_hz"]):
        found.setdefault((point["samples"], point["link"]), []).append(point)
    return dict(sorted(found.items()))


# --- figures -----------------------------------------------------------------------------------------


def spread(axes, hz, values, color, label):
    """Plots the mean as a thick line, the standard deviation as a shaded area, the extremes as crosses."""
    khz = [f * KHZ for f in hz]
    mean = [value["mean"] for value in values]
    axes.plot(khz, mean, color=color, linewidth=2.5, label=label)
    low = [max(0, value["mean"] - value["std"]) for value in values]
    high = [value["mean"] + value["std"] for value in values]
    axes.fill_between(khz, low, high, color=color, alpha=0.25, linewidth=0)
    for extreme in ("min", "max"):
        axes.plot(khz, [value[extreme] for value in values], "x", color=color, markersize=4)


def scaled(values, factor):
    """Returns statistics multiplied by a factor."""
    return [{name: number * factor for name, number in value.items()} for value in values]


def draw_network(points, framing):
    """Returns figure 5 or 6: frame rate on the left, bandwidth on the right, one colour for each N_s."""
    header = points[0]["header"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    colors = {}
    for (samples, link), curve in curves(points).items():
        color = colors.setdefault(samples, f"C{len(colors)}")
        label = f"$N_s$ = {samples}" if link == 0 else None
        hz = [point["trigger_hz"] for point in curve]
        spread(left, hz, scaled([point["frame_rate_hz"] for point in curve], KHZ), color, label)
        spread(right, hz, [point["bandwidth_gbps"] for point in curve], color, label)
        if link == 0:
            khz, rate = ideal(header, samples, hz)
            dashed = {"color": color, "linewidth": 0.8, "linestyle": "--"}
            left.plot(khz, [f * KHZ for f in rate], **dashed)
            right.plot(khz, [f * curve[0]["shot_bytes"] * 8e-9 for f in rate], **dashed)
            best = PAPER["highest_frame_rate_hz"]["value"].get(str(samples))
            if best and framing == "ud":
                left.axhline(best * KHZ, color=color, linewidth=0.8, linestyle=":")
    left.plot([], [], color="grey", linewidth=0.8, linestyle="--", label="ideal device")
    if framing == "ud":
        left.plot([], [], color="grey", linewidth=0.8, linestyle=":", label="paper: highest (table I)")
        reached = PAPER["rdma_reached_gbps"]["value"]
        right.axhline(reached, color="black", linewidth=1, linestyle="-.", label=f"paper: RDMA above {reached} (text)")
    elif framing == "udp":
        low, high = PAPER["udp_limit_gbps"]["value"]
        right.axhspan(low, high, color="black", alpha=0.15, label=f"paper: UDP limit {low}-{high} (text)")
    left.set(yscale="log", ylabel="frame rate [kHz]")
    right.set(ylabel="bandwidth [Gbit/s per link]", ylim=(0, None))
    for axes in (left, right):
        axes.set(xscale="log", xlabel="$f_{ext}$ [kHz]")
        plain_ticks(axes)
        axes.legend(fontsize=8)
    figure.suptitle(f"{NAMES[framing][1]}: {subtitle(header)}", fontsize=9)
    return figure


def draw_disk(points):
    """Returns figure 7: written bandwidth (blue, left) and dropped shots (red, right)."""
    header = points[0]["header"]
    figure, left = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    right = left.twinx()
    by_frequency = {}
    for point in points:
        by_frequency.setdefault(point["trigger_hz"], []).append(point)
    hz = sorted(by_frequency)
    spread(left, hz, [by_frequency[f][0]["write_gbps"] for f in hz], "C0", "written")
    khz, rate = ideal(header, points[0]["samples"], hz)
    event = sum(point["shot_bytes"] for point in by_frequency[hz[0]])  # of all links
    gbps = [f * event * 8e-9 for f in rate]
    left.plot(khz, gbps, color="C0", linewidth=0.8, linestyle="--", label="ideal device and disk")
    limit = PAPER["nvme_limit_gbps"]["value"]
    left.axhline(limit, color="black", linewidth=1, linestyle="-.", label=f"paper: NVMe {limit} (text)")
    spread(right, hz, [dropped(by_frequency[f]) for f in hz], "C3", "dropped")
    left.set(xlabel="$f_{ext}$ [kHz]", ylabel="written [Gbit/s]", ylim=(0, None))
    left.yaxis.label.set_color("C0")
    right.set(ylabel=f"shots dropped in {header['seconds']:g} s", ylim=(0, max(1, right.get_ylim()[1])))
    right.yaxis.label.set_color("C3")
    entries = [axes.get_legend_handles_labels() for axes in (left, right)]
    left.legend(entries[0][0] + entries[1][0], entries[0][1] + entries[1][1], fontsize=8, loc="upper left")
    samples = ", ".join(str(samples) for samples in sorted({point["samples"] for point in points}))
    figure.suptitle(f"$N_s$ = {samples}: {subtitle(header)}", fontsize=9)
    return figure


def dropped(points):
    """Returns statistics, over the runs of a point, of the shots that the device started and that are not recorded."""
    runs = zip(*(point["runs"] for point in points))
    counts = [sum(sum(link["shots_dropped"].values()) for link in run) for run in runs]
    mean = sum(counts) / len(counts)
    std = math.sqrt(sum((count - mean) ** 2 for count in counts) / max(len(counts) - 1, 1))
    return {"mean": mean, "std": std, "min": min(counts), "max": max(counts)}


def plain_ticks(axes):
    """Labels a logarithmic scale with plain numbers instead of powers of ten."""
    scales = [(axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())]
    for axis in (axis for axis, scale in scales if scale == "log"):
        axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def subtitle(header):
    """Returns the subtitle: probe, processor and length of the runs."""
    probe = "emulated probe over loopback" if header["emulated"] else header["probe"]
    return f"{probe}, {header['cores']} cores, {header['cpu']}, runs of {header['seconds']:g} s"


def draw(points):
    """Returns the figures for which there are points, by name."""
    figures = {}
    for framing in NAMES:
        if chosen := [point for point in points["network"] if point["framing"] == framing]:
            figures[f"sweep-{NAMES[framing][0]}"] = draw_network(chosen, framing)
    if points["disk"]:
        figures["sweep-disk"] = draw_disk(points["disk"])
    return figures


def main():
    """Parses the arguments and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="folder of the figures")
    parser.add_argument("--svg", action="store_true", help="write SVG in addition to PNG")
    args = parser.parse_args()
    try:
        figures = draw(read(args.files))
        args.out.mkdir(parents=True, exist_ok=True)
    except (Unreadable, OSError) as error:
        sys.exit(f"shotline_plot: {error}")
    if not figures:
        sys.exit("shotline_plot: no points in these files: shotline sweep network or disk writes them with --out")
    for name, figure in figures.items():
        for kind in ["png", *(["svg"] if args.svg else [])]:
            path = args.out / f"{name}.{kind}"
            figure.savefig(path, dpi=100)
            print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
