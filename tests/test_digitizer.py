"""A digitizer and a recorder as two programs: the same blocks are in the file over every transport.

Over UDP sockets; over a memif, af_packet and af_xdp where this build has DPDK.
"""

import signal

import h5py
import numpy as np
import pytest
from carriers import memif, open_carrier, udp
from faultfs import FaultDrive, skip_if_impossible
from file_state import has_complete_shot, visible_rows

from common import COMPLETE, Process, Recording, check_balanced, run, until, verify

RATE, SAMPLES = 2_000_000, 8192  # a block takes 4 ms
SMALL = ("--decimation", 1, "--sample-rate-hz", RATE, "--block", 4 * SAMPLES, "--distinct", 3)
# Few enough that a socket's buffer and any ring hold all of their packets while the receiver is not scheduled.
BLOCKS = 30
# No limit on blocks, at the rate of the link: none is lost because the board's memory is full.
ENDLESS = (*SMALL, "--rate", "max", "--link-rate", 7e7)
LONG_TIMEOUT = ("--timeout-ms", 60_000)


@pytest.fixture
def carrier(request, tmp_path):
    """The carrier whose name is the parameter."""
    with open_carrier(request.param, tmp_path) as carrier:
        yield carrier


class Receiver(Process):
    """A recorder of digitizers over a carrier."""

    def __init__(self, carrier, *arguments, timeouts=LONG_TIMEOUT, pool="64MiB"):
        listen = ("--listen", carrier.to, "--framing", "digitizer", *timeouts, "--pool", pool)
        super().__init__("record", "--json", *carrier.receiver, *listen, *arguments, netns=carrier.netns[0])


def emulate(carrier, *arguments):
    flags = ("--to", carrier.to, *carrier.sender, *arguments)
    return Process("emulate", "digitizer", "--json", *flags, netns=carrier.netns[1])


def blocks_of(path, link=0):
    """Returns samples, description and table row of each block by number."""
    with h5py.File(path) as file:
        group = file[f"link{link}"]
        shots, blocks, rf = group["shots"][:], group["blocks"][:], group["rf"]
        return {int(shot["number"]): (rf[row], blocks[row], shot) for row, shot in enumerate(shots)}


def check_same(blocks, distinct=3):
    """Checks that all blocks with the same number modulo `distinct` are equal."""
    kinds = {}
    for number, (samples, description, shot) in sorted(blocks.items()):
        if shot["state"] != COMPLETE:
            continue
        first, peaks = kinds.setdefault(number % distinct, (samples, description["peaks"]))
        assert np.array_equal(samples, first), (
            f"block {number} differs from the earlier ones that repeat every {distinct} blocks"
        )
        assert np.array_equal(description["peaks"], peaks)
    return kinds


@pytest.mark.parametrize("carrier", ["udp", "memif", "af_packet", "af_xdp"], indirect=True)
def test_every_block_is_recorded_with_spectrum_stamp_and_axes(carrier, tmp_path):
    path = tmp_path / "run.h5"
    with Receiver(carrier, "--out", path, "--capacity", 500) as receiver:
        carrier.until_listening(receiver)
        payload = ("--payload", 1280) if "af_xdp" in str(carrier.sender) else ()
        # The board holds all blocks while this machine is busy.
        signal_flags = ("--blocks", BLOCKS, "--ring", BLOCKS, "--tone", f"{RATE / 5}:-10", "--centre-hz", "1.3e9")
        with emulate(carrier, *SMALL, *payload, *signal_flags) as sender:
            sent = sender.end().succeeded()["streams"][0]
        until(lambda: has_complete_shot(path, BLOCKS - 1), what="the last block in the file")
        ended = receiver.interrupt().succeeded()
    assert sent["overruns"] == 0 and sent["blocks_sent"] == BLOCKS
    check_balanced(ended, Recording(path))
    blocks = blocks_of(path)
    numbers = sorted(blocks)
    assert numbers == list(range(numbers[0], BLOCKS)) and numbers[0] < 15, "only blocks before the start may be missing"
    assert all(shot["state"] == COMPLETE for _, _, shot in blocks.values()), ended
    kinds = check_same(blocks)
    assert len(kinds) == 3 and not np.array_equal(kinds[0][0], kinds[1][0]), "noise must differ from block to block"
    for samples, description, shot in blocks.values():
        # I and Q at 2 MS/s, with a tone 400 kHz above the centre.
        iq = samples[:, 0] + 1j * samples[:, 1]
        spectrum = np.abs(np.fft.fft(iq * np.hanning(len(iq))))
        peak = np.fft.fftfreq(len(iq), 1 / RATE)[spectrum.argmax()]
        assert abs(peak - description["peaks"]["frequency_hz"][0]) < RATE / len(iq)
        assert abs(description["peaks"]["power_dbfs"][0] + 10) < 0.1
        assert description["centre_hz"] == 1.3e9 and 40 < description["snr_db"] < 60
        assert shot["stamp_tai_ns"] > 0
    stamps = np.array([int(blocks[number][2]["stamp_tai_ns"]) for number in numbers])
    assert np.abs(np.diff(stamps) - SAMPLES / RATE * 1e9).max() <= 1, "a block must begin every 4.096 ms"
    with h5py.File(path) as file:
        rf = file["rf"]
        assert list(rf.attrs["components"]) == ["I", "Q"] and rf.attrs["units"] == "counts"
        assert rf.attrs["sample_rate_hz"] == RATE
    verify(path)


@pytest.mark.parametrize("carrier", ["udp", "memif"], indirect=True)
def test_a_killed_sender_leaves_a_valid_file_and_may_be_replaced(carrier, tmp_path):
    path, later = tmp_path / "run.h5", 30_000
    with Receiver(carrier, "--out", path, "--capacity", 3000) as receiver:
        carrier.until_listening(receiver)
        with emulate(carrier, *ENDLESS) as sender:
            until(lambda: visible_rows(path) > 10, what="rows in the file")
            sender.signal(signal.SIGKILL)
            sender.popen.wait()
        if carrier.memif:
            with emulate(carrier, *SMALL, "--first-block", later, "--blocks", BLOCKS, "--ring", BLOCKS) as another:
                assert another.end().succeeded()["streams"][0]["blocks_sent"] == BLOCKS
            until(lambda: has_complete_shot(path, later + BLOCKS - 1), what="the last block of the next sender")
        ended = receiver.interrupt().succeeded()
    check_balanced(ended, Recording(path))
    assert ended["shots_complete"] > 10, ended
    blocks = blocks_of(path)
    missing = {number: int(shot["packets"] - shot["placed"]) for number, (_, _, shot) in blocks.items()}
    assert not carrier.memif or set(range(later, later + BLOCKS)) <= set(blocks), sorted(blocks)
    # A number far ahead is accepted only from the second packet on.
    assert missing.pop(later, 0) <= 1 and sum(count > 0 for count in missing.values()) <= 1, missing
    check_same(blocks)
    verify(path)


@pytest.mark.parametrize("carrier", ["udp", "memif"], indirect=True)
def test_a_killed_recorder_leaves_whole_blocks_for_a_successor(carrier, tmp_path):
    path, after = tmp_path / "run.h5", tmp_path / "after.h5"
    with Receiver(carrier, "--out", path, "--capacity", 3000) as receiver:
        carrier.until_listening(receiver)
        with emulate(carrier, *ENDLESS) as sender:
            until(lambda: visible_rows(path) > 10, what="rows in the file")
            receiver.signal(signal.SIGKILL)
            receiver.end()
            run("recover", path, "--json").succeeded()
            with Receiver(carrier, "--out", after, "--shots", 20) as another:
                ended = another.end().succeeded()
            sender.interrupt()
    blocks = blocks_of(path)
    assert len(blocks) > 10 and all(shot["state"] == COMPLETE for _, _, shot in blocks.values())
    check_same(blocks)
    check_balanced(ended, Recording(after))
    assert ended["shots_complete"] == 20 and min(blocks_of(after)) > max(blocks)
    check_same(blocks_of(after))
    verify(after)


def test_four_digitizers_with_different_clocks_are_aligned(tmp_path):
    path, carrier = tmp_path / "run.h5", udp()
    offsets, drifts = np.array([0, 150_000, -90_000, 40_000]), np.array([0, 20_000, -15_000, 5000])  # ns, ppb
    rate = 40  # blocks are 25 ms apart
    # The window follows from the rate.
    align_flags = ("--links", 4, "--align", "stamp", "--out", path, "--capacity", 5000)
    with Receiver(carrier, *align_flags) as receiver:
        carrier.until_listening(receiver)
        flags = ["--streams", 4, "--stream", 5, "--trigger-rate", rate, "--ring", 200]
        clocks = [f"--clock-{what}={','.join(map(str, of))}" for what, of in (("offset", offsets), ("drift", drifts))]
        with emulate(carrier, *SMALL, *flags, *clocks) as sender:
            # Blocks are aligned by their arrival, which a busy machine disturbs, until eight points determine a clock.
            until(lambda: aligned_rows(shot_tables(path, 4))[-16:].sum() == 16, what="events of one trigger each")
            sender.interrupt().succeeded()
        ended = receiver.interrupt().succeeded()
    recording = Recording(path)
    check_balanced(ended, recording)
    events, whole_run = ended["events"], recording.counters[2**32 - 1]
    assert 10 < events["window_us"] <= 25_000 / 4 + 10, events
    assert whole_run["align_window_ns"] == round(1000 * events["window_us"])
    assert (whole_run["events_complete"], whole_run["events_incomplete"]) == (events["complete"], events["incomplete"])
    assert any("incomplete" in text for text in ended["warnings"]) == (20 * events["incomplete"] > recording.rows[0])
    with h5py.File(path) as file:
        assert file.attrs["aligned_by"] == "stamp"
        assert [file[f"link{link}"].attrs["stream"] for link in range(4)] == [5, 6, 7, 8]
    tables = shot_tables(path, 4)
    events = aligned_rows(tables)
    stamps = np.array([table["stamp_tai_ns"][events] for table in tables], np.int64)
    seconds = tables[0]["number"][events] / rate
    differences = offsets + np.outer(seconds, drifts)  # 1 ppb is 1 ns in a second
    assert np.abs((stamps - stamps[0]).T - differences).max() < 1000


def shot_tables(path, links):
    """Returns the rows that readers see of each link's table."""
    try:
        with h5py.File(path, locking=False) as file:
            rows = file["rf"].shape[0]
            return [file[f"link{link}/shots"][:rows] for link in range(links)]
    except (OSError, KeyError):
        return None


def aligned_rows(tables):
    """Returns which rows are whole blocks of one trigger."""
    if tables is None:
        return np.zeros(0, bool)
    whole = np.all([table["state"] == COMPLETE for table in tables], axis=0)
    return whole & np.all([table["number"] == tables[0]["number"] for table in tables], axis=0)


def test_rolled_parts_form_one_table_of_blocks(tmp_path):
    path, carrier = tmp_path / "run.h5", udp()
    with Receiver(carrier, "--out", path, "--roll-shots", 8, "--shots", 20) as receiver:
        carrier.until_listening(receiver)
        with emulate(carrier, *SMALL, "--blocks", BLOCKS, "--ring", BLOCKS) as sender:
            ended = receiver.end().succeeded()
            sender.end().succeeded()
    blocks = blocks_of(path)
    assert len(blocks) == ended["shots_complete"] == 20
    assert all(description["peaks_found"] > 0 for _, description, _ in blocks.values())
    check_same(blocks)
    verify(path)


def test_serial_stages_need_credits_and_lose_nothing(tmp_path):
    refused = run("record", "--listen", "127.0.0.1:9", "--framing", "digitizer", "--discard", "--sequential").refused()
    assert "--policy block" in refused, refused
    path, carrier = tmp_path / "run.h5", memif(tmp_path)
    # More than the memif and the pool hold, so that the sender is blocked.
    with Receiver(
        carrier, "--out", path, "--sequential", "--policy", "block", "--capacity", 500, pool="4MiB"
    ) as receiver:
        carrier.until_listening(receiver)
        with emulate(carrier, *SMALL, "--rate", "max", "--sequential", "--blocks", 400) as sender:
            sent = sender.end().succeeded()["streams"][0]
        until(lambda: has_complete_shot(path, 399), what="the last block in the file")
        ended = receiver.interrupt().succeeded()
    assert sent["overruns"] == 0
    assert ended["drops"] == {} and ended["packets_missing"] == 0, ended
    blocks = blocks_of(path)
    # With credits the recorder's first packet is the sender's first: only the block used for learning is missing.
    assert sorted(blocks) == list(range(1, 400)), f"{sent} {ended}"
    check_same(blocks)


@pytest.mark.parametrize("order", [(), ("--sequential",)], ids=["pipelined", "sequential"])
def test_a_drive_stall_longer_than_the_idle_time_ends_no_run(tmp_path, order):
    skip_if_impossible()
    path, carrier = tmp_path / "drive" / "run.h5", memif(tmp_path)
    path.parent.mkdir()
    with FaultDrive(path.parent) as drive:
        # The packets in flight make the recorder wait for the drive; the pool holds a part of the blocks.
        flags = ("--out", path, *order, "--policy", "block", "--capacity", 1000, "--in-flight", 1)
        with Receiver(carrier, *flags, timeouts=(*LONG_TIMEOUT, "--idle-s", 3), pool="4MiB") as receiver:
            carrier.until_listening(receiver)
            with emulate(carrier, *SMALL, "--rate", "max", "--blocks", 1000) as sender:
                until(lambda: drive.counts()[0] > 50, what="blocks on the drive")
                drive.stall(3.5)
                sent = sender.end().succeeded()["streams"][0]
            ended = receiver.end().succeeded()
        assert (sent["overruns"], sent["blocks_abandoned"]) == (0, 0), sent
        assert ended["drops"] == {} and ended["packets_missing"] == 0, ended
        blocks = blocks_of(path)
        assert sorted(blocks) == list(range(1, 1000)), f"{sent} {ended}"
        check_same(blocks)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--tone", "600:0"], "--tone up to 500 Hz from the centre, half the sample rate, found 600"),
        (["--tone=-501:0"], "found -501"),
        (["--noise", 1], "--noise of 0 dB or less"),
        (["--first-block", 2**64 - 1], "below 2^48"),
    ],
)
def test_out_of_range_digitizer_numbers_are_refused(flags, words):
    shape = (
        "--decimation",
        1,
        "--sample-rate-hz",
        1000,
        "--block",
        "64KiB",
        "--distinct",
        1,
        "--blocks",
        1,
        "--no-send",
    )
    line = run("emulate", "digitizer", "--to", "[::1]:9", *shape, *flags).refused()
    assert words in line, line


def test_a_time_shorter_than_half_a_block_yields_one_block():
    """A block of 64 KiB at 10 kS/s takes 1.6 s."""
    flags = ("--decimation", 1, "--sample-rate-hz", 10_000, "--block", "64KiB", "--distinct", 1, "--seconds", 0.01)
    (sent,) = run("emulate", "digitizer", "--json", "--to", "[::1]:9", "--no-send", *flags).succeeded()["streams"]
    assert sent["blocks_produced"] == 1, sent
