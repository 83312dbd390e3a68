"""Screens without a display server (KMS): in a QEMU guest, whose screens this test reads pixel by pixel.

`show` of crates/display/examples shows frames with a pattern, on a virtio-gpu, whose driver does not count refreshes.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from guest_setup import Guest, GuestError, Missing, stripped
from image_pattern import BAR
from image_pattern import pattern as image
from machine import SCREEN_DEVICE, SIMPLE_DEVICE, Screens

from common import PROGRAM, WAIT_TIMEOUT_S, until

EXAMPLES = [Path(PROGRAM).parent / "examples" / name for name in ("show", "take_master")]
DEVICE = SCREEN_DEVICE
STATUS = "/sys/class/drm/card0-Virtual-1/status"
MODE = "1024x768@60"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The booted guest."""
    if missing := [program for program in EXAMPLES if not program.exists()]:
        pytest.skip(f"NOT TESTED on a screen of a guest: {missing[0]} does not exist: cargo build --examples")
    try:
        programs = stripped([Path(PROGRAM), *EXAMPLES], tmp_path_factory.mktemp("programs"))
        guest = Guest(programs, memory=512, screens=Screens(), limit=WAIT_TIMEOUT_S)
    except (Missing, GuestError) as error:
        pytest.skip(f"NOT TESTED on a screen of a guest: {error}")
    with guest:
        guest.run("mount -t debugfs debug /sys/kernel/debug").succeeded()
        yield guest


class Show:
    """`show` in the guest, which keeps its last frame until `end`."""

    def __init__(self, guest, frames, mode=MODE, device=DEVICE):
        self.guest = guest
        guest.shows = getattr(guest, "shows", 0) + 1
        self.stop = f"stop-{guest.shows}"
        self.job = guest.spawn(f"exec show kms={device} {mode} {frames} --until /share/{self.stop}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.job.ended():
            self.guest.run("killall -KILL show")
            self.job.end()

    def ask_to_stop(self):
        (self.guest.share / self.stop).touch()

    def wait_for(self, kind):
        """Waits for a line of this kind."""
        until(lambda: f'"kind":"{kind}"' in self.job.output() or self.job.ended(), what=f"a line {kind}")
        assert f'"kind":"{kind}"' in self.job.output(), self.job.output()

    def end(self):
        """Ends it in order and returns its lines."""
        self.ask_to_stop()
        return lines(self.job.end())

    def fails(self):
        """Waits until it ends with an error, and returns that."""
        done = self.job.end()
        assert done.code == 1, done.output
        return done.output.splitlines()[-1]


def lines(done):
    """Returns the lines of `show` in three parts: the display, the frames, and what is counted at the end."""
    opened, *shown, stays, end = map(json.loads, done.succeeded().splitlines())
    assert [opened["kind"], *{line["kind"] for line in shown}, stays["kind"], end["kind"]] == [
        *("open", "shown", "stays", "end")
    ]
    return opened, shown, end


def pattern(frame, width, height):
    """Returns the pixels of a frame: rows of red, green and blue."""
    y, x = np.mgrid[:height, :width]
    red = 16 * (x // 256) + y // 256 + 11 * frame
    return np.stack([red, y + 5 * frame, x + 3 * frame], axis=-1).astype(np.uint8)


def shows(guest, pixels):
    """Returns `True` if the screen shows exactly these pixels."""
    width, height, found = guest.screenshot()
    return (height, width, 3) == pixels.shape and found == pixels.tobytes()


def check_frames(shown, count):
    """Checks that each frame was shown once, in order, at its own refresh and not before its own."""
    assert [line["frame"] for line in shown] == list(range(count))
    assert all(before["refresh"] < after["refresh"] for before, after in itertools.pairwise(shown)), shown
    assert all(before["at_us"] < after["at_us"] for before, after in itertools.pairwise(shown)), shown
    assert all(line["refresh"] >= line["due"] for line in shown), shown


def test_a_screen_conforms(machine):
    done = machine.run(f"show kms={DEVICE} 640x480@60 conformance")
    assert done.succeeded().startswith("7 of 7 checks"), done.output


def test_every_frame_is_shown_once_and_in_order(machine):
    done = machine.run(f"show kms {MODE} 30 --every 2")
    opened, shown, end = lines(done)
    check_frames(shown, 30)
    assert opened["memory"] == "Device", "frame buffers are dma-bufs"
    assert opened["mode"].startswith("1024x768@60") and opened["mode"] in opened["modes"], opened
    assert opened["stride"] >= 1024 * 4 and opened["region_bytes"] == 768 * opened["stride"], opened
    assert (end["presented"], end["shown"], end["skipped"], end["released"]) == (30, 30, 0, 29), end


@pytest.mark.parametrize("mode", ["1024x768@60", "640x480@60", "1400x1050@60"])
@pytest.mark.parametrize("frames", [1, 5])
def test_the_screen_shows_each_pixel_of_the_last_frame(machine, mode, frames):
    size = map(int, mode.split("@")[0].split("x"))
    expected = pattern(frames - 1, *size)
    with Show(machine, frames, mode) as show:
        show.wait_for("stays")
        until(lambda: shows(machine, expected), what="the pixels of the last frame")
        _, shown, _ = show.end()
    check_frames(shown, frames)


def test_images_from_a_target_are_on_the_screen(machine):
    """Frame buffers are dma-bufs of the driver, into which the initiator reads."""
    words = f"--display kms={DEVICE} --mode {MODE} --count 1 --transport spacefibre:shm,lanes=4"
    job = machine.spawn(f"exec shotline images --json {words} 2>/dev/null")
    expected = image(0, 1024, 768)[BAR:].tobytes()

    def is_shown():
        width, height, pixels = machine.screenshot()
        return (width, height) == (1024, 768) and pixels[BAR * width * 3 :] == expected

    until(lambda: is_shown() or job.ended(), what="the pixels of the image")
    assert is_shown(), job.output()
    machine.run("kill -INT $(pidof shotline | tr ' ' '\\n' | sort -n | head -1)").succeeded()
    report = json.loads(job.end().succeeded())
    assert report["display"] == f"kms={DEVICE}" and report["shown"] > 0 and report["lost"] is None, report


def visible(guest):
    """Returns which program has allocated what the first plane of the screen shows."""
    state = guest.run("cat /sys/kernel/debug/dri/0/state").succeeded()
    return state.split("allocated by = ")[1].split()[0]


def test_the_console_is_visible_again_at_the_end(machine):
    assert visible(machine) == "[fbcon]"
    with Show(machine, 1) as show:
        show.wait_for("stays")
        assert visible(machine) == "show"
        # As long as the device is open, the kernel does not restore the console by itself.
        opened = machine.spawn(f"exec sleep {WAIT_TIMEOUT_S} <{DEVICE}")
        until(lambda: DEVICE in machine.run("ls -l /proc/$(pidof sleep)/fd").output, what="an open device")
        show.end()
    assert visible(machine) == "[fbcon]"
    machine.run("killall sleep").succeeded()
    opened.end()


def test_a_second_program_is_refused_until_the_first_ends(machine):
    with Show(machine, 1) as show:
        show.wait_for("stays")
        with Show(machine, 1) as other:
            message = other.fails()
        assert f"cannot open the display kms={DEVICE}: another program is its master" in message, message
        assert "switch to another virtual terminal" in message, message
        show.end()
    with Show(machine, 1) as other:
        other.end()


REFUSED = {
    "size": (f"kms={DEVICE} 1000x768@60", "the screen has no mode of 1000x768@60; it has 1024x768@"),
    "export": (
        f"kms={SIMPLE_DEVICE} {MODE}",
        f"kms={SIMPLE_DEVICE} takes no shared memory: its driver bochs-drm exports no buffers",
    ),
    "device": (f"kms=/dev/dri/card7 {MODE}", "cannot open the display kms=/dev/dri/card7: No such file or directory"),
    "file": (f"kms=/dev/null {MODE}", "kms=/dev/null: expected a display device whose driver sets modes (KMS)"),
    "render": (f"kms=/dev/dri/renderD128 {MODE}", "expected a display device whose driver sets modes (KMS)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_display_that_cannot_be_used_is_refused(machine, case):
    words, message = REFUSED[case]
    done = machine.run(f"show {words} 1")
    assert done.code == 1 and message in done.output, done.output
    if case == "size":
        assert "640x480@60" in done.output, "the other modes are named, too"


def test_frames_continue_after_another_program_was_master(machine):
    """As after a switch to another virtual terminal and back. The other one has turned the screen off."""
    with Show(machine, 100_000) as show:
        show.wait_for("shown")
        machine.run("killall -STOP show").succeeded()
        machine.run(f"take_master $(pidof show) {DEVICE}").succeeded()
        before = show.job.output().count("shown")
        machine.run("killall -CONT show").succeeded()
        until(lambda: show.job.output().count("shown") > before + 10 or show.job.ended(), what="further frames")
        assert visible(machine) == "show"
        machine.run("killall -KILL show").succeeded()
        done = show.job.end()
    shown = [json.loads(line) for line in done.output.splitlines() if '"kind":"shown"' in line and line.endswith("}")]
    check_frames(shown, len(shown))


def test_a_lost_master_ends_with_the_reason(machine):
    with Show(machine, 100_000) as show:
        show.wait_for("shown")
        other = machine.spawn(f"exec take_master $(pidof show) {DEVICE} /share/released")
        message = show.fails()
    (machine.share / "released").touch()
    other.end().succeeded()
    assert f"another program has become the master of {DEVICE}" in message, message


@pytest.fixture
def plug(machine):
    """Writes the status of the connector, which is connected at the end."""
    yield lambda status: machine.run(f"echo {status} >{STATUS}").succeeded()
    machine.run(f"echo detect >{STATUS}").succeeded()


def test_an_unplugged_screen_ends_with_the_reason(machine, plug):
    with Show(machine, 1) as show:
        show.wait_for("stays")
        plug("off")
        message = show.fails()
    assert f"the display has gone: the screen at the connector Virtual-1 of {DEVICE} was unplugged" in message, message
    with Show(machine, 1) as show:
        message = show.fails()
    assert "expected a screen at one of its connectors (Virtual-1), found none" in message, message
    other = machine.run(f"show kms {MODE} 1").output
    assert f"kms={SIMPLE_DEVICE} takes no shared memory" in other, "without a device, the next one is chosen"


def test_a_removed_device_ends_with_the_reason(machine):
    """While frames are shown, which the driver refuses, and while one stays, when only a look at the connector shows it."""
    for frames in (100_000, 1):
        with Show(machine, frames) as show:
            show.wait_for("shown")
            machine.run("echo 1 >/sys/class/drm/card0/device/remove").succeeded()
            message = show.fails()
        assert message == f"show: the display has gone: the device {DEVICE} was removed", message
        machine.run("echo 1 >/sys/bus/pci/rescan").succeeded()
