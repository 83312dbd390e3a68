"""An X server without a screen (Xvfb), and screenshots of it."""

import contextlib
import os
import shutil
import signal
import struct
import subprocess

import numpy as np
import pytest

from common import WAIT_TIMEOUT_S, until


class XServer:
    """A running server; `display` is its name for clients. It ends with the block."""

    def __init__(self, *arguments, size=(800, 600)):
        missing = [tool for tool in ("Xvfb", "xwd") if not shutil.which(tool)]
        if missing:
            pytest.skip(f"needs {', '.join(missing)}: scripts/setup.sh display installs them")
        reader, writer = os.pipe()
        screen = f"{size[0]}x{size[1]}x24"
        words = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-nolisten", "tcp", "-noreset", *arguments]
        self.popen = subprocess.Popen(words, pass_fds=[writer], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(writer)
        with open(reader) as number:
            self.display = f":{number.readline().strip()}"
        assert self.display != ":", "Xvfb did not start"

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

    def screenshot(self):
        """Returns the screen as (row, column, colour), red first."""
        words = ["xwd", "-root", "-silent", "-display", self.display]
        data = subprocess.run(words, check=True, capture_output=True, timeout=WAIT_TIMEOUT_S).stdout
        header = struct.unpack(">25I", data[:100])
        header_bytes, width, height, bits, stride, colours = (header[i] for i in (0, 4, 5, 11, 12, 19))
        assert bits == 32, header
        pixels = np.frombuffer(data, np.uint8, stride * height, header_bytes + colours * 12)
        return pixels.reshape(height, stride)[:, : width * 4].reshape(height, width, 4)[:, :, 2::-1]

    def wait_for_picture(self, is_wanted, what):
        """Takes screenshots until one is as wanted, and returns it."""

        def wanted():
            picture = self.screenshot()
            return [picture] if is_wanted(picture) else None

        return until(wanted, what)[0]
