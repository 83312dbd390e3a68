use super::kernel::portable_kernels;
use super::*;
use crate::pack12;
use crate::ultrasound::Array;
use proptest::prelude::*;
use shotline_wire::shot::Packing;

const RATE: f64 = 20e6;

fn config(elements: usize, samples: usize, grid: Grid) -> BeamformerConfig {
    BeamformerConfig { grid, ..BeamformerConfig::new(&Array::default(), elements, samples, RATE) }
}

fn small_grid() -> Grid {
    Grid { columns: 11, rows: 50, x_m: -2e-3, z_m: 0.0, column_pitch_m: 0.4e-3, row_pitch_m: 70e-6 }
}

/// Reference implementation in double precision, pixel by pixel; the traces are by wave, element and sample.
fn model(config: &BeamformerConfig, traces: &[Vec<f64>]) -> Vec<f64> {
    let speed = config.array.sound_speed_m_s;
    let elements = config.array.x_m(config.elements);
    let mut image = Vec::new();
    for x in config.grid.x() {
        for z in config.grid.z() {
            let mut sum = 0.0;
            for (wave, traces) in config.waves.iter().zip(traces.chunks(config.elements)) {
                let transmit = match *wave {
                    Wave::Plane { angle_rad } => x * angle_rad.sin() + z * angle_rad.cos(),
                    Wave::Diverging { x_m, z_m } => (x - x_m).hypot(z - z_m) - x_m.hypot(z_m),
                };
                for (element, trace) in elements.iter().zip(traces) {
                    let path = transmit + (x - element).hypot(z);
                    let time = (path / speed - config.array.initial_time_s) * config.sample_rate_hz;
                    let at =
                        |index: f64| if index < 0.0 { 0.0 } else { trace.get(index as usize).copied().unwrap_or(0.0) };
                    let whole = time.floor();
                    let value = at(whole) + (time - whole) * (at(whole + 1.0) - at(whole));
                    sum += value * model_weight(config.apodisation, x - element, z);
                }
            }
            image.push(sum);
        }
    }
    image
}

fn model_weight(apodisation: Apodisation, offset: f64, z: f64) -> f64 {
    match apodisation {
        Apodisation::None => 1.0,
        Apodisation::Boxcar { f_number } => f64::from(2.0 * f_number * offset.abs() <= z + 1e-12),
        Apodisation::Hann { f_number } => {
            let place = f_number * offset / z;
            if place.abs() < 0.5 { (std::f64::consts::PI * place).cos().powi(2) } else { 0.0 }
        }
    }
}

/// Returns noise of 12 bits in the order of shots, for each wave.
fn noise(config: &BeamformerConfig, seed: u64) -> Vec<Vec<i16>> {
    let mut random = shotline_random::SplitMix64::new(seed);
    let count = config.elements * config.samples;
    let mut sample = || (random.next_u64() >> 52) as i16 - 2048;
    config.waves.iter().map(|_| (0..count).map(|_| sample()).collect()).collect()
}

fn traces_of(config: &BeamformerConfig, shots: &[Vec<i16>]) -> Vec<Vec<f64>> {
    let trace = |shot: &[i16], element: usize| {
        shot.iter().skip(element).step_by(config.elements).map(|sample| f64::from(*sample)).collect()
    };
    shots.iter().flat_map(|shot| (0..config.elements).map(move |element| trace(shot, element))).collect()
}

fn add_all(beamformer: &mut Beamformer, shots: &[Vec<i16>]) {
    let channels = beamformer.config.elements;
    for (wave, samples) in shots.iter().enumerate() {
        beamformer.add(wave, 0, Rf::Int16 { samples, channels }).unwrap();
    }
}

fn image_of(beamformer: &mut Beamformer) -> Vec<Complex<f32>> {
    let mut image = vec![Complex::new(f32::NAN, f32::NAN); beamformer.grid().pixels()];
    beamformer.finish(&mut image).unwrap();
    image
}

/// Checks that the differences are small next to the largest value.
fn assert_close(found: &[Complex<f32>], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1.0, |largest: f64, value| largest.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (f64::from(found.re) - expected).abs() / largest;
        assert!(difference <= tolerance, "{what}: pixel {index}: {found} is not {expected} of {largest}");
    }
}

fn diverging() -> Vec<Wave> {
    vec![Wave::Diverging { x_m: 1e-3, z_m: -5e-3 }, Wave::Plane { angle_rad: 0.2 }]
}

fn plane_waves() -> Vec<Wave> {
    [-0.3, 0.0, 0.2].map(|angle_rad| Wave::Plane { angle_rad }).to_vec()
}

#[test]
fn every_kernel_and_apodisation_match_the_model() {
    let weights = [Apodisation::None, Apodisation::Boxcar { f_number: 1.0 }, Apodisation::Hann { f_number: 0.7 }];
    // Rows at several distances: windows of two, four and eight registers, some exactly filled, and none.
    for row_pitch_m in [1e-6, 30e-6, 77e-6, 120e-6, 154e-6, 250e-6, 500e-6] {
        for apodisation in weights {
            for waves in [plane_waves(), diverging()] {
                let grid = Grid { row_pitch_m, ..small_grid() };
                let config = BeamformerConfig { apodisation, waves, ..config(13, 150, grid) };
                let shots = noise(&config, 1);
                let expected = model(&config, &traces_of(&config, &shots));
                for quadrature in [Quadrature::Channels, Quadrature::Columns] {
                    check_kernels(&BeamformerConfig { quadrature, ..config.clone() }, &shots, &expected);
                }
            }
        }
    }
}

fn check_kernels(config: &BeamformerConfig, shots: &[Vec<i16>], expected: &[f64]) {
    let pitch = config.grid.row_pitch_m * config.samples_per_m();
    #[cfg(target_arch = "x86_64")]
    let kernels = sys::available(pitch);
    #[cfg(not(target_arch = "x86_64"))]
    let kernels = std::iter::empty();
    for kernels in kernels.chain([portable_kernels()]) {
        let mut beamformer = Beamformer::new(config).unwrap();
        beamformer.kernels = kernels;
        // Twice, so that nothing is left from the first frame.
        for _ in 0..2 {
            add_all(&mut beamformer, shots);
            let what = format!("{} {pitch} {:?}", kernels.name, config.apodisation);
            assert_close(&image_of(&mut beamformer), expected, 2e-4, &what);
        }
    }
}

#[test]
fn every_packing_and_links_give_the_same_image() {
    let config = config(12, 90, small_grid());
    let shots = noise(&config, 2);
    let mut beamformer = Beamformer::new(&config).unwrap();
    let small: Vec<i16> = shots[0].iter().map(|sample| sample >> 4).collect();
    add_all(&mut beamformer, std::slice::from_ref(&small));
    let expected = image_of(&mut beamformer);
    for packing in Packing::ALL {
        // Three links of four channels, the last one first.
        for link in [2, 1, 0] {
            let samples: Vec<i16> = small.chunks(12).flat_map(|row| row[4 * link..][..4].to_vec()).collect();
            let bytes = packed(packing, &samples);
            let rf = Rf::Shot { bytes: &bytes, packing, channels: 4 };
            beamformer.add(0, 4 * link, rf).unwrap();
        }
        assert_eq!(image_of(&mut beamformer), expected, "{packing:?}");
    }
    let traces = traces_of(&config, &[small]);
    let values: Vec<f32> = traces.concat().iter().map(|value| *value as f32).collect();
    beamformer.add(0, 0, Rf::Channels(&values)).unwrap();
    assert_eq!(image_of(&mut beamformer), expected);
}

fn packed(packing: Packing, samples: &[i16]) -> Vec<u8> {
    match packing {
        Packing::Int16Le => samples.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
        Packing::Int16Be => samples.iter().flat_map(|sample| sample.to_be_bytes()).collect(),
        Packing::Uint8 => samples.iter().map(|sample| (sample + 128) as u8).collect(),
        Packing::Packed12 => {
            let mut bytes = vec![0; pack12::packed_bytes(samples.len())];
            pack12::pack(samples, &mut bytes);
            bytes
        }
    }
}

#[test]
fn missing_waves_and_links_are_zero() {
    let config = BeamformerConfig { waves: plane_waves(), ..config(12, 90, small_grid()) };
    let mut shots = noise(&config, 3);
    let mut beamformer = Beamformer::new(&config).unwrap();
    assert_eq!(image_of(&mut beamformer), vec![Complex::default(); config.grid.pixels()]);
    // A complete frame first, whose samples must not appear again.
    add_all(&mut beamformer, &shots);
    image_of(&mut beamformer);
    shots[0].fill(0);
    shots[1].iter_mut().enumerate().for_each(|(index, sample)| *sample *= i16::from(index % 12 < 6));
    let half: Vec<i16> = shots[1].chunks(12).flat_map(|row| row[..6].to_vec()).collect();
    beamformer.add(1, 0, Rf::Int16 { samples: &half, channels: 6 }).unwrap();
    beamformer.add(2, 0, Rf::Int16 { samples: &shots[2], channels: 12 }).unwrap();
    let expected = model(&config, &traces_of(&config, &shots));
    assert_close(&image_of(&mut beamformer), &expected, 2e-4, "missing");
}

#[test]
fn pixels_outside_of_the_recorded_time_are_zero() {
    for initial_time_s in [-1e-3, 1e-3] {
        let mut config = BeamformerConfig { waves: diverging(), ..config(12, 90, small_grid()) };
        config.array.initial_time_s = initial_time_s;
        let mut beamformer = Beamformer::new(&config).unwrap();
        add_all(&mut beamformer, &noise(&config, 4));
        assert_eq!(image_of(&mut beamformer), vec![Complex::default(); config.grid.pixels()]);
    }
}

/// Returns the samples of a point's echo of the waves, a pulse of 5 MHz with a Gaussian envelope.
fn point(config: &BeamformerConfig, [x, z]: [f64; 2]) -> Vec<Vec<f32>> {
    let elements = config.array.x_m(config.elements);
    let echo = |wave: &Wave, element: f64, sample: usize| {
        let transmit = match *wave {
            Wave::Plane { angle_rad } => x * angle_rad.sin() + z * angle_rad.cos(),
            Wave::Diverging { x_m, z_m } => (x - x_m).hypot(z - z_m) - x_m.hypot(z_m),
        };
        let arrival = (transmit + (x - element).hypot(z)) / config.array.sound_speed_m_s;
        let time = config.array.initial_time_s + sample as f64 / config.sample_rate_hz - arrival;
        let phase = std::f64::consts::TAU * config.array.centre_hz * time;
        (phase.cos() * (-(time / 0.2e-6).powi(2)).exp() * 1000.0) as f32
    };
    let samples = 0..config.samples;
    let of = |wave| elements.iter().flat_map(|x| samples.clone().map(move |n| echo(wave, *x, n))).collect();
    config.waves.iter().map(of).collect()
}

#[test]
fn a_point_appears_at_its_place_with_its_width() {
    let grid = Grid { columns: 81, rows: 400, x_m: -4e-3, z_m: 10e-3, column_pitch_m: 0.1e-3, row_pitch_m: 25e-6 };
    let place = [1.5e-3, 15e-3];
    for waves in [plane_waves(), vec![Wave::Diverging { x_m: 0.0, z_m: -10e-3 }]] {
        for quadrature in [Quadrature::Channels, Quadrature::Columns] {
            let apodisation = Apodisation::Boxcar { f_number: 2.0 };
            let config = BeamformerConfig { waves: waves.clone(), apodisation, quadrature, ..config(64, 800, grid) };
            let mut beamformer = Beamformer::new(&config).unwrap();
            for (wave, samples) in point(&config, place).iter().enumerate() {
                beamformer.add(wave, 0, Rf::Channels(samples)).unwrap();
            }
            let envelope: Vec<f32> = image_of(&mut beamformer).iter().map(|value| value.norm()).collect();
            let brightest = (0..envelope.len()).max_by(|a, b| envelope[*a].total_cmp(&envelope[*b])).unwrap();
            let (column, row) = (brightest / 400, brightest % 400);
            assert_eq!(column, 55, "1.5 mm");
            assert!(row.abs_diff(200) <= 1, "15 mm, found row {row}");
            // The 6 dB width of an aperture without weights is 1.2 wavelengths times the f-number; tilted waves
            // reduce it.
            let bright = |column: &usize| envelope[column * 400 + row] > envelope[brightest] / 2.0;
            let width = (0..81).filter(bright).count() as f64 * grid.column_pitch_m;
            assert!((0.3e-3..=0.8e-3).contains(&width), "{width}");
        }
    }
}

#[test]
fn wrong_data_are_refused_and_change_nothing() {
    let config = config(12, 90, small_grid());
    let mut beamformer = Beamformer::new(&config).unwrap();
    let samples = vec![1_i16; 12 * 90];
    let bytes = vec![1; 12 * 90];
    let rf = Rf::Int16 { samples: &samples, channels: 12 };
    assert!(matches!(beamformer.add(1, 0, rf), Err(BeamformError::Wave { .. })));
    assert!(matches!(beamformer.add(0, 1, rf), Err(BeamformError::Elements { .. })));
    assert!(matches!(beamformer.add(0, usize::MAX, rf), Err(BeamformError::Elements { .. })));
    for channels in [0, 11, usize::MAX] {
        let wrong = Rf::Int16 { samples: &samples, channels };
        assert!(matches!(beamformer.add(0, 0, wrong), Err(BeamformError::Length { .. })));
        let wrong = Rf::Shot { bytes: &bytes, packing: Packing::Packed12, channels };
        assert!(matches!(beamformer.add(0, 0, wrong), Err(BeamformError::Length { .. })));
    }
    assert!(matches!(beamformer.add(0, 0, Rf::Channels(&[0.0; 89])), Err(BeamformError::Length { .. })));
    assert!(matches!(beamformer.finish(&mut []), Err(BeamformError::Length { .. })));
    assert_eq!(image_of(&mut beamformer), vec![Complex::default(); config.grid.pixels()]);
}

#[test]
fn invalid_configurations_are_refused() {
    let good = config(12, 90, small_grid());
    let wrong = |change: fn(&mut BeamformerConfig)| {
        let mut config = good.clone();
        change(&mut config);
        Beamformer::new(&config).err().expect("it is not valid").to_string()
    };
    assert_eq!(wrong(|c| c.elements = 0), "expected 1 to 16384 elements, found 0");
    assert_eq!(wrong(|c| c.waves.clear()), "expected 1 to 4096 waves, found 0");
    assert!(wrong(|c| c.samples = usize::MAX).contains("samples"));
    assert!(wrong(|c| c.grid.rows = usize::MAX).contains("rows"));
    assert!(wrong(|c| c.grid.columns = 1 << 25).contains("pixels"));
    assert!(wrong(|c| (c.samples, c.elements) = (1 << 22, 1 << 14)).contains("8 GiB"));
    assert!(wrong(|c| c.sample_rate_hz = f64::NAN).contains("sample rate"));
    assert!(wrong(|c| c.sample_rate_hz = 1e15).contains("delay"));
    assert!(wrong(|c| c.array.sound_speed_m_s = 0.0).contains("speed"));
    assert!(wrong(|c| c.grid.z_m = -1e-3).contains("first row"));
    assert!(wrong(|c| c.grid.row_pitch_m = 0.0).contains("rows"));
    assert!(wrong(|c| c.waves[0] = Wave::Plane { angle_rad: 2.0 }).contains("angle"));
    assert!(wrong(|c| c.waves[0] = Wave::Diverging { x_m: 0.0, z_m: 1.0 }).contains("source"));
    assert!(wrong(|c| c.apodisation = Apodisation::Hann { f_number: 0.0 }).contains("f-number"));
}

#[test]
fn extreme_samples_give_finite_pixels() {
    let config = config(12, 90, small_grid());
    let mut beamformer = Beamformer::new(&config).unwrap();
    let extremes = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];
    let samples: Vec<f32> = extremes.into_iter().cycle().take(12 * 90).collect();
    beamformer.add(0, 0, Rf::Channels(&samples)).unwrap();
    assert!(image_of(&mut beamformer).iter().all(|value| value.norm_sqr().is_finite()));
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => -1.0..1.0_f64,
        4 => (-9_i32..3, -1.0..1.0_f64).prop_map(|(power, value)| value * 10_f64.powi(power)),
        1 => any::<f64>(),
    ]
}

fn wave() -> impl Strategy<Value = Wave> {
    let diverging = (number(), number()).prop_map(|(x_m, z_m)| Wave::Diverging { x_m, z_m: -z_m.abs() });
    prop_oneof![number().prop_map(|angle_rad| Wave::Plane { angle_rad }), diverging]
}

fn apodisation() -> impl Strategy<Value = Apodisation> {
    let f_number = || number().prop_map(f64::abs);
    prop_oneof![
        Just(Apodisation::None),
        f_number().prop_map(|f_number| Apodisation::Boxcar { f_number }),
        f_number().prop_map(|f_number| Apodisation::Hann { f_number }),
    ]
}

prop_compose! {
    fn any_config()(
        elements in 0..40_usize, samples in 0..200_usize, columns in 0..12_usize, rows in 0..60_usize,
        places in prop::array::uniform4(number()), pitch in number(), initial in number(),
        waves in prop::collection::vec(wave(), 0..4), apodisation in apodisation(), is_complex in any::<bool>(),
    ) -> BeamformerConfig {
        let [x, z, column_pitch_m, row_pitch] = places.map(|place| place * 0.01);
        let grid = Grid { columns, rows, x_m: x, z_m: z.abs(), column_pitch_m, row_pitch_m: row_pitch.abs() };
        let array = Array { pitch_m: pitch * 1e-3, initial_time_s: initial * 1e-4, ..Array::default() };
        let quadrature = if is_complex { Quadrature::Channels } else { Quadrature::Columns };
        BeamformerConfig { waves, apodisation, grid, quadrature, ..BeamformerConfig::new(&array, elements, samples, RATE) }
    }
}

proptest! {
    #[test]
    fn any_geometry_gives_finite_pixels(config in any_config(), seed in any::<u64>()) {
        if let Ok(mut beamformer) = Beamformer::new(&config) {
            add_all(&mut beamformer, &noise(&config, seed));
            prop_assert!(image_of(&mut beamformer).iter().all(|value| value.re.is_finite() && value.im.is_finite()));
        }
    }

    #[test]
    fn any_samples_are_accepted_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200), channels in 0..9_usize, element in 0..9_usize, packing in 0..4_usize,
    ) {
        let mut beamformer = Beamformer::new(&config(8, 10, small_grid())).unwrap();
        let rf = Rf::Shot { bytes: &bytes, packing: Packing::ALL[packing], channels };
        let _ = beamformer.add(0, element, rf);
        image_of(&mut beamformer);
    }
}
