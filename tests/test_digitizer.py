"""A digitizer and a recorder as two programs: the same blocks in the file, whatever carries them.

Over UDP sockets; over a memif, af_packet and af_xdp where this build has DPDK.
"""

import signal
import socket
import subprocess
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import need_root
from faultfs import FaultDrive, skip_if_impossible

from common import PATIENCE, Namespaces, Process, Recording, balanced, run, until, verify

SMALL = ("--decimation", 1, "--sample-rate", "5e5", "--block", "256KiB", "--distinct", 3)
PATIENT = ("--timeout-ms", 5000, "--idle-s", 2)


def dpdk():
    """Skips where the program was built without DPDK."""
    said = run("record", "--transport", "dpdk:net_null0", "--listen", "10.0.0.1:9", "--discard", "--seconds", 0.1)
    if "built without DPDK" in said.stderr:
        pytest.skip("this shotline was built without DPDK (libdpdk-dev was not there)")


class Carrier:
    """The words that tell each side what carries packets."""

    def __init__(self, receiver, sender, to, netns=(None, None)):
        self.receiver, self.sender, self.to, self.netns = receiver, sender, to, netns

    @property
    def is_memif(self):
        return any("memif" in str(word) for word in self.receiver)


@pytest.fixture
def carrier(request, tmp_path):
    if request.param == "udp":
        yield Carrier([], [], free_address())
        return
    dpdk()
    if request.param == "memif":
        words = f"id=0,socket={tmp_path}/memif.sock,socket-abstract=no"
        receiver = ["--transport", f"dpdk:net_memif0,role=server,{words}"]
        yield Carrier(receiver, ["--transport", f"dpdk:net_memif1,role=client,{words}"], "10.0.0.1:9000")
        return
    need_root("ip", "nsenter")
    # A driver of packets in a namespace of its own for each side, joined by a cable.
    device, mtu = {"af_packet": ("net_af_packet", 9000), "af_xdp": ("net_af_xdp", 1500)}[request.param]
    with Namespaces(mtu=mtu) as spaces:
        words = [["--transport", f"dpdk:{device}{side},iface=cable", "--mtu", mtu] for side in (0, 1)]
        yield Carrier(words[0], words[1], "10.91.8.1:9000", netns=spaces.names)


class Receiver(Process):
    def __init__(self, carrier, *arguments, patience=PATIENT):
        listen = ("--listen", carrier.to, "--framing", "digitizer", *patience, "--pool", "64MiB")
        super().__init__("record", "--json", *carrier.receiver, *listen, *arguments, netns=carrier.netns[0])


def emulate(carrier, *arguments):
    words = ("--to", carrier.to, *carrier.sender, *arguments)
    return Process("emulate", "digitizer", "--json", *words, netns=carrier.netns[1])


def blocks_of(path, link=0):
    """By number: samples, description and table row of each block."""
    with h5py.File(path) as file:
        group = file[f"link{link}"]
        shots, blocks, rf = group["shots"][:], group["blocks"][:], group["rf"]
        return {int(shot["number"]): (rf[row], blocks[row], shot) for row, shot in enumerate(shots)}


def check_same(blocks, distinct=3):
    """Block n is number n modulo `distinct`: all of a kind are the same."""
    kinds = {}
    for number, (samples, description, shot) in sorted(blocks.items()):
        if shot["state"] != 2:
            continue
        first, peaks = kinds.setdefault(number % distinct, (samples, description["peaks"]))
        assert np.array_equal(samples, first), f"block {number} is not what block {number % distinct} is"
        assert np.array_equal(description["peaks"], peaks)
    return kinds


@pytest.mark.parametrize("carrier", ["udp", "memif", "af_packet", "af_xdp"], indirect=True)
def test_every_block_is_in_the_file_with_its_spectrum_stamp_and_axes(carrier, tmp_path):
    path = tmp_path / "run.h5"
    with Receiver(carrier, "--out", path) as receiver:
        until_listening(receiver, carrier)
        payload = ("--payload", 1280) if "af_xdp" in str(carrier.sender) else ()
        # The board holds all blocks, should this machine stand still meanwhile.
        what = ("--blocks", 40, "--ring", 40, "--tone", "100e3:-10", "--centre", "1.3e9")
        with emulate(carrier, *SMALL, *payload, *what) as sender:
            sent = sender.end().succeeded()["streams"][0]
        ended = receiver.end().succeeded()
    assert sent["overruns"] == 0 and sent["blocks_sent"] == 40
    balanced(ended, Recording(path))
    blocks = blocks_of(path)
    numbers = sorted(blocks)
    assert numbers == list(range(numbers[0], 40)) and numbers[0] < 20, "all blocks but those before the start"
    whole = [block for block in blocks.values() if block[2]["state"] == 2]
    # A ring or a socket's buffer may overflow while this machine is busy with other things; a memif waits.
    assert len(whole) >= (len(blocks) if carrier.is_memif else len(blocks) * 3 // 4), ended
    kinds = check_same(blocks)
    assert len(kinds) == 3 and not np.array_equal(kinds[0][0], kinds[1][0]), "noise differs from block to block"
    for samples, description, shot in whole:
        # As the file says of itself: I and Q, 500 kS/s, and a tone 100 kHz above the centre.
        iq = samples[:, 0] + 1j * samples[:, 1]
        spectrum = np.abs(np.fft.fft(iq * np.hanning(len(iq))))
        peak = np.fft.fftfreq(len(iq), 1 / 5e5)[spectrum.argmax()]
        assert abs(peak - description["peaks"]["frequency_hz"][0]) < 5e5 / len(iq)
        assert abs(description["peaks"]["power_dbfs"][0] + 10) < 0.1
        assert description["centre_hz"] == 1.3e9 and 40 < description["snr_db"] < 60
        assert shot["stamp_tai_ns"] > 0
    stamps = np.array([int(blocks[number][2]["stamp_tai_ns"]) for number in numbers])
    assert np.abs(np.diff(stamps) - 2**16 / 5e5 * 1e9).max() <= 1, "a block each 131 ms"
    with h5py.File(path) as file:
        rf = file["rf"]
        assert list(rf.attrs["components"]) == ["I", "Q"] and rf.attrs["units"] == "counts"
        assert rf.attrs["sample_rate_hz"] == 500_000
    verify(path)


@pytest.mark.parametrize("carrier", ["udp", "memif"], indirect=True)
def test_a_sender_that_is_killed_leaves_a_right_file_and_balanced_books(carrier, tmp_path):
    path = tmp_path / "run.h5"
    with Receiver(carrier, "--out", path) as receiver:
        until_listening(receiver, carrier)
        with emulate(carrier, *SMALL) as sender:
            until(lambda: rows(path) > 10, what="rows in the file")
            sender.signal(signal.SIGKILL)
        ended = receiver.end().succeeded()
    balanced(ended, Recording(path))
    assert ended["shots_partial"] <= 1 and ended["shots_complete"] > 10, ended
    check_same(blocks_of(path))
    verify(path)


@pytest.mark.parametrize("carrier", ["udp", "memif"], indirect=True)
def test_a_recorder_that_is_killed_leaves_whole_blocks_and_another_one_goes_on(carrier, tmp_path):
    path, after = tmp_path / "run.h5", tmp_path / "after.h5"
    with Receiver(carrier, "--out", path, "--capacity", 500) as receiver:
        until_listening(receiver, carrier)
        with emulate(carrier, *SMALL) as sender:
            until(lambda: rows(path) > 10, what="rows in the file")
            receiver.signal(signal.SIGKILL)
            receiver.end()
            run("recover", path, "--json").succeeded()
            with Receiver(carrier, "--out", after, "--shots", 20) as another:
                ended = another.end().succeeded()
            sender.interrupt()
    blocks = blocks_of(path)
    assert len(blocks) > 10 and all(shot["state"] == 2 for _, _, shot in blocks.values())
    check_same(blocks)
    balanced(ended, Recording(after))
    assert ended["shots_complete"] == 20 and min(blocks_of(after)) > max(blocks)
    check_same(blocks_of(after))
    verify(after)


def test_four_digitizers_in_step_are_one_recording_although_their_clocks_differ(tmp_path):
    path = tmp_path / "run.h5"
    carrier = Carrier([], [], free_address())
    offsets = [0, 150_000, -90_000, 40_000]
    # Blocks are 50 ms apart; clocks are judged by arrivals, and a busy machine is late by some of them.
    receiving = ("--links", 4, "--align", "stamp", "--align-window", "20ms", "--out", path, "--capacity", 500)
    with Receiver(carrier, *receiving) as receiver:
        until_listening(receiver, carrier)
        flags = ["--streams", 4, "--stream", 5, "--trigger-rate", 20, "--blocks", 60, "--ring", 60]
        clocks = ["--clock-offset", ",".join(map(str, offsets)), "--clock-drift", "0,20000,-15000,5000"]
        with emulate(carrier, *SMALL[:4], "--distinct", 2, "--block", "64KiB", *flags, *clocks) as sender:
            sent = sender.end().succeeded()
        ended = receiver.end().succeeded()
    assert [stream["blocks_sent"] for stream in sent["streams"]] == [60] * 4
    recording = Recording(path)
    balanced(ended, recording)
    with h5py.File(path) as file:
        stamps = np.array([file[f"link{link}/shots"]["stamp_tai_ns"] for link in range(4)], np.int64)
        streams = [int(file[f"link{link}"].attrs["stream"]) for link in range(4)]
        numbers = np.array([file[f"link{link}/shots"]["number"] for link in range(4)], np.int64)
        centred = (stamps - stamps[0]).T
    assert streams == [5, 6, 7, 8]
    whole = (stamps > 0).all(axis=0)
    assert whole.sum() > 30
    assert (numbers[:, whole] == numbers[0, whole]).all(), "one event has one trigger's blocks"
    # The clocks' own drifts add at most 20 us/s for 3 s to their offsets.
    assert np.abs(centred[whole] - offsets).max() < 100_000


def test_parts_that_follow_one_another_are_one_table_of_blocks(tmp_path):
    path = tmp_path / "run.h5"
    carrier = Carrier([], [], free_address())
    with Receiver(carrier, "--out", path, "--roll-shots", 8) as receiver:
        until_listening(receiver, carrier)
        with emulate(carrier, *SMALL, "--blocks", 40) as sender:
            sender.end().succeeded()
        ended = receiver.end().succeeded()
    blocks = blocks_of(path)
    assert len(blocks) == ended["shots_complete"] > 20
    assert all(description["peaks_found"] > 0 for _, description, _ in blocks.values())
    check_same(blocks)
    verify(path)


def test_one_stage_after_the_other_needs_credits_and_loses_nothing(tmp_path):
    refused = run("record", "--listen", "127.0.0.1:9", "--framing", "digitizer", "--discard", "--sequential").refused()
    assert "--policy block" in refused, refused
    dpdk()
    words = f"id=0,socket={tmp_path}/memif.sock,socket-abstract=no"
    carrier = Carrier(
        ["--transport", f"dpdk:net_memif0,role=server,{words}"],
        ["--transport", f"dpdk:net_memif1,role=client,{words}"],
        "10.0.0.1:9000",
    )
    path = tmp_path / "run.h5"
    with Receiver(carrier, "--out", path, "--sequential", "--policy", "block", "--capacity", 500) as receiver:
        until_listening(receiver, carrier)
        with emulate(carrier, *SMALL, "--rate", "max", "--sequential", "--blocks", 60) as sender:
            sent = sender.end().succeeded()["streams"][0]
        ended = receiver.end().succeeded()
    assert sent["overruns"] == 0
    assert ended["drops"] == {} and ended["packets_missing"] == 0, ended
    blocks = blocks_of(path)
    # With credits the recorder's first packet is the sender's: only the block that taught it is gone.
    assert len(blocks) >= 50 and sorted(blocks) == list(range(min(blocks), 60)), f"{sent} {ended}"
    check_same(blocks)


@pytest.mark.parametrize("order", [(), ("--sequential",)], ids=["pipelined", "sequential"])
def test_a_drive_that_stands_still_longer_than_the_silence_that_ends_a_run_does_not_end_it(tmp_path, order):
    dpdk()
    skip_if_impossible()
    words = f"id=0,socket={tmp_path}/memif.sock,socket-abstract=no"
    carrier = Carrier(
        ["--transport", f"dpdk:net_memif0,role=server,{words}"],
        ["--transport", f"dpdk:net_memif1,role=client,{words}"],
        "10.0.0.1:9000",
    )
    mount = tmp_path / "drive"
    mount.mkdir()
    with FaultDrive(mount) as drive:
        path = mount / "run.h5"
        # A block each eighth of a second; what is in flight makes the recorder wait for the drive.
        drive.speed(2_000_000)
        flags = ("--out", path, *order, "--policy", "block", "--capacity", 500, "--in-flight", 1)
        with Receiver(carrier, *flags, patience=("--timeout-ms", 500, "--idle-s", 1)) as receiver:
            until_listening(receiver, carrier)
            with emulate(carrier, *SMALL, "--rate", "max", "--sequential", "--blocks", 60) as sender:
                until(lambda: blocks_written(drive) > 3, what="blocks on the drive")
                drive.stall(3)
                sent = sender.end().succeeded()["streams"][0]
            ended = receiver.end().succeeded()
        assert (sent["overruns"], sent["blocks_abandoned"]) == (0, 0), sent
        assert ended["drops"] == {} and ended["packets_missing"] == 0, ended
        blocks = blocks_of(path)
        assert sorted(blocks) == list(range(min(blocks), 60)) and min(blocks) < 10, f"{sent} {ended}"
        check_same(blocks)


def has_xdp(carrier):
    link = subprocess.run(
        ["ip", "-n", carrier.netns[0], "link", "show", "cable"], capture_output=True, text=True, check=True
    )
    return "xdp" in link.stdout


def free_address():
    """A port of this host that nobody has now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def blocks_written(drive):
    return sum(op.size >= 256 << 10 for op in drive.log().of("write"))


def rows(path):
    """Rows that readers see now; 0 before there is a file."""
    try:
        with h5py.File(path, locking=False) as file:
            return len(file["rf"])
    except OSError:
        return 0


def until_listening(receiver, carrier):
    """The receiver has opened what carries packets: a sender that begins now is heard."""
    if carrier.is_memif:
        memif = Path(next(word for word in carrier.receiver if "socket=" in word).split("socket=")[1].split(",")[0])
        until(lambda: memif.exists() or receiver.popen.poll() is not None, "the carrier of packets is open")
    elif carrier.receiver:
        # A port of either kind shows in its namespace before it polls.
        packets = Path(f"/proc/{receiver.pid}/net/packet")
        shown = (lambda: len(packets.read_text().splitlines()) > 1) if "af_packet" in str(carrier.receiver) else None
        until(shown or (lambda: has_xdp(carrier) or receiver.popen.poll() is not None), "the carrier of packets is open")
        time.sleep(1)
    else:
        port = f":{int(carrier.to.rsplit(':', 1)[1]):04X} "
        until(lambda: port in Path("/proc/net/udp").read_text(), what="an open socket")
    time.sleep(0.2)
