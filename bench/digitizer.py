"""A digitizer's 16 Gbit/s from its DMA through a memif into HDF5, and what pipelining gains (`make bench-digitizer`).

Two processes, the emulated digitizer and the recorder, joined by DPDK's memif. The stages are measured alone first (DMA
without sending, sending without DMA into a receiver that discards, storing by the busy time of the recorder's stage),
then together, then one after the other as the paper's host did.
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

from common import Failed, program, ratio, say

BLOCK_MIB = 64
SAMPLE_RATE = 500e6
TARGET_GBPS = SAMPLE_RATE * 32 / 1e9
PERIOD_MS = BLOCK_MIB * 2**20 / 4 / SAMPLE_RATE * 1e3
PAPER = "the paper: DMA 20.7, DPDK 23.0, HDF5 17.5 Gbit/s; 76.3 ms a block that is made every 33.7 ms"
KEEP = {"tmpfs": "8GiB", "disk": "24GiB"}
ROLL = "4GiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the run in real time")
    parser.add_argument("--stage-seconds", type=float, default=6, help="length of every other run")
    parser.add_argument("--rounds", type=int, default=2, help="rounds in which the other runs have their turn")
    parser.add_argument("--disk", default=".", help="folder on a drive, beside /dev/shm")
    parser.add_argument("--only", nargs="+", default=[""], metavar="START", help="ratios that begin so: digitizer/real")
    args = parser.parse_args()
    wanted = lambda name: f"digitizer/{name}".startswith(tuple(args.only))
    say(PAPER)
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
            slowest = min(("dma", "send", "store"), key=of.get)
            ratio("digitizer/slowest-stage", of["pipelined"], f"{slowest} alone", of[slowest], "Gbit/s")
            ratio("digitizer/sequential", of["pipelined"], "one after the other", of["sequential"], "Gbit/s")
    sys.exit(1 if failed else 0)


# --- runs --------------------------------------------------------------------------------------------


def realtime(where, folder, seconds):
    """Every block of a run in real time must arrive whole, and none late."""
    out = ["--roll-size", ROLL, "--keep", KEEP[where], "--pool", "4GiB"]
    sent, got = run(["--seconds", f"{seconds:g}"], out, folder)
    stream = sent["streams"][0]
    made, whole = stream["blocks_made"], got["shots_complete"]
    lost = dict(got["drops"], overruns=stream["overruns"], partial=got["shots_partial"])
    lost = {cause: count for cause, count in lost.items() if count}
    late = got["latency_from_sender"]
    say(
        f"real time on {where}: {made} blocks of {BLOCK_MIB} MiB made, one each {PERIOD_MS:.2f} ms; {whole} whole in "
        f"HDF5; lost: {lost or 'none'}; from a block's first sample until all of it was received "
        f"{late['p50_us'] / 1e3:.1f} ms (99 %: {late['p99_us'] / 1e3:.1f}, most {late['max_us'] / 1e3:.1f})"
    )
    say(f"  {busy(sent, got)}")
    # The blocks before the recorder knew the stream are none of the run.
    if lost or made - whole > 8:
        raise Failed(f"{made - whole} of {made} blocks are not in the file: {lost}")
    ratio(f"digitizer/realtime{'' if where == 'disk' else '-tmpfs'}", gbps(got), "real time", TARGET_GBPS, "Gbit/s")


def stages(folder, seconds):
    """Gbit/s of each stage alone, of all together, and of one after the other."""
    most = ["--rate", "max", "--seconds", f"{seconds:g}"]
    out = ["--roll-size", ROLL, "--keep", KEEP["disk"], "--pool", "4GiB"]
    figures = {}
    alone = emulate([*most, "--no-send", "--to", "127.0.0.1:9"])
    figures["dma"] = stage_gbps(alone, "dma")
    _, got = run([*most, "--no-dma"], ["--discard"], folder)
    figures["send"] = got["receive_gbps"]
    _, got = run(most, [*out, "--policy", "block"], folder)
    figures["store"] = next(stage["busy_gbps"] for stage in got["stages"] if stage["stage"] == "store")
    figures["pipelined"] = gbps(got)
    _, got = run([*most, "--sequential"], [*out, "--policy", "block", "--sequential"], folder)
    figures["sequential"] = gbps(got)
    say("  " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()) + " Gbit/s")
    return figures


def run(sender, recorder, folder):
    """The two programs, joined by a memif. Returns what each said."""
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="bench-digitizer-") as place,
        tempfile.TemporaryDirectory() as short,
    ):
        path = Path(short) / "memif.sock"
        device = f"id=0,socket={path},socket-abstract=no"
        out = [] if "--discard" in recorder else ["--out", str(Path(place) / "run.h5")]
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
            raise Failed(errors.strip().splitlines()[-1] if errors.strip() else "the recorder ended without a word")
        return sent, json.loads(output)


def emulate(flags):
    words = [program(), "emulate", "digitizer", "--json", "--decimation", "1", "--block", f"{BLOCK_MIB}MiB", *flags]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


class background:
    """A process that is ended with the block."""

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


def gbps(got):
    """Samples received, from the first packet to the last."""
    return got["receive_gbps"]


def stage_gbps(sent, name):
    stage = next(stage for stage in sent["streams"][0]["stages"] if stage["name"] == name)
    return stage["bytes"] * 8e-9 / stage["busy_s"]


def busy(sent, got):
    of_sender = [
        f"{stage['name']} {100 * stage['busy_s'] / sent['run_s']:.0f} %"
        for stage in sent["streams"][0]["stages"]
        if stage["name"] != "board"
    ]
    of_recorder = [f"{stage['stage']} {100 * stage['busy']:.0f} %" for stage in got["stages"]]
    list_ms = 1e3 * sent["streams"][0]["dma_list_s"] / max(1, sent["streams"][0]["blocks_sent"])
    return f"busy: {', '.join(of_sender + of_recorder)}; making the DMA's lists takes {list_ms:.2f} ms a block"


if __name__ == "__main__":
    main()
