"""Instructions per packet of receiving datagrams through an RDMA device, beside perftest's ib_send_bw.

Both run in a QEMU guest on Linux's Soft-RoCE under valgrind, which counts what a program and its libraries execute, the
driver in user space included, and not the kernel. What a packet costs is the difference between a long and a short
run. All packets fit the receive queue, so neither side ever looks at an empty queue for long. Ours also places each
packet and checks what its completion tells; the CRC over payloads, which a recording needs to prove the record of a
shot, is a pass over the payload of its own and not counted.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "guest"), str(ROOT / "tests")]

from image import Missing
from machine import GUEST, GUEST_TOO, HOST, Guest, Refused
from stranger import send_datagrams

SHORT, LONG = 128, 512
TRIES = 5
LIMIT = 120
VALGRIND = Path("/usr/libexec/valgrind")
BAR = 0.67  # the peer's instructions over ours


class Failed(Exception):
    """A run that gave no figure: a packet was lost, or a program did not come to its end."""


def counted(command):
    """A command under valgrind."""
    tool = "VALGRIND_LIB=/share/valgrind valgrind.bin --tool=callgrind --callgrind-out-file=/dev/null"
    return f"{tool} $(which {command.split()[0]}) {' '.join(command.split()[1:])}"


def instructions(said):
    found = re.search(r"Collected : (\d+)", said)
    if not found:
        raise Failed(said)
    return int(found[1])


def ours(guest, packets):
    job = guest.spawn(counted(f"ibverbs_ud rxe0 {GUEST} {packets}"), LIMIT)
    while not (told := re.search(r"^(\d+) (\d+)$", job.output(), re.MULTILINE)):
        if job.ended():
            raise Failed(job.output())
        guest.listen(0.2)
    sender = [sys.executable, __file__, "--send", told[1], told[2], str(packets)]
    subprocess.run(guest.on_host(*sender), check=True, timeout=LIMIT)
    said = job.end()
    if said.code or f"{packets} placed, 0 not" not in said.output:
        raise Failed(said.output)
    return instructions(said.output)


def theirs(guest, packets, options):
    server, client = guest.gid(GUEST), guest.gid(GUEST_TOO)
    common = f"-d rxe0 -c UD -F -s 4096 -m 4096 -n {packets} -r {LONG} -t {packets}"
    waits = guest.spawn(counted(f"ib_send_bw {common} -e {options} -x {server}"), LIMIT)
    goes = f"sleep 5; until ib_send_bw {common} -x {client} 127.0.0.1; do sleep 1; done"
    guest.spawn(goes, LIMIT)
    said = waits.end()
    if said.code:
        raise Failed(said.output)
    return instructions(said.output)


def per_packet(run):
    """What one packet more costs: the least of what is tried, as packets that are lost cost more, never less."""
    failures = []
    for _ in range(TRIES):
        try:
            each = (run(LONG) - run(SHORT)) / (LONG - SHORT)
            if each > 0:
                return each
            failures.append("a long run took no more instructions than a short one: its start varies by more")
        except Failed as failed:
            failures.append(str(failed))
    raise Failed("\n".join(failures[-1:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--send", nargs=3, type=int, metavar=("PAIR", "KEY", "COUNT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        send_datagrams(HOST, GUEST, *arguments.send)
        return 0
    program = ROOT / "target" / "release" / "examples" / "ibverbs_ud"
    try:
        with Guest([program, "/usr/bin/valgrind.bin"], memory=1536) as guest:
            (guest.share / "valgrind").mkdir()
            for name in ("callgrind-amd64-linux", "vgpreload_core-amd64-linux.so", "default.supp"):
                source = VALGRIND / name
                (guest.share / "valgrind" / name).write_bytes(source.read_bytes())
                os.chmod(guest.share / "valgrind" / name, 0o755)
            mine = per_packet(lambda packets: ours(guest, packets))
            peers = [
                per_packet(lambda packets, o=options: theirs(guest, packets, o))
                for options in ("", "--recv_post_list 16")
            ]
    except (Missing, Refused, Failed, OSError) as error:
        print(f"ud-instructions: {error}", file=sys.stderr)
        return 1
    peer = min(peers)
    print(f"ours              {mine:7.0f} instructions/packet")
    print(f"ib_send_bw        {peers[0]:7.0f} instructions/packet, receives posted one by one")
    print(f"ib_send_bw        {peers[1]:7.0f} instructions/packet, receives posted in lists of 16")
    print(
        f"RATIO ud-instructions/ib_send_bw {peer / mine:.2f} (ours {mine:.0f} instructions/packet, peer {peer:.0f} instructions/packet)"
    )
    return 0 if peer / mine >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
