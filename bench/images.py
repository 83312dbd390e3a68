"""Measures images from a target's memory in a window under Xvfb, beside the display of Gibson et al. (`make bench-images`).

Gibson et al. (section IV) show images of 2560x1440 at 60 Hz and of 3840x2160 at 30 Hz, each read by one RDMA READ over SpaceFibre
into a frame buffer, without its top 32 rows. Here the link is in software over shared memory, and the display is a window of an
X server without a screen, which copies each frame once more. A plain copy of the same bytes is timed in the same run: its
processor time, over that of this program and its target together.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time

import numpy as np

from common import Failed, program, ratio, say

CASES = {  # name: mode, images per second, images in the target's memory
    "1440p60": ("2560x1440@60", 60, 100),
    "2160p30": ("3840x2160@60", 30, 50),
}
STATISTICS_ROWS = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="time of each run [default: 60]")
    parser.add_argument("--transport", default="spacefibre:shm,lanes=4", help="how the target is reached")
    parser.add_argument("--buffers", type=int, default=4, help="frame buffers [default: 4]")
    args = parser.parse_args()
    for name, (mode, rate, count) in CASES.items():
        with x_server(mode) as display:
            report = shown(display, args, mode, rate, count)
        ratio(f"images-{name}/{rate}", report["images_per_s"], "paper", rate, "images/s")
        if rate == 60:
            ratio("images-fresh/refreshes", report["shown"] - 1, "refreshes", report["refreshes"], "frames")
        copy = copied(mode, count, report["images_read"], args.buffers)
        own = report["cpu_s"] + report["target_cpu_s"]
        ratio(
            f"images-cpu-{name}/copy",
            report["seconds"] / own,
            "a plain copy",
            report["seconds"] / copy,
            "times real time",
        )
        say(
            f"  {name}: {report['read_gbps']:.2f} Gbit/s, read in {report['read_ms']:.2f} ms (at most "
            f"{report['read_max_ms']:.2f}), late {report['late']}, repeated {report['repeated']}, skipped "
            f"{report['skipped']}; processor {100 * report['cpu_s'] / report['seconds']:.0f} %, target "
            f"{100 * report['target_cpu_s'] / report['seconds']:.0f} %, a copy {100 * copy / report['seconds']:.0f} %"
        )


@contextlib.contextmanager
def x_server(mode):
    """Runs an X server with a screen of this size; yields its name."""
    reader, writer = os.pipe()
    screen = mode.split("@")[0] + "x24"
    words = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-nolisten", "tcp", "-noreset"]
    with subprocess.Popen(words, pass_fds=[writer], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        os.close(writer)
        with open(reader) as number:
            display = number.readline().strip()
        try:
            if not display:
                raise Failed("Xvfb did not start")
            yield f":{display}"
        finally:
            server.kill()


def shown(display, args, mode, rate, count):
    """Shows images for some time; returns the report."""
    command = [program(), "images", "--json", "--display", f"x11={display}", "--mode", mode, "--rate", str(rate)]
    command += ["--count", str(count), "--seconds", f"{args.seconds:g}", "--buffers", str(args.buffers)]
    command += ["--transport", args.transport]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=args.seconds + 120)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def copied(mode, count, images, buffers):
    """Copies as many images into frame buffers in turn; returns the processor time in seconds."""
    width, height = map(int, mode.split("@")[0].split("x"))
    pixels = width * (height - STATISTICS_ROWS)
    memory = np.ones((count, pixels), "uint32")
    frames = np.ones((buffers, pixels), "uint32")
    begin = time.process_time()
    for number in range(images):
        np.copyto(frames[number % buffers], memory[number % count])
    return time.process_time() - begin


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"failed: {error}")
