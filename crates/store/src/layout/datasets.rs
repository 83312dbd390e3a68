//! Chunked datasets that are laid out from outside: samples and tables.

use std::ops::Range;

/// A chunked dataset that is laid out from outside: where its marker and its index's address stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Offset of the current first dimension.
    pub extent_at: u64,
    /// Offset of the index's address.
    pub tree_at: u64,
}

/// A dataset of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its marks.
    pub marks: Marks,
    /// The links whose slots are its chunks.
    pub links: Range<usize>,
    /// Where the first leaf of its index is.
    pub leaves: u64,
}

impl Data {
    /// The number of a link's chunk in a row among all of the dataset's.
    pub(super) fn index(&self, row: u64, link: usize) -> u64 {
        row * self.links.len() as u64 + (link - self.links.start) as u64
    }
}

/// A table: its rows stand one behind the other from `start`, because its chunks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its marks.
    pub marks: Marks,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Rows of a chunk, a power of two.
    pub chunk_rows: u32,
    /// Where its first row is.
    pub start: u64,
    /// Rows that it has room for.
    pub capacity: u64,
}

impl Table {
    /// Where a row is.
    pub fn at(&self, row: u64) -> u64 {
        self.start + row * u64::from(self.row_bytes)
    }
    pub(super) fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_rows) * u64::from(self.row_bytes)
    }
}
