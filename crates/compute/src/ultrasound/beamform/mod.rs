//! Images of echoes by delay and sum.
//!
//! The value of a pixel is the sum, over the waves of a frame and the elements of the array, of the sample at the time at
//! which an echo from the pixel arrives: when the wave reaches the pixel, plus the path from there to the element. Between
//! two samples it is interpolated linearly; before the first and after the last sample the signal is zero. The weights of
//! the elements follow the depth ([`Apodisation`]). Sums are not normalised by the weights.
//!
//! Samples are kept as one trace per wave and element. When all waves of a frame have been added, the image is computed
//! column by column: the path to an element is then computed once for all waves.
//!
//! ```
//! use shotline_compute::ultrasound::{Array, Beamformer, BeamformerConfig, Display, Reference, Rf};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let array = Array::default();
//! let mut beamformer = Beamformer::new(&BeamformerConfig::new(&array, 32, 1000, 20e6))?;
//! let samples = vec![0_i16; 32 * 1000];
//! for wave in 0..array.waves() {
//!     beamformer.add(wave, 0, Rf::Int16 { samples: &samples, channels: 32 })?;
//! }
//! let grid = *beamformer.grid();
//! let (mut image, mut picture) = (vec![Default::default(); grid.pixels()], vec![0; grid.pixels()]);
//! beamformer.finish(&mut image)?;
//! Display::new(60.0, Reference::Maximum)?.draw(&image, grid.columns, &mut picture)?;
//! # Ok(()) }
//! ```

mod config;
mod kernel;
mod rf;
#[cfg(target_arch = "x86_64")]
mod sys;

#[cfg(test)]
mod tests;

pub use config::{Apodisation, BeamformError, BeamformerConfig, Grid, Quadrature};
pub use rf::Rf;

use super::Wave;
use super::hilbert::Hilbert;
use kernel::{GROUP, Kernels, MARGIN, Task, Trace, Weight};
use realfft::num_complex::Complex;
use rf::Converter;

/// Columns that are computed together, so that they are summed in the cache while the traces pass through it.
const BLOCK: usize = 8;

/// Images of one configuration by delay and sum. All memory is allocated at construction.
pub struct Beamformer {
    config: BeamformerConfig,
    kernels: Kernels,
    converter: Converter,
    hilbert: Hilbert,
    /// Values of a trace, and rows of a column, with padding.
    stride: usize,
    padded: usize,
    /// Real and imaginary parts of the traces, by wave and element.
    parts: [Vec<f32>; 2],
    /// Traces of this frame that have been added.
    added: Vec<bool>,
    /// Positions in samples of path.
    elements: Vec<f64>,
    columns: Vec<f64>,
    z: Vec<f32>,
    /// Plane waves: offset and increase of the delay with x, and with z. Otherwise `delays` counts for all waves.
    planes: Vec<[f64; 3]>,
    /// Transmit delays by wave, column and row, if a wave is not plane.
    delays: Vec<f32>,
    /// Sums of a block of columns.
    sums: [Vec<f32>; 2],
    /// Traces of an element.
    traces: Vec<Trace>,
}

impl Beamformer {
    /// Computes the tables and allocates the buffers.
    ///
    /// # Errors
    /// If the configuration is not valid or too large.
    pub fn new(config: &BeamformerConfig) -> Result<Self, BeamformError> {
        let grid = &config.grid;
        let stride = kernel::stride(config.samples.min(isize::MAX as usize / 2));
        let padded = grid.rows.min(isize::MAX as usize / 2).next_multiple_of(GROUP);
        config.check(stride, padded)?;
        let scale = config.samples_per_m();
        let traces = config.waves.len() * config.elements;
        let is_complex = config.quadrature == Quadrature::Channels;
        let planes: Option<Vec<_>> = config.waves.iter().map(|wave| plane(config, wave)).collect();
        let delays = if planes.is_some() { Vec::new() } else { delays(config, padded) };
        let depth = |row: usize| ((grid.z_m + row as f64 * grid.row_pitch_m) * scale) as f32;
        let imaginary = |length: usize| if is_complex { vec![0.0; length] } else { Vec::new() };
        let columns = BLOCK.min(grid.columns);
        Ok(Self {
            kernels: select_kernels(grid.row_pitch_m * scale),
            converter: Converter::new(config.elements),
            hilbert: Hilbert::new(if is_complex { config.samples } else { grid.rows }),
            stride,
            padded,
            parts: [vec![0.0; traces * stride], imaginary(traces * stride)],
            added: vec![false; traces],
            elements: config.array.x_m(config.elements).iter().map(|x| x * scale).collect(),
            columns: grid.x().map(|x| x * scale).collect(),
            z: (0..padded).map(depth).collect(),
            planes: planes.unwrap_or_default(),
            delays,
            sums: [vec![0.0; columns * padded], imaginary(columns * padded)],
            traces: vec![Trace::default(); config.waves.len()],
            config: config.clone(),
        })
    }

    /// Returns the grid of the image.
    pub fn grid(&self) -> &Grid {
        &self.config.grid
    }

    /// Returns the configuration.
    pub fn config(&self) -> &BeamformerConfig {
        &self.config
    }

    /// Adds samples of a wave, from element `element` on: those of one link, or of all. They replace those added before
    /// for the same wave and elements. Whatever is not added until the frame is finished is zero.
    ///
    /// # Errors
    /// If there is no such wave or element, or the number of samples is not that of the configuration. Then nothing has
    /// changed.
    pub fn add(&mut self, wave: usize, element: usize, rf: Rf<'_>) -> Result<(), BeamformError> {
        let BeamformerConfig { elements, samples, .. } = self.config;
        let waves = self.config.waves.len();
        if wave >= waves {
            return Err(BeamformError::Wave { wave, waves });
        }
        let channels = rf.channels(samples)?;
        if element.checked_add(channels).is_none_or(|end| end > elements) {
            return Err(BeamformError::Elements { element, channels, elements });
        }
        let first = wave * elements + element;
        let range = first * self.stride..(first + channels) * self.stride;
        let [real, imaginary] = &mut self.parts;
        self.converter.convert(rf, channels, samples, &mut real[range.clone()], self.stride);
        if self.config.quadrature == Quadrature::Channels {
            let traces = real[range.clone()].chunks_exact(self.stride);
            for (real, imaginary) in traces.zip(imaginary[range].chunks_exact_mut(self.stride)) {
                let samples = MARGIN..MARGIN + samples;
                self.hilbert.transform(&real[samples.clone()], &mut imaginary[samples]);
            }
        }
        self.added[first..first + channels].fill(true);
        Ok(())
    }

    /// Computes the image of the waves added since the last frame, and begins the next frame. The image is in columns: the
    /// pixel of column `c` and row `r` has the index `c * rows + r`. Its magnitude is the envelope.
    ///
    /// # Errors
    /// If the image has not as many values as the grid has pixels.
    pub fn finish(&mut self, image: &mut [Complex<f32>]) -> Result<(), BeamformError> {
        let (expected, found) = (self.config.grid.pixels(), image.len());
        if expected != found {
            return Err(BeamformError::Length { unit: "pixels", expected, found });
        }
        let rows = self.config.grid.rows;
        for (block, image) in image.chunks_mut(BLOCK * rows).enumerate() {
            let count = image.len() / rows;
            self.sums.iter_mut().for_each(|sums| sums.fill(0.0));
            self.sum(block * BLOCK, count);
            for (column, image) in image.chunks_exact_mut(rows).enumerate() {
                self.copy_column(column, image);
            }
        }
        self.added.fill(false);
        Ok(())
    }

    /// Adds all elements to the sums of `count` columns.
    fn sum(&mut self, first: usize, count: usize) {
        for element in 0..self.config.elements {
            for column in first..first + count {
                let offset = self.elements[element] - self.columns[column];
                let (first_row, weight) = self.weight(offset);
                if first_row >= self.config.grid.rows {
                    continue;
                }
                let traces = self.collect_traces(element, column);
                let task = Task {
                    parts: self.parts.each_ref().map(Vec::as_slice),
                    stride: self.stride,
                    traces: &self.traces[..traces],
                    delays: &self.delays,
                    offset2: (offset * offset) as f32,
                    z: &self.z,
                    first: first_row,
                    weight,
                };
                let range = (column - first) * self.padded..(column - first + 1) * self.padded;
                let [real, imaginary] = &mut self.sums;
                if imaginary.is_empty() {
                    (self.kernels.real)(&task, [&mut real[range], &mut []]);
                } else {
                    (self.kernels.complex)(&task, [&mut real[range.clone()], &mut imaginary[range]]);
                }
            }
        }
    }

    /// Collects the traces of an element that have been added; returns their number.
    fn collect_traces(&mut self, element: usize, column: usize) -> usize {
        let mut count = 0;
        for wave in 0..self.config.waves.len() {
            let index = wave * self.config.elements + element;
            if self.added[index] {
                let [offset, slope_x, slope_z] = self.planes.get(wave).copied().unwrap_or_default();
                self.traces[count] = Trace {
                    start: index * self.stride,
                    offset: (offset + slope_x * self.columns[column]) as f32,
                    slope: slope_z as f32,
                    table: (wave * self.columns.len() + column) * self.padded,
                };
                count += 1;
            }
        }
        count
    }

    /// Returns the first row in which an element at this distance from the column counts, and its weight from there on.
    fn weight(&self, offset: f64) -> (usize, Weight) {
        let (f_number, is_hann) = match self.config.apodisation {
            Apodisation::None => return (0, Weight::One),
            Apodisation::Boxcar { f_number } => (f_number, false),
            Apodisation::Hann { f_number } => (f_number, true),
        };
        let grid = &self.config.grid;
        // The depth at which the element is at the edge of the aperture, and its row.
        let edge = 2.0 * f_number * offset.abs();
        let row = (edge / self.config.samples_per_m() - grid.z_m) / grid.row_pitch_m;
        // A rounding error must not exclude the row at the edge. The cast saturates.
        let first = (row - 1e-9).ceil().max(0.0) as usize;
        (first, if is_hann { Weight::Hann((edge * edge) as f32) } else { Weight::One })
    }

    /// Copies a column from the sums into the image.
    fn copy_column(&mut self, column: usize, image: &mut [Complex<f32>]) {
        let start = column * self.padded;
        let [real, imaginary] = &mut self.sums;
        let real = &real[start..start + image.len()];
        if imaginary.is_empty() {
            return join(real, self.hilbert.transformed(real), image);
        }
        join(real, &imaginary[start..], image);
    }
}

fn join(real: &[f32], imaginary: &[f32], image: &mut [Complex<f32>]) {
    for ((image, real), imaginary) in image.iter_mut().zip(real).zip(imaginary) {
        *image = Complex::new(*real, *imaginary);
    }
}

/// Returns the delay of a plane wave in samples: at the origin, and its increase with x and z in samples.
fn plane(config: &BeamformerConfig, wave: &Wave) -> Option<[f64; 3]> {
    match *wave {
        Wave::Plane { angle_rad } => {
            let (sin, cos) = angle_rad.sin_cos();
            Some([-config.array.initial_time_s * config.sample_rate_hz, sin, cos])
        }
        Wave::Diverging { .. } => None,
    }
}

/// Returns the transmit delays by wave, column and row in samples.
fn delays(config: &BeamformerConfig, padded: usize) -> Vec<f32> {
    let (grid, scale) = (&config.grid, config.samples_per_m());
    let mut delays = Vec::with_capacity(config.waves.len() * grid.columns * padded);
    for wave in &config.waves {
        for x in grid.x() {
            // Kernels expect that delays do not decrease with the depth, which rounding could violate.
            let mut latest = f32::NEG_INFINITY;
            delays.extend((0..padded).map(|row| {
                let z = grid.z_m + row as f64 * grid.row_pitch_m;
                let path = match *wave {
                    Wave::Plane { angle_rad } => x * angle_rad.sin() + z * angle_rad.cos(),
                    Wave::Diverging { x_m, z_m } => (x - x_m).hypot(z - z_m) - x_m.hypot(z_m),
                };
                latest = latest.max((path * scale - config.array.initial_time_s * config.sample_rate_hz) as f32);
                latest
            }));
        }
    }
    delays
}

/// Returns the fastest kernels for rows at this distance, in samples.
fn select_kernels(row_pitch: f64) -> Kernels {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernels) = sys::available(row_pitch).next() {
        return kernels;
    }
    let _ = row_pitch;
    kernel::portable_kernels()
}
