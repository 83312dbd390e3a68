//! Samples that a program gives to a probe.

use shotline_wire::shot::Packing;
use std::fmt;

/// Reason why samples cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenError {
    /// The number of samples is not that of the shape.
    #[error(
        "expected {shots} shots x {samples} samples x {channels} channels, none of them 0, found {found} samples in all"
    )]
    Shape {
        /// Distinct shots.
        shots: u32,
        /// Samples per channel.
        samples: u32,
        /// Channels of all links.
        channels: usize,
        /// Samples given.
        found: usize,
    },
    /// A sample does not fit the resolution.
    #[error("expected samples of {bits} bits, found {found}: scale them, or send more bits")]
    Range {
        /// Resolution in bits.
        bits: u8,
        /// The first sample that does not fit.
        found: i16,
    },
}

/// The distinct shots of a probe, from a program.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenShots {
    /// Samples in the order shot, sample, channel, with the channels of all links side by side.
    samples: Vec<i16>,
    shots: u32,
    samples_per_channel: u32,
    channels: usize,
}

impl GivenShots {
    /// Takes samples in the order shot, sample, channel. They must fit the resolution: `bits`, signed
    /// unless the packing is that of unsigned bytes.
    ///
    /// # Errors
    /// If a number is 0, the samples are not that many, or one does not fit the resolution.
    pub fn new(
        samples: Vec<i16>,
        (shots, samples_per_channel, channels): (u32, u32, usize),
        bits: u8,
        packing: Packing,
    ) -> Result<Self, GivenError> {
        let count = (u64::from(shots) * u64::from(samples_per_channel)).checked_mul(channels as u64);
        if samples.is_empty() || count != Some(samples.len() as u64) {
            return Err(GivenError::Shape { shots, samples: samples_per_channel, channels, found: samples.len() });
        }
        let values = 1_i32 << bits.clamp(1, 16);
        let range = if packing == Packing::Uint8 { 0..values } else { -values / 2..values / 2 };
        if let Some(found) = samples.iter().copied().find(|sample| !range.contains(&i32::from(*sample))) {
            return Err(GivenError::Range { bits, found });
        }
        Ok(Self { samples, shots, samples_per_channel, channels })
    }

    /// Returns the number of distinct shots.
    pub fn shots(&self) -> u32 {
        self.shots
    }
    /// Returns the samples per channel of a shot.
    pub fn samples_per_channel(&self) -> u32 {
        self.samples_per_channel
    }
    /// Returns the channels of all links together.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns `samples` samples of some channels of one shot, in the order sample, channel.
    pub(super) fn time_major(&self, shot: u32, channels: std::ops::Range<usize>, samples: usize) -> Vec<i16> {
        let len = self.samples_per_channel as usize * self.channels;
        let rows = self.samples[shot as usize * len..][..len].chunks(self.channels).take(samples);
        rows.flat_map(|row| row[channels.clone()].iter().copied()).collect()
    }
}

impl fmt::Debug for GivenShots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shots, samples_per_channel, channels, .. } = self;
        write!(f, "{shots} shots of {samples_per_channel} samples of {channels} channels")
    }
}
