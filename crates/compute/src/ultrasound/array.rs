//! Linear array and its transmissions.

use shotline_wire::setup::ArrayDescription;

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

    /// Returns the description for set-up messages, rounded to its units, or `None` if it cannot express the array: the
    /// angles are not evenly spaced, or a value is out of range.
    pub fn description(&self) -> Option<ArrayDescription> {
        let whole = |value: f64| (0.5..u32::MAX.into()).contains(&value).then(|| value.round() as u32);
        let signed = |value: f64| (value.abs() < f64::from(i32::MAX)).then(|| value.round() as i32);
        let first = self.angles_rad.first().copied().unwrap_or_default();
        let last = self.angles_rad.last().copied().unwrap_or_default();
        let step = (last - first) / (self.waves() - 1).max(1) as f64;
        let even = |(wave, angle): (usize, &f64)| (angle - first - step * wave as f64).abs() < 1e-6;
        if !self.angles_rad.iter().enumerate().all(even) {
            return None;
        }
        Some(ArrayDescription {
            pitch_nm: whole(self.pitch_m * 1e9)?,
            width_nm: whole(self.width_m * 1e9)?,
            height_nm: whole(self.height_m * 1e9)?,
            centre_hz: whole(self.centre_hz)?,
            sound_speed_mm_s: whole(self.sound_speed_m_s * 1e3)?,
            first_angle_urad: signed(first * 1e6)?,
            last_angle_urad: signed(last * 1e6)?,
            initial_time_ns: signed(self.initial_time_s * 1e9)?,
            waves: u16::try_from(self.waves()).ok()?,
        })
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

impl From<ArrayDescription> for Array {
    fn from(description: ArrayDescription) -> Self {
        let (first, last) = (f64::from(description.first_angle_urad), f64::from(description.last_angle_urad));
        let intervals = f64::from(description.waves.saturating_sub(1).max(1));
        let angle = |wave| (first + (last - first) * f64::from(wave) / intervals) / 1e6;
        Self {
            pitch_m: f64::from(description.pitch_nm) / 1e9,
            width_m: f64::from(description.width_nm) / 1e9,
            height_m: f64::from(description.height_nm) / 1e9,
            centre_hz: description.centre_hz.into(),
            sound_speed_m_s: f64::from(description.sound_speed_mm_s) / 1e3,
            angles_rad: (0..description.waves).map(angle).collect(),
            initial_time_s: f64::from(description.initial_time_ns) / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_round_trips_to_its_resolution() {
        let degrees = |degrees: &[f64]| degrees.iter().map(|angle| angle.to_radians()).collect::<Vec<_>>();
        for angles_rad in [degrees(&[0.0]), degrees(&[7.0, -7.0]), degrees(&[-10.0, -5.0, 0.0, 5.0, 10.0])] {
            let array = Array { angles_rad, initial_time_s: -3.25e-6, pitch_m: 0.218e-3, ..Array::default() };
            let description = array.description().unwrap();
            let again = Array::from(description);
            assert_eq!(again.description(), Some(description));
            assert_eq!(again.angles_rad.len(), array.angles_rad.len());
            again.angles_rad.iter().zip(&array.angles_rad).for_each(|(a, b)| assert!((a - b).abs() < 1e-6));
            assert_eq!(again, Array { angles_rad: again.angles_rad.clone(), ..array });
        }
    }

    #[test]
    fn uneven_angles_and_values_out_of_range_have_none() {
        let none = |change: fn(&mut Array)| {
            let mut array = Array::default();
            change(&mut array);
            assert_eq!(array.description(), None, "{array:?}");
        };
        none(|array| array.angles_rad = vec![0.0, 0.1, 0.3]);
        none(|array| array.angles_rad = vec![0.0; 1 << 16]);
        none(|array| array.pitch_m = 1e-10);
        none(|array| array.centre_hz = 5e9);
        none(|array| array.initial_time_s = 3.0);
        none(|array| array.sound_speed_m_s = f64::NAN);
    }
}
