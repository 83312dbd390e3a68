//! Recorded radio-frequency data in an HDF5 file.
//!
//! The layout is that of public plane-wave data sets: `/data/rf_data/frame_N/shot_M`, each a (channels, samples)
//! dataset of any numeric type, and `/data/f_sampling` in Hz. Shots are ordered by frame number, then shot number.

use super::error::SampleError;
use hdf5::Group;
use serde::Serialize;
use std::ops::Range;
use std::path::{Path, PathBuf};

const SHOTS: &str = "data/rf_data";
const SAMPLE_RATE: &str = "data/f_sampling";

/// Conversion of a file's values to samples: `sample = round(value * scale)`, clipped to the resolution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RfReport {
    /// The file.
    pub path: PathBuf,
    /// Largest magnitude in the shots read.
    pub peak: f64,
    /// Factor applied. By default 1 if the peak fits the resolution, else the factor that brings it to full scale.
    pub scale: f64,
    /// Samples clipped to the resolution; always 0 unless the user set the factor.
    pub clipped: u64,
}

/// The first shots of a file, as integers.
#[derive(Debug)]
pub(super) struct RfFile {
    channels: usize,
    samples: usize,
    sample_rate_hz: u32,
    /// Samples of each shot, in (channels, samples) order.
    shots: Vec<Vec<i16>>,
    report: RfReport,
}

impl RfFile {
    /// Reads up to `max_shots` shots and converts them to `bits`-bit integers with `scale`, or an automatic scale if
    /// `None`.
    pub(super) fn open(path: &Path, max_shots: usize, bits: u8, scale: Option<f64>) -> Result<Self, SampleError> {
        let failed = |source| SampleError::Hdf5 { path: path.to_path_buf(), source };
        let file = hdf5::File::open(path).map_err(failed)?;
        let mut shape = Vec::new();
        let mut values: Vec<Vec<f64>> = Vec::new();
        let frames = if file.link_exists("data") && file.link_exists(SHOTS) {
            file.group(SHOTS).map_err(failed)?
        } else {
            return Err(SampleError::NoShots { path: path.to_path_buf() });
        };
        'frames: for frame in numbered(&frames, "frame_").map_err(failed)? {
            let frame = frames.group(&frame).map_err(failed)?;
            for shot in numbered(&frame, "shot_").map_err(failed)? {
                if values.len() == max_shots {
                    break 'frames;
                }
                let dataset = frame.dataset(&shot).map_err(failed)?;
                let found = dataset.shape();
                if values.is_empty() {
                    shape.clone_from(&found);
                }
                if shape.len() != 2 {
                    return Err(SampleError::NoShots { path: path.to_path_buf() });
                }
                if found != shape {
                    let (path, dataset) = (path.to_path_buf(), dataset.name());
                    return Err(SampleError::Shape { path, dataset, expected: shape, found });
                }
                values.push(dataset.read_raw().map_err(failed)?);
            }
        }
        let [channels, samples] = shape[..] else {
            return Err(SampleError::NoShots { path: path.to_path_buf() });
        };
        let rate = match file.dataset(SAMPLE_RATE) {
            Ok(dataset) => dataset.read_raw::<f64>().map_err(failed)?.first().copied().unwrap_or(0.0),
            Err(_) => 0.0, // 0 means unknown in a shot's record
        };
        let (shots, report) = quantize(path, &values, bits, scale);
        // `as` saturates at 4.29 GHz.
        Ok(Self { channels, samples, sample_rate_hz: rate as u32, shots, report })
    }

    pub(super) fn channels(&self) -> usize {
        self.channels
    }
    pub(super) fn samples(&self) -> usize {
        self.samples
    }
    pub(super) fn sample_rate_hz(&self) -> u32 {
        self.sample_rate_hz
    }
    pub(super) fn shots(&self) -> usize {
        self.shots.len()
    }
    pub(super) fn report(&self) -> &RfReport {
        &self.report
    }

    /// Returns some channels of a shot in time-major order: all channels of sample 0 first.
    pub(super) fn time_major(&self, shot: usize, channels: Range<usize>, samples: usize) -> Vec<i16> {
        let shot = &self.shots[shot];
        let at = |sample| channels.clone().map(move |channel| shot[channel * self.samples + sample]);
        (0..samples).flat_map(at).collect()
    }
}

/// Returns the members of a group named `prefix` plus a number, sorted by number.
fn numbered(group: &Group, prefix: &str) -> hdf5::Result<Vec<String>> {
    let number = |name: &String| name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
    let mut names: Vec<_> = group.member_names()?.into_iter().filter(|name| number(name).is_some()).collect();
    names.sort_by_key(number);
    Ok(names)
}

fn quantize(path: &Path, shots: &[Vec<f64>], bits: u8, scale: Option<f64>) -> (Vec<Vec<i16>>, RfReport) {
    let max = f64::from((1_i32 << (bits - 1)) - 1);
    let peak = shots.iter().flatten().fold(0.0_f64, |peak, value| peak.max(value.abs()));
    let scale = scale.unwrap_or(if peak > max { max / peak } else { 1.0 });
    let mut clipped = 0;
    let mut quantize = |value: &f64| {
        let scaled = (value * scale).round();
        let sample = scaled.clamp(-max - 1.0, max);
        clipped += u64::from(sample != scaled);
        sample as i16
    };
    let shots = shots.iter().map(|shot| shot.iter().map(&mut quantize).collect()).collect();
    (shots, RfReport { path: path.to_path_buf(), peak, scale, clipped })
}
