"""Packets on the wire, judged by independent programs.

A probe and a recorder communicate over a cable between two network namespaces, without offloads, so that tcpdump sees
what a switch would see. tshark decodes every packet, scapy recomputes every ICRC.
"""

import shutil
import signal
import struct
import subprocess
import time
from ipaddress import ip_address

import pytest
from forge import Replayer
from requirements import need_root
from scapy.config import conf
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader, wrpcap

from common import (
    PACKET,
    PERIOD,
    WAIT_TIMEOUT_S,
    Probe,
    Recorder,
    Recording,
    check_balanced,
    check_samples,
    packed,
    prbs,
    until,
    verify,
)

SHOTS = 12
SAMPLES = 500
SET_UP_PORT = 47910
MANOLITO = 41170  # a port that the kernel may assign, and that Wireshark associates with another protocol
FIRST = (1 << 20) - 6  # the shot number in the immediate wraps
REPLAY_PACKETS = 1000  # number of packets at the beginning of a run of which some are repeated
FIELDS = [
    "frame.number",
    "udp.srcport",
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.immdt",
    "infiniband.invariant.crc",
]


class Link:
    """The parameters of a link in the set-up messages on the wire, parsed at their documented offsets."""

    def __init__(self, reply):
        assert reply[4:7] == bytes([1, 0x82, 0]), reply
        self.number, self.framing, self.packing, self.bits = reply[16:20]
        self.payload, self.port = struct.unpack_from(">HH", reply, 20)
        self.qp, self.q_key, self.stream = struct.unpack_from(">III", reply, 40)
        self.channels, _, self.samples = struct.unpack_from(">HHI", reply, 52)
        self.source_port, _, self.source_qp, self.first_psn = struct.unpack_from(">HHII", reply, 80)
        self.sample_bytes = self.channels * self.samples * 12 // 8
        self.shot_bytes = (self.sample_bytes + 63) // 64 * 64 + 64
        self.packets = (self.shot_bytes + PACKET - 1) // PACKET

    def payload_bytes(self, index):
        return min(PACKET, self.shot_bytes - index * PACKET)


class Capture:
    """A run over the cable and its packets as captured at the receiver's end. `more`: flags of the probe."""

    def __init__(self, cable, folder, family, framing, *more):
        addresses = cable.ipv4 if family == 4 else cable.ipv6
        probe, recorder = addresses if family == 4 else [f"[{address}]" for address in addresses]
        self.path, self.file = folder / "wire.pcap", folder / "run.h5"
        tcpdump = ["tcpdump", "-i", "cable", "-n", "-s", "0", "-B", "65536", "--immediate-mode", "-U", "-w", self.path]
        with subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{cable.names[1]}", *tcpdump, "udp"], stderr=subprocess.PIPE, text=True
        ) as tcpdump:
            try:
                line = tcpdump.stderr.readline()
                assert "listening on cable" in line, line
                flags = ["--first-shot", FIRST, "--samples", SAMPLES, *more]
                with Probe(*flags, listen=f"{probe}:{SET_UP_PORT}", netns=cable.names[0]) as device:
                    port = 47911 if framing == "udp" else 4791
                    flags = ["--framing", framing, "--samples", SAMPLES, "--shots", SHOTS, "--rate-hz", 200]
                    flags += ["--out", self.file]
                    with Recorder(device, *flags, bind=f"{recorder}:{port}", netns=cable.names[1]) as recorder:
                        self.ended = recorder.end().succeeded()
                    self.report = device.report()
                sent = sum(link["packets"] for link in self.report["links"])
                until(lambda: len(self.frames()[0]) >= sent, "all packets in the capture")
            finally:
                tcpdump.send_signal(signal.SIGINT)
        self.family = family
        self.data, setup = self.frames(port)
        self.links, self.first_shot = {}, None
        for message in setup:
            assert len(message) == 128 and message[:4] == b"SHCM"
            if message[5] == 0x82:
                link = Link(message)
                self.links[link.source_port] = link
            if message[5] == 0x83:
                (self.first_shot,) = struct.unpack_from(">Q", message, 16)

    def frames(self, port=None):
        """Returns (IP packets of shots, payloads of set-up messages)."""
        data, setup = [], []
        layer = 4 if port is None else self.family
        for frame, _ in RawPcapReader(str(self.path)):
            packet = frame[14:]
            layer = packet[0] >> 4
            udp = 20 if layer == 4 else 40
            ports = struct.unpack_from(">HH", packet, udp)
            if SET_UP_PORT in ports:
                setup.append(packet[udp + 8 :])
            elif port is None or ports[1] == port:
                data.append(packet)
        return data, setup

    def datagrams(self):
        """Returns (source port, UDP payload) of every shot packet in the order of the wire."""
        header = 20 if self.family == 4 else 40
        for packet in self.data:
            yield struct.unpack_from(">H", packet, header)[0], packet[header + 8 :]


@pytest.fixture(scope="module")
def captured(cable, tmp_path_factory):
    """Captures by family and framing, each made once."""
    need_root("tcpdump", "tshark")
    captures = {}

    def capture(family, framing):
        if (family, framing) not in captures:
            captures[family, framing] = Capture(cable, tmp_path_factory.mktemp("wire"), family, framing)
        return captures[family, framing]

    return capture


def tshark(path, *arguments):
    done = subprocess.run(
        [shutil.which("tshark"), "-r", path, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def tshark_problems(path):
    """Returns the problems that tshark reports in shot packets, one a line.

    Set-up messages are left out: the kernel assigns their second port, and Wireshark dissects them by another protocol
    if it associates one with that port, such as Manolito with 41170.
    """
    options = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    wrong = "_ws.malformed or udp.checksum.status == 0 or ip.checksum.status == 0 or _ws.expert.severity >= 6291456"
    filter = f"udp.dstport == 4791 and ({wrong})"
    return tshark(path, *options, "-Y", filter, "-T", "fields", "-e", "_ws.expert.message")


BOTH_FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
ROCE_FRAMINGS = pytest.mark.parametrize("framing", ["ud", "counted"])
ALL_FRAMINGS = pytest.mark.parametrize("framing", ["ud", "counted", "udp"])


@BOTH_FAMILIES
@ALL_FRAMINGS
def test_a_recording_over_a_cable_is_complete_and_correct(captured, family, framing):
    capture = captured(family, framing)
    ended = capture.ended
    assert ended["shots_sent"] == ended["shots_complete"] == 2 * SHOTS and ended["packets_missing"] == 0, ended
    assert not ended["drops"] and not ended["packet_drops"] and not ended["warnings"], ended
    recording = Recording(capture.file)
    assert recording.numbers() == list(range(FIRST, FIRST + SHOTS))
    assert check_samples(recording) == SHOTS
    check_balanced(ended, recording)
    verify(capture.file)


@BOTH_FAMILIES
@ROCE_FRAMINGS
def test_the_recorder_accepts_every_icrc(captured, family, framing):
    icrc = captured(family, framing).ended["icrc"]
    packets = captured(family, framing).ended["packets"]
    assert icrc["good"] + icrc["solved"] == packets and icrc["bad"] == icrc["unverified"] == 0, icrc
    if family == 6:
        assert icrc["solved"] == 0, icrc


@BOTH_FAMILIES
@ROCE_FRAMINGS
def test_tshark_decodes_every_packet_as_documented(captured, family, framing):
    capture = captured(family, framing)
    fields = [word for field in FIELDS for word in ("-e", field)]
    lines = tshark(capture.path, "-Y", "udp.dstport == 4791", "-T", "fields", *fields)
    assert len(lines) == len(capture.data) == 2 * SHOTS * 18
    assert len(capture.links) == 2
    count = dict.fromkeys(capture.links, 0)
    for line in lines:
        row = dict(zip(FIELDS, line.split("\t"), strict=True))
        link = capture.links[int(row["udp.srcport"])]
        number = count[link.source_port]
        count[link.source_port] += 1
        shot, index = capture.first_shot + number // link.packets, number % link.packets

        def value(field, row=row):
            return int(row[f"infiniband.{field}"], 0)

        assert value("bth.opcode") == (101 if framing == "ud" else 100), row
        assert row["infiniband.bth.se"] in (("1", "True") if index == link.packets - 1 else ("0", "False")), row
        assert value("bth.padcnt") == value("bth.tver") == 0 and value("bth.p_key") == 0xFFFF, row
        assert value("bth.destqp") == link.qp and value("deth.q_key") == link.q_key, row
        assert value("deth.srcqp") == link.source_qp, row
        assert value("bth.psn") == (link.first_psn + number) % (1 << 24), row
        if framing == "ud":
            # tshark lists the field twice, as raw bytes and decoded.
            immediate = {int(word, 16) for word in row["infiniband.immdt"].split(",")}
            assert immediate == {(shot % (1 << 20)) << 12 | index}, row
        headers = 24 if framing == "ud" else 20
        assert int(row["udp.length"]) == 8 + headers + link.payload_bytes(index) + 4, row
        assert row["infiniband.invariant.crc"], row
    assert set(count.values()) == {SHOTS * 18}


@BOTH_FAMILIES
@ROCE_FRAMINGS
def test_tshark_reports_no_problem(captured, family, framing):
    assert not tshark_problems(captured(family, framing).path)


@BOTH_FAMILIES
@ROCE_FRAMINGS
def test_tshark_reports_broken_shots_but_no_set_up_messages(captured, tmp_path, family, framing):
    path = captured(family, framing).path
    frames = [frame for frame, _ in RawPcapReader(str(path))]
    udp = 14 + (20 if family == 4 else 40)
    shot = bytearray(next(frame for frame in frames if frame[udp + 2 : udp + 4] == (4791).to_bytes(2, "big")))
    shot[-9] ^= 1  # the UDP checksum no longer matches
    message = bytearray(next(frame for frame in frames if frame[udp : udp + 2] == SET_UP_PORT.to_bytes(2, "big")))
    message[udp + 2 : udp + 4] = MANOLITO.to_bytes(2, "big")  # a port that the kernel might have assigned
    wrpcap(str(tmp_path / "message.pcap"), [Ether(bytes(message))])
    assert not tshark_problems(tmp_path / "message.pcap")
    wrpcap(str(tmp_path / "both.pcap"), [Ether(bytes(message)), Ether(bytes(shot))])
    assert len(tshark_problems(tmp_path / "both.pcap")) == 1


@BOTH_FAMILIES
@ROCE_FRAMINGS
def test_scapy_confirms_every_icrc(captured, family, framing):
    conf.ipv6_enabled = True
    capture = captured(family, framing)
    for raw in capture.data:
        packet = IP(raw) if family == 4 else IPv6(raw)
        bth = packet[BTH]
        stored = raw[-4:]
        assert stored == bth.compute_icrc(b""), packet.summary()
    # A check that accepts everything proves nothing.
    broken = bytearray(capture.data[0])
    broken[-9] ^= 1
    packet = IP(bytes(broken)) if family == 4 else IPv6(bytes(broken))
    assert packet[BTH].compute_icrc(b"") != bytes(broken[-4:])


@BOTH_FAMILIES
@ALL_FRAMINGS
def test_the_packets_of_a_shot_are_its_documented_bytes(captured, family, framing):
    """Uses a second parser, written from the documents alone."""
    capture = captured(family, framing)
    shots = {}
    count = dict.fromkeys(capture.links, 0)
    for port, datagram in capture.datagrams():
        link = capture.links[port]
        shot, index = divmod(count[port], link.packets)
        shot += capture.first_shot
        count[port] += 1
        if framing == "udp":
            magic, version, flags, zeros, stream, number, offset, payload, whole = struct.unpack_from(
                ">4sBBHIQIII", datagram
            )
            assert (magic, version, zeros, stream) == (b"SHPK", 1, 0, link.stream)
            assert (number, offset, whole) == (shot, index * PACKET, link.shot_bytes)
            assert flags == (index == link.packets - 1) and payload == len(datagram) - 32
            body = datagram[32:]
        else:
            body = datagram[24 if framing == "ud" else 20 : -4]
        assert len(body) == link.payload_bytes(index)
        shots.setdefault((link.stream, shot), bytearray()).extend(body)
    assert len(shots) == 2 * SHOTS
    for (stream, shot), data in shots.items():
        check_shot(capture.links, stream, shot, data)


def check_shot(links, stream, shot, data):
    link = next(link for link in links.values() if link.stream == stream)
    samples = packed(prbs(stream, shot % PERIOD, link.channels, link.samples, link.bits)).tobytes()
    assert data[: len(samples)] == samples, f"shot {shot} of stream {stream}"
    record = bytes(data[-64:])
    assert not any(data[len(samples) : -64]), "padding must be zero"
    magic, version, packing, bits, flags, number, stamp = struct.unpack_from(">4sBBBBQQ", record)
    assert (magic, version, packing, bits, number) == (b"SHOT", 1, 1, 12, shot) and flags & ~3 == 0
    assert abs(stamp / 1e9 - time.time()) < 600, "the stamp must be close to the present time"
    assert struct.unpack_from(">I", record, 24) == (stream,)
    rest = struct.unpack_from(">IIHHI", record, 32)
    assert rest == (link.sample_bytes, link.samples, link.channels, link.packets, 40_000_000)
    assert not any(record[48:60])
    assert crc32_by_document(data[:-4]) == int.from_bytes(record[60:], "little")


TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
    TABLE.append(byte)


def crc32_by_document(data):
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ TABLE[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


@BOTH_FAMILIES
def test_packets_are_not_fragmented_and_fit_the_documented_mtu(captured, family):
    for framing in ("ud", "counted", "udp"):
        for raw in captured(family, framing).data:
            packet = IP(raw) if family == 4 else IPv6(raw)
            assert len(raw) <= 4200 and packet[UDP].len == len(raw) - (20 if family == 4 else 40)
            if family == 4:
                assert packet.flags == "DF" and packet.frag == 0 and packet.ihl == 5
            else:
                assert packet.nh == 17


@BOTH_FAMILIES
def test_set_up_messages_name_addresses_as_documented(captured, family, cable):
    capture = captured(family, "ud")
    probe, recorder = cable.ipv4 if family == 4 else cable.ipv6
    messages = capture.frames(4791)[1]
    replies = [message for message in messages if message[5] == 0x82]
    assert len(replies) == 2

    def mapped(address):
        return ip_address(f"::ffff:{address}" if family == 4 else address).packed

    for reply in replies:
        assert reply[24:40] == mapped(recorder) and reply[64:80] == mapped(probe)
        assert struct.unpack_from(">HH", reply, 20) == (4096, 4791)
        assert struct.unpack_from(">I", reply, 92) == (PERIOD,)
    kinds = [message[5] for message in messages]
    assert kinds[:2] == [1, 0x81] and kinds[2:6] == [2, 0x82, 2, 0x82], kinds


@BOTH_FAMILIES
def test_replayed_and_damaged_packets_change_nothing(cable, tmp_path, family):
    """The repeated packets have no UDP checksum, as those of RoCEv2 senders, and must be accepted."""
    addresses = cable.ipv4 if family == 4 else [f"[{address}]" for address in cable.ipv6]
    path = tmp_path / "run.h5"
    old, sent = [], {"duplicate": 0, "bad_icrc": 0, "late": 0}

    def change(count, frame, udp):
        if count >= REPLAY_PACKETS:
            return
        bare = bytearray(frame)
        bare[udp + 6 : udp + 8] = bytes(2)  # no UDP checksum
        if count == 3:
            old.append(bytes(bare))
        if count % 10 == 1:  # of a shot that is still open
            sent["duplicate"] += 1
            yield bytes(bare)
        if count % 10 == 5:
            sent["bad_icrc"] += 1
            bare[udp + 8 + count % (len(bare) - udp - 8)] ^= 0x10
            bare[udp + 8 + 4] = frame[udp + 8 + 4]  # the one byte that the ICRC does not cover
            yield bytes(bare) if bytes(bare[udp + 8 :]) != frame[udp + 8 :] else frame[:-1] + bytes([frame[-1] ^ 1])
        if count % 100 == 99:
            sent["late"] += 1
            yield old[0]

    with (
        Probe("--samples", SAMPLES, listen=f"{addresses[0]}:{SET_UP_PORT}", netns=cable.names[0]) as device,
        Replayer(cable.names[0], change) as replayer,
    ):
        flags = ["--samples", SAMPLES, "--rate-hz", 200, "--out", path, "--progress"]
        with Recorder(device, *flags, bind=f"{addresses[1]}:4791", netns=cable.names[1]) as recorder:
            until(lambda: replayer.count >= REPLAY_PACKETS, "the packets to be repeated")
            ended = recorder.wait_for_packets(REPLAY_PACKETS + sum(sent.values())).interrupt().succeeded()
        report = device.report()
    assert ended["shots_complete"] == ended["shots_sent"] and ended["packets_missing"] == 0, ended
    assert ended["packets"] == sum(link["packets"] for link in report["links"]) + sum(sent.values()), (ended, sent)
    drops = ended["packet_drops"]
    repeated = drops.get("duplicate", 0) + drops.get("late", 0)
    assert drops["bad_icrc"] == sent["bad_icrc"] and repeated == sent["duplicate"] + sent["late"], (drops, sent)
    assert sum(drops.values()) == sum(sent.values()), (drops, sent)
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording)
    verify(path)
