"""Down-conversion and spectra compared with scipy: on an accelerator's raw data, and on generated samples."""

import numpy as np
import pytest
from scipy import io, signal

from common import ROOT

LLRF = ROOT.parent / "shared" / "data" / "iq" / "llrf_data_adcraw_wfs.mat"
CHANNELS = ("ref_raw", "vm_raw", "kly_raw", "boc_raw")


@pytest.fixture(scope="module")
def dsp(shotline):
    from shotline import dsp

    return dsp


@pytest.fixture(scope="module")
def llrf():
    """Raw samples of four channels, their sample rate and their intermediate frequency."""
    if not LLRF.exists():
        pytest.skip(f"needs {LLRF.name}, an example of LLRFLibsPy, in ../shared/data/iq")
    data = io.loadmat(LLRF)
    channels = {name: np.ascontiguousarray(data[name][:, 0]) for name in CHANNELS}
    return channels, float(data["fs"][0, 0]), float(data["f_if"][0, 0])


def down_converted(samples, cycles_per_sample, taps, decimation):
    """Computes the definition in double precision."""
    phase = np.arange(len(samples)) * cycles_per_sample % 1
    return 2 * signal.lfilter(taps, 1, samples * np.exp(-2j * np.pi * phase))[::decimation]


# Intervals of constant signal: the reference always, the others while their pulse is present. A pulse's edges, or a
# phase step, would shift the peak of the spectrum, whose position is tested here.
STEADY = {"ref_raw": (0, 2048), "vm_raw": (448, 896), "kly_raw": (640, 960)}


@pytest.mark.parametrize("channel", STEADY)
def test_intermediate_frequency_is_found_within_a_tenth_of_a_bin(dsp, llrf, channel):
    channels, rate, frequency = llrf
    first, last = STEADY[channel]
    samples = channels[channel][first:last]
    bin_hz = rate / len(samples)
    for window in ("hann", "blackmanharris", "flattop"):
        found = dsp.Spectrum(len(samples), rate, window=window).analyse(samples)
        assert abs(found.peaks[0].frequency_hz - frequency) < 0.1 * bin_hz, (window, found)


@pytest.mark.parametrize("channel", CHANNELS)
def test_down_converted_raw_data_matches_scipy_within_two_units(dsp, llrf, channel):
    channels, rate, frequency = llrf
    samples = channels[channel]
    taps = signal.firwin(151, 1 / 6, window=("kaiser", 8.0))
    taps /= taps.sum()
    ddc = dsp.DownConverter(frequency, rate, 6, taps=taps)
    pieces = np.concatenate([ddc(samples[:500]), ddc(samples[500:507]), ddc(samples[507:])])
    expected = down_converted(samples.astype(float), frequency / rate, taps, 6)
    assert pieces.shape == (len(expected), 2)
    assert np.abs(pieces @ [1, 1j] - expected).max() < 2
    assert ddc.clipped == 0 and ddc.delay == pytest.approx(75)


@pytest.mark.parametrize("channel", CHANNELS)
def test_spectra_of_raw_data_match_scipy(dsp, llrf, channel):
    channels, rate, _ = llrf
    samples = channels[channel]
    ours = dsp.Spectrum(512, rate, window="hann", hop=256).average(samples)
    _, theirs = signal.welch(
        samples / 32768, rate, "hann", 512, 256, detrend=False, scaling="spectrum", return_onesided=True
    )
    # scipy gives mean squares, this package the squares of amplitudes; scipy halves the ends, this package does not.
    np.testing.assert_allclose(ours[1:-1], 2 * theirs[1:-1], rtol=1e-3, atol=1e-13)


def test_complex_spectra_match_scipy(dsp):
    rng = np.random.default_rng(5)
    iq = rng.integers(-20_000, 20_000, (5000, 2), np.int16)
    for window in ("hann", "blackmanharris", "flattop"):
        ours = dsp.Spectrum(1000, 1e6, window=window, iq=True).average(iq)
        _, theirs = signal.welch(
            (iq @ [1, 1j]) / 32768, 1e6, window, 1000, 0, detrend=False, scaling="spectrum", return_onesided=False
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-12)


def test_down_converted_complex_samples_match_scipy(dsp):
    rng = np.random.default_rng(6)
    iq = rng.integers(-15_000, 15_000, (3000, 2), np.int16)
    taps = signal.firwin(65, 1 / 4)
    ours = dsp.DownConverter(-1.23e5, 1e6, 4, taps=taps, iq=True)(iq)
    expected = down_converted(iq @ [1, 1j], -0.123, taps / taps.sum(), 4) / 2
    assert np.abs(ours @ [1, 1j] - expected).max() < 2


def test_a_cic_filter_matches_its_definition(dsp):
    rng = np.random.default_rng(7)
    iq = rng.integers(-15_000, 15_000, (3000, 2), np.int16)
    ours = dsp.DownConverter(0, 1e6, 10, cic=4, iq=True)(iq)
    sums = iq.astype(np.int64)
    for _ in range(4):
        sums = np.cumsum(sums, axis=0)  # integrators, then combs at the lower rate
    sums = sums[::10]
    for _ in range(4):
        sums = np.diff(sums, axis=0, prepend=np.zeros((1, 2), np.int64))
    assert np.abs(ours - sums / 10**4).max() < 2


def test_invalid_dsp_arguments_are_refused(dsp):
    ddc = dsp.DownConverter(1e5, 1e6, 4)
    with pytest.raises(ValueError, match=r"int16 samples of shape \(n,\), found float64"):
        ddc(np.zeros(4))
    with pytest.raises(ValueError, match="expected space for 4 numbers, found 6"):
        ddc(np.zeros(8, np.int16), np.empty((3, 2), np.int16))
    with pytest.raises(ValueError, match="decimation must be 1 to"):
        dsp.DownConverter(1e5, 1e6, 0)
    with pytest.raises(ValueError, match="expected a window of hann"):
        dsp.Spectrum(64, 1e6, window="boxcar")
    assert dsp.Spectrum(64, 1e6).analyse(np.zeros(63, np.int16)) is None
