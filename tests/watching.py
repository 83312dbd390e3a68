"""What a recorder under way can be seen to have done: in its file, and in what it says of its progress."""

import contextlib
import json
import os

import h5py

from common import COMPLETE, until


def visible(path):
    """Rows that any reader of a plain file sees now; 0 before there is a file."""
    try:
        with h5py.File(path, locking=False) as file:
            return file["rf"].shape[0]
    except (OSError, KeyError):
        return 0


def wait_for_rows(path, rows):
    return until(lambda: visible(path) >= rows, what=f"row {rows} in the file")


def holds(path, number, link=0):
    """Whether readers of a plain file see the whole shot of this number."""
    try:
        with h5py.File(path, locking=False) as file:
            shots = file[f"link{link}/shots"][: file["rf"].shape[0]]
    except (OSError, KeyError):
        return False
    return bool(((shots["number"] == number) & (shots["state"] == COMPLETE)).any())


class Progress:
    """Reads along what a recorder says of its progress (`--progress`). What was read is not in its standard error."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.end = recorder.popen.stderr.fileno()
        os.set_blocking(self.end, False)
        self.rest, self.others, self.said = b"", [], {}

    def now(self, what):
        """A count as it was said last; 0 before anything was said."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.end, 1 << 16):
                *lines, self.rest = (self.rest + data).split(b"\n")
                for line in lines:
                    if line.startswith(b"{"):
                        self.said = json.loads(line)
                    else:
                        self.others.append(line.decode())
        return self.said.get(what, 0)

    def wait_for(self, what, least):
        """Waits until a count is reached."""

        def reached():
            has_ended = self.recorder.popen.poll() is not None
            if self.now(what) >= least:
                return True
            assert not has_ended, f"the recorder ended before {what} was {least}: {self.said} {self.others}"
            return False

        until(reached, what=f"{what} of {least}")
