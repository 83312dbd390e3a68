"""SPEAD from spead2's own sender, recorded without set-up: bytes, losses, unrelated senders, refusals."""

import contextlib
import os
import socket

import h5py
import numpy as np
import pytest
from senders.faults import Faults
from senders.listen import ExpectedBytes, Listener, check_drops, free_port, send_with_spead2, spead2_sender
from senders.spead import Piece, Relay, packet, through_faults
from senders.spead2_send import heap_data

from common import WAIT_TIMEOUT_S, Process, Progress, Recording, check_balanced, run, until, verify

# A timeout so long that only the tested event closes a shot.
LONG_TIMEOUT = ("--timeout-ms", 1000 * WAIT_TIMEOUT_S)


def record(path, *arguments, **sender):
    """Records what spead2 sends until its stop heap; returns (report, recording)."""
    with Listener("spead", "--out", path, *LONG_TIMEOUT, *arguments) as listener:
        send_with_spead2(listener.port, **sender)
        ended = listener.end().succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    verify(path)
    return ended, recording


def check_every_byte(recording, heaps, size, numbers=None):
    assert recording.numbers() == (numbers or list(range(2, heaps + 2))), "heap 1 must hold the descriptors"
    for row in range(heaps):
        found = recording.rf[0][row].reshape(-1).view(np.uint8)
        assert np.array_equal(found, heap_data(row, size)), f"row {row}"


@pytest.mark.parametrize(
    "sender",
    [
        {"size": 1000, "heaps": 50},
        {"size": 1000, "heaps": 50, "flavour": 40, "immediates": 0},
        {"size": 100_000, "immediates": 2},
        {"size": 50_001, "flavour": 40, "items": 3},
        {"size": 200_000, "packet": 9000, "immediates": 10},
        {"size": 1 << 20, "packet": 9000, "immediates": 9, "items": 2, "heaps": 8},
        {"size": 300_000, "packet": 65_000, "heaps": 10},
        {"size": 17_920, "packet": 9000, "immediates": 0, "flavour": 40},
    ],
    ids=lambda sender: "-".join(f"{name}{value}" for name, value in sender.items()),
)
def test_every_spead2_byte_is_recorded_while_learning(tmp_path, sender):
    heaps, size = sender.get("heaps", 20), sender["size"]
    ended, recording = record(tmp_path / "run.h5", "--pool", "64MiB", **sender)
    assert ended["shots_complete"] == heaps and ended["shots_partial"] == ended["packets_missing"] == 0, ended
    # The stop heap used one of the shot numbers; the descriptors' number was before the first shot.
    assert ended["drops"] == {"not_data": 1}, ended
    assert set(ended["packet_drops"]) == {"not_data"}, ended
    assert not any(ended["icrc"].values()), ended
    check_every_byte(recording, heaps, size)
    attributes = recording.links[0]
    overhead = 40 + 8 * (sender.get("immediates", 1) + sender.get("items", 1))
    whole = sender.get("packet", 1472)
    assert attributes["packet_bytes"] == min(size, whole - 40), attributes
    assert attributes["first_packet_bytes"] == min(size, whole - overhead), attributes
    assert attributes["trailer"] == "none" and attributes["packing_name"] == "uint8", attributes


@pytest.mark.parametrize("groups, size", [(2, 20_000), (4, 50_000), (3, 1000)])
def test_interleaved_heaps_are_all_complete(tmp_path, groups, size):
    ended, recording = record(tmp_path / "run.h5", "--window", 8, groups=groups, size=size, heaps=24)
    assert ended["shots_complete"] == 24 and ended["shots_partial"] == 0, ended
    check_every_byte(recording, 24, size)


def test_heaps_in_any_order_are_recorded_by_heap_counter(tmp_path):
    order = [2, 5, 3, 4, 8, 7, 6, 9, 11, 10, 12, 13]  # the counter of each heap in the order of sending
    size = 30_000
    ended, recording = record(tmp_path / "run.h5", size=size, heaps=len(order), order=order)
    assert ended["shots_complete"] == len(order) and ended["shots_partial"] == 0, ended
    assert recording.numbers() == sorted(order)
    for row, number in enumerate(sorted(order)):
        assert np.array_equal(recording.rf[0][row].reshape(-1), heap_data(order.index(number), size)), number


def test_descriptors_mid_stream_are_neither_data_nor_loss(tmp_path):
    ended, recording = record(tmp_path / "run.h5", size=20_000, heaps=20, describe=5)
    numbers = [number for number in range(2, 25) if number not in (7, 13, 19)]
    assert ended["shots_complete"] == 20 and ended["drops"] == {"not_data": 4}, ended
    check_every_byte(recording, 20, 20_000, numbers)
    assert recording.losses == [(0, "not_data", number, 1) for number in (7, 13, 19, 25)], recording.losses


def test_a_heap_with_descriptors_is_no_data(tmp_path):
    """spead2 by default puts the descriptors into the first heap of data, which therefore has another size."""
    ended, recording = record(tmp_path / "run.h5", size=20_000, heaps=10, describe="within")
    assert ended["shots_complete"] == 9 and ended["drops"] == {"not_data": 1}, ended
    assert recording.numbers() == list(range(2, 11))
    for row in range(9):
        assert np.array_equal(recording.rf[0][row].reshape(-1), heap_data(row + 1, 20_000))


def test_heaps_have_the_configured_sample_format(tmp_path):
    shape = ("--channels", 4, "--sample-format", "int16_le", "--bits", 14, "--sample-rate-hz", 1_000_000)
    ended, recording = record(tmp_path / "run.h5", *shape, size=32_000, heaps=6)
    assert ended["shots_complete"] == 6
    assert recording.rf[0].shape == (6, 4000, 4) and recording.rf[0].dtype == np.int16
    with h5py.File(tmp_path / "run.h5") as file:  # the filter removes all but the 14 significant bits
        assert file["rf"].attrs["bits"] == 14 and file["rf"].attrs["sample_rate_hz"] == 1_000_000
    for row in range(6):
        expected = heap_data(row, 32_000).view("<i2").reshape(4000, 4)
        assert np.array_equal(recording.rf[0][row], expected)


def test_a_run_ends_after_its_shots_while_the_sender_continues(tmp_path):
    path = tmp_path / "run.h5"
    with (
        Listener("spead", "--out", path, "--shots", 5, *LONG_TIMEOUT) as listener,
        spead2_sender(listener.port, heaps=100_000, rate=2e6),
    ):
        ended = listener.end().succeeded()
    recording = Recording(path)
    assert len(recording.numbers()) == 5 and ended["shots_recorded"] == 5, ended
    check_every_byte(recording, 5, 10_000)
    verify(path)


@pytest.mark.parametrize("end_flags", [("--shots", 5), ("--seconds", 3600)])
def test_a_sender_that_stops_early_cuts_the_run_off(tmp_path, end_flags):
    path = tmp_path / "run.h5"
    with Listener("spead", "--out", path, "--capacity", 10, *end_flags, *LONG_TIMEOUT) as listener:
        send_with_spead2(listener.port, heaps=3)
        ended = listener.end().cut_off("sender-stopped")
    assert ended["ended"]["after_shots"] == ended["rows"] == 3, ended
    verify(path)


# --- loss --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (4, 5))])
def test_counters_match_injected_loss_duplication_and_delay(tmp_path, seed):
    path = tmp_path / "run.h5"
    size, packets = [(30_000, 21), (100_000, 70), (900, 1), (200_000, 23), (5_000, 4), (64_000, 45)][seed]
    whole = 9000 if seed == 3 else 1472
    faults = Faults(seed, loss=0.03, duplicate=0.03, reorder=0.03, spare=packets)
    flags = ("--out", path, "--window", 8, *LONG_TIMEOUT)
    with Listener("spead", *flags) as listener, Relay(listener.port, through_faults(faults)) as relay:
        send_with_spead2(relay.port, size=size, heaps=40, packet=whole, groups=1 + seed % 2)
        ended = listener.end().succeeded()
    recording = Recording(path)
    oracle = ExpectedBytes(relay.pieces(size), size)
    oracle.check(recording, packets)
    assert ended["packets"] == len(relay.passed), ended
    control = sum(Piece.of(datagram).size != size for datagram in relay.passed)
    check_drops(ended, repeated=oracle.repeated, not_data=control)
    if 41 in oracle.shots:  # if all of the last heap is lost, its packets are not counted as missing
        assert ended["packets_missing"] == faults.lost, (ended, faults.lost)
    assert ended["shots_complete"] + ended["shots_partial"] == len(oracle.shots)
    check_balanced(ended, recording)
    verify(path)


def test_loss_while_learning_the_sender_is_reported(tmp_path):
    path = tmp_path / "run.h5"
    lost = {3, 25, 26, 50}  # one packet in each of the first heaps

    def transform(datagram):
        transform.count += not Piece.of(datagram).control
        return [] if transform.count - 1 in lost else [datagram]

    transform.count = 0
    with Listener("spead", "--out", path, *LONG_TIMEOUT) as listener, Relay(listener.port, transform) as relay:
        send_with_spead2(relay.port, size=30_000, heaps=10)
        ended = listener.end().succeeded()
    oracle = ExpectedBytes(relay.pieces(30_000), 30_000)
    assert oracle.missing(21) == 4
    recording = Recording(path)
    oracle.check(recording, 21)
    assert ended["packets_missing"] == 4 and ended["shots_partial"] == 3 and ended["shots_complete"] == 7, ended
    check_balanced(ended, recording)
    verify(path)


def test_a_sender_that_vanishes_within_a_heap_ends_the_run(tmp_path):
    """The sender vanishes after one whole heap, which is enough to learn it, or after four."""
    runs = []
    with contextlib.ExitStack() as stack:
        for heaps in (1, 4):
            count, path = 21 * heaps + 10, tmp_path / f"run{heaps}.h5"
            packets = [packet(number, 30_000, *piece) for number in range(1, 7) for piece in pieces(30_000)][:count]
            listener = stack.enter_context(Listener("spead", "--out", path, "--idle-s", 1, *LONG_TIMEOUT))
            send_all(listener.port, packets)
            runs.append((listener, path, packets))
        for listener, path, packets in runs:
            ended = listener.end().succeeded()
            recording = Recording(path)
            received = [(piece.heap, piece.offset, piece.data) for piece in map(Piece.of, packets)]
            ExpectedBytes(received, 30_000).check(recording, 21)
            assert ended["shots_partial"] == 1 and ended["packets_missing"] == 11, ended
            check_balanced(ended, recording)
            verify(path)


def pieces(size, max_bytes=1432):
    """Returns (offset, bytes) of the packets of a heap."""
    data = heap_data(0, size).tobytes()
    return [(at, data[at : at + max_bytes]) for at in range(0, size, max_bytes)]


# --- unrelated senders -------------------------------------------------------------------------------


def test_unrelated_packets_change_only_the_counters(tmp_path):
    """Sent before the sender is learned and mid-stream, from another address and from the sender's own."""
    path, size, heaps = tmp_path / "run.h5", 30_000, 40
    data = bytes(1432)
    unrelated_packets = [
        packet(3, size, 0, data[:1416]),  # a heap like the sender's, from another address
        packet(3, 7 * 1432, 0, data),  # a heap of another size
        packet(1 << 39, size, 1416, data),
    ]
    # A whole heap with a future counter.
    whole = [packet(30, size, 0, data[:1416])]
    whole += [packet(30, size, at, data[: min(1432, size - at)]) for at in range(1416, size, 1432)]
    wrong = [
        b"no SPEAD at all",
        b"",
        packet(3, size, 0, data[:1416])[:30],
        packet(3, size, 0, data[:1416], flavour=40),
        packet(3, size, 17, data),
    ]
    sent = {"unrelated": 0, "wrong": 0}
    unrelated = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send_unrelated(port):
        for datagram in unrelated_packets:
            unrelated.sendto(datagram, ("127.0.0.1", port))
        for datagram in wrong:
            unrelated.sendto(datagram, ("127.0.0.1", port))
        sent["unrelated"] += len(unrelated_packets)
        sent["wrong"] += len(wrong)

    def transform(datagram):
        transform.count += 1
        relay.back.send(datagram)  # at once, so that the stream's own sender is never silent before an unrelated packet
        if transform.count % 50 == 2:
            send_unrelated(listener.port)
        if transform.count % 50 == 30:  # from the sender's address, at an offset of no packet of its heaps
            sent["own"] = sent.get("own", 0) + 1
            relay.back.send(packet(3, size, 17, data))
        if transform.count == 300:
            sent["unrelated"] += len(whole)
            for other in whole:
                unrelated.sendto(other, ("127.0.0.1", listener.port))
        relay.passed.append(datagram)
        return []

    transform.count = 0
    with (
        unrelated,
        Listener("spead", "--out", path, *LONG_TIMEOUT) as listener,
        Relay(listener.port, transform) as relay,
    ):
        send_unrelated(listener.port)
        send_with_spead2(relay.port, size=size, heaps=heaps)
        ended = listener.end().succeeded()
    recording = Recording(path)
    assert ended["shots_complete"] == heaps and ended["shots_partial"] == 0, ended
    check_every_byte(recording, heaps, size)
    drops = dict(ended["packet_drops"])
    own = len(relay.passed) - heaps * 21
    assert drops.pop("not_data") == own, (drops, own)
    assert sum(drops.values()) == sum(sent.values()), (drops, sent)
    assert drops["unknown_stream"] >= sent["unrelated"] and set(drops) == {"unknown_stream", "malformed"}, drops
    check_balanced(ended, recording)
    verify(path)


# --- refusals ----------------------------------------------------------------------------------------


def refused(*arguments, **options):
    """Runs a recorder that must refuse its arguments; returns its error line."""
    return run("record", "--discard", "--json", *arguments, **options).refused()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--framing", "counted"], ["counted", "set-up", "--probe"]),
        (["--framing", "ud"], ["--queue-pair", "--q-key"]),
        (["--framing", "ud", "--queue-pair", 7], ["--queue-pair", "--q-key"]),
        (["--framing", "ud", "--queue-pair", 0, "--q-key", 7], ["from 1 to 0xffffff", "found 0x0"]),
        (["--framing", "ud", "--queue-pair", 0xFFFFFF, "--q-key", 7, "--links", 2], ["from 1 to 0xffffff", "link 1"]),
        (["--framing", "spead", "--rate-hz", 5], ["--rate-hz", "--probe"]),
        (["--framing", "spead", "--gbps", 5], ["--gbps", "--probe"]),
        (["--framing", "ud", "--external-trigger"], ["--external-trigger", "--probe"]),
        (["--framing", "spead", "--bind", "127.0.0.1:9"], ["--bind", "--listen"]),
        (["--framing", "spead", "--links", 2], ["one link", "each address"]),
        (["--framing", "hsb", "--pages", 0], ["--pages from 1", "found 0"]),
        (["--framing", "udp", "--channels", 1, "--samples", 3], ["pairs", "odd"]),
        (["--framing", "udp", "--links", 0], ["links", "found 0"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if value and str(value[0]).startswith("--") else None,
)
def test_unworkable_settings_are_refused_at_once(arguments, words):
    line = refused("--listen", f"127.0.0.1:{free_port()}", *arguments)
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    "flag, value, words",
    [
        ("--framing", "vdif", "expected one of the framings ud, counted, udp, digitizer, vita49, spead, hsb"),
        ("--sample-format", "float", "expected a sample format of int16_le, packed12_msb_first, uint8, int16_be"),
        ("--compress", "gzip", "expected none, lz4 or zstd"),
    ],
)
def test_unknown_names_are_refused_as_arguments(flag, value, words):
    end = run("record", "--discard", "--listen", f"127.0.0.1:{free_port()}", flag, value)
    assert end.code == 2 and all(word in end.stderr for word in (value, flag, words)), end.stderr


def test_a_sender_that_stays_silent_is_named_and_leaves_no_file(tmp_path):
    path = tmp_path / "run.h5"
    for framing in ("spead", "hsb"):
        at = f"127.0.0.1:{free_port()}"
        line = run("record", "--listen", at, "--framing", framing, "--quiet", "--seconds", 0.1, "--out", path).refused()
        assert framing in line and "the sender is on" in line, line
        assert not path.exists()


@pytest.mark.parametrize(
    "arguments, sender, words",
    [
        (["--samples", 9999], {}, ["10000 bytes", "9999 samples", "--samples"]),
        (["--channels", 3], {}, ["10000 bytes", "3 channels", "--channels"]),
        (["--sample-format", "int16_le"], {"size": 9999}, ["9999 bytes", "int16_le", "--sample-format"]),
        ([], {"immediates": 20}, ["25 items", "at most 15 are supported"]),
        ([], {"size": 13 << 20, "heaps": 1, "packet": 800}, ["packets of 760", "the limit is 16384"]),
        ([], {"size": 17 << 20, "heaps": 1, "packet": 9000}, ["holds 1 shots of 17825792 bytes", "--pool"]),
    ],
    ids=["samples", "channels", "odd-bytes", "items", "packets", "bytes"],
)
def test_heaps_that_do_not_fit_the_settings_are_refused(arguments, sender, words):
    with Listener("spead", "--discard", *arguments) as listener:
        send_with_spead2(listener.port, **sender)
        line = listener.end_when_drained().refused()
    assert all(word in line for word in words), line


def send_all(port, datagrams):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", port))


@pytest.mark.parametrize(
    "datagrams, words",
    [
        ([packet(1, 3000, 0, bytes(900)), packet(1, 3000, 900, bytes(1000)), packet(1, 3000, 1900, bytes(1100))],
         ["irregular lengths"]),
        ([packet(1, 3000, 0, bytes(1500)), packet(1, 3000, 2000, bytes(1000))], ["one complete heap", "2 packets"]),
        ([b"hello", b"world"], ["2 packets arrived, and none of them is spead", "--framing"]),
    ],
    ids=["irregular", "never-whole", "no-spead"],
)  # fmt: skip
def test_unreadable_senders_are_reported_in_one_line(datagrams, words):
    with Listener("spead", "--discard") as listener:
        send_all(listener.port, datagrams)
        line = listener.end_when_drained().refused()
    assert all(word in line for word in words), line


@pytest.mark.parametrize("framing", ["spead", "udp"])
def test_a_recorder_reports_when_it_listens(tmp_path, framing):
    """On standard error, in `--progress`, and to a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_TIMEOUT_S)
        with Listener(
            framing, "--discard", "--progress", env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        ) as listener:
            assert manager.recv(100) == b"READY=1"
            Progress(listener).wait_for("listening", True)
            listener.interrupt()
    port = free_port()
    with Process("record", "--listen", f"127.0.0.1:{port}", "--framing", framing, "--discard") as recorder:
        assert recorder.popen.stderr.readline() == f"listening on 127.0.0.1:{port}\n"
        recorder.interrupt()


@pytest.mark.parametrize("framing", ["spead", "udp"])
def test_a_run_without_packets_ends_by_its_idle_time(tmp_path, framing):
    """With and without learning the idle time starts when the recorder listens, and the error names the address."""
    with Listener(framing, "--out", tmp_path / "run.h5", "--idle-s", 0.2, *LONG_TIMEOUT) as listener:
        ended = listener.end()
    assert ended.code == 1, ended
    assert f"127.0.0.1:{listener.port}" in ended.stderr and "the sender is on" in ended.stderr, ended.stderr


def test_a_restarted_sender_yields_no_duplicate_numbers(tmp_path):
    path, size, shots = tmp_path / "run.h5", 3000, 20
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sender, Listener("spead", "--out", path, "--shots", shots, "--timeout-ms", 20) as listener:

        def send(heap):
            for at, data in pieces(size):
                sender.sendto(packet(heap, size, at, data), ("127.0.0.1", listener.port))

        for heap in range(500, 510):
            send(heap)
        again = iter(range(1, 1 << 20))

        def has_ended():
            send(next(again))
            return listener.popen.poll() is not None

        until(has_ended, what="the requested number of shots, before and after the restart of the sender")
        ended = listener.end().succeeded()
    recording = Recording(path)
    verify(path)
    assert ended["sender_restarts"] == 1 and any("restarted its" in warning for warning in ended["warnings"]), ended
    assert ended["drops"]["sender_restart"] == ended["packet_drops"]["sender_restart"] / len(pieces(size)) > 0, ended
    # The run may end within a heap; that heap is not recorded, and its other packets are missing.
    assert recording.rows == [shots] and ended["shots_complete"] == shots, ended
    assert ended["packets_missing"] < len(pieces(size)), ended
    check_balanced(ended, recording)


def test_unrelated_packets_do_not_keep_a_run_alive(tmp_path):
    """Packets that belong to no shot do not show that the sender is still alive."""

    def heap(number):
        items = [
            0x53040206 << 32 | 4,
            *(1 << 63 | id << 48 | value for id, value in ((1, number), (2, 1000), (3, 0), (4, 1000))),
        ]
        return b"".join(item.to_bytes(8, "big") for item in items) + bytes(1000)

    sender, unrelated = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    arguments = ("--out", tmp_path / "run.h5", "--idle-s", 1)
    with sender, unrelated, Listener("spead", *arguments) as recorder:
        to = ("127.0.0.1", recorder.port)
        for number in range(1, 21):
            sender.sendto(heap(number), to)
            unrelated.sendto(b"unrelated", to)

        def has_ended():
            unrelated.sendto(b"unrelated", to)
            return recorder.popen.poll() is not None

        until(has_ended, what="the end of a run whose sender is silent, while unrelated packets arrive")
        ended = recorder.end().succeeded()
    assert ended["shots_complete"] == 20, ended
    assert sum(ended["packet_drops"].values()) > 10, f"unrelated packets were not counted: {ended}"


def test_forged_senders_do_not_prevent_learning_the_real_one(tmp_path):
    """A hundred forged senders send only the beginning of a heap each."""
    size, shots = 3000, 3
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener("spead", "--out", tmp_path / "run.h5", "--shots", shots, *LONG_TIMEOUT))
        to = ("127.0.0.1", listener.port)
        for number in range(100):
            forged = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            forged.bind((f"127.66.0.{number + 1}", 0))
            forged.sendto(packet(1, size, *pieces(size)[0]), to)
        sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        for heap in range(500, 500 + shots):
            for at, data in pieces(size):
                sender.sendto(packet(heap, size, at, data), to)
        ended = listener.end().succeeded()
    assert ended["shots_complete"] == shots, ended


def test_unrelated_senders_do_not_end_the_wait_for_a_sender(tmp_path):
    """Neither does a refused sender, nor do more packets than the recorder keeps while it has learned no sender."""
    size, shots = 3000, 3
    path = tmp_path / "run.h5"
    with (
        Listener("spead", "--out", path, "--shots", shots, *LONG_TIMEOUT, json=False) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unrelated,
    ):
        messages = listener.popen.stderr
        assert messages.readline() == f"listening on 127.0.0.1:{listener.port}\n"
        irregular = [(0, 900), (900, 1000), (1900, 1100)]
        send_all(listener.port, [packet(1, size, at, bytes(length)) for at, length in irregular])
        line = messages.readline()
        assert "irregular lengths; waiting for other senders" in line, line
        unrelated.connect(("127.0.0.1", listener.port))
        for number in range(110_000):
            if number % 100 == 0:
                listener.wait_for_space()
            unrelated.send(b"noise")
        listener.wait_for_space()
        heaps = [packet(heap, size, at, data) for heap in range(shots) for at, data in pieces(size)]
        send_all(listener.port, heaps)
        ended = listener.end()
    assert ended.code == 0, ended.stderr
    assert Recording(path).numbers() == list(range(shots))
