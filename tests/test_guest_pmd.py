"""The packet card's DPDK driver on the PCI bus: an unmodified dpdk-testpmd in a QEMU guest, with the RTL on this machine.

An ivshmem device of the guest has the window of the simulated card as BAR 2, and the card writes the packets into the
guest's memory, at the physical addresses that DPDK has found for its huge pages.
"""

import re
import tempfile
from pathlib import Path

import pytest
from guest_setup import Guest, GuestError, Missing
from machine import Card
from pmd import Output, need_driver
from test_pmd import forwarded, wanted, write_mix

from common import WAIT_TIMEOUT_S, Process, until

MEMORY_MIB = 768
SENT = re.compile(r"TX-packets: (\d+) +TX-errors: 0")


class Machine:
    """The guest with what DPDK needs, and its card while one runs."""

    def __init__(self, guest, card):
        self.guest, self.card = guest, card

    def emulate(self, *arguments):
        """Starts the simulated card of the guest's device."""
        return EmulatedCard(self.card, *arguments)

    def testpmd(self, queues):
        """Starts an application that forwards, and shows its statistics each second."""
        forward = f"--auto-start --forward-mode=io --no-flush-rx --rxq={queues} --txq={queues} --rxd=256 --txd=256"
        mbufs = f"--total-num-mbufs={2048 + 512 * queues}"
        return self.guest.spawn(f"exec card-testpmd {forward} {mbufs} --stats-period=1")

    def wait_for_packets(self, job, count):
        """Waits until an application has sent so many packets."""

        def are_sent():
            return max(map(int, SENT.findall(job.output())), default=0) >= count

        until(lambda: job.ended() or are_sent(), what=f"{count} packets")
        assert are_sent(), job.output()

    def end(self, job):
        """Ends an application by a signal, after which it stops its ports, and returns what it printed."""
        self.guest.run("killall -INT dpdk-testpmd").succeeded()
        text = job.end().output
        assert "Bye..." in text, text
        return text


class EmulatedCard(Process):
    """`shotline emulate card --window`."""

    def __init__(self, card, *arguments):
        super().__init__("emulate", "card", "--window", card.window, "--memory", card.memory, "--json", *arguments)
        self.log = Output(self.popen.stderr.fileno())
        self.log.wait_for("waits for a driver")

    def report(self):
        """Ends the card and returns its JSON object."""
        self.signal(2)
        return self.end().succeeded()


@pytest.fixture(scope="module")
def machine():
    need_driver()
    with tempfile.TemporaryDirectory(prefix="card-") as files:
        card = Card(Path(files))
        try:
            guest = Guest(memory=MEMORY_MIB, card=card, limit=WAIT_TIMEOUT_S)
        except (Missing, GuestError) as error:
            pytest.skip(f"NOT TESTED on the PCI bus of a guest: {error}")
        with guest:
            yield Machine(guest, card)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture with frames for each of four queues."""
    return write_mix(tmp_path_factory.mktemp("capture") / "mix.pcap", 100, 1500)


def test_the_driver_refuses_a_window_without_a_card(machine):
    done = machine.testpmd(1).end()
    assert done.code != 0 and "no simulated card of version 1 is behind this shared memory" in done.output, done.output


@pytest.mark.parametrize("queues", [1, 4])
def test_a_guest_forwards_a_capture_byte_by_byte(machine, tmp_path, capture, queues):
    frames = wanted(capture, queues)
    count = sum(map(len, frames.values()))
    with machine.emulate("--pcap", capture, "--pause", "--channels", queues, "--out", tmp_path / "sent") as card:
        job = machine.testpmd(queues)
        machine.wait_for_packets(job, count)
        machine.end(job)
        report = card.report()
    assert forwarded(tmp_path / "sent", queues) == frames
    assert report["arrived"] == report["received"] == count and not report["dropped"], report


def test_a_killed_application_leaves_the_card_to_the_next(machine, tmp_path, capture):
    flags = ("--pcap", capture, "--repeat", 1000, "--pause", "--channels", 4, "--out", tmp_path / "sent")
    with machine.emulate(*flags) as card:
        killed = machine.testpmd(4)
        machine.wait_for_packets(killed, 200)
        machine.guest.run("killall -KILL dpdk-testpmd").succeeded()
        assert killed.end().code == 128 + 9
        following = machine.testpmd(4)
        machine.wait_for_packets(following, 200)
        machine.end(following)
        report = card.report()
    assert report["arrived"] == report["received"] + sum(report["dropped"].values()), report
    assert not report["dropped"].keys() - {"stopped"}, report
    frames = {queue: set(found) for queue, found in wanted(capture, 4).items()}
    for queue, found in forwarded(tmp_path / "sent", 4).items():
        assert found and set(found) <= frames[queue]
