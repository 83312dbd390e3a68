"""Compares receiving from a cable by AF_XDP with dpdk-testpmd's net_af_xdp, and by AF_PACKET (`make bench-xdp`).

The sender is the same for both contenders: a socket in another network namespace, pinned to one core, whose datagrams the
kernel segments. The receivers are testpmd rxonly, which reads no byte, and ours, which copies every payload into
registered memory; each on the other core. With AF_PACKET, through a ring and by system calls, the kernel does not segment
frames, and the receiver sleeps when idle, so its CPU time per packet is the figure. Needs root, ip and dpdk-testpmd.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from common import RECEIVE_CPU, SEND_CPU, Failed, background, foreground, json_of, ratio, say

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "xdp_throughput"
ADDRESSES = ["10.91.6.1", "10.91.6.2"]
PORT = 4791
MTU = 3400  # the kernel refuses net_af_xdp's program if packets may exceed one chunk
RATE = re.compile(r"Rx-pps:\s+(\d+)\s+Rx-bps:\s+(\d+)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, with one run of each contender")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a run")
    parser.add_argument("--bytes", type=int, default=2048, help="payload; net_af_xdp takes frames of one chunk only")
    args = parser.parse_args()

    runs = {"testpmd": testpmd, "shotline": ours}
    figures = {name: [] for name in runs}
    with cable() as spaces:
        mtu(spaces, MTU)
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            for name, run in runs.items():
                try:
                    figures[name].append(run(spaces, args.seconds, args.bytes))
                    say(f"  {name}: {figures[name][-1]:.2f} Gbit/s")
                except Failed as error:
                    say(f"  FAILED {name}: {error}")
        mtu(spaces, 9000)
        with contextlib.suppress(Failed):
            say(f"  ours with 4096 bytes in two chunks: {ours(spaces, args.seconds, 4096):.2f} Gbit/s")
        for number in range(args.rounds):
            say(f"AF_PACKET, round {number + 1} of {args.rounds}")
            for how, size in [(how, size) for size in (2048, 4096) for how in ("calls", "ring")]:
                with contextlib.suppress(Failed):
                    say(f"  {how}, {size} bytes: {ours(spaces, args.seconds, size, how):.2f} Gbit/s")
    say("")
    if all(figures.values()):
        peer = f"net_af_xdp, {args.bytes} bytes"
        ratio("xdp/testpmd-af-xdp", median(figures["shotline"]), peer, median(figures["testpmd"]), "Gbit/s")
    sys.exit(0 if all(len(values) == args.rounds for values in figures.values()) else 1)


# --- contenders --------------------------------------------------------------------------------------


def testpmd(spaces, seconds, size):
    receiver = [
        *("dpdk-testpmd", "--no-huge", "--no-shconf", "-m", "512", "--no-pci", "--no-telemetry"),
        *("--file-prefix=shotline-bench-xdp", f"--lcores=0@(0,1),1@{RECEIVE_CPU}"),
        *("--vdev", "net_af_xdp0,iface=cable", "--"),
        # With a period it runs until it gets a signal, not until the end of its standard input.
        *("--mbuf-size=3456", "--total-num-mbufs=16384", "--stats-period=1", "--forward-mode=rxonly"),
    ]
    with background(within(spaces[1], receiver)) as process:
        time.sleep(2)  # until it has started
        foreground(sender(spaces[0], seconds, size))
        time.sleep(1)
        process.terminate()
        output = process.stdout.read()
    rates = [int(bits) * 1e-9 for _, bits in RATE.findall(output) if int(bits) > 0]
    if len(rates) < 3:
        raise Failed(f"testpmd received nothing: {output[-3000:]}")
    return median(rates[1:-1])  # the first and the last second are incomplete


def ours(spaces, seconds, size, how="xdp"):
    receiver = [str(EXAMPLE), "receive", f"{how}:cable", f"{ADDRESSES[1]}:{PORT}", f"{seconds - 0.5:g}"]
    with background(within(spaces[1], ["taskset", "-c", str(RECEIVE_CPU), *receiver])) as process:
        time.sleep(1)
        foreground(sender(spaces[0], seconds, size))
        process.wait(timeout=30)
        output = process.stdout.read()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise Failed(output[-300:])
    figures = json_of(lines[-1])
    say(f"    {figures['cpu_s'] / figures['packets'] * 1e9:.0f} ns of CPU time per packet, {figures['lost']} lost")
    return figures["gbps"]


def sender(space, seconds, size):
    words = [str(EXAMPLE), "send", f"{ADDRESSES[0]}:0", f"{ADDRESSES[1]}:{PORT}", f"{seconds:g}", str(size)]
    return within(space, ["taskset", "-c", str(SEND_CPU), *words])


# --- the cable ---------------------------------------------------------------------------------------


def within(space, words):
    return ["nsenter", f"--net=/run/netns/{space}", *words]


@contextlib.contextmanager
def cable():
    """Creates two network namespaces connected by a veth pair with one queue."""
    spaces = [f"shotbench{os.getpid()}{end}" for end in "ab"]
    try:
        for space in spaces:
            ip("netns", "add", space)
        peer = ["peer", "name", "cable", "netns", spaces[1], "numrxqueues", "1", "numtxqueues", "1"]
        one = ["numrxqueues", "1", "numtxqueues", "1", "type", "veth"]
        ip("-n", spaces[0], "link", "add", "cable", *one, *peer)
        macs = []
        for space, address in zip(spaces, ADDRESSES, strict=True):
            ip("-n", space, "address", "add", f"{address}/24", "dev", "cable")
            ip("-n", space, "link", "set", "cable", "up")
            macs.append(ip("-n", space, "-brief", "link", "show", "cable").split()[2])
        # A receiver that takes every frame from the kernel does not answer ARP requests.
        ip("-n", spaces[0], "neigh", "replace", ADDRESSES[1], "lladdr", macs[1], "dev", "cable")
        yield spaces
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, timeout=30, check=False)


def mtu(spaces, value):
    for space in spaces:
        ip("-n", space, "link", "set", "cable", "mtu", str(value))


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise Failed(f"ip {' '.join(words)}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
