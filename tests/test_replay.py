"""A replay is recorded as the original recording, with set-up and without, in every framing."""

import re
import select
import signal
import time

import h5py
import numpy as np
import pytest
from senders.generated import GeneratedShots
from senders.listen import Listener, free_port, send_with_spead2
from senders.spead2_send import heap_data

from common import ROOT, WAIT_TIMEOUT_S, Probe, Process, Recorder, Recording, check_balanced, record, run, until, verify

CAPTURES = ROOT.parent / "shared" / "data"
SMALL = ("--links", 2, "--channels", 16, "--samples", 700)  # 5 packets a shot
# One packet a shot: a lost packet is a lost shot.
TINY = ("--links", 2, "--channels", 16, "--samples", 100)
FRAMINGS = pytest.mark.parametrize("framing", ["ud", "counted", "udp"])
# A timeout so long that only the tested event closes a shot.
LONG_TIMEOUT = ("--timeout-ms", 1000 * WAIT_TIMEOUT_S)
SHOTS = 80


class Replay(Process):
    """A replay that waits for a receiver at `address`."""

    def __init__(self, path, *arguments):
        super().__init__("replay", path, "--listen", "[::1]:0", "--json", *arguments)
        ready, _, _ = select.select([self.popen.stderr], [], [], WAIT_TIMEOUT_S)
        line = self.popen.stderr.readline() if ready else ""
        assert "waits for a receiver on" in line, f"the replay did not start: {line}"
        self.address = line.split()[-1]


def record_replay(path, out, *arguments, framing="ud", pace=("--gbps", 1), samples=700):
    """Records a replay to its end; returns (report of the replay, report of the recorder, recording)."""
    with Replay(path, *pace, *arguments) as replay:
        flags = ("--samples", samples, "--framing", framing, "--out", out, *LONG_TIMEOUT)
        ended = record(replay, *flags).succeeded()
        report = replay.interrupt().succeeded()
    recording = Recording(out)
    check_balanced(ended, recording)
    return report, ended, recording


def send_replay(path, *arguments):
    """Runs a replay without set-up and returns its report."""
    return run("replay", path, "--json", *arguments).succeeded()


def record_probe(path, *probe, shots=SHOTS, flags=()):
    """Records an emulated probe; returns (report, recording)."""
    shape = [value for name, value in zip(probe[::2], probe[1::2]) if name == "--samples"]
    with Probe("--pace", "500hz", "--seed", 5, *probe) as source:
        arguments = ("--samples", shape[0], "--shots", shots, "--out", path, *LONG_TIMEOUT, *flags)
        ended = record(source, *arguments).succeeded()
    return ended, Recording(path)


def missing_shots(recording):
    """Returns (stream, number) of every shot in `/losses`, with a row or without."""
    return {(stream, number) for stream, _, first, count in recording.losses for number in range(first, first + count)}


def check_same(again, original, except_fields=()):
    """Checks that all table fields and samples of two recordings are equal."""
    assert len(again.links) == len(original.links)
    for link in range(len(original.links)):
        first, second = original.tables[link], again.tables[link]
        for name in ("number", "stamp_tai_ns", "valid_bytes", "placed", "packets", "state", "flags", "record_good"):
            if name not in except_fields:
                assert np.array_equal(first[name], second[name]), (link, name, first[name], second[name])
        if "presence" not in except_fields:
            assert np.array_equal(original.presence(link), again.presence(link)), link
        assert original.rf[link].dtype == again.rf[link].dtype
        assert np.array_equal(original.rf[link], again.rf[link]), link
    assert missing_shots(again) == missing_shots(original)


# --- recordings with set-up --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    """Two links, 12 bits, with packets lost and corrupted."""
    path = tmp_path_factory.mktemp("holes") / "run.h5"
    ended, recording = record_probe(path, *SMALL, "--loss", 0.03, "--corrupt", 0.02)
    assert ended["shots_partial"] > 20 and ended["shots_complete"] > 20, ended
    return path, recording


@pytest.fixture(scope="module")
def lost_shots(tmp_path_factory):
    """Two links of which whole shots are lost."""
    path = tmp_path_factory.mktemp("gaps") / "run.h5"
    ended, recording = record_probe(path, *TINY, "--loss", 0.3)
    assert ended["drops"]["wire_gap"] > 10, ended
    assert len(recording.numbers()) < SHOTS, "some must be in no row"
    assert any((table["state"] == 0).any() for table in recording.tables), (
        "some must be in a row of which one link is lost"
    )
    return path, ended, recording


@FRAMINGS
def test_a_replay_records_as_the_same_recording(lossy, tmp_path, framing):
    path, original = lossy
    report, ended, again = record_replay(path, tmp_path / "again.h5", framing=framing)
    check_same(again, original)
    verify(tmp_path / "again.h5")
    missing = int(sum((~original.presence(link)).sum() for link in range(2)))
    assert sum(link["missing"] for link in report["links"]) == missing == ended["packets_missing"], report
    assert sum(link["packets"] for link in report["links"]) == ended["packets"], report
    assert not ended["packet_drops"], ended
    if framing != "udp":
        assert ended["icrc"]["good"] == ended["packets"], ended
    assert again.attributes["framing"] == framing and "replay of run.h5" in again.attributes["instrument"]


@FRAMINGS
def test_shots_that_were_lost_stay_lost(lost_shots, tmp_path, framing):
    path, ended, original = lost_shots
    _, again, recording = record_replay(path, tmp_path / "again.h5", framing=framing, samples=100)
    check_same(recording, original)
    assert again["drops"] == ended["drops"] and again["shots_sent"] == 2 * SHOTS, again
    verify(tmp_path / "again.h5")


@pytest.mark.parametrize(
    "shape",
    [
        ("--links", 1, "--channels", 16, "--samples", 700),
        ("--links", 1, "--channels", 8, "--samples", 900, "--int16", "--bits", 14),
        ("--links", 3, "--channels", 5, "--samples", 402),
    ],
    ids=["packed12", "int16", "three-links"],
)
def test_every_packing_and_number_of_links_is_replayed(tmp_path, shape):
    path = tmp_path / "run.h5"
    # --int16, which has no value, is added below.
    probe = [value for value in shape if value != "--int16"] + ["--loss", 0.03]
    with Probe("--pace", "500hz", "--seed", 7, *probe, *(["--int16"] if "--int16" in shape else [])) as source:
        samples = shape[shape.index("--samples") + 1]
        record(source, "--samples", samples, "--shots", 50, "--out", path, *LONG_TIMEOUT).succeeded()
    original = Recording(path)
    _, _, again = record_replay(path, tmp_path / "again.h5", samples=samples)
    check_same(again, original)
    verify(tmp_path / "again.h5")


def test_real_samples_are_replayed_bit_for_bit(tmp_path):
    """The samples are no test patterns, so set-up must not configure the receiver to expect any."""
    rf = CAPTURES / "ultrasound" / "muscle_rf_real_192ch.hdf5"
    if not rf.exists():
        pytest.skip(f"no real data in {rf}: test patterns are replayed in the other tests")
    path = tmp_path / "run.h5"
    _, original = record_probe(path, "--input", rf, "--samples", 1408, shots=12)
    _, _, again = record_replay(path, tmp_path / "again.h5", samples=1408)
    check_same(again, original)
    assert "test_pattern_period" not in again.attributes
    assert run("verify", tmp_path / "again.h5", "--json").succeeded()["verified"]


class StampedShots(GeneratedShots):
    """Shots with given times, in seconds after the first one."""

    def __init__(self, seconds):
        shots = len(seconds)
        self.seconds = seconds
        super().__init__(np.arange(shots * 6, dtype=np.int16).reshape(1, shots, 3, 2), 0, rate=40_000_000)

    def stamp(self, shot):
        return 1_700_000_000_000_000_000 + round(self.seconds[shot] * 1e9)


def test_the_recorded_pace_and_its_gaps_are_kept(tmp_path):
    """A busy machine may send a shot late, but never before its time. A higher speed shortens the pauses."""
    seconds = np.array([0, 0.01, 0.02, 0.03, 0.33, 0.34, 0.35, 0.36])
    factor = 1e7  # the recorded shots are this many times further apart: weeks
    for name, stretch, pace in [("recorded", 1, ()), ("faster", factor, ("--speed", factor))]:
        path = tmp_path / f"{name}.h5"
        StampedShots(seconds * stretch).record(path)
        _, _, again = record_replay(path, tmp_path / f"{name}-again.h5", pace=pace, samples=3)
        check_same(again, Recording(path))
        arrived = again.tables[0]["arrived_tai_ns"].astype(np.int64)
        stamped = np.flatnonzero(arrived)  # the kernel begins to stamp a little after it is requested
        early = seconds[stamped] - seconds[stamped[0]] - (arrived[stamped] - arrived[stamped[0]]) / 1e9
        assert len(stamped) > 4 and early.max() < 0.005, early


def visible_rows(path):
    try:
        with h5py.File(path) as file:
            return file["link0/shots"].shape[0]
    except OSError:
        return 0


@pytest.mark.parametrize("pace, least", [(("--rate-hz", 400), 0.15), (("--gbps", 0.1146), 0.15), (("--max",), 0)])
def test_another_pace_can_be_chosen(lossy, tmp_path, pace, least):
    path, original = lossy
    _, ended, again = record_replay(path, tmp_path / "again.h5", pace=pace)
    check_same(again, original)
    assert ended["seconds"] > least, "80 shots of 2 x 16,896 bytes were sent too fast"


def test_the_receiver_may_choose_the_rate_and_how_many(lossy, tmp_path):
    path, original = lossy
    out = tmp_path / "again.h5"
    with Replay(path) as replay:
        ended = record(
            replay, "--samples", 700, "--rate-hz", 100, "--shots", 20, "--out", out, *LONG_TIMEOUT
        ).succeeded()
        replay.interrupt().succeeded()
    assert ended["seconds"] > 0.15, ended
    again = Recording(out)
    assert again.numbers() == original.numbers()[:20]
    for link in range(2):
        assert np.array_equal(again.rf[link], original.rf[link][:20])


def test_triggers_replay_one_shot_each(lossy, tmp_path):
    path, original = lossy
    out = tmp_path / "again.h5"
    with Replay(path) as replay:
        flags = ("--samples", 700, "--external-trigger", "--shots", 4, "--out", out, *LONG_TIMEOUT)
        with Recorder(replay, *flags) as recorder:
            until(lambda: run("probe", "status", replay.address, "--json").succeeded()["running"], what="the start")
            for sequence in range(4):
                flags = ("--sequence", sequence, "--take-over", "--json")  # the recorder owns the probe
                run("probe", "trigger", replay.address, *flags).succeeded()
            recorder.end().succeeded()
    assert Recording(out).numbers() == original.numbers()[:4]


def test_a_range_is_replayed_with_its_own_numbers(lossy, tmp_path):
    path, original = lossy
    _, _, again = record_replay(path, tmp_path / "part.h5", "--from", 40, "--shots", 25)
    assert again.numbers() == list(range(40, 65))
    for link in range(2):
        assert np.array_equal(again.rf[link], original.rf[link][40:65])
        assert np.array_equal(again.tables[link]["stamp_tai_ns"], original.tables[link]["stamp_tai_ns"][40:65])


def test_repeated_replays_continue_numbers_with_valid_records(lossy, tmp_path):
    path, original = lossy
    _, ended, again = record_replay(path, tmp_path / "turns.h5", "--loop", 3)
    assert again.numbers() == list(range(3 * SHOTS))
    for link in range(2):
        for turn in range(3):
            rows = slice(SHOTS * turn, SHOTS * turn + SHOTS)
            assert np.array_equal(again.rf[link][rows], original.rf[link])
            assert np.array_equal(again.tables[link]["state"][rows], original.tables[link]["state"])
    assert ended["packet_drops"] == {} and "test_pattern_period" not in again.attributes
    assert run("verify", tmp_path / "turns.h5", "--json").succeeded()["verified"]


def test_stamps_may_be_send_times(lossy, tmp_path):
    path, original = lossy
    before = time.time_ns()
    _, _, again = record_replay(path, tmp_path / "again.h5", "--stamps", "now")
    check_same(again, original, except_fields=("stamp_tai_ns", "flags"))
    stamps = again.tables[0]["stamp_tai_ns"][again.tables[0]["record_good"]]
    assert (stamps > before).all() and (np.diff(stamps.astype(np.int64)) > 0).all()


def test_a_replay_with_once_ends_with_its_receiver(lossy, tmp_path):
    path, _ = lossy
    with Replay(path, "--once", "--max") as replay:
        record(replay, "--samples", 700, "--out", tmp_path / "again.h5", *LONG_TIMEOUT).succeeded()
        assert replay.end().succeeded()["next_shot"] == SHOTS


def test_successive_receivers_each_receive_everything(lossy, tmp_path):
    path, original = lossy
    with Replay(path, "--gbps", 1) as replay:
        for name in ("one.h5", "two.h5"):
            record(replay, "--samples", 700, "--out", tmp_path / name, *LONG_TIMEOUT).succeeded()
            check_same(Recording(tmp_path / name), original)
        assert replay.interrupt().succeeded()["next_shot"] == SHOTS


def test_a_vanished_receiver_is_replaced_by_a_take_over(lossy, tmp_path):
    path, original = lossy
    with Replay(path, "--speed", 0.02) as replay:
        with Recorder(replay, "--samples", 700, "--out", tmp_path / "gone.h5", *LONG_TIMEOUT) as first:
            until(lambda: visible_rows(tmp_path / "gone.h5") > 3, what="the first shots")
            first.signal(signal.SIGKILL)
        refused = record(replay, "--samples", 700, "--out", tmp_path / "no.h5").refused()
        assert "another" in refused, refused
        flags = ("--samples", 700, "--take-over", "--rate-hz", 1000, "--out", tmp_path / "again.h5", *LONG_TIMEOUT)
        ended = record(replay, *flags).succeeded()
    check_same(Recording(tmp_path / "again.h5"), original)
    check_balanced(ended, Recording(tmp_path / "again.h5"))


@pytest.mark.long  # set-up is that of an emulated probe, which test_probe_control.py tests
def test_a_receiver_that_is_taken_over_ends_with_a_warning(lossy, tmp_path):
    path, _ = lossy
    with (
        Replay(path, "--speed", 0.02) as replay,
        Recorder(replay, "--samples", 700, "--out", tmp_path / "first.h5", *LONG_TIMEOUT) as first,
    ):
        until(lambda: visible_rows(tmp_path / "first.h5") > 3, what="the first shots")
        flags = ("--samples", 700, "--take-over", "--shots", 5, "--rate-hz", 1000, "--out", tmp_path / "second.h5")
        record(replay, *flags).succeeded()
        ended = first.end().cut_off("taken-over")
    assert any("taken over the probe" in warning for warning in ended["warnings"]), ended
    assert Recording(tmp_path / "second.h5").numbers() == list(range(5))


def test_a_replay_reports_a_damaged_recording(lossy, tmp_path):
    path, _ = lossy
    cut = tmp_path / "cut.h5"
    data = path.read_bytes()
    with h5py.File(path) as file:
        at = file["rf"].id.get_chunk_info(SHOTS).byte_offset
    cut.write_bytes(data[:at])
    line = run("replay", cut, "--max", "--to", f"127.0.0.1:{free_port()}", "--framing", "udp").refused()
    assert "cut.h5" in line, line


# --- without set-up ----------------------------------------------------------------------------------


def record_replay_without_setup(path, out, framing, *listener, replay=()):
    """Records a replay that is sent without set-up."""
    with Listener(framing, "--out", out, *LONG_TIMEOUT, "--progress", *listener) as recorder:
        report = send_replay(path, "--to", f"127.0.0.1:{recorder.port}", "--gbps", 0.5, *replay)
        ended = recorder.wait_for_packets(sum(link["packets"] for link in report["links"])).interrupt().succeeded()
    recording = Recording(out)
    check_balanced(ended, recording)
    return report, ended, recording


@pytest.mark.parametrize("framing", ["ud", "udp"])
def test_a_listener_records_a_replay_without_set_up(lossy, tmp_path, framing):
    path, original = lossy
    keys = ("--queue-pair", 0x2B67, "--q-key", 0x11223344) if framing == "ud" else ()
    shape = ("--links", 2, "--channels", 16, "--samples", 700, "--sample-rate-hz", 40_000_000)
    out = tmp_path / "again.h5"
    report, ended, again = record_replay_without_setup(
        path, out, framing, *shape, *keys, replay=("--framing", framing, *keys)
    )
    # The receiver starts each of the two streams at its first complete shot, which is shot 0 with this seed.
    check_same(again, original)
    assert report["seconds"] > 0 and sum(link["packets"] for link in report["links"]) == ended["packets"]


@pytest.fixture(scope="module")
def heaps(tmp_path_factory):
    """A recording of spead2's heaps, whose first packet is shorter than the others."""
    path = tmp_path_factory.mktemp("heaps") / "spead.h5"
    with Listener("spead", "--out", path, *LONG_TIMEOUT) as listener:
        send_with_spead2(listener.port, size=50_000, heaps=30, immediates=3)
        listener.end().succeeded()
    recording = Recording(path)
    assert recording.numbers() == list(range(2, 32))
    return path, recording


def test_heaps_are_replayed_with_their_original_packet_sizes(heaps, tmp_path):
    path, original = heaps
    _, ended, again = record_replay_without_setup(path, tmp_path / "again.h5", "spead")
    assert again.numbers() == original.numbers() and ended["shots_complete"] == 30, ended
    check_same_samples(again, original)
    for name in ("packet_bytes", "first_packet_bytes", "packets", "trailer"):
        assert again.links[0][name] == original.links[0][name], name
    assert np.array_equal(again.presence(0), original.presence(0))


def check_same_samples(again, original):
    assert np.array_equal(again.rf[0].reshape(-1).view(np.uint8), original.rf[0].reshape(-1).view(np.uint8))


@FRAMINGS
def test_heaps_are_sent_as_shots_of_a_probe(heaps, tmp_path, framing):
    path, original = heaps
    _, ended, again = record_replay(path, tmp_path / "again.h5", framing=framing, samples=50_000)
    check_same(again, original, except_fields=("placed", "packets", "presence", "flags"))
    assert ended["shots_complete"] == 30 and again.links[0]["packing_name"] == "uint8"
    for row in range(30):
        assert np.array_equal(again.rf[0][row].reshape(-1), heap_data(row, 50_000))
    assert run("verify", tmp_path / "again.h5", "--json").succeeded()["verified"]


def test_shots_of_a_probe_are_sent_as_heaps_and_as_frames(tmp_path):
    path = tmp_path / "run.h5"
    record_probe(path, "--links", 1, "--channels", 16, "--samples", 700, shots=20)
    with h5py.File(path) as file:
        bytes_of = [packed_bytes(row) for row in file["rf"][...]]
    for framing in ("spead", "hsb"):
        out = tmp_path / f"{framing}.h5"
        _, ended, again = record_replay_without_setup(path, out, framing, replay=("--framing", framing))
        assert ended["shots_complete"] == 20 and not ended["packet_drops"], ended
        assert again.numbers() == list(range(20))
        for row in range(20):
            assert np.array_equal(again.rf[0][row].reshape(-1), bytes_of[row]), (framing, row)


def packed_bytes(samples):
    a, b = samples.reshape(-1, 2).astype(np.uint16).T & 0xFFF
    return np.stack([a >> 4, (a & 0xF) << 4 | b >> 8, b & 0xFF], axis=1).astype(np.uint8).reshape(-1)


BRIDGES = pytest.mark.parametrize("name", ["hsb_embedded_64k", "hsb_separate_odd10007"])


def bridge(name):
    path = CAPTURES / "roce" / "hsb" / f"{name}.pcap"
    if not path.exists():
        pytest.skip(f"no captures of a sensor bridge in {path.parent}: frames made of shots are replayed")
    return path


@BRIDGES
def test_a_captured_bridge_survives_record_replay_and_record(tmp_path, name):
    capture = bridge(name)
    first, second, third = [tmp_path / f"{count}.h5" for count in ("first", "second", "third")]
    with Listener("hsb", "--out", first, *LONG_TIMEOUT, "--progress") as recorder:
        report = send_replay(capture, "--to", f"127.0.0.1:{recorder.port}", "--gbps", 0.5)
        ended = recorder.wait_for_packets(report["datagrams"]).interrupt().succeeded()
    original = Recording(first)
    assert ended["shots_complete"] == len(original.numbers()) > 5, ended
    assert ended["icrc"]["good"] == ended["packets"] == report["datagrams"], (ended, report)
    served = CAPTURES / "roce" / "hsb" / ("served.bin" if "64k" in name else "served_odd.bin")
    frames = np.fromfile(served, np.uint8).reshape(-1, original.rf[0][0].size)
    for row, rf in enumerate(original.rf[0]):
        assert np.array_equal(rf.reshape(-1), frames[row % len(frames)]), row
    _, ended, again = record_replay_without_setup(first, second, "hsb")
    check_same(again, original)
    assert again.links[0]["trailer_apart"] == original.links[0]["trailer_apart"]
    # The same, as shots of a probe.
    _, _, shots = record_replay(first, third, samples=original.rf[0].shape[1])
    check_same(shots, original, except_fields=("placed", "packets", "presence", "flags"))


def test_each_link_may_have_its_own_receiver(lossy, tmp_path):
    path, original = lossy
    outs = [tmp_path / f"link{link}.h5" for link in range(2)]
    with (
        Listener("spead", "--out", outs[0], "--progress", *LONG_TIMEOUT) as one,
        Listener("spead", "--out", outs[1], "--progress", *LONG_TIMEOUT) as two,
    ):
        to = ("--to", f"127.0.0.1:{one.port},127.0.0.1:{two.port}")
        report = send_replay(path, *to, "--framing", "spead", "--gbps", 0.2)
        for recorder, link in zip((one, two), report["links"], strict=True):
            recorder.wait_for_packets(link["packets"]).interrupt().succeeded()
    for link, out in enumerate(outs):
        again, whole = Recording(out), original.tables[link]["state"] == 2
        numbers = [number for number, good in zip(original.numbers(link), whole) if good]
        assert set(numbers) <= set(again.numbers())


# --- wrong inputs ------------------------------------------------------------------------------------


def test_recordings_that_cannot_be_replayed_are_refused(lossy, tmp_path):
    path, _ = lossy
    to = f"127.0.0.1:{free_port()}"
    empty, text, cut = tmp_path / "empty.h5", tmp_path / "text.h5", tmp_path / "cut.h5"
    empty.touch()
    text.write_text("no recording\n" * 100)
    cut.write_bytes(path.read_bytes()[:3000])
    for arguments, words in [
        ((tmp_path / "none.h5",), "No such file"),
        ((empty,), "empty.h5"),
        ((text,), "text.h5"),
        ((cut,), "cut.h5"),
        ((path, "--from", 10_000), "no shot"),
        ((path, "--to", to), "--queue-pair"),
        ((path, "--to", to, "--queue-pair", 0x1000010, "--q-key", 1), "from 1 to 0xffffff"),
        ((path, "--to", to, "--queue-pair", 0xFFFFFF, "--q-key", 1), "found 0xffffff and link 1"),
        ((path, "--to", to, "--framing", "counted"), "only set-up specifies"),
        ((path, "--to", to, "--framing", "spead"), "--to for each of 2 links"),
        ((path, "--to", to, "--framing", "morse"), "found morse"),
        ((path, "--to", f"{to},{to},{to}", "--framing", "udp"), "3 times"),
        ((path, "--to", to, "--framing", "udp", "--rate-hz", 0), "positive number"),
        ((path, "--flow", "10.0.0.2:5000", "--to", to), "not a capture"),
    ]:
        line = run("replay", *arguments).refused()
        assert words in line, (arguments, line)


def test_a_new_stamp_for_frames_without_a_record_is_refused(heaps):
    path, _ = heaps
    line = run("replay", path, "--to", f"127.0.0.1:{free_port()}", "--gbps", 1, "--stamps", "now").refused()
    assert "--stamps" in line, line


def test_a_receiver_that_requests_another_shape_is_refused(lossy, tmp_path):
    path, _ = lossy
    with Replay(path) as replay:
        line = record(replay, "--samples", 500, "--out", tmp_path / "no.h5").refused()
        assert re.search(r"shape|samples", line), line
        line = record(replay, "--transmit-sequence", "1,2", "--samples", 700, "--out", tmp_path / "no.h5").refused()
        assert "transmit sequences" in line, line
