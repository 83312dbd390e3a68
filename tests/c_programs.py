"""The C library as it is installed, and programs that use it.

Programs are compiled with the address and undefined behaviour sanitizers, which also report leaks.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S

EXAMPLES, SOURCES, CRATE = ROOT / "examples" / "c", ROOT / "tests" / "c", ROOT / "crates" / "capi"
TOOLS = ("gcc", "g++", "cmake", "make", "pkg-config")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
COMPILERS = {"c11": ("gcc", "-std=c11"), "c++17": ("g++", "-std=c++17")}


def built_library():
    """Returns the folder with the C library: that of `scripts/test.py`, or else where cargo has built it."""
    folder = Path(PROGRAM).parent
    folder = folder / "capi" if (folder / "capi").exists() else folder
    assert (folder / "libshotline.so").exists(), f"there is no libshotline.so in {folder}: cargo build makes it"
    return folder


class Library:
    """The library as it is installed, and programs that use it."""

    def __init__(self, folder):
        self.folder = folder
        self.prefix = folder / "moved" / "prefix"
        built = built_library()
        install = [ROOT / "scripts" / "install_lib.py", "--from", built, "--prefix", folder / "prefix"]
        command("python3", *install)
        # Everything below uses the folder at another place: files for pkg-config and CMake do not contain it.
        self.prefix.parent.mkdir()
        (folder / "prefix").rename(self.prefix)
        self.lib = self.prefix / "lib"

    def flags(self, package):
        found = command("pkg-config", "--cflags", "--libs", package, PKG_CONFIG_PATH=str(self.lib / "pkgconfig"))
        return found.split()

    def compile(self, source, language="c11", package="shotline", name=None):
        """Compiles a program once and returns it."""
        program = self.folder / f"{name or source.stem}-{language}-{package}"
        if not program.exists():
            link = [*self.flags(package), f"-Wl,-rpath,{self.lib}", "-pthread"]
            command(*COMPILERS[language], *WARNINGS, *SANITIZERS, "-o", program, source, *link)
        return program

    def dump(self, *arguments):
        """Returns what tests/c/dump.c prints."""
        return json.loads(command(self.compile(SOURCES / "dump.c"), *arguments))


def command(*words, cwd=None, **environment):
    """Runs a program that must succeed, and returns its output."""
    leaks = {"ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | leaks | environment,
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{words}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: scripts/setup.sh capi installs what Debian has")
    return Library(tmp_path_factory.mktemp("library"))
