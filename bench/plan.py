"""Measures the time of a plan by formulas, and packets per second of the simulation (`make bench-plan`).

No peer does the same work, so both figures are compared with the planner's targets.
"""

import argparse
import subprocess
import sys
import time

from common import HERE, TIME_LIMIT, json_of, program, ratio, say

PLANS = HERE.parent / "examples" / "plans"
PLAN_LIMIT_MS = 50
SIMULATION_FLOOR = 1.0  # million packets of simulated traffic per second of wall time, one thread


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs of each, of which the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="simulated time of a run")
    args = parser.parse_args()

    plans = sorted(PLANS.glob("*.toml"))
    slowest = max(median(args.runs, lambda plan=plan: wall_ms(plan)) for plan in plans)
    ratio("plan/50ms", slowest, "limit", PLAN_LIMIT_MS, "ms")

    rates = {}
    for name in ("paper0", "switch", "receivers"):
        rates[name] = median(args.runs, lambda name=name: million_packets(PLANS / f"{name}.toml", args.seconds))
        say(f"  {name}: {rates[name]:.2f} Mpackets/s")
    least = min(rates.values())
    ratio("plan/simulation", least, "floor", SIMULATION_FLOOR, "Mpackets/s")
    sys.exit(0 if slowest <= PLAN_LIMIT_MS and least >= SIMULATION_FLOOR else 1)


def wall_ms(plan):
    """Returns the wall time of the whole program."""
    start = time.perf_counter()
    subprocess.run([program(), "plan", plan], check=True, capture_output=True, timeout=TIME_LIMIT)
    return (time.perf_counter() - start) * 1e3


def million_packets(plan, seconds):
    command = [program(), "plan", plan, "--json", "--simulate", f"{seconds} s"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT)
    return json_of(done.stdout)["simulation"]["packets_per_wall_s"] / 1e6


def median(runs, measure):
    return sorted(measure() for _ in range(runs))[runs // 2]


if __name__ == "__main__":
    main()
