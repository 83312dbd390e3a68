//! Settings of a probe.

use super::array;
use super::faults::FaultRates;
use super::given::GivenShots;
use super::pace::Pace;
use serde::{Deserialize, Serialize};
use shotline_compute::ultrasound::Array;
use shotline_wire::shot::{MAX_SHOTS, Packing};
use std::path::PathBuf;
use std::sync::Arc;

/// Model name in set-up messages.
pub const MODEL: &str = "Shotline emulated probe";
/// Maximum reordering depth in packets. The record ring is sized for shots held back this long.
pub const MAX_REORDER_DEPTH: u16 = 4096;

/// Settings of an emulated probe. The default is the probe of Cossettini et al.: two links of 96 channels, 12 bit, 40
/// MS/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Number of links, each with its own stream, destination and sequence numbers.
    pub links: u8,
    /// Channels per link.
    pub channels: u16,
    /// Samples per channel and shot (N_s). `None`: as in the input, or 2000.
    pub samples: Option<u32>,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// Packing of samples.
    #[serde(with = "packing")]
    pub packing: Packing,
    /// Sample rate in Hz. `None`: as in the input, or 40 MS/s.
    pub sample_rate_hz: Option<u32>,
    /// HDF5 file with recorded radio-frequency data (`/data/rf_data/frame_N/shot_M`). `None`: test patterns.
    pub input: Option<PathBuf>,
    /// Samples from the program that runs the probe, instead of an input.
    #[serde(skip)]
    pub given: Option<Arc<GivenShots>>,
    /// Factor from the input's values to samples. `None`: 1 if they fit the resolution, else the factor that makes them
    /// fit.
    pub scale: Option<f64>,
    /// Ultrasound array that the probe describes. `None`: it describes none, or for a phantom a common 5 MHz array with
    /// five plane waves ([`Phantom::default_array`]).
    #[serde(with = "array")]
    pub array: Option<Array>,
    /// Phantom to send instead of test patterns. It has distinct shots of its own.
    pub phantom: Option<Phantom>,
    /// Number of distinct shots to prepare: shot `n` carries the samples of distinct shot `n % distinct_shots`.
    pub distinct_shots: u32,
    /// Pace of shots in free-running mode.
    pub free_running: Pace,
    /// Frequency of the trigger input in Hz, for external-trigger mode. `None`: the input is not connected, and each
    /// shot needs a trigger command.
    pub trigger_hz: Option<f64>,
    /// Marks every shot whose number is a non-zero multiple of this value as triggered. `None`: only triggered shots
    /// are marked.
    pub mark_every: Option<u64>,
    /// Number of the first shot.
    pub first_shot: u64,
    /// Faults to inject.
    pub faults: FaultRates,
    /// Keeps a list of injected faults in addition to the counters.
    pub list_faults: bool,
    /// Seed of faults, queue pair numbers and first sequence numbers. `None`: a random seed, which is in the report.
    pub seed: Option<u64>,
}

/// Settings of a phantom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Phantom {
    /// Phases in a cycle of the wall, one for each frame.
    pub phases: u32,
    /// Seed of the speckle and the noise.
    pub seed: u64,
}

impl Default for Phantom {
    fn default() -> Self {
        Self { phases: 24, seed: 0 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            links: 2,
            channels: 96,
            samples: None,
            bits: 12,
            packing: Packing::Packed12,
            sample_rate_hz: None,
            input: None,
            given: None,
            scale: None,
            array: None,
            phantom: None,
            distinct_shots: 16,
            free_running: Pace::default(),
            trigger_hz: None,
            mark_every: None,
            first_shot: 0,
            faults: FaultRates::NONE,
            list_faults: false,
            seed: None,
        }
    }
}

/// Largest magnitude of a plane wave's angle in degrees.
const MAX_ANGLE: f64 = 80.0;

/// Reason why settings are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No links.
    #[error("expected 1 to 255 links, found 0")]
    Links,
    /// A value that is not a positive number.
    #[error("{what} must be a positive number, found {found}")]
    Rate {
        /// Name of the setting.
        what: &'static str,
        /// Configured value.
        found: f64,
    },
    /// A probability outside 0 to 1.
    #[error("the probability of {what} must be 0 to 1, found {found}")]
    Probability {
        /// Name of the fault.
        what: &'static str,
        /// Configured value.
        found: f64,
    },
    /// A first shot number beyond 48 bits.
    #[error("expected a first shot number below 2^48, found {found}")]
    FirstShot {
        /// Configured value.
        found: u64,
    },
    /// A plane wave that is nearly perpendicular to the depth.
    #[error("the angles of a phantom must be -{MAX_ANGLE} to {MAX_ANGLE} degrees, found {found}")]
    Angle {
        /// Configured angle in degrees.
        found: f64,
    },
    /// An initial time that is not finite.
    #[error("the initial time must be a finite number of seconds, found {found}")]
    InitialTime {
        /// Configured value.
        found: f64,
    },
    /// Two sources of samples.
    #[error("expected one source of samples, found several of: an input file, samples of the program, a phantom")]
    Sources,
    /// A reordering depth out of range.
    #[error("expected a reordering depth of 1 to {MAX_REORDER_DEPTH} packets, found {found}")]
    ReorderDepth {
        /// Configured value.
        found: u16,
    },
}

impl Config {
    /// Returns the array that the probe describes, if any.
    pub fn described_array(&self) -> Option<Array> {
        self.array.clone().or_else(|| self.phantom.map(|_| Phantom::default_array()))
    }

    /// Validates the settings, except geometries and files, which [`super::samples::Source::new`] checks.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.links == 0 {
            return Err(ConfigError::Links);
        }
        if self.first_shot >= MAX_SHOTS {
            return Err(ConfigError::FirstShot { found: self.first_shot });
        }
        let positive = |what, found: f64| match found.is_finite() && found > 0.0 {
            true => Ok(()),
            false => Err(ConfigError::Rate { what, found }),
        };
        match self.free_running {
            Pace::Rate(hz) => positive("the shot rate", hz)?,
            Pace::Bandwidth(gbit) => positive("the bandwidth", gbit)?,
            Pace::Recorded(speed) => positive("the playback speed", speed)?,
            Pace::Device | Pace::Max => {}
        }
        let sample_rate = ("the sample rate", self.sample_rate_hz.map(f64::from));
        for (what, found) in [sample_rate, ("the trigger frequency", self.trigger_hz), ("the scale", self.scale)] {
            found.map_or(Ok(()), |found| positive(what, found))?;
        }
        let sources = [self.input.is_some(), self.given.is_some(), self.phantom.is_some()];
        if sources.into_iter().filter(|is_given| *is_given).count() > 1 {
            return Err(ConfigError::Sources);
        }
        if let Some(phantom) = &self.phantom {
            positive("the number of phases", phantom.phases.into())?;
            self.array.as_ref().map_or(Ok(()), |array| check_array(array, positive))?;
        }
        let FaultRates { loss, duplicate, reorder, corrupt, reorder_depth } = self.faults;
        for (what, found) in
            [("loss", loss), ("duplication", duplicate), ("reordering", reorder), ("corruption", corrupt)]
        {
            if !(0.0..=1.0).contains(&found) {
                return Err(ConfigError::Probability { what, found });
            }
        }
        if !(1..=MAX_REORDER_DEPTH).contains(&reorder_depth) {
            return Err(ConfigError::ReorderDepth { found: reorder_depth });
        }
        Ok(())
    }
}

impl Phantom {
    /// Returns the array of a phantom unless another is set: a common 5 MHz array with five plane waves.
    pub fn default_array() -> Array {
        let angles_rad = [-10.0, -5.0, 0.0, 5.0, 10.0].map(f64::to_radians).to_vec();
        Array { angles_rad, ..Array::default() }
    }
}

/// Checks the values of a phantom's array.
fn check_array(
    array: &Array,
    positive: impl Fn(&'static str, f64) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let Array { pitch_m, width_m, height_m, centre_hz, sound_speed_m_s, angles_rad, initial_time_s } = array;
    positive("the pitch", *pitch_m)?;
    positive("the width of an element", *width_m)?;
    positive("the height of an element", *height_m)?;
    positive("the centre frequency", *centre_hz)?;
    positive("the speed of sound", *sound_speed_m_s)?;
    if !initial_time_s.is_finite() {
        return Err(ConfigError::InitialTime { found: *initial_time_s });
    }
    let outside = |angle: &&f64| !(-MAX_ANGLE..=MAX_ANGLE).contains(&angle.to_degrees());
    match angles_rad.iter().find(outside) {
        Some(angle) => Err(ConfigError::Angle { found: angle.to_degrees() }),
        None => Ok(()),
    }
}

/// Serialises packings by name.
mod packing {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use shotline_wire::shot::Packing;

    pub(super) fn serialize<S: Serializer>(packing: &Packing, serializer: S) -> Result<S::Ok, S::Error> {
        packing.name().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Packing, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|error| D::Error::custom(format!("{error}, found {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        Config::default().check().unwrap();
    }

    #[test]
    fn settings_round_trip_as_json_and_refuse_unknown_keys() {
        let (phantom, array) = (Some(Phantom::default()), Some(Phantom::default_array()));
        let config = Config { free_running: Pace::Rate(500.0), phantom, array, seed: Some(3), ..Config::default() };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
        assert!(serde_json::from_str::<Config>(r#"{"chanels": 96}"#).is_err());
        let refused = serde_json::from_str::<Config>(r#"{"packing": "int12"}"#).unwrap_err().to_string();
        assert!(refused.contains("uint8, int16_be, found int12"), "{refused}");
    }

    #[test]
    fn invalid_settings_are_refused() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refused(|c| c.links = 0).contains("links, found 0"));
        assert!(refused(|c| c.first_shot = 1 << 48).contains("below 2^48, found 281474976710656"));
        assert!(refused(|c| c.free_running = Pace::Rate(0.0)).contains("shot rate must be a positive number, found 0"));
        assert!(refused(|c| c.sample_rate_hz = Some(0)).contains("the sample rate must be a positive number, found 0"));
        assert!(refused(|c| c.trigger_hz = Some(f64::NAN)).contains("found NaN"));
        assert!(
            refused(|c| (c.phantom, c.input) = (Some(Phantom::default()), Some("a.h5".into()))).contains("one source")
        );
        assert!(
            refused(|c| c.phantom = Some(Phantom { phases: 0, seed: 1 })).contains("phases must be a positive number")
        );
        let array = |change: fn(&mut Array)| {
            let mut array = Array::default();
            change(&mut array);
            Config { array: Some(array), phantom: Some(Phantom::default()), ..Config::default() }
                .check()
                .unwrap_err()
                .to_string()
        };
        assert!(array(|a| a.pitch_m = 0.0).contains("the pitch must be a positive number, found 0"));
        assert!(array(|a| a.initial_time_s = f64::NAN).contains("found NaN"));
        assert!(array(|a| a.angles_rad = vec![0.0, 1.5]).contains("-80 to 80 degrees, found 85.9"));
        assert!(refused(|c| c.faults.loss = 1.5).contains("probability of loss"));
        assert!(refused(|c| c.faults.reorder_depth = 0).contains("found 0"));
    }
}
