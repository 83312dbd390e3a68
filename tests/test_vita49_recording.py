"""VITA 49 recorded without set-up: from the emulated digitizer, and from an independent sender."""

import contextlib
import random
import signal
import socket
import struct
import time

import h5py
import numpy as np
import pytest
from scapy.layers.inet import UDP
from scapy.utils import PcapNgReader
from senders.listen import Listener

from common import Process, Recording, check_balanced, run, until, verify

LONG_TIMEOUT = ("--timeout-ms", 60_000)
IQ16 = 0x2000_03CF_0000_0000
RATE, CENTRE = 1_000_000, 1.3e9
GPS = 1_447_000_000  # GPS time in seconds, of November 2025
TAI_MINUS_GPS = 315_964_819
PACKET, BLOCK = 250, 1000  # samples


class Sender:
    """Packets by ANSI/VITA 49.0, built word by word."""

    def __init__(self, listener, stream=0xBEEF):
        self.listener = listener
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", listener.port))
        self.stream, self.counts = stream, [0, 0]
        self.samples = np.random.default_rng(9).integers(-32768, 32768, (200 * BLOCK, 2)).astype(">i2")

    def send(self, kind, at, contents, lost=False):
        """Sends a packet of data (1) or context (4), of the samples from `at` on.

        Lost packets are counted and not sent.
        """
        seconds, rest = divmod(at, RATE)
        count = self.counts[kind == 4]
        self.counts[kind == 4] = (count + 1) % 16
        word = kind << 28 | 2 << 22 | 2 << 20 | count << 16 | 5 + len(contents) // 4
        header = struct.pack(">IIIQ", word, self.stream, GPS + seconds, rest * 10**6)
        if not lost:
            with contextlib.suppress(ConnectionRefusedError):  # the recorder has already ended, in one of the tests
                self.socket.send(header + contents)

    def context(self, at, centre=CENTRE, rate=RATE, sample_loss=False):
        bits = 1 << 27 | 1 << 21 | 1 << 16 | 1 << 15
        state = 1 << 31 | 1 << 19 | 1 << 24 | sample_loss << 12
        self.send(4, at, struct.pack(">IqqIQ", bits, round(centre * 2**20), round(rate * 2**20), state, IQ16))

    def block(self, number, lost=(), **context):
        self.context(number * BLOCK, **context)
        for index in range(BLOCK // PACKET):
            at = number * BLOCK + index * PACKET
            self.send(1, at, self.samples[at : at + PACKET].tobytes(), lost=index in lost)
        self.listener.wait_for_space()


def stamp_of(sample):
    return (GPS + TAI_MINUS_GPS) * 10**9 + sample * 10**9 // RATE


def newest(path, table):
    """Returns a table's entry of the last visible shot; None before there is one."""
    try:
        with h5py.File(path, locking=False) as file:
            rows = len(file["rf"])
            return file[table][rows - 1] if rows else None
    except (OSError, KeyError):
        return None


def stamp(path):
    """Returns the stamp of the last visible shot; 0 before there is one."""
    shot = newest(path, "link0/shots")
    return 0 if shot is None else int(shot["stamp_tai_ns"])


def record(path, send, *arguments, last=None, cause=None):
    """Records what `send` sends; returns (report, recording, sender).

    The run is interrupted when a shot is visible that begins at sample `last` or later, or it ends early by `cause`.
    """
    with Listener("vita49", "--out", path, *LONG_TIMEOUT, "--pool", "64MiB", *arguments) as listener:
        sender = Sender(listener)
        send(sender)
        if last is not None:
            until(lambda: stamp(path) >= stamp_of(last), what="the last shot in the file")
            listener.signal(signal.SIGINT)
        end = listener.end()
    ended = end.cut_off(cause) if cause else end.succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    verify(path)
    return ended, recording, sender


def first_block(recording):
    """Returns the number of the sender's block that has number 0 in the recording."""
    row = recording.tables[0][0]
    assert recording.links[0]["sample_rate_hz"] == RATE
    since = int(row["stamp_tai_ns"]) - stamp_of(0)
    first, rest = divmod(since * RATE // 10**9, BLOCK)
    assert rest == 0
    return first - int(row["number"])


def test_every_sample_is_recorded_with_its_time_and_context(tmp_path):
    path = tmp_path / "run.h5"

    def send(sender):
        for number in range(40):
            sender.block(number, centre=CENTRE + 1e6 * (number >= 20))

    ended, recording, sender = record(path, send, last=39 * BLOCK)
    assert ended["shots_partial"] == ended["packets_missing"] == 0 and ended["drops"] == {}, ended
    begin = first_block(recording)
    numbers = [begin + number for number in recording.numbers()]
    assert numbers == list(range(numbers[0], 40)) and numbers[0] <= 4, numbers
    with h5py.File(path) as file:
        rf, blocks, shots = file["rf"], file["link0/blocks"][:], file["link0/shots"][:]
        assert rf.dtype == ">i2" and list(rf.attrs["components"]) == ["I", "Q"]
        assert rf.attrs["sample_rate_hz"] == RATE
        for row, number in enumerate(numbers):
            expected = sender.samples[number * BLOCK : (number + 1) * BLOCK]
            assert np.array_equal(rf[row], expected), f"block {number}"
            assert blocks[row]["centre_hz"] == CENTRE + 1e6 * (number >= 20), f"block {number}"
            assert np.isnan(blocks[row]["snr_db"]) and blocks[row]["overrun"] == 0
            assert shots[row]["flags"] & 1, "the clock must be marked as calibrated"
            assert shots[row]["stamp_tai_ns"] == stamp_of(number * BLOCK)


def test_network_and_sender_losses_are_distinguished_exactly(tmp_path):
    path, unsent = tmp_path / "run.h5", [*range(12, 16), *range(24, 25)]
    rng = random.Random(3)
    lost = {number: {index for index in range(4) if rng.random() < 0.2} for number in range(10, 38)}
    lost[20] = {0, 1, 2, 3}
    lost |= {number: set() for number in (11, 16, 23, 25)}

    def send(sender):
        for number in range(40):
            if number not in unsent:
                sender.block(number, lost=lost.get(number, ()), sample_loss=number - 1 in unsent)

    ended, recording, _ = record(path, send, "--window", 4, last=39 * BLOCK)
    begin = first_block(recording)
    found = [set(map(int, np.flatnonzero(~row))) for row in recording.presence(0)]
    kept = [begin + int(shot["number"]) for shot in recording.tables[0]]
    assert 20 not in kept and not set(unsent) & set(kept)
    for row, number in enumerate(kept):
        assert found[row] == set(lost.get(number, ())), f"block {number}"
    whole = {(cause, begin + first, count) for _, cause, first, count in recording.losses}
    # Four blocks of four packets are 16, a whole cycle of the packet count; there only the sender's context shows the
    # loss.
    assert whole == {("overrun", 12, 4), ("overrun", 24, 1), ("wire_gap", 20, 1)}, recording.losses
    assert ended["packets_missing"] == sum(len(lost[number]) for number in lost if number not in unsent)
    with h5py.File(path) as file:
        assert [int(block["overrun"]) for block in file["link0/blocks"][:]][-1] == 5


def test_a_sender_without_context_is_described_by_settings(tmp_path):
    def send(sender):
        for packet in range(100):
            at = packet * PACKET
            sender.send(1, at, sender.samples[at : at + PACKET].tobytes())
            sender.listener.wait_for_space()

    path = tmp_path / "run.h5"
    settings = ("--samples", 2 * PACKET, "--sample-rate-hz", RATE)
    ended, _, sender = record(path, send, *settings, last=97 * PACKET)
    assert ended["shots_complete"] >= 40 and ended["shots_partial"] == 0
    with h5py.File(path) as file:
        assert np.isin(file["rf"][-1], sender.samples).all() and file["link0/blocks"][-1]["centre_hz"] == 0
        rest = sender.samples[: 100 * PACKET][-len(file["rf"]) * 2 * PACKET :]
        assert any(np.array_equal(file["rf"][0], rest[at : at + 2 * PACKET]) for at in (0, PACKET))


def test_a_changed_sample_rate_ends_the_recording(tmp_path):
    def send(sender):
        for number in range(30):
            sender.block(number, rate=RATE if number < 20 else 2 * RATE)

    ended, recording, _ = record(tmp_path / "run.h5", send, cause="sender-changed")
    assert first_block(recording) + recording.numbers()[-1] == 19 and ended["shots_partial"] == 0


def test_packets_with_a_trailer_are_refused_with_the_reason():
    with Listener("vita49", "--discard", *LONG_TIMEOUT) as listener:
        sender = Sender(listener)
        sender.context(0)
        word = 1 << 28 | 1 << 26 | 2 << 22 | 2 << 20 | 5 + 11
        sender.socket.send(struct.pack(">IIIQ", word, sender.stream, GPS, 0) + bytes(44))
        assert "trailers" in listener.end_when_drained().refused()


@pytest.mark.parametrize("payload", [8192, 1400])
def test_every_sample_of_the_emulated_digitizer_is_recorded(tmp_path, payload):
    path, noise = tmp_path / "run.h5", np.random.default_rng(4).integers(-32768, 32768, (40, 16384, 2), dtype="<i2")
    noise.tofile(tmp_path / "noise.ci16")
    with Listener("vita49", "--out", path, *LONG_TIMEOUT) as listener:
        source = (
            "--file",
            tmp_path / "noise.ci16",
            "--format",
            "ci16",
            "--decimation",
            1,
            "--distinct",
            40,
            "--points",
            0,
        )
        shape = ("--block", "64KiB", "--payload", payload, "--sample-rate-hz", 4e6, "--centre-hz", CENTRE)
        to = ("--to", f"127.0.0.1:{listener.port}", "--framing", "vita49", "--stream", 7, "--blocks", 40, "--ring", 40)
        with Process("emulate", "digitizer", *to, *source, *shape, "--json") as sender:
            sent = sender.end().succeeded()["streams"][0]
        until(lambda: np.array_equal(newest(path, "rf"), noise[-1]), what="the last block in the file")
        ended = listener.interrupt().succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    verify(path)
    assert sent["overruns"] == 0 and ended["shots_partial"] == ended["packets_missing"] == 0
    numbers = recording.numbers()
    # Two blocks are used for learning, and up to three more arrive during that.
    assert numbers == list(range(1, len(numbers) + 1)) and 35 <= len(numbers) <= 38
    with h5py.File(path) as file:
        rf, blocks, shots = file["rf"], file["link0/blocks"][:], file["link0/shots"][:]
        skipped = 40 - len(numbers)
        for row in range(len(numbers)):
            assert np.array_equal(rf[row], noise[skipped + row]), f"row {row}"
        assert (blocks["centre_hz"] == CENTRE).all()
        assert np.abs(np.diff(shots["stamp_tai_ns"].astype(np.int64)) - 16384 * 250).max() <= 1
        assert abs(int(shots["stamp_tai_ns"][0]) * 1e-9 - 37 - time.time()) < 60
    # Readers without support for byte orders get native numbers.
    out = tmp_path / "shots.npy"
    if run("export", path, "--format", "npy", "--out", out).code == 0:
        assert np.array_equal(np.load(out)[0], noise[skipped])


# --- captures and replays ----------------------------------------------------------------------------


def payloads(capture):
    """Returns the packets of a capture, parsed by the standard alone: stamp -> samples."""
    found = {}
    for packet in PcapNgReader(str(capture)):
        word, _, seconds, picoseconds = struct.unpack_from(">IIIQ", data := bytes(packet[UDP].payload))
        assert word >> 28 == 1 and 4 * (word & 0xFFFF) == len(data), (
            "each packet must be data with a stream ID and a correct length"
        )
        assert word >> 20 & 15 == 2 << 2 | 2, "GPS time and picoseconds"
        found[(seconds + TAI_MINUS_GPS) * 10**9 + picoseconds // 1000] = data[20:]
    return found


def packets_of(sender, blocks):
    """Returns the expected packets of some blocks of a sender: stamp -> samples."""
    starts = (block * BLOCK + at for block in blocks for at in range(0, BLOCK, PACKET))
    return {stamp_of(at): sender.samples[at : at + PACKET].tobytes() for at in starts}


def test_an_exported_capture_has_the_received_packets(tmp_path):
    _, recording, sender = record(tmp_path / "run.h5", lambda s: [s.block(n) for n in range(9)], last=8 * BLOCK)
    first = first_block(recording)
    run("export", tmp_path / "run.h5", tmp_path / "run.pcapng", "--json").succeeded()
    found = payloads(tmp_path / "run.pcapng")
    assert found == packets_of(sender, range(first + int(recording.tables[0][0]["number"]), 9))


def test_a_vita49_stream_is_recorded_as_a_capture(tmp_path):
    path = tmp_path / "run.pcapng"
    with Listener("vita49", "--out", path, "--shots", 5, *LONG_TIMEOUT, "--pool", "64MiB") as listener:
        sender = Sender(listener)
        number = iter(range(200))
        until(lambda: sender.block(next(number)) or listener.popen.poll() is not None, what="five blocks")
        ended = listener.end().succeeded()
    found = payloads(path)
    assert len(found) == 5 * BLOCK // PACKET, ended
    all_packets = packets_of(sender, range(200))
    assert all(all_packets[stamp] == data for stamp, data in found.items())


def record_burst_of_five_blocks(*arguments):
    """Returns the outcome of a run that receives five blocks while its process is stopped."""
    with Listener("vita49", *arguments, *LONG_TIMEOUT, "--pool", "64MiB") as listener:
        sender = Sender(listener)
        listener.signal(signal.SIGSTOP)
        for number in range(5):
            sender.block(number)
        listener.signal(signal.SIGCONT)
        return listener.end()


@pytest.mark.parametrize(
    "flags", [("run.h5",), ("run.h5", "--capacity", 50), ("run.pcapng",)], ids=lambda flags: " ".join(map(str, flags))
)
def test_a_burst_of_shots_does_not_exceed_the_requested_count(tmp_path, flags):
    path, *flags = tmp_path / flags[0], *flags[1:]
    ended = record_burst_of_five_blocks("--out", path, "--shots", 2, *flags).succeeded()
    assert ended["shots_recorded"] == ended["rows"] == 2, ended
    assert ended["ended"]["cause"] == "shots" and not ended["ended"]["early"], ended
    # Shots that had arrived after these two are in `/losses`.
    assert ended["shots_complete"] == 2 and set(ended["drops"]) <= {"sink_full"}, ended
    if path.suffix == ".h5":
        check_balanced(ended, Recording(path))


def test_a_burst_of_shots_beyond_the_capacity_fills_the_file(tmp_path):
    ended = record_burst_of_five_blocks("--out", tmp_path / "run.h5", "--shots", 3, "--capacity", 2).cut_off("full")
    assert ended["shots_recorded"] == ended["rows"] == 2 and set(ended["drops"]) == {"sink_full"}, ended
    assert ended["ended"]["shots_without_space"] == ended["ended"]["after_shots"] - 2, ended
    check_balanced(ended, Recording(tmp_path / "run.h5"))


def test_a_last_shot_beyond_the_capacity_fills_a_stopped_file(tmp_path):
    path, rows = tmp_path / "run.h5", 8
    with Listener("vita49", "--out", path, "--capacity", rows, *LONG_TIMEOUT, "--pool", "64MiB") as listener:
        sender = Sender(listener)
        for number in range(5):
            sender.block(number)
        until(lambda: stamp(path) >= stamp_of(4 * BLOCK), what="the fifth block in the file")
        so_far = Recording(path)
        end = first_block(so_far) + so_far.numbers()[0] + rows
        for number in range(5, end):
            sender.block(number)
        sender.block(end, lost=(1,))  # it stays open until the run ends
        ended = listener.end_when_drained().cut_off("full")
    assert ended["rows"] == rows and ended["drops"] == {"sink_full": 1}, ended
    check_balanced(ended, Recording(path))


def test_a_vita49_replay_sends_samples_with_their_stamps(tmp_path):
    record(tmp_path / "run.h5", lambda s: [s.block(n) for n in range(9)], last=8 * BLOCK)
    again = tmp_path / "again.h5"
    settings = ("--samples", BLOCK, "--sample-rate-hz", RATE)
    with Listener("vita49", "--out", again, *settings, *LONG_TIMEOUT, "--pool", "64MiB") as listener:
        to = ("--to", f"127.0.0.1:{listener.port}", "--rate-hz", 200, "--loop", 3)
        outcome = run("replay", tmp_path / "run.h5", *to, "--json")
        assert outcome.code == 0 and "--sample-rate-hz" in outcome.stderr, outcome.stderr
        until(lambda: stamp(again) > 0, what="a shot in the file")
        listener.signal(signal.SIGINT)
        listener.end().succeeded()
    verify(again)
    # Blocks begin at the first packet after those that the receiver used for learning.
    (begin, _), *_ = originals = shots_of(tmp_path / "run.h5")
    samples = np.concatenate([block for _, block in originals])
    starts = [((stamp - begin) * RATE // 10**9, block) for stamp, block in shots_of(again)]
    within = [(at, block) for at, block in starts if at + BLOCK <= len(samples)]
    assert within and all(np.array_equal(samples[at : at + BLOCK], block) for at, block in within)


def shots_of(path):
    """Returns stamp and samples of each whole shot."""
    with h5py.File(path) as file:
        table = file["link0/shots"]
        return [(int(row["stamp_tai_ns"]), file["rf"][index]) for index, row in enumerate(table) if row["state"] == 2]


def test_only_a_vita49_recording_is_replayed_as_vita49(tmp_path):
    np.save(tmp_path / "rf.npy", np.zeros((3, 64, 2), np.int16))
    run("import", tmp_path / "rf.npy", tmp_path / "run.h5", "--sample-rate-hz", RATE, "--json").succeeded()
    outcome = run("replay", tmp_path / "run.h5", "--to", "127.0.0.1:9", "--framing", "vita49", "--max").refused()
    assert "cannot be sent as vita49" in outcome, outcome
