"""The connection manager's door of `shotline target --rdma-cm`, with strangers at it. Linux's own is in test_guest.py."""

import contextlib
import copy
import struct
import threading

from memory_target import Target
from rdma_cm import DREQ, REJ, ROCE, RTU, Stranger, address_number, forge

from common import Process, run

HERE, HONEST = "127.93.0.1", "127.93.0.2"
FORGED = 10_000
PERFTEST = 18515
COUNT = 20
NO_RESOURCES, INVALID_ID, CONSUMER = 3, 6, 28  # reasons of a REJ


@contextlib.contextmanager
def door(*arguments):
    flags = ["--region", "room=1M,rights=atomic", "--rdma-cm", "rping", *arguments]
    with Target(*flags, bind=HERE) as target:
        yield target


def rping():
    """An honest initiator: whole round trips, each a READ and a WRITE of its memory."""
    done = run("perf", "--rdma-cm", "rping", "--to", HERE, "--bind", HONEST, "--count", COUNT, "--json").succeeded()
    assert done["operations"] == COUNT, done


def test_forged_requests_do_not_keep_the_honest_out():
    with door() as target:
        forge(HERE, FORGED // 2)
        rping()
        flood = threading.Thread(target=forge, args=(HERE, FORGED // 2, 1 << 15))
        flood.start()
        rping()
        flood.join()
        rping()
        counts = target.end_report()["rdma_cm"]
    assert counts["displaced"] + counts["unanswered"] > 0 and counts["established"] == 3, counts


def test_places_of_the_silent_go_to_those_who_ask():
    with door("--initiators", "8") as target, contextlib.ExitStack() as stack:
        held = [stack.enter_context(Stranger(HERE, address_number(9 + n), ROCE)) for n in range(8)]
        for stranger in held:
            stranger.connect()
        over = threading.Event()
        alive = threading.Thread(target=held[0].acknowledge, args=[over])
        alive.start()
        try:
            rping()
            report = target.end_report()
        finally:
            over.set()
            alive.join()
    counts = report["rdma_cm"]
    # rping was served when the first of the silent had gone; how many more go before it ends is a matter of time.
    assert counts["established"] == 9 and 1 <= counts["silent"] <= 7, counts


def test_the_last_places_go_to_addresses_that_hold_none():
    with door("--initiators", "4") as target, Stranger(HERE, address_number(5), ROCE) as many:
        for _ in range(3):
            many.connect()
            many.renew()
        many.ask()
        assert int.from_bytes(many.hear(REJ)[10:12]) == NO_RESOURCES
        rping()
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["crowded"], counts["no_resources"]) == (4, 1, 1), counts


@contextlib.contextmanager
def perftest():
    """A stranger whose own connection for introductions a target has accepted."""
    with door("--rdma-cm", f"perftest:{PERFTEST}") as target, Stranger(HERE, address_number(5), ROCE) as own:
        own.connect(PERFTEST)
        yield target, own


def test_a_forged_request_does_not_take_the_place_of_the_queue_pair_that_perftest_measures():
    with perftest() as (target, own):
        key, address = own.introduce()
        with Stranger(HERE, own.address) as forged:
            forged.ask(PERFTEST)
        own.renew()
        own.connect(PERFTEST)
        assert own.writes(key, address, b"measured"), "it belongs to what was introduced"
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["crowded"]) == (2, 0), counts


def test_a_perftest_has_one_measured_queue_pair():
    with perftest() as (target, own):
        key, address = own.introduce()
        own.renew()
        own.ask(PERFTEST)
        own.accepted()
        late = copy.copy(own)
        own.renew()
        own.connect(PERFTEST)
        assert own.writes(key, address, b"measured")
        late.confirm()
        assert int.from_bytes(late.hear(DREQ)[4:8]) == late.name
        counts = target.end_report()["rdma_cm"]
    assert (counts["established"], counts["crowded"]) == (3, 1), counts


def test_messages_of_no_connection_are_counted_and_change_nothing():
    with door() as target, Stranger(HERE, address_number(5), ROCE) as stranger:
        stranger.theirs = 1234
        stranger.say(RTU, struct.pack(">II", stranger.name, stranger.theirs))
        assert int.from_bytes(stranger.hear(REJ)[10:12]) == INVALID_ID
        stranger.say(0x99, b"")
        rping()
        counts = target.end_report()["rdma_cm"]
    assert (counts["stray"], counts["malformed"], counts["asked"]) == (1, 1, 1), counts


def test_a_server_waits_on_when_who_asked_is_not_there():
    with Process("interop", "rping", "--bind", HERE, "--json") as server:
        assert "waits on" in server.popen.stderr.readline()
        with Stranger(HERE, address_number(5), ROCE) as stranger:
            for _ in range(2):
                stranger.ask()
                stranger.accepted()
                stranger.say(REJ, struct.pack(">IIHH", stranger.name, stranger.theirs, 0, CONSUMER))
                assert "the other side refuses it" in server.popen.stderr.readline()
                stranger.renew()
        rping()
        assert server.end().succeeded()["operations"] == COUNT
