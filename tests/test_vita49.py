"""VITA 49 packets, judged by tshark: it decodes what `shotline_wire::vita49` encodes."""

import shutil
import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.utils import wrpcap

from common import PROGRAM, WAIT_TIMEOUT_S

EXAMPLE = Path(PROGRAM).resolve().parent / "examples" / "vita49"
PORT = 4991
PACKETS = 65


def test_tshark_decodes_data_and_context_packets_as_encoded(tmp_path):
    if not shutil.which("tshark"):
        pytest.skip("needs tshark: scripts/setup.sh test installs it")
    if not EXAMPLE.exists():
        pytest.skip(f"needs {EXAMPLE}: cargo build --package shotline-wire --examples")
    ran = subprocess.run([EXAMPLE], check=True, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S)
    lines = ran.stdout.splitlines()
    assert len(lines) == PACKETS
    packets, expected = zip(*(line.split(" ", 1) for line in lines), strict=True)
    expected = [dict(field.split("=") for field in encoded.split()) for encoded in expected]
    capture = tmp_path / "vita49.pcap"
    frames = [IP(dst="127.0.0.1") / UDP(sport=PORT, dport=PORT) / bytes.fromhex(packet) for packet in packets]
    wrpcap(str(capture), frames)

    names = sorted({name for encoded in expected for name in encoded} | {"_ws.malformed"})
    command = ["tshark", "-r", capture, "-d", f"udp.port=={PORT},vrt", "-T", "fields", "-E", "separator=|"]
    command += [word for name in names for word in ("-e", name)]
    out = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S
    ).stdout.splitlines()
    assert len(out) == PACKETS
    for line, encoded in zip(out, expected, strict=True):
        read = {name: value for name, value in zip(names, line.split("|"), strict=True) if value}
        assert "_ws.malformed" not in read, line
        for name, value in encoded.items():
            assert number(read.get(name)) == number(value), (name, read, encoded)
        # No other field may be present, except those that a kind always has.
        if encoded["vrt.type"] != "4":
            assert set(read) == set(encoded), (read, encoded)


def number(text):
    """Returns a number in any notation as a number; other text as it is."""
    try:
        return int(text, 0)
    except (TypeError, ValueError):
        return text
