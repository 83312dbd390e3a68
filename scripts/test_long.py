"""Runs long versions of the tests of `make test`: `make test-long MINUTES=60`.

Each campaign repeats its tests with new seeds until its share of the time is over, at least once. The seeds are printed,
and a failure prints how to reproduce it (docs/testing.md). The last line is the total of all rounds.
"""

import argparse
import os
import random
import sys
import time

from suite import PASSED, ROOT, Suite, Test, check
from test import build, has_rtl, pytest, rust

SEEDS = 1000  # per round
CASES = 5000  # per property and round
FRAMES = 1_000_000  # through the RTL's model per round


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="time of all campaigns together (%(default)s)")
    parser.add_argument(
        "--only", metavar="CAMPAIGN", action="append", choices=CAMPAIGNS, help=f"{', '.join(CAMPAIGNS)}"
    )
    arguments = parser.parse_args()
    os.chdir(ROOT)
    suite = Suite()
    suite.step("build", build)
    chosen = {name: campaign for name, campaign in CAMPAIGNS.items() if not arguments.only or name in arguments.only}
    share = 60 * arguments.minutes / sum(weight for _, weight in chosen.values())
    for name, (round_, weight) in chosen.items():
        suite.step(name, repeat, name, round_, share * weight)
    return suite.finish()


def repeat(name, round_, seconds):
    """Runs rounds of a campaign until its time is over or one fails."""
    tests, end, number = [], time.monotonic() + seconds, 0
    while not number or time.monotonic() < end:
        number += 1
        tests += round_()
        if any(test.outcome not in (PASSED, "skipped") for test in tests):
            break
    print(f"{name}: {number} rounds")
    return tests


def marked_long():
    """Runs Python tests marked `long`: whole matrices, sweeps of crashes, soaks."""
    return pytest("long", "tests", *(["hdl/tests"] if has_rtl() else []))


def guest():
    """Runs all tests in the QEMU guest."""
    return pytest("not long", "tests", expression="guest")


def seeds():
    """Runs simulated networks, drives and senders with new seeds."""
    first = random.randrange(2**32)
    return long_rust(SHOTLINE_SEEDS=f"{first}..{first + SEEDS}")


def properties():
    return long_rust(PROPTEST_CASES=str(CASES))


def long_rust(**environment):
    print("; ".join(f"{name}={value}" for name, value in environment.items()))
    return rust("long", **environment)


def rtl():
    """Sends random packets through the RTL's model and compares each frame with that of the crate `wire`."""
    if not has_rtl():
        return [Test("RTL", "skipped", reason="the tools for the RTL are not installed (scripts/setup.sh rtl)")]
    seed = random.randrange(2**32)
    what = "--release --package shotline-rtl --features model --example rtl_soak"
    return check(f"rtl_soak {FRAMES} {seed}", f"cargo run --locked {what} -- {FRAMES} {seed}")


def simulations():
    """Runs the simulations of single modules with another seed."""
    if not has_rtl():
        return [Test("RTL", "skipped", reason="the tools for the RTL are not installed (scripts/setup.sh rtl)")]
    seed = str(random.randrange(2**31))
    print(f"SHOTLINE_SEED={seed}")
    return pytest("not long", "hdl/tests", SHOTLINE_SEED=seed)


# By name: the function of one round, and the campaign's share of the time.
CAMPAIGNS = {
    "long": (marked_long, 2),
    "guest": (guest, 2),
    "seeds": (seeds, 3),
    "properties": (properties, 2),
    "rtl": (rtl, 2),
    "simulations": (simulations, 1),
}


if __name__ == "__main__":
    sys.exit(main())
