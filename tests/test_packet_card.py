"""`shotline emulate card`: the RTL of the packet card between captures.

Which channel each frame belongs to is computed here from what scapy finds in it; the frames in the channels' files are
compared with those of the capture byte by byte.
"""

import random
import struct
import subprocess
import sys

import pytest
from scapy.all import ARP, IP, TCP, UDP, Dot1Q, Ether, IPv6, Raw
from scapy.utils import PcapReader, PcapWriter, RawPcapNgReader, RawPcapReader, wrpcap

from common import PROGRAM, ROOT, WAIT_TIMEOUT_S, run

CAPTURES = ROOT.parent / "shared" / "data" / "net"
# The key of Microsoft's verification suite for RSS, and the entries of the table of channels.
KEY = int("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa", 16)
ENTRIES, SHORTEST = 1024, 60


@pytest.fixture(scope="module", autouse=True)
def require_rtl():
    """Skips unless the program contains the RTL."""
    done = run("emulate", "card", "--packets", 1, "--json")
    if "built without the RTL" in done.stderr:
        pytest.skip(f"the packet card was not tested: {done.stderr.strip()}")
    assert done.succeeded()["received"] == 1


def toeplitz(data):
    """Returns the Toeplitz hash: 32 bits of the key from each set bit on."""
    value = 0
    for bit in range(8 * len(data)):
        if data[bit // 8] >> (7 - bit % 8) & 1:
            value ^= KEY >> (320 - 32 - bit) & 0xFFFFFFFF
    return value


def hash_of(frame):
    """Returns the hash of a frame, of its addresses, and ports unless it is a fragment."""
    packet = Ether(frame)
    ip = packet.getlayer(IPv6) or packet.getlayer(IP)
    data = b""
    if ip is not None:
        kind = IPv6 if IPv6 in packet else IP
        data = bytes(kind(src=ip.src, dst=ip.dst))
        data = data[8:40] if kind is IPv6 else data[12:20]
        transport = ip.payload if isinstance(ip.payload, (TCP, UDP)) else None
        fragment = kind is IP and (ip.flags.MF or ip.frag)
        if transport is not None and not fragment:
            data += struct.pack(">HH", transport.sport, transport.dport)
    return toeplitz(data)


def channel_of(frame, channels):
    return hash_of(frame) % ENTRIES % channels


def frames_of(path, reader=RawPcapReader):
    with reader(str(path)) as frames:
        return [bytes(frame) for frame, _ in frames]


def check_channels(path, folder, channels):
    """Asserts that each channel's file has the frames of the capture that belong to it, in order. Returns their number."""
    wanted = {channel: [] for channel in range(channels)}
    for frame in frames_of(path):
        frame = frame.ljust(SHORTEST, b"\0")
        wanted[channel_of(frame, channels)].append(frame)
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == [f"channel-{channel:03}.pcapng" for channel in range(channels)]
    for channel, file in enumerate(files):
        assert frames_of(file, RawPcapNgReader) == wanted[channel], f"channel {channel}"
    return sum(map(len, wanted.values()))


def check_balanced(report):
    """Asserts that each frame was received or counted by a cause, in the report and in its channels."""
    assert report["arrived"] == report["received"] + sum(report["dropped"].values()), report
    assert report["received"] == sum(channel["packets"] for channel in report["channels"]), report
    share = report["received"] / report["arrived"]
    assert report["throughput_gbps"] == pytest.approx(report["line_gbps"] * share)


def random_frame(generator):
    """Returns a frame with or without VLAN tags, of IPv4, IPv6 or ARP, TCP, UDP or neither, whole or a fragment."""
    tags = generator.choice([0, 0, 1, 2])
    frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for tag in range(tags):
        frame /= Dot1Q(vlan=tag + 1)
    numbers = [generator.randrange(1, 255) for _ in range(6)]
    ports = {"sport": generator.randrange(65536), "dport": generator.randrange(20000, 65536)}
    transport = generator.choice([TCP(**ports), UDP(**ports), None])
    match generator.randrange(6):
        case 0:
            return frame / ARP()
        case 1 | 2:
            frame /= IPv6(src=f"fd00::{numbers[0]:x}:{numbers[1]:x}", dst=f"fd00::{numbers[2]:x}", nh=59)
            if transport is not None:
                frame[IPv6].nh = 6 if isinstance(transport, TCP) else 17
        case kind:
            proto = 47 if transport is None else 6 if isinstance(transport, TCP) else 17
            flags = "MF" if kind == 3 else "DF"
            frame /= IP(
                src="10.0.{}.{}".format(*numbers), dst="10.1.{2}.{3}".format(*numbers), proto=proto, flags=flags
            )
    payload = Raw(generator.randbytes(generator.choice([0, 1, 30, 500, generator.randrange(8900)])))
    return frame / transport / payload if transport is not None else frame / payload


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture of 400 random frames, 2 us apart."""
    path, generator = tmp_path_factory.mktemp("card") / "random.pcap", random.Random(1)
    with PcapWriter(str(path), nano=True) as writer:
        for number in range(400):
            frame = random_frame(generator)
            frame.time = 1_700_000_000 + number * 2e-6
            writer.write(frame)
    return path


@pytest.mark.parametrize(
    "channels, flags", [(1, []), (7, ["--header-split", 64, "--buffer", 256]), (256, ["--buffer", 9000])]
)
def test_random_frames_reach_the_channels_of_their_hashes(tmp_path, capture, channels, flags):
    out = tmp_path / "out"
    report = run(
        "emulate", "card", "--pcap", capture, "--channels", channels, "--out", out, "--json", *flags
    ).succeeded()
    check_balanced(report)
    assert report["received"] == check_channels(capture, out, channels) == 400
    assert report["throughput_gbps"] == 100 and report["table_entries"] == ENTRIES


def test_real_captures_arrive_whole_in_order(tmp_path):
    captures = sorted(CAPTURES.glob("*.pcap"))
    if not captures:
        pytest.skip("no captures in ../shared/data/net next to the repository")
    for path in captures:
        out = tmp_path / path.stem
        report = run("emulate", "card", "--pcap", path, "--channels", 16, "--out", out, "--json").succeeded()
        check_balanced(report)
        assert report["received"] == check_channels(path, out, 16), path


def test_time_stamps_are_those_of_the_capture(tmp_path, capture):
    out = tmp_path / "out"
    report = run("emulate", "card", "--pcap", capture, "--times", "--channels", 1, "--out", out, "--json").succeeded()
    with PcapReader(str(capture)) as before, RawPcapNgReader(str(out / "channel-000.pcapng")) as after:
        wanted = [int(packet.time * 10**9) for packet in before]
        found = [(meta.tshigh << 32 | meta.tslow) for _, meta in after]
    # A frame of 9000 bytes takes 0.72 us on the wire.
    assert len(found) == 400 and all(0 <= after - before < 1000 for before, after in zip(wanted, found)), found[:5]
    assert 799e-6 < report["simulated_s"] < 830e-6
    assert run("emulate", "card", "--pcap", capture, "--out", out).refused().endswith("another folder with --out")


def test_overload_counts_each_lost_frame_by_its_cause(tmp_path):
    flags = ["--rate", "200G", "--mix", "64:5,1000:5", "--packets", 4000, "--channels", 3, "--out", tmp_path / "out"]
    report = run("emulate", "card", *flags, "--json").succeeded()
    check_balanced(report)
    assert report["arrived"] == 4000 and report["dropped"]["overflow"] > 500
    files = [frames_of(file, RawPcapNgReader) for file in sorted((tmp_path / "out").iterdir())]
    assert list(map(len, files)) == [channel["packets"] for channel in report["channels"]]
    # A packet of 9000 bytes in buffers of 8 needs more descriptors than the card holds.
    report = run("emulate", "card", "--lengths", 9000, "--packets", 20, "--buffer", 8, "--json").succeeded()
    check_balanced(report)
    assert (report["received"], report["dropped"]) == (0, {"late": 20})


def test_faults_of_the_wire_are_counted_and_nothing_else_is_lost(tmp_path):
    flags = ["--corrupt", 0.1, "--runt", 0.1, "--mix", "64:1,700:1", "--packets", 400]
    report = run("emulate", "card", *flags, "--json").succeeded()
    check_balanced(report)
    dropped = report["dropped"]
    assert set(dropped) == {"error", "runt"} and min(dropped.values()) > 15, report
    assert report["arrived"] == 400


def test_each_length_has_the_rate_of_the_line():
    flags = ["--lengths", "64..9000", "--step", 149, "--packets", 40, "--header-split", 64]
    report = run("emulate", "card", *flags, "--json").succeeded()
    check_balanced(report)
    lengths = report["lengths"]
    assert [entry["length"] for entry in lengths] == list(range(64, 9001, 149))
    assert all(entry["received"] == entry["arrived"] == 40 and entry["throughput_gbps"] == 100 for entry in lengths)
    table = run("emulate", "card", *flags).stdout
    assert "100.0 of 100 Gbit/s" in table and "8855 40 40 100.0 1.0000" in " ".join(table.split())


def test_frames_pass_the_bus_side_and_its_link_whole(tmp_path, capture):
    out = tmp_path / "out"
    flags = ["--pcie", "3x16", "--channels", 5, "--header-split", 64, "--buffer", 512]
    report = run("emulate", "card", "--pcap", capture, *flags, "--out", out, "--json").succeeded()
    check_balanced(report)
    assert report["received"] == check_channels(capture, out, 5) == 400
    assert report["link"] == {"generation": 3, "lanes": 16, "max_payload_bytes": 256}


def test_a_narrow_link_limits_the_card_and_drops_are_counted():
    report = run("emulate", "card", "--pcie", "3x8", "--mix", "1518:1", "--packets", 3000, "--json").succeeded()
    check_balanced(report)
    # The link carries 57.6 Gbit/s, and the buffers hold the first frames.
    assert 55 < report["throughput_gbps"] < 70 and set(report["dropped"]) == {"overflow"}
    message = run("emulate", "card", "--pcie", "3x7").stderr
    assert "generation 3 to 5" in message and "3x7" in message


def test_two_modules_share_the_frames_of_two_wires(tmp_path, capture):
    out = tmp_path / "out"
    flags = ["--modules", 2, "--channels", 3, "--out", out]
    report = run("emulate", "card", "--pcap", capture, *flags, "--json").succeeded()
    check_balanced(report)
    assert (report["line_gbps"], report["throughput_gbps"], report["received"]) == (200, 200, 400)
    files = [frames_of(file, RawPcapNgReader) for file in sorted(out.iterdir())]
    assert len(files) == 6 and list(map(len, files)) == [channel["packets"] for channel in report["channels"]]
    for number, frames in enumerate(files):
        assert all(channel_of(frame, 3) == number % 3 for frame in frames), number
    sent = sorted(frame.ljust(SHORTEST, b"\0") for frame in frames_of(capture))
    assert sorted(frame for frames in files for frame in frames) == sent


def test_giant_frames_of_a_capture_are_counted(tmp_path):
    path = tmp_path / "giant.pcap"
    wrpcap(str(path), [Ether(type=0x88B5) / Raw(bytes(length)) for length in (9198, 9199, 20000, 10)])
    report = run("emulate", "card", "--pcap", path, "--json").succeeded()
    check_balanced(report)
    assert (report["received"], report["dropped"]) == (2, {"giant": 2})


def test_a_broken_capture_is_refused_with_the_reason(tmp_path, capture):
    path = tmp_path / "broken.pcap"
    for data, expected in [
        (capture.read_bytes()[:-7], ["whole capture", "its 399 whole frames", "tshark -r"]),
        (b"frames", ["expected a capture", "[66, 72, 61, 6d]", "tcpdump -w"]),
        (b"", ["expected a capture", "[]"]),
        (capture.read_bytes()[:24], ["expected frames, found none"]),
        (capture.read_bytes()[:10], ["header is damaged"]),
        (capture.read_bytes()[:20] + struct.pack("<I", 101) + capture.read_bytes()[24:], ["Ethernet", "RawIp"]),
    ]:
        path.write_bytes(data)
        message = run("emulate", "card", "--pcap", path).refused()
        assert all(words in message for words in [*expected, str(path)]), message
    assert "No such file" in run("emulate", "card", "--pcap", tmp_path / "none").refused()


def test_the_demo_of_the_card_ends_with_verified_yes(tmp_path):
    demo = [sys.executable, ROOT / "hdl" / "scripts" / "demo_card.py", "--program", PROGRAM, "--step", "0", "--out"]
    done = subprocess.run([*demo, tmp_path], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("verified yes"), done.stdout
    assert "received in memory: 500, dropped: 0" in done.stdout
