"""Library of `scripts/test.py`: results of tests, running programs, parsing reports, and the summary.

A `Test` has a name, an outcome, a duration, and the reason of a skip or failure. A step is a list of them. Failed tests
are not repeated. In CI a skip counts as a failure, unless its reason is in `scripts/allowed_skips.txt`.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "target" / "test-report.json"
ALLOWED_SKIPS = ROOT / "scripts" / "allowed_skips.txt"
STEP_LIMIT = 3000  # seconds; a step that takes longer is terminated, and fails
SLOWEST_STEPS, SLOWEST_TESTS = 10, 20
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Output of a Rust test that could not run: libtest has no skip at run time (crates/testing).
RUST_SKIP = re.compile(r"^skipped: (.+)$", re.MULTILINE)
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass
class Test:
    """One test, or one check such as a lint. `reason` is that of a skip or failure, if known."""

    name: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""


@dataclass
class Step:
    """One part of the suite with its tests."""

    name: str
    seconds: float = 0.0
    tests: list[Test] = field(default_factory=list)

    def counts(self):
        return Counter(test.outcome for test in self.tests)


@dataclass
class Completed:
    """A program's exit status and output."""

    status: int
    lines: list[str]


def run(command, **environment):
    """Runs a program and prints its output immediately. After `STEP_LIMIT` it ends with status 124."""
    words = command.split() if isinstance(command, str) else list(map(str, command))
    heading(" ".join(words))
    process = subprocess.Popen(
        ["timeout", "--kill-after=10", str(STEP_LIMIT), *words],
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
        lines.append(CONTROL.sub("", line).rstrip("\n"))
    return Completed(process.wait(), lines)


def check(name, command, **environment):
    """Runs a program as one test, which passes if the exit status is 0."""
    ran = run(command, **environment)
    return [Test(name, FAILED, reason=f"exit status {ran.status}") if ran.status else Test(name, PASSED)]


def skip(name, reason):
    return [Test(name, SKIPPED, reason=reason)]


def add_status(name, ran, tests):
    """Returns a runner's tests, with a failed one added if none was run, or if only the exit status shows a failure."""
    if not tests:
        tests = [Test(name, FAILED, reason=f"no test was run; exit status {ran.status}")]
    if ran.status and not any(test.outcome == FAILED for test in tests):
        tests.append(Test(name, FAILED, reason=f"no test failed, but the exit status is {ran.status}"))
    return tests


def parse_junit(path):
    """Returns the tests in a JUnit report of nextest or pytest; an empty list if there is no such file."""
    if not path.exists():
        return []
    suites = ElementTree.parse(path).getroot().iter("testsuite")
    return [parse_testcase(suite, case) for suite in suites for case in suite.iter("testcase")]


def parse_testcase(suite, case):
    name = f"{case.get('classname') or suite.get('name')}::{case.get('name')}"
    seconds = float(case.get("time") or 0)
    broken = [part for part in case if part.tag in ("failure", "error")]
    if broken:
        return Test(name, FAILED, seconds, (broken[0].get("message") or "").strip()[:200])
    skipped = case.find("skipped")
    if skipped is not None:
        return Test(name, SKIPPED, seconds, skipped.get("message") or "")
    output = "".join(part.text or "" for part in case if part.tag in ("system-out", "system-err"))
    if found := RUST_SKIP.search(output):
        return Test(name, SKIPPED, seconds, found[1])
    return Test(name, PASSED, seconds)


class Suite:
    """The steps of a run, in their order."""

    def __init__(self):
        self.steps = []
        self.strict = bool(os.environ.get("CI"))

    def step(self, name, tests, *arguments, **options):
        """Runs `tests(...)`, which returns a list of `Test`, and adds it as a step with its duration."""
        start = time.monotonic()
        step = Step(name, tests=tests(*arguments, **options))
        step.seconds = time.monotonic() - start
        if self.strict:
            fail_skips(step.tests)
        self.steps.append(step)
        free = shutil.disk_usage(ROOT).free / 1e9
        print(f"{name}: {format_counts(step.counts())} in {step.seconds:.0f} s; {free:.1f} GB free", flush=True)

    def finish(self):
        """Prints the summary and writes all results to `REPORT`. Returns the exit status."""
        tests = [test for step in self.steps for test in step.tests]
        heading("summary")
        for step in sorted(self.steps, key=lambda step: -step.seconds)[:SLOWEST_STEPS]:
            print(f"{step.seconds:7.1f} s  {step.name}")
        print()
        for test in sorted(tests, key=lambda test: -test.seconds)[:SLOWEST_TESTS]:
            print(f"{test.seconds:7.1f} s  {test.name}")
        print()
        for test in tests:
            if test.outcome != PASSED:
                print(f"{test.outcome.upper()} {test.name}{': ' if test.reason else ''}{test.reason}")
        for step in self.steps:
            print(f"{step.name:13} {format_counts(step.counts())}")
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(json.dumps({"steps": [asdict(step) for step in self.steps]}, indent=1))
        total = sum((step.counts() for step in self.steps), Counter())
        print(
            f"{sum(step.seconds for step in self.steps):.0f} s in total; every step and test: {REPORT.relative_to(ROOT)}"
        )
        print(format_counts(total))
        return 1 if total[FAILED] else 0


def fail_skips(tests):
    """Turns every skip whose reason is not allowed into a failure."""
    lines = ALLOWED_SKIPS.read_text().splitlines()
    allowed = [line for line in lines if line and not line.startswith("#")]
    for test in tests:
        if test.outcome == SKIPPED and not any(reason in test.reason for reason in allowed):
            test.outcome, test.reason = FAILED, f"skipped in CI: {test.reason}"


def heading(text):
    print(f"\n=== {text}", flush=True)


def format_counts(counts):
    return f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped"
