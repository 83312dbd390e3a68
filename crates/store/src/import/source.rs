//! Something that can be imported, and its shots as it has them.

use super::error::ImportError;
use crate::info::RunInfo;
use crate::shot::Loss;

/// What numbers a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// 8-bit unsigned: kept as bytes.
    Bytes,
    /// They fit 16-bit integers.
    Int16,
    /// Any others: they are looked at first.
    Any,
}

/// What a source is.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub format: &'static str,
    pub numbers: Numbers,
    /// The run that it becomes; links' geometries are those of int16 or bytes.
    pub run: RunInfo,
    /// Shots, at most.
    pub shots: u64,
    pub notes: Vec<String>,
}

/// One link's shot: numbers that are not a number are missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    /// All channels of an instant, then those of the next.
    pub samples: Vec<f64>,
    /// TAI nanoseconds of the first one; 0: unknown.
    pub stamp_tai_ns: u64,
    /// What the source's own table says; none for sources without one.
    pub table: Option<Table>,
}

/// What a source that was a recording says of a shot.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub flags: u8,
    pub complete: bool,
    pub valid_bytes: u32,
    pub presence: Vec<u8>,
    pub arrived_tai_ns: u64,
    pub completed_tai_ns: u64,
}

/// Shots of all links with one number; none: lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub number: u64,
    pub links: Vec<Option<Piece>>,
}

/// Something that can be imported, opened and at its beginning.
pub(super) trait Source {
    fn described(&self) -> &Described;
    /// The next shots; none at the end.
    fn next(&mut self) -> Result<Option<Pieces>, ImportError>;
    /// Losses that the source names; none: numbers that are passed over are lost.
    fn losses(&self) -> Option<&[Loss]> {
        None
    }
}
