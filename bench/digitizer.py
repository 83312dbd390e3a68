"""Records 16 Gbit/s from a digitizer's DMA through a memif, and measures the gain by pipelining (`make bench-digitizer`).

The emulated digitizer and the recorder are two processes connected by DPDK's memif, whose client (the digitizer) shares
its frames. In real time every block must be complete in the file, except the first, which only describes the stream, and
none may be late: board, DMA, link and reception into the recorder's memory are four stages, each with one period per
block.

Then each stage runs alone: DMA without sending; the link without DMA into a receiver that discards (sending cannot be
measured without a receiver, so this is both); storing from memory (`store_bench`). Then all run in a pipeline, and then
sequentially, as on the host of Ryoshi et al. (docs/plan.md), "the paper" in the output.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from common import Failed, foreground, json_of, program, ratio, say

BLOCK_MIB = 64
SAMPLE_RATE = 500e6
TARGET_GBPS = SAMPLE_RATE * 32 / 1e9
PERIOD_MS = BLOCK_MIB * 2**20 / 4 / SAMPLE_RATE * 1e3
BLOCK_GBIT = BLOCK_MIB * 2**20 * 8e-9
STAGES = 4  # board, DMA, link, receiving: a block is late if it takes longer than one period for each
PAPER = {"dma": 25.5, "dma with lists": 20.7, "link": 23.8, "store": 17.5}  # Gbit/s
PAPER_BLOCK_MS = 76.3
# A shot of store_bench has 144 bytes per sample and a record: nearly a block.
STORE_SAMPLES = 466_000
# A ring of files: three parts of a run, and spare space.
RING = ["--roll-size", "2GiB", "--keep", "8GiB", "--pool", "3GiB"]
RING_BLOCKS = 8  # blocks of the board's ring


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the run in real time")
    parser.add_argument("--stage-seconds", type=float, default=6, help="length of every other run")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the other runs")
    parser.add_argument("--disk", default=".", help="folder on a drive, used in addition to /dev/shm")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="START", help="ratios with this prefix: digitizer/real"
    )
    args = parser.parse_args()
    wanted = lambda name: f"digitizer/{name}".startswith(tuple(args.only))
    failed = False
    folders = {"tmpfs": "/dev/shm", "disk": args.disk}
    if wanted("realtime"):
        for where, folder in folders.items():
            try:
                realtime(where, folder, args.seconds)
            except Failed as error:
                failed = True
                say(f"FAILED real time on {where}: {error}")
    if wanted("slowest-stage") or wanted("sequential"):
        rounds = []
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            try:
                rounds.append(stages(folders["disk"], args.stage_seconds))
            except Failed as error:
                failed = True
                say(f"  FAILED: {error}")
        if rounds:
            of = {name: median(run[name] for run in rounds) for name in rounds[0]}
            for name, paper in PAPER.items():
                say(f"  {name} alone: {of[name]:.1f} Gbit/s, the paper {paper}")
            for name in ("pipelined", "sequential"):
                say(f"  a block, {name}: {1e3 * BLOCK_GBIT / of[name]:.1f} ms, the paper {PAPER_BLOCK_MS}")
            slowest = min(("dma with lists", "link", "store"), key=of.get)
            ratio("digitizer/slowest-stage", of["pipelined"], f"{slowest} alone", of[slowest], "Gbit/s")
            ratio("digitizer/sequential", of["pipelined"], "one after the other", of["sequential"], "Gbit/s")
    sys.exit(1 if failed else 0)


# --- runs --------------------------------------------------------------------------------------------


def realtime(where, folder, seconds):
    """Runs in real time and checks that every block is in the file and none was late."""
    sent, recorded = run(["--seconds", f"{seconds:g}"], RING, folder)
    stream = sent["streams"][0]
    made, complete = stream["blocks_produced"], recorded["shots_complete"]
    lost = dict(recorded["drops"], overruns=stream["overruns"], partial=recorded["shots_partial"])
    lost = {cause: count for cause, count in lost.items() if count}
    latency = {name: us / 1e3 for name, us in recorded["latency_from_sender"].items() if name.endswith("_us")}
    say(
        f"real time on {where}: {made} blocks of {BLOCK_MIB} MiB made, one each {PERIOD_MS:.2f} ms; {complete} complete in "
        f"HDF5; lost: {lost or 'none'}; from a block's first sample until all of it was received "
        f"{latency['p50_us']:.1f} ms (99 %: {latency['p99_us']:.1f}, max {latency['max_us']:.1f})"
    )
    say(f"  {busy(sent, recorded)}")
    say(f"  the paper: {PAPER_BLOCK_MS} ms per block, one block each 33.7 ms")
    late = latency["p99_us"] > STAGES * PERIOD_MS or latency["max_us"] > RING_BLOCKS * PERIOD_MS
    expected = made - 1  # the first block only describes the stream
    in_time = min(complete, expected) * BLOCK_GBIT / (expected * PERIOD_MS * 1e-3)
    name = f"digitizer/realtime{'' if where == 'disk' else '-tmpfs'}"
    ratio(name, 0.0 if late else in_time, "real time", TARGET_GBPS, "Gbit/s")
    if lost or complete < expected:
        raise Failed(f"{expected - complete} of {expected} blocks are not in the file: {lost}")
    if late:
        raise Failed(f"blocks were late: {STAGES} periods are allowed for 99 % of them, {RING_BLOCKS} for any")


def stages(folder, seconds):
    """Returns the Gbit/s of each stage alone, of all in a pipeline, and of all sequentially."""
    full_speed = ["--rate", "max", "--seconds", f"{seconds:g}"]
    alone = emulate([*full_speed, "--no-send", "--to", "127.0.0.1:9"])["streams"][0]
    figures = {"dma": alone["dma_gbps"], "dma with lists": alone["dma_with_list_gbps"]}
    _, received = run([*full_speed, "--no-dma"], ["--discard"], folder)
    figures["link"] = received["receive_gbps"]
    figures["store"] = store(folder)
    _, recorded = run(full_speed, [*RING, "--policy", "block"], folder)
    figures["pipelined"] = recorded["receive_gbps"]
    _, recorded = run([*full_speed, "--sequential"], [*RING, "--policy", "block", "--sequential"], folder)
    figures["sequential"] = recorded["receive_gbps"]
    say("  " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()) + " Gbit/s")
    return figures


def store(folder):
    """Writes a file of 4 GiB from blocks in memory; returns Gbit/s."""
    example = Path(program()).parent / "examples" / "store_bench"
    if not example.exists():
        raise Failed(f"no {example}: cargo build --release --package shotline-store --example store_bench")
    with tempfile.TemporaryDirectory(dir=folder, prefix="bench-digitizer-") as scratch:
        words = ["write", Path(scratch) / "alone.h5", 4, STORE_SAMPLES, 1, 3]
        done = json_of(foreground([str(example), *map(str, words)]))
    if done["lost"]:
        raise Failed(f"storing alone lost {done['lost']} blocks")
    return done["bytes"] * 8e-9 / done["seconds"]


def run(sender, recorder, folder):
    """Runs digitizer and recorder, connected by a memif. Returns the report of each."""
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="bench-digitizer-") as scratch,
        tempfile.TemporaryDirectory() as short,
    ):
        path = Path(short) / "memif.sock"
        device = f"id=0,socket={path},socket-abstract=no"
        out = [] if "--discard" in recorder else ["--out", str(Path(scratch) / "run.h5")]
        receiving = [
            *(program(), "record", "--json", "--framing", "digitizer", "--listen", "10.0.0.1:47920", "--idle-s", "2"),
            *("--transport", f"dpdk:net_memif0,role=server,{device}", *out, *recorder),
        ]
        with background(receiving) as record:
            wait_for(path, record)
            sent = emulate(
                [*sender, "--transport", f"dpdk:net_memif1,role=client,{device}", "--to", "10.0.0.1:47920"],
            )
            output, errors = record.communicate(timeout=60)
        if record.returncode:
            raise Failed(
                errors.strip().splitlines()[-1] if errors.strip() else "the recorder ended without an error message"
            )
        return sent, json.loads(output)


def emulate(flags):
    words = [program(), "emulate", "digitizer", "--json", "--decimation", "1", "--block", f"{BLOCK_MIB}MiB", *flags]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


class background:
    """A process that is interrupted when the block ends."""

    def __init__(self, words):
        self.words = words

    def __enter__(self):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(self.words, text=True, **pipes)
        return self.process

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()


def wait_for(path, recorder):
    until = time.monotonic() + 20
    while not path.exists():
        if recorder.poll() is not None:
            raise Failed(recorder.communicate()[1].strip())
        if time.monotonic() > until:
            raise Failed("the recorder did not open its memif in 20 s")
        time.sleep(0.05)


# --- figures -----------------------------------------------------------------------------------------


def busy(sent, recorded):
    of_sender = [
        f"{stage['name']} {100 * stage['busy_s'] / sent['run_s']:.0f} %"
        for stage in sent["streams"][0]["stages"]
        if stage["name"] != "board"
    ]
    of_recorder = [f"{stage['stage']} {100 * stage['busy']:.0f} %" for stage in recorded["stages"]]
    list_ms = 1e3 * sent["streams"][0]["dma_list_s"] / max(1, sent["streams"][0]["blocks_sent"])
    return f"busy: {', '.join(of_sender + of_recorder)}; building the DMA's lists takes {list_ms:.2f} ms per block"


if __name__ == "__main__":
    main()
