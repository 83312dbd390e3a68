"""RoCEv2 senders without set-up: framing `ud` built by scapy, captures replayed by tcpreplay, a sensor bridge.

All of it is sent over a cable between two network namespaces.
"""

import collections
import signal
import subprocess

import numpy as np
import pytest
from requirements import NETWORK_TOOLS, need_root
from scapy.utils import RawPcapReader
from senders.faults import Faults
from senders.listen import ExpectedBytes, Listener, check_drops, send_with_spead2
from senders.roce import (
    ROCE_PORT,
    Bridge,
    BridgeWrites,
    Endpoint,
    UdSender,
    Wire,
    corrupted,
    ud_position,
    write_pcap,
)
from senders.spead2_send import heap_data

from common import (
    ROOT,
    WAIT_TIMEOUT_S,
    Namespaces,
    Recording,
    check_balanced,
    command,
    until,
    verify,
    zero_missing_packets,
)

CAPTURES = ROOT.parent / "shared" / "data" / "roce" / "hsb"
# A timeout so long that only the tested event closes a shot; a run ends when everything sent has arrived.
LONG_TIMEOUT = ("--timeout-ms", 1000 * WAIT_TIMEOUT_S, "--progress")
FIRST = (1 << 20) - 5  # the shot number in the immediate wraps

BOTH_FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])


@pytest.fixture
def wire(cable):
    with Wire(cable) as wire:
        yield wire


def endpoint(cable, wire, family, port=49443, source=None):
    addresses = cable.ipv4 if family == 4 else cable.ipv6
    return Endpoint(source or addresses[0], addresses[1], port, wire.macs)


def listener(cable, framing, path, *arguments, family=4, port=ROCE_PORT):
    host = (cable.ipv4 if family == 4 else cable.ipv6)[1]
    flags = ("--out", path, *LONG_TIMEOUT, *arguments)
    return Listener(framing, *flags, host=host, port=port, netns=cable.names[1])


def shape(sender):
    return ("--channels", sender.channels, "--samples", sender.samples)


def keys(sender):
    return ("--queue-pair", sender.qp, "--q-key", hex(sender.q_key))


# --- ud ----------------------------------------------------------------------------------------------


class ExpectedUdPackets:
    """The packets of each shot that arrive undamaged, computed from the sent frames."""

    def __init__(self, frames, damaged, first, packets):
        self.present = collections.defaultdict(lambda: np.zeros(packets, bool))
        self.repeated = self.damaged = 0
        for frame in frames:
            if frame in damaged:
                self.damaged += 1
                continue
            shot, index = ud_position(frame)
            shot = first + (shot - first) % (1 << 20)
            self.repeated += bool(self.present[shot][index])
            self.present[shot][index] = True

    def check(self, recording, sender, link=0):
        assert recording.numbers(link) == sorted(self.present)
        for row, number in enumerate(recording.numbers(link)):
            present, entry = self.present[number], recording.tables[link][row]
            assert np.array_equal(recording.presence(link)[row], present), number
            expected = zero_missing_packets(sender.values(number), present, 1)
            assert np.array_equal(recording.rf[link][row], expected), number
            assert entry["wire_gap"] == np.sum(~present) and entry["placed"] == np.sum(present), entry
            assert bool(entry["record_good"]) == bool(present.all()), entry
            if present[-1]:
                assert entry["stamp_tai_ns"] == sender.stamp(number) and entry["flags"] == 1, entry


@BOTH_FAMILIES
@SEEDS
def test_counters_match_exactly_what_scapy_sent(cable, wire, tmp_path, family, seed):
    path = tmp_path / "run.h5"
    sender = UdSender(endpoint(cable, wire, family), *[(32, 500), (8, 1000), (96, 340)][seed])
    damaged = set()

    def damage(frame, random):
        damaged.add(wrong := corrupted(frame, random))
        return wrong

    faults = Faults(seed, loss=0.04, duplicate=0.04, reorder=0.04, corrupt=0.04, spare=sender.packets, damage=damage)
    shots = [list(sender.frames(FIRST + number)) for number in range(40)]
    frames = faults.apply([frame for shot in shots[:-1] for frame in shot]) + shots[-1]
    with listener(cable, "ud", path, *shape(sender), *keys(sender), "--window", 8, family=family) as recorder:
        wire.send(frames)
        ended = recorder.wait_for_packets(len(frames)).interrupt().succeeded()
    oracle = ExpectedUdPackets(frames, damaged, FIRST, sender.packets)
    assert oracle.damaged == faults.corrupted > 0 and faults.lost > 0
    recording = Recording(path)
    oracle.check(recording, sender)
    assert ended["packets"] == len(frames), ended
    check_drops(ended, repeated=oracle.repeated, bad_icrc=oracle.damaged)
    assert ended["packets_missing"] == faults.lost + faults.corrupted, ended
    duplicates = int(recording.tables[0]["duplicate"].sum())
    assert duplicates == ended["packet_drops"].get("duplicate", 0), (
        "each duplicate must be counted in the row of its shot"
    )
    icrc = ended["icrc"]
    assert icrc["bad"] == oracle.damaged and icrc["unverified"] == 0, icrc
    assert icrc["good"] + icrc["solved"] == len(frames) - oracle.damaged, icrc
    check_balanced(ended, recording)
    verify(path)


@BOTH_FAMILIES
def test_packets_with_a_wrong_key_or_queue_pair_are_dropped(cable, wire, tmp_path, family):
    path = tmp_path / "run.h5"
    right = UdSender(endpoint(cable, wire, family))
    others = [UdSender(right.endpoint, q_key=0x11223345), UdSender(right.endpoint, qp=0x2B68)]
    frames = []
    for number in range(10):
        frames += list(right.frames(number))
        for other in others:
            frames += list(other.frames(number + 5))
    with listener(cable, "ud", path, *shape(right), *keys(right), family=family) as recorder:
        wire.send(frames)
        ended = recorder.wait_for_packets(len(frames)).interrupt().succeeded()
    recording = Recording(path)
    assert recording.numbers() == list(range(10)) and ended["shots_complete"] == 10, ended
    check_drops(ended, unknown_stream=2 * 10 * right.packets)
    check_balanced(ended, recording)
    verify(path)


@BOTH_FAMILIES
def test_a_second_sender_with_the_right_keys_is_dropped(cable, wire, tmp_path, family):
    path = tmp_path / "run.h5"
    first = UdSender(endpoint(cable, wire, family), seed=1)
    second = UdSender(endpoint(cable, wire, family, port=50000), seed=2)
    frames = []
    for number in range(10):
        frames += list(first.frames(number))
        frames += list(second.frames(number + 1))
    with listener(cable, "ud", path, *shape(first), *keys(first), family=family) as recorder:
        wire.send(frames)
        ended = recorder.wait_for_packets(len(frames)).interrupt().succeeded()
    recording = Recording(path)
    ExpectedUdPackets([f for number in range(10) for f in first.frames(number)], (), 0, first.packets).check(
        recording, first
    )
    check_drops(ended, unknown_stream=10 * first.packets)
    check_balanced(ended, recording)
    verify(path)


def test_two_senders_are_two_links_of_one_event(cable, wire, tmp_path):
    path = tmp_path / "run.h5"
    senders = [
        UdSender(endpoint(cable, wire, 4, port=50000 + link), qp=0x2B67 + link, stream=link, seed=link)
        for link in range(2)
    ]
    frames = []
    for number in range(12):
        for link, sender in enumerate(senders):
            packets = list(sender.frames(number))
            frames += packets[:2] if (link, number) == (1, 5) else packets
    flags = ("--links", 2, "--pool", "64MiB")
    with listener(cable, "ud", path, *shape(senders[0]), *keys(senders[0]), *flags) as recorder:
        wire.send(frames)
        ended = recorder.wait_for_packets(len(frames)).interrupt().succeeded()
    recording = Recording(path)
    assert ended["shots_complete"] == 23 and ended["shots_partial"] == 1, ended
    for link, sender in enumerate(senders):
        present = np.ones((12, sender.packets), bool)
        present[5, 2:] = link == 0
        assert np.array_equal(recording.presence(link), present)
        for row in range(12):
            expected = zero_missing_packets(sender.values(row), present[row], 1)
            assert np.array_equal(recording.rf[link][row], expected), (link, row)
    check_balanced(ended, recording)
    verify(path)


# --- tcpreplay ---------------------------------------------------------------------------------------


@BOTH_FAMILIES
def test_a_capture_of_shots_is_replayed_into_a_recording(cable, wire, tmp_path, family):
    need_root("tcpreplay")
    path, capture = tmp_path / "run.h5", tmp_path / "shots.pcap"
    sender = UdSender(endpoint(cable, wire, family), 96, 500)
    frames = [frame for number in range(15) for frame in sender.frames(number)]
    write_pcap(capture, frames)
    with listener(cable, "ud", path, *shape(sender), *keys(sender), family=family) as recorder:
        wire.replay(capture)
        ended = recorder.wait_for_packets(len(frames)).interrupt().succeeded()
    recording = Recording(path)
    ExpectedUdPackets(frames, (), 0, sender.packets).check(recording, sender)
    assert ended["shots_complete"] == 15 and ended["packets"] == len(frames) and not ended["packet_drops"], ended
    check_balanced(ended, recording)
    verify(path)


def test_a_tcpdump_capture_of_spead2_gives_the_same_recording(cable, wire, tmp_path):
    need_root("tcpreplay", "tcpdump")
    port, size = 7148, 200_000
    paths = [tmp_path / "live.h5", tmp_path / "replayed.h5"]
    capture = tmp_path / "spead.pcap"
    host = cable.ipv4[1]
    words = ["tcpdump", "-i", "cable", "-n", "-s", "0", "-B", "65536", "--immediate-mode", "-U", "-w", capture]
    words += [f"udp dst port {port}"]
    tcpdump_command = ["nsenter", f"--net=/run/netns/{cable.names[1]}", *words]
    with subprocess.Popen(tcpdump_command, stderr=subprocess.PIPE, text=True) as tcpdump:
        try:
            assert "listening on cable" in tcpdump.stderr.readline()
            with listener(cable, "spead", paths[0], port=port) as recorder:
                send_with_spead2(port, host=host, netns=cable.names[0], size=size, packet=8972, heaps=20)
                ended = recorder.end().succeeded()
            until(lambda: len(list(RawPcapReader(str(capture)))) >= ended["packets"], what="the whole capture")
        finally:
            tcpdump.send_signal(signal.SIGINT)
    with listener(cable, "spead", paths[1], port=port) as recorder:
        wire.replay(capture)
        again = recorder.end().succeeded()
    for path, report in zip(paths, (ended, again), strict=True):
        recording = Recording(path)
        assert recording.numbers() == list(range(2, 22)) and report["shots_complete"] == 20, report
        for row in range(20):
            assert np.array_equal(recording.rf[0][row].reshape(-1), heap_data(row, size)), (path, row)
        assert report["packets"] == ended["packets"]
        check_balanced(report, recording)
        verify(path)


# --- sensor bridge -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured():
    """The receiver's configuration when a bridge's emulator was captured, and the captured frames by name."""
    need_root(*NETWORK_TOOLS, "tcpreplay")
    if not CAPTURES.exists():
        pytest.skip(f"no captures of a sensor bridge in {CAPTURES}: replays of packets built by scapy are tested")
    frames = {
        name: [frame for frame, _ in RawPcapReader(str(CAPTURES / f"{name}.pcap")) if frame[36:38] == b"\x12\xb7"]
        for name in ("hsb_embedded_64k", "hsb_separate_odd10007")
    }
    with Namespaces() as cable:
        receiver = cable.names[1]
        first = frames["hsb_embedded_64k"][0]
        command("ip", "-n", receiver, "link", "set", "cable", "address", first[:6].hex(":"))
        cable.ipv4 = [".".join(map(str, first[at : at + 4])) for at in (26, 30)]
        command("ip", "-n", receiver, "address", "add", f"{cable.ipv4[1]}/24", "dev", "cable")
        yield cable, frames


def record_replay(cable, frames, path, *arguments):
    """Records frames that tcpreplay sends; returns the recorder's report."""
    capture = path.with_suffix(".pcap")
    write_pcap(capture, frames)
    with Wire(cable) as wire, listener(cable, "hsb", path, *arguments) as recorder:
        wire.replay(capture)
        return recorder.wait_for_packets(len(frames)).interrupt().succeeded()


def check_frames(path, ended, frames, shots, *, first=None):
    """Checks bytes and timestamps of whole frames, and a good ICRC for each packet."""
    recording = Recording(path)
    begin = recording.numbers()[0] if first is None else first
    assert recording.numbers() == list(range(begin, begin + len(shots))), recording.numbers()
    for row, (data, stamp) in enumerate(shots):
        assert np.array_equal(recording.rf[0][row].reshape(-1), data), f"row {row}"
        assert recording.tables[0][row]["stamp_tai_ns"] == stamp, f"row {row}"
    assert ended["shots_complete"] == len(shots) and not ended["packet_drops"], ended
    icrc = ended["icrc"]
    assert icrc["good"] + icrc["solved"] == len(frames) == ended["packets"], icrc
    assert icrc["bad"] == icrc["unverified"] == 0, icrc
    check_balanced(ended, recording)
    verify(path)
    return recording


EMULATOR = pytest.mark.parametrize(
    "name, served", [("hsb_embedded_64k", "served.bin"), ("hsb_separate_odd10007", "served_odd.bin")]
)


@EMULATOR
@pytest.mark.parametrize("pages", [None, 4])
def test_captured_bridge_frames_match_the_served_file(captured, tmp_path, name, served, pages):
    cable, captures = captured
    frames, path = captures[name], tmp_path / "run.h5"
    arguments = () if pages is None else ("--pages", pages)
    ended = record_replay(cable, frames, path, *arguments)
    written = list(BridgeWrites(frames).frames())
    size = len(written[0][1])
    originals = np.fromfile(CAPTURES / served, np.uint8).reshape(-1, size)
    for at, (_, data, _, _) in enumerate(written):
        assert np.array_equal(data, originals[at % len(originals)]), "the capture must hold the frames of the file"
    recording = check_frames(path, ended, frames, [(data, stamp) for _, data, stamp, _ in written], first=1)
    assert recording.links[0]["trailer"] == "hsb_metadata"
    assert recording.links[0]["trailer_apart"] == (name == "hsb_separate_odd10007")


@pytest.mark.parametrize("skipped", [0, 1, 2, 3])
def test_a_ring_is_joined_at_any_page(captured, tmp_path, skipped):
    cable, captures = captured
    frames, path = captures["hsb_separate_odd10007"], tmp_path / "run.h5"
    written = list(BridgeWrites(frames).frames())[skipped:]
    frames = frames[skipped * written[0][3] :]
    ended = record_replay(cable, frames, path)
    check_frames(path, ended, frames, [(data, stamp) for _, data, stamp, _ in written], first=(1 + skipped) % 4)


def test_a_ring_is_joined_within_a_frame(captured, tmp_path):
    cable, captures = captured
    frames, path = captures["hsb_separate_odd10007"], tmp_path / "run.h5"
    written = list(BridgeWrites(frames).frames())[1:]
    ended = record_replay(cable, frames[4:], path)
    recording = Recording(path)
    assert recording.numbers() == list(range(2, 21)), recording.numbers()
    for row, (_, data, stamp, _) in enumerate(written):
        assert np.array_equal(recording.rf[0][row].reshape(-1), data)
        assert recording.tables[0][row]["stamp_tai_ns"] == stamp
    check_drops(ended, before_start=5)
    verify(path)


def check_hsb_with_faults(cable, frames, path, seed, packets, size, *arguments):
    """Records frames with injected faults and checks every row; each packet's shot is known by its PSN."""
    damaged = set()

    def damage(frame, random):
        damaged.add(wrong := corrupted(frame, random))
        return wrong

    faults = Faults(seed, loss=0.03, duplicate=0.03, reorder=0.03, corrupt=0.02, spare=5 * packets, damage=damage)
    sent = faults.apply(frames)
    first = BridgeWrites(frames[:1]).writes[0][0]
    metadata = {end: at for at, (end, *_) in enumerate(BridgeWrites(frames).ends)}
    assert len(metadata) == len(frames) // packets
    base = [page for page, *_ in BridgeWrites(frames).frames()]
    pieces, bad = [], 0
    for frame in sent:
        if frame in damaged:
            bad += 1
            continue
        psn, address, data = BridgeWrites([frame]).writes[0]
        number = (psn - first & 0xFFFFF) // packets
        pieces.append((number, address - base[number], data))
    ended = record_replay(cable, sent, path, "--window", 8, *arguments)
    recording = Recording(path)
    start = recording.numbers()[0]
    oracle = ExpectedBytes([(start + number, *rest) for number, *rest in pieces], size)
    oracle.check(recording, packets)
    assert ended["packets"] == len(sent) and ended["icrc"]["bad"] == bad == faults.corrupted, ended
    check_drops(ended, repeated=oracle.repeated, bad_icrc=bad)
    assert ended["packets_missing"] == faults.lost + faults.corrupted == oracle.missing(packets), ended
    for row, (_, _, stamp, _) in enumerate(BridgeWrites(frames).frames()):
        whole = recording.presence(0)[row][-1]
        assert recording.tables[0][row]["stamp_tai_ns"] == (stamp if whole else 0), row
    check_balanced(ended, recording)
    verify(path)


@SEEDS
@EMULATOR
def test_losses_from_a_captured_bridge_are_reported(captured, tmp_path, name, served, seed):
    cable, captures = captured
    frames = captures[name]
    size, packets = (65_536, 47) if served == "served.bin" else (10_007, 9)
    check_hsb_with_faults(cable, frames, tmp_path / "run.h5", seed, packets, size)


@pytest.mark.parametrize(
    "shape, count",
    [
        ({"size": 300_000, "payload": 8192, "pages": 16, "psn": 0xFFF80, "first_page": 9}, 26),
        ({"size": 200_000, "payload": 4096, "pages": 16, "apart": True, "psn": 0xFFFF0}, 24),
        ({"size": 1000, "payload": 1408, "pages": 5, "first_page": 4}, 30),
        ({"size": 1408, "payload": 1408, "pages": 2, "apart": True}, 20),
    ],
    ids=["embedded", "apart", "one-packet", "two-packets"],
)
def test_frames_of_any_size_in_rings_of_any_length_are_learned(cable, wire, tmp_path, shape, count):
    need_root("tcpreplay")
    path = tmp_path / "run.h5"
    bridge = Bridge(endpoint(cable, wire, 4, port=12288), **shape)
    frames = [frame for number in range(count) for frame in bridge.frames(number)]
    ended = record_replay(cable, frames, path)
    shots = [(bridge.data(number), bridge.stamp(number)) for number in range(count)]
    check_frames(path, ended, frames, shots, first=shape.get("first_page", 0))


def test_faults_in_a_ring_of_16_large_pages_are_reported(cable, wire, tmp_path):
    need_root("tcpreplay")
    bridge = Bridge(endpoint(cable, wire, 4, port=12288), 300_000, 8192, 16, psn=0xFFF80, first_page=3)
    frames = [frame for number in range(26) for frame in bridge.frames(number)]
    check_hsb_with_faults(cable, frames, tmp_path / "run.h5", 5, len(frames) // 26, 300_000, "--pages", 16)


def test_a_ring_of_one_page_is_received_only_with_the_pages_flag(cable, wire, tmp_path):
    need_root("tcpreplay")
    path = tmp_path / "run.h5"
    bridge = Bridge(endpoint(cable, wire, 4, port=12288), 20_000, pages=1)
    frames = [frame for number in range(12) for frame in bridge.frames(number)]
    capture = tmp_path / "frames.pcap"
    write_pcap(capture, frames)
    with Listener("hsb", "--out", path, host=cable.ipv4[1], port=ROCE_PORT, netns=cable.names[1]) as recorder:
        wire.replay(capture)
        until(lambda: not recorder.queued(), what="an empty receive queue")
        line = recorder.interrupt().refused()
    assert "--pages 1" in line and not path.exists(), line
    ended = record_replay(cable, frames, path, "--pages", 1)
    check_frames(path, ended, frames, [(bridge.data(number), bridge.stamp(number)) for number in range(12)], first=0)


def test_a_second_bridge_and_other_packets_change_only_counters(cable, wire, tmp_path):
    need_root("tcpreplay")
    path = tmp_path / "run.h5"
    bridge = Bridge(endpoint(cable, wire, 4, port=12288), 20_000)
    others = [
        Bridge(bridge.endpoint, 20_000, qp=3),  # another queue pair
        Bridge(bridge.endpoint, 20_000, rkey=0x1235),
        Bridge(endpoint(cable, wire, 4, port=12289), 20_000),  # another data plane with the same keys
    ]
    probe = UdSender(bridge.endpoint)
    frames, unrelated_count = [], 0
    for number in range(12):
        frames += list(bridge.frames(number))
        # The others begin only when the recorder has learned the first bridge.
        unrelated = [frame for other in others for frame in other.frames(number)] if number > 4 else []
        unrelated += list(probe.frames(number))
        frames, unrelated_count = frames + unrelated, unrelated_count + len(unrelated)
    ended = record_replay(cable, frames, path)
    recording = Recording(path)
    assert recording.numbers() == list(range(12)) and ended["shots_complete"] == 12, ended
    for row in range(12):
        assert np.array_equal(recording.rf[0][row].reshape(-1), bridge.data(row))
    assert sum(ended["packet_drops"].values()) == unrelated_count, ended
    assert set(ended["packet_drops"]) == {"unknown_stream", "malformed"}, ended
    check_balanced(ended, recording)
    verify(path)
