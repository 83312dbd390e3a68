"""Compares the instructions per packet of receiving by the packet card's DPDK driver with those of virtio (`make bench-pmd`).

Both drivers poll a ring that another process fills through shared memory: ours is filled by the simulated card, virtio's
by dpdk-testpmd with net_vhost. The same program (bench/pmd/receive.c) calls rte_eth_rx_burst for 32 packets of one queue,
and callgrind counts the instructions of each call, with everything that it calls: new buffers for the ring, too, but not
freeing the packets. Only calls that return 32 packets count, so that polling an empty ring costs nothing. Instructions do
not depend on the machine's speed, but a driver may need more for longer packets: virtio has counters by length.

virtio has a receive function for each kind of ring and set of features, which an application selects by options of the
device. All that need no AVX-512 are measured, and each length is compared with the best of them. That is the one for
SSE, which takes only packets of one buffer. The others, and ours, are compiled C, and the best of them is a second peer,
`virtio-scalar`. Functions for packets of several buffers, virtio's default, and those for one buffer are among them; ours
takes both. virtio sets neither a hash nor a packet type here, ours both.

How long a packet waits for its report is counted in clocks of the RTL (5 ns at 200 MHz): from the last word of a frame of 64
bytes at the card's input to the report in memory that counts it, with the driver's settings.

How often payloads are copied is what a run of `record` reports: the card is at one end of a veth pair and a probe at the other.
With header split the card writes payloads to their places in the shots; its writes stand for DMA. This needs root.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import (
    PROBE_PORT,
    RECEIVE_CPU,
    SEND_CPU,
    TIME_LIMIT,
    Failed,
    background,
    foreground,
    json_of,
    program,
    say,
    wait_for_port,
)

ROOT = Path(__file__).resolve().parent.parent
DRIVER = ROOT / "target" / "dpdk" / "librte_net_shotline.so"
LATENCY = ROOT / "target" / "release" / "examples" / "card_latency"
CHANNELS = (1, 16, 128)
LENGTHS = (64, 512, 1500)  # of frames without FCS
BURST = 32
DESCRIPTORS = 256  # virtio's default
DUMP = re.compile(r"^desc: Trigger: Client Request: (\w+)\n.*?^totals: (\d+)", re.MULTILINE | re.DOTALL)
# Options, what virtio then calls its function, and whether it uses vector instructions.
PATHS = [
    ("", "inorder", False),
    ("mrg_rxbuf=0", "inorder", False),
    ("in_order=0", "mergeable buffer", False),
    ("mrg_rxbuf=0,in_order=0", "standard", False),
    ("packed_vq=1", "packed ring mergeable buffer", False),
    ("packed_vq=1,mrg_rxbuf=0", "packed ring standard", False),
    ("vectorized=1,mrg_rxbuf=0,in_order=0", "vectorized", True),
]
CARD = "{shotline} emulate card --listen {socket} --mix {length}:1 --packets {packets} --channels 1 --pause"


@dataclass
class Contender:
    """A receive function: how to measure it at a length."""

    name: str
    measure: object  # length -> instructions per packet
    is_vector: bool = False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bursts", type=int, default=200, help="calls of a run that return 32 packets")
    parser.add_argument(
        "--only", choices=["ours", "virtio", "clocks", "copies"], help="measure one part, without a ratio"
    )
    parser.add_argument("--card", default=CARD, metavar="COMMAND", help=f"the simulated card: {CARD}")
    args = parser.parse_args()

    if args.only in (None, "clocks"):
        print_clocks()
    if args.only in (None, "copies"):
        print_copies()
    if args.only not in ("clocks", "copies"):
        compare(args)


def compare(args):
    """Compares the instructions of both drivers; exits with status 1 if one of them gave no figures."""
    with tempfile.TemporaryDirectory() as folder:
        receiver = Receiver(Path(folder), args.bursts)
        peers = [
            Contender(f"virtio {function} ({options or 'default'})", Virtio(receiver, options, function), is_vector)
            for options, function, is_vector in (PATHS if args.only != "ours" else [])
        ]
        ours = [Contender("shotline", Shotline(receiver, args.card))] if args.only != "virtio" else []
        say("instructions per packet".ljust(60) + "".join(f"{length:>6} B" for length in LENGTHS))
        figures = {}
        failed = False
        for contender in [*ours, *peers]:
            try:
                figures[contender.name] = [contender.measure(length) for length in LENGTHS]
                say(contender.name.ljust(60) + "".join(f"{value:8.1f}" for value in figures[contender.name]))
            except Failed as error:
                say(f"FAILED {contender.name}: {error}")
                failed = True
    if ours and peers and not failed:
        print_ratio("virtio", figures[ours[0].name], [figures[peer.name] for peer in peers])
        scalar = [figures[peer.name] for peer in peers if not peer.is_vector]
        print_ratio("virtio-scalar", figures[ours[0].name], scalar)
    if failed:
        sys.exit(1)


def print_ratio(peer, ours, theirs):
    """Prints the ratio of the length that is the worst for us, to the best of the peer's functions."""
    best = [min(values) for values in zip(*theirs)]
    ratio, mine, least = min((b / o, o, b) for o, b in zip(ours, best))
    say(f"RATIO pmd-instructions/{peer} {ratio:.2f} (ours {mine:.1f} instructions, {peer} {least:.1f} instructions)")


def print_clocks():
    """Prints the clocks until the report, for frames far apart and at the rate of the wire."""
    say("clocks from the last word to the report".ljust(60) + "  median      99 %   longest")
    for gap, load in ((1000, "frames far apart"), (0, "100 Gbit/s")):
        for channels in CHANNELS:
            found = json.loads(foreground([str(LATENCY), "--channels", str(channels), "--gap", str(gap)]))
            values = "".join(f"{found[name]:10}" for name in ("median", "p99", "longest"))
            say(f"{load}, {channels} channels".ljust(58) + values)


# --- copies of payloads ------------------------------------------------------------------------------


def print_copies():
    """Prints how many bytes driver and recorder moved for each payload byte of the recorded shots."""
    title = "bytes moved by driver and recorder for each payload byte".ljust(60)
    if os.geteuid() != 0:
        say(f"{title}not measured: it needs root, for a network namespace")
        return
    say(title)
    for what, arguments in (("header split", ""), ("split=off", ",split=off")):
        with tempfile.TemporaryDirectory() as folder, veth() as (space, ends):
            moved, shots = record_through_card(Path(folder), space, ends, arguments)
            say(f"{what}, {shots} shots".ljust(60) + f"{moved:8.1f}")


def record_through_card(folder, space, ends, arguments):
    """Records a probe's shots through the card. Returns the copies of each payload byte, and the number of shots."""
    socket, address = folder / "card.sock", f"127.0.0.1:{PROBE_PORT}"
    device = f"dpdk:net_shotline0,socket={socket}{arguments}"
    card = [program(), "emulate", "card", "--listen", str(socket), "--wire", ends[1]]
    source = ("--source", "10.99.0.1", "--transport", f"dpdk:net_af_packet0,iface={ends[0]}")
    probe = [program(), "emulate", "probe", "--json", "--listen", address, "--links", "1", *source]
    record = [
        *("env", f"LD_LIBRARY_PATH={DRIVER.parent}", program(), "record", "--json", "--probe", address, "--links", "1"),
        *("--bind", "10.99.0.2:4791", "--framing", "counted", "--transport", device, "--eal", f"-d {DRIVER.name}"),
        # The simulated card takes some thousand packets a second.
        *("--out", str(folder / "run.h5"), "--shots", "100", "--samples", "300", "--rate-hz", "20"),
    ]
    with sending(within(space, card), socket), background(within(space, probe)) as process:
        wait_for_port("udp", PROBE_PORT, process)
        ended = json_of(foreground(within(space, record)))
    foreground([program(), "verify", str(folder / "run.h5")])
    if ended["shots_complete"] != 100:
        raise Failed(f"not all shots are complete: {ended}")
    return ended["copies_per_byte"], ended["shots_complete"]


@contextlib.contextmanager
def veth():
    """Creates a network namespace with a veth pair, on which the kernel sends nothing. Returns its name and the ends'."""
    space, ends = f"shotbench{os.getpid()}", ("wire0", "wire1")
    try:
        foreground(["ip", "netns", "add", space])
        foreground(["ip", "-n", space, "link", "set", "lo", "up"])
        foreground(["ip", "-n", space, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
        for end in ends:
            foreground(["ip", "-n", space, "link", "set", end, "addrgenmode", "none", "mtu", "9000"])
            foreground(["ip", "-n", space, "link", "set", end, "up"])
        yield space, ends
    finally:
        subprocess.run(["ip", "netns", "delete", space], capture_output=True, timeout=30, check=False)


def within(space, words):
    return ["nsenter", f"--net=/run/netns/{space}", *words]


# --- the measured process ----------------------------------------------------------------------------


class Receiver:
    """The program under callgrind, and a folder for its files and sockets."""

    def __init__(self, folder, bursts):
        self.folder, self.bursts, self.runs = folder, bursts, 0
        self.program = folder / "receive"
        source = ROOT / "bench" / "pmd" / "receive.c"
        cflags, libs = (foreground(["pkg-config", what, "libdpdk"]).split() for what in ("--cflags", "--libs"))
        subprocess.run(["gcc", "-O2", "-Wall", *cflags, "-o", self.program, source, *libs], check=True)

    def socket(self):
        """Returns the path of a new socket."""
        self.runs += 1
        return self.folder / f"{self.runs}.sock"

    def run(self, *options, **environment):
        """Returns the mean of instructions per packet, and the log."""
        counts = self.folder / f"{self.runs}.counts"
        command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--combine-dumps=yes"),
            *(f"--callgrind-out-file={counts}", self.program, *eal("receive", f"0@{RECEIVE_CPU}")),
            # No vector instructions beyond SSE.
            *("--force-max-simd-bitwidth=128", *options, "--", self.bursts, DESCRIPTORS),
        ]
        how = {"capture_output": True, "text": True, "timeout": TIME_LIMIT}
        try:
            done = subprocess.run(list(map(str, command)), check=False, env=os.environ | environment, **how)
        except subprocess.TimeoutExpired:
            raise Failed(f"no {self.bursts} full bursts were received within {TIME_LIMIT} s") from None
        if done.returncode:
            raise Failed(f"the receiver ended with status {done.returncode}: {done.stdout}{done.stderr}")
        dumps = DUMP.findall(counts.read_text())
        empty = [int(count) for what, count in dumps if what == "empty"]
        full = [int(count) for what, count in dumps if what == str(BURST)]
        if len(full) != self.bursts or len(empty) != 1:
            raise Failed(f"expected {self.bursts} counts of full bursts, found {len(full)} in {counts}")
        return (sum(full) / len(full) - empty[0]) / BURST, done.stderr


def eal(name, cores):
    """Returns options for DPDK without huge pages and devices of the machine."""
    return [
        *("--no-huge", "--no-shconf", "-m", "256", "--no-pci", "--no-telemetry", "--iova-mode=va"),
        *(f"--file-prefix=shotline-bench-{name}", f"--lcores={cores}"),
    ]


# --- the drivers, and who fills their rings ----------------------------------------------------------


@dataclass
class Virtio:
    """DPDK's virtio_user, with options that select its receive function."""

    receiver: Receiver
    options: str
    function: str

    def __call__(self, length):
        socket = self.receiver.socket()
        sender = [
            *("dpdk-testpmd", *eal("send", f"0@(0,1),1@{SEND_CPU}")),
            *("--vdev", f"net_vhost0,iface={socket},queues=1", "--"),
            # With a period it runs until it gets a signal, not until the end of its standard input.
            *("--forward-mode=txonly", f"--txpkts={length}", "--total-num-mbufs=8192", "--stats-period=10"),
        ]
        device = ",".join(filter(None, [f"net_virtio_user0,path={socket}", self.options]))
        with sending(sender, socket):
            count, log = self.receiver.run("--log-level=pmd.net.virtio.init:info", "--vdev", device)
        if f"using {self.function} Rx path" not in log:
            raise Failed(f"virtio did not use its function {self.function}: {log}")
        return count


@dataclass
class Shotline:
    """Our driver, on a simulated card."""

    receiver: Receiver
    card: str

    def __call__(self, length):
        socket = self.receiver.socket()
        packets = 2 * BURST * self.receiver.bursts
        values = {"socket": socket, "length": length + 4, "packets": packets}
        shotline = program() if "{shotline}" in self.card else ""
        with sending(shlex.split(self.card.format(shotline=shotline, **values)), socket):
            # By its name: with a path DPDK refuses a driver below a folder that all users may write to, such as /tmp.
            device = f"net_shotline0,socket={socket}"
            return self.receiver.run("-d", DRIVER.name, "--vdev", device, LD_LIBRARY_PATH=str(DRIVER.parent))[0]


@contextlib.contextmanager
def sending(command, socket):
    """Starts what fills the ring, and waits for its socket."""
    with background(list(map(str, command))) as process:
        while not socket.exists():
            if process.poll() is not None:
                raise Failed(f"{command[0]} ended with status {process.returncode}")
            time.sleep(0.05)
        yield


if __name__ == "__main__":
    main()
