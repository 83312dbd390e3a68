"""Compares receiving a phantom's echoes with and without viewers of the page (`make bench-page`).

The recorder first runs without a page at full speed, until it has lossless runs. All contenders then run at half of that
rate (at most 20 Gbit/s): without a page, with a WebSocket client that takes every B-mode picture and every state, and
with the page in Chromium, which draws them. A run counts if nothing was lost. At full speed the page is tried as well.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from common import (
    PROBE_PORT,
    SEND_CPU,
    TIME_LIMIT,
    Contender,
    Run,
    background,
    interleave,
    json_of,
    program,
    ratio,
    say,
    shotline_record,
    wait_for_port,
    wide_socket_buffers,
)

SAMPLES = 2000
ANGLES = "--angles=-10,-5,0,5,10"
MAX_GBPS = 20.0
PAGE_PORT = 47990


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="lossless runs wanted of each contender")
    parser.add_argument("--seconds", type=float, default=5, help="length of a run")
    parser.add_argument("--client", metavar="ADDRESS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        asyncio.run(take_pictures(args.client))
        return
    with wide_socket_buffers():
        complete = measure(args)
    sys.exit(0 if complete else 1)


def measure(args):
    viewers = {"none": None, "client": client}
    if shutil.which("chromium"):
        viewers["chromium"] = chromium
    else:
        say("chromium is not installed: scripts/setup.sh web")

    def contender(name, suffix="", **options):
        return Contender(name + suffix, lambda pace: receive(viewers[name], args.seconds, pace), args.runs, **options)

    full = [contender("none", " at full speed"), contender("client", " at full speed")]
    interleave(full)
    if full[0].median() is None:
        return False
    pace = min(MAX_GBPS, full[0].median().gbps / 2)
    say(f"full speed {full[0].median().gbps:.2f} Gbit/s; the page is judged at {pace:.2f} Gbit/s")
    half = {name: contender(name, pace=pace) for name in viewers}
    interleave(list(half.values()))
    medians = {name: contender.median() for name, contender in half.items()}
    for name in list(viewers)[1:]:
        if medians[name] and medians["none"]:
            what = "page/none" if name == "client" else f"page-{name}/none"
            ratio(what, medians[name].gbps, "none", medians["none"].gbps, "Gbit/s")
    if full[1].median():
        ratio("page-full/none-full", full[1].median().gbps, "none", full[0].median().gbps, "Gbit/s")
    # The others are only printed: a browser draws on the processors of the recorder.
    return bool(medians["none"] and medians["client"])


def receive(viewer, seconds, pace):
    """Runs probe, receiver and viewer; returns the receiver's figures."""
    record = shotline_record(SAMPLES, seconds, pace)
    if viewer:
        record += ["--serve", f"127.0.0.1:{PAGE_PORT}", ANGLES]
    with background(probe_command()) as probe:
        wait_for_port("udp6", PROBE_PORT, probe)
        with background(record) as recorder, contextlib.ExitStack() as stack:
            report_viewer = None
            if viewer:
                wait_for_port("tcp", PAGE_PORT, recorder)
                report_viewer = stack.enter_context(viewer(f"http://127.0.0.1:{PAGE_PORT}/"))
            report = json_of(recorder.communicate(timeout=TIME_LIMIT)[0])
            if report_viewer:
                report_viewer()
        probe.send_signal(signal.SIGINT)
        sent = json_of(probe.communicate(timeout=TIME_LIMIT)[0])
    return Run(
        gbps=report["receive_gbps"],
        packets=report["packets"],
        lost=sum(report["drops"].values()) + report["shots_partial"],
        seconds=report["seconds"],
        send_cpu_s=sent["cpu_user_s"] + sent["cpu_sys_s"],
        receive_cpu_s=report["cpu_user_s"] + report["cpu_sys_s"],
    )


def probe_command():
    phantom = ("--phantom", "--phases", "8", ANGLES, "--samples", str(SAMPLES))
    return [program(), "emulate", "probe", "--json", "--listen", f"[::1]:{PROBE_PORT}", "--links", "1", *phantom] + [
        *("--pace", "max", "--cpu", str(SEND_CPU))
    ]


@contextlib.contextmanager
def client(address):
    """A client in a process of its own, which takes every picture."""
    with background([sys.executable, __file__, "--client", address]) as process:

        def report():
            taken = json_of(process.communicate(timeout=TIME_LIMIT)[0])
            say(f"    {taken['pictures']} pictures, {taken['per_s']:.1f}/s, {taken['missed']} missed")

        yield report


async def take_pictures(address):
    import aiohttp

    sequences, times = [], []
    async with aiohttp.ClientSession() as session, session.ws_connect(address + "ws", max_msg_size=0) as socket:
        await socket.send_str(json.dumps({"watch": ["bmode"]}))
        async for message in socket:
            if message.type != aiohttp.WSMsgType.BINARY:
                continue
            length = int.from_bytes(message.data[:4], "little")
            header = json.loads(message.data[4 : 4 + length])
            sequences.append(header["sequence"])
            times.append(header["unix_ms"])
    seconds = (times[-1] - times[0]) / 1e3 if len(times) > 1 else 0.0
    missed = sequences[-1] - sequences[0] + 1 - len(sequences) if sequences else 0
    per_s = (len(times) - 1) / seconds if seconds else 0.0
    print(json.dumps({"pictures": len(sequences), "missed": missed, "per_s": per_s}))


@contextlib.contextmanager
def chromium(address):
    """A browser that shows the page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        flags += [f"--user-data-dir={profile}", "--window-size=1440,1000"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        browser = subprocess.Popen(["chromium", *flags, address], start_new_session=True, **quiet)
        try:
            yield lambda: None
        finally:
            # The browser and the processes that it has started.
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()


if __name__ == "__main__":
    main()
