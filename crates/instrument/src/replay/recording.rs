//! Interface to the recording that a replay sends.

use crate::probe::ReadError;
use shotline_wire::shot::Geometry;
use std::ops::Range;

/// One link of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedLink {
    /// Stream number.
    pub stream: u32,
    /// Geometry of its shots.
    pub geometry: Geometry,
}

/// Metadata of a recorded shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShotMetadata<'a> {
    /// Presence map: bit `i % 8` of byte `i / 8` is packet `i`.
    pub presence: &'a [u8],
    /// The shot's trailer is present and its checksum is correct.
    pub verified: bool,
    /// TAI of the first sample in ns; 0 if unknown.
    pub stamp_tai_ns: u64,
    /// Flags of the record.
    pub flags: u8,
}

/// A recording, read row by row. Several threads read it; each has its own clone and reads some of the rows in order.
pub trait RecordingReader: Clone + Send + 'static {
    /// Returns the links.
    fn links(&self) -> &[RecordedLink];
    /// Returns the rows to send.
    fn rows(&self) -> Range<u64>;
    /// Returns the range of shot numbers, including numbers without a row.
    fn numbers(&self) -> Range<u64>;
    /// Returns the period of the test patterns for set-up messages if the samples are test patterns of their streams,
    /// else 0.
    fn pattern_period(&self) -> u32 {
        0
    }
    /// Returns a row's shot number and its acquisition time in ns of one clock; 0 if unknown.
    fn row(&mut self, row: u64) -> Result<(u64, u64), ReadError>;
    /// Calls `take` with a shot's metadata and its bytes as on the wire; does not call it if the shot is missing.
    fn shot(&mut self, row: u64, link: usize, take: &mut dyn FnMut(&ShotMetadata<'_>, &[u8])) -> Result<(), ReadError>;
}
