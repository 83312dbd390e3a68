"""Measures a stencil over accelerator nodes: 4 GB beside the paper, and tiles that stay (part of `make bench-stencil`).

Cilardo et al. (Sensors 2021, 21, 7759, section 4) needed about 4.57 s for a tile of 4 GB: written over path 2, computed, read
back. Here the node is another process on the same machine, reached by `soft` over UDP or by shared memory, and every value of
the result is computed again and compared. Over an emulated path the run cannot be faster than its slowest stage: writing,
computing or reading. The table is the breakdown of figure 5, over path 2; the paper publishes its curves without numbers.

Tiles that stay in two nodes, which exchange their halos, are compared with the same nodes and steps whose tiles come and go.
"""

import argparse
import statistics
import sys

from common import Failed, foreground, json_of, program, ratio, say

PAPER_SECONDS = 4.57
ROWS, COLUMNS = 32_000, 31_250  # of 4 bytes: 4 GB of 10^9 bytes
GB = 4.0
PATHS = {"path2": (4.8, 1.2), "path3": (10.0, 8.9)}  # GB/s to and from the accelerator
PARTS = (16, 8, 4, 2, 1)
SIDE, STEPS, ROUND = 8192, 256, 16  # of the matrix whose tiles stay


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="turns, of which the median counts")
    args = parser.parse_args()
    transfer(args.turns)
    pipelined(args.turns)
    resident(args.turns)
    breakdown()


def transfer(turns):
    """Prints the ratios to the paper's time, for one step and for eight."""
    cases = [(transport, steps) for transport in ("soft", "shm") for steps in (1, 8)]
    found = {case: [] for case in cases}
    for turn in range(turns):  # in turn, so that disturbances affect all
        for transport, steps in cases:
            verify = ("--verify",) if turn == 0 else ()
            report = stencil(transport, steps, "heap", *verify)
            if verify and report["values_verified"] != ROWS * COLUMNS:
                raise Failed(f"{transport}: only {report['values_verified']} values are verified")
            found[transport, steps].append(report["seconds"])
    for transport, steps in cases:
        seconds = statistics.median(found[transport, steps])
        name = "stencil-4GB" + ("-shm" if transport == "shm" else "") + (f"-{steps}-steps" if steps > 1 else "")
        ratio(f"{name}/paper", GB / seconds, "paper", GB / PAPER_SECONDS, "GB/s of tile")


def pipelined(turns):
    """Prints how near a run over an emulated path is to its slowest stage."""
    for path, (write, read) in PATHS.items():
        shares = []
        for _ in range(turns):
            report = stencil("shm", 1, f"emulated:{path}")
            (node,) = report["nodes"]
            stages = {
                "writing": node["bytes_out"] / write / 1e9,
                "computing": node["computing_s"],
                "reading": node["bytes_back"] / read / 1e9,
            }
            slowest = max(stages, key=stages.get)
            shares.append((stages[slowest] / report["seconds"], slowest, stages[slowest], report["seconds"]))
        _, slowest, stage, seconds = sorted(shares)[len(shares) // 2]
        ratio(f"stencil-{path}/slowest-stage", GB / seconds, slowest, GB / stage, "GB/s of tile")


def resident(turns):
    """Prints how much faster two nodes are whose tiles stay, in updated values per second."""
    for transport in ("soft", "shm"):
        seconds = {(): [], ("--resident",): []}
        for _ in range(turns):
            for more, found in seconds.items():
                command = [
                    program(),
                    "stencil",
                    f"{SIDE}x{SIDE}",
                    "--steps",
                    STEPS,
                    "--round-steps",
                    ROUND,
                    "--json",
                    *more,
                ]
                command += [
                    "--transport",
                    transport,
                    "--nodes",
                    2,
                    "--node-memory",
                    "160M",
                    "--threads",
                    1,
                    "--no-change",
                ]
                found.append(json_of(foreground([str(word) for word in command]))["seconds"])
        tiles, stays = (SIDE**2 * STEPS / statistics.median(found) / 1e9 for found in seconds.values())
        name = "stencil-resident" + ("-shm" if transport == "shm" else "")
        ratio(f"{name}/tiles", stays, "tiles", tiles, "G values/s")


def breakdown():
    """Prints the time of each stage by the size of the matrix, one tile after the other."""
    say("one tile at a time over path 2, seconds:")
    say(f"{'GB':>8}{'written':>10}{'computed':>10}{'read':>10}{'all':>10}")
    for part in PARTS:
        report = stencil("shm", 1, "emulated:path2", "--buffers", "1", rows=ROWS // part)
        (node,) = report["nodes"]
        stages = (node["writing_s"], node["computing_s"], node["reading_s"], report["seconds"])
        say(f"{GB / part:>8.2f}" + "".join(f"{seconds:>10.3f}" for seconds in stages))


def stencil(transport, steps, memory, *more, rows=ROWS):
    """Runs a stencil on one node, which gets the matrix in tiles."""
    command = [program(), "stencil", f"{rows}x{COLUMNS}", "--transport", transport, "--memory", memory, "--json"]
    command += ["--nodes", 1, "--node-memory", "64M", "--steps", steps, "--round-steps", steps, "--no-change", *more]
    return json_of(foreground([str(word) for word in command]))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"accelerator: {error}")
