"""The emulated digitizer against an independent receiver: bytes, headers, descriptions, records, stamps."""

import itertools
import signal
import socket
import struct
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from formats.source import DATA

from common import WAIT_TIMEOUT_S, Process, run

HEADER = struct.Struct(">4sBBBBIIQQIIddd")
LAST, LOCKED, TRIGGERED = 1, 2, 4
TRAILER = 256


class Receiver:
    """A socket that assembles blocks from their packets' headers."""

    def __init__(self, address="::1"):
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE, where that is permitted
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.socket.bind((address, 0))
        self.socket.settimeout(WAIT_TIMEOUT_S)
        port = self.socket.getsockname()[1]
        self.address = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self.open, self.first = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def blocks(self, count):
        """Returns the next whole blocks, as (stream, number, first header, samples, description, record)."""
        found = []
        while len(found) < count:
            packet = self.socket.recv(65536)
            header = HEADER.unpack_from(packet)
            magic, version, flags, channels, bits, stream, size, number, _, offset, length, *_ = header
            assert (magic, version, channels, bits) == (b"SHDG", 1, 2, 16)
            assert length == len(packet) - HEADER.size and offset + length <= size
            assert bool(flags & LAST) == (offset + length == size)
            parts = self.open.setdefault((stream, number), {})
            assert offset not in parts, "a packet was received twice"
            parts[offset] = packet[HEADER.size :]
            if sum(map(len, parts.values())) == size:
                whole = b"".join(parts[at] for at in sorted(self.open.pop((stream, number))))
                found.append((stream, number, header, *check(whole)))
        return found


def check(whole):
    """Splits a block into samples, description and record, and checks the CRC of its record with zlib."""
    samples, description, record = whole[:-TRAILER], whole[-TRAILER:-64], whole[-64:]
    assert record[:4] == b"SHOT" and description[:4] == b"BLCK"
    assert struct.unpack("<I", record[60:])[0] == zlib.crc32(whole[:-4])
    return samples, description, record


def peaks(description):
    return [struct.unpack_from("<df", description, 56 + 16 * peak) for peak in range(description[5])]


@pytest.fixture
def noise(tmp_path):
    """A file of IQ samples, and its contents."""
    samples = np.random.default_rng(4).integers(-32768, 32768, (50_000, 2), dtype="<i2")
    path = tmp_path / "noise.ci16"
    samples.tofile(path)
    return path, samples


# Some combinations of address, payload and order; all others are in the long run.
SETTINGS = [
    ("::1", 8192, ()),
    ("127.0.0.1", 960, ()),
    ("::1", 1408, ("--sequential",)),
    ("127.0.0.1", 8192, ("--sequential",)),
]
ALL_SETTINGS = itertools.product(("::1", "127.0.0.1"), (8192, 1408, 960), ((), ("--sequential",)))
OTHER_SETTINGS = [pytest.param(*setting, marks=pytest.mark.long) for setting in ALL_SETTINGS if setting not in SETTINGS]


@pytest.mark.parametrize(("address", "payload", "order"), SETTINGS + OTHER_SETTINGS)
def test_every_byte_of_a_file_arrives_in_verified_blocks(noise, address, payload, order):
    path, samples = noise
    with Receiver(address) as receiver:
        source = ("--file", path, "--format", "ci16", "--decimation", 1, "--points", 0)
        shape = ("--block", 100_032, "--payload", payload, "--distinct", 3, "--sample-rate-hz", 2e6)
        with Process(
            "emulate", "digitizer", "--to", receiver.address, *source, *shape, "--blocks", 5, "--json", *order
        ) as sender:
            blocks = receiver.blocks(5)
            ended = sender.end().succeeded()["streams"][0]
    assert [number for _, number, *_ in blocks] == list(range(5))
    endless = np.resize(samples, (3 * 100_032 // 4, 2)).reshape(3, -1, 2)
    for _, number, header, found, description, _ in blocks:
        assert np.array_equal(np.frombuffer(found, "<i2").reshape(-1, 2), endless[number % 3]), f"block {number}"
        assert header[11:13] == (2e6, 1e9) and peaks(description) == []
    stamps = [header[8] for _, _, header, *_ in blocks]
    assert np.allclose(np.diff(stamps), 100_032 / 4 / 2e6 * 1e9, atol=1)
    assert abs(stamps[0] * 1e-9 - 37 - time.time()) < 60, "the stamp must be the current TAI time"
    assert (ended["blocks_sent"], ended["overruns"]) == (5, 0), ended
    assert ended["packets_sent"] == 5 * -(-(100_032 + TRAILER) // payload)
    assert [stage["name"] for stage in ended["stages"]] == ["board", "dma", "send"]
    assert all(stage["bytes"] == 5 * 100_032 for stage in ended["stages"]), ended


def test_converter_tones_are_found_and_reported(tmp_path):
    with Receiver() as receiver:
        tones = ("--tone", "1.5e6:-10", "--tone=-3e6:-30", "--noise=-70", "--centre-hz", 21e6)
        shape = ("--block", "256KiB", "--sample-rate-hz", 10e6, "--decimation", 8, "--distinct", 1, "--blocks", 1)
        run("emulate", "digitizer", "--to", receiver.address, *tones, *shape, "--json").succeeded()
        ((_, _, header, samples, description, _),) = receiver.blocks(1)
    iq = np.frombuffer(samples, "<i2").reshape(-1, 2) @ [1, 1j]
    power = np.abs(np.fft.fft(iq * np.blackman(iq.size)))
    strongest = np.fft.fftfreq(iq.size, 1 / 10e6)[power.argmax()]
    assert abs(strongest - 1.5e6) < 10e6 / iq.size
    (first, first_dbfs), (second, second_dbfs), *_ = peaks(description)
    bin_hz = 10e6 / 8192
    assert abs(first - 1.5e6) < 0.1 * bin_hz and abs(first_dbfs + 10) < 0.1
    assert abs(second + 3e6) < 0.1 * bin_hz and abs(second_dbfs + 30) < 0.1
    # The signal-to-noise ratio: the second tone, 20 dB below the first, counts as noise.
    assert abs(struct.unpack_from("<f", description, 36)[0] - 20) < 0.3
    assert header[12] == 21e6


def test_a_real_reference_signal_has_its_intermediate_frequency(tmp_path):
    """Raw converter samples of an accelerator's LLRF at 238 MS/s; the intermediate frequency is a sixth of that."""
    if DATA is None:
        pytest.skip("no shared/data next to the repository: real data were not tested")
    io = pytest.importorskip("scipy.io", reason="needs scipy: reads the recorded waveforms")
    raw = io.loadmat(DATA / "iq" / "llrf_data_adcraw_wfs.mat")["ref_raw"].ravel()
    raw = raw[: raw.size // 6 * 6]  # whole periods, because the file is sent repeatedly
    path = tmp_path / "raw.s16"
    raw.astype("<i2").tofile(path)
    rate = 238e6 / 2
    with Receiver() as receiver:
        source = ("--file", path, "--format", "s16", "--decimation", 2, "--centre-hz", 238e6 / 6, "--points", 1024)
        shape = ("--sample-rate-hz", rate, "--block", 8192, "--distinct", 1, "--blocks", 1)
        run("emulate", "digitizer", "--to", receiver.address, *source, *shape, "--json").succeeded()
        ((*_, description, _),) = receiver.blocks(1)
    assert abs(peaks(description)[0][0]) < 0.1 * rate / 1024


def test_triggered_digitizers_differ_only_by_their_clocks():
    offsets, drifts = [0, 1500, -700, 20], [0, 0, 1000, -500_000]
    clocks = (f"--clock-offset={','.join(map(str, offsets))}", f"--clock-drift={','.join(map(str, drifts))}")
    with Receiver() as receiver:
        shape = ("--streams", 4, "--stream", 10, "--block", 4096, "--distinct", 1, "--decimation", 1, "--points", 0)
        run(
            "emulate",
            "digitizer",
            "--to",
            receiver.address,
            *shape,
            "--trigger-rate",
            50,
            "--blocks",
            6,
            *clocks,
            "--json",
        ).succeeded()
        blocks = receiver.blocks(24)
    assert sorted((stream, number) for stream, number, *_ in blocks) == [
        (s, n) for s in range(10, 14) for n in range(6)
    ]
    stamps = {(stream, number): header[8] for stream, number, header, *_ in blocks}
    assert stamps[10, 0] % 10**9 == 0, "the first trigger must be at a whole second"
    for stream, number, header, _, description, record in blocks:
        ahead = offsets[stream - 10] + round(number * 20_000_000 * drifts[stream - 10] * 1e-9)
        assert header[8] - stamps[10, number] == ahead
        assert struct.unpack_from("<qf", description, 24) == (ahead, drifts[stream - 10])
        assert header[2] & TRIGGERED and record[7] & 2


def test_an_image_is_a_valid_hdf5_file_during_and_after_sending(tmp_path, noise):
    path, samples = noise
    image = tmp_path / "image.h5"
    with Receiver() as receiver:
        source = ("--file", path, "--format", "ci16", "--decimation", 1)
        shape = (
            "--block",
            40_000 // 64 * 64,
            "--payload",
            2048,
            "--distinct",
            2,
            "--sample-rate-hz",
            1e6,
            "--image",
            image,
        )
        with Process("emulate", "digitizer", "--to", receiver.address, *source, *shape, "--json") as sender:
            (first, *_) = receiver.blocks(4)
            with h5py.File(image, locking=False) as file:
                assert file["iq"].shape == (2, 10_000, 2)
            sender.interrupt().succeeded()
        sent = {number: found for _, number, _, found, *_ in [first]}
        with h5py.File(image) as file:
            for buffer in range(2):
                number = int(file["header"]["block"][buffer])
                expected = np.resize(samples, (20_000, 2)).reshape(2, -1, 2)[number % 2]
                assert np.array_equal(file["iq"][buffer], expected)
                assert file["description"]["centre_hz"][buffer] == file["iq"].attrs["centre_hz"] == 1e9
            assert file["header"]["tai_ns"][1] > 0 and sent
    assert image.name in run("emulate", "digitizer", "--to", "[::1]:9", "--image", image, "--block", 64).refused()


def test_vita_49_stamps_each_packet_and_describes_each_block(noise):
    path, samples = noise
    with Receiver() as receiver:
        source = ("--file", path, "--format", "ci16", "--decimation", 1, "--stream", 0xCAFE, "--framing", "vita49")
        shape = ("--block", 40_000, "--payload", 1400, "--distinct", 2, "--sample-rate-hz", 1e6, "--first-block", 1)
        run("emulate", "digitizer", "--to", receiver.address, *source, *shape, "--blocks", 2, "--json").succeeded()
        packets = [receiver.socket.recv(65536) for _ in range(2 * (1 + 29))]
    start_ps, count = None, 29
    for index, packet in enumerate(packets):
        word, stream, seconds, picoseconds = struct.unpack_from(">IIIQ", packet)
        assert (stream, 4 * (word & 0xFFFF)) == (0xCAFE, len(packet))
        assert (word >> 22 & 3, word >> 20 & 3) == (2, 2), "GPS seconds, picoseconds"
        now = seconds * 10**12 + picoseconds
        start_ps = now if start_ps is None else start_ps
        block, at = divmod(index, 30)
        if at == 0:
            assert word >> 28 == 4 and now - start_ps == block * 10_000 * 10**6
            # Bandwidth, IF and RF reference, sample rate, state, format, in the order of the bits of CIF0, highest
            # first.
            fields = struct.unpack_from(">IqqqqIQ", packet, 20)
            assert fields[0] & 0x7FFF_FFFF == 1 << 29 | 1 << 28 | 1 << 27 | 1 << 21 | 1 << 16 | 1 << 15
            assert [field / 2**20 for field in fields[1:5]] == [1e6, 0, 1e9, 1e6]
            continue
        assert word >> 28 == 1 and word >> 16 & 15 == count % 16
        first = (at - 1) * 350
        assert now - start_ps == (block * 10_000 + first) * 10**6
        expected = np.resize(samples, (20_000, 2)).reshape(2, -1, 2)[(1 + block) % 2][first : first + 350]
        assert np.array_equal(np.frombuffer(packet, ">i2", offset=20).reshape(-1, 2), expected)
        count += 1
    assert abs(start_ps * 1e-12 + 315_964_819 - 37 - time.time()) < 60, "the stamp must be the current GPS time"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_digitizer_ended_at_any_time_leaves_no_files(tmp_path, stop):
    for packets in (0, 1, 1000):
        shape = ("--block", "1MiB", "--distinct", 1, "--decimation", 1, "--rate", "max")
        with (
            Receiver() as receiver,
            Process("emulate", "digitizer", "--to", receiver.address, *shape, cwd=tmp_path) as sender,
        ):
            for _ in range(packets):
                receiver.socket.recv(65536)
            sender.signal(stop)
            sender.end()
    assert list(tmp_path.iterdir()) == [] and not list(Path("/dev/shm").glob("*shotline*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--block", 100), "a multiple of 64"),
        (("--block", "64MiB", "--payload", 128), "packets"),
        (("--payload", 1000), "a multiple of 64 bytes, found 1000"),
        (("--trigger-rate", 1000), "reduce --block"),
        (("--clock-offset", "1,2"), "--streams 2"),
        (("--file", "/nowhere", "--format", "ci16"), "/nowhere"),
        (("--decimation", 100_000, "--block", 64), "decimation"),
        (("--points", 7, "--block", 64), "points"),
    ],
)
def test_unworkable_settings_are_refused_with_a_remedy(arguments, words):
    assert words in run("emulate", "digitizer", "--to", "[::1]:9", *arguments).refused()
