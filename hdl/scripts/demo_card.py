"""Receives a capture through the RTL of the packet card and draws its throughput over the length (`make demo-dma`).

`shotline emulate card` is the RTL as compiled by Verilator, with a bus and memory. Its results are a capture for each of
16 channels. The last line of output is `verified yes` if each frame of the capture is in one of them.
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "target" / "dma"
CHANNELS, PACKET_BLOCK = 16, 6
TIMEOUT_S = 300


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=Path(os.environ.get("SHOTLINE_BIN", default_program())))
    parser.add_argument("--pcap", type=Path, help="capture (pcapng) instead of 500 generated frames")
    parser.add_argument("--step", type=int, default=5, help="step between lengths of the figure; 0: no figure")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    args = parser.parse_args()
    for name in ("frames", "channels"):
        shutil.rmtree(args.out / name, ignore_errors=True)
    if args.pcap is None:
        # The file of the only channel is a capture.
        card(args.program, "--channels", 1, "--packets", 500, "--out", args.out / "frames")
        args.pcap = args.out / "frames" / "channel-000.pcapng"
    report = card(args.program, "--pcap", args.pcap, "--channels", CHANNELS, "--out", args.out / "channels")
    print(
        f"{args.pcap}: {report['arrived']} frames at {report['line_gbps']:g} Gbit/s, {report['simulated_s'] * 1e6:.1f} us"
    )
    print(f"received in memory: {report['received']}, dropped: {sum(report['dropped'].values())}")
    files = sorted((args.out / "channels").glob("*.pcapng"))
    written = Counter()
    for file in files:
        frames = frames_of(file)
        print(f"  {file.name}: {len(frames):4} frames, {sum(map(len, frames)):7} bytes")
        written.update(frames)
    print_frames(files[0])
    if args.step:
        draw_throughput(args.out / "throughput.svg", args.step)
    # A sender pads short frames.
    verified = written == Counter(frame.ljust(60, b"\0") for frame in frames_of(args.pcap))
    print(f"channels: {args.out / 'channels'}\nverified {'yes' if verified else 'no'}")
    return 0 if verified else 1


def default_program():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "shotline"


def card(program, *words):
    """Runs the simulated card and returns its JSON object."""
    words = [program, "emulate", "card", *map(str, words), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"demo-dma: {done.stderr.strip()}")
    return json.loads(done.stdout)


def frames_of(path):
    """Returns the frames of a pcapng file of this byte order."""
    data, at, frames = path.read_bytes(), 0, []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == PACKET_BLOCK:
            (captured,) = struct.unpack_from("<I", data, at + 20)
            frames.append(data[at + 28 : at + 28 + captured])
        at += size
    return frames


def draw_throughput(figure, step):
    """Draws the throughput of the DMA module over the length, with that of one transaction a clock, as `make bench-dma`."""
    sys.path.append(str(ROOT / "bench"))
    import dma

    curves = {
        "two writes a clock": dma.load(step, CHANNELS),
        "one transaction a clock": dma.load(step, CHANNELS, single=True),
    }
    dma.plot(figure, curves)


def print_frames(capture, count=5):
    """Prints the first frames as tshark decodes them."""
    tshark = shutil.which("tshark")
    if not tshark:
        print("tshark is not installed: run scripts/setup.sh test, or open the captures in Wireshark")
        return
    words = [tshark, "-r", capture, "-c", str(count)]
    print(f"the first frames of {capture.name}, decoded by {tshark}:")
    print(subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout, end="")


if __name__ == "__main__":
    sys.exit(main())
