"""Down-conversion and spectra of 16-bit samples, with the kernels that the emulated digitizer uses.

    from shotline import dsp

    ddc = dsp.DownConverter(39.667e6, 238e6, 6)
    iq = ddc(samples)                           # int16, one row of I and Q for each output sample
    found = dsp.Spectrum(1024, 238e6 / 6, iq=True).analyse(iq)
    print(found.peaks[0], found.snr_db)

Samples are int16: real ones in one dimension, complex ones as rows of I and Q. One thread, with the interpreter's
lock released. Nothing is believed about a block's length: streams may be cut anywhere.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _native
from ._kernels import flat


class Peak(NamedTuple):
    """A tone: frequency in Hz (of complex samples about the frequency that was tuned to) and power in dBFS."""

    frequency_hz: float
    power_dbfs: float


class Summary(NamedTuple):
    """What a spectrum says: at most five peaks, the strongest first, and ratios by IEEE Std 1241.

    `sinad_db` is the strongest peak over all but DC, `snr_db` the same without the harmonics 2 to 10 of real samples;
    both are NaN if there is no peak. `noise_dbfs` is the power of all but the peaks.
    """

    peaks: list[Peak]
    sinad_db: float
    snr_db: float
    noise_dbfs: float


class DownConverter:
    """Samples around one frequency become IQ around zero, at a lower rate; state is kept from block to block.

    Output sample m is `gain * sum(h[k] * x[m * decimation - k] * exp(-2j * pi * f * (m * decimation - k)))`, twice
    that for real samples, with samples before the first zero, rounded to the nearest integer and clipped to 16 bits
    (`clipped` counts). The low-pass filter h is `taps`, or a cascade of `cic` integrators and combs, or a windowed
    sinc that is flat over the part `passband` of the output's band; its sum is made 1.
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
        """Down-converts the stream's next block. `out`, if given, has just the rows that this makes."""
        words, count = _words(samples, self._iq)
        if out is None:
            out = np.empty((self._native.outputs(count), 2), np.int16)
        self._native.run(words, flat(out))
        return out

    @property
    def delay(self) -> float:
        """Input samples by which the output is late: the centre of the filter's taps."""
        return self._native.delay

    @property
    def clipped(self) -> int:
        """Real and imaginary parts so far that did not fit 16 bits."""
        return self._native.clipped


class Spectrum:
    """Powers of windowed segments of `fft` samples that begin `hop` apart (`fft` if None), averaged over a block.

    Windows are hann, blackmanharris and flattop. A peak rises by `threshold_db` above the median bin.
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
        """Peaks and ratios; None of a block that is shorter than a segment."""
        found = self._native.analyse(_words(samples, self._iq)[0])
        return found and Summary([Peak(*peak) for peak in found[0]], *found[1:])

    def average(self, samples: ArrayLike) -> NDArray[np.float64] | None:
        """The power in each bin, 1 is a tone of full scale; bins lie as those of numpy.fft.rfft or numpy.fft.fft."""
        power = self._native.average(_words(samples, self._iq)[0])
        return None if power is None else np.array(power)


def _words(samples: ArrayLike, iq: bool) -> tuple[NDArray[np.int16], int]:
    """The samples as 16-bit words, and how many samples they are."""
    array = np.ascontiguousarray(samples)
    if array.dtype != np.int16 or array.ndim != 1 + iq or (iq and array.shape[1] != 2):
        expected = "(n, 2)" if iq else "(n,)"
        raise ValueError(f"expected int16 samples of shape {expected}, found {array.dtype} of shape {array.shape}")
    return array.reshape(-1), len(array)
