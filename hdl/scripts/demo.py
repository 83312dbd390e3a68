"""Records shots whose frames the RTL builds, and verifies every sample (`make demo-rtl`).

The emulated probe sends through the RTL, as compiled by Verilator; the recorder is the same as for any probe. The
results are a recording, a capture of the frames that left the RTL, and the waveform of its ports (.vcd for a viewer,
.svg as a picture). The last line of output is `verified yes` if every sample of the recording is right.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from diagrams import draw, read_vcd, sample, trace

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "target" / "rtl"
TIMEOUT_S = 120
FIELDS = {
    "frame": "frame.number",
    "bytes": "frame.len",
    "from": "ipv6.src",
    "port": "udp.srcport",
    "opcode": "infiniband.bth.opcode",
    "last": "infiniband.bth.se",
    "to QP": "infiniband.bth.destqp",
    "PSN": "infiniband.bth.psn",
    "Q_Key": "infiniband.deth.q_key",
    "immediate": "infiniband.immdt",
    "ICRC": "infiniband.invariant.crc",
}
BITS = ["s_axis_tvalid", "s_axis_tready", "s_axis_tlast", "m_axis_tvalid", "m_axis_tready", "m_axis_tlast", "busy"]
BUSES = ["s_axis_tdata", "m_axis_tdata", "m_axis_tkeep"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path(os.environ.get("SHOTLINE_BIN", default_program())))
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--samples", type=int, default=64, help="of each of the 96 channels")
    parser.add_argument("--framing", default="ud", choices=["ud", "counted", "udp"])
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    recording, capture, vcd = (args.out / name for name in ("demo.h5", "frames.pcapng", "ports.vcd"))

    probe = [
        "emulate",
        "probe",
        "--rtl",
        "--links",
        "1",
        "--listen",
        "[::1]:0",
        "--pcap",
        capture,
        "--vcd",
        vcd,
        "--json",
    ]
    with subprocess.Popen(
        [args.program, *probe], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as probe:
        line = probe.stderr.readline()
        if "waits for a receiver" not in line:
            sys.exit(f"demo-rtl: the probe did not start: {line}{probe.stderr.read()}")
        try:
            flags = ["--framing", args.framing, "--samples", args.samples, "--shots", args.shots, "--rate-hz", 50]
            flags += ["--bind", "[::1]:0", "--pool", "16MiB", "--out", recording, "--force", "--json"]
            summary = shotline(args.program, "record", "--probe", line.split()[-1], *flags)
        finally:
            probe.send_signal(2)
            sent = json.loads(probe.communicate(timeout=TIMEOUT_S)[0])
    print(f"sent by the RTL: {sent['links'][0]['packets']} frames of {args.shots} shots")
    print(f"recorded: {summary['shots_complete']} shots complete, {summary['packets_missing']} packets missing", end="")
    print(f", ICRC good {summary['icrc']['good']} of {summary['packets']}")
    print_frames(capture)
    picture = args.out / "waveform.svg"
    picture.write_text(draw(waveform(vcd)))
    print(f"\nframes: {capture}\nwaveform: {picture} (complete: {vcd})\nrecording: {recording}")
    verdict = shotline(args.program, "verify", recording)
    verified = summary["shots_complete"] == args.shots and verdict["verified"]
    compared = sum(link["pattern_packets"] for link in verdict["links"])
    print(f"packets compared with the test pattern, sample by sample: {compared}")
    print("verified yes" if verified and compared else "verified no")
    return 0 if verified and compared else 1


def default_program():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "shotline"


def shotline(program, command, *words):
    """Runs a command and returns its JSON object."""
    words = [program, command, *map(str, words), *(["--json"] if command == "verify" else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"demo-rtl: {command}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def print_frames(capture, count=5):
    """Prints the first frames as tshark decodes them."""
    tshark = shutil.which("tshark")
    if not tshark:
        print("tshark is not installed: run scripts/setup.sh test, or open the capture in Wireshark")
        return
    fields = [word for field in FIELDS.values() for word in ("-e", field)]

    def read(*words):
        words = [tshark, "-r", capture, "-c", str(count), "-T", "fields", *words]
        return subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    # The recorder listens on any free port.
    port = read("-e", "udp.dstport").stdout.split()[0]
    done = read("-o", f"infiniband.rroce.port:{port}", *fields)
    rows = [list(FIELDS), *(line.split("\t") for line in done.stdout.splitlines())]
    # tshark shows some fields twice, raw and decoded.
    rows = [[cell.split(",")[0] for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(FIELDS))]
    print(f"the first frames, decoded by {tshark}:")
    for row in rows:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def waveform(vcd):
    """Returns the ports of the RTL during the first frame as a WaveJSON diagram."""
    sampled = sample(read_vcd(vcd, {"clk", *BITS, *BUSES}), "clk")
    first = next(cycle for cycle, value in enumerate(sampled["s_axis_tvalid"]) if value == "1")
    out = next(cycle for cycle, value in enumerate(sampled["m_axis_tvalid"]) if value == "1")
    windows = [(max(first - 2, 0), 8), (out - 2, 14)]
    if windows[0][0] + windows[0][1] >= windows[1][0]:
        windows = [(windows[0][0], out + 12 - windows[0][0])]

    def head(value):
        """Returns the first bytes on the wire: lane 0 first."""
        return int(value or "0", 2).to_bytes(64, "little")[:3].hex()

    def valid_bytes(value):
        return str(value.count("1"))

    lines = [(name, None, None) for name in BITS]
    lines[3:3] = [("s_axis_tdata", head, "s_axis_tvalid")]
    lines[7:7] = [("m_axis_tdata", head, "m_axis_tvalid"), ("m_axis_tkeep", valid_bytes, "m_axis_tvalid")]
    return {
        "head": {"text": "roce_ud_tx: the first words of a shot in, the first words of a frame out"},
        "signal": trace(sampled, lines, windows),
        "foot": {
            "text": "tdata: first three bytes on the wire; tkeep: valid bytes. A frame leaves with its payload complete."
        },
    }


if __name__ == "__main__":
    sys.exit(main())
