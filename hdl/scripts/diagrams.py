"""Draws timing diagrams in a WaveJSON subset (WaveDrom's notation) as SVG, and converts VCD traces to it.

    python3 diagrams.py [--check] hdl/timing/*.json        writes a .svg next to each

Waves: `p` a clock, `0`, `1`, `x` unknown, `=` a value of `data`, `.` as before, `|` as before with a gap in time.
"""

import argparse
import json
import sys
from html import escape
from pathlib import Path

CYCLE, ROW, HIGH, SLOPE = 44, 30, 20, 4
STYLE = (
    "text{font:12px monospace;fill:#1a1a1a}.l{fill:none;stroke:#1a1a1a;stroke-width:1.2}.b{fill:#dbe9f7;stroke:#1a1a1a;"
    "stroke-width:1.2}.x{fill:#e4e4e4;stroke:#1a1a1a;stroke-width:1.2}.g{stroke:#c8c8c8;stroke-dasharray:2 3}"
    ".h{font-weight:bold}.v{text-anchor:middle}.c{fill:#fff;stroke:none}"
)


def draw(diagram):
    """Returns the SVG of a WaveJSON object."""
    lanes = diagram["signal"]
    cycles = max(len(lane.get("wave", "")) for lane in lanes)
    left = 16 + 7.3 * max(len(lane.get("name", "")) for lane in lanes)
    head = 34 if diagram.get("head") else 12
    width, height = left + cycles * CYCLE + 12, head + len(lanes) * ROW + (22 if diagram.get("foot") else 6)
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style>",
        f'<rect class="c" width="{width:.0f}" height="{height}"/>',
    ]
    if diagram.get("head"):
        out.append(f'<text class="h" x="8" y="18">{escape(diagram["head"]["text"])}</text>')
    for cycle in range(cycles + 1):
        x = left + cycle * CYCLE
        out.append(f'<path class="g" d="M{x:.0f},{head - 4}V{head + len(lanes) * ROW}"/>')
    for row, lane in enumerate(lanes):
        if lane.get("wave"):
            y = head + row * ROW + 4
            out.append(f'<text x="8" y="{y + 15}">{escape(lane["name"])}</text>')
            out += paths(lane["wave"], lane.get("data", []), left, y)
    if diagram.get("foot"):
        out.append(f'<text x="8" y="{height - 7}">{escape(diagram["foot"]["text"])}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def paths(wave, data, left, top):
    """Returns the SVG elements of one lane."""
    data = iter(data.split() if isinstance(data, str) else data)
    pieces, gaps = [], []
    for cycle, mark in enumerate(wave):
        if mark == "|":
            gaps.append(cycle)
        if mark in ".|" and pieces and pieces[-1][0] != "p":
            pieces[-1][2] = cycle + 1
        elif mark in "p.|":
            pieces.append(["p", cycle, cycle + 1, None])
        else:
            pieces.append([mark, cycle, cycle + 1, next(data, "") if mark == "=" else None])
    low, high, middle = top + HIGH, top, top + HIGH / 2
    out, before = [], None
    for kind, begin, end, text in pieces:
        x, z = left + begin * CYCLE, left + end * CYCLE
        if kind == "p":
            out.append(f'<path class="l" d="M{x:.0f},{low}V{high}H{x + CYCLE / 2:.0f}V{low}H{z:.0f}"/>')
        elif kind in "01":
            y = low if kind == "0" else high
            start = {"0": low, "1": high, None: y}.get(before, middle)
            out.append(f'<path class="l" d="M{x:.0f},{start}L{x + SLOPE:.0f},{y}H{z:.0f}"/>')
        else:
            shape = f"M{x:.0f},{middle}L{x + SLOPE:.0f},{high}H{z - SLOPE:.0f}L{z:.0f},{middle}"
            shape += f"L{z - SLOPE:.0f},{low}H{x + SLOPE:.0f}Z"
            out.append(f'<path class="{"x" if kind == "x" else "b"}" d="{shape}"/>')
            if text:
                out.append(f'<text class="v" x="{(x + z) / 2:.0f}" y="{middle + 4:.0f}">{escape(text)}</text>')
        before = kind
    for cycle in gaps:
        x = left + (cycle + 0.5) * CYCLE
        curve = f"M{x - 3:.0f},{low + 4}C{x + 3:.0f},{low - 6} {x - 9:.0f},{high + 6} {x - 3:.0f},{high - 4}"
        curve += f"H{x + 3:.0f}C{x - 3:.0f},{high + 6} {x + 9:.0f},{low - 6} {x + 3:.0f},{low + 4}Z"
        out.append(f'<path class="c" d="{curve}"/>')
    return out


# --- traces --------------------------------------------------------------------------------------------


def read_vcd(path, wanted):
    """Returns the value changes of the wanted signals: {name: [(time, text)]}.

    A signal is found by its name without scopes; of several with the same name the outermost counts.
    """
    names, found, depth, now = {}, {}, 0, 0
    with open(path) as file:
        for line in file:
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                depth += 1
            elif words[0] == "$upscope":
                depth -= 1
            elif words[0] == "$var":
                code, name = words[3], words[4].split("[")[0]
                if name in wanted and (name not in names or depth < names[name][1]):
                    names[name] = (code, depth)
            elif words[0] == "$enddefinitions":
                codes = {}
                for name, (code, _) in names.items():
                    codes.setdefault(code, []).append(name)
                    found[name] = []
            elif line[0] == "#":
                now = int(line[1:])
            elif line[0] in "01xzXZ" and words[0][1:] in codes:
                for name in codes[words[0][1:]]:
                    found[name].append((now, line[0].lower()))
            elif line[0] in "bB" and words[1] in codes:
                for name in codes[words[1]]:
                    found[name].append((now, words[0][1:].lower()))
    return found


def sample(changes, clock):
    """Returns the values of each signal just before every rising edge of the clock."""
    edges = [
        time for (time, value), (_, last) in zip(changes[clock][1:], changes[clock]) if (last, value) == ("0", "1")
    ]
    sampled = {}
    for name, each in changes.items():
        values, next_change, value = [], 0, "x"
        for edge in edges:
            while next_change < len(each) and each[next_change][0] < edge:
                value = each[next_change][1]
                next_change += 1
            values.append(value)
        sampled[name] = values
    return sampled


def trace(sampled, lanes, windows):
    """Returns WaveJSON lanes of some windows (first cycle, cycles), with a gap between them.

    `lanes` has tuples of a name, a function that formats a bus (None for a bit), and the signal that validates it: the
    value is shown only while that is 1.
    """
    out = [{"name": "clk", "wave": "|".join("p" + "." * (cycles - 1) for _, cycles in windows)}]
    for name, show, valid in lanes:
        waves, kept = [], []
        for first, cycles in windows:
            values = sampled[name][first : first + cycles]
            marks = values
            if show is not None:
                on = sampled[valid][first : first + cycles] if valid else "1" * cycles
                values = [show(value) if up == "1" and "x" not in value else None for value, up in zip(values, on)]
                marks = ["x" if value is None else "=" for value in values]
            wave = ""
            for index, mark in enumerate(marks):
                same = index > 0 and values[index - 1] == values[index]
                wave += "." if same else mark
                if mark == "=" and not same:
                    kept.append(values[index])
            waves.append(wave)
        out.append({"name": name, "wave": "|".join(waves), "data": kept})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("diagrams", nargs="+", type=Path, help="WaveJSON files; each gets an SVG next to it")
    args = parser.parse_args()
    stale = []
    for path in args.diagrams:
        text, place = draw(json.loads(path.read_text())), path.with_suffix(".svg")
        if not args.check:
            place.write_text(text)
        elif not place.exists() or place.read_text() != text:
            stale.append(place.name)
    if stale:
        sys.exit(f"diagrams: differ from their .json: {', '.join(stale)} (run this script without --check)")


if __name__ == "__main__":
    main()
