"""Attacks on the connection manager of `shotline target --rdma-cm`. test_guest.py connects it to Linux's own."""

import contextlib
import copy
import struct
import threading

from memory_target import Target
from rdma_cm import DREQ, REJ, ROCE, RTU, CmPeer, address_number, forge_requests

from common import Process, run

TARGET_ADDRESS, INITIATOR = "127.93.0.1", "127.93.0.2"
FORGED = 10_000
PERFTEST = 18515
COUNT = 20
NO_RESOURCES, INVALID_ID, CONSUMER = 3, 6, 28  # reasons for a REJ


@contextlib.contextmanager
def cm_target(*arguments):
    flags = ["--region", "memory=1M,rights=atomic", "--rdma-cm", "rping", *arguments]
    with Target(*flags, bind=TARGET_ADDRESS) as target:
        yield target


def rping():
    """Runs a valid initiator: whole round trips, each a READ and a WRITE of its memory."""
    done = run(
        "perf", "--rdma-cm", "rping", "--to", TARGET_ADDRESS, "--bind", INITIATOR, "--count", COUNT, "--json"
    ).succeeded()
    assert done["operations"] == COUNT, done


def test_forged_requests_do_not_lock_out_a_real_initiator():
    with cm_target() as target:
        forge_requests(TARGET_ADDRESS, FORGED // 2)
        rping()
        flood = threading.Thread(target=forge_requests, args=(TARGET_ADDRESS, FORGED // 2, 1 << 15))
        flood.start()
        rping()
        flood.join()
        rping()
        counts = target.end_report()["rdma_cm"]
    assert counts["displaced"] + counts["unanswered"] > 0 and counts["established"] == 3, counts


def test_slots_of_silent_initiators_are_reused():
    with cm_target("--initiators", "8") as target, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(CmPeer(TARGET_ADDRESS, address_number(9 + n), ROCE)) for n in range(8)]
        for peer in peers:
            peer.connect()
        stop = threading.Event()
        alive = threading.Thread(target=peers[0].acknowledge, args=[stop])
        alive.start()
        try:
            rping()
            report = target.end_report()
        finally:
            stop.set()
            alive.join()
    counts = report["rdma_cm"]
    # rping is served as soon as one silent initiator has been dropped; how many more are dropped by then varies.
    assert counts["established"] == 9 and 1 <= counts["unresponsive"] <= 7, counts


def test_the_last_slots_go_only_to_addresses_without_one():
    with cm_target("--initiators", "4") as target, CmPeer(TARGET_ADDRESS, address_number(5), ROCE) as peer:
        for _ in range(3):
            peer.connect()
            peer.new_connection()
        peer.request_connection()
        assert int.from_bytes(peer.receive_message(REJ)[10:12]) == NO_RESOURCES
        rping()
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["rejected_near_limit"], counts["no_resources"]) == (4, 1, 1), counts


@contextlib.contextmanager
def perftest():
    """Yields a target and a peer that is connected to it, to exchange introductions as perftest does."""
    with (
        cm_target("--rdma-cm", f"perftest:{PERFTEST}") as target,
        CmPeer(TARGET_ADDRESS, address_number(5), ROCE) as peer,
    ):
        peer.connect(PERFTEST)
        yield target, peer


def test_a_forged_request_does_not_take_perftests_measured_qp():
    with perftest() as (target, peer):
        key, address = peer.exchange_introductions()
        with CmPeer(TARGET_ADDRESS, peer.address) as forged:
            forged.request_connection(PERFTEST)
        peer.new_connection()
        peer.connect(PERFTEST)
        assert peer.is_write_acknowledged(key, address, b"measured"), (
            "the write must belong to the introduced queue pair"
        )
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["rejected_near_limit"]) == (2, 0), counts


def test_a_perftest_has_one_measured_queue_pair():
    with perftest() as (target, peer):
        key, address = peer.exchange_introductions()
        peer.new_connection()
        peer.request_connection(PERFTEST)
        peer.wait_for_reply()
        late = copy.copy(peer)
        peer.new_connection()
        peer.connect(PERFTEST)
        assert peer.is_write_acknowledged(key, address, b"measured")
        late.confirm()
        assert int.from_bytes(late.receive_message(DREQ)[4:8]) == late.name
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["rejected_near_limit"]) == (3, 1), counts


def test_messages_without_a_connection_are_counted_and_ignored():
    with cm_target() as target, CmPeer(TARGET_ADDRESS, address_number(5), ROCE) as peer:
        peer.theirs = 1234
        peer.send_message(RTU, struct.pack(">II", peer.name, peer.theirs))
        assert int.from_bytes(peer.receive_message(REJ)[10:12]) == INVALID_ID
        peer.send_message(0x99, b"")
        rping()
        counts = target.end_report()["rdma_cm"]
    assert (counts["stray"], counts["malformed"], counts["requests"]) == (1, 1, 1), counts


def test_a_server_keeps_waiting_after_an_absent_initiator():
    with Process("interop", "rping", "--bind", TARGET_ADDRESS, "--json") as server:
        assert "listening on" in server.popen.stderr.readline()
        with CmPeer(TARGET_ADDRESS, address_number(5), ROCE) as peer:
            for _ in range(2):
                peer.request_connection()
                peer.wait_for_reply()
                peer.send_message(REJ, struct.pack(">IIHH", peer.name, peer.theirs, 0, CONSUMER))
                assert "the peer has rejected the connection" in server.popen.stderr.readline()
                peer.new_connection()
        rping()
        assert server.end().succeeded()["operations"] == COUNT
