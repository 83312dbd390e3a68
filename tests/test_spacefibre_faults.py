"""SpaceFibre links between processes that are killed, fall silent or lie: memory stays right, and the next one is served."""

import signal

import pytest
from link_relay import LinkRelay
from spacefibre_words import (
    COMMAND,
    DATA_FRAME,
    ENDS,
    HEADER,
    RECORD,
    broadcast_frame,
    crc8,
    crc16,
    data_frame,
    header,
    key_stream_of_rows,
    record_header,
    xor,
)
from test_spacefibre import (
    BOUND_S,
    SHORT,
    check_file,
    check_row,
    endless,
    link_target,
    measure,
    pattern,
    wait_for_packets,
)

from common import until

SIZE = 16 << 10


def check_written_in_part(target, count):
    """Checks that each byte of the target's file is of the pattern, or was never written."""
    found = target.file.read_bytes()
    assert all(byte in (0, wanted) for byte, wanted in zip(found, pattern(count), strict=False))
    assert not any(found[count:])


# --- processes that are killed ---------------------------------------------------------------------------


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_an_initiator_killed_in_an_operation_leaves_memory_right(tmp_path, carrier):
    with link_target(tmp_path, f"spacefibre:{carrier},lanes=4", "--every", 0.1) as target:
        for _ in range(3):
            with endless(target, "--group", 4) as victim:
                wait_for_packets(target)
                victim.signal(signal.SIGKILL)
                ended = lambda: any(not report["initiators"] for report in target.reports())
                until(ended, what="the end of its queue pairs")
            check_written_in_part(target, 4 * SIZE)
        check_row(measure(target, "write", *SHORT).succeeded(), "write")
        report = target.end_report()
    assert report["memory"]["used_bytes"] == 0 and report["initiators"] == []


def test_another_initiator_does_not_notice_that_one_was_killed(tmp_path):
    with link_target(tmp_path, "spacefibre:shm,lanes=4", "--every", 0.1) as target:
        with endless(target, "--group", 4) as other:
            wait_for_packets(target)
            with endless(target) as victim:
                until(lambda: any(len(report["initiators"]) == 2 for report in target.reports()), what="both")
                victim.signal(signal.SIGKILL)
                until(lambda: any(len(report["initiators"]) == 1 for report in target.reports()), what="its end")
            wait_for_packets(target)
            row = other.interrupt().succeeded()
        assert row["operations"] > 0 and row["retransmitted"] == 0
        check_file(target, 4 * SIZE)
        target.end_report()


@pytest.mark.parametrize("carrier", ["udp", "shm"])
def test_a_target_started_again_after_a_kill_has_right_memory(tmp_path, carrier):
    transport = f"spacefibre:{carrier},lanes=4"
    with link_target(tmp_path, transport, "--every", 0.1) as target, endless(target, "--group", 4) as initiator:
        wait_for_packets(target)
        target.signal(signal.SIGKILL)
        initiator.end(BOUND_S).refused()
        check_written_in_part(target, 4 * SIZE)
    (tmp_path / "target.sock").unlink(missing_ok=True)
    with link_target(tmp_path, transport) as target:
        check_written_in_part(target, 4 * SIZE)
        row = measure(target, "write", "--group", 4, "--seconds", 0.02, "--json", size=SIZE).succeeded()
        check_row(row, "write")
        check_file(target, 4 * SIZE)
        target.end_report()


# --- ends that fall silent or lie ------------------------------------------------------------------------


def run_through_relay(target, change, seconds=0.02):
    """Returns the end of a run whose link has one lane, and passes `change`."""
    with LinkRelay(target, change) as relay:
        relay.transport = target.transport
        return measure(relay, "write", "--group", 4, "--seconds", seconds, "--json", limit=BOUND_S)


@pytest.mark.parametrize("passed", [0, 3, 40])
def test_a_target_that_falls_silent_ends_the_operations(tmp_path, passed):
    """It never gives credit, or no more after some datagrams."""
    left = passed

    def change(direction, data):
        nonlocal left
        left -= direction == "in"
        return [data] if direction == "out" or left >= 0 else []

    with link_target(tmp_path, "spacefibre:lanes=1") as target:
        # So long that it cannot end before, however slow the machine is.
        message = run_through_relay(target, change, seconds=3600).refused()
        assert "retr" in message or "not respond" in message, message
        check_written_in_part(target, 4 * 4096)
        check_row(measure(target, "write", *SHORT).succeeded(), "write")
        target.end_report()


def field(at, count, value):
    """Returns a change of a big-endian field of a command; `value` gets the old one."""

    def change(packet):
        packet[at : at + count] = value(int.from_bytes(packet[at : at + count])).to_bytes(count)

    return change


def forged(data, change):
    """Returns a datagram of one lane in which the first command is changed, with correct CRCs; `None` without one."""
    found, at = header(data), HEADER
    while at < len(data):
        kind, end, characters, stop = record_header(data, at, 1)
        words = data[at + RECORD : stop]
        if kind == DATA_FRAME and characters >= COMMAND:
            packet = bytearray(data_frame(words, end, characters, found).data)
            if packet[1] == 0xF0 and packet[2] >> 6 == 1 and crc8(packet[:COMMAND]) == 0:
                change(packet)
                packet[COMMAND - 1] = crc8(packet[: COMMAND - 1])
                scrambled = xor(packet, key_stream_of_rows(1)[: len(packet)])
                words = words[:4] + scrambled + words[4 + len(packet) : -2]
                return data[: at + RECORD] + words + crc16(words).to_bytes(2, "little") + data[stop:]
        at = stop
    return None


def cut(data):
    """Returns a datagram of one lane in which the first packet that ends is cut by an EEP; `None` without one."""
    at = HEADER
    while at < len(data):
        kind, end, characters, stop = record_header(data, at, 1)
        if kind == DATA_FRAME and end == 1:
            record = bytes([kind, data[at + 1] ^ 0xC0, data[at + 2]])
            words = bytearray(data[at + RECORD : stop - 2])
            words[4 + characters] = ENDS[2]
            crc = crc16(words).to_bytes(2, "little")
            return data[:at] + record + bytes([crc8(record)]) + words + crc + data[stop:]
        at = stop
    return None


def once(forge):
    """Returns a change of the first datagram to the target that `forge` changes."""
    done = False

    def change(direction, data):
        nonlocal done
        changed = None if done or direction == "in" else forge(data)
        done = done or changed is not None
        return [data if changed is None else changed]

    change.is_done = lambda: done
    return change


def key(value):
    return field(4, 4, value)


def address(value):
    return field(16, 8, lambda address: value(address) % (1 << 64))


def longer(packet):
    """Says that a WRITE of one segment has one byte more than it has."""
    field(24, 4, lambda total: total + 1)(packet)
    field(36, 3, lambda length: length + 1)(packet)


FAR = 1 << 20  # the length of the region
# What is changed in a command, the layer that drops it, and the drop cause.
LIES = {
    "a guessed key": (key(lambda key: key ^ 1), "queue_pairs", "bad_key"),
    "another guessed key": (key(lambda key: (key + (1 << 24)) % (1 << 32)), "queue_pairs", "bad_key"),
    "no key": (key(lambda _: 0), "queue_pairs", "bad_key"),
    "an address before the region": (address(lambda address: address - FAR), "queue_pairs", "bad_bounds"),
    "an address at its end": (address(lambda address: address + FAR - 1), "queue_pairs", "bad_bounds"),
    "the last address": (address(lambda _: -1), "queue_pairs", "bad_bounds"),
    "less data than it says": (longer, "endpoint", "early_eop"),
    "more data than it says": (field(36, 3, lambda length: length - 1), "endpoint", "too_much_data"),
    "data beyond its operation": (field(28, 4, lambda offset: offset + 1), "endpoint", "malformed"),
    "a short operation": (field(24, 4, lambda total: total - 1), "endpoint", "malformed"),
    "a long segment": (field(36, 3, lambda _: 1 << 20), "endpoint", "malformed"),
    "another queue pair": (field(9, 3, lambda pair: pair ^ 0xFFFF), "endpoint", "unknown_qp"),
    "an EEP": (None, "endpoint", "eep"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_packet_that_lies_is_dropped_and_sent_again(tmp_path, lie):
    how, layer, cause = LIES[lie]
    change = once(cut if how is None else lambda data: forged(data, how))
    with link_target(tmp_path, "spacefibre:lanes=1") as target:
        row = run_through_relay(target, change).succeeded()
        check_file(target, 4 * 4096)
        report = target.end_report()
    check_row(row, "write")
    assert change.is_done() and row["retransmitted"] > 0
    drops = {name: report[name]["drops"] for name in ("endpoint", "queue_pairs")}
    assert drops == {"endpoint": {}, "queue_pairs": {}} | {layer: {cause: 1}}


@pytest.mark.parametrize("lie", ["a guessed key", "the last address", "a long segment"])
def test_an_initiator_that_always_lies_writes_nothing(tmp_path, lie):
    how, layer, cause = LIES[lie]
    change = lambda direction, data: [forged(data, how) or data if direction == "out" else data]
    with link_target(tmp_path, "spacefibre:lanes=1") as target:
        message = run_through_relay(target, change).refused()
        assert "retr" in message or "not respond" in message, message
        check_file(target, 0)
        check_row(measure(target, "write", *SHORT).succeeded(), "write")
        report = target.end_report()
    assert report[layer]["drops"][cause] > 1


def test_a_broadcast_frame_says_whether_it_is_late():
    # Figure 5-46 of ECSS-E-ST-50-11C.
    figure = bytes.fromhex("FC5D0000 00000000 01010101 5C004129")
    assert (crc8(figure), broadcast_frame(figure).late, broadcast_frame(figure).delayed) == (0, False, False)
    for status, late, delayed in ((1, True, False), (2, False, True), (3, True, True)):
        words = figure[:13] + bytes([status]) + figure[14:15]
        frame = broadcast_frame(words + bytes([crc8(words)]))
        assert (frame.seq, frame.late, frame.delayed) == (0x41, late, delayed)
