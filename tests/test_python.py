"""The Python package: shapes, values and indexing match numpy and h5py; growing files; long runs."""

import pickle
import re
import shutil
import signal
import struct
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from file_state import visible_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from recordings import python, values
from senders.generated import GeneratedShots
from shotline_verify import prbs

from common import PERIOD, Probe, Recorder, packed, unpacked, until, zero_missing_packets
from common import run as program

LONG = 200_000  # rows of a run that is longer than any cache of a reader
# No deadline: examples write files of different sizes, on a machine that may be busy.
EXAMPLES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


# --- samples -----------------------------------------------------------------------------------------


@st.composite
def shapes(draw):
    links, shots = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    samples, channels = draw(st.integers(1, 400)), draw(st.integers(1, 33))
    packing = draw(st.integers(0, 2))
    if packing == 1 and samples * channels % 2:
        samples += 1
    return packing, (links, shots, samples, channels)


@pytest.mark.parametrize("examples", [5, pytest.param(50, marks=pytest.mark.long)])
def test_any_shape_reads_as_sent_and_as_with_h5py(shotline, tmp_path, examples):
    path = tmp_path / "run.h5"

    @settings(EXAMPLES, max_examples=examples)
    @given(shape=shapes(), seed=st.integers(0, 1 << 32))
    def check_shape(shape, seed):
        path.unlink(missing_ok=True)
        packing, (links, shots, samples, channels) = shape
        sent = GeneratedShots(values(seed, packing, shape[1]), packing)
        sent.record(path)
        with shotline.open(path) as run, h5py.File(path) as file:
            side_by_side = np.concatenate(list(sent.values), axis=2)
            assert run.samples.shape == side_by_side.shape and run.samples.dtype == side_by_side.dtype
            assert np.array_equal(run.samples[...], side_by_side)
            assert np.array_equal(run.samples[...], file["rf"][...])
            for link in run.links:
                assert np.array_equal(link.samples[...], sent.values[link.index])
                assert (link.geometry.samples, link.geometry.channels) == (samples, channels)
                for shot in link.shots:
                    assert shot.is_complete and shot.presence.all()
                    assert shot.raw[: sent.shot_bytes].tobytes() == sent.bytes_of(link.index, shot.number)
            assert len(run.links) == links and len(run.shots) == shots

    check_shape()


@settings(EXAMPLES, max_examples=60)
@given(data=st.data())
def test_any_bytes_in_a_slot_unpack_as_h5py_unpacks_them(shotline, runs, tmp_path, data):
    name = data.draw(st.sampled_from(sorted(runs)))
    path = shutil.copy(runs[name][0], tmp_path / "run.h5")
    with shotline.open(path) as run:
        row, link = data.draw(st.integers(0, len(run.shots) - 1)), data.draw(st.integers(0, len(run.links) - 1))
        _, at, _ = run.native.stored(row, link)
        content = data.draw(st.binary(min_size=1, max_size=run.geometry.sample_bytes))
        content = (content * run.geometry.sample_bytes)[: run.geometry.sample_bytes]
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(content)
        assert run.links[link].shots[row].raw[: len(content)].tobytes() == content
        found = run.samples[row]
        with h5py.File(path) as file:
            assert np.array_equal(found, file["rf"][row])


@pytest.mark.parametrize("examples", [150, pytest.param(2000, marks=pytest.mark.long)])
def test_indexing_matches_numpy(shotline, runs, examples):
    @settings(EXAMPLES, max_examples=examples)
    @given(data=st.data())
    def check_index(data):
        path, expected = runs[data.draw(st.sampled_from(sorted(runs)))]
        index = data.draw(hnp.basic_indices(expected.shape, allow_newaxis=False) | mixed_indices(expected.shape))
        with shotline.open(path, threads=data.draw(st.integers(0, 3))) as run:
            found, expected_part = run.samples[index], expected[index]
        assert np.shape(found) == np.shape(expected_part) and np.array_equal(found, expected_part), index
        assert found.dtype == expected_part.dtype

    check_index()


def mixed_indices(shape):
    """Generates integers, slices and arrays in any position."""

    def axis(extent):
        integers = st.integers(-extent, extent - 1)
        lists = st.lists(integers, min_size=2, max_size=2)  # lists of equal length, so that they can be combined
        masks = hnp.arrays(bool, extent).filter(lambda mask: mask.sum() == 2)
        return integers | st.slices(extent) | lists | masks | lists.map(np.array)

    return st.tuples(*map(axis, shape))


@pytest.mark.parametrize(
    "index", [7, -8, (0, 40), (0, 0, 12), (0, 0, 0, 0), None, 1.5, "rf", [7], [True], (..., ...), (0, [40])]
)
def test_an_index_that_does_not_exist_is_an_index_error(shotline, runs, index):
    with shotline.open(runs["packed"][0]) as run, pytest.raises(IndexError):
        run.samples[index]


def test_a_run_converts_to_an_array_and_reads_into_given_memory(shotline, runs):
    path, expected = runs["packed"]
    with shotline.open(path) as run:
        assert np.array_equal(np.asarray(run.samples), expected)
        assert np.asarray(run.samples, np.float32).dtype == np.float32
        assert np.array_equal(np.stack(list(run.samples)), expected)
        assert (len(run.samples), run.samples.size, run.samples.ndim) == (len(expected), expected.size, 3)
        assert run.samples.nbytes == expected.nbytes
        out = np.full((3, *expected.shape[1:]), -1, np.int16)
        for block, first in zip(run.shots[:6].blocks(3), (0, 3), strict=True):
            assert block.samples.read(out) is out
            assert np.array_equal(out, expected[first : first + 3])
        with pytest.raises(ValueError, match="expected an array of"):
            run.samples.read(out)
        with pytest.raises(ValueError, match="contiguous"):
            run.shots[:3].samples.read(np.empty((3, 40, 24), np.int16)[:, :, ::2])
        with pytest.raises(ValueError, match="always a copy"):
            np.array(run.samples, copy=False)


@settings(EXAMPLES, max_examples=200)
@given(data=st.binary(max_size=3000))
def test_12_bit_samples_unpack_and_pack_as_documented(shotline, data):
    data = data[: len(data) // 3 * 3]
    samples = shotline.unpack12(data)
    assert np.array_equal(samples, unpacked(np.frombuffer(data, np.uint8)))
    assert np.array_equal(shotline.pack12(samples), packed(samples))
    out = np.empty_like(samples)
    assert shotline.unpack12(memoryview(data), out) is out and np.array_equal(out, samples)


def test_12_bit_samples_that_do_not_fit_are_refused(shotline):
    for wrong in (lambda: shotline.unpack12(b"1234"), lambda: shotline.pack12([1, 2, 3])):
        with pytest.raises(ValueError, match="3 bytes for every 2"):
            wrong()
    with pytest.raises(ValueError, match="3 bytes for every 2"):
        shotline.unpack12(b"123", np.empty(4, np.int16))
    with pytest.raises(TypeError):
        shotline.unpack12(b"123", np.empty(2, np.int32))


# --- shots -------------------------------------------------------------------------------------------


def test_losses_are_reported_shot_by_shot(shotline, broken):
    path, sent = broken
    complete, partial, lost = shotline.State.COMPLETE, shotline.State.PARTIAL, shotline.State.LOST
    with shotline.open(path) as run:
        assert run.shots.numbers.tolist() == sent.numbers
        assert run.shots.states.tolist() == [complete, partial, partial, complete, complete, complete]
        assert run.links[0].shots.states.tolist() == [complete, complete, lost, complete, complete, complete]
        assert run.shots.complete.tolist() == [True, False, False, True, True, True]
        shot = run.shots[1]
        assert (shot.number, shot.state, shot.row) == (101, partial, 1) and not shot.is_complete
        assert [each.state for each in shot.links] == [complete, partial]
        assert np.flatnonzero(~shot.presence).tolist() == [sent.packets + 2]
        assert np.flatnonzero(~shot.links[1].presence).tolist() == [2]
        assert shot.drops == {"wire_gap": 1} and shot.links[0].drops == {}
        present = np.arange(sent.packets) != 2
        assert np.array_equal(shot.links[1].samples, zero_missing_packets(sent.values[1, 1], present, 1))
        assert np.array_equal(shot.samples[:, :12], sent.values[0, 1])
        assert not run.links[0].shots[2].samples.any() and not run.links[0].shots[2].presence.any()
        assert np.array_equal(run.shots.presence, np.stack([shot.presence for shot in run.shots]))
        assert run.events["number"].tolist() == sent.numbers
        assert run.events["state"].tolist() == [[each.state for each in shot.links] for shot in run.shots]
        table = run.links[1].shots.table
        assert table["wire_gap"].tolist() == [0, 1, 0, 0, 0, 0] and table["record_good"].tolist().count(False) == 1


def test_losses_list_every_number_without_a_row(shotline, broken):
    with shotline.open(broken[0]) as run:
        for link in run.links:
            losses = run.losses[run.losses["stream"] == link.stream]
            lost = {int(first) + i for _, _, first, count in losses for i in range(count)}
            assert {102, 106, 107, 108} <= lost <= {102, 103, 106, 107, 108}
            assert set(losses["cause"]) == {"wire_gap"}
        assert run.finished and run.totals["rows"] == 6
        assert {stream: counters["shots_seen"] for stream, counters in run.counters.items()} == {0: 10, 1: 10}


def test_stamps_are_tai_times_utc_and_unknown_ones_nat(shotline, broken):
    path, sent = broken
    with shotline.open(path) as run:
        assert run.shots.stamps.tolist() == [sent.stamp(shot) for shot in range(6)]
        assert run.links[0].shots[2].stamp_tai_ns == 0 and np.isnat(run.links[0].shots[2].time)
        offset = round((run.info["start_tai_ns"] - run.info["start_utc_ns"]) / 1e9)
        assert offset in (0, 37)
        expected = np.datetime64(sent.stamp(1), "ns") - np.timedelta64(offset, "s")
        assert run.shots[1].time == run.shots.times[1] == expected
        # Packets may wait in the socket while the file is laid out.
        begun = run.info["start_tai_ns"] - 10 * 10**9
        arrived, completed = run.shots[1].arrived_tai_ns, run.shots[1].completed_tai_ns
        assert completed > begun
        # The kernel begins to stamp packets only some time after the first request for stamps.
        assert arrived == 0 or completed >= arrived > begun


def test_views_of_shots_are_lazy_and_nest(shotline, broken):
    path, sent = broken
    with shotline.open(path) as run:
        numbers = np.array(sent.numbers)
        for index in (np.s_[1:5], np.s_[::-2], [4, 0, 0], np.array([5, 1]), numbers > 103, np.s_[0:0]):
            view = run.shots[index]
            assert view.numbers.tolist() == numbers[index].tolist()
            assert [shot.number for shot in view] == numbers[index].tolist()
            assert np.array_equal(view.samples[...], run.samples[...][index])
            assert len(view.table if len(run.links) == 1 else view.links) and len(view) == len(numbers[index])
        assert run.shots[1:5][::2][-1].number == 104
        assert run.shots[-1].number == run.shots[np.int64(5)].number == 109
        good = run.shots[run.shots.complete]
        assert [shot.number for shot in good] == [100, 104, 105, 109]
        for wrong in (6, -7, [6], [True]):
            with pytest.raises(IndexError):
                run.shots[wrong]
        with pytest.raises(ValueError, match=r"links\[k\]"):
            run.shots.table  # noqa: B018
        with pytest.raises(ValueError, match=r"links\[k\]"):
            run.shots[0].raw  # noqa: B018


def test_raw_bytes_are_a_read_only_view_that_outlives_the_run(shotline, broken):
    path, sent = broken
    with shotline.open(path) as run:
        raw = run.links[1].shots[3].raw
        assert np.shares_memory(raw, run.links[1].shots[3].raw), "the view must not be a copy"
        assert raw.size == run.geometry.slot_bytes
    assert not raw.flags.writeable and memoryview(raw).readonly
    assert raw[: sent.shot_bytes].tobytes() == sent.bytes_of(1, 3)
    assert np.array_equal(shotline.unpack12(raw[: 500 * 12 // 2 * 3]).reshape(500, 12), sent.values[1, 3])


def test_the_time_axis_and_geometry_belong_to_the_link(shotline, broken, runs, tmp_path):
    with shotline.open(broken[0]) as run:
        assert np.array_equal(run.time_axis, np.arange(500) / 20e6)
        geometry = run.geometry
        assert (geometry.channels, geometry.samples, geometry.bits) == (12, 500, 12)
        assert geometry.packing == "packed12_msb_first" and geometry.dtype == np.int16
        assert run.info["framing"] == "udp" and len(run.info["run_id"]) == 36
    GeneratedShots(values(0, 1, (1, 1, 4, 2)), 1).record(tmp_path / "run.h5")
    with shotline.open(tmp_path / "run.h5") as run:
        assert run.time_axis is None and run.geometry.sample_rate_hz == 0


def test_a_closed_run_raises_an_error(shotline, broken):
    run = shotline.open(broken[0])
    samples = run.samples
    run.close()
    for use in (lambda: run.rows, lambda: samples[0], run.refresh, lambda: run.losses):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_a_run_is_pickled_by_its_path(shotline, broken):
    with shotline.open(broken[0], threads=2) as run:
        again = pickle.loads(pickle.dumps(run.shots[1:4]))
        assert again.numbers.tolist() == [101, 103, 104] and again.run.threads == 2
        assert np.array_equal(again.samples[...], run.samples[1:4])


def test_several_threads_read_one_run(shotline, runs):
    path, expected = runs["packed"]
    with shotline.open(path) as run, ThreadPoolExecutor(8) as pool:
        rows = list(range(len(expected))) * 40
        for row, found in zip(rows, pool.map(lambda row: run.samples[row], rows), strict=True):
            assert np.array_equal(found, expected[row])


# --- a file that grows -------------------------------------------------------------------------------


def test_shots_are_read_while_the_recorder_writes(shotline, tmp_path):
    """Every shot is complete when it becomes visible, and stays visible."""
    path = tmp_path / "run.h5"
    with Probe("--channels", 8, "--samples", 500) as probe:
        flags = ["--samples", 500, "--shots", 12, "--external-trigger"]
        with Recorder(probe, "--out", path, *flags) as recorder:
            run = until(lambda: open_when_allocated(shotline, path), what="a valid file")
            assert run.rows == 0 and not run.finished
            until(lambda: request(probe, "status")["running"], what="the start")
            for seen in range(0, 12, 2):
                for _ in range(2):
                    request(probe, "trigger", "--take-over")
                assert len(run.samples) == run.rows == seen, "only refresh may change the visible rows"
                until(lambda seen=seen: run.refresh() == seen + 2, what=f"shots {seen} and {seen + 1}")
                check_patterns(run, run.shots[seen:])
            recorder.end().succeeded()
        probe.report()
    check_patterns(run, run.shots)
    run.refresh()
    assert run.finished and len(run.shots) == 12


@pytest.mark.parametrize("flags", [(), ("--durable",), ("--compress", "lz4")], ids=["plain", "durable", "compressed"])
def test_a_run_opened_before_its_end_is_readable_afterwards(shotline, tmp_path, flags):
    """At its end the recorder releases unused space, and moves its tables for that."""
    path = tmp_path / "run.h5"
    shape = ("--channels", 8, "--samples", 500)
    with Probe(*shape) as probe:
        flags = [*shape[2:], "--rate-hz", 500, "--capacity", 2000, "--out", path, *flags]
        with Recorder(probe, *flags) as recorder:
            run = until(lambda: open_when_allocated(shotline, path), what="a valid file")
            until(lambda: run.refresh() >= 20, what="some shots")
            seen = run.rows
            recorder.interrupt().succeeded()
        probe.report()
    assert run.finished and run.totals["rows"] >= seen
    check_patterns(run, run.shots[:seen])
    assert run.refresh() == run.totals["rows"] and len(run.losses) >= 0
    check_patterns(run, run.shots)


def request(probe, verb, *flags):
    return program("probe", verb, probe.address, *flags, "--json").succeeded()


def open_when_allocated(shotline, path):
    """Opens a run once its layout exists; before that returns None."""
    try:
        return shotline.open(path)
    except (ValueError, OSError):
        return None


def check_patterns(run, shots):
    for link in run.links:
        geometry = link.geometry
        view = link.shots[shots[0].row : shots[-1].row + 1]
        for number, samples in zip(view.numbers, view.samples[...], strict=True):
            shape = (geometry.channels, geometry.samples, geometry.bits)
            assert np.array_equal(samples, prbs(link.stream, int(number) % PERIOD, *shape)), number


# --- long runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    """A run of many shots, most of them lost: a killed recorder laid it out, and the row counts are set here."""
    path = tmp_path_factory.mktemp("long") / "run.h5"
    shape = ("--samples", 4)
    with (
        Probe("--channels", 1, *shape, "--links", 1) as probe,
        Recorder(probe, "--out", path, *shape, "--shots", LONG, "--rate-hz", 200) as recorder,
    ):
        until(lambda: visible_rows(path) > 10, what="some shots")
        recorder.signal(signal.SIGKILL)
        recorder.end()
    with open(path, "r+b") as file:
        head = file.read(1 << 16)
        for at in row_count_offsets(head):
            file.seek(at)
            file.write(LONG.to_bytes(8, "little"))
    yield path
    path.unlink()


def row_count_offsets(head):
    """Yields the offsets of the row counts of samples and table, found by their dataspace messages."""
    for shape in (b"", struct.pack("<QQ", 4, 1)):
        rank = 1 + len(shape) // 8
        message = re.escape(bytes([1, rank, 1]) + bytes(5)) + b"(.{8})" + re.escape(shape + b"\xff" * 8 + shape)
        found = [at for at in re.finditer(message, head, re.DOTALL) if int.from_bytes(at[1], "little") > 10]
        assert len(found) == 1, "only samples and table have rows"
        yield found[0].start(1)


def test_opening_cost_does_not_depend_on_the_length_of_the_run(shotline, long_run, runs):
    """The work and the memory of opening a long run equal those of opening seven."""
    script = """
import resource, shotline, sys
def counted(path):
    before = int(open("/proc/self/io").read().split()[1]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = shotline.open(path)
    after = int(open("/proc/self/io").read().split()[1]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return len(run.shots), after[0] - before[0], after[1] - before[1]
counted(sys.argv[1])
print(*counted(sys.argv[1]), *counted(sys.argv[2]))
"""
    done = python("-c", script, runs["packed"][0], long_run)
    short, short_bytes, _, long, long_bytes, long_kib = map(int, done.stdout.split())
    assert (short, long) == (7, LONG)
    assert long_bytes < short_bytes + (256 << 10) and long_kib < 4096, done.stdout


def test_a_long_run_is_read_at_single_rows_and_in_blocks(shotline, long_run):
    with shotline.open(long_run) as run:
        first = run.shots[0]
        assert first.is_complete and first.samples.shape == (4, 1)
        assert run.shots[-1].state == shotline.State.LOST and not run.samples[-3:].any()
        far = run.shots[[LONG - 1, 3, LONG // 2]]
        assert far.states.tolist() == [0, 2, 0] and far.numbers[1] == first.number + 3
        assert next(run.shots[:: LONG // 10].blocks(4)).samples.shape == (4, 4, 1)
        assert run.shots[:: LONG // 4].states.tolist() == [2, 0, 0, 0]
