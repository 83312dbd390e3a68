"""Down-conversion and spectra of 16-bit samples, with the kernels of the emulated digitizer.

    from shotline import dsp

    ddc = dsp.DownConverter(39.667e6, 238e6, 6)
    iq = ddc(samples)                           # int16, one row of I and Q for each output sample
    found = dsp.Spectrum(1024, 238e6 / 6, iq=True).analyse(iq)
    print(found.peaks[0], found.snr_db)

Samples are int16: real ones in one dimension, complex ones as rows of I and Q. Functions use one thread, with the
interpreter's lock released. A stream may be split into blocks of any length.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._kernels import flat


class Peak(NamedTuple):
    """A tone: frequency in Hz (for complex samples relative to the tuned frequency) and power in dBFS."""

    frequency_hz: float
    power_dbfs: float


class Summary(NamedTuple):
    """Analysis of a spectrum: at most five peaks, the strongest first, and ratios by IEEE Std 1241.

    `sinad_db` is the power of the strongest peak over that of all other bins except DC, `snr_db` the same without the
    harmonics 2 to 10 of real samples; both are NaN if there is no peak. `noise_dbfs` is the power without the peaks.
    """

    peaks: list[Peak]
    sinad_db: float
    snr_db: float
    noise_dbfs: float


class DownConverter:
    """Digital down-converter: shifts a frequency to zero and decimates to IQ; keeps its state from block to block.

    Output sample m is `gain * sum(h[k] * x[m * decimation - k] * exp(-2j * pi * f * (m * decimation - k)))`, twice
    that for real samples, with zeros before the first sample, rounded to the nearest integer and clipped to 16 bits
    (counted by `clipped`). The low-pass filter h is normalised to a sum of 1.

    Args:
        frequency_hz: Frequency that is shifted to zero.
        sample_rate_hz: Rate of the input samples.
        decimation: Input samples per output sample.
        taps: Taps of the filter h.
        cic: Number of stages (an integrator and a comb each) of a CIC filter, used if `taps` is None.
        passband: Fraction of the output band over which the default filter, a windowed sinc, is flat.
        attenuation_db: Stopband attenuation of the default filter.
        gain: Factor of the output.
        iq: Input samples are complex.

    Raises:
        ValueError: If a parameter is out of range.
    """

    def __init__(
        self,
        frequency_hz: float,
        sample_rate_hz: float,
        decimation: int,
        *,
        taps: ArrayLike | None = None,
        cic: int | None = None,
        passband: float = 0.8,
        attenuation_db: float = 80,
        gain: float = 1,
        iq: bool = False,
    ) -> None:
        tap_list = None if taps is None else np.asarray(taps, np.float64).tolist()
        self._iq = iq
        self._native = _native.DownConverter(
            (frequency_hz, sample_rate_hz), decimation, (passband, attenuation_db), cic, tap_list, gain, iq
        )

    def __call__(self, samples: ArrayLike, out: NDArray[np.int16] | None = None) -> NDArray[np.int16]:
        """Down-converts the stream's next block.

        Args:
            samples: Samples of int16, of shape (n,), or (n, 2) if `iq`.
            out: Contiguous array with exactly the rows of the output; allocated if None.

        Returns:
            Rows of I and Q, which is `out` if given.

        Raises:
            ValueError: If the type or shape of an array is wrong.
        """
        words, count = _words(samples, self._iq)
        if out is None:
            out = np.empty((self._native.outputs(count), 2), np.int16)
        self._native.run(words, flat(out))
        return out

    @property
    def delay(self) -> float:
        """Delay of the output in input samples: the centroid of the filter's taps."""
        return self._native.delay

    @property
    def clipped(self) -> int:
        """Number of real and imaginary parts so far that were clipped to 16 bits."""
        return self._native.clipped


class Spectrum:
    """Power spectrum of windowed segments, averaged over a block.

    Args:
        fft: Samples of a segment.
        sample_rate_hz: Rate of the samples.
        window: hann, blackmanharris or flattop.
        hop: Distance between the starts of segments, `fft` if None.
        threshold_db: Minimum height of a peak above the median bin.
        iq: Samples are complex.

    Raises:
        ValueError: If a parameter is out of range.
    """

    def __init__(
        self,
        fft: int,
        sample_rate_hz: float,
        *,
        window: str = "blackmanharris",
        hop: int | None = None,
        threshold_db: float = 13,
        iq: bool = False,
    ) -> None:
        self._iq = iq
        self._native = _native.Spectrum(fft, fft if hop is None else hop, window, sample_rate_hz, threshold_db, iq)

    def analyse(self, samples: ArrayLike) -> Summary | None:
        """Returns peaks and ratios; None for a block that is shorter than a segment.

        Raises:
            ValueError: If the type or shape of `samples` is wrong.
        """
        found = self._native.analyse(_words(samples, self._iq)[0])
        return found and Summary([Peak(*peak) for peak in found[0]], *found[1:])

    def average(self, samples: ArrayLike) -> NDArray[np.float64] | None:
        """Returns the power in each bin, where 1 is a full-scale tone; None for a block shorter than a segment.

        The order of the bins is that of numpy.fft.rfft for real and numpy.fft.fft for complex samples.

        Raises:
            ValueError: If the type or shape of `samples` is wrong.
        """
        power = self._native.average(_words(samples, self._iq)[0])
        return None if power is None else np.array(power)


def _words(samples: ArrayLike, iq: bool) -> tuple[NDArray[np.int16], int]:
    """Returns the samples as 16-bit words, and the number of samples."""
    array = np.ascontiguousarray(samples)
    if array.dtype != np.int16 or array.ndim != 1 + iq or (iq and array.shape[1] != 2):
        expected = "(n, 2)" if iq else "(n,)"
        raise ValueError(f"expected int16 samples of shape {expected}, found {array.dtype} of shape {array.shape}")
    return array.reshape(-1), len(array)
