use super::scene::Scatterer;
use super::*;
use crate::probe::Config;
use crate::probe::patterns::Patterns;
use crate::probe::samples::Source;
use shotline_memory::{MemoryError, Registrar};
use shotline_wire::shot::Packing;

const RATE_HZ: f64 = 40e6;

fn array(degrees: &[f64]) -> Array {
    Array { angles_rad: degrees.iter().map(|angle| angle.to_radians()).collect(), ..Array::default() }
}

fn config() -> Config {
    let phantom = Some(Phantom { phases: 4, seed: 1 });
    Config { channels: 16, samples: Some(800), phantom, array: Some(array(&[-5.0, 5.0])), ..Config::default() }
}

fn echoes(config: &Config) -> Echoes {
    let source = Source::new(config).unwrap();
    let array = config.described_array().unwrap();
    Echoes::new(&array, &config.phantom.unwrap(), usize::from(config.links) * 16, source.geometry(), |_| 0).unwrap()
}

/// Returns the samples of exact scatterers.
fn exact(acquisition: &Acquisition, scatterers: &[Scatterer]) -> Vec<Vec<f32>> {
    tissue::tissue(acquisition, scatterers, &[])
}

/// Returns the time of the largest sample in samples, by a parabola through its neighbours.
fn peak(trace: &[f32]) -> f64 {
    let at = (1..trace.len() - 1).max_by(|a, b| trace[*a].total_cmp(&trace[*b])).unwrap();
    let [before, top, after] = [at - 1, at, at + 1].map(|at| f64::from(trace[at]));
    at as f64 + 0.5 * (before - after) / (before - 2.0 * top + after)
}

/// Returns an element's samples.
fn trace(samples: &[f32], elements: usize, element: usize) -> Vec<f32> {
    samples.iter().skip(element).step_by(elements).copied().collect()
}

#[test]
fn echo_of_a_scatterer_has_its_two_way_delay() {
    let mut array = array(&[-10.0, 0.0, 7.0]);
    array.initial_time_s = 3.1e-6;
    let acquisition = Acquisition::new(&array, 64, 1200, RATE_HZ, 0.01);
    let (x, z) = (-2.3e-3, 12.34e-3);
    let samples = exact(&acquisition, &[Scatterer { x_m: x, z_m: z, amplitude: 1.0 }]);
    for (angle, samples) in array.angles_rad.iter().zip(&samples) {
        for (element, at) in array.x_m(64).into_iter().enumerate() {
            let path = x * angle.sin() + z * angle.cos() + (x - at).hypot(z);
            let expected = (path / array.sound_speed_m_s - array.initial_time_s) * RATE_HZ;
            let found = peak(&trace(samples, 64, element));
            assert!((found - expected).abs() < 0.05, "element {element}, {angle} rad: {found}, expected {expected}");
        }
    }
}

#[test]
fn mirrored_scatterers_and_angles_have_mirrored_echoes() {
    let acquisition = Acquisition::new(&array(&[6.0, -6.0]), 32, 800, RATE_HZ, 0.01);
    let at = |x_m| [Scatterer { x_m, z_m: 0.009, amplitude: 0.7 }];
    let (left, right) = (exact(&acquisition, &at(-0.002)), exact(&acquisition, &at(0.002)));
    for element in 0..32 {
        let (here, mirrored) = (trace(&left[0], 32, element), trace(&right[1], 32, 31 - element));
        assert!(here.iter().any(|value| value.abs() > 0.1));
        here.iter().zip(&mirrored).for_each(|(here, there)| assert!((here - there).abs() < 1e-3));
    }
}

#[test]
fn echoes_weaken_with_distance_and_angle() {
    let acquisition = Acquisition::new(&array(&[0.0]), 64, 1200, RATE_HZ, 0.01);
    let energy = |z_m, element| {
        let samples = exact(&acquisition, &[Scatterer { x_m: 0.15e-3, z_m, amplitude: 1.0 }]);
        trace(&samples[0], 64, element).iter().map(|value| value * value).sum::<f32>()
    };
    let (near, far, oblique) = (energy(0.005, 32), energy(0.02, 32), energy(0.005, 63));
    assert!((near / far - 4.0).abs() < 0.05, "a quarter of the distance: four times the energy: {near}, {far}");
    assert!(oblique < 0.04 * near, "{oblique}, {near}");
}

#[test]
fn rounded_echoes_of_speckle_are_those_of_exact_delays() {
    let mut array = array(&[-8.0, 3.0]);
    array.initial_time_s = 1.7e-6;
    let acquisition = Acquisition::new(&array, 24, 700, RATE_HZ, 0.01);
    let mut random = SplitMix64::new(1);
    let mut between = |low: f64, high: f64| low + random.next_f64() * (high - low);
    let scatterer = |_| Scatterer {
        x_m: between(-0.005, 0.005),
        z_m: between(0.0, 0.02), // some echoes are before or after the samples
        amplitude: between(-1.0, 1.0),
    };
    let scatterers: Vec<_> = (0..500).map(scatterer).collect();
    let expected = exact(&acquisition, &scatterers);
    let found = tissue::tissue(&acquisition, &[], &scatterers);
    for (expected, found) in expected.iter().zip(&found) {
        let power: f32 = expected.iter().map(|value| value * value).sum();
        let error: f32 = expected.iter().zip(found).map(|(value, found)| (value - found).powi(2)).sum();
        // Rounding to 32 points per period gives 0.32 %.
        assert!(error < 5e-3 * power, "{error} of {power}");
    }
}

#[test]
fn speckle_fills_the_field_except_the_cyst() {
    let scene = Scene::new(&array(&[0.0]), 192, &(0.0..38.5e-3), 24);
    assert_eq!(scene.speckle.in_cell, 10.0, "enough for fully developed speckle");
    let (wavelength_m, cyst) = (1540.0 / 5e6, &scene.cyst);
    let scatterers = scene.speckle(wavelength_m, 1);
    assert!(scatterers.iter().all(|at| (at.x_m - cyst.x_m).hypot(at.z_m - cyst.z_m) > cyst.radius_m));
    // Squares of 2.75 mm, without those that touch the cyst.
    let side = 2.75e-3;
    let expected = 10.0 * (side / wavelength_m).powi(2) / 1.3;
    for (column, row) in (-10..10).flat_map(|column| (0..14).map(move |row| (column, row))) {
        let (x, z) = (f64::from(column) * side, f64::from(row) * side);
        let middle = (x + side / 2.0 - cyst.x_m).hypot(z + side / 2.0 - cyst.z_m);
        if middle > cyst.radius_m + side {
            let is_inside = |at: &&Scatterer| (x..x + side).contains(&at.x_m) && (z..z + side).contains(&at.z_m);
            let found = scatterers.iter().filter(is_inside).count() as f64;
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found} at {x} m, {z} m, expected {expected}");
        }
    }
    let large = Scene::new(&Array { centre_hz: 15e6, ..array(&[0.0]) }, 192, &(0.0..0.1), 24);
    let scatterers = large.speckle(1540.0 / 15e6, 1).len();
    assert!(large.speckle.in_cell < 10.0 && (490_000..500_000).contains(&scatterers), "{scatterers}");
}

#[test]
fn wall_moves_by_its_amplitude() {
    let echoes = echoes(&config());
    let Wall { z_m, amplitude_m, phases } = echoes.scene().wall;
    assert_eq!(phases, 4);
    let depth = |phase, wave: usize| {
        let mut trace = vec![0.0; 800];
        let depth_m = echoes.scene().wall.depth_m(phase);
        echoes.acquisition.wall(wave, depth_m, 16..17, |sample, _, value| trace[sample] = value);
        let x = echoes.report().array.x_m(32)[16];
        let angle = echoes.report().array.angles_rad[wave];
        (peak(&trace) / RATE_HZ * 1540.0 - x * angle.sin()) / (2.0 * angle.cos())
    };
    for wave in 0..2 {
        for (phase, offset) in [(0, 0.0), (1, 1.0), (2, 0.0), (3, -1.0), (4, 0.0)] {
            let (found, expected) = (depth(phase, wave), z_m + offset * amplitude_m);
            assert!((found - expected).abs() < 2e-6, "phase {phase}: {found} m, expected {expected} m");
        }
    }
    assert_eq!(amplitude_m, 0.5 * 1540.0 / 5e6);
}

#[test]
fn samples_use_the_full_scale_without_clipping() {
    for (packing, bits) in [(Packing::Packed12, 12), (Packing::Int16Le, 16), (Packing::Uint8, 8)] {
        let config = Config { packing, bits, ..config() };
        let echoes = echoes(&config);
        let max = (1 << (bits - 1)) - 1;
        let largest = (0..echoes.period())
            .flat_map(|shot| echoes.time_major(shot, 0..32, 800))
            .map(|sample| i32::from(sample).abs())
            .max();
        assert!(largest.is_some_and(|largest| largest > max * 98 / 100 && largest <= max), "{largest:?} of {max}");
    }
}

#[test]
fn shots_repeat_and_depend_on_the_seed() {
    let first = echoes(&config());
    assert_eq!(first.period(), 8);
    let shot = |echoes: &Echoes, shot| echoes.time_major(shot, 16..32, 800);
    let again = echoes(&config());
    let mut other = config();
    other.phantom.as_mut().unwrap().seed = 2;
    let other = echoes(&other);
    for number in 0..8 {
        assert_eq!(shot(&first, number), shot(&again, number));
        assert_ne!(shot(&first, number), shot(&other, number));
        assert_ne!(shot(&first, number), shot(&first, (number + 1) % 8));
        let part = first.time_major(number, 16..32, 300);
        assert_eq!(part, shot(&first, number)[..part.len()], "fewer samples are the first ones");
    }
}

#[test]
fn every_packing_has_the_same_samples() {
    let bytes = |packing, bits| {
        let config = Config { packing, bits, ..config() };
        let source = Source::new(&config).unwrap();
        assert_eq!((source.period(), source.pattern_period()), (8, 0));
        let mut bytes = vec![0; source.geometry().sample_bytes() as usize];
        source.write(1, 0, 5, source.geometry(), &mut bytes);
        bytes
    };
    let expected = echoes(&config()).time_major(5, 16..32, 800);
    let mut unpacked = vec![0; expected.len()];
    shotline_compute::pack12::unpack(&bytes(Packing::Packed12, 12), &mut unpacked);
    assert_eq!(unpacked, expected);
    let little: Vec<u8> = expected.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    assert_eq!(bytes(Packing::Int16Le, 12), little);
    let big: Vec<u8> = expected.iter().flat_map(|sample| sample.to_be_bytes()).collect();
    assert_eq!(bytes(Packing::Int16Be, 12), big);
}

#[test]
fn low_sample_rates_and_early_ends_are_refused() {
    let refused = |config: Config| Source::new(&config).unwrap_err().to_string();
    let slow = refused(Config { sample_rate_hz: Some(10_000_000), ..config() });
    assert!(slow.contains("5 MHz needs at least 16 MS/s, found 10"), "{slow}");
    let mut early = config();
    early.array.as_mut().unwrap().initial_time_s = -30e-6;
    assert!(refused(early).contains("found -10 us"));
}

#[test]
fn phantoms_beyond_the_memory_are_refused_at_once() {
    let refused = |config: &Config| Patterns::new(config, &mut Registrar::new()).unwrap_err().to_string();
    // 4 x 10^9 distinct shots, for each of which the largest sample would be found.
    let phantom = Some(Phantom { phases: u32::MAX, seed: 1 });
    let shots = refused(&Config { phantom, ..config() });
    assert!(shots.contains("a phantom with 2 waves, 4294967295 phases and 800 samples: "), "{shots}");
    assert!(
        shots.contains(" TiB of memory are needed, and ") && shots.contains("fewer --angles, --phases or --samples")
    );
    // No shots are prepared, and the echoes alone are too large.
    let array = Some(Array { angles_rad: vec![0.0; 1_000_000], ..array(&[]) });
    let config = Config { links: 255, channels: 960, array, ..config() };
    let echoes = Source::new(&config).unwrap_err().to_string();
    assert!(echoes.contains("a phantom with 1000000 waves, 4 phases and 800 samples: "), "{echoes}");
}

#[test]
fn memory_of_shots_and_of_echoes_is_added() {
    let prepared = |bytes: u64| {
        Source::before(&config(), |period, geometry| {
            assert_eq!((period, geometry.samples()), (8, 800));
            bytes
        })
    };
    assert!(prepared(1 << 20).is_ok());
    let refused = prepared(1 << 60).unwrap_err();
    let SampleError::PhantomMemory { source: MemoryError::TooLarge { requested, .. }, .. } = refused else {
        panic!("{refused}")
    };
    // Two waves, 32 elements, 800 samples of 4 bytes.
    assert_eq!(requested, (1 << 60) + 2 * 32 * 800 * 4);
}
