"""Display servers without a screen, and screenshots of them: an X server (Xvfb), a Wayland compositor (sway)."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from common import WAIT_TIMEOUT_S, until

SWAY_USER = 65_534  # a sway does not run as root
SWAY_CONFIG = """\
output * bg #000000 solid_color
output HEADLESS-1 mode --custom {}x{}@60Hz
default_border none
default_floating_border none
xwayland disable
"""


def need(*programs):
    """Skips the test unless these programs are installed."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: scripts/setup.sh display installs them")


class Server:
    """A running server, a process; `display` is its name for `--display`. It ends with the block."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.popen.kill()
        self.popen.wait()

    def stop(self):
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self):
        self.popen.send_signal(signal.SIGCONT)

    def wait_for_picture(self, is_wanted, what):
        """Takes screenshots until one is as wanted, and returns it."""

        def wanted():
            picture = self.screenshot()
            return [picture] if is_wanted(picture) else None

        return until(wanted, what)[0]


class XServer(Server):
    """An X server."""

    def __init__(self, *arguments, size=(800, 600)):
        need("Xvfb", "xwd")
        reader, writer = os.pipe()
        screen = f"{size[0]}x{size[1]}x24"
        words = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-nolisten", "tcp", "-noreset", *arguments]
        self.popen = subprocess.Popen(words, pass_fds=[writer], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(writer)
        with open(reader) as number:
            self.name = f":{number.readline().strip()}"
        assert self.name != ":", "Xvfb did not start"
        self.display = f"x11={self.name}"

    def set_mode(self, width, height):
        """Changes the mode of the screen, up to the size at its start."""
        need("xrandr")
        name = f"{width}x{height}-test"

        def xrandr(*words):
            subprocess.run(["xrandr", "--display", self.name, *words], check=True, timeout=WAIT_TIMEOUT_S)

        # Of the timing, Xvfb uses only the size.
        columns, rows = ([str(size + border) for border in (0, 8, 16, 24)] for size in (width, height))
        xrandr("--newmode", name, "25", *columns, *rows)
        xrandr("--addmode", "screen", name)
        xrandr("--output", "screen", "--mode", name, "--fb", f"{width}x{height}")

    def screenshot(self):
        """Returns the screen as (row, column, colour), red first."""
        words = ["xwd", "-root", "-silent", "-display", self.name]
        data = subprocess.run(words, check=True, capture_output=True, timeout=WAIT_TIMEOUT_S).stdout
        header = struct.unpack(">25I", data[:100])
        header_bytes, width, height, bits, stride, colours = (header[i] for i in (0, 4, 5, 11, 12, 19))
        assert bits == 32, header
        pixels = np.frombuffer(data, np.uint8, stride * height, header_bytes + colours * 12)
        return pixels.reshape(height, stride)[:, : width * 4].reshape(height, width, 4)[:, :, 2::-1]


class Sway(Server):
    """A Wayland compositor, whose only window has the whole screen."""

    def __init__(self, size=(800, 600)):
        need("sway", "grim", "setpriv")
        # Not in pytest's folder, which other users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix="shotline-sway-"))
        (self.folder / "config").write_text(SWAY_CONFIG.format(*size))
        user = []
        if os.geteuid() == 0:
            os.chown(self.folder, SWAY_USER, SWAY_USER)
            user = ["setpriv", f"--reuid={SWAY_USER}", f"--regid={SWAY_USER}", "--clear-groups", "--"]
        # wlroots reads its settings from the environment.
        wlroots = {"WLR_BACKENDS": "headless", "WLR_RENDERER": "pixman", "WLR_LIBINPUT_NO_DEVICES": "1"}
        outer = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
        self.environment = {**outer, **wlroots, "XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)}
        with open(self.folder / "log", "w") as log:
            words = [*user, "sway", "--config", str(self.folder / "config")]
            self.popen = subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.socket = until(self.listening, "the compositor accepts clients")
        self.display = f"wayland={self.socket}"

    def listening(self):
        """Returns its socket, once clients can connect."""
        assert self.popen.poll() is None, (self.folder / "log").read_text()
        for path in self.folder.glob("wayland-*[0-9]"):
            with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
                client.connect(str(path))
                return path
        return None

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder)

    def screenshot(self):
        """Returns the screen as (row, column, colour), red first."""
        environment = {**self.environment, "WAYLAND_DISPLAY": str(self.socket)}
        done = subprocess.run(
            ["grim", "-t", "ppm", "-"], env=environment, check=True, capture_output=True, timeout=WAIT_TIMEOUT_S
        )
        # The header has three lines: the kind, the size, the largest value.
        _, size, _, pixels = done.stdout.split(b"\n", 3)
        width, height = map(int, size.split())
        return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
