"""Pictures of the page of a run: their messages, and that they show what the emulated senders sent."""

import asyncio
import itertools
import json
import re
import select
import socket
import struct
import threading

import aiohttp
import numpy as np
import pytest
from carriers import udp
from senders.spead import packet

from common import WAIT_TIMEOUT_S, Probe, Process, Recorder

RATE_HZ, TONE_HZ, TONE_DBFS = 2_000_000, 400_000, -10
POINT_BYTES = {"gray8": 1, "rgb8": 3, "lines": 4}
PICTURES = 10
# 20 a second.
INTERVAL_MS = 50


def page_of(recorder):
    """Returns the address of the page that a recorder serves, and reads on so that the recorder never waits."""
    ready, _, _ = select.select([recorder.popen.stderr], [], [], WAIT_TIMEOUT_S)
    line = recorder.popen.stderr.readline() if ready else ""
    found = re.search(r"page: http://([^/]+)/", line)
    assert found, f"no page: {line}"
    return found[1]


def parse(message):
    """Returns the header and the points of a picture; lines as floats."""
    (length,) = struct.unpack_from("<I", message)
    assert length % 4 == 0
    header = json.loads(message[4 : 4 + length])
    payload = message[4 + length :]
    shape = (header["height"], header["width"])
    assert len(payload) == shape[0] * shape[1] * POINT_BYTES[header["format"]], header
    points = np.frombuffer(payload, "<f4" if header["format"] == "lines" else "u1")
    return header, points.reshape(*shape, -1).squeeze(axis=-1) if header["format"] != "rgb8" else points


async def _watch(address, kinds, count):
    async with aiohttp.ClientSession() as session, session.ws_connect(f"ws://{address}/ws") as socket:
        about = json.loads((await socket.receive(WAIT_TIMEOUT_S)).data)["about"]
        pictures = {}
        for kind in kinds or [info["kind"] for info in about["pictures"]]:
            await socket.send_json({"watch": [kind]})
            seen = pictures[kind] = []
            while len(seen) < count:
                message = await asyncio.wait_for(socket.receive(), WAIT_TIMEOUT_S)
                assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), f"{kind}: {message}"
                if message.type == aiohttp.WSMsgType.BINARY:
                    header, points = parse(message.data)
                    # The last picture of the kind before may still be on its way.
                    if header["kind"] == kind:
                        seen.append((header, points))
        return about, pictures


def watch(address, kinds=(), count=PICTURES):
    """Watches one kind after the other, all by default. Returns the description of the run, and the pictures by kind."""
    return asyncio.run(_watch(address, kinds, count))


def check_sequence(seen):
    """Checks that numbers rise, and that no two pictures are closer in time than 20 a second allow."""
    for (before, _), (after, _) in itertools.pairwise(seen):
        assert after["sequence"] > before["sequence"] and after["shot"] >= before["shot"]
    # A late picture may be followed by the next at once, but not by two; the clock has milliseconds.
    (first, _), (last, _) = seen[0], seen[-1]
    numbers, elapsed = last["sequence"] - first["sequence"], last["unix_ms"] - first["unix_ms"]
    assert elapsed >= (numbers - 2) * INTERVAL_MS, [header["unix_ms"] for header, _ in seen]


def positions(axis, count):
    return np.linspace(axis["from"], axis["to"], count)


class Listener(Process):
    """A recorder that keeps nothing, of a sender to a free port, and its page."""

    def __init__(self, framing, *arguments):
        self.carrier = udp()
        listen = ("--listen", self.carrier.to, "--framing", framing, "--pool", "64MiB", "--timeout-ms", 60_000)
        super().__init__("record", "--json", *listen, "--discard", "--serve", "127.0.0.1:0", *arguments)
        self.page = page_of(self)
        self.carrier.until_listening(self)


@pytest.fixture(scope="module")
def digitizer():
    """What the page of a recorder of a digitizer shows. The tone is moved by less than the bin of a block."""
    source = ("--decimation", 1, "--sample-rate-hz", RATE_HZ, "--block", 32768, "--distinct", 3)
    with Listener("digitizer") as recorder:
        tone = ("--tone", f"{TONE_HZ}:{TONE_DBFS}")
        with Process("emulate", "digitizer", "--to", recorder.carrier.to, "--json", *source, *tone) as sender:
            about, pictures = watch(recorder.page)
            sender.interrupt().succeeded()
        recorder.interrupt().succeeded()
    return about, pictures


@pytest.fixture(scope="module")
def ultrasound():
    """What the page of a recorder of a probe's phantom shows, and what the probe reports about it."""
    with Probe("--phantom", "--phases", 4, "--pace", "100hz") as probe:
        arguments = ("--discard", "--serve", "127.0.0.1:0", "--angles=-10,-5,0,5,10")
        with Recorder(probe, *arguments, "--pool", "256MiB") as recorder:
            about, pictures = watch(page_of(recorder))
            recorder.interrupt().succeeded()
        phantom = probe.report()["source"]["phantom"]
    return about, pictures, phantom


def test_a_digitizer_has_pictures_of_its_signal(digitizer):
    about, pictures = digitizer
    assert [info["kind"] for info in about["pictures"]] == ["spectrum", "waterfall", "iq", "rf"]
    for seen in pictures.values():
        check_sequence(seen)
    formats = {kind: {header["format"] for header, _ in seen} for kind, seen in pictures.items()}
    assert formats == {"spectrum": {"lines"}, "waterfall": {"gray8"}, "iq": {"lines"}, "rf": {"lines"}}
    for kind, seen in pictures.items():
        assert all(header["append"] == (kind == "waterfall") for header, _ in seen)


def test_the_spectrum_has_its_peak_at_the_tone(digitizer):
    for header, points in digitizer[1]["spectrum"]:
        frequencies = positions(header["x"], header["width"])
        assert header["x"]["unit"] == "MHz" and header["y"]["unit"] == "dBFS"
        bin_mhz = frequencies[1] - frequencies[0]
        assert abs(frequencies[points[0].argmax()] - TONE_HZ / 1e6) <= bin_mhz
        # Between two bins a tone is less than 1 dB lower.
        assert TONE_DBFS - 1 < points[0].max() < TONE_DBFS + 0.1


def test_columns_of_the_waterfall_have_the_tone(digitizer):
    for header, points in digitizer[1]["waterfall"]:
        frequencies = positions(header["y"], header["height"])
        step = abs(frequencies[1] - frequencies[0])
        assert np.all(np.abs(frequencies[points.argmax(axis=0)] - TONE_HZ / 1e6) <= 2 * step)


def test_the_tone_is_a_circle_of_its_amplitude(digitizer):
    for header, points in digitizer[1]["iq"]:
        assert header["lines"] == ["I", "Q"] and header["width"] <= 2048
        radius = np.hypot(*points)
        # The noise is 50 dB below.
        assert np.allclose(radius, 10 ** (TONE_DBFS / 20), rtol=0.05)


def test_a_probe_has_pictures_of_its_echoes(ultrasound):
    about, pictures, _ = ultrasound
    assert [info["kind"] for info in about["pictures"]] == ["bmode", "mmode", "channels", "rf"]
    for seen in pictures.values():
        check_sequence(seen)
    assert all(header["width"] == 96 for header, _ in pictures["channels"])


def test_columns_of_the_m_mode_have_the_times_of_their_shots(ultrasound):
    headers = [header for header, _ in ultrasound[1]["mmode"]]
    times = [header["x"] for header in headers]
    assert all((time["label"], time["unit"]) == ("time", "s") for time in times) and times[0]["from"] == 0
    assert all(before["to"] < after["from"] <= after["to"] for before, after in itertools.pairwise(times))
    # The probe sends 100 shots a second.
    shots = headers[-1]["shot"] - headers[0]["shot"]
    assert times[-1]["to"] - times[0]["to"] == pytest.approx(shots / 100, rel=0.1)


def test_the_image_has_wires_and_cyst_at_their_places(ultrasound):
    _, pictures, phantom = ultrasound
    # The newest picture of all transmissions.
    whole = [picture for picture in pictures["bmode"] if not picture[0]["note"]]
    assert whole, [header["note"] for header, _ in pictures["bmode"]]
    header, points = whole[-1]
    assert (header["x"]["unit"], header["y"]["unit"], header["value"]["unit"]) == ("mm", "mm", "dB")
    x, z = positions(header["x"], header["width"]), positions(header["y"], header["height"])
    for wire in phantom["wires"]:
        wire_x, wire_z = wire["x_m"] * 1e3, wire["z_m"] * 1e3
        distance = np.hypot(x - wire_x, (z - wire_z)[:, None])
        near = np.where(distance < 2.5, points, 0)
        row, column = np.unravel_index(near.argmax(), near.shape)
        assert distance[row, column] < 1, f"peak at {x[column]} mm, {z[row]} mm, wire {wire_x} mm, {wire_z} mm"
    cyst = {key: value * 1e3 for key, value in phantom["cyst"].items()}
    radius = np.hypot(x - cyst["x_m"], (z - cyst["z_m"])[:, None]) / cyst["radius_m"]
    value = header["value"]
    power = 10 ** ((value["from"] + points / 255 * (value["to"] - value["from"])) / 10)
    inside, outside = power[radius < 0.85].mean(), power[(radius > 1.15) & (radius < 1.8)].mean()
    assert 10 * np.log10(inside / outside) < -10


def test_the_sample_format_and_options_choose_the_pictures():
    shape = ("--channels", 1, "--sample-format", "uint8", "--samples", 4800)
    for arguments, expected in [
        (shape, ["frame"]),
        ((*shape, "--pictures", "none"), []),
        ((*shape, "--pictures", "ultrasound"), ["bmode", "mmode", "channels", "rf"]),
        (("--channels", 2, "--sample-format", "int16_le", "--samples", 50), ["spectrum", "waterfall", "iq", "rf"]),
        (("--channels", 96, "--samples", 50), ["bmode", "mmode", "channels", "rf"]),
    ]:
        with Listener("udp", *arguments) as recorder:
            about, _ = watch(recorder.page, count=0)
            assert [info["kind"] for info in about["pictures"]] == expected, arguments
            recorder.interrupt()


def test_frames_are_shown_in_their_size():
    width, height, part = 80, 60, 1200
    expected = np.add.outer(np.arange(height), 2 * np.arange(width)).astype(np.uint8)
    data, over = expected.tobytes(), threading.Event()

    def send(to):
        host, port = to.rsplit(":", 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for heap in range(1, 1 << 20):
                for offset in range(0, len(data), part):
                    piece = packet(heap, len(data), offset, data[offset : offset + part])
                    sender.sendto(piece, (host, int(port)))
                if over.wait(0.005):
                    break

    with Listener("spead", "--image-size", f"{width}x{height}") as recorder:
        sender = threading.Thread(target=send, args=(recorder.carrier.to,))
        sender.start()
        try:
            about, pictures = watch(recorder.page)
        finally:
            over.set()
            sender.join()
        recorder.interrupt()
    assert [info["kind"] for info in about["pictures"]] == ["frame"]
    check_sequence(pictures["frame"])
    # Packets may be lost when this machine is busy, which the note says.
    whole = [points for header, points in pictures["frame"] if not header["note"]]
    assert whole
    assert all(np.array_equal(points, expected) for points in whole)
