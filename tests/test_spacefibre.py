"""RDMA over SpaceFibre links: `shotline target` and `shotline perf` over datagrams and shared memory.

What is on the link is decoded by `spacefibre_words.py`, which is written from the documentation.
"""

import contextlib
import functools
import json
import signal

import pytest
from link_relay import LinkRelay
from memory_target import Target, perf, region
from spacefibre_words import Malformed, Stream, datagram

from common import Process, run, until

# No run may need longer than this to notice that its far end does not answer, in seconds.
BOUND_S = 60
VERBS = {"write": 4096, "read": 12345, "send": 4096, "atomic": 8}
SHORT = ("--group", 4, "--seconds", 0.02, "--json")


def link_target(tmp_path, transport, *arguments):
    """Returns a target with a writable file, memory for atomic operations, and messages."""
    file = tmp_path / "memory"
    regions = ("--region", f"data=1M,file={file},rights=rw", "--region", "count=64,rights=atomic", "--messages")
    listen = tmp_path / "target.sock" if "shm" in transport else "127.0.0.1:0"
    target = Target(*regions, "--transport", transport, *arguments, listen=listen)
    target.file, target.transport = file, transport
    return target


def measure(target, verb, *arguments, size=None, transport=None, **options):
    flags = ("--transport", transport or target.transport, "--size", size or VERBS[verb])
    return perf(target, verb, *flags, *arguments, **options)


def endless(target, *arguments):
    """Returns an initiator that writes until it is stopped."""
    to = ("--to", target.address, "--token", target.token, "--transport", target.transport)
    return Process("perf", "write", "--size", "16K", "--seconds", 1000, "--json", *to, *arguments)


def packets_in(report):
    return report["queue_pairs"]["packets_in"]


def wait_for_packets(target, minimum=10):
    """Waits until the target reports this many more packets than in its first report from now on."""
    first = None

    def arrived():
        nonlocal first
        for report in target.reports():
            first = packets_in(report) if first is None else first
            if packets_in(report) >= first + minimum:
                return True
        return False

    until(arrived, what=f"{minimum} packets at the target")


@functools.cache
def pattern(count):
    return bytes(index % 251 for index in range(count))


def check_file(target, count):
    check_pattern(target.file, count)


def check_pattern(file, count):
    """Checks that a file has the pattern that `perf` writes, and nothing after it."""
    found = file.read_bytes()
    assert found[:count] == pattern(count) and not any(found[count:])


def check_row(row, verb):
    assert row["transport"] == "spacefibre" and row["verb"] == verb
    assert row["operations"] > 0 and row["bytes"] == row["operations"] * row["size"]
    if verb == "send":
        assert row["received_bytes"] == row["bytes"]


# --- operations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_every_operation_completes_and_the_target_balances(tmp_path, carrier, lanes):
    with link_target(tmp_path, f"spacefibre:{carrier},lanes={lanes}") as target:
        rows = {verb: measure(target, verb, *SHORT).succeeded() for verb in VERBS}
        report = target.end_report()
    for verb, row in rows.items():
        check_row(row, verb)
    check_file(target, 4 * VERBS["write"])
    assert report["provider"] == "spacefibre" and report["control"]["welcomed"] == len(VERBS)
    assert report["endpoint"]["drops"] == {} and report["queue_pairs"]["drops"] == {} and report["initiators"] == []
    data, count = region(report, "data"), region(report, "count")
    assert (data["writes"], data["bytes_in"]) == (rows["write"]["operations"], rows["write"]["bytes"])
    assert (data["reads"], data["bytes_out"]) == (rows["read"]["operations"], rows["read"]["bytes"])
    assert count["atomics"] == rows["atomic"]["operations"]


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_bit_errors_are_repaired_by_the_link(tmp_path, carrier):
    flags = ("--group", 8, "--seconds", 0.2, "--json")
    with link_target(tmp_path, f"spacefibre:{carrier},ber=1e-6") as target:
        written = measure(target, "write", *flags, size="64K").succeeded()
        check_file(target, 8 << 16)
        read = measure(target, "read", *flags, size="64K").succeeded()
        sent = measure(target, "send", *flags, size="64K").succeeded()
        report = target.end_report()
    for verb, row in (("write", written), ("read", read), ("send", sent)):
        check_row(row, verb)
    # The link finds every error, so no packet arrives damaged.
    assert report["endpoint"]["drops"] == {} and report["queue_pairs"]["drops"] == {}


def test_a_link_over_ipv6_has_several_queue_pairs():
    ipv6 = {"bind": "[::1]:0", "listen": "[::1]:0"}
    with Target("--region", "data=1M,rights=rw", "--transport", "spacefibre:lanes=2", **ipv6) as target:
        target.transport = "spacefibre:lanes=2"
        row = measure(target, "write", *SHORT, "--queue-pairs", 4).succeeded()
        report = target.end_report()
    check_row(row, "write")
    assert row["queue_pairs"] == 4 and region(report, "data")["bytes_in"] == row["bytes"]


def test_a_target_of_its_own_works_over_both_carriers():
    for carrier in ("udp", "shm"):
        ended = perf(None, "latency", "--transport", f"spacefibre:{carrier}", "--seconds", 0.02, "--json")
        assert ended.code == 0 and len(ended.stdout.splitlines()) == 4, ended.stderr


# --- several initiators, and ends that die ---------------------------------------------------------------


def parts(tmp_path, count):
    """Returns the files of as many writable regions, and the flags for them."""
    files = {f"part{index}": tmp_path / f"part{index}" for index in range(count)}
    flags = (f"{name}=1M,file={file},rights=rw" for name, file in files.items())
    return files, [word for flag in flags for word in ("--region", flag)]


def wait_for_links(target, count, words=0):
    """Waits until as many links are up and each has received this many more words since the first such report."""
    first = None

    def arrived():
        nonlocal first
        for report in target.reports():
            links = report["spacefibre"]["links"]
            if len(links) != count or not all(link["is_up"] for link in links):
                continue
            received = {link["far_end"]: link["counters"]["words_in"] for link in links}
            if first is None or first.keys() != received.keys():
                first = received
            if all(received[far_end] >= first[far_end] + words for far_end in received):
                return True
        return False

    until(arrived, what=f"{count} links with {words} more words each")


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"])
def test_several_initiators_have_a_link_each(tmp_path, bind):
    files, regions = parts(tmp_path, 4)
    transport = "spacefibre:lanes=4,ber=1e-6"
    listen = "127.0.0.1:0" if bind == "0.0.0.0:0" else bind
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(
            Target(*regions, "--transport", transport, "--every", 0.1, bind=bind, listen=listen)
        )
        target.transport = transport
        endless_on = lambda name: stack.enter_context(endless(target, "--group", 8, "--region", name))
        initiators = {name: endless_on(name) for name in files}
        wait_for_links(target, 4, words=100_000)
        initiators.pop("part2").signal(signal.SIGKILL)
        wait_for_links(target, 3, words=100_000)
        # The next one begins while the others go on, and ends before them.
        row = measure(target, "read", *SHORT, "--region", "part0").succeeded()
        check_row(row, "read")
        wait_for_links(target, 3, words=10_000)
        rows = {name: initiator.interrupt().succeeded() for name, initiator in initiators.items()}
        report = target.end_report()
    for name, file in files.items():
        check_pattern(file, 8 * (16 << 10))
        if name in rows:
            check_row(rows[name], "write")
            assert region(report, name)["writes"] >= rows[name]["operations"]
    ended = report["spacefibre"]["ended"]
    assert ended["count"] == report["control"]["welcomed"] == 5
    assert ended["counters"]["retries_in"] > 0, "bits were inverted"
    assert report["endpoint"]["drops"] == {} and report["queue_pairs"]["drops"] == {} and report["initiators"] == []


def test_an_initiator_beyond_the_maximum_is_refused(tmp_path):
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(link_target(tmp_path, "spacefibre:lanes=1", "--every", 0.1))
        held = []
        for count in range(1, 17):
            held.append(stack.enter_context(endless(target)))
            wait_for_links(target, count)
            held[-1].signal(signal.SIGSTOP)  # it keeps its link, and leaves the processor to the others
        message = measure(target, "write", *SHORT).refused()
        assert "expected at most 16 far ends, each with a SpaceFibre link" in message, message
        assert "disconnect one of them first, or use another endpoint" in message, message
        seen = run("link", target.address, "--token", target.token, "--json", "--count", 1, "--interval", 0.1)
        links = json.loads(seen.stdout)["links"]
        assert len({link["far_end"] for link in links}) == len({link["number"] for link in links}) == 16
        held[5].signal(signal.SIGKILL)
        wait_for_links(target, 15)
        check_row(measure(target, "write", *SHORT).succeeded(), "write")
        for initiator in held:
            initiator.signal(signal.SIGKILL)
        wait_for_links(target, 0)
        report = target.end_report()
    assert report["spacefibre"]["ended"]["count"] == 17 and report["memory"]["used_bytes"] == 0


def test_two_initiators_have_a_link_each_over_shared_memory(tmp_path):
    with link_target(tmp_path, "spacefibre:shm,lanes=4", "--every", 0.1) as target:
        with endless(target) as first:
            wait_for_packets(target)
            check_row(measure(target, "read", *SHORT).succeeded(), "read")
            wait_for_packets(target)
            assert first.interrupt().succeeded()["operations"] > 0
        assert target.end_report()["control"]["welcomed"] == 2


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_a_killed_initiator_makes_room_for_the_next(tmp_path, carrier):
    with link_target(tmp_path, f"spacefibre:{carrier},lanes=4", "--every", 0.1) as target:
        with endless(target, "--group", 8) as victim:
            wait_for_packets(target)
            victim.signal(signal.SIGKILL)
            ended = lambda: any(not report["initiators"] for report in target.reports())
            until(ended, what="the end of its queue pairs")
        for verb in ("write", "read"):
            check_row(measure(target, verb, *SHORT).succeeded(), verb)
        report = target.end_report()
    assert report["control"]["welcomed"] == 3 and report["memory"]["used_bytes"] == 0


@pytest.mark.parametrize("carrier", ["udp", "shm"])
@pytest.mark.parametrize("event", [(), ("--event",)], ids=["polling", "sleeping"])
def test_an_initiator_reports_that_its_target_was_killed(tmp_path, carrier, event):
    with (
        link_target(tmp_path, f"spacefibre:{carrier},lanes=4", "--every", 0.1) as target,
        endless(target, *event) as initiator,
    ):
        wait_for_packets(target)
        target.signal(signal.SIGKILL)
        message = initiator.end(BOUND_S).refused()
    assert any(words in message for words in ("target broke", "closed the connection", "not respond")), message


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_other_lanes_end_with_an_error_and_harm_nothing_else(tmp_path, carrier):
    with link_target(tmp_path, f"spacefibre:{carrier},lanes=4") as target:
        message = measure(target, "write", *SHORT, transport=f"spacefibre:{carrier},lanes=8", limit=BOUND_S).refused()
        assert "lanes=8,vcs=1, found spacefibre:" in message and "use the same carrier, lanes" in message, message
        check_row(measure(target, "write", *SHORT).succeeded(), "write")
        target.end_report()


# --- options ---------------------------------------------------------------------------------------------

INVALID = ["", "lanes", "lanes=0", "lanes=17", "lanes=-1", "vcs=0", "vcs=33", "vcs=x", "ber=1", "ber=-1e-9", "ber=nan"]
INVALID += ["tcp", "lanes=4,", "lanes=4,shm", "udp,shm", "other=1"]


@pytest.mark.parametrize("options", INVALID)
def test_an_invalid_option_is_refused_with_the_form(options):
    for arguments in (("target", "--region", "a=4K"), ("perf", "read")):
        end = run(*arguments, "--transport", f"spacefibre:{options}")
        assert end.code == 2 and not end.stdout
        assert "expected spacefibre[:shm][,lanes=N][,vcs=N][,vc=SHARE[/PRIORITY[/SLOTS]]...][,ber=P]" in end.stderr
        assert f"found spacefibre:{options}" in end.stderr, end.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["perf", "write", "--transport", "spacefibre", "--loss", 0.1], ["does not use --loss"]),
        (["perf", "write", "--transport", "spacefibre:shm", "--loss", 0.1], ["does not use --loss"]),
        (["target", "--region", "a=4K", "--transport", "spacefibre:shm"], ["--listen PATH"]),
        (["target", "--region", "a=4K", "--transport", "spacefibre", "--bind", "192.0.2.1"], ["192.0.2.1"]),
        (["perf", "send", "--size", "4K", "--transport", "spacefibre", "--qp", "ud"], ["no queue pairs of this type"]),
        (["perf", "send", "--transport", "spacefibre", "--qp", "uc"], ["no queue pairs of this type"]),
    ],
)
def test_settings_that_links_do_not_have_are_refused(flags, words):
    message = run(*flags).refused()
    assert all(word in message for word in words), message


# --- what is on the link ---------------------------------------------------------------------------------


class Capture:
    """What arrives in both directions, of which the first datagrams are kept. `change` is as for a relay."""

    def __init__(self, change=lambda direction, data: [data], limit=400):
        self.change, self.limit = change, limit
        self.datagrams = {"out": [], "in": []}

    def __call__(self, direction, data):
        passed = self.change(direction, data)
        # One limit for both directions: replies that are kept are to commands that are kept.
        kept = passed[: self.limit]
        self.datagrams[direction] += kept
        self.limit -= len(kept)
        return passed

    def streams(self, lanes, errors=False):
        """Returns what the target and the initiator receive."""
        streams = Stream(lanes, errors), Stream(lanes, errors)
        for stream, datagrams in zip(streams, self.datagrams.values(), strict=True):
            for data in datagrams:
                stream.take(data)
        return streams


def relayed(tmp_path, transport, verb, capture, group, size):
    """Measures through a relay; returns the row and the target's last report."""
    with link_target(tmp_path, transport) as target:
        if verb == "read":
            with target.file.open("r+b") as file:
                file.write(pattern(1 << 20))
        with LinkRelay(target, capture) as relay:
            relay.transport = transport
            row = measure(relay, verb, "--group", group, "--seconds", 0.02, "--json", size=size).succeeded()
        report = target.end_report()
    check_row(row, verb)
    if verb == "write":
        check_file(target, group * size)
    assert report["endpoint"]["drops"] == {}
    return row


@pytest.mark.parametrize(("verb", "lanes"), [("write", 4), ("read", 3), ("send", 1), ("atomic", 16)])
def test_words_on_the_link_are_those_of_the_documentation(tmp_path, verb, lanes):
    capture = Capture()
    row = relayed(tmp_path, f"spacefibre:lanes={lanes},vcs=2", verb, capture, 4, VERBS[verb])
    out, back = capture.streams(lanes)
    for stream in (out, back):
        assert stream.initialised and stream.scrambled == {True}
        assert {item.vc for item in stream.controls if item.name == "FCT"} == {0, 1}, "each channel gets credit"
        names = {item.name for item in stream.controls}
        assert "ACK" in names and names <= {"ACK", "FCT", "SIF", "FULL"}, names
    assert all(packet.fields["status"] == 0 for packet in back.packets)
    assert {packet.name for packet in out.packets} == {"fetch and add" if verb == "atomic" else verb}
    transactions = {packet.fields["transaction"] for packet in out.packets}
    assert row["retransmitted"] or len(transactions) == len(out.packets)
    check_data(verb, out.packets, back.packets)


SEGMENT = 4096  # of WRITEs and of replies to READs
TRANSACTIONS = 1 << 24


def check_data(verb, commands, replies):
    """Checks the bytes of RDMA packets against the pattern, which begins at the address of the first command."""
    if verb == "atomic":
        values = [int.from_bytes(packet.data) for packet in replies]
        assert values and values == sorted(values)
    if verb in ("write", "read"):
        addresses = {}  # by the transaction of each segment
        for packet in commands:
            segments = -(-packet.fields["total"] // SEGMENT) if verb == "read" else 1
            for index in range(segments):
                transaction = (packet.fields["transaction"] + index) % TRANSACTIONS
                addresses[transaction] = packet.fields["address"] + index * SEGMENT
        base = commands[0].fields["address"]
        segments = commands if verb == "write" else replies
        assert any(packet.data for packet in segments)
        for packet in segments:
            at = addresses[packet.fields["transaction"]] - base
            assert packet.data == pattern(1 << 20)[at : at + len(packet.data)]


def test_every_changed_bit_of_a_datagram_is_found(tmp_path):
    capture = Capture()
    relayed(tmp_path, "spacefibre:lanes=3", "atomic", capture, 4, 8)
    kept = [data for datagrams in capture.datagrams.values() for data in datagrams]
    kinds = {tuple(type(item).__name__ for item in datagram(data).items): data for data in kept if len(data) < 300}
    assert any("DataFrame" in kind for kind in kinds) and any("Control" in kind for kind in kinds), kinds.keys()
    for data in sorted(kinds.values(), key=len)[:6]:
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(Malformed):
                datagram(bytes(changed))


def lossy():
    """Returns a change that loses, repeats and reorders datagrams in both directions."""
    counts, held = {"out": 0, "in": 0}, {}

    def change(direction, data):
        counts[direction] += 1
        turn = counts[direction] % 7
        if turn == 4:
            held[direction] = data
        if turn in (0, 4):
            return []
        if turn == 2:
            return [data, data]
        return [data, *filter(None, [held.pop(direction, None)])]

    return change


FAULTS = {"lossy": ("", lossy), "bit errors": (",ber=1e-5", lambda: lambda direction, data: [data])}


@pytest.mark.parametrize("verb", ["write", "read"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_retry_brings_what_is_damaged_or_lost(tmp_path, fault, verb):
    options, change = FAULTS[fault]
    capture = Capture(change())
    # With so many bytes in a group, every run has errors.
    relayed(tmp_path, f"spacefibre:lanes=4{options}", verb, capture, 16, 16 << 10)
    out, back = capture.streams(4, errors=True)
    sender, receiver = (out, back) if verb == "write" else (back, out)
    assert sender.skipped > 0
    assert "RETRY" in {item.name for item in sender.controls}
    assert "NACK" in {item.name for item in receiver.controls}
    check_data(verb, out.packets, back.packets)
