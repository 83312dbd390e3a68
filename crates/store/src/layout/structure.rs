//! Where everything of a recording is.

use super::datasets::{Data, Marks, Table};
use super::described::Described;
use crate::codec::Codec;
use crate::metadata::tree::Shape;
use crate::rows::RowFormat;

/// Direct I/O's unit here: the file's slots begin at multiples of it.
pub const ALIGN: u64 = 4096;
/// Data of more bytes is refused: no disk holds it, and sums of addresses must not overflow.
pub(super) const MAX_BYTES: u64 = 1 << 60;

/// Where everything of a recording is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows that there is room for.
    pub rows: u64,
    /// Rows that every index and table has room for: as many, but for a power cut at the end of a run.
    pub common_rows: u64,
    /// How chunks are compressed, if they are.
    pub codec: Option<Codec>,
    /// Where row 0's first slot is. Of a compressed run the first slot of zeros, while it is recorded.
    pub data_start: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u64,
    /// Each link's first byte in a row, and its slot's bytes.
    pub slots: Vec<(u64, u32)>,
    /// The datasets of samples.
    pub data: Vec<Data>,
    /// The links' shots tables.
    pub shots: Vec<Table>,
    /// How their rows are read.
    pub formats: Vec<RowFormat>,
    /// `/losses`.
    pub losses: Table,
    /// `/books`.
    pub books: Table,
    /// Where the rows of `/linkN/clock` are ([`crate::clocks`]); none in files of earlier versions.
    pub clocks: Vec<u64>,
    /// The links' tables of block descriptions, if they have them.
    pub described: Vec<Described>,
    /// Half the fan-out of chunk indexes.
    pub chunk_k: u16,
    /// Where the superblock has the end of the file.
    pub end_at: u64,
    /// The end of the file.
    pub end: u64,
    /// Where the indexes have their roots: those of samples, block descriptions and tables.
    pub(crate) roots: Vec<u64>,
    /// Slots may hold bytes of an older recording, or of an earlier part, where no row is.
    pub recycled: bool,
    pub(super) channels: Vec<u64>,
}

impl Layout {
    /// Where the slot of a link's shot is. Of a compressed run the index has to be asked ([`stored`](super::stored)).
    pub fn slot(&self, row: u64, link: usize) -> u64 {
        // Wrapping, because a damaged file may claim anything: what is there is then not found.
        self.data_start.wrapping_add(row.wrapping_mul(self.row_bytes)).wrapping_add(self.slots[link].0)
    }
    /// The same, with the slot's bytes.
    pub(crate) fn slot_of(&self, row: u64, link: usize) -> (u64, u32) {
        (self.slot(row, link), self.slots[link].1)
    }
    /// Where the data of `rows` rows ends, of a compressed run at the latest.
    pub fn data_end(&self, rows: u64) -> u64 {
        self.data_start + (rows + u64::from(self.codec.is_some())) * self.row_bytes
    }
    /// Where the tail begins.
    pub(crate) fn tail_start(&self) -> u64 {
        if self.codec.is_some() { self.data[0].leaves } else { self.data_end(self.rows) }
    }
    pub(super) fn data_of(&self, link: usize) -> &Data {
        self.data.iter().find(|data| data.links.contains(&link)).expect("every link has a dataset")
    }
    /// The marks of the tables that have a row for each of the samples'.
    pub(crate) fn row_marks(&self) -> impl Iterator<Item = Marks> + '_ {
        self.shots.iter().map(|table| table.marks).chain(self.described.iter().map(|table| table.marks))
    }
    /// The marks of every index, in the order of `roots`.
    pub(super) fn indexes(&self) -> impl Iterator<Item = Marks> + '_ {
        let tables = self.shots.iter().chain([&self.losses, &self.books]).map(|table| table.marks);
        let described = self.described.iter().map(|table| table.marks);
        self.data.iter().map(|data| data.marks).chain(described).chain(tables)
    }
    pub(super) fn data_shape(&self) -> Shape {
        Shape { rank: 3, k: self.chunk_k }
    }
}
