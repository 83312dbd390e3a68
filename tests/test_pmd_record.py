"""Shots through the packet card: its DPDK driver in the recorder, with header split, and the card's RTL on a cable.

The probe sends frames through a driver of DPDK, too: the kernel would add UDP checksums, which cover the payload.
"""

import contextlib

import pytest
from pmd import DRIVER, Output, need_driver

from common import Probe, Process, Recording, check_balanced, check_samples, command, record, run, verify

# The address of the port: the kernel does not have it.
PORT = "10.99.0.2:4791"
# The simulated card takes some thousand packets a second.
SHOTS = ("--links", 1, "--samples", 300, "--rate-hz", 20, "--timeout-ms", 60_000)


@pytest.fixture(scope="module", autouse=True)
def require_driver():
    need_driver()
    if "built without DPDK" in run("record", "--listen", PORT, "--transport", "dpdk:net_null0", "--out", "x").stderr:
        pytest.skip("needs a program with DPDK: cargo build --features dpdk")


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


class Card(Process):
    """`shotline emulate card --listen --wire`."""

    def __init__(self, folder, interface, netns):
        self.socket = folder / "card.sock"
        super().__init__("emulate", "card", "--listen", self.socket, "--wire", interface, netns=netns)
        Output(self.popen.stderr.fileno()).wait_for("waits for a driver on")


@contextlib.contextmanager
def probe_and_card(folder, cable, interface, *faults):
    """Runs a probe that sends into an interface, and a card on its other end."""
    sender, receiver = cable.names
    transport = f"dpdk:net_af_packet0,iface={interface}"
    with (
        Card(folder, interface, receiver) as card,
        Probe(
            *("--transport", transport, "--source", "10.99.0.1", "--links", 1, *faults),
            listen=f"{cable.ipv4[0]}:0",
            netns=sender,
        ) as probe,
    ):
        yield probe, card


def record_through(card, probe, cable, path, *flags, arguments=""):
    """Records shots through the card's driver."""
    transport = f"dpdk:net_shotline0,socket={card.socket}{arguments}"
    flags = ("--transport", transport, "--eal", f"-d {DRIVER}", "--out", path, *SHOTS, *flags)
    ended = record(probe, *flags, bind=PORT, netns=cable.names[1]).succeeded()
    check_balanced(ended, Recording(path))
    verify(path)
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
    check_samples(Recording(path))


def test_shots_are_right_although_payloads_land_elsewhere(tmp_path, cable):
    """Packets are lost and sent twice, and the set-up's own packets are on the cable."""
    path = tmp_path / "run.h5"
    faults = ("--loss", 0.01, "--duplicate", 0.01, "--seed", 3)
    with probe_and_card(tmp_path, cable, "cable", *faults) as (probe, card):
        ended = record_through(card, probe, cable, path, "--framing", "counted", "--shots", 100)
    assert ended["shots_complete"] > 0 and ended["shots_partial"] > 0, ended
    # Once to the receive, and at most twice to the place in the shot.
    assert 0 < ended["copies_per_byte"] <= 3, ended
    check_samples(Recording(path))
