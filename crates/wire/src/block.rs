//! Block description: what a digitizer measured over a block of samples, in the 192 bytes before the end-of-shot
//! record of [`crate::shot::Trailer::Block`].
//!
//! | byte | field | type |
//! |---|---|---|
//! | 0 | magic `BLCK` | 4 bytes |
//! | 4 | version, 1 | u8 |
//! | 5 | peaks that follow, 0 to 5 | u8 |
//! | 6 | zeros | 2 bytes |
//! | 8 | centre frequency in Hz | f64 |
//! | 16 | volts per count | f64, 0 unknown |
//! | 24 | offset of the source's clock from its reference, ns | i64 |
//! | 32 | drift of that clock, parts per billion | f32 |
//! | 36 | signal-to-noise ratio in dB | f32, NaN unknown |
//! | 40 | blocks that the device has lost since its start, for lack of buffers | u64 |
//! | 48 | points of the Fourier transform that the peaks come from | u32, 0 none |
//! | 52 | zeros | 4 bytes |
//! | 56 | five peaks, strongest first: Hz from the centre f64, dB relative to a full-scale tone f32, zeros 4 bytes | 80 bytes |
//! | 136 | zeros | 56 bytes |
//!
//! All fields are **little-endian**, so that a recording can expose the received bytes as a table without a copy.

use crate::ParseError;

/// First four bytes of a description.
pub const MAGIC: [u8; 4] = *b"BLCK";
/// Version that this crate writes and accepts.
pub const VERSION: u8 = 1;
/// Length of a description, in bytes.
pub const LEN: usize = 192;
/// Maximum number of peaks in a description.
pub const MAX_PEAKS: usize = 5;

/// Byte offsets of the fields.
pub mod offset {
    /// Number of peaks.
    pub const COUNT: usize = 5;
    /// Centre frequency.
    pub const CENTRE: usize = 8;
    /// Volts per count.
    pub const VOLTS_PER_COUNT: usize = 16;
    /// Clock offset.
    pub const CLOCK_OFFSET: usize = 24;
    /// Clock drift.
    pub const CLOCK_DRIFT: usize = 32;
    /// Signal-to-noise ratio.
    pub const SNR: usize = 36;
    /// Blocks lost in the device.
    pub const OVERRUN: usize = 40;
    /// Points of the Fourier transform.
    pub const POINTS: usize = 48;
    /// First peak.
    pub const PEAKS: usize = 56;
}
/// Stride of the peaks, in bytes: frequency f64, power f32, zeros.
pub const PEAK_BYTES: usize = 16;

/// A spectral peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Hz from the centre frequency.
    pub frequency_hz: f64,
    /// dB relative to a full-scale tone.
    pub power_dbfs: f32,
}

/// A block description; the [module documentation](self) has its layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// Centre frequency in Hz.
    pub centre_hz: f64,
    /// Volts per count; 0 if unknown.
    pub volts_per_count: f64,
    /// Offset of the source's clock from its reference, in ns.
    pub clock_offset_ns: i64,
    /// Drift of that clock, in parts per billion.
    pub clock_drift_ppb: f32,
    /// Signal-to-noise ratio in dB; NaN if unknown.
    pub snr_db: f32,
    /// Blocks that the device has lost since its start.
    pub overrun: u64,
    /// Points of the Fourier transform that the peaks come from; 0 if there was none.
    pub points: u32,
    /// The strongest peaks, strongest first.
    pub peaks: arrayvec::ArrayVec<Peak, MAX_PEAKS>,
}

impl Default for Description {
    fn default() -> Self {
        Self {
            centre_hz: 0.0,
            volts_per_count: 0.0,
            clock_offset_ns: 0,
            clock_drift_ppb: 0.0,
            snr_db: f32::NAN,
            overrun: 0,
            points: 0,
            peaks: arrayvec::ArrayVec::new(),
        }
    }
}

impl Description {
    /// Parses a description. Reserved bytes are ignored.
    ///
    /// # Errors
    /// If the magic or the version is unknown, or the number of peaks is above [`MAX_PEAKS`].
    pub fn parse(bytes: &[u8; LEN]) -> Result<Self, ParseError> {
        if bytes[..4] != MAGIC {
            let found = field(bytes, 0).map_or(0, u32::from_be_bytes);
            let (expected, found) = (u32::from_be_bytes(MAGIC).into(), found.into());
            return Err(ParseError::Value { what: "block description's magic", expected, found });
        }
        if bytes[4] != VERSION {
            let (expected, found) = (VERSION.into(), bytes[4].into());
            return Err(ParseError::Value { what: "block description's version", expected, found });
        }
        let count = usize::from(bytes[offset::COUNT]);
        if count > MAX_PEAKS {
            let (max, found) = (MAX_PEAKS as u64, count as u64);
            return Err(ParseError::Range { what: "block description's peaks", min: 0, max, found });
        }
        let peak = |index: usize| {
            let at = offset::PEAKS + index * PEAK_BYTES;
            let (hz, power) = (field(bytes, at), field(bytes, at + 8));
            Peak { frequency_hz: hz.map_or(0.0, f64::from_le_bytes), power_dbfs: power.map_or(0.0, f32::from_le_bytes) }
        };
        Ok(Self {
            centre_hz: field(bytes, offset::CENTRE).map_or(0.0, f64::from_le_bytes),
            volts_per_count: field(bytes, offset::VOLTS_PER_COUNT).map_or(0.0, f64::from_le_bytes),
            clock_offset_ns: field(bytes, offset::CLOCK_OFFSET).map_or(0, i64::from_le_bytes),
            clock_drift_ppb: field(bytes, offset::CLOCK_DRIFT).map_or(0.0, f32::from_le_bytes),
            snr_db: field(bytes, offset::SNR).map_or(0.0, f32::from_le_bytes),
            overrun: field(bytes, offset::OVERRUN).map_or(0, u64::from_le_bytes),
            points: field(bytes, offset::POINTS).map_or(0, u32::from_le_bytes),
            peaks: (0..count).map(peak).collect(),
        })
    }

    /// Encodes the description.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(4, &[VERSION, self.peaks.len() as u8]);
        put(offset::CENTRE, &self.centre_hz.to_le_bytes());
        put(offset::VOLTS_PER_COUNT, &self.volts_per_count.to_le_bytes());
        put(offset::CLOCK_OFFSET, &self.clock_offset_ns.to_le_bytes());
        put(offset::CLOCK_DRIFT, &self.clock_drift_ppb.to_le_bytes());
        put(offset::SNR, &self.snr_db.to_le_bytes());
        put(offset::OVERRUN, &self.overrun.to_le_bytes());
        put(offset::POINTS, &self.points.to_le_bytes());
        for (index, peak) in self.peaks.iter().enumerate() {
            let at = offset::PEAKS + index * PEAK_BYTES;
            put(at, &peak.frequency_hz.to_le_bytes());
            put(at + 8, &peak.power_dbfs.to_le_bytes());
        }
        bytes
    }
}

fn field<const N: usize>(bytes: &[u8; LEN], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(
            centre_hz in -1e12_f64..1e12, volts_per_count in 0.0_f64..1.0, clock_offset_ns: i64, overrun: u64,
            clock_drift_ppb in -1e6_f32..1e6, snr_db in -20_f32..200.0, points: u32,
            peaks in prop::collection::vec((-1e9_f64..1e9, -200_f32..0.0), 0..=MAX_PEAKS),
        ) {
            let peaks = peaks.iter().map(|&(frequency_hz, power_dbfs)| Peak { frequency_hz, power_dbfs }).collect();
            let description = Description {
                centre_hz, volts_per_count, clock_offset_ns, clock_drift_ppb, snr_db, overrun, points, peaks,
            };
            prop_assert_eq!(Description::parse(&description.emit()), Ok(description));
        }

        #[test]
        fn parse_accepts_only_valid_descriptions(bytes: [u8; 32], valid_prefix: bool) {
            let mut all = [0; LEN];
            for (to, from) in all.iter_mut().zip(bytes.iter().cycle()) { *to = *from; }
            if valid_prefix { all[..5].copy_from_slice(b"BLCK\x01"); }
            prop_assert_eq!(Description::parse(&all).is_ok(), valid_prefix && all[offset::COUNT] <= 5);
        }
    }

    #[test]
    fn default_description_is_all_unknown() {
        let bytes = Description::default().emit();
        let read = Description::parse(&bytes).unwrap();
        assert!(read.snr_db.is_nan() && read.peaks.is_empty() && read.points == 0);
    }
}
