"""Compares programs that use Shotline as a library with its commands (`make bench-library`).

Programs in Python and in C take every shot of a probe and look at its bytes, next to `shotline record --discard`, which
only receives them. Shots are 284 KiB, as fast as the probe can send them; runs with a loss are repeated. Then programs
write 64 KiB at a time to the memory of a target, in groups of 16, next to `shotline perf write`.
"""

import argparse
import contextlib
import itertools
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from common import (
    HERE,
    POOL_MIB,
    PROBE_PORT,
    RECEIVE_CPU,
    SEND_CPU,
    Contender,
    Failed,
    Run,
    background,
    foreground,
    interleave,
    json_of,
    program,
    ratio,
    run_shotline,
    say,
    shotline_probe,
    slot_bytes,
    wait_for_port,
    wide_socket_buffers,
)

SAMPLES = 2000  # 96 channels of 12 bits: 284 KiB
STEPS = "open_ms", "first_shot_ms", "close_ms"
TOKEN = "0123456789abcdef0123456789abcdef"
PORTS = itertools.count(14800)  # one for each target: a port that has just been closed is still listed
FOLDER = HERE / "library"
INSTALLED = Path(program()).parent.parent / "c-library"  # make bench-library installs the C library there


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each program")
    parser.add_argument("--seconds", type=float, default=3, help="length of a run")
    args = parser.parse_args()
    with wide_socket_buffers():
        complete = iterate(args)
        complete &= write(args)
    sys.exit(0 if complete else 1)


def compiled(name):
    """Compiles a program in C with the installed library, and returns its command."""
    path = INSTALLED / name
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "shotline"],
        env={"PKG_CONFIG_PATH": str(INSTALLED / "lib" / "pkgconfig"), "PATH": "/usr/bin:/bin"},
        check=True,
        capture_output=True,
        text=True,
    )
    flags = ["-O2", "-Wall", "-Wextra", f"-Wl,-rpath,{INSTALLED / 'lib'}", *shlex.split(found.stdout)]
    subprocess.run(["gcc", "-o", path, FOLDER / f"{name}.c", *flags], check=True)
    return [str(path)]


# --- shots ---------------------------------------------------------------------------------------------


def iterate(args):
    """Compares taking shots with discarding them."""
    say(f"shots of {slot_bytes(SAMPLES) // 1024} KiB, taken by a program")
    programs = {"python": [sys.executable, str(FOLDER / "iterate.py")], "c": compiled("iterate")}
    steps = {name: {step: [] for step in STEPS} for name in programs}

    def taking(name):
        return lambda pace: run_program(programs[name], args.seconds, pace, steps[name])

    peer = Contender(
        "record --discard", lambda pace: run_shotline(SAMPLES, args.seconds, pace)[0], args.runs, paced=False
    )
    contenders = {name: Contender(name, taking(name), args.runs, paced=False) for name in programs}
    complete = interleave([peer, *contenders.values()])
    for name, contender in contenders.items():
        if peer.median() and contender.median():
            ratio(f"{name}-iterate/discard", contender.median().gbps, "record", peer.median().gbps, "Gbit/s")
    for name, times in steps.items():
        of_steps = (
            f"{step.removesuffix('_ms').replace('_', ' ')} {statistics.median(times[step]):.1f} ms" for step in STEPS
        )
        say(f"{name}: {', '.join(of_steps)} (medians)")
    return complete


def run_program(command, seconds, pace, steps):
    """Runs probe and program as two processes; returns the figures, and adds the times of the program's steps."""
    with background(shotline_probe(SAMPLES)) as probe:
        wait_for_port("udp6", PROBE_PORT, probe)
        words = [f"[::1]:{PROBE_PORT}", SAMPLES, f"{seconds:g}", f"{POOL_MIB}MiB", RECEIVE_CPU, f"{pace or 0:.3f}"]
        figures = json_of(foreground([*command, *map(str, words)]))
    report, taken = figures["report"], figures["taken"]
    if taken != report["shots_complete"] + report["shots_partial"] or figures["bytes"] != taken * slot_bytes(SAMPLES):
        raise Failed(f"{taken} shots taken: not those of {report}")
    for step, times in steps.items():
        times.append(figures[step])
    lost = sum(report["drops"].values()) + figures["incomplete"]
    return Run(gbps=report["receive_gbps"], packets=report["packets"], lost=lost, seconds=report["seconds"])


# --- writes --------------------------------------------------------------------------------------------


def write(args):
    """Compares one-sided writes of programs with those of `shotline perf`, each to a target of its own.

    The speed of the machine drifts by more than the programs differ, so the ratio is the median of those of rounds.
    """
    say("writes of 64 KiB in groups of 16")
    seconds = args.seconds / 4
    python, c = [sys.executable, str(FOLDER / "write.py")], compiled("write")
    runs = {"perf": lambda: perf(seconds), "python": lambda: written(python, seconds), "c": lambda: written(c, seconds)}
    figures = {name: [] for name in runs}
    for number in range(4 * args.runs):
        # Each is first, second and third in turn.
        for name in (*runs, *runs)[number % 3 : number % 3 + 3]:
            figures[name].append(runs[name]())
        say("  " + ", ".join(f"{name} {of_name[-1]:.2f} Gbit/s" for name, of_name in figures.items()))
    peer = figures.pop("perf")
    for name, ours in figures.items():
        value = statistics.median(own / other for own, other in zip(ours, peer, strict=True))
        rates = f"ours {statistics.median(ours):.2f} Gbit/s, perf {statistics.median(peer):.2f} Gbit/s"
        say(f"RATIO {name}-write/perf {value:.3f} ({rates})")
    return True


def perf(seconds):
    with target() as address:
        words = ["--to", address, "--token", TOKEN, "--size", "64K", "--group", "16", "--seconds", f"{seconds:g}"]
        found = json_of(foreground([program(), "perf", "write", "--json", *words, "--cpu", str(SEND_CPU)]))
    return found["gbps"]["average"]


def written(command, seconds):
    with target() as address:
        return json_of(foreground([*command, address, TOKEN, f"{seconds:g}", str(SEND_CPU)]))["gbps"]


@contextlib.contextmanager
def target():
    """Runs a target on a processor of its own; yields its address."""
    port = next(PORTS)
    words = ["--region", "a=1M,rights=rw", "--listen", f"127.0.0.1:{port}", "--bind", "127.0.0.1:0", "--token", TOKEN]
    with background([program(), "target", *words, "--cpu", str(RECEIVE_CPU)]) as process:
        wait_for_port("tcp", port, process)
        yield f"127.0.0.1:{port}"


if __name__ == "__main__":
    main()
