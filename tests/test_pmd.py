"""The packet card's DPDK driver: an unmodified dpdk-testpmd, with the RTL of the card at the other end of shared memory.

testpmd forwards what it receives through the card's own port, so that the card has, for each queue, a file of the frames
that went through the application; they are compared byte by byte with those that belong to the queue.
"""

import random
import re

import pytest
from pmd import Application, Card, Testpmd, build, need_driver, run_application
from scapy.all import ARP, IP, TCP, UDP, Dot1Q, Ether, IPv6, Raw
from scapy.utils import RawPcapNgReader, wrpcap
from test_packet_card import CAPTURES, SHORTEST, channel_of, frames_of, hash_of

from common import until

# Offloads of testpmd's --rx-offloads.
SCATTER, TIMESTAMP, BUFFER_SPLIT = 1 << 13, 1 << 14, 1 << 20
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
# Time between frames, longer than any is on the wire.
GAP_NS = 10_000
KINDS = {IP: "L3_IPV4_EXT_UNKNOWN", IPv6: "L3_IPV6_EXT_UNKNOWN"}
# What the card says when all frames have been sent and counted.
SENT = "frames: all sent"


@pytest.fixture(scope="module", autouse=True)
def require_driver():
    need_driver()


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A published capture if it is there, else one like it."""
    path = CAPTURES / "trex_imix.pcap"
    if path.exists():
        return path
    path = tmp_path_factory.mktemp("capture") / "mix.pcap"
    return write_mix(path, 100, 1500)


def write_mix(path, count, longest):
    """Writes a capture of frames of all kinds that the card tells apart."""
    draw = random.Random(5)
    frames = []
    for index in range(count):
        address = f"10.{index % 7}.1.{draw.randrange(1, 255)}"
        transport = [UDP(sport=draw.randrange(1, 65536), dport=4791), TCP(dport=draw.randrange(1, 65536))][index % 2]
        payload = Raw(draw.randbytes(draw.randrange(0, longest - 100)))
        packets = (
            ETHERNET / IP(src=address, dst="10.0.0.1") / transport / payload,
            ETHERNET / IPv6(src=f"fd00::{index + 1:x}", dst="fd00::1") / transport / payload,
            ETHERNET / Dot1Q(vlan=7) / IP(src=address, dst="10.0.0.1") / transport / payload,
            ETHERNET / ARP(pdst=address),
        )
        frames.append(packets[index % len(packets)])
    for index, frame in enumerate(frames):
        frame.time = index * GAP_NS / 1e9
    wrpcap(str(path), frames, nano=True)
    return path


def wanted(path, queues):
    """Returns the frames of a capture by queue."""
    frames = {queue: [] for queue in range(queues)}
    for frame in frames_of(path):
        frame = frame.ljust(SHORTEST, b"\0")
        frames[channel_of(frame, queues)].append(frame)
    return frames


def forwarded(folder, queues):
    """Returns the frames that the card has sent, by queue; a queue without any has no file."""
    files = {file.name: frames_of(file, RawPcapNgReader) for file in folder.iterdir()}
    frames = {queue: files.pop(f"queue-{queue:03}.pcapng", []) for queue in range(queues)}
    assert not files, files.keys()
    return frames


def forward(testpmd, frames):
    """Forwards until so many frames have been sent, then ends. Returns the statistics."""
    testpmd.command("start")

    def are_sent():
        return testpmd.statistics()["tx_good_packets"] == frames

    until(are_sent, what=f"{frames} frames to be forwarded")
    testpmd.command("stop")
    statistics = testpmd.statistics()
    testpmd.quit()
    return statistics


@pytest.mark.parametrize("queues", [1, 16, 128])
def test_testpmd_forwards_a_capture_byte_by_byte_in_each_queue(tmp_path, capture, queues):
    arguments = ("--pcap", capture, "--pause", "--channels", queues, "--out", tmp_path / "sent")
    frames = wanted(capture, queues)
    count = sum(map(len, frames.values()))
    with Card(tmp_path, *arguments) as card:
        with Testpmd(card, "--forward-mode=io", queues=queues) as testpmd:
            statistics = forward(testpmd, count)
        report = card.report()
    for queue in range(queues):
        assert statistics[f"rx_q{queue}_packets"] == len(frames[queue])
        assert statistics[f"rx_q{queue}_bytes"] == sum(map(len, frames[queue]))
        assert statistics[f"tx_q{queue}_packets"] == len(frames[queue])
    assert statistics["rx_missed_errors"] == statistics["rx_errors"] == 0
    assert forwarded(tmp_path / "sent", queues) == frames
    assert report["arrived"] == report["received"] == count and not report["dropped"], report


@pytest.mark.parametrize("split", [0, 14, 62, 64])
def test_long_frames_are_scattered_and_forwarded(tmp_path, split):
    """Scattered over several buffers, and with their first bytes in buffers of their own."""
    path = write_mix(tmp_path / "long.pcap", 60, 8900)
    offloads = SCATTER | (BUFFER_SPLIT if split else 0)
    segments = (f"--rxpkts={split},2000", "--mbuf-size=2176,2128") if split else ("--mbuf-size=2176",)
    frames = wanted(path, 4)
    with Card(tmp_path, "--pcap", path, "--pause", "--channels", 4, "--out", tmp_path / "sent") as card:
        arguments = (
            "--forward-mode=io",
            "--max-pkt-len=9026",
            f"--rx-offloads={offloads:#x}",
            "--tx-offloads=0x8000",
            *segments,
        )
        with Testpmd(card, *arguments, queues=4) as testpmd:
            forward(testpmd, sum(map(len, frames.values())))
        card.report()
    assert forwarded(tmp_path / "sent", 4) == frames


def shown(folder, path, *arguments):
    """Returns what testpmd shows of the packets of a capture, in the order of their times."""
    fields = r"length=(\d+) - nb_segs=(\d+) - RSS hash=0x(\w+) - RSS queue=0x(\w+) - timestamp (\d+)  - hw ptype: ([\w ]*?)  -"
    count = len(frames_of(path))
    arguments = ("--forward-mode=rxonly", f"--rx-offloads={SCATTER | TIMESTAMP | BUFFER_SPLIT:#x}", *arguments)
    flags = ("--pcap", path, "--times", "--channels", 2)
    commands = folder / "commands"
    commands.write_text("set verbose 1\n")
    with Card(folder, *flags) as card, Testpmd(card, *arguments, queues=2, commands=commands) as testpmd:
        card.log.wait_for(SENT)
        until(lambda: len(re.findall(fields, testpmd.more())) == count, what=f"{count} packets shown")
        packets = re.findall(fields, testpmd.quit())
    assert len(packets) == count
    return sorted(
        (int(time), int(length), int(segments), int(value, 16), int(queue, 16), kinds)
        for length, segments, value, queue, time, kinds in packets
    )


def kinds_of(frame):
    packet = Ether(frame)
    kinds = ["L2_ETHER_VLAN" if Dot1Q in packet else "L2_ETHER"]
    return " ".join(kinds + [name for kind, name in KINDS.items() if kind in packet])


@pytest.mark.parametrize("split", [8, 62])
def test_mbufs_have_hash_time_type_and_split_headers(tmp_path, split):
    path = write_mix(tmp_path / "mix.pcap", 60, 1500)
    packets = shown(tmp_path, path, f"--rxpkts={split},512", "--mbuf-size=2176,640")
    begin = packets[0][0]
    for index, (frame, packet) in enumerate(zip(frames_of(path), packets, strict=True)):
        frame = frame.ljust(SHORTEST, b"\0")
        time, *found = packet
        segments = 1 + -(-(len(frame) - split) // 512) if len(frame) > split else 1
        assert found == [len(frame), segments, hash_of(frame), channel_of(frame, 2), kinds_of(frame)]
        # A frame's time is that of its first 64 bytes, which are on the wire for 6 ns.
        assert abs(time - begin - index * GAP_NS) <= 10, index


CAUSES = ("stopped", "no_descriptor", "late")


class Unpolled:
    """Frames that come while testpmd polls no queue, after some of its commands."""

    def __init__(
        self, folder, *card_arguments, queues=1, running=None, count=2000, mix="imix", before=(), arguments=()
    ):
        flags = ("--mix", mix, "--packets", count, "--channels", running or queues, *card_arguments)
        arguments = ("--disable-device-start", *arguments)
        with Card(folder, *flags) as card, Testpmd(card, *arguments, queues=queues) as testpmd:
            for line in before:
                testpmd.command(line)
            testpmd.command("port start all")
            card.log.wait_for(SENT)
            self.statistics = testpmd.statistics()
            testpmd.quit()
            self.report = card.report()
        self.dropped = self.report["dropped"]
        assert self.report["arrived"] == count == self.report["received"] + sum(self.dropped.values()), self.report
        self.by_queue = {
            cause: [self.statistics[f"rx_q{queue}_{cause}_packets"] for queue in range(queues)] for cause in CAUSES
        }
        received = sum(self.statistics[f"rx_q{queue}_packets"] for queue in range(queues))
        assert received == self.report["received"] == self.statistics["rx_good_packets"]
        assert {cause: sum(counts) for cause, counts in self.by_queue.items()} == {
            cause: self.dropped.get(cause, 0) for cause in CAUSES
        }


def test_packets_without_a_descriptor_are_counted_by_queue(tmp_path):
    run = Unpolled(tmp_path, queues=2)
    assert min(run.by_queue["no_descriptor"]) > 500
    assert run.statistics["rx_missed_errors"] == sum(map(sum, run.by_queue.values()))
    assert run.report["received"] >= 2 * 200


def test_packets_of_a_stopped_queue_are_counted_as_such(tmp_path):
    before = ["port 0 rxq 2 deferred_start on"]
    run = Unpolled(tmp_path, queues=4, running=3, count=400, before=before)
    assert run.by_queue["stopped"][2] > 50 and run.statistics["rx_q2_packets"] == 0
    assert [run.by_queue["stopped"][queue] for queue in (0, 1, 3)] == [0, 0, 0]


def test_frames_longer_than_the_mtu_are_counted_as_giants(tmp_path):
    run = Unpolled(tmp_path, count=200, mix="500:1,1518:1", before=["port config mtu 0 1000"])
    assert run.dropped["giant"] == run.statistics["rx_distributor_giant_packets"] == run.statistics["rx_errors"] > 50


def test_damaged_and_short_frames_are_counted_as_such(tmp_path):
    flags = ("--pause", "--corrupt", 0.2, "--runt", 0.2)
    run = Unpolled(tmp_path, *flags, count=200, mix="500:1", arguments=["--rxd=2048"])
    causes = {cause: run.statistics[f"rx_distributor_{cause}_packets"] for cause in ("error", "runt")}
    assert causes == run.dropped and min(causes.values()) > 15, run.report
    assert run.statistics["rx_errors"] == sum(causes.values())


def test_frames_faster_than_the_card_are_counted_as_overflow(tmp_path):
    run = Unpolled(tmp_path, "--rate", 200, count=2000, mix="700:1", arguments=["--rxd=2048"])
    assert run.dropped["overflow"] == run.statistics["rx_distributor_overflow_packets"] > 100
    assert run.statistics["rx_missed_errors"] >= run.dropped["overflow"]


def test_an_mtu_beyond_the_buffers_needs_scattered_packets(tmp_path):
    with Card(tmp_path, "--packets", 1, "--channels", 1) as card, Testpmd(card) as testpmd:
        testpmd.command("port stop all")
        testpmd.command("port config mtu 0 8000")
        text = testpmd.command("port start all")
        assert "does not fit into a buffer" in text and "RTE_ETH_RX_OFFLOAD_SCATTER" in text, text
        testpmd.quit()


def test_queues_stop_and_start_while_packets_come(tmp_path):
    """What is written to memory is received or was unread at a stop, and the rest has its cause."""
    flags = ("--mix", "imix", "--packets", 30_000, "--channels", 4)
    with Card(tmp_path, *flags) as card, Testpmd(card, "--forward-mode=rxonly", queues=4) as testpmd:
        testpmd.command("start")
        stops = 0
        while "frames: all sent" not in card.log.text:
            for queue in (1, 3, 0):
                testpmd.command(f"port 0 rxq {queue} stop")
                testpmd.command(f"port 0 rxq {queue} start")
                stops += 1
            card.log.take(0)
        text = testpmd.command("stop")
        statistics = testpmd.statistics()
        testpmd.quit()
        report = card.report()
    # Of each queue, as counted by testpmd itself.
    received = sum(map(int, re.findall(r"RX Port= 0/Queue= .*\n +RX-packets: (\d+)", text)))
    unread = sum(statistics[f"rx_q{queue}_unread_packets"] for queue in range(4))
    assert stops > 0 and received > 0
    assert received + unread == report["received"]
    assert report["arrived"] == 30_000 == report["received"] + sum(report["dropped"].values())
    assert statistics["rx_q0_stopped_packets"] == report["channels"][0]["dropped"].get("stopped", 0)


def test_killed_applications_leave_the_card_to_the_next(tmp_path, capture):
    """The first is killed while frames come; the second receives a whole capture."""
    frames = wanted(capture, 4)
    with Card(tmp_path, "--pcap", capture, "--repeat", 1000, "--pause", "--channels", 4) as card:
        with Testpmd(card, "--forward-mode=io", queues=4) as testpmd:
            testpmd.command("start")
            until(lambda: testpmd.statistics()["rx_good_packets"] > 200, what="packets before the kill")
            testpmd.popen.kill()
            testpmd.popen.wait()
        card.log.wait_for("driver has disconnected")
        with Testpmd(card, "--forward-mode=rxonly", queues=4) as testpmd:
            testpmd.command("start")
            until(lambda: testpmd.statistics()["rx_good_packets"] > 200, what="packets after the restart")
            testpmd.command("stop")
            testpmd.quit()
        report = card.report()
    assert sum(map(len, frames.values())) and report["arrived"] > 400
    assert not report["dropped"].get("no_descriptor"), report


def test_an_application_outlives_the_card(tmp_path):
    """It gets both events, its link goes down, its statistics stay, and all mbufs come back."""
    path = build(tmp_path, "pmd_removal.c")
    with Card(tmp_path, "--packets", 100, "--channels", 1) as card, Application(path, card, 100) as application:
        application.output.wait_for("received 100")
        card.popen.kill()
        done = application.end()
    assert [done[what] for what in ("more", "link", "ipackets", "free")] == ["0", "0", "100", "1023"], done


def test_testpmd_detaches_a_lost_card_and_attaches_the_next(tmp_path):
    with Card(tmp_path, "--packets", 100, "--channels", 1) as card, Testpmd(card) as testpmd:
        card.log.wait_for(SENT)
        card.popen.kill()
        # The last that it prints of itself.
        testpmd.output.wait_for(r"Device is detached\s+Now total ports is 0\s+Done")
        with Card(tmp_path, "--packets", 100, "--channels", 1) as next_card:
            testpmd.command(f"port attach net_shotline0,socket={next_card.socket}")
            testpmd.command("port start all")
            testpmd.command("start")
            until(lambda: testpmd.statistics()["rx_good_packets"] == 100, what="packets of the next card")
            testpmd.command("stop")
            testpmd.quit()


def test_a_second_driver_is_refused_and_the_first_goes_on(tmp_path):
    with Card(tmp_path, "--packets", 1, "--channels", 1) as card, Testpmd(card) as testpmd:
        text = testpmd.command(f"port attach net_shotline1,socket={card.socket}")
        assert "the card has another driver" in text, text
        text = testpmd.command(f"port attach net_shotline1,socket={tmp_path}/other")
        assert "start the card first: shotline emulate card --listen" in text, text
        text = testpmd.command("port attach net_shotline1,sockets=1")
        assert "expected net_shotline1,socket=PATH" in text, text
        card.log.wait_for(SENT)
        assert testpmd.statistics()["rx_q0_packets"] == 1
        testpmd.quit()


def test_an_application_sleeps_until_an_interrupt_of_a_queue(tmp_path, capture):
    application = build(tmp_path, "pmd_interrupts.c")
    frames = wanted(capture, 4)
    count = sum(map(len, frames.values()))
    with Card(tmp_path, "--pcap", capture, "--pause", "--channels", 4) as card:
        done = run_application(application, card, 4, count)
    assert int(done["sleeps"]) > 0
    assert {queue: int(done[f"queue {queue}"]) for queue in range(4)} == {
        queue: len(frames[queue]) for queue in range(4)
    }


def test_a_queue_without_mbufs_goes_on_when_some_are_freed(tmp_path):
    application = build(tmp_path, "pmd_exhaustion.c")
    with Card(tmp_path, "--mix", "imix", "--packets", 2000, "--pause", "--channels", 1) as card:
        done = run_application(application, card, 2000)
        report = card.report()
    assert int(done["held"]) > 200 and int(done["nombuf"]) > 0
    assert (done["received"], done["missed"], done["free"]) == ("2000", "0", "511")
    assert report["received"] == 2000
