"""Shots through the packet card: its DPDK driver in the recorder, with header split, and the card's RTL on a cable.

The probe sends frames through a driver of DPDK, too: the kernel would add UDP checksums, which cover the payload.
"""

import contextlib
import signal

import pytest
from carriers import need_dpdk
from pmd import DRIVER, Card, environment, need_driver

from common import Probe, Recorder, Recording, check_balanced, check_samples, command, verify

# The address of the port: the kernel does not have it.
PORT = "10.99.0.2:4791"
# The simulated card takes some thousand packets a second.
SHOTS = ("--links", 1, "--samples", 300, "--rate-hz", 20)


@pytest.fixture(scope="module", autouse=True)
def require_driver():
    need_driver()
    need_dpdk()


@pytest.fixture
def wire(cable):
    """A second cable between the namespaces, on which no kernel sends anything."""
    first, second = cable.names
    command("ip", "link", "add", "wire", "netns", first, "type", "veth", "peer", "name", "wire", "netns", second)
    for name in cable.names:
        command("ip", "-n", name, "link", "set", "wire", "addrgenmode", "none", "mtu", "9000")
        command("ip", "-n", name, "link", "set", "wire", "up")
    yield "wire"
    command("ip", "-n", first, "link", "delete", "wire")


@contextlib.contextmanager
def probe_and_card(folder, cable, interface, *faults):
    """Runs a probe that sends into an interface, and a card on its other end."""
    sender, receiver = cable.names
    transport = f"dpdk:net_af_packet0,iface={interface}"
    with (
        Card(folder, "--wire", interface, netns=receiver) as card,
        Probe(
            *("--transport", transport, "--source", "10.99.0.1", "--links", 1, *faults),
            listen=f"{cable.ipv4[0]}:0",
            netns=sender,
        ) as probe,
    ):
        yield probe, card


def recorder(card, probe, cable, path, *flags, arguments="", timeout_ms=60_000):
    """Starts to record shots through the card's driver."""
    transport = f"dpdk:net_shotline0,socket={card.socket}{arguments}"
    flags = (
        "--transport",
        transport,
        "--eal",
        f"-d {DRIVER.name}",
        "--out",
        path,
        *SHOTS,
        *flags,
        "--timeout-ms",
        timeout_ms,
    )
    return Recorder(probe, *flags, bind=PORT, netns=cable.names[1], env=environment())


def record_through(card, probe, cable, path, *flags, **options):
    """Records shots and checks them. Returns the summary."""
    with recorder(card, probe, cable, path, *flags, **options) as recording:
        ended = recording.end().succeeded()
    check_balanced(ended, Recording(path))
    verify(path)
    check_samples(Recording(path))
    return ended


# Frames of the framing ud have 66 bytes before the payload, at which the card does not split.
@pytest.mark.parametrize(
    ("framing", "arguments", "copies"), [("counted", "", 0.0), ("counted", ",split=off", 1.0), ("ud", "", 1.0)]
)
def test_payloads_that_arrive_in_order_are_not_copied(tmp_path, cable, wire, framing, arguments, copies):
    path = tmp_path / "run.h5"
    with probe_and_card(tmp_path, cable, wire) as (probe, card):
        ended = record_through(card, probe, cable, path, "--framing", framing, "--shots", 40, arguments=arguments)
    assert ended["shots_complete"] == 40 and not ended["drops"], ended
    assert ended["icrc"]["good"] == ended["packets"], ended["icrc"]
    assert ended["copies_per_byte"] == copies


def test_impossible_header_split_is_refused_if_asked_for(tmp_path, cable, wire):
    with probe_and_card(tmp_path, cable, wire) as (probe, card):
        flags = ("--shots", 1, "--framing", "ud")
        with recorder(card, probe, cable, tmp_path / "run.h5", *flags, arguments=",split=on") as recording:
            refused = recording.end().refused()
    assert "needs frames with 8n or 8n + 6 bytes before the payload" in refused


def test_shots_are_right_although_payloads_land_elsewhere(tmp_path, cable):
    """Packets are lost and sent twice, and the set-up's own packets are on the cable."""
    path = tmp_path / "run.h5"
    faults = ("--loss", 0.01, "--duplicate", 0.01, "--seed", 3)
    with probe_and_card(tmp_path, cable, "cable", *faults) as (probe, card):
        ended = record_through(card, probe, cable, path, "--framing", "counted", "--shots", 100)
    assert ended["shots_complete"] > 0 and ended["shots_partial"] > 0, ended
    # Once to the receive, and at most twice to the place in the shot.
    assert 0 < ended["copies_per_byte"] <= 3, ended


def test_a_killed_recorder_leaves_the_card_to_the_next(tmp_path, cable, wire):
    with probe_and_card(tmp_path, cable, wire) as (probe, card):
        flags = ("--framing", "counted", "--shots", 5000, "--progress")
        with recorder(card, probe, cable, tmp_path / "killed.h5", *flags) as killed:
            killed.wait_for_packets(100)
            killed.signal(signal.SIGKILL)
        flags = ("--framing", "counted", "--shots", 20, "--take-over")
        ended = record_through(card, probe, cable, tmp_path / "run.h5", *flags)
    assert ended["shots_complete"] == 20, ended


def test_shots_after_the_card_has_gone_are_counted_as_lost(tmp_path, cable, wire):
    path = tmp_path / "run.h5"
    with probe_and_card(tmp_path, cable, wire) as (probe, card):
        flags = ("--framing", "counted", "--shots", 60, "--progress")
        with recorder(card, probe, cable, path, *flags, timeout_ms=2000) as recording:
            recording.wait_for_packets(100)
            card.signal(signal.SIGKILL)
            ended = recording.end().succeeded()
    check_balanced(ended, Recording(path))
    verify(path)
    assert [warning for warning in ended["warnings"] if "the device was removed" in warning], ended["warnings"]
    lost = sum(ended["drops"].values())
    assert ended["shots_complete"] > 0 and lost > 0 and ended["shots_complete"] + ended["shots_partial"] + lost == 60
    check_samples(Recording(path))
