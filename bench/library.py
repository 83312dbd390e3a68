"""Compares programs that use Shotline as a library with its commands (`make bench-library`).

A program in Python takes every shot of a probe and looks at its bytes, next to `shotline record --discard`, which only
receives them. Shots are 284 KiB. The rates are medians of lossless runs, as of `make bench-receive`.
"""

import argparse
import statistics
import sys

from common import (
    POOL_MIB,
    PROBE_PORT,
    RECEIVE_CPU,
    Contender,
    Run,
    background,
    foreground,
    interleave,
    json_of,
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each program")
    parser.add_argument("--seconds", type=float, default=3, help="length of a run")
    args = parser.parse_args()
    with wide_socket_buffers():
        complete = iterate(args)
    sys.exit(0 if complete else 1)


def iterate(args):
    """Compares taking shots with discarding them."""
    say(f"shots of {slot_bytes(SAMPLES) // 1024} KiB, taken by a program")
    steps = {step: [] for step in STEPS}
    python = [sys.executable, "bench/library/iterate.py"]
    contenders = [
        Contender("record --discard", lambda pace: run_shotline(SAMPLES, args.seconds, pace)[0], args.runs),
        Contender("python", lambda pace: run_program(python, args.seconds, pace, steps), args.runs),
    ]
    complete = interleave(contenders)
    peer, ours = (contender.median() for contender in contenders)
    if peer and ours:
        ratio("python-iterate/discard", ours.gbps, "record", peer.gbps, "Gbit/s")
    for step, times in steps.items():
        if times:
            say(f"python: {step.removesuffix('_ms').replace('_', ' ')}: median {statistics.median(times):.1f} ms")
    return complete


def run_program(program, seconds, pace, steps):
    """Runs probe and program as two processes; returns the figures, and adds the times of the program's steps."""
    with background(shotline_probe(SAMPLES)) as probe:
        wait_for_port("udp6", PROBE_PORT, probe)
        pool = f"{POOL_MIB}MiB"
        words = [f"[::1]:{PROBE_PORT}", SAMPLES, f"{seconds:g}", pool, RECEIVE_CPU, f"{pace or 0:.3f}"]
        figures = json_of(foreground([*program, *map(str, words)]))
    for step, times in steps.items():
        times.append(figures[step])
    return Run(**{name: figures[name] for name in ("gbps", "packets", "lost", "seconds")})


if __name__ == "__main__":
    main()
