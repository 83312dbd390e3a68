"""Compares the latency from trigger command to complete shot with a bare UDP ping-pong (`make bench-trigger`)."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import (
    HERE,
    RECEIVE_CPU,
    SEND_CPU,
    Failed,
    background,
    foreground,
    json_of,
    program,
    ratio,
    say,
    wait_for_port,
)

PORT = 14794
JUDGED_SAMPLES = 125
WAITS = ["poll", "sleep"]
PAPER = "command about 5 us, shot at least 560 us"  # Cossettini et al. (docs/plan.md), section III


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[125, 250, 500, 1000, 2000, 4000], metavar="N")
    parser.add_argument("--framings", nargs="+", default=["ud", "udp"], metavar="NAME")
    parser.add_argument("--count", type=int, default=2000, help="triggers, and commands, of each setting and round")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, with one run of each contender")
    args = parser.parse_args()

    pings = {wait: [] for wait in WAITS}
    ours = {wait: [] for wait in WAITS}  # for each round a list of settings
    with tempfile.TemporaryDirectory() as folder:
        pingpong = build(folder)
        for number in range(args.rounds):
            for wait in WAITS:
                try:
                    ping, rows = run_pingpong(pingpong, wait, args.count), run_trigger(args, wait)
                except (Failed, OSError) as error:
                    say(f"  FAILED round {number + 1}, {wait}: {error}")
                    continue
                pings[wait].append(ping["p50_us"])
                ours[wait].append(rows)
                mine = rows[0]
                say(
                    f"  round {number + 1}, {wait}: ping-pong {ping['p50_us']:.2f} us, command "
                    f"{mine['command_us']['p50']:.2f} us, shot of {mine['samples']} samples "
                    f"{mine['complete_us']['p50']:.1f} us (p99 {mine['complete_us']['p99']:.1f})"
                )
    if not all(pings.values()):
        sys.exit(1)
    print_table(ours)
    print_ratios(pings, ours)
    sys.exit(0 if all(len(rounds) == args.rounds for rounds in pings.values()) else 1)


# --- contenders --------------------------------------------------------------------------------------


def build(folder):
    binary = Path(folder) / "udp_pingpong"
    subprocess.run(["gcc", "-O2", "-march=native", "-o", binary, HERE / "udp_pingpong.c"], check=True)
    return str(binary)


def run_pingpong(binary, wait, count):
    with background([binary, "serve", str(PORT), str(SEND_CPU), wait]) as server:
        wait_for_port("udp6", PORT, server)
        return json_of(foreground([binary, "ping", str(PORT), str(RECEIVE_CPU), wait, str(count)]))


def run_trigger(args, wait):
    """Runs every setting with this way of waiting, and first the setting of which the ratios are printed."""
    samples = sorted(args.samples, key=lambda n: n != JUDGED_SAMPLES)
    lines = foreground(
        [
            *(program(), "trigger", "--json", "--wait", wait, "--count", str(args.count)),
            *("--samples", ",".join(map(str, samples)), "--framing", ",".join(args.framings)),
            *("--cpu", str(RECEIVE_CPU), "--probe-cpu", str(SEND_CPU)),
        ]
    )
    return [json.loads(line) for line in lines.splitlines()]


# --- output ------------------------------------------------------------------------------------------


def middle(rounds, index, time, quantile="p50"):
    """Returns the median over the rounds of a setting's quantile."""
    return median(rows[index][time][quantile] for rows in rounds if rows[index][time])


def print_table(ours):
    say("")
    say(f"Medians over the rounds, in us. The paper: {PAPER}.")
    say(
        "| N_s | framing | wait | command | sampling | first packet | last packet | shot p50 | p90 | p99 | p99.9 | max | lost |"
    )
    say("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for wait, rounds in ours.items():
        for index in sorted(range(len(rounds[0])), key=lambda i: (rounds[0][i]["framing"], rounds[0][i]["samples"])):
            setting = rounds[0][index]
            medians = [middle(rounds, index, time) for time in ("command_us", "first_packet_us", "last_packet_us")]
            shot = [middle(rounds, index, "complete_us", q) for q in ("p50", "p90", "p99", "p99.9", "max")]
            cells = [medians[0], setting["sampling_us"], *medians[1:], *shot]
            lost = sum(rows[index]["triggers"] - rows[index]["complete"] for rows in rounds)
            numbers = " | ".join(f"{cell:.1f}" for cell in cells)
            say(f"| {setting['samples']} | {setting['framing']} | {wait} | {numbers} | {lost} |")
    say("")


def print_ratios(pings, ours):
    for wait, name in (("poll", "udp-pingpong"), ("sleep", "udp-pingpong-sleep")):
        command = middle(ours[wait], 0, "command_us")
        ratio(f"trigger/{name}", command, "peer", median(pings[wait]), "us")
    if ours["poll"][0][0]["samples"] == JUDGED_SAMPLES:
        p99, p50 = (middle(ours["poll"], 0, "complete_us", quantile) for quantile in ("p99", "p50"))
        ratio("trigger/p99-over-median", p99, "median", p50, "us")


if __name__ == "__main__":
    main()
