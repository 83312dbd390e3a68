"""Reliable connections on the wire, judged by independent programs.

`shotline perf` works on a `shotline target` over a cable between two network namespaces, without offloads. tshark
decodes every packet, scapy recomputes every ICRC, and a second target, written from the documents alone, executes the
packets: it must arrive at the same memory and the same answers.
"""

import shutil
import signal
import struct
import subprocess
from dataclasses import dataclass

import pytest
from requirements import need_root
from scapy.config import conf
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.utils import RawPcapReader

from common import WAIT_TIMEOUT_S, Process, run, until

MIB = 1 << 20
PORT, CONTROL = 4791, 47920
TOKEN = "00112233445566778899aabbccddeeff"
SIZE = 10_001  # at least three packets, the last one padded
MTU = {4: 1024, 6: 4096}
PSNS = 1 << 24
VERBS = ("write", "read", "send", "atomic")

# Opcodes of reliable connections (IBTA volume 1, table 38), and the headers that they have.
WRITE = {6: "first", 7: "middle", 8: "last"}
SEND = {0: "first", 1: "middle", 2: "last"}
READ_RESPONSE = {13: "first", 14: "middle", 15: "last", 16: "only"}
READ, ACK, ATOMIC_ACK, FETCH_ADD = 12, 17, 18, 20
RETH, AETH, ATOMIC = {6, READ}, {13, 15, 16, ACK, ATOMIC_ACK}, {FETCH_ADD}

FIELDS = {
    "infiniband.bth.opcode": "opcode",
    "infiniband.bth.padcnt": "pad",
    "infiniband.bth.destqp": "qp",
    "infiniband.bth.a": "ack_request",
    "infiniband.bth.psn": "psn",
    "infiniband.reth.va": "address",
    "infiniband.reth.r_key": "key",
    "infiniband.reth.dmalen": "length",
    "infiniband.aeth.syndrome": "syndrome",
    "infiniband.aeth.msn": "msn",
}


@dataclass
class Packet:
    """A RoCEv2 packet, parsed at its documented offsets. Absent fields are None."""

    raw: bytes  # from the IP header on
    to_target: bool
    opcode: int
    pad: int
    qp: int
    ack_request: int
    psn: int
    payload: bytes
    address: int | None = None
    key: int | None = None
    length: int | None = None
    addend: int | None = None
    syndrome: int | None = None
    msn: int | None = None
    original: int | None = None

    @classmethod
    def of(cls, raw, family, target):
        datagram = raw[(20 if family == 4 else 40) + 8 :]
        opcode, flags, key, qp, psn = struct.unpack_from(">BBHII", datagram)
        assert flags & 0x0F == 0 and key == 0xFFFF and qp >> 24 == 0, (
            "the header version must be 0, the partition the default"
        )
        destination = raw[16:20] if family == 4 else raw[24:40]
        packet = cls(raw, destination == target, opcode, flags >> 4 & 3, qp, psn >> 31, psn & 0xFFFFFF, b"")
        at = 12
        if opcode in RETH:
            packet.address, packet.key, packet.length = struct.unpack_from(">QII", datagram, at)
            at += 16
        if opcode in ATOMIC:
            packet.address, packet.key, packet.addend, _ = struct.unpack_from(">QIQQ", datagram, at)
            at += 28
        if opcode in AETH:
            word = int.from_bytes(datagram[at : at + 4])
            packet.syndrome, packet.msn = word >> 24, word & 0xFFFFFF
            at += 4
        if opcode == ATOMIC_ACK:
            packet.original = int.from_bytes(datagram[at : at + 8])
            at += 8
        packet.payload = datagram[at : len(datagram) - 4 - packet.pad]
        assert (len(datagram) - at) % 4 == 0, "packets must be padded to words"
        return packet

    def parts(self, mtu):
        """Returns the contents of a request by PSN: a READ has as many PSNs as response packets."""
        if self.opcode != READ:
            return {self.psn: (self.opcode, self.address, self.key, self.length, self.addend, self.payload)}
        offsets = range(0, self.length, mtu)
        return {
            (self.psn + index) % PSNS: (READ, self.key, self.address + at, self.length - at)
            for index, at in enumerate(offsets)
        }


class Retransmissions:
    """Recognises retransmitted requests, whose contents must equal those of the first transmission."""

    def __init__(self, mtu):
        self.mtu, self.expected, self.seen = mtu, None, {}

    def __contains__(self, packet):
        parts = packet.parts(self.mtu)
        if self.expected is None or packet.psn == self.expected:
            self.seen |= parts
            self.expected = (packet.psn + len(parts)) % PSNS
            return False
        # On a cable that loses nothing no PSN is skipped.
        assert parts.items() <= self.seen.items(), packet
        return True


class Capture:
    """Every verb in turn, each on its own queue pairs: packets by verb, reports, and the target's memory."""

    def __init__(self, cable, folder, family):
        addresses = cable.ipv4 if family == 4 else cable.ipv6
        initiator, target_host = addresses if family == 4 else [f"[{address}]" for address in addresses]
        self.family, self.memory, self.paths = family, folder / "memory", {}
        self.packets, self.reports = {}, {}
        conf.ipv6_enabled = True
        self.target_address = (IP(dst=addresses[1]) if family == 4 else IPv6(dst=addresses[1])).build()
        self.target_address = self.target_address[16:20] if family == 4 else self.target_address[24:40]
        flags = ["--region", f"memory={MIB},file={self.memory},rights=atomic", "--messages", "--json"]
        flags += [
            "--bind",
            f"{target_host}:{PORT}",
            "--listen",
            f"{target_host}:{CONTROL}",
            "--token",
            TOKEN,
            "--mtu",
            MTU[family],
        ]
        with Process("target", *flags, netns=cable.names[1]) as target:
            line = ""
            while "waits for initiators" not in line:
                line = target.popen.stderr.readline()
                assert line, "the target did not start"
            for verb in VERBS:
                self.paths[verb] = folder / f"{verb}.pcap"
                flags = [
                    "--to",
                    f"{target_host}:{CONTROL}",
                    "--token",
                    TOKEN,
                    "--bind",
                    f"{initiator}:{PORT}",
                    "--mtu",
                    MTU[family],
                ]
                flags += ["--size", 8 if verb == "atomic" else SIZE, "--group", 3, "--seconds", 0.01, "--json"]
                self.measure(cable, verb, flags)
            self.ended = target.interrupt().succeeded()

    def measure(self, cable, verb, flags):
        tcpdump = ["tcpdump", "-i", "cable", "-n", "-s", "0", "-B", "65536", "--immediate-mode", "-U", "-w"]
        with subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{cable.names[1]}", *tcpdump, self.paths[verb], f"udp port {PORT}"],
            stderr=subprocess.PIPE,
            text=True,
        ) as tcpdump:
            try:
                line = tcpdump.stderr.readline()
                assert "listening on cable" in line, line
                self.reports[verb] = run("perf", verb, *flags, netns=cable.names[0]).succeeded()
                operations = self.reports[verb]["operations"]
                answers = {"write": None, "send": None, "read": (15, 16), "atomic": (ATOMIC_ACK,)}[verb]

                def is_complete():
                    packets = self.read(verb)
                    if answers is None:
                        acked = [packet.msn for packet in packets if packet.opcode == ACK]
                        return acked and acked[-1] >= operations
                    return len({packet.psn for packet in packets if packet.opcode in answers}) >= operations

                until(is_complete, f"the last answer of {verb} in the capture")
            finally:
                tcpdump.send_signal(signal.SIGINT)
        self.packets[verb] = self.read(verb)

    def read(self, verb):
        frames = [frame[14:] for frame, _ in RawPcapReader(str(self.paths[verb]))]
        return [Packet.of(frame, self.family, self.target_address) for frame in frames]


@pytest.fixture(scope="module")
def captured(cable, tmp_path_factory):
    """Returns a function that captures all verbs over IPv4 or IPv6, each family once."""
    need_root("tcpdump", "tshark")
    captures = {}

    def capture(family):
        if family not in captures:
            captures[family] = Capture(cable, tmp_path_factory.mktemp("wire"), family)
        return captures[family]

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


BOTH_FAMILIES = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
EACH_VERB = pytest.mark.parametrize("verb", VERBS)


@BOTH_FAMILIES
@EACH_VERB
def test_tshark_decodes_every_packet_as_documented(captured, family, verb):
    capture = captured(family)
    packets = capture.packets[verb]
    lines = tshark(capture.paths[verb], "-T", "fields", *(word for field in FIELDS for word in ("-e", field)))
    assert len(lines) == len(packets) >= 6
    for line, packet in zip(lines, packets, strict=True):
        row = dict(zip(FIELDS.values(), line.split("\t"), strict=True))
        words = {"True": 1, "False": 0, "": None}
        decoded = {name: words[text] if text in words else int(text, 0) for name, text in row.items()}
        if packet.opcode in ATOMIC:
            decoded["address"], decoded["key"] = (
                packet.address,
                packet.key,
            )  # tshark attributes these to a RETH, or omits them
        assert decoded == {name: getattr(packet, name) for name in row}, line


@BOTH_FAMILIES
@EACH_VERB
def test_tshark_reports_no_problem(captured, family, verb):
    options = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    wrong = "_ws.malformed or udp.checksum.status == 0 or ip.checksum.status == 0 or _ws.expert.severity >= 6291456"
    assert not tshark(captured(family).paths[verb], *options, "-Y", wrong)


@BOTH_FAMILIES
@EACH_VERB
def test_scapy_confirms_every_icrc(captured, family, verb):
    layer = IP if family == 4 else IPv6
    packets = captured(family).packets[verb]
    for packet in packets:
        assert packet.raw[-4:] == layer(packet.raw)[BTH].compute_icrc(b""), packet
    # A check that accepts everything proves nothing.
    broken = bytearray(packets[0].raw)
    broken[-9] ^= 1
    assert layer(bytes(broken))[BTH].compute_icrc(b"") != bytes(broken[-4:])


@BOTH_FAMILIES
@EACH_VERB
def test_packets_are_numbered_and_segmented_as_the_ibta_requires(captured, family, verb):
    capture = captured(family)
    retransmissions = Retransmissions(MTU[family])
    requests = [packet for packet in capture.packets[verb] if packet.to_target and packet not in retransmissions]
    assert len({packet.qp for packet in requests}) == 1
    expected = requests[0].psn
    parts = {"write": WRITE, "send": SEND}.get(verb)
    mtu, before = MTU[family], "last"
    for packet in requests:
        assert packet.psn == expected, packet
        if verb == "read":
            assert (packet.opcode, packet.length, packet.payload) == (READ, SIZE, b"")
            expected += -(-packet.length // mtu)  # one PSN for each response packet
        elif verb == "atomic":
            assert (packet.opcode, packet.payload) == (FETCH_ADD, b"") and packet.address % 8 == 0
            expected += 1
        else:
            part = parts[packet.opcode]
            assert (part == "first") == (before == "last"), packet
            assert len(packet.payload) == (SIZE % mtu if part == "last" else mtu), packet
            assert packet.pad == (-SIZE % 4 if part == "last" else 0), packet
            expected, before = expected + 1, part
        expected %= PSNS


@BOTH_FAMILIES
def test_an_independent_target_gets_the_same_memory_and_answers(captured, family):
    capture = captured(family)
    memory, mtu = bytearray(MIB), MTU[family]
    for verb in VERBS:
        done = {}  # PSN -> number of requests that are complete with it
        answers = {}  # PSN -> expected answer
        outstanding, repeatable = set(), set()  # PSNs of outstanding answers, and of those that may be repeated
        complete, at, end = 0, None, None
        answered = 0
        retransmissions = Retransmissions(mtu)
        for packet in capture.packets[verb]:
            if packet.to_target and packet in retransmissions:
                repeatable |= set(packet.parts(mtu)) & set(answers)
                continue
            if packet.to_target:
                if packet.opcode in WRITE:
                    if packet.address is not None:
                        at, end = packet.address, packet.address + packet.length
                    memory[at : at + len(packet.payload)] = packet.payload
                    at += len(packet.payload)
                    assert (WRITE[packet.opcode] == "last") == (at == end)
                last = packet.psn
                if packet.opcode == READ:
                    data = bytes(memory[packet.address : packet.address + packet.length])
                    cut = [data[offset : offset + mtu] for offset in range(0, len(data), mtu)]
                    expected_answers = {(packet.psn + index) % PSNS: part for index, part in enumerate(cut)}
                    answers |= expected_answers
                    outstanding |= set(expected_answers)
                    last = (packet.psn + len(cut) - 1) % PSNS
                if packet.opcode == FETCH_ADD:
                    word = slice(packet.address, packet.address + 8)
                    original = int.from_bytes(memory[word], "little")
                    memory[word] = ((original + packet.addend) % (1 << 64)).to_bytes(8, "little")
                    answers[packet.psn] = original
                    outstanding.add(packet.psn)
                if packet.opcode in (READ, FETCH_ADD) or "last" in (WRITE.get(packet.opcode), SEND.get(packet.opcode)):
                    complete += 1
                done[last] = complete
                continue
            if packet.syndrome is not None:
                assert packet.syndrome >> 5 == 0, "nothing may be refused"
            if packet.opcode in READ_RESPONSE or packet.opcode == ATOMIC_ACK:
                found = packet.original if packet.opcode == ATOMIC_ACK else packet.payload
                assert packet.psn in outstanding | repeatable and found == answers[packet.psn], packet
                outstanding.discard(packet.psn)
            if packet.opcode in (ACK, 15, 16, ATOMIC_ACK):
                # Reads and atomics count once they are accepted, before their answer is sent.
                accepted = range(done[packet.psn], complete + 1)
                assert packet.msn in (accepted if verb in ("read", "atomic") else [done[packet.psn]]), packet
                answered = packet.msn
        assert not outstanding and answered == complete == capture.reports[verb]["operations"], verb
    assert capture.memory.read_bytes() == memory
    region = capture.ended["regions"][0]
    assert region["writes"] == capture.reports["write"]["operations"]
    assert region["bytes_out"] == capture.reports["read"]["bytes"]
    assert region["atomics"] == capture.reports["atomic"]["operations"]
    assert not capture.ended["endpoint"]["drops"] and not capture.ended["queue_pairs"]["drops"]
