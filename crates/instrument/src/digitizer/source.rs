//! Sample sources: tones and noise, or a file, down-converted unless they are already baseband I and Q.

use super::config::{Config, Format, Input, SAMPLE_BYTES, Tone};
use shotline_compute::ddc::{Ddc, DdcConfig, DdcError, Tuning};
use shotline_random::SplitMix64;
use std::f64::consts::TAU;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Amplitude of a full-scale tone in counts.
const FULL_SCALE: f64 = 32_767.0;
/// Samples after which a tone's phasor is recomputed from its exact phase.
const PHASOR_SAMPLES: usize = 256;
/// Samples processed at a time.
const CHUNK_SAMPLES: usize = 4096;
/// Standard deviation of the sum of four uniform 16-bit values.
const SUM_DEVIATION: f64 = 37_837.2;

/// Reason why a source could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Real samples at the output's rate.
    #[error("{} holds real samples, which give I and Q at half their rate or less: use --decimation 2 or more", .0.display())]
    Real(PathBuf),
    /// The down-converter's settings are invalid.
    #[error("down-conversion: {0}")]
    Ddc(#[from] DdcError),
    /// The file is too short for one sample.
    #[error("{} is too short for a sample of this format", .0.display())]
    Empty(PathBuf),
}

/// An endless stream of IQ samples.
#[derive(Debug)]
pub struct Source {
    converter: Converter,
    down: DownConverter,
}

/// Output of the converter.
#[derive(Debug)]
enum Converter {
    Synthetic { tones: Vec<Oscillator>, noise: Noise },
    File { values: Vec<i16>, at: usize },
}

/// Down-converter of the FPGA, with its input buffer.
#[derive(Debug)]
enum DownConverter {
    /// The input is already at baseband and at the output rate.
    Bypass,
    Real(Box<Ddc<i16>>, Vec<i16>),
    Complex(Box<Ddc<[i16; 2]>>, Vec<[i16; 2]>),
}

impl Source {
    /// Opens the source that the settings select.
    ///
    /// # Errors
    /// If the file cannot be read, or its samples cannot be down-converted.
    pub fn open(config: &Config) -> Result<Self, SourceError> {
        let samples = u64::from(config.block_bytes / SAMPLE_BYTES) * u64::from(config.distinct);
        let (rate, decimation) = (config.sample_rate_hz, config.decimation);
        let carrier_tuning = Tuning::hz(config.centre_hz, rate * f64::from(decimation))?;
        let (converter, real) = match &config.input {
            Input::Synthetic { tones, noise_dbfs } => {
                let real = decimation > 1;
                let (carrier, deviation) = match real {
                    true => (carrier_tuning.phase_at(1), f64::from(decimation).sqrt() / 2.0),
                    false => (0, std::f64::consts::FRAC_1_SQRT_2),
                };
                let tone = |tone: &Tone| Oscillator::new(tone, rate, samples, (decimation, carrier));
                let deviation = FULL_SCALE * 10_f64.powf(noise_dbfs / 20.0) * deviation;
                let noise = Noise::new(deviation, config.seed);
                (Converter::Synthetic { tones: tones.iter().map(tone).collect(), noise }, real)
            }
            Input::File { path, format } => {
                let real = format.values_per_sample() == 1;
                if real && decimation == 1 {
                    return Err(SourceError::Real(path.into()));
                }
                let width = (format.values_per_sample() * format.value_bytes()) as u64;
                let max_bytes = samples.saturating_mul(width).saturating_mul(decimation.into());
                (Converter::File { values: read_values(path, *format, max_bytes)?, at: 0 }, real)
            }
        };
        let input = CHUNK_SAMPLES * decimation as usize;
        let down = match (decimation, real) {
            (1, _) => DownConverter::Bypass,
            (_, true) => {
                let ddc = Ddc::new(&DdcConfig { decimation, ..DdcConfig::tuned(carrier_tuning) })?;
                DownConverter::Real(Box::new(ddc), vec![0; input])
            }
            (_, false) => {
                let ddc = Ddc::new(&DdcConfig { decimation, ..DdcConfig::tuned(Tuning::default()) })?;
                DownConverter::Complex(Box::new(ddc), vec![[0; 2]; input])
            }
        };
        let mut source = Self { converter, down };
        source.settle();
        Ok(source)
    }

    /// Discards the filter's initial transient.
    fn settle(&mut self) {
        let window = match &self.down {
            DownConverter::Bypass => return,
            DownConverter::Real(ddc, input) => 2.0 * ddc.delay() / (input.len() / CHUNK_SAMPLES) as f64,
            DownConverter::Complex(ddc, input) => 2.0 * ddc.delay() / (input.len() / CHUNK_SAMPLES) as f64,
        };
        self.fill(&mut vec![[0; 2]; window.ceil() as usize + 1]);
    }

    /// Fills `out` with the next samples, I before Q.
    pub fn fill(&mut self, out: &mut [[i16; 2]]) {
        let Self { converter, down } = self;
        for out in out.chunks_mut(CHUNK_SAMPLES) {
            match down {
                DownConverter::Bypass => converter.complex(out),
                DownConverter::Real(ddc, input) => {
                    let len = input.len() / CHUNK_SAMPLES * out.len();
                    converter.real(&mut input[..len]);
                    ddc.process(&input[..len], out);
                }
                DownConverter::Complex(ddc, input) => {
                    let len = input.len() / CHUNK_SAMPLES * out.len();
                    converter.complex(&mut input[..len]);
                    ddc.process(&input[..len], out);
                }
            }
        }
    }

    /// Returns the number of values that were clipped to 16 bits after the filter.
    pub fn clipped(&self) -> u64 {
        match &self.down {
            DownConverter::Bypass => 0,
            DownConverter::Real(ddc, _) => ddc.clipped(),
            DownConverter::Complex(ddc, _) => ddc.clipped(),
        }
    }
}

impl Converter {
    fn complex(&mut self, out: &mut [[i16; 2]]) {
        match self {
            Self::Synthetic { tones, noise } => {
                // `as` saturates, so values out of range are clipped.
                synthesize(tones, noise, out, |sum| sum.map(|value| value.round() as i16));
            }
            Self::File { values, at } => {
                for sample in out {
                    *sample = [values[*at], values[*at + 1]];
                    *at = (*at + 2) % values.len();
                }
            }
        }
    }

    fn real(&mut self, out: &mut [i16]) {
        match self {
            Self::Synthetic { tones, noise } => synthesize(tones, noise, out, |[i, _]| i.round() as i16),
            Self::File { values, at } => {
                for sample in out {
                    *sample = values[*at];
                    *at = (*at + 1) % values.len();
                }
            }
        }
    }
}

fn synthesize<T>(tones: &mut [Oscillator], noise: &mut Noise, out: &mut [T], sample: impl Fn([f32; 2]) -> T) {
    let mut sums = [[0.0_f32; 2]; PHASOR_SAMPLES];
    for out in out.chunks_mut(PHASOR_SAMPLES) {
        let sums = &mut sums[..out.len()];
        sums.fill_with(|| noise.next());
        tones.iter_mut().for_each(|tone| tone.add(sums));
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sample(*sum));
    }
}

/// Reads up to `max_bytes` of a file and returns its values scaled to 16 bits.
fn read_values(path: &Path, format: Format, max_bytes: u64) -> Result<Vec<i16>, SourceError> {
    let failed = |source| SourceError::File { path: path.into(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(failed)?.take(max_bytes).read_to_end(&mut bytes).map_err(failed)?;
    bytes.truncate(bytes.len() - bytes.len() % (format.values_per_sample() * format.value_bytes()));
    if bytes.is_empty() {
        return Err(SourceError::Empty(path.into()));
    }
    Ok(match format.value_bytes() {
        1 => bytes.iter().map(|byte| (i16::from(*byte) - 128) << 8).collect(),
        _ => bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect(),
    })
}

/// A tone. Its phase is in units of 2^-64 turns, so it never drifts.
#[derive(Debug)]
struct Oscillator {
    phase: u64,
    step: u64,
    amplitude: f64,
}

impl Oscillator {
    /// Creates the nearest tone with a whole number of turns in `samples` output samples. The converter takes
    /// `decimation` samples per output sample, and the carrier advances by `carrier` (in 2^-64 turns) per converter
    /// sample.
    fn new(tone: &Tone, sample_rate_hz: f64, samples: u64, (decimation, carrier): (u32, u64)) -> Self {
        let turns = (tone.hz / sample_rate_hz * samples as f64).round();
        let whole = (turns as i128).rem_euclid(i128::from(samples)) as u128;
        // Wrap to at most half a turn in either direction before dividing by the converter's samples.
        let step = ((whole << 64) / u128::from(samples)) as u64 as i64 / i64::from(decimation);
        let step = carrier.wrapping_add_signed(step);
        Self { phase: 0, step, amplitude: FULL_SCALE * 10_f64.powf(tone.dbfs / 20.0) }
    }

    /// Adds the tone to the next samples, at most [`PHASOR_SAMPLES`].
    fn add(&mut self, sums: &mut [[f32; 2]]) {
        let phasor = |turns: u64, length: f64| {
            let angle = turns as f64 / 2_f64.powi(64) * TAU;
            [(angle.cos() * length) as f32, (angle.sin() * length) as f32]
        };
        let [mut i, mut q] = phasor(self.phase, self.amplitude);
        let [c, s] = phasor(self.step, 1.0);
        for sum in sums.iter_mut() {
            sum[0] += i;
            sum[1] += q;
            (i, q) = (i * c - q * s, i * s + q * c);
        }
        self.phase = self.phase.wrapping_add(self.step.wrapping_mul(sums.len() as u64));
    }
}

/// White, approximately Gaussian noise: sums of four uniform values.
#[derive(Debug)]
struct Noise {
    random: SplitMix64,
    scale: f32,
}

impl Noise {
    /// Creates noise with this standard deviation of I and of Q, in counts.
    fn new(deviation: f64, seed: u64) -> Self {
        Self { random: SplitMix64::new(seed), scale: (deviation / SUM_DEVIATION) as f32 }
    }

    fn next(&mut self) -> [f32; 2] {
        if self.scale == 0.0 {
            return [0.0; 2];
        }
        let mut one = || {
            let bits = self.random.next_u64();
            let sum = [0, 16, 32, 48].map(|at| (bits >> at) as u16).into_iter().map(u32::from).sum::<u32>();
            (sum as f32 - 2.0 * 65_535.0) * self.scale
        };
        [one(), one()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(input: Input) -> Config {
        Config { input, block_bytes: 4096, distinct: 4, ..Config::new(([127, 0, 0, 1], 1).into()) }
    }

    fn samples(config: &Config, count: usize) -> Vec<[i16; 2]> {
        let mut out = vec![[0; 2]; count];
        Source::open(config).unwrap().fill(&mut out);
        out
    }

    fn power(samples: &[[i16; 2]]) -> f64 {
        let sum: f64 = samples.iter().flatten().map(|value| f64::from(*value).powi(2)).sum();
        10.0 * (sum / samples.len() as f64 / FULL_SCALE.powi(2)).log10()
    }

    #[test]
    fn a_tone_has_its_power_and_a_continuous_phase() {
        let tone = Tone { hz: -62.5e6, dbfs: -20.0 }; // an eighth of a turn backwards for each sample
        let config = config(Input::Synthetic { tones: vec![tone], noise_dbfs: f64::NEG_INFINITY });
        let found = samples(&config, 2 * 4096);
        assert!((power(&found) + 20.0).abs() < 0.01);
        assert_eq!((found[0], found[1], found[2]), ([3277, 0], [2317, -2317], [0, -3277]));
        assert_eq!(found[..4096], found[4096..]);
        let odd = Input::Synthetic { tones: vec![Tone { hz: 1234.5, dbfs: -1.0 }], noise_dbfs: f64::NEG_INFINITY };
        let found = samples(&Config { sample_rate_hz: 1e6, ..config }, 8192);
        let other = samples(
            &Config {
                sample_rate_hz: 1e6,
                input: odd,
                ..self::config(Input::Synthetic { tones: vec![], noise_dbfs: 0.0 })
            },
            8192,
        );
        assert!(found != other);
        let near = |a: &[i16; 2], b: &[i16; 2]| a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 1);
        assert!(other[..4096].iter().zip(&other[4096..]).all(|(a, b)| near(a, b)));
    }

    #[test]
    fn down_conversion_preserves_tone_and_noise() {
        let tone = Tone { hz: 62.5e6, dbfs: -20.0 };
        let direct = config(Input::Synthetic { tones: vec![tone], noise_dbfs: f64::NEG_INFINITY });
        let converted = Config { decimation: 8, centre_hz: 1.3e9, ..direct.clone() };
        let found = samples(&converted, 4 * 1024);
        assert!((power(&found) + 20.0).abs() < 0.01, "{}", power(&found));
        // The phase is arbitrary; each sample advances it by an eighth of a turn.
        for pair in found.windows(9) {
            assert!(pair[0].iter().zip(pair[8]).all(|(a, b)| a.abs_diff(b) <= 3), "{pair:?}");
            let [[i, q], [next_i, next_q]] = [pair[0], pair[2]].map(|sample| sample.map(i32::from));
            assert!((next_i + q).abs() <= 3 && (next_q - i).abs() <= 3, "{pair:?}");
        }
        let noise = Input::Synthetic { tones: Vec::new(), noise_dbfs: -30.0 };
        let found = power(&samples(&Config { input: noise, ..converted }, 50_000));
        assert!((found + 30.0).abs() < 0.5, "{found}");
    }

    #[test]
    fn noise_has_its_power_and_repeats_with_its_seed() {
        let noise = |seed| Config { seed, ..config(Input::Synthetic { tones: Vec::new(), noise_dbfs: -30.0 }) };
        let found = samples(&noise(1), 100_000);
        assert!((power(&found) + 30.0).abs() < 0.1, "{}", power(&found));
        assert_eq!(found, samples(&noise(1), 100_000));
        assert_ne!(found, samples(&noise(2), 100_000));
    }

    #[test]
    fn a_tone_beyond_full_scale_is_clipped() {
        let input = Input::Synthetic { tones: vec![Tone { hz: 0.0, dbfs: 20.0 }], noise_dbfs: f64::NEG_INFINITY };
        assert_eq!(samples(&config(input), 1)[0], [i16::MAX, 0]);
    }

    #[test]
    fn complex_files_repeat_in_both_formats() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples");
        std::fs::write(&path, [128, 129, 0, 255, 7]).unwrap();
        let file = |format| config(Input::File { path: path.clone(), format });
        assert_eq!(samples(&file(Format::Cu8), 3), [[0, 256], [-32768, 32512], [0, 256]]);
        std::fs::write(&path, [1, 0, 255, 255, 9, 9]).unwrap();
        assert_eq!(samples(&file(Format::Ci16), 2), [[1, -1], [1, -1]]);
        std::fs::write(&path, [1, 0, 255]).unwrap();
        let refused = |config: &Config| Source::open(config).unwrap_err().to_string();
        assert!(refused(&file(Format::Ci16)).contains("too short for a sample"));
        assert!(refused(&file(Format::S16)).contains("--decimation 2"));
        assert!(Source::open(&Config { decimation: 2, ..file(Format::S16) }).is_ok());
    }
}
