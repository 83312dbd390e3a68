"""Contents of a recording, read with plain h5py: every sample, every missing packet, every counter."""

import contextlib
import json
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest

from common import (
    COMPLETE,
    LOST,
    PACKET,
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
    until,
    verify,
)

ULTRASOUND = ROOT.parent / "shared" / "data" / "ultrasound"
# So slow that no socket overflows, and with so long a timeout that no shot is abandoned: only injected losses occur.
SLOW = ("--gbps", "0.4", "--timeout-ms", 1000 * WAIT_TIMEOUT_S)
SO_TIMESTAMPING, SOFTWARE_STAMPS = 37, 1 << 3 | 1 << 4


def missing_packets(faults):
    """Returns (link, shot, packet) of every packet of which no undamaged copy was sent."""
    kinds = {}
    for entry in faults:
        kind = entry["fault"] if isinstance(entry["fault"], str) else next(iter(entry["fault"]))
        kinds.setdefault((entry["link"], entry["shot"], entry["packet"]), set()).add(kind)
    return {key for key, kind in kinds.items() if "lost" in kind or ("corrupted" in kind and "duplicated" not in kind)}


def record_and_report(path, probe_flags, *flags):
    with Probe("--list-faults", *probe_flags) as probe:
        ended = record(probe, "--out", path, *flags).succeeded()
        return ended, probe.report()


def check_missing_packets(path, ended, report, recording=None):
    """Checks that the missing packets of the file are exactly the probe's faults."""
    recording = recording or Recording(path)
    expected = missing_packets(report.get("faults", []))
    for link in range(len(recording.links)):
        of_link = {(shot, packet) for at, shot, packet in expected if at == link}
        missing = recording.missing(link)
        assert missing == of_link, (
            f"link {link}: missing without a fault {missing - of_link}, faults not missing {of_link - missing}"
        )
    assert ended["packets_missing"] == len(expected), ended
    sent = sum(link["packets"] for link in report["links"])
    assert ended["packets"] == sent, "every packet that was sent must be counted"
    check_balanced(ended, recording)
    return recording


# --- samples -----------------------------------------------------------------------------------------


def test_h5py_reads_the_test_pattern_of_192_joined_channels(tmp_path):
    path = tmp_path / "run.h5"
    ended, report = record_and_report(path, [], "--shots", 20, *SLOW)
    assert ended["shots_complete"] == 40 and ended["shots_partial"] == 0 and not ended["drops"], ended
    with h5py.File(path) as file:
        rf = file["rf"]
        assert rf.shape == (20, 2000, 192) and rf.dtype == np.int16
        first, second = (prbs(stream, 19 % PERIOD, 96, 2000, 12) for stream in (0, 1))
        assert np.array_equal(rf[19, :, :96], first) and np.array_equal(rf[19, :, 96:], second)
        assert np.array_equal(
            rf[5:7, 1000, 95:97][1], [prbs(0, 6, 96, 2000, 12)[1000, 95], prbs(1, 6, 96, 2000, 12)[1000, 0]]
        )
        shots = file["link0/shots"]
        assert list(shots["number"]) == list(range(20))
        stamps = shots["stamp_tai_ns"].astype(np.int64)
        assert (np.diff(stamps) > 0).all() and abs(stamps[0] / 1e9 - time.time()) < 300
        assert (shots["state"] == COMPLETE).all() and shots["record_good"].all()
    assert check_samples(check_missing_packets(path, ended, report)) == 20
    verdict = verify(path)
    assert verdict["pattern"] and all(link["pattern_packets"] == 20 * 71 for link in verdict["links"])


def test_a_probe_with_one_link_is_recorded(tmp_path):
    path = tmp_path / "run.h5"
    ended, report = record_and_report(path, ["--links", 1], "--shots", 10, "--samples", 500, *SLOW)
    recording = check_missing_packets(path, ended, report)
    assert len(recording.links) == 1 and recording.rf[0].shape == (10, 500, 96)
    assert check_samples(recording) == 10
    verify(path)


def test_one_of_two_links_is_recorded(tmp_path):
    path = tmp_path / "run.h5"
    ended, _ = record_and_report(path, [], "--links", 1, "--shots", 10, "--samples", 500, *SLOW)
    assert ended["shots_sent"] == ended["shots_complete"] == 10
    assert check_samples(Recording(path)) == 10
    verify(path)


KINDS = ["memfd", "huge", "file", "emulated", "emulated:write=2GB/s:latency=1us"]


@pytest.mark.parametrize("options", [(), ("--compress", "lz4", "--roll-shots", 8)], ids=["plain", "compressed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_of_any_kind_of_memory_loses_nothing(tmp_path, kind, options):
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if kind == "huge" and not (free.exists() and int(free.read_text()) >= 16):
        pytest.skip("too few free huge pages: sudo sysctl -w vm.nr_hugepages=16")
    memory = f"file={tmp_path / 'pool'}" if kind == "file" else kind
    path, flags = tmp_path / "run.h5", ["--loss", 0.01, "--reorder", 0.01, "--seed", 5]
    options = ("--pool", "32MiB", "--pool-memory", memory, *options)
    ended, report = record_and_report(path, flags, "--shots", 20, "--samples", 500, *SLOW, *options)
    assert ended["packets_missing"] > 0
    if "--compress" not in options:
        assert check_samples(check_missing_packets(path, ended, report)) > 0
        with h5py.File(path) as file:
            assert tomllib.loads(file.attrs["config"])["pool_memory"] == memory
    verify(path)


NO_POOL = {"huge": "reserved pages of 2 MiB", "dmabuf:999": "999", "bar:ffff:00:1f.7/0": "ffff:00:1f.7"}


@pytest.mark.parametrize("kind", NO_POOL)
def test_memory_that_cannot_be_the_pool_is_refused(tmp_path, kind):
    path = tmp_path / "run.h5"
    with Probe() as probe:
        error = record(probe, "--out", path, "--pool", "900GiB", "--pool-memory", kind).refused()
    assert NO_POOL[kind] in error and not path.exists()


@pytest.mark.parametrize(
    "samples", [8, 9, 43, 341, *(pytest.param(many, marks=pytest.mark.long) for many in (500, 999, 2001)), 4000]
)
def test_shots_of_any_length_are_recorded_exactly(tmp_path, samples):
    path = tmp_path / "run.h5"
    faults = ["--loss", 0.01, "--duplicate", 0.01, "--reorder", 0.01, "--corrupt", 0.01, "--seed", samples]
    shots = 6 if samples > 1000 else 30
    ended, report = record_and_report(
        path, ["--samples", samples, *faults], "--shots", shots, "--samples", samples, *SLOW
    )
    recording = check_missing_packets(path, ended, report)
    assert recording.rf[0].shape[1:] == (samples, 96)
    check_samples(recording)
    verify(path)


def test_16_bit_samples_are_recorded_exactly(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--int16", "--bits", 16, "--loss", 0.01, "--seed", 3]
    ended, report = record_and_report(path, flags, "--shots", 20, "--samples", 501, *SLOW)
    recording = check_missing_packets(path, ended, report)
    assert recording.rf[0].max() > 30_000 and recording.rf[0].min() < -30_000
    check_samples(recording)
    verify(path)


def test_12_bit_samples_in_16_bit_words_are_recorded_exactly(tmp_path):
    path = tmp_path / "run.h5"
    ended, report = record_and_report(path, ["--int16", "--corrupt", 0.01], "--shots", 30, "--samples", 64, *SLOW)
    check_samples(check_missing_packets(path, ended, report))
    verify(path)


# --- real ultrasound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["muscle_rf_real_192ch.hdf5", "pybf_rf_sim_192ch_3pw.hdf5"])
def test_real_rf_data_comes_back_value_by_value(tmp_path, name):
    source = ULTRASOUND / name
    if not source.exists():
        pytest.skip(f"{source.name} is not here: recording of real RF data was not compared with its source")
    path = tmp_path / "run.h5"
    ended, report = record_and_report(path, ["--input", source], "--shots", 8, "--samples", 1000, *SLOW)
    assert ended["shots_complete"] == 16, ended
    shots, rate = rf_shots(source)
    period = report["source"]["distinct_shots"]
    assert period == min(len(shots), 16)
    # sample = round(value * scale): 1 if the values fit 12 bits, else the scale that brings the peak to full scale.
    peak = max(np.abs(shot).max() for shot in shots[:period])
    scale = 1.0 if peak <= 2047 else 2047 / peak
    assert report["source"]["rf"]["scale"] == pytest.approx(scale) and report["source"]["rf"]["clipped"] == 0
    recording = check_missing_packets(path, ended, report)
    assert int(recording.links[0]["sample_rate_hz"]) == int(rate)
    for row, number in enumerate(recording.numbers()):
        value = shots[number % period][:, :1000].T * scale
        rounded = np.copysign(np.floor(np.abs(value) + 0.5), value).astype(np.int16)
        assert np.array_equal(recording.joined[row], rounded), f"shot {number} differs from the source"
    verify(path)


def rf_shots(path):
    """Returns shots of a public plane-wave data set in the order of their numbers, (channels, samples) float64."""
    with h5py.File(path) as file:

        def number(name):
            return int(name.rsplit("_", 1)[1])

        frames = file["data/rf_data"]
        names = [(frame, shot) for frame in sorted(frames, key=number) for shot in sorted(frames[frame], key=number)]
        return [frames[frame][shot][...].astype(float) for frame, shot in names], float(
            np.ravel(file["data/f_sampling"])[0]
        )


# --- losses ------------------------------------------------------------------------------------------

MIXES = {
    "loss": ["--loss", 0.02],
    "corruption": ["--corrupt", 0.02],
    "duplicates": ["--duplicate", 0.05],
    "reordering": ["--reorder", 0.05, "--reorder-depth", 64],
    "all": ["--loss", 0.02, "--corrupt", 0.02, "--duplicate", 0.02, "--reorder", 0.02],
    "storm": ["--loss", 0.2, "--corrupt", 0.2, "--duplicate", 0.2, "--reorder", 0.2, "--reorder-depth", 30],
}


# Each kind of fault in one framing, all kinds in every framing; every combination and more seeds in the long run.
TESTED = [
    *(("ud", mix, 1) for mix in MIXES),
    *((framing, mix, 1) for framing in ("counted", "udp") for mix in ("all", "storm")),
]
MORE = [(framing, mix, seed) for framing in ("ud", "counted", "udp") for mix in MIXES for seed in (1, 20, 30)]
LONG = [pytest.param(*each, marks=pytest.mark.long) for each in MORE if each not in TESTED]


@pytest.mark.parametrize(("framing", "mix", "seed"), TESTED + LONG)
def test_every_missing_packet_is_an_injected_fault(tmp_path, framing, mix, seed):
    faults = MIXES[mix]
    if framing == "udp" and "--corrupt" in faults:
        faults = [*faults, "--corrupt", 0]  # without an ICRC: see the next test
        first = faults.index("--corrupt")
        del faults[first : first + 2]
    path = tmp_path / "run.h5"
    flags = ["--shots", 40, "--samples", 500, "--framing", framing, *SLOW]
    ended, report = record_and_report(path, ["--seed", seed, *faults], *flags)
    check_samples(check_missing_packets(path, ended, report))
    verify(path)


@pytest.mark.parametrize("seed", [10, *(pytest.param(seed, marks=pytest.mark.long) for seed in (20, 30))])
def test_undetected_corruption_never_reaches_a_complete_shot(tmp_path, seed):
    path = tmp_path / "run.h5"
    flags = ["--shots", 60, "--samples", 200, "--framing", "udp", *SLOW]
    ended, _ = record_and_report(path, ["--seed", seed, "--corrupt", 0.2], *flags)
    # Corrupted shot numbers must not become shots: the counters must balance with what was sent.
    recording = Recording(path)
    check_balanced(ended, recording)
    damaged = 0
    for index, link in enumerate(recording.links):
        patterns = {}
        for row, entry in enumerate(recording.tables[index]):
            number = int(entry["number"])
            expected = patterns.setdefault(number % PERIOD, prbs(index, number % PERIOD, 96, 200, 12))
            same = np.array_equal(recording.rf[index][row], expected)
            assert same or entry["state"] != COMPLETE, f"shot {number} of link {index} is wrong and marked complete"
            damaged += not same
    assert damaged > 10, "the corruption must have changed shots"
    verify(path)  # verifiers must not treat it as a contradiction


def test_a_shot_without_packets_is_recorded_as_lost(tmp_path):
    path = tmp_path / "run.h5"
    flags = ["--samples", 8, "--loss", 0.5, "--seed", 4]  # one packet is one shot
    ended, report = record_and_report(path, flags, "--shots", 200, "--samples", 8, "--rate-hz", 2000)
    recording = check_missing_packets(path, ended, report)
    alone = (recording.tables[0]["state"] == LOST) != (recording.tables[1]["state"] == LOST)
    assert alone.any() and recording.losses, "expected shots of one link alone, and shots of none"
    assert {cause for _, cause, _, _ in recording.losses} == {"wire_gap"}
    assert ended["drops"] == {"wire_gap": report["links"][0]["faults"]["lost"] + report["links"][1]["faults"]["lost"]}
    check_samples(recording)
    verify(path)


def test_shot_numbers_continue_across_the_20_bit_wrap(tmp_path):
    path = tmp_path / "run.h5"
    first = (1 << 20) - 6
    flags = ["--first-shot", first, "--loss", 0.01, "--reorder", 0.02, "--seed", 2]
    ended, report = record_and_report(path, flags, "--shots", 30, "--samples", 500, *SLOW)
    recording = check_missing_packets(path, ended, report)
    assert recording.numbers() == list(range(first, first + 30))
    check_samples(recording)
    verify(path)


def test_shot_numbers_beyond_20_bits_are_complete_from_the_first(tmp_path):
    path = tmp_path / "run.h5"
    first = 0x1_2345_6789
    ended, report = record_and_report(path, ["--first-shot", first], "--shots", 10, "--samples", 100, *SLOW)
    assert check_missing_packets(path, ended, report).numbers() == list(range(first, first + 10))
    verify(path)


@pytest.mark.parametrize("name", ["run.h5", "run.pcapng"])
def test_a_run_beyond_shot_number_2_to_the_48_is_refused(tmp_path, name):
    path = tmp_path / name
    with Probe("--first-shot", (1 << 48) - 5) as probe:
        words = record(probe, "--out", path, "--shots", 6, "--samples", 100, *SLOW).refused()
        assert all(word in words for word in [str((1 << 48) - 5), "6 shots", "2^48", "reset"]), words
        assert not list(tmp_path.iterdir()), "created files must be removed"
        assert record(probe, "--out", path, "--shots", 5, "--samples", 100, *SLOW).succeeded()["rows"] == 5


def test_a_run_without_a_count_ends_at_the_last_shot_number(tmp_path):
    path = tmp_path / "run.h5"
    with Probe("--first-shot", (1 << 48) - 3) as probe:
        record(probe, "--out", path, "--samples", 100, "--capacity", 100, *SLOW).cut_off("numbers-exhausted")
    assert Recording(path).numbers() == [(1 << 48) - number for number in (3, 2, 1)]
    verify(path)


@pytest.mark.parametrize("sink", ["out", "discard"])
def test_a_run_without_packets_fails_with_a_hint(tmp_path, sink):
    to = ["--out", tmp_path / "run.h5"] if sink == "out" else ["--discard"]
    with Probe("--loss", 1) as probe:
        ended = record(probe, *to, "--shots", 3, "--samples", 100, *SLOW)
    assert ended.code == 1 and ended.json["shots_sent"] == 6 and ended.json["packets"] == 0, ended.stdout
    (line,) = ended.stderr.splitlines()
    assert all(word in line for word in ["sent 6 shots", "no packet arrived at [::1]:", "firewall", "--bind"]), line


def test_a_run_without_good_packets_fails_with_a_hint(tmp_path):
    with Probe("--corrupt", 1) as probe:
        ended = record(probe, "--out", tmp_path / "run.h5", "--shots", 3, "--samples", 100, *SLOW)
    assert ended.code == 1 and ended.json["packets"] == ended.json["packet_drops"]["bad_icrc"] > 0, ended.stdout
    (line,) = ended.stderr.splitlines()
    assert f"none of the {ended.json['packets']} packets that arrived could be placed" in line, line


def test_the_next_run_continues_the_shot_numbers(tmp_path):
    with Probe() as probe:
        for turn, framing in enumerate(["ud", "ud", "counted", "counted", "udp", "udp"]):
            path = tmp_path / f"run{turn}.h5"
            flags = ["--shots", 8, "--samples", 300, "--framing", framing, *SLOW]
            ended = record(probe, "--out", path, *flags).succeeded()
            assert ended["shots_complete"] == 16, ended
            recording = Recording(path)
            assert recording.numbers() == list(range(8 * turn, 8 * turn + 8))
            check_samples(recording)
            verify(path)


def test_each_trigger_takes_one_shot_and_missed_ones_are_counted(tmp_path):
    path = tmp_path / "run.h5"
    with (
        Probe() as probe,
        Recorder(probe, "--external-trigger", "--samples", 500, "--shots", 6, "--out", path) as recorder,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as trigger,
    ):
        port = int(probe.address.rsplit(":", 1)[1])

        def status():
            return run("probe", "status", probe.address, "--json").succeeded()

        until(lambda: status()["running"], what="the start")
        for shot, sequence in enumerate([1, 2, 3, 7, 8, 9]):  # triggers 4 to 6 are lost
            stamp = time.time_ns()
            trigger.sendto(struct.pack(">4sB3xI4xQ40x", b"SHTR", 1, sequence, stamp), ("::1", port))
            until(lambda shot=shot: status()["next_shot"] > shot, what=f"shot {shot}")
        ended = recorder.end().succeeded()
        report = probe.report()
    assert ended["shots_sent"] == ended["shots_complete"] == 12, ended
    assert report["pace"]["missed"] == 3, report
    recording = Recording(path)
    assert recording.numbers() == list(range(6)) and (recording.tables[0]["flags"] & 2).all()
    check_samples(recording)
    verify(path)


# --- other readers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A recording of four shots with losses."""
    path = tmp_path_factory.mktemp("small") / "run.h5"
    record_and_report(path, ["--loss", 0.02, "--seed", 1], "--shots", 4, "--samples", 50, *SLOW)
    return path


def test_the_hdf5_tools_read_the_file(small):
    path = small

    def tool(*command):
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = tool("h5ls", "-r", path)
    for name, extent in {
        "rf": "4/.*, 50, 192",
        "link0/rf": "4/.*, 50, 96",
        "link1/shots": "4/",
        "losses": "0/",
    }.items():
        assert re.search(rf"^/{name} +Dataset \{{{extent}", listed, re.MULTILINE), listed
    assert "DATASPACE  SIMPLE { ( 4, 50, 192 )" in tool("h5dump", "-H", "-d", "/rf", path)
    values = tool("h5dump", "-y", "-w", 0, "-d", "/rf", "-s", "2,7,0", "-c", "1,1,192", path)
    numbers = [int(word) for word in re.search(r"DATA \{(.*?)\}", values, re.DOTALL)[1].replace(",", " ").split()]
    assert numbers == list(Recording(path).joined[2, 7])
    assert "test_pattern_period" in tool("h5dump", "-A", path)


def test_the_independent_verifier_runs_as_a_program(small, tmp_path):
    path = shutil.copy(small, tmp_path / "run.h5")
    command = [sys.executable, ROOT / "python" / "shotline_verify.py"]
    done = subprocess.run([*command, path], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["verified"] is True, done.stdout + done.stderr
    path.write_bytes(b"no HDF5 file")
    done = subprocess.run([*command, path], capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert done.returncode == 2 and json.loads(done.stdout)["verified"] is False, done.stdout + done.stderr


def test_the_verifier_finds_a_single_changed_bit(tmp_path):
    """A verifier that accepts everything would make all other tests here worthless."""
    path = tmp_path / "run.h5"
    record_and_report(path, [], "--shots", 3, "--samples", 100, *SLOW)
    verify(path)
    with h5py.File(path, "r") as file:
        offset = file["rf"].id.get_chunk_info_by_coord((1, 0, 96)).byte_offset
    with open(path, "r+b") as file:
        file.seek(offset + PACKET + 17)
        byte = file.read(1)[0]
        file.seek(offset + PACKET + 17)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(AssertionError, match="row 1 of link 1"):
        verify(path)


# --- time --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def kernel_stamps():
    """Waits until the kernel stamps packets, which it begins only some time after the first socket requests it."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as requester:
        requester.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, SOFTWARE_STAMPS)
        requester.bind(("::1", 0))

        def is_on():
            requester.sendto(b"", requester.getsockname())
            _, control, _, _ = requester.recvmsg(1, 256)
            return any(kind == SO_TIMESTAMPING for _, kind, _ in control)

        until(is_on, what="the kernel's stamps")
        yield


def test_shots_have_trigger_arrival_and_completion_times(tmp_path):
    path = tmp_path / "run.h5"
    with kernel_stamps(), Probe("--samples", 500) as probe:
        record(probe, "--out", path, "--shots", 40, "--samples", 500, "--rate-hz", 1000).succeeded()
    recording = Recording(path)
    for table in recording.tables:
        stamp, arrived, completed = (table[f"{name}_tai_ns"] for name in ("stamp", "arrived", "completed"))
        assert (stamp > 0).all() and (np.diff(stamp.astype(np.int64)) > 0).all()
        assert (arrived >= stamp).all() and (completed >= arrived).all()


def test_counters_hold_the_latencies_and_the_file_its_clock(tmp_path):
    path = tmp_path / "run.h5"
    with kernel_stamps(), Probe("--samples", 500) as probe:
        summary = record(probe, "--out", path, "--shots", 40, "--samples", 500, "--rate-hz", 1000).succeeded()
    recording = Recording(path)
    assert recording.attributes["clock_source"] == "system" and recording.attributes["clock_locked"] in (0, 1)
    assert recording.attributes["tai_minus_utc_s"] == summary["clock"]["tai_minus_utc_s"] >= 37
    with h5py.File(path) as file:
        counters = {(int(b["stream"]), b["name"].decode()): int(b["value"]) for b in file["counters"][...]}
    for stream, table in enumerate(recording.tables):
        latencies = (table["completed_tai_ns"] - table["stamp_tai_ns"]).astype(np.int64)
        assert counters[stream, "latency_from_sender_shots"] == 40
        assert counters[stream, "latency_from_sender_min_ns"] == latencies.min()
        assert counters[stream, "latency_from_sender_max_ns"] == latencies.max()
        median = np.sort(latencies)[19]
        assert median <= counters[stream, "latency_from_sender_p50_ns"] <= median * 9 / 8 + 1
    assert summary["latency_from_sender"]["shots"] == summary["latency_from_kernel"]["shots"] == 80


def test_a_missing_clock_is_one_clear_error(tmp_path):
    with Probe() as probe:
        error = record(probe, "--out", tmp_path / "run.h5", "--clock", "ptp:/dev/ptp99").refused()
    assert "/dev/ptp99" in error and "ls -l /dev/ptp*" in error
    assert not (tmp_path / "run.h5").exists()


def test_shots_carry_the_transmit_events_of_a_sequence_in_order(tmp_path):
    path = tmp_path / "run.h5"
    with Probe("--samples", 100) as probe:
        record(
            *(probe, "--out", path, "--shots", 10, "--samples", 100, "--rate-hz", 500),
            *("--transmit-sequence", "7,300,9"),
        ).succeeded()
    with h5py.File(path) as file:
        at = int(file["link0"].attrs["record_offset"])
        events = [
            struct.unpack_from(">I", file["rf"].id.read_direct_chunk((row, 0, 0))[1], at + 28)[0] for row in range(10)
        ]
    assert events == [7, 300, 9] * 3 + [7]
