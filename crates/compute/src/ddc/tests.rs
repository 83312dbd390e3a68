use super::*;
use proptest::prelude::*;
use std::f64::consts::TAU;

/// The formula of the module documentation, in double precision.
fn reference<S: Sample>(config: &DdcConfig, input: &[S]) -> Vec<[f64; 2]> {
    let taps = config.filter.taps(config.decimation).unwrap();
    let words = S::words(input);
    let mixed: Vec<[f64; 2]> = (0..input.len())
        .map(|n| {
            let [cos, sin] = config.tuning.phasor_at(n as u64);
            let re = f64::from(words[n * S::WORDS]);
            let im = if S::WORDS == 2 { f64::from(words[2 * n + 1]) } else { 0.0 };
            [re * cos + im * sin, im * cos - re * sin]
        })
        .collect();
    (0..input.len())
        .step_by(config.decimation as usize)
        .map(|at| {
            let window = mixed[..=at].iter().rev().zip(&taps);
            let sum = window.fold([0.0; 2], |[re, im], (x, tap)| [re + x[0] * tap, im + x[1] * tap]);
            sum.map(|part| part * config.gain * conversion_gain(S::WORDS))
        })
        .collect()
}

fn run<S: Sample>(ddc: &mut Ddc<S>, input: &[S]) -> Vec<[i16; 2]> {
    let mut out = vec![[0; 2]; ddc.output_len(input.len())];
    assert_eq!(ddc.process(input, &mut out), out.len());
    out
}

/// Returns the largest difference of a real or imaginary part.
fn max_error(ours: &[[i16; 2]], reference: &[[f64; 2]]) -> f64 {
    assert_eq!(ours.len(), reference.len());
    let parts = ours.as_flattened().iter().zip(reference.as_flattened());
    parts.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

fn config(frequency: f64, decimation: u32, filter: Filter) -> DdcConfig {
    DdcConfig { decimation, filter, ..DdcConfig::tuned(Tuning::hz(frequency, 1.0).unwrap()) }
}

/// Returns a real tone. The frequency is in cycles per sample.
fn tone(frequency: f64, amplitude: f64, len: usize) -> Vec<i16> {
    (0..len).map(|n| (amplitude * (TAU * (frequency * n as f64).fract()).cos()).round() as i16).collect()
}

/// Returns the power of the steady state in decibels relative to a magnitude of `full`.
fn level_db(iq: &[[i16; 2]], full: f64) -> f64 {
    let steady = &iq[iq.len() / 2..];
    let power: f64 = steady.as_flattened().iter().map(|part| f64::from(*part).powi(2)).sum();
    10.0 * (power / steady.len() as f64 / full.powi(2)).log10()
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![
        Just(Filter::default()),
        (1_u32..6).prop_map(|stages| Filter::Cic { stages }),
        prop::collection::vec(0.01_f64..1.0, 1..90).prop_map(Filter::Taps),
    ]
}

proptest! {
    #[test]
    fn output_does_not_depend_on_the_block_boundaries(
        words in prop::collection::vec(any::<i16>(), 0..4000), cuts in prop::collection::vec(0_usize..700, 0..20),
        frequency in -0.5_f64..0.5, decimation in 1_u32..40, filter in filters(),
    ) {
        fn check<S: Sample>(config: &DdcConfig, input: &[S], cuts: &[usize]) {
            let whole = run(&mut Ddc::new(config).unwrap(), input);
            let (mut ddc, mut rest, mut pieces) = (Ddc::new(config).unwrap(), input, Vec::new());
            for cut in cuts {
                let (now, later) = rest.split_at(rest.len().min(*cut));
                pieces.extend(run(&mut ddc, now));
                rest = later;
            }
            pieces.extend(run(&mut ddc, rest));
            assert_eq!(pieces, whole);
        }
        let config = config(frequency, decimation, filter);
        check(&config, &words, &cuts);
        check(&config, words.as_chunks::<2>().0, &cuts);
    }

    #[test]
    fn output_matches_the_formula_within_two_units(
        words in prop::collection::vec(any::<i16>(), 1..2000), frequency in -0.5_f64..0.5, decimation in 1_u32..20,
        filter in filters(),
    ) {
        // Full-scale real samples of random phase would exceed the output range.
        let config = DdcConfig { gain: 0.25, ..config(frequency, decimation, filter) };
        let ours = run(&mut Ddc::new(&config).unwrap(), &words);
        prop_assert!(max_error(&ours, &reference(&config, &words)) < 2.0);
        let words = words.as_chunks::<2>().0;
        let ours = run(&mut Ddc::new(&config).unwrap(), words);
        prop_assert!(max_error(&ours, &reference(&config, words)) < 2.0);
    }

    #[test]
    fn kernels_match_the_portable_one_bit_for_bit(
        words in prop::collection::vec(prop_oneof![any::<i16>(), Just(i16::MIN), Just(i16::MAX)], 0..4000),
        frequency in -0.5_f64..0.5, decimation in 1_u32..40, filter in filters(), gain in 0.1_f64..4.0,
    ) {
        #[cfg(target_arch = "x86_64")]
        for kernel in sys::available() {
            let config = DdcConfig { gain, ..config(frequency, decimation, filter.clone()) };
            let (mut one, mut other) = (Ddc::<i16>::new(&config).unwrap(), Ddc::<i16>::new(&config).unwrap());
            (one.kernel, other.kernel) = (kernel, portable);
            prop_assert_eq!(run(&mut one, &words), run(&mut other, &words));
            prop_assert_eq!(one.clipped(), other.clipped());
        }
    }
}

#[test]
fn passband_is_flat_and_stopband_has_the_set_attenuation() {
    let (centre, decimation, amplitude) = (0.21, 8, 16_000.0);
    let level = |offset: f64| {
        let mut ddc = Ddc::new(&config(centre, decimation, Filter::default())).unwrap();
        // The offset is in units of the output's sample rate.
        level_db(&run(&mut ddc, &tone(centre + offset / f64::from(decimation), amplitude, 40_000)), amplitude)
    };
    for step in -16..=16 {
        let passed = level(0.4 * f64::from(step) / 16.0);
        assert!(passed.abs() < 0.01, "{passed} dB in the passband at {step}/16");
    }
    for offset in [0.601, 0.65, 0.7, 0.83, 1.0, 1.37, 1.9, -0.601, -0.77, -1.2] {
        let stopped = level(offset);
        assert!(stopped < -78.0, "{stopped} dB at {offset}"); // of 80, with the input's rounding
    }
    let edge = level(0.5);
    assert!((edge + 6.0).abs() < 0.2, "{edge} dB at the edge of the band");
}

#[test]
fn a_full_scale_tone_has_the_configured_gain() {
    for (filter, gain) in
        [(Filter::default(), 1.0), (Filter::Cic { stages: 5 }, 0.5), (Filter::Taps(vec![1.0; 64]), 0.1)]
    {
        for decimation in [4, 64, 1000] {
            let config = DdcConfig { gain, ..config(0.1234, decimation, filter.clone()) };
            let mut ddc = Ddc::<[i16; 2]>::new(&config).unwrap();
            let input: Vec<_> = (0..200_000)
                .map(|n| {
                    let (sin, cos) = (TAU * (0.1234 * f64::from(n)).fract()).sin_cos();
                    [cos, sin].map(|part| (32_000.0 * part).round() as i16)
                })
                .collect();
            let iq = run(&mut ddc, &input);
            let last = iq[iq.len() - 1].map(f64::from);
            assert!(
                (last[0] - 32_000.0 * gain).abs() <= 1.0 && last[1].abs() <= 1.0,
                "{last:?} {filter:?} {decimation}"
            );
        }
    }
}

#[test]
fn phase_is_exact_after_trillions_of_samples() {
    // At a third of a cycle per sample the exact phase is known at any sample.
    let config = DdcConfig { decimation: 7, ..DdcConfig::tuned(Tuning::ratio(1, 3).unwrap()) };
    let mut ddc = Ddc::<i16>::new(&config).unwrap();
    ddc.count = 256 * 3 * 1_000_000_000; // output samples; 5.376e12 input samples, a multiple of 3
    let far = run(&mut ddc, &tone(1.0 / 3.0, 30_000.0, 10_000));
    let near = run(&mut Ddc::new(&config).unwrap(), &tone(1.0 / 3.0, 30_000.0, 10_000));
    for (far, near) in far.iter().zip(&near) {
        assert!((far[0] - near[0]).abs() <= 1 && (far[1] - near[1]).abs() <= 1, "{far:?} {near:?}");
    }
}

#[test]
fn values_beyond_16_bits_are_clipped_and_counted() {
    let config = DdcConfig { gain: 2.0, ..config(0.0, 1, Filter::Taps(vec![1.0])) };
    let mut ddc = Ddc::<[i16; 2]>::new(&config).unwrap();
    let out = run(&mut ddc, &[[16_383, -16_384], [16_384, -16_385], [i16::MAX, i16::MIN]]);
    assert_eq!(out, [[32_766, -32_768], [32_767, -32_768], [32_767, -32_768]]);
    assert_eq!(ddc.clipped(), 4);
}

#[test]
fn halves_are_rounded_to_even() {
    let config = DdcConfig { gain: 0.5, ..config(0.0, 1, Filter::Taps(vec![1.0])) };
    let out = run(&mut Ddc::<[i16; 2]>::new(&config).unwrap(), &[[1, -1], [3, -3], [5, -5], [2, -2]]);
    assert_eq!(out, [[0, 0], [2, -2], [2, -2], [1, -1]]);
}

#[test]
fn delay_is_that_of_the_filter() {
    let mut ddc = Ddc::<[i16; 2]>::new(&config(0.0, 1, Filter::Sinc { passband: 0.5, attenuation_db: 60.0 })).unwrap();
    let mut input = vec![[0, 0]; 40];
    input[0] = [20_000, 0];
    let out = run(&mut ddc, &input);
    let strongest = (0..out.len()).max_by_key(|n| out[*n][0]).unwrap();
    assert_eq!(ddc.delay().round() as usize, strongest);
}

#[test]
#[should_panic(expected = "2 output samples do not fit a slice of 1")]
fn a_short_output_is_refused() {
    let mut ddc = Ddc::<i16>::new(&config(0.1, 8, Filter::default())).unwrap();
    ddc.process(&[0; 9], &mut [[0; 2]]);
}

#[test]
fn invalid_configurations_are_refused() {
    let good = config(0.1, 8, Filter::default());
    assert!(Ddc::<i16>::new(&DdcConfig { decimation: 0, ..good.clone() }).is_err());
    assert!(Ddc::<i16>::new(&DdcConfig { decimation: MAX_DECIMATION + 1, ..good.clone() }).is_err());
    for gain in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Ddc::<i16>::new(&DdcConfig { gain, ..good.clone() }).is_err());
    }
}
