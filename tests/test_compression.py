"""Compressed recordings: h5py with hdf5plugin reads exactly what was sent, regardless of each chunk's codec."""

import json
import signal
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest
from file_state import wait_for_rows
from senders.listen import Listener, send_with_spead2
from senders.spead2_send import heap_data

from common import (
    PERIOD,
    ROOT,
    WAIT_TIMEOUT_S,
    Probe,
    Recorder,
    Recording,
    check_balanced,
    check_samples,
    prbs,
    record,
    run,
    verify,
)

ULTRASOUND = ROOT.parent / "shared" / "data" / "ultrasound"
SAMPLES = 500
# So slow that no socket overflows, and small enough for the pool: only injected losses occur.
SLOW = ("--gbps", "0.2", "--samples", SAMPLES)
LONG_TIMEOUT = ("--timeout-ms", 60_000)
FEW_BITS = ("--bits", 6)  # noise in which half of a sample's bits are equal
WHOLE_RUN = 0xFFFFFFFF
BITSHUFFLE, NBIT = 32008, 5
COMPRESSED, RAW = 2, 1  # filter masks: NBIT skipped, bitshuffle skipped
CODECS = ["lz4", "zstd"]
# Where both codecs use the same code, one of them is tested here and the other in the long run.
LZ4 = ["lz4", pytest.param("zstd", marks=pytest.mark.long)]
ZSTD = ["zstd", pytest.param("lz4", marks=pytest.mark.long)]
KINDS = [("lz4", []), ("zstd", ["--int16"])]
KINDS += [pytest.param("zstd", [], marks=pytest.mark.long), pytest.param("lz4", ["--int16"], marks=pytest.mark.long)]


def masks(path, link=0):
    """Returns the filter mask of each row's chunk."""
    with h5py.File(path) as file:
        rf = file["rf"]
        channels = int(file[f"link{link}"].attrs["channels"])
        at = [(row, 0, link * channels) for row in range(rf.shape[0])]
        return [rf.id.get_chunk_info_by_coord(coordinate).filter_mask for coordinate in at]


def totals(path):
    return Recording(path).counters[WHOLE_RUN]


# --- what readers see ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "packing"), KINDS)
def test_h5py_with_hdf5plugin_reads_every_sample_of_two_links(tmp_path, codec, packing):
    path = tmp_path / "run.h5"
    with Probe(*FEW_BITS, *packing) as probe:
        ended = record(probe, "--shots", 40, *SLOW, *LONG_TIMEOUT, "--out", path, "--compress", codec).succeeded()
    assert ended["shots_complete"] == 80 and not ended["drops"], ended
    with h5py.File(path) as file:
        plist = file["rf"].id.get_create_plist()
        filters = [plist.get_filter(index) for index in range(plist.get_nfilters())]
        assert [entry[0] for entry in filters] == [BITSHUFFLE, NBIT]
        expected = hdf5plugin.Bitshuffle(cname=codec).filter_options
        assert filters[0][2][2] == 2 and filters[0][2][4] == expected[1]
        assert file["rf"].shape == (40, SAMPLES, 192) and file["rf"].dtype == np.int16
    recording = Recording(path)
    assert check_samples(recording, lambda link, n: prbs(int(link["stream"]), n % PERIOD, 96, SAMPLES, 6)) == 40
    verify(path)
    counts = totals(path)
    assert counts["chunks_compressed"] + counts["chunks_uncompressed"] == 80
    assert counts["chunks_compressed"] == sum(mask == COMPRESSED for link in (0, 1) for mask in masks(path, link)) > 0
    assert set(masks(path)) <= {COMPRESSED, RAW}
    assert ended["chunks"] == {
        "compressed": counts["chunks_compressed"],
        "uncompressed": counts["chunks_uncompressed"],
        "bytes_raw": counts["bytes_raw"],
        "bytes_stored": counts["bytes_stored"],
    }
    assert counts["bytes_stored"] < counts["bytes_raw"]


@pytest.mark.parametrize("codec", ZSTD)
def test_odd_sized_noise_without_set_up_is_stored_exactly(tmp_path, codec):
    path, size, heaps = tmp_path / "run.h5", 100_003, 12
    with Listener("spead", "--out", path, *LONG_TIMEOUT, "--compress", codec) as listener:
        send_with_spead2(listener.port, size=size, heaps=heaps)
        ended = listener.end().succeeded()
    assert ended["shots_complete"] == heaps, ended
    recording = Recording(path)
    for row in range(heaps):
        assert np.array_equal(recording.rf[0][row].reshape(-1), heap_data(row, size)), f"row {row}"
    assert ended["chunks"]["compressed"] + ended["chunks"]["uncompressed"] == heaps
    verify(path)


@pytest.mark.parametrize("codec", LZ4)
def test_compressed_recordings_keep_every_missing_packet(tmp_path, codec):
    path = tmp_path / "run.h5"
    faults = ["--loss", 0.01, "--reorder", 0.01, "--corrupt", 0.01, "--duplicate", 0.01, "--seed", 7]
    with Probe(*FEW_BITS, *faults) as probe:
        ended = record(probe, "--shots", 60, *SLOW, "--out", path, "--compress", codec).succeeded()
    assert ended["shots_partial"] > 0, ended
    recording = Recording(path)
    check_balanced(ended, recording)
    check_samples(recording, lambda link, n: prbs(int(link["stream"]), n % PERIOD, 96, SAMPLES, 6))
    verify(path)
    assert totals(path)["chunks_compressed"] > 0


def test_real_ultrasound_data_shrinks_and_reads_back(tmp_path):
    source = ULTRASOUND / "muscle_rf_real_192ch.hdf5"
    if not source.exists():
        pytest.skip(f"{source} is not here")
    files = {}
    for codec in ["none", *CODECS]:
        files[codec] = tmp_path / f"{codec}.h5"
        with Probe("--input", source) as probe:
            flags = [
                "--shots",
                8,
                "--samples",
                1400,
                "--gbps",
                0.3,
                *LONG_TIMEOUT,
                "--out",
                files[codec],
                "--compress",
                codec,
            ]
            record(probe, *flags).succeeded()
    plain = Recording(files["none"])
    for codec in CODECS:
        assert np.array_equal(Recording(files[codec]).joined, plain.joined)
        verify(files[codec])
        counts = totals(files[codec])
        assert counts["bytes_stored"] < 0.9 * counts["bytes_raw"], counts
        report = run("inspect", files[codec], "--json").succeeded()
        assert report["run"]["codec"].startswith(f"bitshuffle-{codec}")
        assert report["chunks"]["compressed"] == counts["chunks_compressed"] > 0


# --- incompressible data and overload ------------------------------------------------------------------


def test_incompressible_noise_is_stored_uncompressed(tmp_path):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        record(probe, "--shots", 20, *SLOW, *LONG_TIMEOUT, "--out", path, "--compress", "lz4").succeeded()
    assert set(masks(path)) == {RAW}
    check_samples(Recording(path))
    verify(path)


def test_without_threads_every_shot_is_stored_and_counted_raw(tmp_path):
    path = tmp_path / "run.h5"
    with Probe(*FEW_BITS) as probe:
        flags = ["--shots", 20, *SLOW, *LONG_TIMEOUT, "--out", path, "--compress", "zstd", "--compress-threads", 0]
        ended = record(probe, *flags).succeeded()
    assert ended["shots_complete"] == 40 and ended["chunks"]["uncompressed"] == 40, ended
    assert set(masks(path)) == {RAW}
    verify(path)


def test_a_slow_codec_loses_no_shot_and_all_chunks_read_back(tmp_path):
    """One thread at a level that takes a tenth of a second for each shot: most shots are stored uncompressed."""
    path = tmp_path / "run.h5"
    with Probe(*FEW_BITS) as probe:
        flags = ["--compress", "zstd", "--compress-level", 22, "--compress-threads", 1, *LONG_TIMEOUT]
        # Much faster than the codec can be, into a pool that holds all shots.
        flags += ["--gbps", 2, "--samples", SAMPLES, "--pool", "128MiB"]
        ended = record(probe, "--shots", 100, "--out", path, *flags).succeeded()
    assert ended["shots_complete"] == 200 and not ended["drops"], ended
    counts = totals(path)
    assert counts["chunks_compressed"] + counts["chunks_uncompressed"] == 200
    both = masks(path) + masks(path, 1)
    assert both.count(COMPRESSED) == counts["chunks_compressed"] > 0
    assert both.count(RAW) == counts["chunks_uncompressed"] > 0
    check_samples(Recording(path), lambda link, n: prbs(int(link["stream"]), n % PERIOD, 96, SAMPLES, 6))
    verify(path)


# --- live readers and crashes --------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_killed_recorder_leaves_a_valid_compressed_file(tmp_path, durable):
    path = tmp_path / "run.h5"
    flags = [
        "--rate-hz",
        200,
        "--samples",
        SAMPLES,
        *LONG_TIMEOUT,
        "--capacity",
        2000,
        "--out",
        path,
        "--compress",
        "lz4",
    ]
    with Probe(*FEW_BITS) as probe, Recorder(probe, *flags, *["--durable"] * durable) as recorder:
        wait_for_rows(path, 20)
        assert run("verify", path, "--json").succeeded()["verified"], (
            "a reader must be able to open the file at any time"
        )
        recorder.signal(signal.SIGKILL)
        recorder.popen.wait()
    rows = check_samples(Recording(path), lambda link, n: prbs(int(link["stream"]), n % PERIOD, 96, SAMPLES, 6))
    assert rows >= 20 and COMPRESSED in masks(path)
    verify(path, finished=False)
    before = path.stat().st_size
    report = run("recover", path, "--json").succeeded()
    assert report["rows"] >= rows and report["partial"] == report["lost"] == 0, report
    assert path.stat().st_size < before / 2, "unused space was not released"
    verify(path, finished=False)


# --- settings ------------------------------------------------------------------------------------------


def test_invalid_codec_settings_are_refused_with_a_remedy(tmp_path):
    with Probe() as probe:
        for flags, words in [
            (["--compress", "gzip"], "expected none, lz4 or zstd, found gzip"),
            (["--compress", "lz4", "--compress-level", 3], "--compress-level is for zstd"),
            (["--compress-level", 3], "--compress-level is for zstd"),
        ]:
            ended = record(probe, "--shots", 1, "--out", tmp_path / "run.h5", *flags)
            assert ended.code != 0 and words in ended.stderr, ended.stderr
            assert not (tmp_path / "run.h5").exists()


def test_the_verifier_names_the_missing_plugin(tmp_path):
    path = tmp_path / "run.h5"
    with Probe(*FEW_BITS) as probe:
        record(probe, "--shots", 2, *SLOW, "--out", path, "--compress", "lz4").succeeded()
    hidden = "import sys; sys.modules['hdf5plugin'] = None; import shotline_verify; sys.exit(shotline_verify.main())"
    done = subprocess.run(
        [sys.executable, "-c", hidden, path],
        capture_output=True,
        text=True,
        cwd=ROOT / "python",
        timeout=WAIT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2 and "pip install hdf5plugin" in json.loads(done.stdout)["error"], done
