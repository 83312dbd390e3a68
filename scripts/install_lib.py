"""Builds the C library and installs it: libshotline, shotline.h, files for pkg-config and CMake (`make install-lib`).

The installed folder can be moved as a whole: the files for pkg-config and CMake find it relative to themselves.
docs/c.md shows how to use the library.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = ROOT / "crates" / "capi"
# Libraries of the system that Rust's standard library needs (rustc --print native-static-libs).
RUST_LIBS = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=Path, default=Path("/usr/local"), help="default: /usr/local")
    parser.add_argument("--libdir", default="lib", help="folder of libraries in the prefix; default: lib")
    parser.add_argument("--destdir", default="", help="folder that stands for / while a package is built")
    parser.add_argument("--from", dest="built", type=Path, metavar="FOLDER", help="install what cargo has built there")
    arguments = parser.parse_args()
    built = arguments.built or build()
    prefix = Path(arguments.destdir + str(arguments.prefix.absolute()))
    for path in install(built, prefix, arguments.libdir):
        print(path)


def build():
    """Builds the library and returns the folder with it."""
    command = ["cargo", "build", "--release", "--locked", "--package", "shotline-capi"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


def install(built, prefix, libdir):
    """Installs everything and returns the paths."""
    lib, values = prefix / libdir, substitutions(libdir)
    versioned = f"libshotline.so.{values['VERSION']}"
    copy(built / "libshotline.so", lib / versioned, 0o755)
    copy(built / "libshotline.a", lib / "libshotline.a", 0o644)
    copy(CRATE / "include" / "shotline.h", prefix / "include" / "shotline.h", 0o644)
    paths = [lib / versioned, lib / "libshotline.a", prefix / "include" / "shotline.h"]
    for name in (f"libshotline.so.{values['ABI']}", "libshotline.so"):
        (lib / name).unlink(missing_ok=True)
        (lib / name).symlink_to(versioned)
        paths.append(lib / name)
    for template in sorted((CRATE / "install").iterdir()):
        folder = lib / ("pkgconfig" if ".pc" in template.suffixes else "cmake/Shotline")
        paths.append(folder / template.stem)
        text = re.sub(r"@(\w+)@", lambda name: values[name[1]], template.read_text())
        folder.mkdir(parents=True, exist_ok=True)
        paths[-1].write_text(text)
        paths[-1].chmod(0o644)
    return paths


def substitutions(libdir):
    """Returns what the templates need, by name."""
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    header = (CRATE / "include" / "shotline.h").read_text()
    major, minor, _ = package["version"].split(".")
    libs = [*hdf5_libs(), *RUST_LIBS]
    return {
        "VERSION": package["version"],
        "MAJOR": major,
        "MINOR": minor,
        "URL": package["repository"],
        "ABI": re.search(r"#define SHOTLINE_ABI_VERSION (\d+)", header)[1],
        "LIBDIR": libdir,
        "UP_FROM_PKGCONFIG": os.path.relpath("/", f"/{libdir}/pkgconfig"),
        "UP_FROM_CMAKE": os.path.relpath("/", f"/{libdir}/cmake/Shotline"),
        "STATIC_LIBS": shlex.join(libs),
        "STATIC_LIBS_CMAKE": ";".join(libs),
    }


def hdf5_libs():
    """Returns how to link libhdf5, which the static library needs, as the build has found it."""
    found = subprocess.run(["pkg-config", "--libs", "hdf5"], capture_output=True, text=True, check=False)
    return shlex.split(found.stdout) if found.returncode == 0 else ["-lhdf5"]


def copy(source, to, mode):
    """Replaces a file at once, so that running programs keep the library that they have loaded."""
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f".{to.name}.partial")
    shutil.copyfile(source, partial)
    partial.chmod(mode)
    partial.replace(to)


if __name__ == "__main__":
    sys.exit(main())
