"""Runs every check of this repository and sums them up (`make test`).

Each runner's output is shown as it comes. A lint step counts as one test. A runner that crashes, or that
finds no test at all, counts as one failure. The last line is the sum.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
TIME_LIMIT = 3000  # seconds for one runner
CARGO_RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
DPDK = "shotline/dpdk,shotline-transport/dpdk"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def main():
    os.chdir(ROOT)
    results = {
        "rustfmt": lint("cargo fmt --all --check"),
        "clippy": lint("cargo clippy --locked --workspace --all-targets -- -D warnings"),
        "clippy s3": lint("cargo clippy --locked --package shotline-store --all-targets --features s3 -- -D warnings"),
        "clippy dpdk": dpdk_lint(),
        "rustdoc": lint("cargo doc --locked --workspace --no-deps", RUSTDOCFLAGS="-D warnings"),
        "ruff": lint("ruff check ."),
        "ruff format": lint("ruff format --check ."),
        "dependencies": dependencies(),
        "advisories": advisories(),
        "cargo test": cargo_test(f"--workspace --features {features()} --no-fail-fast"),
        "loom": cargo_test("--package shotline-memory --lib --target-dir target/loom", RUSTFLAGS="--cfg loom"),
        "pytest": pytest(),
    }
    heading("summary")
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


def features():
    return ",".join(["shotline/s3", *([DPDK] if has_dpdk() else [])])


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
    status, lines = stream(f"cargo test --locked {what}", **environment)
    counts = Counter()
    for line in lines:
        if found := CARGO_RESULT.search(line):
            counts += Counter(dict(zip(("passed", "failed", "skipped"), map(int, found.groups()))))
    return checked(counts, status)


def pytest():
    """The Python tests, those of each file one after the other. They wait more than they work, so two at a time.

    They find the program that `cargo test` built in SHOTLINE_BIN.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = f"python3 -m pytest tests -ra --numprocesses=2 --dist=loadfile --junitxml={report}"
        status, _ = stream(command, SHOTLINE_BIN=str(target / "debug" / "shotline"))
        if not report.exists():
            return checked(Counter(), status)
        suite = ElementTree.parse(report).getroot().find("testsuite")
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    skipped = int(suite.get("skipped"))
    passed = int(suite.get("tests")) - failed - skipped
    return checked(Counter(passed=passed, failed=failed, skipped=skipped), status)


# --- help --------------------------------------------------------------------------------------------


def stream(command, **environment):
    """Runs a command, showing its output as it comes. Returns exit status and lines."""
    heading(command)
    start = time.monotonic()
    process = subprocess.Popen(
        ["timeout", "--kill-after=10", str(TIME_LIMIT), *command.split()],
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
