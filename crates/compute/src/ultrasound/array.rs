//! Linear array and its transmissions.

/// Linear array and its plane waves. The elements lie on the x axis, symmetric to the origin; z is the depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Element pitch in metres.
    pub pitch_m: f64,
    /// Width of an element in metres.
    pub width_m: f64,
    /// Height of an element in metres.
    pub height_m: f64,
    /// Centre frequency of the pulse in Hz.
    pub centre_hz: f64,
    /// Speed of sound in metres per second.
    pub sound_speed_m_s: f64,
    /// Angles of the plane waves in radians, in the order of transmission. Each shot is one transmission; a frame is
    /// one of each.
    pub angles_rad: Vec<f64>,
    /// Time from the transmission to the first sample, in seconds. A plane wave is transmitted when it passes the
    /// origin.
    pub initial_time_s: f64,
}

impl Default for Array {
    /// Returns a common 5 MHz probe with one plane wave at angle 0.
    fn default() -> Self {
        Self {
            pitch_m: 0.3e-3,
            width_m: 0.27e-3,
            height_m: 5e-3,
            centre_hz: 5e6,
            sound_speed_m_s: 1540.0,
            angles_rad: vec![0.0],
            initial_time_s: 0.0,
        }
    }
}

impl Array {
    /// Returns the x coordinates of the centres of `elements` elements, in metres.
    pub fn x_m(&self, elements: usize) -> Vec<f64> {
        let centre = (elements as f64 - 1.0) / 2.0;
        (0..elements).map(|element| (element as f64 - centre) * self.pitch_m).collect()
    }

    /// Returns the plane waves of a frame, in the order of transmission.
    pub fn plane_waves(&self) -> Vec<Wave> {
        let angles = if self.angles_rad.is_empty() { &[0.0][..] } else { &self.angles_rad };
        angles.iter().map(|angle_rad| Wave::Plane { angle_rad: *angle_rad }).collect()
    }

    /// Returns the number of transmissions of a frame, at least 1.
    pub fn waves(&self) -> usize {
        self.angles_rad.len().max(1)
    }
}

/// A transmission. Its time zero is when it passes the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wave {
    /// Plane wave.
    Plane {
        /// Angle between its direction and the z axis in radians, positive towards positive x.
        angle_rad: f64,
    },
    /// Spherical wave from a virtual source behind the array.
    Diverging {
        /// x coordinate of the source in metres.
        x_m: f64,
        /// z coordinate of the source in metres, negative.
        z_m: f64,
    },
}
