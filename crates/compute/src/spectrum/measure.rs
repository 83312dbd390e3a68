//! Peaks and ratios of a spectrum that was averaged.

use super::config::SpectrumConfig;
use super::window::{Between, Window};

/// Most peaks of a summary.
pub const PEAKS: usize = 5;
/// Highest harmonic that is not counted as noise.
pub const HARMONICS: usize = 10;

/// A tone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Frequency in Hz. Of complex samples it is signed, about the frequency that was tuned to.
    pub frequency_hz: f64,
    /// Power in dBFS: 0 is a tone of full scale.
    pub power_dbfs: f64,
}

/// What a block's spectrum says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    peaks: [Peak; PEAKS],
    count: usize,
    /// The strongest peak over everything but DC, in dB; NaN if there is no peak.
    pub sinad_db: f64,
    /// The same without the harmonics of real samples; NaN if there is no peak.
    pub snr_db: f64,
    /// Power of everything but the peaks (and DC, of real samples), in dBFS.
    pub noise_dbfs: f64,
}

impl Summary {
    /// The peaks, the strongest first; at most [`PEAKS`].
    pub fn peaks(&self) -> &[Peak] {
        &self.peaks[..self.count]
    }
}

/// What is known of a spectrum before its bins are.
pub(super) struct Measure {
    window: Window,
    real: bool,
    fft: usize,
    bin_hz: f64,
    /// A peak's power over that of the median bin.
    threshold: f64,
    between: Between,
    /// Bins sorted, as far as the median needs it.
    sorted: Vec<f64>,
    /// Bins that are not noise.
    taken: Vec<bool>,
}

/// A peak with the bin that it is in.
#[derive(Clone, Copy, Default)]
struct Found {
    bin: usize,
    /// In bins, from the first.
    place: f64,
    /// Linear, 1 is full scale.
    power: f64,
}

impl Measure {
    pub fn new(config: &SpectrumConfig, real: bool) -> Self {
        let bins = if real { config.fft / 2 + 1 } else { config.fft };
        Self {
            window: config.window,
            real,
            fft: config.fft,
            bin_hz: config.sample_rate_hz / config.fft as f64,
            threshold: 10_f64.powf(config.threshold_db / 10.0),
            between: Between::new(config.window),
            sorted: vec![0.0; bins],
            taken: vec![false; bins],
        }
    }

    pub fn summary(&mut self, power: &[f64]) -> Summary {
        let (found, count) = self.peaks(power);
        let found = &found[..count];
        let mut peaks = [Peak::default(); PEAKS];
        for (peak, found) in peaks.iter_mut().zip(found) {
            let fft = self.fft as f64;
            let place = if !self.real && found.place >= fft / 2.0 { found.place - fft } else { found.place };
            *peak = Peak { frequency_hz: place * self.bin_hz, power_dbfs: decibels(found.power) };
        }
        let places = found.iter().map(|found| found.place);
        let noise = self.noise(power, places).total / self.window.noise_bins();
        let (mut sinad_db, mut snr_db) = (f64::NAN, f64::NAN);
        if let [first, ..] = found {
            let rest = self.noise(power, [first.place].into_iter());
            let (low, high) = self.skirt(first.place);
            let signal: f64 =
                (low..=high).filter_map(|bin| power.get(self.fold(bin)?)).map(|bin| bin - rest.mean).sum();
            sinad_db = decibels(signal / rest.total);
            let harmonics = if self.real { HARMONICS } else { 1 };
            let quiet = self.noise(power, (1..=harmonics).map(|harmonic| first.place * harmonic as f64));
            snr_db = decibels(signal / quiet.total);
        }
        Summary { peaks, count, sinad_db, snr_db, noise_dbfs: decibels(noise) }
    }

    /// The strongest local maxima, each at least a main lobe from the others and above what they leak there.
    fn peaks(&mut self, power: &[f64]) -> ([Found; PEAKS], usize) {
        let median = {
            self.sorted.copy_from_slice(power);
            let middle = self.sorted.len() / 2;
            *self.sorted.select_nth_unstable_by(middle, f64::total_cmp).1
        };
        let least = median * self.threshold;
        let mut found = [Found::default(); PEAKS];
        let mut count = 0;
        while count < PEAKS {
            let known = &found[..count];
            let mut best = Found::default();
            for (bin, here) in power.iter().enumerate() {
                if *here > best.power.max(least) && self.stands_out(power, bin, known) {
                    best = Found { bin, place: bin as f64, power: *here };
                }
            }
            if best.power == 0.0 {
                break;
            }
            let [below, above] = self.beside(power, best.bin);
            let offset = self.between.offset(below, above);
            best.place = best.bin as f64 + offset;
            best.power /= self.window.response(offset).powi(2);
            found[count] = best;
            count += 1;
        }
        (found, count)
    }

    fn stands_out(&self, power: &[f64], bin: usize, known: &[Found]) -> bool {
        let here = power[bin];
        let [below, above] = self.beside(power, bin);
        if here < below || here < above || self.real && bin < self.window.lobe() {
            return false; // a slope, or DC
        }
        let mut leaked = 0.0;
        for peak in known {
            // Once around is the way from one end to the other; of real samples a mirror image stands there.
            for other in [peak.place, self.fft as f64 - peak.place] {
                if !self.real && other != peak.place {
                    continue;
                }
                let away = (bin as f64 - other).abs();
                let away = away.min(self.fft as f64 - away);
                if away <= self.window.lobe() as f64 {
                    return false;
                }
                leaked += peak.power * self.window.leakage(away);
            }
        }
        // Twice the amplitude, for what adds up.
        here > 4.0 * leaked
    }

    /// A bin's neighbours: once around, or mirrored at the ends.
    fn beside(&self, power: &[f64], bin: usize) -> [f64; 2] {
        let bin = bin as isize;
        [bin - 1, bin + 1].map(|bin| self.fold(bin).map_or(0.0, |bin| power[bin]))
    }

    /// The bin in which this frequency is seen.
    fn fold(&self, bin: isize) -> Option<usize> {
        let bin = bin.rem_euclid(self.fft as isize) as usize;
        let bin = if self.real { bin.min(self.fft - bin) } else { bin };
        (bin < self.taken.len()).then_some(bin)
    }

    /// The bins that a tone at this place stands in.
    fn skirt(&self, place: f64) -> (isize, isize) {
        // Short transforms have no room for wide skirts.
        let reach = self.window.skirt().min(self.taken.len() / 8).max(1) as isize;
        let bin = (place % self.fft as f64).round() as isize;
        (bin - reach, bin + reach)
    }

    /// What is left when tones at these places are taken out, and DC of real samples.
    fn noise(&mut self, power: &[f64], places: impl Iterator<Item = f64>) -> Noise {
        self.taken.fill(false);
        let dc = self.real.then_some(0.0);
        for place in places.chain(dc) {
            let (low, high) = self.skirt(place);
            for bin in low..=high {
                if let Some(bin) = self.fold(bin) {
                    self.taken[bin] = true;
                }
            }
        }
        let left = power.iter().zip(&self.taken).filter(|(_, taken)| !**taken);
        let (sum, bins) = left.fold((0.0, 0), |(sum, bins), (power, _)| (sum + power, bins + 1));
        let mean = sum / f64::from(bins.max(1));
        Noise { mean, total: mean * power.len() as f64 }
    }
}

struct Noise {
    /// Power in a bin.
    mean: f64,
    /// Power in all bins, those included that were taken out.
    total: f64,
}

fn decibels(power: f64) -> f64 {
    10.0 * power.log10()
}
