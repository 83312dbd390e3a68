"""Compares writes, reads and messages with UCX, libfabric and Gibson et al. (docs/plan.md) (`make bench-rdma`)."""

import itertools
import sys

import contest
from common import MIB, RECEIVE_CPU, SEND_CPU, Failed, background, foreground, wait_for_port
from contest import OURS, Contender, Ratio, perf

UCX_TLS = {"tcp": "tcp", "posix": "posix,cma,self"}
SOFT_SIZES = [64 << 10, 256 << 10, MIB]
SHM_SIZES = [4 << 10, *SOFT_SIZES]
LATENCY_BYTES = 8
GROUP = 128
PAPER_GROUP_GBPS = 23.45  # Gibson et al., section V: the highest rate of its groups of writes
POST_NS = 50  # target for posting and completing an operation
FEW, MANY = 4, 1000  # queue pairs to one target process
LOSS = 0.001  # fraction of packets
ports = itertools.cycle(range(14800, 15800))  # a closed port stays unavailable for some time


def main():
    parser = contest.parser(__doc__, seconds=1.0)
    args = parser.parse_args()
    sys.exit(contest.run(wanted_ratios(args), args))


# --- ratios ----------------------------------------------------------------------------------------------


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
