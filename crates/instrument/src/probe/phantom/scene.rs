//! What the phantom contains, and where: wires, a cyst in speckle, and a moving wall.

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
/// Half of the side of the square of speckle, in radii of the cyst. It ends before the nearest wire.
const SPECKLE_HALF_SIDE: f64 = 2.0;
/// Mean depth of the wall, in units of the depth.
const WALL: f64 = 0.8;
/// Amplitude of the wall's motion in wavelengths. The echo then moves by less than half a period between two phases if
/// there are at least 13, so that its motion can be followed.
const WALL_AMPLITUDE: f64 = 0.5;
/// Scatterers of speckle per square wavelength: about eight in a resolution cell.
const DENSITY: f64 = 6.0;
/// Area of a resolution cell in square wavelengths, for an f-number of 1.5.
const CELL: f64 = 1.3;
/// Upper limit of the number of scatterers, because the time to start grows with it.
const MAX_SCATTERERS: f64 = 20_000.0;
/// Brightness of speckle in an image relative to wires.
const SPECKLE: f64 = 0.1;

/// Position of a wire, which is a point in the image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wire {
    /// Lateral position in metres.
    pub x_m: f64,
    /// Depth in metres.
    pub z_m: f64,
}

/// Circle without scatterers in a square of speckle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cyst {
    /// Lateral position of the centre in metres.
    pub x_m: f64,
    /// Depth of the centre in metres.
    pub z_m: f64,
    /// Radius in metres.
    pub radius_m: f64,
    /// Half of the side of the square of speckle, in metres.
    pub speckle_half_side_m: f64,
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
    /// Wires in water.
    pub wires: Vec<Wire>,
    /// Cyst in speckle.
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
        let radius_m = CYST_RADIUS * aperture.min(depth);
        let cyst = Cyst { x_m, z_m, radius_m, speckle_half_side_m: SPECKLE_HALF_SIDE * radius_m };
        let amplitude_m = WALL_AMPLITUDE * array.sound_speed_m_s / array.centre_hz;
        Self { wires, cyst, wall: Wall { z_m: place((0.0, WALL)).1, amplitude_m, phases } }
    }

    /// Returns the wires and the scatterers of the speckle, whose places are random.
    pub(super) fn scatterers(&self, wavelength_m: f64, seed: u64) -> Vec<Scatterer> {
        let wire = |wire: &Wire| Scatterer { x_m: wire.x_m, z_m: wire.z_m, amplitude: 1.0 };
        let mut scatterers: Vec<_> = self.wires.iter().map(wire).collect();
        let cyst = &self.cyst;
        let side = 2.0 * cyst.speckle_half_side_m;
        let wavelengths = (side / wavelength_m).powi(2);
        let count = (DENSITY * wavelengths).min(MAX_SCATTERERS);
        let in_cell = count / wavelengths * CELL;
        // Uniform amplitudes of variance 1/in_cell: the echoes of a cell add up to SPECKLE.
        let largest = SPECKLE * (3.0 / in_cell).sqrt();
        let mut random = SplitMix64::new(seed);
        for _ in 0..count as usize {
            let [x, z, amplitude] = [(); 3].map(|()| 2.0 * random.next_f64() - 1.0);
            let [x, z] = [x, z].map(|offset| offset * cyst.speckle_half_side_m);
            if x.hypot(z) > cyst.radius_m {
                let (x_m, z_m) = (cyst.x_m + x, cyst.z_m + z);
                scatterers.push(Scatterer { x_m, z_m, amplitude: amplitude * largest });
            }
        }
        scatterers
    }
}
