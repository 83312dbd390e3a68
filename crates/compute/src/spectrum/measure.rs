//! Peak search, SINAD and SNR of an averaged spectrum.

use super::config::SpectrumConfig;
use super::window::{Interpolator, Window};

/// Maximum number of peaks in a summary.
pub const MAX_PEAKS: usize = 5;
/// Highest harmonic that is excluded from the noise.
pub const MAX_HARMONIC: usize = 10;

/// A tone in a spectrum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Frequency in Hz. For complex samples it is signed and relative to the tuned frequency.
    pub frequency_hz: f64,
    /// Power in dBFS; 0 is a full-scale tone.
    pub power_dbfs: f64,
}

/// Peaks and ratios of the spectrum of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    peaks: [Peak; MAX_PEAKS],
    count: usize,
    /// Ratio of the strongest peak to everything else except DC, in dB; NaN if there is no peak.
    pub sinad_db: f64,
    /// Like SINAD, with the harmonics of real samples excluded, in dB; NaN if there is no peak.
    pub snr_db: f64,
    /// Power of everything except the peaks (and DC, for real samples), in dBFS.
    pub noise_dbfs: f64,
}

impl Summary {
    /// Returns the peaks, strongest first, at most [`MAX_PEAKS`].
    pub fn peaks(&self) -> &[Peak] {
        &self.peaks[..self.count]
    }
}

/// Parameters and scratch memory of the measurements.
pub(super) struct Analyzer {
    window: Window,
    /// Samples are real, so the bins end at half the sample rate.
    real: bool,
    fft: usize,
    bin_hz: f64,
    /// Minimum power of a peak relative to the median bin, linear.
    threshold: f64,
    interpolator: Interpolator,
    /// Scratch copy of the bins for the selection of the median.
    sorted: Vec<f64>,
    /// Bins that do not count as noise.
    excluded: Vec<bool>,
}

/// A peak and its bin.
#[derive(Clone, Copy, Default)]
struct PeakBin {
    bin: usize,
    /// Interpolated position, in bins.
    position: f64,
    /// Linear power; 1 is full scale.
    power: f64,
}

impl Analyzer {
    pub fn new(config: &SpectrumConfig, real: bool) -> Self {
        let bins = if real { config.fft / 2 + 1 } else { config.fft };
        Self {
            window: config.window,
            real,
            fft: config.fft,
            bin_hz: config.sample_rate_hz / config.fft as f64,
            threshold: 10_f64.powf(config.threshold_db / 10.0),
            interpolator: Interpolator::new(config.window),
            sorted: vec![0.0; bins],
            excluded: vec![false; bins],
        }
    }

    pub fn summary(&mut self, power: &[f64]) -> Summary {
        let (found, count) = self.peaks(power);
        let found = &found[..count];
        let mut peaks = [Peak::default(); MAX_PEAKS];
        for (peak, found) in peaks.iter_mut().zip(found) {
            let fft = self.fft as f64;
            let position =
                if !self.real && found.position >= fft / 2.0 { found.position - fft } else { found.position };
            *peak = Peak { frequency_hz: position * self.bin_hz, power_dbfs: decibels(found.power) };
        }
        let positions = found.iter().map(|found| found.position);
        let noise = self.noise(power, positions).total / self.window.noise_bins();
        let (mut sinad_db, mut snr_db) = (f64::NAN, f64::NAN);
        if let [first, ..] = found {
            let rest = self.noise(power, [first.position].into_iter());
            let (low, high) = self.skirt(first.position);
            let signal: f64 =
                (low..=high).filter_map(|bin| power.get(self.fold(bin)?)).map(|bin| bin - rest.mean).sum();
            sinad_db = decibels(signal / rest.total);
            let harmonics = if self.real { MAX_HARMONIC } else { 1 };
            let without_harmonics = self.noise(power, (1..=harmonics).map(|harmonic| first.position * harmonic as f64));
            snr_db = decibels(signal / without_harmonics.total);
        }
        Summary { peaks, count, sinad_db, snr_db, noise_dbfs: decibels(noise) }
    }

    /// Finds the strongest local maxima, each at least a main lobe apart from the others and above their leakage.
    fn peaks(&mut self, power: &[f64]) -> ([PeakBin; MAX_PEAKS], usize) {
        let median = {
            self.sorted.copy_from_slice(power);
            let middle = self.sorted.len() / 2;
            *self.sorted.select_nth_unstable_by(middle, f64::total_cmp).1
        };
        let min_power = median * self.threshold;
        let mut found = [PeakBin::default(); MAX_PEAKS];
        let mut count = 0;
        while count < MAX_PEAKS {
            let known = &found[..count];
            let mut best = PeakBin::default();
            for (bin, here) in power.iter().enumerate() {
                if *here > best.power.max(min_power) && self.is_peak(power, bin, known) {
                    best = PeakBin { bin, position: bin as f64, power: *here };
                }
            }
            if best.power == 0.0 {
                break;
            }
            let [below, above] = self.neighbours(power, best.bin);
            let offset = self.interpolator.offset(below, above);
            best.position = best.bin as f64 + offset;
            best.power /= self.window.response(offset).powi(2);
            found[count] = best;
            count += 1;
        }
        (found, count)
    }

    fn is_peak(&self, power: &[f64], bin: usize, known: &[PeakBin]) -> bool {
        let here = power[bin];
        let [below, above] = self.neighbours(power, bin);
        if here < below || here < above || self.real && bin < self.window.lobe() {
            return false; // a slope, or DC
        }
        let mut leaked = 0.0;
        for peak in known {
            // Distances wrap around at the ends of the spectrum. For real samples the mirror image leaks as well.
            for other in [peak.position, self.fft as f64 - peak.position] {
                if !self.real && other != peak.position {
                    continue;
                }
                let distance = (bin as f64 - other).abs();
                let distance = distance.min(self.fft as f64 - distance);
                if distance <= self.window.lobe() as f64 {
                    return false;
                }
                leaked += peak.power * self.window.leakage(distance);
            }
        }
        // A margin of twice the amplitude covers leakage that adds up coherently.
        here > 4.0 * leaked
    }

    /// Returns the powers of the two adjacent bins, wrapped around or mirrored at the ends.
    fn neighbours(&self, power: &[f64], bin: usize) -> [f64; 2] {
        let bin = bin as isize;
        [bin - 1, bin + 1].map(|bin| self.fold(bin).map_or(0.0, |bin| power[bin]))
    }

    /// Returns the bin to which a frequency is folded.
    fn fold(&self, bin: isize) -> Option<usize> {
        let bin = bin.rem_euclid(self.fft as isize) as usize;
        let bin = if self.real { bin.min(self.fft - bin) } else { bin };
        (bin < self.excluded.len()).then_some(bin)
    }

    /// Returns the first and last bin of a tone at this position.
    fn skirt(&self, position: f64) -> (isize, isize) {
        // Short transforms have too few bins for wide skirts.
        let reach = self.window.skirt().min(self.excluded.len() / 8).max(1) as isize;
        let bin = (position % self.fft as f64).round() as isize;
        (bin - reach, bin + reach)
    }

    /// Measures the noise without the tones at these positions and without the DC of real samples.
    fn noise(&mut self, power: &[f64], positions: impl Iterator<Item = f64>) -> Noise {
        self.excluded.fill(false);
        let dc = self.real.then_some(0.0);
        for position in positions.chain(dc) {
            let (low, high) = self.skirt(position);
            for bin in low..=high {
                if let Some(bin) = self.fold(bin) {
                    self.excluded[bin] = true;
                }
            }
        }
        let left = power.iter().zip(&self.excluded).filter(|(_, excluded)| !**excluded);
        let (sum, bins) = left.fold((0.0, 0), |(sum, bins), (power, _)| (sum + power, bins + 1));
        let mean = sum / f64::from(bins.max(1));
        Noise { mean, total: mean * power.len() as f64 }
    }
}

/// Noise without the excluded bins.
struct Noise {
    /// Mean power per bin.
    mean: f64,
    /// Power in all bins, with the excluded ones estimated by the mean.
    total: f64,
}

fn decibels(power: f64) -> f64 {
    10.0 * power.log10()
}
