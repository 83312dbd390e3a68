"""Compares down-conversion and a spectrum with scipy and numpy (`make bench-dsp`), on one core, single-threaded.

Both process the same int16 samples in memory with the same filter (the same taps, oscillator and decimation) and the
same windowed transforms, and must find the same peaks. For scipy and numpy the fastest of several implementations of each
step counts, in the best of several block sizes, in single precision and with a precomputed oscillator. The data between
the steps is int16, rounded, as it would be sent. Rates are input samples.
"""

import argparse
import os
import sys
import time

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np
import scipy
from scipy import fft, signal
from shotline import dsp

from common import Failed, ratio, say

RATE = 4e9  # S/s of the paper's digitizer; 8 down is its 500 MS/s of IQ
DECIMATION, TAPS, FFT = 8, 200, 4096
CYCLES, PERIOD = 1001, 4096  # the oscillator's cycles per number of samples
FLOOR = 5
UNITS, BINS, DECIBELS = 2, 0.02, 0.05  # tolerances of the comparison


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs of each, of which the median counts")
    parser.add_argument("--seconds", type=float, default=0.4, help="minimum length of a run")
    parser.add_argument("--msamples", type=float, default=8, help="samples in a block, in units of 2^20")
    args = parser.parse_args()

    os.sched_setaffinity(0, {0})
    count = int(args.msamples * 2**20) // (DECIMATION * FFT) * DECIMATION * FFT
    samples = made(count)
    taps = signal.firwin(TAPS, 1 / DECIMATION, window=("kaiser", 8.0))
    taps /= taps.sum()
    window = signal.get_window("blackmanharris", FFT)

    say(
        f"{count} samples, {TAPS} taps, 1 in {DECIMATION}, transforms of {FFT}; numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )
    ours_down, ours_spectrum = ours(samples, taps)
    iq = ours_down()
    theirs = converters(samples, taps)
    for name, way in theirs.items():
        same_samples(iq, way(), name)
    down, down_rate = fastest(theirs, count, args)
    found = ours_spectrum()
    spectra = transforms(down(), window)
    for name, way in spectra.items():
        same_peaks(found, way(), name)
    spectrum, spectrum_rate = fastest(spectra, count, args)
    say(f"  fastest: {down_rate[0]}; {spectrum_rate[0]}")

    def all_ours():
        ours_down()
        ours_spectrum()

    def all_theirs():
        down()
        spectrum()

    steps = {"down": ours_down, "spectrum": ours_spectrum, "ours": all_ours, "theirs": all_theirs}
    rates = {name: [] for name in steps}
    for _ in range(args.runs):  # interleaved, so that disturbances affect all
        for name, way in steps.items():
            rates[name].append(rate(way, count, args.seconds))
    medians = {name: sorted(found)[len(found) // 2] for name, found in rates.items()}
    for name, step in (("down-conversion", "down"), ("spectrum", "spectrum")):
        say(f"  ours, {name} alone: {medians[step]:.0f} Msample/s")
    ratio("dsp/scipy", medians["ours"], "scipy", medians["theirs"], "Msample/s")
    sys.exit(0 if medians["ours"] >= FLOOR * medians["theirs"] else 1)


def made(count):
    """Returns five tones around the oscillator's frequency, another far from it, and noise."""
    rng = np.random.default_rng(1)
    time_axis = np.arange(count)
    samples = rng.normal(0, 100, count)
    tones = ((0.0031, 9000), (-0.0123, 5000), (0.021, 2500), (-0.0317, 1200), (0.0402, 600), (0.19, 6000))
    for offset, amplitude in tones:
        samples += amplitude * np.cos(2 * np.pi * ((CYCLES / PERIOD + offset) * time_axis % 1))
    return np.round(samples).astype(np.int16)


def ours(samples, taps):
    out = np.empty((len(samples) // DECIMATION, 2), np.int16)
    spectrum = dsp.Spectrum(FFT, RATE / DECIMATION, iq=True)

    def down():
        # A new one for each block, so that every run starts from the same state as the peers.
        ddc = dsp.DownConverter(CYCLES / PERIOD * RATE, RATE, DECIMATION, taps=taps)
        return ddc(samples, out)

    return down, lambda: spectrum.analyse(out)


def converters(samples, taps):
    """Returns peers' implementations of the down-conversion, each of which returns one array."""
    count = len(samples)
    oscillator = np.exp(-2j * np.pi * (np.arange(count) * CYCLES % PERIOD) / PERIOD).astype(np.complex64)
    slow = oscillator[::DECIMATION].copy()
    low = (2 * taps).astype(np.float32)
    band = (2 * taps * np.exp(2j * np.pi * CYCLES / PERIOD * np.arange(TAPS))).astype(np.complex64)
    rows = TAPS // DECIMATION
    # The product of row m of D samples with this matrix is their contribution to the outputs m, m + 1, m + 2 and so on.
    folded = np.concatenate([band, np.zeros(DECIMATION, np.complex64)])
    polyphase = np.empty((DECIMATION, 2 * (rows + 1)), np.float32)
    for late in range(rows + 1):
        # The first sample of a row completes an output; the others belong to the next.
        ages = late * DECIMATION - np.arange(DECIMATION)
        column = np.where(ages >= 0, folded[np.maximum(ages, 0)], 0)
        polyphase[:, 2 * late], polyphase[:, 2 * late + 1] = column.real, column.imag

    def pieces(block, one):
        """Calls `one` for each block, with the samples before it that the filter needs."""
        out = np.empty((count // DECIMATION, 2), np.int16)
        before = (rows + 1) * DECIMATION
        for begin in range(0, count, block):
            first, end = max(begin - before, 0), min(begin + block, count)
            made = np.ascontiguousarray(one(first, end)[(begin - first) // DECIMATION :])
            made = made.view(np.float32).reshape(-1, 2)
            np.rint(made, out=out[begin // DECIMATION : end // DECIMATION], casting="unsafe")
        return out

    def mixed(first, end):
        return signal.upfirdn(low, samples[first:end] * oscillator[first:end], 1, DECIMATION)[
            : (end - first) // DECIMATION
        ]

    def resampled(first, end):
        # resample_poly removes the delay of the filter's centre; leading zeros in the filter compensate for it.
        padded = np.concatenate([np.zeros(TAPS - 1, np.float32), low])
        return signal.resample_poly(samples[first:end] * oscillator[first:end], 1, DECIMATION, window=padded)

    def bandpass(first, end):
        made = signal.upfirdn(band, samples[first:end].astype(np.float32), 1, DECIMATION)[: (end - first) // DECIMATION]
        return made * slow[first // DECIMATION : end // DECIMATION]

    def overlapped(first, end):
        made = signal.oaconvolve(samples[first:end] * oscillator[first:end], low)[: end - first : DECIMATION]
        return made

    def multiplied(first, end):
        table = samples[first:end].reshape(-1, DECIMATION).astype(np.float32) @ polyphase
        parts = table.view(np.complex64)
        made = parts[:, 0].copy()
        for late in range(1, rows + 1):
            made[late:] += parts[:-late, late]
        return made * slow[first // DECIMATION : end // DECIMATION]

    ways = {
        "upfirdn of mixed samples": mixed,
        "resample_poly of mixed samples": resampled,
        "upfirdn with band-pass taps": bandpass,
        "oaconvolve of mixed samples": overlapped,
        "matrix product with polyphase taps": multiplied,
    }
    blocks = {"16 Ki": 1 << 14, "64 Ki": 1 << 16, "512 Ki": 1 << 19, "all": count}
    return {
        f"{name}, blocks of {size}": (lambda one=one, block=block: pieces(block, one))
        for name, one in ways.items()
        for size, block in blocks.items()
    }


def transforms(iq, window):
    """Returns peers' implementations that find the five strongest peaks of averaged powers."""
    weights = (window / window.sum() / 32768).astype(np.float32)
    segments = iq.reshape(-1, FFT, 2)
    pairs = weights[:, None]

    def weighted(begin, step):
        return np.multiply(segments[begin : begin + step], pairs, dtype=np.float32).view(np.complex64)[:, :, 0]

    def peaks(power):
        """Interpolates by a parabola through the logarithms, which for this window is exact to a hundredth of a bin."""
        level = 10 * np.log10(np.concatenate([power[-1:], power, power[:1]]))
        at, _ = signal.find_peaks(level, height=np.median(level) + 13, distance=4)
        at = at[np.argsort(level[at])[::-1][:5]]
        below, here, above = level[at - 1], level[at], level[at + 1]
        offset = (below - above) / (below - 2 * here + above) / 2
        place = at - 1 + offset
        return np.where(place < FFT / 2, place, place - FFT), here - (below - above) * offset / 4

    def chunked(step):
        power = np.zeros(FFT)
        for begin in range(0, len(segments), step):
            bins = fft.fft(weighted(begin, step), axis=1, overwrite_x=True, workers=1)
            power += (bins.real**2 + bins.imag**2).sum(axis=0)
        return peaks(power / len(segments))

    def dotted(step):
        power = np.zeros(FFT)
        for begin in range(0, len(segments), step):
            bins = fft.fft(weighted(begin, step), axis=1, overwrite_x=True, workers=1)
            parts = bins.view(np.float32).reshape(-1, FFT, 2)
            power += np.einsum("sfc,sfc->f", parts, parts)
        return peaks(power / len(segments))

    def welch():
        _, power = signal.welch(
            iq.astype(np.float32).view(np.complex64)[:, 0] / np.float32(32768),
            window=window,
            nperseg=FFT,
            noverlap=0,
            detrend=False,
            return_onesided=False,
            scaling="spectrum",
        )
        return peaks(power)

    return {
        "scipy.fft, 4 segments at a time": lambda: chunked(4),
        "scipy.fft, 16 segments": lambda: chunked(16),
        "scipy.fft, all segments": lambda: chunked(len(segments)),
        "scipy.fft and einsum": lambda: dotted(16),
        "signal.welch": welch,
    }


def same_samples(iq, theirs, name):
    apart = np.abs(iq.astype(int) - theirs).max()
    if apart > UNITS:
        raise Failed(f"{name}: output is up to {apart:.2f} apart")


def same_peaks(found, theirs, name):
    places = np.array([peak.frequency_hz for peak in found.peaks]) / (RATE / DECIMATION / FFT)
    levels = np.array([peak.power_dbfs for peak in found.peaks])
    if len(theirs[0]) != 5 or len(places) != 5:
        raise Failed(f"{name}: {len(theirs[0])} peaks, ours {len(places)}")
    bins, decibels = np.abs(places - theirs[0]).max(), np.abs(levels - theirs[1]).max()
    if bins > BINS or decibels > DECIBELS:
        raise Failed(f"{name}: peaks are up to {bins:.3f} bins and {decibels:.3f} dB apart")


def fastest(ways, count, args):
    rates = {name: rate(way, count, args.seconds) for name, way in ways.items()}
    for name, found in rates.items():
        say(f"  {name}: {found:.1f} Msample/s")
    best = max(rates, key=rates.get)
    return ways[best], (best, rates[best])


def rate(way, count, seconds):
    """Returns millions of input samples per second of CPU time."""
    way()
    runs, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds:
        way()
        runs += 1
    return runs * count / spent / 1e6


if __name__ == "__main__":
    main()
