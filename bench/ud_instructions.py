"""Compares the instructions per datagram received through an RDMA device with those of perftest's ib_send_bw.

Both run in a QEMU guest on Linux's Soft-RoCE under valgrind, which counts the instructions of a program and its
libraries, including the user-space driver, but not the kernel's. Only the receive loop counts, with everything that it
calls: valgrind reports each function's share, and the loop of ib_send_bw, which has no symbols, is its function that
calls the driver most often. The figure is the difference between a long and a short run, which excludes constant costs.

Packets arrive in bursts that fit the receive queue, with pauses in which a receiver under valgrind catches up. Both
repost each receive, and sleep between bursts. Ours also places each packet and checks the fields of its completion; the
CRC over payloads, which a recording needs to validate a shot's record, is a separate pass over the payload and not
counted.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "guest"), str(ROOT / "tests")]

from attacker import send_datagrams
from image import Missing
from machine import GUEST, GUEST_2, HOST, Guest, GuestError

DEPTH = 256  # receives posted; runs have more packets, so that receives are reposted
SHORT, LONG = 512, 2560
BURST, PAUSE = 64, 1  # perftest requires a whole number of bursts per second
LIMIT = 240
VALGRIND = Path("/usr/libexec/valgrind")
MIN_RATIO = 0.67  # of the peer's instructions to ours


class Failed(Exception):
    """Raised if a run gave no figure: a packet was lost, or a program did not finish."""


def counted(command):
    """Returns a command that runs under valgrind."""
    tool = "VALGRIND_LIB=/share/valgrind valgrind.bin --tool=callgrind --callgrind-out-file=/share/counts"
    return f"{tool} --read-inline-info=no $(which {command.split()[0]}) {' '.join(command.split()[1:])}"


class Counts:
    """Valgrind's counts: instructions of each function with those that it calls, and calls by library."""

    NAME = re.compile(r"c?(ob|fn)=\((\d+)\)(?: (.*))?")

    def __init__(self, text):
        self.instructions, self.calls = Counter(), Counter()
        names, here, callee, called = {}, ["", ""], ["", ""], 0
        for line in text.splitlines():
            if found := self.NAME.match(line):
                kind, number, name = found.groups()
                name = names.setdefault((kind, number), name)
                if line[0] != "c":
                    here[kind == "fn"] = name
                    callee[0] = here[0]
                else:
                    callee[kind == "fn"] = name
            elif line.startswith("calls="):
                called = int(line[6:].split()[0])
                self.calls[tuple(here), callee[0]] += called
                callee[0] = here[0]
            elif re.match(r"[\d+*-]", line):
                # After `calls=`: the inclusive instructions of that call.
                self.instructions[tuple(here)] += int(line.split()[-1])

    def of(self, name):
        return sum(count for (_, function), count in self.instructions.items() if name in function)

    def loop(self, program, driver):
        """Returns the instructions of a program's function that calls the driver most often."""
        found = [
            (count, here)
            for (here, there), count in self.calls.items()
            if here[0].endswith(program) and driver in there
        ]
        if not found:
            raise Failed(f"{program} never called {driver}")
        return self.instructions[max(found)[1]]


def counts(guest, packets, result):
    if result.code or not (guest.share / "counts").exists():
        raise Failed(f"{packets} packets: {result.output}")
    return Counts((guest.share / "counts").read_text())


def ours(guest, packets):
    job = guest.spawn(counted(f"ibverbs_ud rxe0 {GUEST} {packets}"), LIMIT)
    while not (address := re.search(r"^(\d+) (\d+)$", job.output(), re.MULTILINE)):
        if job.ended():
            raise Failed(job.output())
        guest.listen(0.2)
    sender = [sys.executable, __file__, "--send", address[1], address[2], str(packets)]
    subprocess.run(guest.on_host(*sender), check=True, timeout=LIMIT)
    result = job.end()
    if f"{packets} in the right slot, 0 in a wrong slot" not in result.output:
        raise Failed(result.output)
    return counts(guest, packets, result).of("ibverbs_ud::receive")


def theirs(guest, packets, options):
    server, client = guest.gid(GUEST), guest.gid(GUEST_2)
    common = f"-d rxe0 -c UD -F -s 4096 -m 4096 -n {packets} -r {DEPTH}"
    receiver = guest.spawn(counted(f"ib_send_bw {common} -e {options} -x {server}"), LIMIT)
    pace = f"--rate_limit_type=SW --rate_units=p --rate_limit={BURST // PAUSE} --burst_size={BURST} -t {BURST}"
    command = f"sleep 5; until ib_send_bw {common} {pace} -x {client} 127.0.0.1; do sleep 1; done"
    sender = guest.spawn(command, LIMIT)
    result = receiver.end()
    if result.code:
        raise Failed(f"{result.output}{sender.output()}")
    return counts(guest, packets, result).loop("ib_send_bw", "librxe")


def per_packet(run, tries):
    """Returns the instructions of one additional packet.

    The minimum of each length counts, because additional wake-ups and lost packets only add instructions.
    """
    least, failures = [], []
    for packets in (SHORT, LONG):
        found = []
        for _ in range(tries):
            try:
                found.append(run(packets))
            except (Failed, subprocess.SubprocessError) as failed:
                failures.append(str(failed))
        if not found:
            raise Failed("\n".join(failures[-1:]))
        least.append(min(found))
    return (least[1] - least[0]) / (LONG - SHORT)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--send", nargs=3, type=int, metavar=("PAIR", "KEY", "COUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--tries", type=int, default=3, help="runs of each length, of which the least counts")
    arguments = parser.parse_args()
    if arguments.send:
        send_datagrams(HOST, GUEST, *arguments.send, burst=BURST, pause=PAUSE)
        return 0
    program = ROOT / "target" / "release" / "examples" / "ibverbs_ud"
    try:
        with Guest([program, "/usr/bin/valgrind.bin"], memory=1536) as guest:
            (guest.share / "valgrind").mkdir()
            for name in ("callgrind-amd64-linux", "vgpreload_core-amd64-linux.so", "default.supp"):
                source = VALGRIND / name
                (guest.share / "valgrind" / name).write_bytes(source.read_bytes())
                os.chmod(guest.share / "valgrind" / name, 0o755)
            mine = per_packet(lambda packets: ours(guest, packets), arguments.tries)
            print(f"ours              {mine:7.0f} instructions/packet", flush=True)
            peers = []
            for options, how in (("", "one by one"), ("--recv_post_list 16", "in lists of 16")):
                peers.append(per_packet(lambda packets, o=options: theirs(guest, packets, o), arguments.tries))
                print(f"ib_send_bw        {peers[-1]:7.0f} instructions/packet, receives posted {how}", flush=True)
    except (Missing, GuestError, Failed, OSError) as error:
        print(f"ud-instructions: {error}", file=sys.stderr)
        return 1
    peer = min(peers)
    print(
        f"RATIO ud-instructions/ib_send_bw {peer / mine:.2f} (ours {mine:.0f} instructions/packet, peer {peer:.0f} instructions/packet)"
    )
    return 0 if peer / mine >= MIN_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
