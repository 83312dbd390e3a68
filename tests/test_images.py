"""`shotline images`: what is on the display, or saved, is compared pixel by pixel with the images.

Screenshots are those of an X server; screens without a display server are in test_guest_display.py.
"""

import json
import os
import signal
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from displays import Sway, XServer
from image_pattern import BAR, pattern
from memory_target import Target
from PIL import Image

from common import Process, run, until

TRANSPORTS = ["soft", "shm", "spacefibre", "spacefibre:shm,lanes=4"]


def png_header(width, height):
    """Returns the begin of a PNG file that claims a size."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = [
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in (head, data)
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def photo(width, height, seed):
    """Returns an image in which no pixel is as its neighbours."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), "uint8")


def images(*arguments, **options):
    return run("images", "--json", *arguments, **options)


def frames(folder):
    """Returns the saved frames."""
    return [np.asarray(Image.open(path)) for path in sorted(folder.glob("frame-*.png"))]


def shown(folder, *arguments):
    """Shows images into a folder, and returns its frames and the report."""
    report = images("--display", f"none={folder / 'out'}", *arguments).succeeded()
    assert report["presented"] == report["shown"] == report["verified"] and report["mismatched"] == 0, report
    return frames(folder / "out"), report


def centred(image, width, height):
    """Returns an image in the middle of a black frame, cut off where it is larger."""
    frame = np.zeros((height, width, 3), "uint8")
    rows, columns = min(height, image.shape[0]), min(width, image.shape[1])
    top, left = (height - rows) // 2, (width - columns) // 2
    cut_top, cut_left = (image.shape[0] - rows) // 2, (image.shape[1] - columns) // 2
    frame[top : top + rows, left : left + columns] = image[cut_top : cut_top + rows, cut_left : cut_left + columns]
    return frame


# --- every pixel ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_saved_frames_are_the_images_below_the_statistics(tmp_path, transport):
    mode = ("--mode", "200x150@60", "--count", 5, "--frames", 12)
    saved, report = shown(tmp_path, *mode, "--transport", transport)
    assert (report["shown"], report["images_read"], report["image_bytes"]) == (12, 12, 200 * 150 * 4)
    for number, frame in enumerate(saved):
        assert (frame[BAR:] == pattern(number % 5, 200, 150)[BAR:]).all(), number
        assert frame[:BAR].max() > 200 and frame[:BAR].min() == 0, "statistics are white letters on black"
    assert len(saved) == 12 and report["bytes_read"] == 12 * 200 * (150 - BAR) * 4


def test_all_rows_are_transferred_without_statistics(tmp_path):
    saved, report = shown(tmp_path, "--mode", "64x16@60", "--count", 3, "--no-statistics")
    assert all((frame == pattern(number, 64, 16)).all() for number, frame in enumerate(saved))
    assert report["bytes_read"] == 3 * 64 * 16 * 4


@pytest.mark.parametrize("transport", ["soft", "spacefibre:shm,lanes=4"])
@pytest.mark.parametrize("kind", [XServer, Sway])
def test_screenshots_of_the_window_are_whole_images(tmp_path, kind, transport):
    pictures = [photo(300, 200, seed) for seed in range(4)]
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    with kind(size=(300, 200)) as server:
        words = ["images", "--json", "--display", server.display, "--rate", 20, tmp_path, "--transport", transport]
        with Process(*words) as process:

            def matches(screen):
                return [number for number, picture in enumerate(pictures) if (screen[BAR:] == picture[BAR:]).all()]

            # Until then a compositor draws its background.
            server.wait_for_picture(matches, "the first image")
            found = set()

            def all_found():
                shown = matches(server.screenshot())
                assert len(shown) == 1, "the window has exactly one whole image"
                found.update(shown)
                return len(found) == len(pictures)

            until(all_found, "each of the images in a screenshot")
            report = process.interrupt().succeeded()
    assert report["end"] == "interrupted" and report["display"] == server.display
    # At the end the display may have some that were not shown yet.
    assert 0 <= report["presented"] - report["shown"] - report["skipped"] <= report["buffers"], report


# --- sources -------------------------------------------------------------------------------------------


def test_images_of_other_sizes_are_centred_or_cut_off(tmp_path):
    sizes = [(200, 150), (100, 90), (320, 240), (90, 300), (301, 77)]
    pictures = [photo(*size, seed) for seed, size in enumerate(sizes)]
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / f"{number}.png")
    done = images(tmp_path, "--display", f"none={tmp_path / 'out'}")
    assert "100x90 pixels, not 200x150" in done.stderr and done.stderr.count("pixels, not") == 1, done.stderr
    assert done.succeeded()["other_sizes"] == 4
    for frame, picture in zip(frames(tmp_path / "out"), pictures, strict=True):
        assert (frame[BAR:] == centred(picture, 200, 150)[BAR:]).all(), picture.shape


def test_kinds_of_image_files_show_their_pixels(tmp_path):
    grey = photo(80, 60, 1)[:, :, 0]
    deep = np.random.default_rng(2).integers(0, 65536, (60, 80)).astype("uint16")
    colour = photo(80, 60, 3)
    smooth = np.asarray(Image.fromarray(pattern(9, 80, 60)))
    Image.fromarray(grey).save(tmp_path / "0.png")
    Image.fromarray(deep).save(tmp_path / "1.tiff")
    Image.fromarray(colour).save(tmp_path / "2.tif", compression="tiff_lzw")
    Image.fromarray(smooth).save(tmp_path / "3.jpg", quality=100)
    Image.fromarray(colour).convert("P", palette=Image.Palette.ADAPTIVE).save(tmp_path / "4.png")
    (tmp_path / "notes.txt").write_text("not an image")
    saved, _ = shown(tmp_path, tmp_path, "--no-statistics")
    assert (saved[0] == np.dstack([grey] * 3)).all() and (saved[2] == colour).all()
    # 65535 is 255: the nearest level, or the one below.
    assert np.abs(saved[1][:, :, 0].astype(int) - np.round(deep / 257)).max() <= 1
    for number, name in [(3, "3.jpg"), (4, "4.png")]:
        expected = np.asarray(Image.open(tmp_path / name).convert("RGB")).astype(int)
        assert np.abs(saved[number].astype(int) - expected).max() <= (3 if name == "3.jpg" else 0)


@pytest.mark.parametrize(("pixels", "width"), [("bgrx", 4), ("rgb", 3), ("gray8", 1), ("gray16", 2)])
def test_raw_frames_show_their_pixels(tmp_path, pixels, width):
    data = np.random.default_rng(width).integers(0, 256, (3, 40, 50, width)).astype("uint8")
    (tmp_path / "video.raw").write_bytes(data.tobytes())
    saved, _ = shown(tmp_path, tmp_path / "video.raw", "--raw", f"50x40:{pixels}", "--no-statistics")
    channels = {"bgrx": [2, 1, 0], "rgb": [0, 1, 2], "gray8": [0, 0, 0], "gray16": [1, 1, 1]}[pixels]
    assert (np.stack(saved) == data[:, :, :, channels]).all()


def test_shots_of_a_recording_are_pictures_in_decibels(tmp_path, runs):
    recording, sent = runs["uint8"]
    saved, report = shown(tmp_path, recording, "--mode", "160x120@60", "--no-statistics")
    assert len(saved) == report["images"] == len(sent) == 5
    for frame, values in zip(saved, sent.astype("float64"), strict=True):
        samples, channels = values.shape
        strength = np.abs(values - values.mean(axis=0))
        levels = 255 * np.clip(1 + 20 * np.log10(np.maximum(strength / strength.max(), 1e-6)) / 60, 0, 1)
        expected = levels[np.arange(120) * samples // 120][:, np.arange(160) * channels // 160]
        assert (frame == frame[:, :, :1]).all() and np.abs(frame[:, :, 0] - np.floor(expected)).max() <= 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40, "expected a PNG, TIFF or JPEG image"),
        ("a.tif", b"II*\0\xff\xff\xff\xff", "expected a PNG, TIFF or JPEG image"),
        ("huge.png", png_header(2**31 - 1, 2**31 - 1), "expected a PNG, TIFF or JPEG image"),
        ("empty.png", b"", "expected a PNG, TIFF or JPEG image"),
        ("a.h5", b"no HDF5", "a.h5"),
    ],
    ids=["png", "tiff", "huge", "empty", "recording"],
)
def test_malformed_image_is_refused_with_its_name(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    error = images(tmp_path / name, "--display", "none").refused()
    assert words in error and name in error, error


def test_arguments_that_contradict_are_refused_with_advice(tmp_path):
    (tmp_path / "video.raw").write_bytes(b"\0" * 1000)
    Image.fromarray(photo(40, 40, 1)).save(tmp_path / "a.png")
    (tmp_path / "empty").mkdir()
    (tmp_path / "wide.png").write_bytes(png_header(65_636, 100))
    for arguments, words in [
        ((tmp_path / "video.raw", "--raw", "50x40:rgb"), "expected whole frames of 6000 bytes"),
        ((tmp_path / "empty",), "found none"),
        (
            (tmp_path / "wide.png",),
            "expected frames of up to 32767x32767@1000, found 65636x100@60: set another size by --mode",
        ),
        ((tmp_path / "missing.png",), "cannot read"),
        ((tmp_path / "a.png", "--count", "2"), "expected at least --count 2 images, found 1"),
        (("--mode", "100x32@60"), "--no-statistics"),
        (("--display", "x11=:54321"), "--display none"),
    ]:
        error = (
            images("--display", "none", *arguments).refused()
            if "--display" not in arguments
            else images(*arguments).refused()
        )
        assert words in error, error


# --- targets -------------------------------------------------------------------------------------------


def test_images_go_through_a_running_target(tmp_path):
    with Target("--region", "other=4K,rights=r", "--region", "frames=1M,rights=rw") as target:
        to = ("--to", target.address, "--token", target.token)
        saved, report = shown(tmp_path, "--mode", "100x100@60", "--count", 26, *to)
        assert report["images"] == 26 and (saved[25][BAR:] == pattern(25, 100, 100)[BAR:]).all()
        # One WRITE and one READ for each image.
        (region,) = [region for region in target.end_report()["regions"] if region["name"] == "frames"]
        assert (region["writes"], region["reads"]) == (26, 26), region


def test_full_target_is_refused_with_what_fits():
    with Target("--region", "frames=1M,rights=rw") as target:
        to = ("--to", target.address, "--token", target.token)
        error = images("--display", "none", "--mode", "100x100@60", "--count", 27, *to).refused()
        assert "26 images of 40000 bytes fit, found 27" in error and "--count 26" in error, error
        for region, words in [("nothing", "no region nothing"), ("frames", None)]:
            outcome = images("--display", "none", "--mode", "100x100@60", "--count", 1, "--region", region, *to)
            assert outcome.succeeded() if words is None else words in outcome.refused()
    error = images("--display", "none", "--count", 1_000_000, "--mode", "2560x1440@60").refused()
    assert "--count" in error and "available" in error, error


def test_region_without_rights_is_refused():
    with Target("--region", "frames=1M,rights=r") as target:
        to = ("--to", target.address, "--token", target.token)
        assert "rights 'rw'" in images("--display", "none", *to).refused()
        assert "'rw' are needed" in images("--display", "none", "--region", "frames", *to).refused()


def child(process):
    """Returns the pid of the target that a run has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(until(lambda: children.read_text().split(), "the target")[0])


def wait_for_line(process, *words):
    """Waits for a line on standard error with these words. A slow machine may cause other warnings before it."""
    line = ""
    while not all(word in line for word in words):
        line = process.popen.stderr.readline()
        assert line, f"{process.command} has ended"


def same_twice(server):
    """Returns a list of the screenshot if nothing changes within several refreshes."""
    first = server.screenshot()
    time.sleep(0.3)
    return [first] if (first == server.screenshot()).all() else None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_last_whole_image_stays_when_the_target_is_killed(transport):
    expected = [pattern(number, 320, 240)[BAR:] for number in range(8)]
    with XServer() as server:
        words = ["images", "--json", "--display", server.display, "--mode", "320x240@60", "--count", 8]
        with Process(*words, "--transport", transport) as process:
            server.wait_for_picture(lambda screen: screen.any(), "the first frame")
            os.kill(child(process), signal.SIGKILL)
            wait_for_line(process, "warning: the target ", "the last whole image stays")
            # Those that were read before are still shown.
            last = until(lambda: same_twice(server), "the last image")[0][BAR:240, :320]
            assert any((last == image).all() for image in expected), "no whole image"
            ended = process.interrupt()
    assert ended.code == 1 and "shotline: the target" in ended.stderr, ended.stderr
    report = ended.json
    assert report["lost"] and report["target_cpu_s"] is None and report["shown"] > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_run_without_a_display_ends_when_the_target_is_killed(tmp_path, transport):
    words = ["images", "--json", "--display", f"none={tmp_path}", "--mode", "64x48@60", "--count", 8]
    with Process(*words, "--frames", 1_000_000, "--transport", transport) as process:
        until(lambda: (tmp_path / "frame-000009.png").exists(), "some frames")
        os.kill(child(process), signal.SIGKILL)
        ended = process.end()
    assert ended.code == 1 and "shotline: the target" in ended.stderr, ended.stderr
    assert ended.json["lost"] and ended.json["verified"] == ended.json["shown"] == len(frames(tmp_path)) >= 10


def test_target_that_does_not_answer_is_given_up():
    with XServer() as server:
        words = ["images", "--json", "--display", server.display, "--mode", "320x240@60", "--count", 8]
        with Process(*words, "--transport", "spacefibre:shm") as process:
            server.wait_for_picture(lambda screen: screen.any(), "the first frame")
            os.kill(child(process), signal.SIGSTOP)
            wait_for_line(process, "the target does not respond", "the last whole image stays")
            ended = process.interrupt()
    assert ended.code == 1 and ended.json["lost"] == "the target does not respond", ended.stderr
    assert ended.json["shown"] > 0 and ended.json["target_cpu_s"] is None


def test_interrupt_while_the_target_is_silent_still_reports(tmp_path):
    words = ["images", "--json", "--display", f"none={tmp_path}", "--mode", "64x48@60", "--count", 4]
    with Process(*words, "--frames", 1_000_000, "--transport", "shm") as process:
        until(lambda: (tmp_path / "frame-000003.png").exists(), "some frames")
        os.kill(child(process), signal.SIGSTOP)
        ended = process.interrupt()
    assert ended.code == 1 and ended.json["shown"] >= 4 and ended.json["lost"], ended.stderr


# --- displays ------------------------------------------------------------------------------------------


def test_display_that_goes_away_is_reported_with_the_frames():
    with (
        XServer() as server,
        Process("images", "--json", "--display", server.display, "--mode", "320x240@60", "--count", 4) as process,
    ):
        server.wait_for_picture(lambda screen: screen.any(), "the first frame")
        server.kill()
        ended = process.end()
    assert ended.code == 1 and "the display has gone" in ended.stderr, ended.stderr
    assert ended.json["shown"] > 0 and "the display has gone" in ended.json["end"]


def wait_for_several(server, size, expected):
    """Waits until several of the images have been seen on a screen of this size, at its upper left."""
    seen = set()

    def advances():
        screen = server.screenshot()
        assert screen.shape[1::-1] == size
        part = screen[BAR:240, :320]
        equal = (number for number, image in enumerate(expected) if (image[: len(part), : part.shape[1]] == part).all())
        seen.update(equal)
        return len(seen) > 2

    until(advances, f"several images on a screen of {size}")


def test_images_continue_while_the_screen_changes_its_mode():
    expected = [pattern(number, 320, 240)[BAR:] for number in range(16)]
    with XServer() as server:
        words = ["images", "--json", "--display", server.display, "--mode", "320x240@60", "--count", 16, "--rate", 20]
        with Process(*words) as process:
            server.wait_for_picture(lambda screen: screen.any(), "the first frame")
            for size in [(640, 400), (200, 150), (800, 600)]:  # the second is smaller than the window
                server.set_mode(*size)
                wait_for_several(server, size, expected)
            ended = process.interrupt()
    assert ended.code == 0 and ended.json["end"] == "interrupted" and ended.json["resizes"] == 0, ended.stderr


def test_display_without_shared_memory_is_refused():
    with XServer("-extension", "MIT-SHM") as server:
        error = images("--display", server.display, "--count", 2).refused()
        assert "takes no shared memory" in error and "--display none" in error, error


def test_display_that_stops_its_refresh_continues_later():
    expected = [pattern(number, 320, 240)[BAR:] for number in range(16)]
    with XServer() as server:
        words = ["images", "--json", "--display", server.display, "--mode", "320x240@60", "--count", 16, "--rate", 20]
        with Process(*words) as process:
            server.wait_for_picture(lambda screen: screen.any(), "the first frame")
            server.stop()
            wait_for_line(process, "the display has not refreshed for")
            server.resume()
            found = set()

            def are_later():
                """Sees more images than there were frame buffers with images when the display stopped."""
                rows = server.screenshot()[BAR:240, :320]
                found.update(number for number, image in enumerate(expected) if (rows == image).all())
                return len(found) > 8

            until(are_later, "later images")
            report = process.interrupt().succeeded()
    assert report["stalls"] >= 1 and report["repeated"] > 0 and report["buffers"] < 8, report


def test_frames_of_an_earlier_run_are_replaced_only_on_request(tmp_path):
    words = ["--display", f"none={tmp_path}", "--mode", "64x48@60", "--count", 3]
    (tmp_path / "frame-notes.png").write_text("mine")
    (tmp_path / "frame-000007.png").write_text("of a longer run")
    error = images(*words).refused()
    assert "has frames of an earlier run" in error and "--force" in error, error
    assert (tmp_path / "frame-000007.png").read_text() == "of a longer run"
    images(*words, "--force").succeeded()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"frame-{number:06}.png" for number in range(3)),
        "frame-notes.png",
    ]
    assert (tmp_path / "frame-notes.png").read_text() == "mine"


def test_folder_is_not_created_without_a_frame(tmp_path):
    unreachable = ("--to", "127.0.0.1:1", "--token", "0" * 32)
    images("--display", f"none={tmp_path / 'a' / 'b'}", "--mode", "64x48@60", "--count", 1, *unreachable).refused()
    assert not (tmp_path / "a").exists()


def test_demo_without_a_display_saves_frames_and_says_so(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    done = run("images", "--demo", "--json", "--frames", 3, cwd=tmp_path, env=environment)
    assert "The frames are saved in shotline-images" in done.stderr, done.stderr
    report = done.succeeded()
    assert report["transport"].startswith("spacefibre") and report["verified"] == 3, json.dumps(report)
    assert (frames(tmp_path / "shotline-images")[2][BAR:] == pattern(2, 1280, 720)[BAR:]).all()
