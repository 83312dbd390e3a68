"""Images of the phantom of an emulated probe: recorded, exported, read with h5py and beamformed with NumPy alone."""

import functools

import h5py
import numpy as np
import pytest
from formats.source import export

from common import Probe, Recording, record, run, verify

ANGLES = "--angles=-10,-5,0,5,10"
WAVES, PHASES = 5, 4
SHOTS = WAVES * (PHASES + 1)
F_NUMBER = 1.5


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    """A recording of one cycle of the wall and one more frame, and what the probe reports about its phantom."""
    path = tmp_path_factory.mktemp("phantom") / "run.h5"
    with Probe("--phantom", "--phases", PHASES, "--pace", "100hz") as probe:
        report = record(probe, "--out", path, "--shots", SHOTS).succeeded()
        source = probe.report()["source"]
    assert report["shots_complete"] == 2 * SHOTS, report
    assert source["distinct_shots"] == WAVES * PHASES
    return path, source["phantom"]


class Uff:
    """Echoes of a UFF file. Time 0 is when the wave passes the origin."""

    def __init__(self, path):
        with h5py.File(path) as file:
            root = file["channel_data"]
            self.echoes = root["data"][:]
            self.x = root["probe/geometry"][0]
            self.speed = root["sound_speed"][0, 0]
            self.rate = root["sampling_frequency"][0, 0]
            self.centre = root["pulse/center_frequency"][0, 0]
            self.start = np.full(self.echoes.shape[1], root["initial_time"][0, 0])
            self.angles = [root[f"sequence/sequence_{i + 1:04}/source/azimuth"][0, 0] for i in range(len(self.start))]

    def transmit(self, wave, x, z):
        """Returns the time at which a wave reaches a place."""
        return (x * np.sin(self.angles[wave]) + z * np.cos(self.angles[wave])) / self.speed


class Zea:
    """Echoes of a zea file. Time 0 is when the first element fires, one period before the peak of the pulse."""

    def __init__(self, path):
        with h5py.File(path) as file:
            scan = file["tracks/track_0/scan"]
            self.echoes = file["tracks/track_0/data/raw_data"][..., 0].swapaxes(2, 3).astype(np.float32)
            self.x = file["probe/probe_geometry"][:, 0].astype(float)
            self.speed, self.rate = float(scan["sound_speed"][()]), float(scan["sampling_frequency"][()])
            self.centre = float(scan["center_frequency"][()])
            self.start = scan["initial_times"][:].astype(float)
            self.delays = scan["t0_delays"][:].astype(float)

    def transmit(self, wave, x, z):
        """Returns the time at which the first of the elements' waves reaches a place."""
        paths = np.hypot(x[..., None] - self.x, z[..., None]) / self.speed
        return (paths + self.delays[wave]).min(axis=-1) + 1 / self.centre


@pytest.fixture(scope="module", params=["uff", "zea"])
def echoes(request, phantom, tmp_path_factory):
    to = tmp_path_factory.mktemp("echoes") / "run.hdf5"
    report = export(phantom[0], to, "--format", request.param, ANGLES)
    assert (report["complete"], report["partial"], report["lost"]) == (2 * SHOTS, 0, 0)
    return {"uff": Uff, "zea": Zea}[request.param](to)


@functools.cache
def baseband(echoes, frame, wave):
    """Returns the analytic signal of each element, shifted to 0 Hz so that linear interpolation suffices."""
    spectrum = np.fft.fft(echoes.echoes[frame, wave].astype(float))
    count = spectrum.shape[1]
    spectrum[:, count // 2 :] = 0
    time = np.arange(count) / echoes.rate
    return 2 * np.fft.ifft(spectrum) * np.exp(-2j * np.pi * echoes.centre * time)


def image(echoes, frame, x, z, waves=range(WAVES)):
    """Returns the delay-and-sum image (x, z) of a frame, compounded over the waves."""
    x, z = np.meshgrid(x, z, indexing="ij")
    out = np.zeros(x.shape, complex)
    for wave in waves:
        signals = baseband(echoes, frame, wave)
        sent = echoes.transmit(wave, x, z)
        for signal, element in zip(signals, echoes.x):
            at = (sent + np.hypot(x - element, z) / echoes.speed - echoes.start[wave]) * echoes.rate
            first = np.clip(np.floor(at).astype(int), 0, len(signal) - 2)
            value = signal[first] * (first + 1 - at) + signal[first + 1] * (at - first)
            receives = np.abs(x - element) < z / (2 * F_NUMBER)
            out += receives * value * np.exp(2j * np.pi * echoes.centre * at / echoes.rate)
    return np.abs(out)


def brightest(echoes, wire, **options):
    """Returns the offset of the brightest pixel from a wire in mm, and its value."""
    dx, dz = np.arange(-0.8e-3, 0.81e-3, 0.05e-3), np.arange(-0.5e-3, 0.51e-3, 0.025e-3)
    found = image(echoes, 0, wire["x_m"] + dx, wire["z_m"] + dz, **options)
    at = np.unravel_index(found.argmax(), found.shape)
    return dx[at[0]] * 1e3, dz[at[1]] * 1e3, found.max()


def test_recorded_shots_repeat_and_use_the_full_scale(phantom):
    verify(phantom[0])
    recording = Recording(phantom[0])
    for rf in recording.rf:
        assert np.array_equal(rf[:WAVES], rf[WAVES * PHASES :]), "the cycle starts again"
        for phase in range(1, PHASES):
            assert not np.array_equal(rf[:WAVES], rf[WAVES * phase : WAVES * (phase + 1)])
    largest = max(np.abs(rf).max() for rf in recording.rf)
    assert 2000 < largest <= 2047


def test_the_same_seed_sends_the_same_shots(phantom, tmp_path):
    def first_shot(*options):
        path = tmp_path / "again.h5"
        with Probe("--phantom", "--phases", PHASES, "--pace", "100hz", *options) as probe:
            record(probe, "--out", path, "--shots", 1, "--force").succeeded()
        return Recording(path).rf[1][0]

    expected = Recording(phantom[0]).rf[1][0]
    assert np.array_equal(first_shot(), expected)
    assert not np.array_equal(first_shot("--seed", 5), expected)


def test_every_wave_images_the_wires_at_their_places(phantom, echoes):
    for wire in phantom[1]["wires"]:
        single = []
        for wave in range(WAVES):
            dx, dz, value = brightest(echoes, wire, waves=[wave])
            # A third of the lateral resolution, and of the axial one.
            assert abs(dx) < 0.16 and abs(dz) < 0.08, f"wave {wave}: {dx} mm, {dz} mm from {wire}"
            single.append(value)
        dx, dz, value = brightest(echoes, wire)
        assert abs(dx) < 0.06 and abs(dz) < 0.03, f"{dx} mm, {dz} mm from {wire}"
        assert value > 0.95 * sum(single), "the waves must add up in phase"


def test_the_cyst_is_dark(phantom, echoes):
    cyst = phantom[1]["cyst"]
    side = np.arange(-1.8, 1.81, 0.04) * cyst["radius_m"]
    found = image(echoes, 0, cyst["x_m"] + side, cyst["z_m"] + side) ** 2
    radius = np.hypot(side[:, None], side) / cyst["radius_m"]
    inside, outside = found[radius < 0.85].mean(), found[(radius > 1.15) & (radius < 1.8)].mean()
    assert 10 * np.log10(inside / outside) < -15


def test_the_wall_moves_as_reported(phantom, echoes):
    wall = phantom[1]["wall"]
    z = wall["z_m"] + np.arange(-0.5e-3, 0.5e-3, 0.01e-3)
    for frame in range(PHASES + 1):
        found = image(echoes, frame, np.array([-5e-3, 0, 5e-3]), z)
        expected = wall["z_m"] + wall["amplitude_m"] * np.sin(2 * np.pi * frame / PHASES)
        assert z[found.argmax(axis=1)] == pytest.approx(expected, abs=0.03e-3), f"frame {frame}"


def test_other_arrays_are_imaged_with_their_description(tmp_path):
    array = ("--pitch-mm", 0.2, "--centre-mhz", 7, "--sound-speed", 1480, "--angles=-6,8", "--initial-us", 3)
    path, to = tmp_path / "run.h5", tmp_path / "run.uff"
    shape = ("--links", 1, "--channels", 128, "--samples", 1200, "--int16")
    with Probe("--phantom", *array, *shape, "--phases", 1, "--pace", "100hz") as probe:
        record(probe, "--out", path, "--shots", 2, "--samples", 1200).succeeded()
        reported = probe.report()["source"]["phantom"]
    assert reported["array"]["centre_hz"] == 7e6 and reported["wall"]["phases"] == 1
    run("export", path, to, *array, "--json").succeeded()
    for wire in reported["wires"]:
        dx, dz, _ = brightest(Uff(to), wire, waves=range(2))
        assert abs(dx) < 0.11 and abs(dz) < 0.06, f"{dx} mm, {dz} mm from {wire}"
