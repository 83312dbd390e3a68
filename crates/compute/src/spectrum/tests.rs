use super::*;
use proptest::prelude::*;
use shotline_testing::cases;
use std::f64::consts::TAU;

/// Deterministic generator of normal deviates (Box-Muller).
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / 2_f64.powi(53)
    }
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }
}

/// Generates complex tones of a frequency (in bins of `fft`) and magnitude, with noise of `deviation` in each part.
fn iq(tones: &[(f64, f64)], fft: usize, len: usize, deviation: f64, seed: u64) -> Vec<[i16; 2]> {
    let mut noise = Noise(seed);
    (0..len)
        .map(|n| {
            let mut sum = [deviation * noise.normal(), deviation * noise.normal()];
            for (bins, magnitude) in tones {
                let (sin, cos) = (TAU * (bins / fft as f64 * n as f64).fract()).sin_cos();
                sum = [sum[0] + magnitude * cos, sum[1] + magnitude * sin];
            }
            sum.map(|part| part.round() as i16)
        })
        .collect()
}

fn real(tones: &[(f64, f64)], fft: usize, len: usize, deviation: f64, seed: u64) -> Vec<i16> {
    iq(tones, fft, len, deviation, seed).into_iter().map(|[i, _]| i).collect()
}

fn config(fft: usize, window: Window) -> SpectrumConfig {
    SpectrumConfig { window, ..SpectrumConfig::new(fft, fft as f64) } // a bin is 1 Hz
}

/// Tolerance of the noise power of 65,536 samples, in dB: five standard deviations (0.047 to 0.057 dB, depending on the
/// window), which no seed of thousands exceeds.
const NOISE_DB: f64 = 0.3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn complex_tone_in_noise_is_found_to_hundredths_of_a_bin(
        bins in -500.0_f64..500.0, seed: u64, window in prop::sample::select(&Window::ALL[..2]),
    ) {
        let mut spectrum = Spectrum::new(&config(1024, window)).unwrap();
        let summary = spectrum.analyse(&iq(&[(bins, 16_384.0)], 1024, 65_536, 300.0, seed)).unwrap();
        let peak = summary.peaks()[0];
        prop_assert!((peak.frequency_hz - bins).abs() < 0.03, "{} for {bins}", peak.frequency_hz);
        prop_assert!((peak.power_dbfs + 6.0206).abs() < 0.1, "{}", peak.power_dbfs);
        let snr = 10.0 * (16_384.0_f64.powi(2) / (2.0 * 300.0_f64.powi(2))).log10();
        prop_assert!((summary.snr_db - snr).abs() < NOISE_DB, "{} of {snr}", summary.snr_db);
        prop_assert_eq!(summary.snr_db, summary.sinad_db);
        prop_assert!((summary.noise_dbfs - (-6.0206 - snr)).abs() < NOISE_DB, "{}", summary.noise_dbfs);
    }

    #[test]
    fn real_tone_in_noise_is_found(bins in 12.0_f64..500.0, seed: u64, window in prop::sample::select(&Window::ALL[..])) {
        let mut spectrum = Spectrum::new(&config(1024, window)).unwrap();
        let summary = spectrum.analyse(&real(&[(bins, 16_384.0)], 1024, 65_536, 100.0, seed)).unwrap();
        let peak = summary.peaks()[0];
        prop_assert!((peak.frequency_hz - bins).abs() < 0.05, "{} for {bins}", peak.frequency_hz);
        prop_assert!((peak.power_dbfs + 6.0206).abs() < 0.1, "{}", peak.power_dbfs);
        let snr = 10.0 * (16_384.0_f64.powi(2) / 2.0 / 100.0_f64.powi(2)).log10();
        prop_assert!((summary.snr_db - snr).abs() < NOISE_DB, "{} of {snr}", summary.snr_db);
    }

    #[test]
    fn arbitrary_samples_cause_no_panic(
        words in prop::collection::vec(prop_oneof![any::<i16>(), Just(i16::MIN), Just(0)], 0..2000), hop in 1_usize..128,
    ) {
        let config = SpectrumConfig { hop, ..config(128, Window::Hann) };
        let summary = Spectrum::<i16>::new(&config).unwrap().analyse(&words);
        prop_assert_eq!(summary.is_some(), words.len() >= 128);
        Spectrum::<[i16; 2]>::new(&config).unwrap().analyse(words.as_chunks().0);
    }

    #[test]
    fn loops_match_the_portable_ones(words in prop::collection::vec(any::<i16>(), 128..1000)) {
        #[cfg(target_arch = "x86_64")]
        for loops in sys::available() {
            let mut one = Spectrum::<i16>::new(&config(128, Window::Hann)).unwrap();
            let mut other = Spectrum::<i16>::new(&config(128, Window::Hann)).unwrap();
            (one.loops, other.loops) = (loops, PORTABLE);
            prop_assert_eq!(one.average(&words), other.average(&words));
            let mut one = Spectrum::<[i16; 2]>::new(&config(64, Window::Hann)).unwrap();
            let mut other = Spectrum::<[i16; 2]>::new(&config(64, Window::Hann)).unwrap();
            (one.loops, other.loops) = (loops, PORTABLE);
            prop_assert_eq!(one.average(words.as_chunks().0), other.average(words.as_chunks().0));
        }
    }
}

#[test]
fn tone_without_noise_is_found_to_a_thousandth_of_a_bin() {
    for window in Window::ALL {
        let mut spectrum = Spectrum::new(&config(1024, window)).unwrap();
        for step in -10..=10 {
            let bins = -100.0 + f64::from(step) / 20.0;
            let summary = spectrum.analyse(&iq(&[(bins, 30_000.0)], 1024, 4096, 0.0, 1)).unwrap();
            let found = summary.peaks()[0].frequency_hz;
            assert!((found - bins).abs() < 1e-3, "{window:?}: {found} for {bins}");
            assert!((summary.peaks()[0].power_dbfs + 0.7666).abs() < 0.005);
        }
    }
}

#[test]
fn five_tones_are_sorted_by_power_without_side_lobes() {
    let tones = [(100.3, 3000.0), (-230.7, 9000.0), (17.5, 1000.0), (400.25, 300.0), (-20.0, 30.0)];
    for window in Window::ALL {
        let mut spectrum = Spectrum::new(&config(1024, window)).unwrap();
        let summary = spectrum.analyse(&iq(&tones, 1024, 65_536, 10.0, 7)).unwrap();
        let found: Vec<f64> = summary.peaks().iter().map(|peak| peak.frequency_hz).collect();
        let expected = [-230.7, 100.3, 17.5, 400.25, -20.0];
        assert_eq!(found.len(), 5, "{window:?}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 0.1, "{window:?}: {found} for {expected}");
        }
    }
}

#[test]
fn one_tone_is_one_peak_and_noise_and_silence_have_none() {
    for window in Window::ALL {
        for hop in [512, 1024] {
            let mut spectrum = Spectrum::new(&SpectrumConfig { hop, ..config(1024, window) }).unwrap();
            let one = spectrum.analyse(&iq(&[(99.5, 32_000.0)], 1024, 65_536, 1.0, 3)).unwrap();
            assert_eq!(one.peaks().len(), 1, "{window:?}: {:?}", one.peaks());
            let none = spectrum.analyse(&iq(&[], 1024, 65_536, 1000.0, 3)).unwrap();
            assert!(none.peaks().is_empty() && none.snr_db.is_nan(), "{window:?}: {none:?}");
            assert!((none.noise_dbfs - 20.0 * (1000.0 * 2_f64.sqrt() / 32_768.0).log10()).abs() < 0.1);
            let silence = spectrum.analyse(&[[0; 2]; 4096]).unwrap();
            assert!(silence.peaks().is_empty(), "{silence:?}");
        }
    }
}

#[test]
fn folded_harmonics_count_for_sinad_but_not_for_snr() {
    // The 2nd and 3rd harmonic of bin 203.3 of 1024, the latter beyond half the rate.
    let tones = [(203.3, 20_000.0), (406.6, 200.0), (609.9, 200.0)];
    let mut spectrum = Spectrum::new(&config(1024, Window::BlackmanHarris)).unwrap();
    let summary = spectrum.analyse(&real(&tones, 1024, 65_536, 20.0, 5)).unwrap();
    let db = |noise: f64| 10.0 * (20_000.0_f64.powi(2) / 2.0 / noise).log10();
    assert!((summary.snr_db - db(400.0)).abs() < 0.2, "{summary:?}");
    assert!((summary.sinad_db - db(400.0 + 2.0 * 200.0 * 200.0 / 2.0)).abs() < 0.2, "{summary:?}");
    assert!(
        (summary.peaks()[2].frequency_hz - 406.6).abs() < 0.1 || (summary.peaks()[1].frequency_hz - 406.6).abs() < 0.1
    );
}

#[test]
fn dc_of_real_samples_is_neither_signal_nor_noise() {
    let mut samples = real(&[(203.3, 1000.0)], 1024, 65_536, 10.0, 5);
    samples.iter_mut().for_each(|sample| *sample += 5000);
    let summary = Spectrum::new(&config(1024, Window::BlackmanHarris)).unwrap().analyse(&samples).unwrap();
    assert!((summary.peaks()[0].frequency_hz - 203.3).abs() < 0.05);
    assert!((summary.sinad_db - 36.99).abs() < 0.2, "{summary:?}");
}

#[test]
fn a_complex_tone_near_zero_frequency_is_found() {
    let mut spectrum = Spectrum::new(&config(256, Window::Hann)).unwrap();
    let summary = spectrum.analyse(&iq(&[(-0.2, 1000.0)], 256, 4096, 5.0, 2)).unwrap();
    assert!((summary.peaks()[0].frequency_hz + 0.2).abs() < 0.03, "{summary:?}");
}

#[test]
fn invalid_configurations_are_refused() {
    let good = SpectrumConfig::new(1024, 1e6);
    for fft in [0, 62, 65, MAX_FFT + 2] {
        assert_eq!(Spectrum::<i16>::new(&SpectrumConfig { fft, ..good }).err(), Some(SpectrumError::Fft(fft)));
    }
    assert!(Spectrum::<i16>::new(&SpectrumConfig { hop: 0, ..good }).is_err());
    assert!(Spectrum::<i16>::new(&SpectrumConfig { hop: 1025, ..good }).is_err());
    assert!(Spectrum::<i16>::new(&SpectrumConfig { sample_rate_hz: f64::NAN, ..good }).is_err());
    assert!(Spectrum::<i16>::new(&SpectrumConfig { threshold_db: -1.0, ..good }).is_err());
}
