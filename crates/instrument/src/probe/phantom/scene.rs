//! What the phantom contains, and where: tissue, which is speckle everywhere, with wires, a cyst and a moving wall.

use serde::Serialize;
use shotline_compute::ultrasound::Array;
use shotline_random::SplitMix64;
use std::f64::consts::TAU;
use std::ops::Range;

/// Places of the wires, in units of the aperture and of the depth.
const WIRES: [(f64, f64); 5] = [(-0.2, 0.2), (-0.2, 0.4), (-0.2, 0.6), (-0.35, 0.4), (-0.05, 0.4)];
/// Place of the cyst's centre, in the same units.
const CYST: (f64, f64) = (0.2, 0.4);
/// Radius of the cyst, in units of the aperture or of the depth, whichever is less.
const CYST_RADIUS: f64 = 0.1;
/// Mean depth of the wall, in units of the depth.
const WALL: f64 = 0.8;
/// Amplitude of the wall's motion in wavelengths. The echo then moves by less than half a period between two phases if
/// there are at least 13, so that its motion can be followed.
const WALL_AMPLITUDE: f64 = 0.5;
/// Scatterers of speckle in a resolution cell. Their sum then has the distribution of fully developed speckle; more
/// would only take more time.
const IN_CELL: f64 = 10.0;
/// Area of a resolution cell in square wavelengths, for an f-number of 1.5.
const CELL: f64 = 1.3;
/// Upper limit of the number of scatterers, because the time to start grows with it: a larger field has fewer in a cell.
const MAX_SCATTERERS: f64 = 500_000.0;
/// Brightness of speckle in an image relative to wires. The mean of its envelope is then 25 dB below a wire if five waves
/// are compounded, for which a wire is the same in all and speckle is not.
const SPECKLE: f64 = 0.08;

/// Position of a wire, which is a point in the image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wire {
    /// Lateral position in metres.
    pub x_m: f64,
    /// Depth in metres.
    pub z_m: f64,
}

/// Circle without scatterers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cyst {
    /// Lateral position of the centre in metres.
    pub x_m: f64,
    /// Depth of the centre in metres.
    pub z_m: f64,
    /// Radius in metres.
    pub radius_m: f64,
}

/// Small scatterers at random places, in the rectangle in front of the array from the first sample to the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speckle {
    /// Lateral positions in metres.
    pub x_m: Range<f64>,
    /// Depths in metres.
    pub z_m: Range<f64>,
    /// Scatterers in a resolution cell at an f-number of 1.5.
    pub in_cell: f64,
}

/// Plane reflector parallel to the array, which moves sinusoidally.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wall {
    /// Mean depth in metres.
    pub z_m: f64,
    /// Amplitude of its motion in metres.
    pub amplitude_m: f64,
    /// Phases of a cycle. The wall does not move within a frame.
    pub phases: u32,
}

impl Wall {
    /// Returns the depth in metres in frame `phase`, counted from any multiple of the phases.
    pub fn depth_m(&self, phase: u32) -> f64 {
        self.z_m + self.amplitude_m * (TAU * f64::from(phase) / f64::from(self.phases)).sin()
    }
}

/// Contents of a phantom.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scene {
    /// Wires.
    pub wires: Vec<Wire>,
    /// Tissue around the other objects.
    pub speckle: Speckle,
    /// Cyst in the tissue.
    pub cyst: Cyst,
    /// Moving wall.
    pub wall: Wall,
}

/// Small reflector: a wire, or a part of the speckle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatterer {
    pub(super) x_m: f64,
    pub(super) z_m: f64,
    /// Reflected amplitude; 1 for a wire.
    pub(super) amplitude: f64,
}

impl Scene {
    /// Lays the contents out over the aperture and a range of depths in metres.
    pub(super) fn new(array: &Array, elements: usize, depths: &Range<f64>, phases: u32) -> Self {
        let aperture = elements as f64 * array.pitch_m;
        let depth = depths.end - depths.start;
        let place = |(x, z): (f64, f64)| (x * aperture, depths.start + z * depth);
        let wires = WIRES.map(place).map(|(x_m, z_m)| Wire { x_m, z_m }).to_vec();
        let (x_m, z_m) = place(CYST);
        let cyst = Cyst { x_m, z_m, radius_m: CYST_RADIUS * aperture.min(depth) };
        let wavelength_m = array.sound_speed_m_s / array.centre_hz;
        let cells = aperture * depth / (CELL * wavelength_m.powi(2));
        let in_cell = IN_CELL.min(MAX_SCATTERERS / cells);
        let speckle = Speckle { x_m: -aperture / 2.0..aperture / 2.0, z_m: depths.clone(), in_cell };
        let wall = Wall { z_m: place((0.0, WALL)).1, amplitude_m: WALL_AMPLITUDE * wavelength_m, phases };
        Self { wires, speckle, cyst, wall }
    }

    /// Returns the scatterers of the wires.
    pub(super) fn wires(&self) -> Vec<Scatterer> {
        self.wires.iter().map(|wire| Scatterer { x_m: wire.x_m, z_m: wire.z_m, amplitude: 1.0 }).collect()
    }

    /// Returns the number of scatterers of the speckle, including those at the place of the cyst.
    pub(super) fn scatterers(&self, wavelength_m: f64) -> usize {
        let Speckle { x_m, z_m, in_cell } = &self.speckle;
        let cells = (x_m.end - x_m.start) * (z_m.end - z_m.start) / (CELL * wavelength_m.powi(2));
        (in_cell * cells).round() as usize
    }

    /// Returns the scatterers of the speckle, whose places are random.
    pub(super) fn speckle(&self, wavelength_m: f64, seed: u64) -> Vec<Scatterer> {
        let Speckle { x_m, z_m, in_cell } = &self.speckle;
        let (width, depth) = (x_m.end - x_m.start, z_m.end - z_m.start);
        // Uniform amplitudes of variance 1/in_cell: the echoes of a cell add up to SPECKLE.
        let largest = SPECKLE * (3.0 / in_cell).sqrt();
        let mut random = SplitMix64::new(seed);
        let scatterer = |_| {
            let [x, z, amplitude] = [(); 3].map(|()| random.next_f64());
            let amplitude = (2.0 * amplitude - 1.0) * largest;
            Scatterer { x_m: x_m.start + x * width, z_m: z_m.start + z * depth, amplitude }
        };
        let is_in_cyst = |at: &Scatterer| (at.x_m - self.cyst.x_m).hypot(at.z_m - self.cyst.z_m) <= self.cyst.radius_m;
        (0..self.scatterers(wavelength_m)).map(scatterer).filter(|at| !is_in_cyst(at)).collect()
    }
}
