"""Images of the phantom of an emulated probe: recorded, exported, read with h5py and beamformed with NumPy alone."""

import functools

import h5py
import numpy as np
import pytest
from formats.source import export

from common import Probe, Recording, record, run, verify

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
    report = export(phantom[0], to, "--format", request.param)  # the recording describes the array
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


def away_from_objects(phantom, x, z):
    """Returns where an image (x, z) has speckle only."""
    x, z = np.meshgrid(x, z, indexing="ij")
    cyst, wall = phantom["cyst"], phantom["wall"]
    alone = np.hypot(x - cyst["x_m"], z - cyst["z_m"]) > 1.3 * cyst["radius_m"]
    alone &= np.abs(z - wall["z_m"]) > 2e-3
    for wire in phantom["wires"]:
        # A wire's side lobes have its depth.
        alone &= np.abs(z - wire["z_m"]) > 1e-3
    return alone


def test_speckle_fills_the_field_and_is_fully_developed(phantom, echoes):
    scene = phantom[1]
    assert scene["speckle"]["in_cell"] == 10
    for column in (-20e-3, 0, 20e-3):
        for depth in (5e-3, 12e-3, 20e-3, 27e-3, 34e-3):
            x, z = column + np.arange(-4e-3, 4e-3, 0.2e-3), depth + np.arange(-2.5e-3, 2.5e-3, 0.1e-3)
            found = image(echoes, 0, x, z, waves=[2])[away_from_objects(scene, x, z)]
            # A Rayleigh distribution has 1.91; the sample has about 200 resolution cells.
            ratio = found.mean() / found.std()
            assert 1.6 < ratio < 2.3, f"{ratio} at {column} m, {depth} m"


def test_wires_and_wall_stand_out_of_the_speckle(phantom, echoes):
    scene = phantom[1]

    def surround(x_m, z_m):
        x, z = x_m + np.arange(-5e-3, 5e-3, 0.2e-3), z_m + np.arange(-4e-3, 4e-3, 0.1e-3)
        return image(echoes, 0, x, z)[away_from_objects(scene, x, z)].mean()

    for wire in scene["wires"]:
        above = 20 * np.log10(brightest(echoes, wire)[2] / surround(wire["x_m"], wire["z_m"]))
        assert 20 < above < 30, f"{above} dB at {wire}"
    wall = scene["wall"]["z_m"]
    for x in (-15e-3, 0, 15e-3):
        above = 20 * np.log10(
            image(echoes, 0, np.array([x]), wall + np.arange(-3e-4, 3e-4, 2e-5)).max() / surround(x, wall)
        )
        assert 15 < above < 25, f"{above} dB at {x} m"


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


def test_a_probe_describes_its_array(tmp_path):
    array = ("--pitch-mm", 0.2, "--height-mm", 4, "--centre-mhz", 7.8, "--sound-speed", 1480, "--initial-us", -1.5)
    with Probe("--channels", 16, "--samples", 100, *array, "--angles=12,0,-12") as probe:
        described = run("probe", "describe", probe.address, "--json").succeeded()
        table = run("probe", "describe", probe.address)
        record(probe, "--out", tmp_path / "run.h5", "--shots", 3, "--samples", 100).succeeded()
    assert described["pattern_period"] == 16, "test patterns, too"
    expected = {"pitch_m": 0.2e-3, "width_m": 0.18e-3, "height_m": 4e-3, "centre_hz": 7.8e6, "sound_speed_m_s": 1480}
    angles = described["array"].pop("angles_rad")
    assert described["array"] == pytest.approx(expected | {"initial_time_s": -1.5e-6})
    assert angles == pytest.approx(np.radians([12, 0, -12]), abs=1e-6)
    assert "3: 12, 0, -12 degrees" in table.stdout and "-1.5 us after the transmission" in table.stdout
    with h5py.File(tmp_path / "run.h5") as file:
        found = {name: int(value) for name, value in file.attrs.items() if name.startswith("array_")}
    assert found == {
        "array_pitch_nm": 200_000,
        "array_element_width_nm": 180_000,
        "array_element_height_nm": 4_000_000,
        "array_centre_hz": 7_800_000,
        "array_sound_speed_mm_s": 1_480_000,
        "array_first_angle_urad": 209_440,
        "array_last_angle_urad": -209_440,
        "array_waves": 3,
        "array_initial_time_ns": -1500,
    }


def test_a_probe_without_an_array_describes_none(tmp_path):
    with Probe("--channels", 16, "--samples", 100) as probe:
        assert "array" not in run("probe", "describe", probe.address, "--json").succeeded()
    with Probe("--channels", 16, "--samples", 100, "--angles=0,1,5") as probe:
        assert "array" not in run("probe", "describe", probe.address, "--json").succeeded(), "not evenly spaced"
        record(probe, "--out", tmp_path / "run.h5", "--shots", 1, "--samples", 100).succeeded()
    with h5py.File(tmp_path / "run.h5") as file:
        assert not [name for name in file.attrs if name.startswith("array_")]


def test_exports_begin_with_a_whole_frame(tmp_path):
    path = tmp_path / "run.h5"
    small = ("--phantom", "--phases", 2, "--links", 1, "--channels", 32, "--samples", 400)
    with Probe(*small, "--first-shot", 7, "--pace", "100hz") as probe:
        record(probe, "--out", path, "--shots", 9, "--samples", 400).succeeded()
    whole = export(path, tmp_path / "whole.uff")
    assert whole["complete"] == 6, "shots 10 to 15, because 5 waves are a frame"
    with h5py.File(tmp_path / "whole.uff") as file:
        echoes = file["channel_data/data"][0, 0]
    assert np.array_equal(echoes.T, Recording(path).rf[0][3])
    assert export(path, tmp_path / "all.uff", "--from", 7)["complete"] == 9
    assert export(path, tmp_path / "one.uff", "--angles=0")["complete"] == 9


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
