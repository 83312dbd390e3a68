//! Chunked datasets whose data is written without libhdf5: samples and tables.

use std::ops::Range;

/// Offsets of the object header fields of a chunked dataset that are patched in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOffsets {
    /// Offset of the current first dimension, the commit marker.
    pub extent_at: u64,
    /// Offset of the address of the chunk index.
    pub tree_at: u64,
}

/// A sample dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Offsets of the header fields that are patched.
    pub header: HeaderOffsets,
    /// Links whose slots are the chunks of the dataset.
    pub links: Range<usize>,
    /// Offset of the first leaf of the chunk index.
    pub leaves: u64,
}

impl Data {
    /// Returns the chunk number of a link's slot in a row.
    pub(super) fn index(&self, row: u64, link: usize) -> u64 {
        row * self.links.len() as u64 + (link - self.links.start) as u64
    }
}

/// A table. Its chunks are contiguous, and therefore its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Offsets of the header fields that are patched.
    pub header: HeaderOffsets,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Rows per chunk, a power of two.
    pub chunk_rows: u32,
    /// Offset of the first row.
    pub start: u64,
    /// Maximum number of rows.
    pub capacity: u64,
}

impl Table {
    /// Returns the offset of a row.
    pub fn row_offset(&self, row: u64) -> u64 {
        self.start + row * u64::from(self.row_bytes)
    }
    pub(super) fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_rows) * u64::from(self.row_bytes)
    }
}
