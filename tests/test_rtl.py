"""The output of the RTL of `hdl/`, judged by independent programs.

`shotline emulate probe --rtl` is the RTL compiled by Verilator. On an interface its frames go over the cable unchanged,
and must pass the same checks as packets that the program itself builds: by tshark, by scapy, by a second parser
written from the documents, and by a recorder. zlib recomputes every ICRC of the simulation's own capture.
"""

import struct
import subprocess
import sys
import xml.dom.minidom
import zlib

import pytest
from requirements import need_root
from scapy.utils import PcapNgReader

# The same tests, with the fixture of this module.
from test_wire import (  # noqa: F401
    FIRST,
    SHOTS,
    Capture,
    test_a_recording_over_a_cable_is_complete_and_correct,
    test_packets_are_not_fragmented_and_fit_the_documented_mtu,
    test_scapy_confirms_every_icrc,
    test_set_up_messages_name_addresses_as_documented,
    test_the_packets_of_a_shot_are_its_documented_bytes,
    test_the_recorder_accepts_every_icrc,
    test_tshark_decodes_every_packet_as_documented,
    tshark_problems,
)

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S, Probe, Recording, check_balanced, check_samples, record, run, verify

ETHERNET, IPV4, IPV6, UDP, ICRC = 14, 20, 40, 8, 4


@pytest.fixture(scope="module", autouse=True)
def require_rtl():
    """Skips unless the program contains the RTL."""
    message = run("emulate", "probe", "--rtl", "--corrupt", 1).refused()
    if "built without the RTL" in message:
        pytest.skip(f"what the RTL sends was not tested: {message}")
    assert "--corrupt" in message


@pytest.fixture(scope="module")
def captured(cable, tmp_path_factory):
    """Captures of raw frames from the RTL, by family and framing, each made once."""
    need_root("tcpdump", "tshark")
    captures = {}

    def capture(family, framing):
        if (family, framing) not in captures:
            folder = tmp_path_factory.mktemp("rtl")
            flags = ["--rtl", "--transport", "packet:cable", "--pcap", folder / "rtl.pcapng"]
            captures[family, framing] = Capture(cable, folder, family, framing, *flags)
            captures[family, framing].simulated = folder / "rtl.pcapng"
        return captures[family, framing]

    return capture


def frames(path):
    with PcapNgReader(str(path)) as reader:
        return [bytes(packet) for packet in reader]


def icrc_by_zlib(frame):
    """Returns the ICRC of a frame by the rules of IBTA annex A17."""
    v4 = frame[12:14] == b"\x08\x00"
    ip = IPV4 if v4 else IPV6
    masked = bytearray(b"\xff" * 8 + frame[ETHERNET:-ICRC])
    variable = [1, 8, 10, 11] if v4 else [1, 2, 3, 7]
    for at in [*variable, ip + 6, ip + 7, ip + UDP + 4]:
        masked[8 + at] = 0xFF
    if not v4:
        masked[8] |= 0x0F
    return struct.pack("<I", zlib.crc32(masked))


@pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("framing", ["ud", "counted", "udp"])
def test_frames_on_the_cable_match_the_rtl_output(captured, family, framing):
    capture = captured(family, framing)
    simulated = frames(capture.simulated)
    assert len(simulated) == 2 * SHOTS * 18
    assert sorted(frame[ETHERNET:] for frame in simulated) == sorted(map(bytes, capture.data))


@pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("framing", ["ud", "counted"])
def test_zlib_confirms_every_icrc_of_the_simulation(captured, family, framing):
    simulated = frames(captured(family, framing).simulated)
    assert [frame[-ICRC:] for frame in simulated] == [icrc_by_zlib(frame) for frame in simulated]
    broken = bytearray(simulated[0])
    broken[-9] ^= 1
    assert icrc_by_zlib(bytes(broken)) != bytes(broken[-ICRC:]), "a check that accepts everything proves nothing"


@pytest.mark.parametrize("framing", ["ud", "counted"])
@pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
def test_tshark_reports_only_the_omitted_udp_checksum_rfc_6935(captured, family, framing):
    lines = tshark_problems(captured(family, framing).path)
    assert set(lines) <= ({"Illegal checksum value (0)"} if family == 6 else set()), set(lines)


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_rtl_shots_are_recorded_sample_by_sample_through_sockets(tmp_path, address):
    """Without privileges: the kernel adds the headers up to UDP, the rest is the RTL's, the ICRC included.

    One probe serves one receiver after the other, each with different keys, framing and shape: registers are rewritten
    between runs, and take effect with the next shot.
    """
    first, sent = FIRST, 0
    shapes = [
        *((framing, 42, 8) for framing in ("ud", "counted", "udp")),  # two packets, and numbers that wrap
        *((framing, 2, 4) for framing in ("ud", "counted", "udp")),  # one packet
        *((framing, 300, 4) for framing in ("udp", "counted", "ud")),  # eleven packets
        ("ud", 2000, 2),
    ]
    with Probe("--rtl", "--first-shot", FIRST, listen=f"{address}:0") as probe:
        # The other address family differs only in what precedes the payloads.
        for framing, samples, shots in shapes if address == "[::1]" else shapes[:3]:
            path = tmp_path / f"{framing}-{samples}.h5"
            flags = ["--framing", framing, "--samples", samples, "--shots", shots, "--rate-hz", 200, "--out", path]
            ended = record(probe, *flags, bind=f"{address}:0").succeeded()
            assert ended["shots_complete"] == ended["shots_sent"] == 2 * shots and not ended["packet_drops"], ended
            if framing != "udp":
                assert ended["icrc"]["good"] == ended["packets"], ended["icrc"]
            recording = Recording(path)
            assert recording.numbers() == list(range(first, first + shots))
            assert check_samples(recording) == shots
            check_balanced(ended, recording)
            verify(path)
            first, sent = first + shots, sent + 2 * shots * shot_bytes(samples)
        report = probe.report()
    assert sum(link["bytes"] for link in report["links"]) == sent


def shot_bytes(samples):
    return -(-samples * 96 * 12 // 8 // 64) * 64 + 64


def test_losses_duplicates_and_late_rtl_packets_are_exact(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--loss", 0.02, "--duplicate", 0.02, "--reorder", 0.02, "--seed", 7, "--list-faults"]
    with Probe("--rtl", "--links", 1, *flags) as probe:
        ended = record(probe, "--samples", 300, "--shots", 40, "--rate-hz", 200, "--out", path).succeeded()
        report = probe.report()
    lost = {(fault["shot"], fault["packet"]) for fault in report["faults"] if fault["fault"] == "lost"}
    recording = Recording(path)
    assert lost and lost == recording.missing(0)
    assert ended["icrc"]["bad"] == 0, ended
    check_samples(recording)
    check_balanced(ended, recording)
    verify(path)


def test_triggered_shots_carry_the_flag_and_event_registers(tmp_path):
    path, simulated = tmp_path / "run.h5", tmp_path / "rtl.pcapng"
    with Probe("--rtl", "--links", 1, "--trigger-hz", 50, "--pcap", simulated) as probe:
        flags = ["--samples", 64, "--shots", 12, "--external-trigger", "--transmit-sequence", "3,1,4", "--out", path]
        record(probe, *flags).succeeded()
        probe.report()
    records = [frame[-64 - ICRC : -ICRC] for frame in frames(simulated) if frame[-64 - ICRC : -60 - ICRC] == b"SHOT"]
    assert [struct.unpack_from(">I", record, 28)[0] for record in records] == [3, 1, 4] * 4
    assert all(flags & 2 for flags in Recording(path).tables[0]["flags"])


def test_the_demo_ends_with_verified_yes_and_draws_the_ports(tmp_path):
    demo = [
        sys.executable,
        ROOT / "hdl" / "scripts" / "demo.py",
        "--program",
        PROGRAM,
        "--out",
        tmp_path,
        "--shots",
        "5",
    ]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("verified yes"), done.stdout
    drawing = xml.dom.minidom.parse(str(tmp_path / "waveform.svg"))
    names = [text.firstChild.data for text in drawing.getElementsByTagName("text") if text.firstChild]
    assert {"m_axis_tvalid", "s_axis_tready", "busy"} <= set(names)
