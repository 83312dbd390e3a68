//! Samples of what does not move: the echoes of wires and of some hundred thousand scatterers of speckle.
//!
//! For each element and wave, the echoes are impulses in a time grid that is finer than the samples. The grid is filtered
//! by the pulse and decimated in the frequency domain, so an echo costs one addition, whatever the pulse. Elements are
//! independent, so threads share them, and the samples do not depend on the number of threads.
//!
//! Delays of wires are interpolated between points of the grid. Those of speckle are rounded, which moves a scatterer
//! whose place is random anyway by up to a hundredth of a wavelength.

use super::echoes::Acquisition;
use super::scene::Scatterer;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use std::sync::{Arc, mpsc};
use std::thread;

/// Points per period of the centre frequency in the time grid of impulses: linear interpolation between them then
/// changes the amplitude by less than 0.5 %.
const GRID_PER_PERIOD: f64 = 32.0;
/// Bits of the fraction in times of speckle, which are in points of the grid.
const FRACTION_BITS: u32 = 4;
/// Intervals in the table of an element's sensitivity from 0 to 90 degrees, equal in the sine.
const DIRECTIONS: usize = 256;

/// Returns the samples of scatterers for every wave, each in time-major order: of wires, and of speckle, whose delays
/// are rounded.
pub(super) fn tissue(acquisition: &Acquisition, wires: &[Scatterer], speckle: &[Scatterer]) -> Vec<Vec<f32>> {
    let (elements, waves) = (acquisition.elements(), acquisition.array().waves());
    let grid = Grid::new(acquisition);
    let speckle = Speckle::new(acquisition, &grid, speckle);
    let work = Work { acquisition, grid: &grid, wires, speckle: &speckle };
    let mut out = vec![vec![0.0; acquisition.samples() * elements]; waves];
    let threads = thread::available_parallelism().map_or(1, usize::from).min(elements);
    // Bounded, so that the traces in flight need little memory.
    let (finished, traces) = mpsc::sync_channel(2 * threads);
    thread::scope(|scope| {
        for first in 0..threads {
            let (work, finished) = (&work, finished.clone());
            scope.spawn(move || {
                let mut scratch = work.grid.scratch();
                for element in (first..elements).step_by(threads) {
                    // The receiver ends after the last trace.
                    let _ = finished.send((element, work.traces(element, &mut scratch)));
                }
            });
        }
        drop(finished);
        for (element, traces) in traces {
            for (out, trace) in out.iter_mut().zip(&traces) {
                out[element..].iter_mut().step_by(elements).zip(trace).for_each(|(to, from)| *to = *from);
            }
        }
    });
    out
}

/// Returns the memory of what [`tissue`] returns, in bytes.
pub(super) fn bytes(waves: usize, elements: usize, samples: u32) -> u64 {
    [waves as u64, elements as u64, samples.into(), size_of::<f32>() as u64].into_iter().fold(1, u64::saturating_mul)
}

/// Returns the memory of `scatterers` scatterers while [`tissue`] runs, in bytes.
pub(super) fn speckle_bytes(waves: usize, scatterers: usize) -> u64 {
    let each = waves * size_of::<Path>() + size_of::<Scatterer>() + size_of::<[f32; 2]>();
    (scatterers as u64).saturating_mul(each as u64)
}

/// The time grid of impulses, and its filter.
struct Grid {
    /// Points per second.
    rate_hz: f64,
    /// Time of the first point in seconds.
    start_s: f64,
    /// Samples before the first recorded one. Impulses outside the recorded time still contribute half of a pulse.
    guard: usize,
    forward: Arc<dyn RealToComplex<f32>>,
    inverse: Arc<dyn ComplexToReal<f32>>,
    /// Factors of the bins below half of the sample rate.
    response: Vec<f32>,
}

/// Buffers of a thread.
struct Scratch {
    grid: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    bins: Vec<Complex<f32>>,
    trace: Vec<f32>,
    received: Vec<Path>,
}

impl Grid {
    fn new(acquisition: &Acquisition) -> Self {
        let (rate_hz, pulse) = (acquisition.rate_hz(), acquisition.pulse());
        let guard = (pulse.half_duration_s() * rate_hz).ceil() as usize;
        let points = (acquisition.samples() + 2 * guard).next_power_of_two();
        let factor = (GRID_PER_PERIOD * acquisition.array().centre_hz / rate_hz).ceil().max(1.0) as usize;
        let mut planner = RealFftPlanner::new();
        let bin_hz = rate_hz / points as f64;
        Self {
            rate_hz: rate_hz * factor as f64,
            start_s: acquisition.array().initial_time_s - guard as f64 / rate_hz,
            guard,
            forward: planner.plan_fft_forward(points * factor),
            inverse: planner.plan_fft_inverse(points),
            response: (0..points / 2).map(|bin| (bin_hz * pulse.spectrum(bin as f64 * bin_hz)) as f32).collect(),
        }
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            grid: self.forward.make_input_vec(),
            spectrum: self.forward.make_output_vec(),
            bins: self.inverse.make_input_vec(),
            trace: self.inverse.make_output_vec(),
            received: Vec::new(),
        }
    }

    /// Filters the impulses of `scratch.grid`, which is zero afterwards, and returns the recorded samples.
    fn filter(&self, samples: usize, scratch: &mut Scratch) -> Vec<f32> {
        let Scratch { grid, spectrum, bins, trace, .. } = scratch;
        // The lengths are those of the plans, and the bins at 0 and at half of the rate are real.
        let _ = self.forward.process(grid, spectrum);
        bins.fill(Complex::default());
        for (bin, (value, response)) in bins.iter_mut().zip(spectrum.iter().zip(&self.response)).skip(1) {
            *bin = value * response;
        }
        let _ = self.inverse.process(bins, trace);
        grid.fill(0.0);
        trace[self.guard..][..samples].to_vec()
    }
}

/// Part of an echo's way, to a scatterer or back to an element: the time in points of the grid as a fixed-point number,
/// and the factor of the amplitude.
#[derive(Clone, Copy)]
struct Path {
    time: i32,
    amplitude: f32,
}

impl Path {
    fn new(points: f64, amplitude: f64) -> Self {
        Self { time: (points * f64::from(1 << FRACTION_BITS)).round() as i32, amplitude: amplitude as f32 }
    }
}

/// Speckle in single precision, which suffices because its places are random.
struct Speckle {
    places_m: Vec<[f32; 2]>,
    /// The way of each wave to each scatterer. Times begin half a point early, because they are rounded down.
    sent: Vec<Vec<Path>>,
    /// Time of a metre, as in [`Path`].
    time_per_m: f32,
    /// Sensitivity of an element by the sine of the direction, for a distance of 1 m.
    sensitivity: Vec<f32>,
    nearest_m: f32,
}

impl Speckle {
    fn new(acquisition: &Acquisition, grid: &Grid, scatterers: &[Scatterer]) -> Self {
        let sent = |wave, at: &Scatterer| {
            let (time_s, amplitude) = acquisition.transmit(wave, at);
            Path::new((time_s - grid.start_s) * grid.rate_hz + 0.5, amplitude)
        };
        let time_per_m = grid.rate_hz / acquisition.array().sound_speed_m_s * f64::from(1 << FRACTION_BITS);
        let sensitivity = |step| {
            let sine = f64::from(step as u32) / DIRECTIONS as f64;
            (acquisition.directivity(sine, (1.0 - sine * sine).sqrt()) * acquisition.spreading(1.0)) as f32
        };
        Self {
            places_m: scatterers.iter().map(|at| [at.x_m, at.z_m].map(|metres| metres as f32)).collect(),
            sent: (0..acquisition.array().waves())
                .map(|wave| scatterers.iter().map(|at| sent(wave, at)).collect())
                .collect(),
            time_per_m: time_per_m as f32,
            sensitivity: (0..=DIRECTIONS).map(sensitivity).collect(),
            nearest_m: acquisition.array().pitch_m as f32,
        }
    }

    /// Computes the ways back to an element at `x_m`.
    fn receive(&self, x_m: f32, received: &mut Vec<Path>) {
        received.clear();
        received.extend(self.places_m.iter().map(|[x, z]| {
            let across = x - x_m;
            let distance = (across * across + z * z).sqrt();
            let direction = (across.abs() / distance * DIRECTIONS as f32) as usize;
            let sensitivity = self.sensitivity.get(direction).copied().unwrap_or_default();
            let amplitude = sensitivity / distance.max(self.nearest_m).sqrt();
            Path { time: (distance * self.time_per_m) as i32, amplitude }
        }));
    }

    /// Adds the impulses of a wave to a grid. Those outside it are added to its last point, which is too late to be
    /// recorded.
    fn add(&self, wave: usize, received: &[Path], grid: &mut [f32]) {
        let Some(last) = grid.len().checked_sub(1) else { return };
        for (sent, received) in self.sent[wave].iter().zip(received) {
            let point = sent.time.wrapping_add(received.time) as u32 >> FRACTION_BITS;
            grid[last.min(point as usize)] += sent.amplitude * received.amplitude;
        }
    }
}

/// What the threads share.
struct Work<'a> {
    acquisition: &'a Acquisition,
    grid: &'a Grid,
    wires: &'a [Scatterer],
    speckle: &'a Speckle,
}

impl Work<'_> {
    /// Returns the samples of an element for every wave.
    fn traces(&self, element: usize, scratch: &mut Scratch) -> Vec<Vec<f32>> {
        let acquisition = self.acquisition;
        self.speckle.receive(acquisition.x_m(element) as f32, &mut scratch.received);
        let trace = |wave| {
            self.speckle.add(wave, &scratch.received, &mut scratch.grid);
            for wire in self.wires {
                let ((sent_s, sent), (time_s, received)) =
                    (acquisition.transmit(wave, wire), acquisition.receive(element, wire));
                let at = (sent_s + time_s - self.grid.start_s) * self.grid.rate_hz;
                add_impulse(&mut scratch.grid, at, sent * received);
            }
            self.grid.filter(acquisition.samples(), scratch)
        };
        (0..acquisition.array().waves()).map(trace).collect()
    }
}

/// Adds an impulse to a grid, between two points in proportion to its distance from them.
fn add_impulse(grid: &mut [f32], at: f64, weight: f64) {
    let before = at.floor();
    let fraction = at - before;
    if before >= 0.0
        && let Some([first, second]) = grid.get_mut(before as usize..before as usize + 2)
    {
        *first += (weight * (1.0 - fraction)) as f32;
        *second += (weight * fraction) as f32;
    }
}
