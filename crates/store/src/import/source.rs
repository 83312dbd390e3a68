//! Interface of import sources.

use super::error::ImportError;
use crate::info::RunInfo;
use crate::shot::Loss;

/// Range of the numbers of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberRange {
    /// 8-bit unsigned integers, stored as bytes.
    Bytes,
    /// Integers that fit 16 bits.
    Int16,
    /// Any other numbers. The source is read twice, first to find the scale.
    Any,
}

/// Description of a source.
#[derive(Clone, Debug)]
pub(super) struct SourceInfo {
    pub format: &'static str,
    pub numbers: NumberRange,
    /// Run of the resulting recording. Links have int16 or byte samples.
    pub run: RunInfo,
    /// Upper bound of the number of shots.
    pub shots: u64,
    pub notes: Vec<String>,
}

/// Shot of a link. Missing samples are NaN.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkShot {
    /// Samples: all channels of an instant, then those of the next.
    pub samples: Vec<f64>,
    /// TAI time of the first sample in nanoseconds; 0 if unknown.
    pub stamp_tai_ns: u64,
    /// Table entry of the shot; `None` for sources without a table.
    pub entry: Option<TableEntry>,
}

/// Table entry of a shot in an export of a recording.
#[derive(Clone, Debug, Default)]
pub(super) struct TableEntry {
    pub flags: u8,
    pub complete: bool,
    pub valid_bytes: u32,
    /// Presence map, lowest bit first.
    pub presence: Vec<u8>,
    pub arrived_tai_ns: u64,
    pub completed_tai_ns: u64,
}

/// Shots of all links with the same number; `None` for lost ones.
#[derive(Clone, Debug, Default)]
pub(super) struct ShotSet {
    pub number: u64,
    pub links: Vec<Option<LinkShot>>,
}

/// An opened source, read sequentially.
pub(super) trait Source {
    fn info(&self) -> &SourceInfo;
    /// Returns the next shots, or `None` at the end.
    fn next(&mut self) -> Result<Option<ShotSet>, ImportError>;
    /// Returns the losses listed in the source. `None` means that skipped shot numbers are lost.
    fn losses(&self) -> Option<&[Loss]> {
        None
    }
}
