"""Compares receiving from a probe, shots discarded, with a bare socket loop and with spead2 (`make bench-receive`)."""

import argparse
import sys
import tempfile

from common import (
    Contender,
    build_socket_loop,
    interleave,
    ratio,
    run_shotline,
    run_socket_loop,
    run_spead2,
    say,
    shot_bytes,
    wide_socket_buffers,
)

PAPER_GBPS = 90.5  # Cossettini et al. (docs/plan.md), table I: 84.26 in units of 2^30 bit/s, with two 100G NICs
JUDGED_SAMPLES = 4000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[500, 1000, 2000, 4000], metavar="N")
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each contender")
    parser.add_argument("--seconds", type=float, default=3, help="length of a run")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers alone")
    args = parser.parse_args()

    complete = True
    medians = {}
    with tempfile.TemporaryDirectory() as folder, wide_socket_buffers():
        loop = build_socket_loop(folder)
        for samples in args.samples:
            say(f"N_s = {samples}: shots of {shot_bytes(samples)} bytes")
            contenders = contend(samples, loop, args)
            complete &= interleave(contenders)
            medians[samples] = {c.name: c.median() for c in contenders}

    print_table(medians)
    complete &= print_ratios(medians.get(JUDGED_SAMPLES, {}))
    sys.exit(0 if complete else 1)


def contend(samples, loop, args):
    def ours(framing):
        return lambda pace: run_shotline(samples, args.seconds, pace, framing)[0]

    shotline = [
        Contender("shotline", ours("ud"), args.runs),
        Contender("shotline-udp", ours("udp"), args.runs),
    ]
    peers = [
        Contender("socket-loop", lambda pace: run_socket_loop(loop, args.seconds, pace), args.runs),
        Contender("spead2", lambda _: run_spead2(samples), args.runs, paced=False),
    ]
    return peers if args.peers_only else shotline + peers


def print_table(medians):
    say("")
    say("Medians of lossless runs. CPU in cores; copies of each payload byte at the receiver.")
    say("| N_s | what | Gbit/s | Mpackets/s | sender CPU | receiver CPU | copies |")
    say("|---|---|---|---|---|---|---|")
    for samples, row in medians.items():
        for name, run in row.items():
            if run is None:
                say(f"| {samples} | {name} | no lossless median | | | | |")
            elif not run.packets:  # spead2 reports only its rate
                say(f"| {samples} | {name} | {run.gbps:.2f} | | | | |")
            else:
                copies = f"{run.copies:.2f}" if run.copies == run.copies else ""
                say(
                    f"| {samples} | {name} | {run.gbps:.2f} | {run.packets / run.seconds / 1e6:.3f} "
                    f"| {run.send_cpu_s / run.seconds:.2f} | {run.receive_cpu_s / run.seconds:.2f} | {copies} |"
                )
    say("")


def print_ratios(row):
    ours = row.get("shotline")
    if ours is None:
        return not row
    for what, name in (("spead2-system", "spead2"), ("socket-loop", "socket-loop")):
        if row[name]:
            ratio(f"receive/{what}", ours.gbps, name, row[name].gbps, "Gbit/s")
    ratio("receive/paper", ours.gbps, "paper", PAPER_GBPS, "Gbit/s")
    return True


if __name__ == "__main__":
    main()
