//! A recording as a replay needs it.

use crate::probe::ReadError;
use shotline_wire::shot::Geometry;
use std::ops::Range;

/// One link of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapeLink {
    /// Its stream.
    pub stream: u32,
    /// The shape of its shots.
    pub geometry: Geometry,
}

/// What a recording keeps of one shot beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'a> {
    /// Which packets it has: bit `i % 8` of byte `i / 8` is packet `i`.
    pub presence: &'a [u8],
    /// What closes the shot is there and proves it.
    pub proven: bool,
    /// TAI nanoseconds of the first sample, 0 if unknown.
    pub stamp_tai_ns: u64,
    /// The record's flags.
    pub flags: u8,
}

/// A recording, row by row. Several threads read it, each its own clone and some of the rows, in order.
pub trait Tape: Clone + Send + 'static {
    /// The links.
    fn links(&self) -> &[TapeLink];
    /// The rows to send.
    fn rows(&self) -> Range<u64>;
    /// The shot numbers that they stand for, those included that are in no row.
    fn numbers(&self) -> Range<u64>;
    /// If its samples are test patterns of its streams: their period, as set-up tells it. Else 0.
    fn pattern_period(&self) -> u32 {
        0
    }
    /// A row's shot number, and when it was taken in nanoseconds of one clock; 0 if unknown.
    fn row(&mut self, row: u64) -> Result<(u64, u64), ReadError>;
    /// Hands a shot to `take`, as its bytes were on the wire; nothing if it is not in the recording.
    fn shot(&mut self, row: u64, link: usize, take: &mut dyn FnMut(&Kept<'_>, &[u8])) -> Result<(), ReadError>;
}
