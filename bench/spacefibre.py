"""Compares RDMA over SpaceFibre with the figures of Gibson et al. (docs/plan.md), and links with what they reserve.

`make bench-spacefibre`. Rates are those of two processes over shared memory, with four lanes; operations cycle through
256 MiB on both sides. `copy` is one copy of the same data from process to process by the provider `shm`: what the
machine's memory does at that time.
"""

import csv
import io
import sys
from pathlib import Path

import contest
from common import Failed, foreground, json_of, program, say
from contest import OURS, Contender, Ratio, perf

LANES = 4
SIZE, GROUP = 256 << 10, 8
SPAN = 256 << 20
# Gibson et al., tables II and IV, and section V, in Gbit/s of payload.
PAPER = {"write": 23.45, "read": 23.28}
PAPER_BOTH = 23.1
LINE_WORDS = 781.25e6  # words/s of 31.25 Gbit/s line rate: 40 bits each
WORDS_FLOOR = 0.02  # fraction of them, both ends on one core
SHARE_ERROR = 1.0  # percent of the link
INVERSION = 1  # data frames


def main():
    parser = contest.parser(__doc__, seconds=1.0)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw shares and waits of virtual channels")
    args = parser.parse_args()
    status = contest.run(wanted_ratios(args), args)
    if not args.peers:
        rows = qos_rows()
        show_qos(rows, args)
        if args.plot:
            plot(rows, args.plot)
    sys.exit(status)


# --- rates -----------------------------------------------------------------------------------------------


def wanted_ratios(args):
    for verb, gbps in PAPER.items():
        ours = rate("spacefibre:shm", verb, args)
        yield Ratio(f"sf-{verb}-group/paper", ours, limit=(gbps, "paper"))
        yield Ratio(f"sf-{verb}-group/copy", ours, [rate("shm", verb, args)])
    yield Ratio("sf-both/paper", rate("spacefibre:shm", "write", args, "--bidirectional"), limit=(PAPER_BOTH, "paper"))
    yield Ratio("sf-post/soft", posting("spacefibre:shm", args), [posting("soft", args)], less_is_better=True)
    yield Ratio("sf-word/line", words(), limit=(WORDS_FLOOR, "floor"))


def rate(transport, verb, args, *more):
    """Returns a contender of groups; with `--bidirectional` the figure is the slower direction."""
    lanes = f",lanes={LANES}" if transport.startswith("spacefibre") else ""

    def run():
        options = ["--size", SIZE, "--group", GROUP, "--depth", 2, "--span", SPAN, "--seconds", args.seconds]
        figures = perf(verb, transport + lanes, *options, *more)
        return min(figures[key]["average"] for key in ("gbps", "reverse_gbps") if figures.get(key))

    return Contender(OURS + " ".join([transport, verb, *more]), "Gbit/s", run)


def posting(transport, args):
    """Returns a contender that measures the CPU time of posting and completing an operation."""

    def run():
        options = ["--size", 4 << 10, "--group", 128, "--seconds", args.seconds, "--post-only"]
        figures = perf("write", transport, *options)
        return figures["post_ns"]["average"] + figures["complete_ns"]["average"]

    return Contender(f"{OURS}{transport} posting and completing", "ns", run)


def words():
    """Returns a contender of both ends of a link, word by word and with 8b/10b, on one core."""

    def run():
        report = json_of(foreground([example("word_throughput"), "--json", "--seconds", "1", str(LANES)]))
        return report["words_per_s"] / LINE_WORDS

    return Contender(f"{OURS}word by word", "of the line's words", run)


# --- quality of service ----------------------------------------------------------------------------------


def qos_rows():
    """Returns the rows of the simulation of the medium access controller, which has no clock: they never change."""
    rows = list(csv.DictReader(io.StringIO(foreground([example("qos_shares"), "--csv"]))))
    if not rows:
        raise Failed("qos_shares printed nothing")
    return rows


def show_qos(rows, args):
    def wanted(name):
        return name.startswith(tuple(args.only))

    def largest(traffic, value):
        return max(value(row) for row in rows if row["traffic"] == traffic)

    error = largest("backlogged", lambda row: abs(float(row["measured_percent"]) - float(row["reserved_percent"])))
    inversion = largest("random", lambda row: int(row["max_inversion_frames"]))
    outside = largest("slots", lambda row: int(row["frames_outside_slots"]))
    if wanted("sf-share"):
        below("sf-share-error/limit", error, SHARE_ERROR, "% of the link")
    if wanted("sf-inversion"):
        # The frame that is being sent when another one becomes ready is one inversion.
        below("sf-inversion/limit", inversion + 1, INVERSION, "frames")
    if wanted("sf-slots"):
        say(f"frames that started outside of their time-slots: {outside}")


def below(what, ours, limit, unit):
    say(f"RATIO {what} {limit / ours:.3f} (ours {ours:.3f} {unit}, limit {limit:.3f} {unit})")


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (shares, waits) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for channels in sorted({int(row["channels"]) for row in rows}):
        chosen = [row for row in rows if int(row["channels"]) == channels]
        backlogged = [row for row in chosen if row["traffic"] == "backlogged"]
        points = [[float(row[key]) for row in backlogged] for key in ("reserved_percent", "measured_percent")]
        shares.plot(*points, "o", markersize=5, alpha=0.7, label=f"{channels} channels")
        levels = {}
        for row in chosen:
            if row["traffic"] == "random":
                level = int(row["priority"])
                levels[level] = max(levels.get(level, 0), int(row["max_wait_frames"]))
        waits.plot(list(levels), list(levels.values()), "o-", label=f"{channels} channels")
    limit = max(float(row["reserved_percent"]) for row in rows) * 1.05
    shares.plot([0, limit], [0, limit], color="grey", linewidth=0.8, zorder=0)
    shares.set(xlabel="reserved share of the link, %", ylabel="measured share, %")
    shares.set_title("All channels always have data", fontsize=10)
    shares.legend(frameon=False)
    waits.set(xlabel="priority (0 is the highest)", ylabel="longest wait, frames of other channels")
    waits.set_yscale("symlog", linthresh=1)
    waits.set_xticks(range(4))
    waits.set_title("Frames arrive at random for 90 % of each share", fontsize=10)
    figure.savefig(path, dpi=110)
    say(f"wrote {path}")


def example(name):
    """Returns the path of the release build of an example of the crate `spacefibre`."""
    path = Path(program()).parent / "examples" / name
    if not path.exists():
        sys.exit(f"{path} is missing: cargo build --release --package shotline-spacefibre --examples")
    return path


if __name__ == "__main__":
    main()
