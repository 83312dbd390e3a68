"""Packet captures: written so that other programs can read them, and replayed datagram by datagram."""

import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import threading

import numpy as np
import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, PcapReader, PcapWriter
from senders.listen import Listener, free_port
from test_replay import CAPTURES, LONG_TIMEOUT, SMALL, check_same, record_probe, send_replay

from common import WAIT_TIMEOUT_S, Probe, Recorder, Recording, check_balanced, record, run, until

SO_RCVBUFFORCE = 33  # permitted for root
PACE = 0.02  # seconds between datagrams


class Sink:
    """A socket that keeps every received datagram."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.05)
        self.to = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.received, self.ending = [], False
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        self.socket.close()

    def work(self):
        while not self.ending:
            with contextlib.suppress(TimeoutError):
                self.received.append(self.socket.recv(1 << 16))

    def take(self, count):
        """Waits for this many datagrams and returns them in the order of their arrival."""
        until(lambda: len(self.received) >= count, what=f"{count} datagrams")
        taken, self.received = self.received[:count], self.received[count:]
        return taken


def udp_payloads(path):
    """Returns the payloads of a capture by destination, read by scapy."""
    flows = {}
    with PcapReader(str(path)) as reader:
        for packet in reader:
            if UDP in packet and IP in packet:
                flow = f"{packet[IP].dst}:{packet[UDP].dport}"
                flows.setdefault(flow, []).append(bytes(packet[UDP])[8 : packet[UDP].len])
    return flows


@pytest.mark.parametrize("name", ["trex_imix", "trex_hlt_imix_4rates", "trex_rtp_160k", "trex_udp_rand_len_9k"])
def test_flows_of_foreign_captures_are_sent_byte_for_byte(name):
    path = CAPTURES / "net" / f"{name}.pcap"
    if not path.exists():
        pytest.skip(f"no captures in {path.parent}: captures written by scapy are replayed")
    flows = udp_payloads(path)
    largest = max(flows, key=lambda flow: sum(map(len, flows[flow])))
    for flow in [largest, *list(flows)[:2]]:
        with Sink() as sink:
            report = send_replay(path, "--to", sink.to, "--max", "--flow", flow)
            assert sink.take(len(flows[flow])) == flows[flow]
        assert report["datagrams"] == len(flows[flow]) and report["flow"] == flow, report
        assert report["other_flows"] == sum(map(len, flows.values())) - len(flows[flow]), report


def write_capture(path, frames, nanoseconds=False, pcapng=False):
    """Writes (frame, time) pairs into a capture with scapy."""
    for frame, at in frames:
        frame.time = at
    writer = PcapNgWriter(str(path)) if pcapng else PcapWriter(str(path), nano=nanoseconds, linktype=1)
    with writer:
        for frame, _ in frames:
            writer.write(frame)


def frames_of(count, port=5000):
    head = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2")
    return [head / UDP(sport=9, dport=port) / Raw(bytes([at % 256]) * (40 + at)) for at in range(count)]


@pytest.mark.parametrize("kind", ["microseconds", "nanoseconds", "pcapng"])
def test_every_capture_format_is_replayed_at_its_recorded_pace(tmp_path, kind):
    path, slow = tmp_path / "capture", tmp_path / "slow"
    flags = kind == "nanoseconds", kind == "pcapng"
    payloads = [bytes([at % 256]) * (40 + at) for at in range(10)]
    write_capture(path, [(frame, 1e9 + PACE * at) for at, frame in enumerate(frames_of(10))], *flags)
    with Sink() as sink:
        report = send_replay(path, "--to", sink.to)
        assert sink.take(10) == payloads
    assert report["seconds"] > 9 * PACE * 0.95, "datagrams may be late, never early"
    # At its recorded pace this one would take half a year.
    write_capture(slow, [(frame, 1e9 + 1e8 * PACE * at) for at, frame in enumerate(frames_of(10))], *flags)
    with Sink() as sink:
        report = send_replay(slow, "--to", sink.to, "--speed", 1e8)
        assert sink.take(10) == payloads
    assert report["seconds"] > 9 * PACE * 0.95, "not faster than the requested pace"


def test_frames_that_cannot_be_sent_are_skipped_and_counted(tmp_path):
    path = tmp_path / "capture.pcap"
    good = frames_of(10)
    tagged = Ether() / Dot1Q(vlan=7) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=9, dport=5000) / Raw(b"tagged")
    pieces = fragment(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=9, dport=5000) / Raw(bytes(4000)), 1480)
    others = [Ether() / ARP(), Ether() / IP() / TCP()]
    with PcapWriter(str(path), linktype=1) as writer:
        for frame in [*good, tagged, *others, *[Ether() / piece for piece in pieces]]:
            writer.write(frame)
    short = bytes(good[0])
    with open(path, "ab") as file:  # truncated by a snapshot length of 50
        file.write(struct.pack("=IIII", 1, 0, 50, len(short)) + short[:50])
    with Sink() as sink:
        report = send_replay(path, "--to", sink.to, "--max")
        assert sink.take(11)[-1] == b"tagged"
    assert report["datagrams"] == 11, report
    assert report["skipped"] == {"fragment": len(pieces), "other": 2, "truncated": 1}, report


def test_a_truncated_capture_is_sent_up_to_the_damage(tmp_path):
    path = tmp_path / "capture.pcap"
    write_capture(path, [(frame, 1e9) for frame in frames_of(20)])
    path.write_bytes(path.read_bytes()[:-30])
    with Sink() as sink:
        ended = run("replay", path, "--json", "--to", sink.to, "--max")
        assert len(sink.take(19)) == 19
    assert ended.json["datagrams"] == 19 and "ends within a block" in ended.json["damage"], ended.stdout
    assert ended.code == 1, "less was sent than requested"
    (line,) = ended.stderr.splitlines()
    assert "capture.pcap" in line and "ends within a block" in line, line


def test_captures_that_cannot_be_replayed_are_refused(tmp_path):
    to = f"127.0.0.1:{free_port()}"
    nothing = tmp_path / "nothing.pcap"
    write_capture(nothing, [])
    flow = tmp_path / "flow.pcap"
    write_capture(flow, [(frame, 1e9) for frame in frames_of(3)])
    for arguments, words in [
        ((nothing, "--to", to), "no complete UDP datagram"),
        ((flow,), "--to ADDRESS:PORT"),
        ((flow, "--to", to, "--flow", "10.0.0.9:1"), "10.0.0.2:5000"),
        ((flow, "--to", to, "--loop", 2), "--loop is for recordings"),
        ((flow, "--to", to, "--speed", 0), "positive number"),
    ]:
        line = run("replay", *arguments).refused()
        assert words in line, (arguments, line)


# --- recorded captures -------------------------------------------------------------------------------


def tshark(path, *fields, filter="frame"):
    """Returns fields of a capture's packets, as Wireshark decodes them."""
    need_tools("tshark")
    columns = [word for field in fields for word in ("-e", field)]
    words = ["tshark", "-r", path, "-Y", filter, "-T", "fields", "-E", "occurrence=f", *columns]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def need_tools(*tools):
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: scripts/setup.sh test installs what Debian has")


def packets_of(recording):
    return sum(int(table["placed"].sum()) for table in recording.tables)


def check_capture(path, recording, framing):
    """Checks that Wireshark, scapy and `inspect` find the packets of a recording, each with a correct ICRC."""
    expected = packets_of(recording)
    inspected = run("inspect", path, "--json").succeeded()
    assert inspected["damage"] is None and inspected["frames"] == expected, inspected
    for link, flow in enumerate(inspected["flows"]):
        states = recording.tables[link]["state"]
        assert flow["framing"] == framing, flow
        assert flow["shots"]["complete"] == int((states == 2).sum()), flow
        assert flow["packets"] == int(recording.tables[link]["placed"].sum()), flow
        if framing != "udp":
            assert flow["icrc"]["good"] == flow["packets"], flow
    rows = tshark(path, "frame.time_epoch", "frame.interface_id", "frame.protocols", "udp.checksum.status")
    assert len(rows) == expected
    # Wireshark guesses the protocol of a payload, and may guess wrong.
    roce = [":udp:infiniband" in row[2] for row in rows]
    assert not any(roce) if framing == "udp" else all(roce), {row[2] for row in rows}
    times = [[] for _ in recording.tables]
    for time_epoch, interface, *_ in rows:
        times[int(interface)].append(time_epoch)
    return times


def count_correct_icrcs(path):
    """Returns the number of packets whose ICRC equals scapy's."""
    correct = 0
    with PcapReader(str(path)) as reader:
        for packet in reader:
            ip = IPv6 if IPv6 in packet else IP
            assert BTH in packet, packet.summary()
            icrc = bytes(packet[BTH])[-4:]
            correct += packet[BTH].compute_icrc(bytes(packet[ip])) == icrc
    return correct


@pytest.mark.parametrize("framing", ["ud", "counted", "udp"])
def test_wireshark_scapy_and_replay_read_a_recorded_capture(loopback_netns, tmp_path, framing):
    capture, again = tmp_path / "run.pcapng", tmp_path / "again.h5"
    with Probe(*SMALL, "--pace", "500hz", "--loss", 0.02, "--seed", 5, netns=loopback_netns) as probe:
        flags = ("--samples", 700, "--shots", 40, "--framing", framing, *LONG_TIMEOUT)
        # The port by which other programs recognise RoCE.
        bind = "[::1]:47911" if framing == "udp" else "[::1]:4791"
        ended = record(probe, *flags, "--out", capture, bind=bind, netns=loopback_netns).succeeded()
    check_balanced(ended)
    assert ended["file"] == str(capture) and ended["shots_complete"] > 40 and ended["packets_missing"], ended
    inspected = run("inspect", capture, "--json").succeeded()
    assert inspected["frames"] == ended["packets"], inspected
    assert sum(flow["shots"]["complete"] for flow in inspected["flows"]) == ended["shots_complete"], inspected
    if framing == "udp":
        bad = tshark(capture, "frame.number", filter="udp.checksum.status == 0")
        assert not bad and len(tshark(capture, "frame.number", filter="udp.checksum != 0")) == ended["packets"]
    else:
        assert len(tshark(capture, "frame.number", filter="infiniband")) == ended["packets"]
        assert count_correct_icrcs(capture) == ended["packets"]
    if framing == "counted":
        return  # only set-up gives a receiver the first sequence number
    # The first of the two links: their queue pairs are random, so they are not adjacent.
    flow = min(inspected["flows"], key=lambda flow: flow.get("stream", flow["source"]))
    keys = ("--queue-pair", flow["dest_qp"], "--q-key", 0x11111111) if framing == "ud" else ()
    shape = ("--channels", 16, "--samples", 700, "--progress", *LONG_TIMEOUT)
    with Listener(framing, "--out", again, *shape, *keys) as recorder:
        assert send_replay(capture, "--to", f"127.0.0.1:{recorder.port}", "--gbps", 1)["datagrams"] == ended["packets"]
        report = recorder.wait_for_packets(ended["packets"]).interrupt().succeeded()
    replayed = Recording(again)
    assert int(replayed.tables[0]["placed"].sum()) == flow["packets"], report
    assert report["packet_drops"] == {"unknown_stream": ended["packets"] - flow["packets"]}, report


def test_capture_times_are_kernel_times_in_utc_nanoseconds(lossy):
    _, recording, capture = lossy
    times = check_capture(capture, recording, "ud")
    for link, table in enumerate(recording.tables):
        arrived = [int(ns) - 37 * 10**9 for ns in np.repeat(table["arrived_tai_ns"], table["placed"])]
        assert [int(text.replace(".", "")) for text in times[link]] == arrived, link


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """Two links, 12 bits, with packets lost and corrupted; the recording, and its export as a capture."""
    path = tmp_path_factory.mktemp("holes") / "run.h5"
    _, recording = record_probe(path, *SMALL, "--loss", 0.03, "--corrupt", 0.02, shots=60)
    capture = path.with_suffix(".pcapng")
    run("export", path, capture, "--json").succeeded()
    return path, recording, capture


def test_an_exported_capture_replays_to_the_same_recording(lossy, tmp_path):
    (_, recording, capture), again = lossy, tmp_path / "again.h5"
    packets = packets_of(recording)
    assert count_correct_icrcs(capture) == packets
    shape = (
        "--links",
        2,
        "--channels",
        16,
        "--samples",
        700,
        "--sample-rate-hz",
        40_000_000,
        "--progress",
        *LONG_TIMEOUT,
    )
    keys = ("--queue-pair", 0x100, "--q-key", 0x11111111)
    with Listener("ud", "--out", again, *shape, *keys) as recorder:
        send_replay(capture, "--to", f"127.0.0.1:{recorder.port}", "--gbps", 1)
        recorder.wait_for_packets(packets).interrupt().succeeded()
    check_same(Recording(again), recording)


def test_interface_statistics_count_received_and_dropped_packets(tmp_path):
    capture = tmp_path / "run.pcapng"
    with Probe(*SMALL, "--pace", "500hz", "--loss", 0.02, "--corrupt", 0.02, "--seed", 5) as probe:
        flags = ("--samples", 700, "--shots", 100, *LONG_TIMEOUT, "--out", capture)
        ended = record(probe, *flags).succeeded()
    blocks = list(blocks_of(capture))
    assert [kind for kind, _ in blocks[:3]] == [0x0A0D0D0A, 1, 1]
    assert [kind for kind, _ in blocks[-2:]] == [5, 5] and {kind for kind, _ in blocks[3:-2]} == {6}
    totals = dict.fromkeys((4, 5, 6, 7), 0)
    for _, body in blocks[-2:]:
        options = options_of(body[12:])
        comment = options[1].decode()
        assert f"arrived for no link, bad_icrc: {ended['packet_drops']['bad_icrc']}" in comment, comment
        assert "never arrived: " in comment, comment
        for code in totals:
            totals[code] += struct.unpack("<Q", options[code])[0]
    dropped = sum(ended["packet_drops"].values())
    assert totals[4] == ended["packets"] - dropped, "a packet with a wrong ICRC belongs to no link"
    assert totals[5] == ended["packets_missing"] and totals[6] == ended["packets"] - dropped and totals[7] == 0, totals
    for _, body in blocks[1:3]:
        options = options_of(body[8:])
        assert options[9] == b"\x09" and b"rebuilt" in options[15] and options[11].startswith(b"\0udp and src port"), (
            options
        )


def blocks_of(path):
    """Returns (kind, body) of every block."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        assert length % 4 == 0 and struct.unpack_from("<I", data, at + length - 4)[0] == length
        yield kind, data[at + 8 : at + length - 4]
        at += length


def options_of(data):
    options, at = {}, 0
    while True:
        code, length = struct.unpack_from("<HH", data, at)
        if code == 0:
            return options
        options[code] = data[at + 4 : at + 4 + length]
        at += 4 + (length + 3) // 4 * 4


def test_a_killed_recorder_leaves_a_readable_capture(tmp_path):
    capture = tmp_path / "run.pcapng"
    flags = ("--samples", 700, "--out", capture, *LONG_TIMEOUT)
    with Probe(*SMALL, "--pace", "500hz") as probe, Recorder(probe, *flags) as recorder:
        until(lambda: capture.exists() and capture.stat().st_size > 3_000_000, what="some megabytes")
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    inspected = run("inspect", capture, "--json").succeeded()
    assert inspected["frames"] > 500 and inspected["malformed"] == {}, inspected
    assert sum(1 for _ in PcapReader(str(capture))) == inspected["frames"]
    need_tools("capinfos")
    done = subprocess.run(
        ["capinfos", "-Mc", capture], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False
    )
    assert f"{inspected['frames']}" in done.stdout, done


def test_capture_addresses_are_those_of_the_sockets(loopback_netns, tmp_path):
    for host, bind in (("127.0.0.1", "127.0.0.2"), ("[::1]", "[::1]")):
        capture = tmp_path / f"run{len(host)}.pcapng"
        with Probe(*SMALL, "--pace", "500hz", listen=f"{host}:0", netns=loopback_netns) as probe:
            flags = ("--samples", 700, "--shots", 10, "--out", capture, *LONG_TIMEOUT)
            ended = record(probe, *flags, bind=f"{bind}:4791", netns=loopback_netns).succeeded()
        assert count_correct_icrcs(capture) == ended["packets"]
        flows = run("inspect", capture, "--json").succeeded()["flows"]
        assert all(flow["source"].strip("[]") == host.strip("[]") for flow in flows), flows
        assert all(flow["icrc"]["good"] == flow["packets"] for flow in flows), flows


def test_a_full_disk_leaves_whole_capture_blocks_and_an_error(drive, tmp_path):
    capture = drive(4) / "run.pcapng"
    with Probe(*SMALL, "--pace", "2000hz") as probe:
        flags = ("--samples", 700, "--shots", 2000, "--out", capture, *LONG_TIMEOUT)
        end = record(probe, *flags)
    ended = end.cut_off("recorder-failed")
    # A machine that is busy with other programs loses some before the drive is full.
    assert ended["drops"]["sink_error"] > 0, ended
    counted = ended["shots_complete"] + ended["shots_partial"] + sum(ended["drops"].values())
    assert counted == ended["shots_sent"], ended
    line = ended["ended"]["error"]
    assert "No space left" in line and "run.pcapng" in line and line in end.stderr, line
    inspected = run("inspect", capture, "--json").succeeded()
    assert inspected["damage"] is None and inspected["frames"] > 100, inspected


def test_an_existing_capture_is_replaced_only_with_force(tmp_path):
    capture = tmp_path / "run.pcapng"
    capture.write_text("precious")
    with Probe(*SMALL) as probe:
        flags = ("--samples", 700, "--shots", 5, "--rate-hz", 500, "--out", capture)
        assert "--force" in record(probe, *flags).refused() and capture.read_text() == "precious"
        record(probe, *flags, "--force").succeeded()
    assert run("inspect", capture, "--json").succeeded()["frames"] == 50
