"""Compares writes, reads and messages with UCX, libfabric and Gibson et al. (docs/plan.md) (`make bench-rdma`)."""

import argparse
import itertools
import sys
from dataclasses import dataclass, field
from statistics import median

from common import MIB, RECEIVE_CPU, SEND_CPU, Failed, background, foreground, json_of, program, say, wait_for_port

UCX_TLS = {"tcp": "tcp", "posix": "posix,cma,self"}
SOFT_SIZES = [64 << 10, 256 << 10, MIB]
SHM_SIZES = [4 << 10, *SOFT_SIZES]
LATENCY_BYTES = 8
GROUP = 128
PAPER_GROUP_GBPS = 23.45  # Gibson et al., section V: the highest rate of its groups of writes
POST_NS = 50  # target for posting and completing an operation
FEW, MANY = 4, 1000  # queue pairs to one target process
LOSS = 0.001  # fraction of packets
OURS = "shotline "
ports = itertools.cycle(range(14800, 15800))  # a closed port stays unavailable for some time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, with one run of each contender")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a run")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="START", help="ratios with this prefix: udp-write shm"
    )
    parser.add_argument("--peers", action="store_true", help="run only the peers, without ratios")
    args = parser.parse_args()

    ratios = [ratio for ratio in wanted_ratios(args) if ratio.name.startswith(tuple(args.only))]
    contenders = {}  # each once, also if it is in several ratios
    for ratio in ratios:
        for contender in [*ratio.peers, ratio.ours]:
            if not (args.peers and contender.name.startswith(OURS)):
                contenders.setdefault(contender.name, contender)
    for number in range(args.rounds):
        say(f"round {number + 1} of {args.rounds}")
        for contender in contenders.values():
            contender.step()
    say("")
    if args.peers:
        for contender in contenders.values():
            say(f"{contender.name}: {contender.median():.3f} {contender.unit}" if contender.figures else contender.name)
    printed = [ratio.show(contenders) for ratio in ratios] if not args.peers else []
    sys.exit(0 if all(printed) and not any(contender.failures for contender in contenders.values()) else 1)


# --- contenders and ratios -------------------------------------------------------------------------------


@dataclass
class Contender:
    """A program that gives one figure per round."""

    name: str
    unit: str
    run: object
    figures: list = field(default_factory=list)
    failures: int = 0

    def step(self):
        try:
            figure = self.run()
        except (Failed, OSError) as error:
            self.failures += 1
            say(f"  FAILED {self.name}: {error}")
        else:
            self.figures.append(figure)
            say(f"  {self.name}: {figure:.3f} {self.unit}")

    def median(self):
        return median(self.figures)


@dataclass
class Ratio:
    """Ratio of ours to the best of several peers, or to a target. Above 1, ours is better."""

    name: str
    ours: Contender
    peers: list = field(default_factory=list)
    limit: tuple = ()
    less_is_better: bool = False

    def show(self, contenders):
        ran = [contenders[peer.name] for peer in self.peers if contenders[peer.name].figures]
        figures = [(peer.median(), peer.name) for peer in ran] or ([self.limit] if self.limit else [])
        ours = contenders[self.ours.name]
        if not figures or not ours.figures:
            say(f"NO RATIO {self.name}: {self.ours.name if figures else 'the peer'} gave no figure")
            return False
        best, peer = min(figures) if self.less_is_better else max(figures)
        value = best / ours.median() if self.less_is_better else ours.median() / best
        say(f"RATIO {self.name} {value:.3f} (ours {ours.median():.3f} {ours.unit}, {peer} {best:.3f} {ours.unit})")
        return True


def wanted_ratios(args):
    for size in SOFT_SIZES:
        best = [ucx_rate("tcp", test, size, args.seconds) for test in ("ucp_put_bw", "ucp_get", "tag_bw")]
        for verb in ("write", "read", "send"):
            yield Ratio(f"udp-{verb}-{label(size)}/ucx-tcp-best", our_rate("soft", verb, size, args), best)
    group = our_rate("soft", "write", 64 << 10, args, "--group", GROUP)
    lossy = our_rate("soft", "write", 64 << 10, args, "--group", GROUP, "--loss", LOSS)
    yield Ratio("udp-write-group/paper", group, limit=(PAPER_GROUP_GBPS, "paper"))
    yield Ratio("udp-loss/no-loss", lossy, [group])
    for peer, of, contender in (
        ("ucx-tcp-put", "ping", ucx_latency("tcp", "ucp_put_lat")),
        ("ucx-tcp-tag", "send", ucx_latency("tcp", "tag_lat")),
        ("fi-tcp", "send", fi_latency("tcp;ofi_rxm")),
    ):
        yield Ratio(f"udp-latency/{peer}", our_latency("soft", of, args), [contender], less_is_better=True)
    for verb, test in (("write", "ucp_put_bw"), ("read", "ucp_get")):
        for size in SHM_SIZES:
            peer = ucx_rate("posix", test, size, args.seconds)
            yield Ratio(f"shm-{verb}-{label(size)}/ucx-posix", our_rate("shm", verb, size, args), [peer])
    for peer, of, contender in (
        ("ucx-posix", "ping", ucx_latency("posix", "ucp_put_lat")),
        ("fi-shm", "send", fi_latency("shm")),
    ):
        yield Ratio(f"shm-latency/{peer}", our_latency("shm", of, args), [contender], less_is_better=True)
    yield Ratio("post-ns/50", our_posting(args), limit=(POST_NS, "limit"), less_is_better=True)
    few, many = (our_rate("soft", "write", 64 << 10, args, "--queue-pairs", pairs) for pairs in (FEW, MANY))
    yield Ratio("qp-1000/qp-4", many, [few])


def label(size):
    return f"{size // MIB}MiB" if size >= MIB else f"{size >> 10}KiB"


# --- Shotline --------------------------------------------------------------------------------------------


def our_rate(transport, verb, size, args, *more):
    """Returns a contender of single operations, with as many in flight as the peer has, unless `more` overrides it."""
    # UCX uses one cached buffer. Over shared memory an operation completes when it is posted, so depth 1 is equivalent.
    words = more or ("--depth", 1 if transport == "shm" else max(4, MIB // size))

    def run():
        return perf(verb, transport, "--size", size, "--seconds", args.seconds, *words)["gbps"]["average"]

    return Contender(OURS + " ".join(map(str, [transport, verb, label(size), *more])), "Gbit/s", run)


def our_latency(transport, of, args):
    """Returns a contender that measures the median of half a round trip."""

    def run():
        words = ["--operation", of, "--size", LATENCY_BYTES, "--seconds", args.seconds]
        return perf("latency", transport, *words)["time_us"]["p50"]

    return Contender(f"{OURS}{transport} {of} latency", "us", run)


def our_posting(args):
    """Returns a contender that measures the CPU time of posting and completing an operation."""

    def run():
        words = ["--size", 4 << 10, "--group", GROUP, "--seconds", args.seconds, "--post-only"]
        figures = perf("write", "soft", *words)
        return figures["post_ns"]["average"] + figures["complete_ns"]["average"]

    return Contender(f"{OURS}posting and completing, groups of {GROUP}", "ns", run)


def perf(verb, transport, *words):
    """Runs `shotline perf`, which starts its own target process."""
    command = [*(program(), "perf", verb, "--json", "--transport", transport), *map(str, words)]
    return json_of(foreground([*command, "--cpu", str(SEND_CPU), "--target-cpu", str(RECEIVE_CPU)]))


# --- the peers -------------------------------------------------------------------------------------------


def ucx_rate(transport, test, size, seconds):
    """Returns a contender that measures the rate of many transfers from one buffer.

    The rate of each run determines the number of transfers of the next; the first run is only for that.
    """
    bytes_per_s = []

    def measure():
        transfers = int(seconds * bytes_per_s[-1] / size) if bytes_per_s else 1000
        figures = ucx(transport, test, size, max(transfers, 100))
        bytes_per_s.append(figures["overall_bw"] * MIB)

    def run():
        if not bytes_per_s:
            measure()
        measure()
        return bytes_per_s[-1] * 8 / 1e9

    return Contender(f"ucx {transport} {test} {label(size)}", "Gbit/s", run)


def ucx_latency(transport, test):
    """Returns a contender that measures the median of half a round trip."""
    transfers = {"tcp": 20_000, "posix": 500_000}[transport]

    def run():
        return ucx(transport, test, LATENCY_BYTES, transfers)["50.0_percentile_lat"]

    return Contender(f"ucx {transport} {test}", "us", run)


def ucx(transport, test, size, transfers):
    """Runs ucx_perftest between two processes; returns its last line of figures, by column."""
    port = str(next(ports))
    environment = {"UCX_TLS": UCX_TLS[transport], "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"}
    words = ["env", *(f"{name}={value}" for name, value in environment.items()), "ucx_perftest", "-p", port]
    with background([*words, "-c", str(RECEIVE_CPU)]) as server:
        wait_for_port("tcp", int(port), server)
        flags = ["-t", test, "-s", size, "-n", transfers, "-w", max(20, transfers // 20), "-c", SEND_CPU, "-f", "-v"]
        lines = foreground([*words, "127.0.0.1", *map(str, flags)]).splitlines()
    table = [line.split(",") for line in lines if "," in line]
    if len(table) < 2 or len(table[0]) != len(table[-1]):
        raise Failed(f"ucx_perftest gave no figures: {lines}")
    return dict(zip(table[0], map(float, table[-1])))


def fi_latency(provider):
    """Returns a contender that runs libfabric's ping-pong: the mean of half a round trip, its only figure."""

    def run():
        port = next(ports)
        words = ["fi_pingpong", "-p", provider, "-e", "rdm", "-S", "64", "-I", "5000"]
        with background(["taskset", "-c", str(RECEIVE_CPU), *words, "-B", str(port)]) as server:
            wait_for_port("tcp", port, server)
            client = ["taskset", "-c", str(SEND_CPU), *words, "-P", str(port), "127.0.0.1"]
            lines = [line.split() for line in foreground(client).splitlines() if line.strip()]
        column = next((line.index("usec/xfer") for line in lines if "usec/xfer" in line), None)
        if column is None or len(lines) < 2:
            raise Failed(f"fi_pingpong gave no figures: {lines}")
        return float(lines[-1][column])

    return Contender(f"fi_pingpong {provider}", "us", run)


if __name__ == "__main__":
    main()
