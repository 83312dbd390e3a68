"""`shotline inspect`: losses as a table, and a plot of the run; `shotline verify` on a terminal."""

import os
import pty
import struct
import subprocess
import zlib

import numpy as np
import pytest
from senders.generated import GeneratedShots

from common import PROGRAM, Probe, Recorder, run, until

WIDTH, HEIGHT = 1280, 880


def read_png(path):
    """Returns the pixels of a PNG file as (row, column, colour), and checks the CRC of every chunk."""
    data, at, chunks = path.read_bytes(), 8, []
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(name + body) == struct.unpack_from(">I", data, at + 8 + length)[0]
        chunks.append((name, body))
        at += 12 + length
    assert struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"]) == (WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    lines = np.frombuffer(raw, np.uint8).reshape(HEIGHT, 1 + 3 * WIDTH)
    pixels = lines[:, 1:].reshape(HEIGHT, WIDTH, 3).copy()
    above = np.zeros((WIDTH, 3), np.uint8)
    for kind, line in zip(lines[:, 0], pixels):  # the five PNG filter types
        if kind == 1:
            line[:] = np.cumsum(line, axis=0, dtype=np.uint8)
        elif kind == 2 or kind == 4 and not line.any():  # the Paeth predictor without a difference is the line above
            line += above
        elif kind in (3, 4):
            line.reshape(-1)[:] = unfilter(kind, line.tobytes(), above.tobytes())
        above = line
    return pixels


def unfilter(kind, line, above):
    """Decodes a line filtered with the mean (3) or the Paeth predictor (4), byte by byte."""
    out = [0, 0, 0]
    for difference, up, corner in zip(line, above, b"\0\0\0" + above):
        left = out[-3]
        if kind == 3:
            guess = (left + up) // 2
        else:
            to_left, to_up, to_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            guess = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        out.append((difference + guess) & 0xFF)
    return out[3:]


def panels(pixels):
    """Returns the panels: rate, drops, shot, spectrum."""
    high, wide = HEIGHT // 2, WIDTH // 2
    return [pixels[y : y + high, x : x + wide] for y in (0, high) for x in (0, wide)]


def count_drawn_pixels(panel):
    return int((panel != 255).any(axis=2).sum())


def count_coloured_pixels(panel):
    return int((panel.max(axis=2).astype(int) - panel.min(axis=2) > 60).sum())


def random_shots(packing, shape, **more):
    low, high, kind = [(-(1 << 15), 1 << 15, np.int16), (-2048, 2048, np.int16), (0, 256, np.uint8)][packing]
    return GeneratedShots(np.random.default_rng(1).integers(low, high, shape).astype(kind), packing, **more)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """A recording of two links with lost packets, and with lost shots of one link and of both."""
    path = tmp_path_factory.mktemp("lossy") / "run.h5"
    numbers = [*range(10), *range(15, 30), 900]
    sender = random_shots(1, (2, len(numbers), 400, 16), numbers=numbers, rate=40_000_000)
    sender.record(path, lost={(1, 3, 1), (0, 7, 0)})
    return path


def test_losses_are_printed_as_an_aligned_table(lossy):
    text = run("inspect", lossy).stdout
    table = text[text.index("  cause") :].splitlines()
    rows = [line.split() for line in table]
    assert rows[0] == ["cause", "stream", "first", "last", "shots"]
    losses = run("inspect", lossy, "--json").succeeded()["losses"]
    expected = [[e["cause"], e["stream"], e["first"], e["first"] + e["count"] - 1, e["count"]] for e in losses]
    assert rows[1:] == [[str(cell) for cell in row] for row in expected] and len(expected) >= 4
    assert len({len(line) for line in table}) == 1, "every column must be aligned"


def test_a_plot_shows_rate_drops_the_shot_and_its_spectrum(lossy, tmp_path):
    run("inspect", lossy, "--plot", tmp_path / "run.png", "--json").succeeded()
    rate, drops, shot, spectrum = panels(read_png(tmp_path / "run.png"))
    assert min(map(count_coloured_pixels, (rate, drops, spectrum))) > 200, "lines must be drawn"
    grey = shot[40:300, 100:600].reshape(-1, 3)
    assert np.ptp(grey, axis=1).max() == 0 and len(np.unique(grey[:, 0])) > 50, "the shot must be an image in greys"


def test_a_tone_is_drawn_at_its_frequency(tmp_path):
    """The tone has a quarter of the Nyquist frequency, so it must be at a quarter of the axis."""
    wave = 1500 * np.sin(2 * np.pi * np.arange(2000) / 8)
    values = np.repeat(wave[:, None], 8, axis=1).astype(np.int16)[None, None]
    GeneratedShots(values, 1, rate=40_000_000).record(tmp_path / "run.h5")
    run("inspect", tmp_path / "run.h5", "--plot", tmp_path / "run.png", "--json").succeeded()
    spectrum = panels(read_png(tmp_path / "run.png"))[3]
    drawn = np.ptp(spectrum.astype(int), axis=2) > 60
    columns = np.flatnonzero(drawn.any(axis=0))
    peak = np.flatnonzero(drawn[drawn.any(axis=1).argmax()]).mean()
    share = (peak - columns[0]) / (columns[-1] - columns[0])
    assert abs(share - 0.25) < 0.02, share


@pytest.mark.parametrize(
    "packing, shape, rate",
    [(1, (1, 3, 4, 1), 0), (2, (1, 4, 100, 9), 0), (0, (2, 2, 50, 3), 1000), (1, (2, 1, 2, 1), 40_000_000)],
    ids=["unknown rate", "uint8", "int16, two links", "one shot"],
)
def test_any_recording_has_a_plot(tmp_path, packing, shape, rate):
    random_shots(packing, shape, rate=rate).record(tmp_path / "run.h5")
    run("inspect", tmp_path / "run.h5", "--plot", tmp_path / "run.png", "--json").succeeded()
    assert all(count_drawn_pixels(panel) > 100 for panel in panels(read_png(tmp_path / "run.png")))


def test_an_empty_or_unfinished_run_has_a_plot(tmp_path):
    path, png = tmp_path / "run.h5", tmp_path / "run.png"
    with Probe("--channels", 8, "--samples", 500) as probe:
        with Recorder(probe, "--out", path, "--samples", 500, "--shots", 20, "--external-trigger") as recorder:
            until(lambda: run("inspect", path, "--plot", png, "--json").code == 0, what="a valid file")
            assert all(count_drawn_pixels(panel) > 100 for panel in panels(read_png(png))), (
                "text must replace the missing data"
            )
            recorder.interrupt()
        probe.report()


def test_plots_that_cannot_be_drawn_are_refused(lossy, tmp_path):
    assert "cannot create" in run("inspect", lossy, "--plot", tmp_path / "no folder" / "run.png").refused()
    capture = tmp_path / "run.pcap"
    capture.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
    assert "expected a recording for --plot" in run("inspect", capture, "--plot", tmp_path / "run.png").refused()


def test_verify_shows_a_progress_bar_only_on_a_terminal(lossy):
    assert not run("verify", lossy).stderr
    terminal, program_end = pty.openpty()
    words = [PROGRAM, "verify", str(lossy)]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=program_end, env=environment) as process:
        os.close(program_end)
        shown = b""
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the terminal's other end is closed
                break
        assert process.wait() == 0
    os.close(terminal)
    assert b"of 26 rows" in shown, shown
