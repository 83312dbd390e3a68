#!/usr/bin/env python3
"""Boots a QEMU guest with Linux's RDMA stack, runs a command in it, and exits with the command's exit code."""

import argparse
import subprocess
import sys
from pathlib import Path

from image import Missing
from machine import BAR, GUEST, HOST, LIMIT, SCREEN_DEVICE, SIMPLE_DEVICE, Card, Guest, GuestError, Screens

EXAMPLES = f"""\
The guest has Soft-RoCE (rxe0 at {GUEST}), the programs of rdma-core and perftest, an address {HOST} to reach this
machine at, and a folder /share, whose files --share copies to a folder of this machine. It needs neither KVM nor
root. Booting takes some seconds; the first time, a kernel is downloaded and unpacked into .cache/guest.

examples:
  guest/run.py ibv_devinfo
  guest/run.py --script test.sh --share results
  guest/run.py --put ./my-test -- my-test --device rxe0
  guest/run.py --screens --put target/debug/examples/show -- show kms 1024x768@60 60
  guest/run.py --card /tmp/card -- card-testpmd --auto-start --stats-period=1
  guest/run.py --host 'target/debug/shotline interop perftest write --bind {HOST}' -- ib_write_bw -d rxe0 -x 1 -F {HOST}
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="shell command to run")
    parser.add_argument("--script", type=Path, help="run a shell script instead")
    parser.add_argument(
        "--put",
        type=Path,
        action="append",
        default=[],
        help="copy this program and its libraries to the guest (repeatable)",
    )
    parser.add_argument(
        "--host", metavar="COMMAND", help="run this at the same time on this machine's end of the cable"
    )
    parser.add_argument(
        "--share", metavar="FOLDER", type=Path, help="copy the files in the guest's /share to this folder"
    )
    parser.add_argument(
        "--card",
        metavar="FOLDER",
        type=Path,
        help="add a packet card, which is simulated with this folder's files window and memory, and DPDK",
    )
    parser.add_argument(
        "--bar",
        metavar="FILE",
        type=Path,
        help=f"add a PCI device with this file as its memory, behind the BAR {BAR}",
    )
    parser.add_argument(
        "--screens",
        action="store_true",
        help=f"add display devices with a screen each: {SCREEN_DEVICE} (virtio-gpu) and {SIMPLE_DEVICE} (bochs)",
    )
    parser.add_argument("--limit", type=int, default=LIMIT, help="time limit of the command in seconds (%(default)s)")
    parser.add_argument("--memory", type=int, default=1024, help="memory of the guest in MiB (%(default)s)")
    arguments = parser.parse_args()
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    command = arguments.script.read_text() if arguments.script else " ".join(words)
    if not command:
        parser.error("expected a command or --script")
    try:
        card = Card(arguments.card) if arguments.card else None
        screens = Screens() if arguments.screens else None
        options = {"memory": arguments.memory, "card": card, "bar": arguments.bar, "screens": screens}
        with Guest(arguments.put, **options) as guest:
            host = subprocess.Popen(guest.on_host("sh", "-c", f"exec {arguments.host}")) if arguments.host else None
            try:
                return guest.run(command, arguments.limit, print_output).code
            finally:
                if host:
                    end(host)
                if arguments.share:
                    guest.copy_share(arguments.share)
    except (Missing, GuestError) as error:
        print(f"guest: {error}", file=sys.stderr)
        return 125


def end(process):
    """Waits briefly for a process to exit by itself, then terminates it."""
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def print_output(text):
    print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
