//! Offsets of everything in a recording.

use super::block_tables::BlockTable;
use super::datasets::{Data, HeaderOffsets, Table};
use crate::codec::Codec;
use crate::metadata::tree::Shape;
use crate::rows::RowFormat;

/// Alignment of slots in bytes, suitable for direct I/O.
pub const ALIGN: u64 = 4096;
/// Maximum size of the data in bytes, so that sums of addresses cannot overflow.
pub(super) const MAX_BYTES: u64 = 1 << 60;

/// Offsets of everything in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of allocated rows.
    pub rows: u64,
    /// Rows that every index and table has space for: equal to `rows`, except after a power cut at the end of a run.
    pub common_rows: u64,
    /// Compression of chunks, if any.
    pub codec: Option<Codec>,
    /// Offset of the first slot of row 0; of the first slot of zeros in a compressed run.
    pub data_start: u64,
    /// Distance between rows in bytes.
    pub row_bytes: u64,
    /// Offset in a row and length of each link's slot, in bytes.
    pub slots: Vec<(u64, u32)>,
    /// Sample datasets.
    pub data: Vec<Data>,
    /// Shots tables by link.
    pub shots: Vec<Table>,
    /// Row formats of the shots tables.
    pub formats: Vec<RowFormat>,
    /// `/losses`.
    pub losses: Table,
    /// `/counters`.
    pub counters: Table,
    /// Offsets of the rows of `/linkN/clock` ([`crate::clocks`]).
    pub clocks: Vec<u64>,
    /// Tables of block descriptions.
    pub block_tables: Vec<BlockTable>,
    /// Half the fan-out of chunk indexes.
    pub chunk_k: u16,
    /// Offset of the end-of-file address in the superblock.
    pub end_at: u64,
    /// End-of-file address.
    pub end: u64,
    /// Root addresses of the chunk indexes: samples, block descriptions, tables.
    pub(crate) roots: Vec<u64>,
    /// Slots without a row may hold bytes of an older recording or an earlier part.
    pub recycled: bool,
    /// Number of channels of each link.
    pub(super) channels: Vec<u64>,
}

impl Layout {
    /// Returns the offset of a slot. In a compressed run use [`stored`](super::stored), which reads the index.
    pub fn slot(&self, row: u64, link: usize) -> u64 {
        // Wrapping, because the values of a damaged file are untrusted; a read at a wrapped offset fails.
        self.data_start.wrapping_add(row.wrapping_mul(self.row_bytes)).wrapping_add(self.slots[link].0)
    }
    /// Returns the offset and length of a slot.
    pub(crate) fn slot_of(&self, row: u64, link: usize) -> (u64, u32) {
        (self.slot(row, link), self.slots[link].1)
    }
    /// Returns the end of the data of `rows` rows; an upper bound in a compressed run.
    pub fn data_end(&self, rows: u64) -> u64 {
        self.data_start + (rows + u64::from(self.codec.is_some())) * self.row_bytes
    }
    /// Returns the offset of the tail.
    pub(crate) fn tail_start(&self) -> u64 {
        if self.codec.is_some() { self.data[0].leaves } else { self.data_end(self.rows) }
    }
    pub(super) fn data_of(&self, link: usize) -> &Data {
        self.data.iter().find(|data| data.links.contains(&link)).expect("every link has a dataset")
    }
    /// Returns the header offsets of the tables that have one row per shot.
    pub(crate) fn row_headers(&self) -> impl Iterator<Item = HeaderOffsets> + '_ {
        self.shots.iter().map(|table| table.header).chain(self.block_tables.iter().map(|table| table.header))
    }
    /// Returns the header offsets of every index, in the order of `roots`.
    pub(super) fn indexes(&self) -> impl Iterator<Item = HeaderOffsets> + '_ {
        let tables = self.shots.iter().chain([&self.losses, &self.counters]).map(|table| table.header);
        let block_tables = self.block_tables.iter().map(|table| table.header);
        self.data.iter().map(|data| data.header).chain(block_tables).chain(tables)
    }
    pub(super) fn data_shape(&self) -> Shape {
        Shape { rank: 3, k: self.chunk_k }
    }
}
