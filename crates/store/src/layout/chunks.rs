//! Chunks of a compressed run. They differ in length, are stored in the order in which they were compressed, and are
//! looked up in the chunk index, whose leaves are contiguous.
//!
//! The index of a new file has an entry for every row, which refers to a slot of zeros at the start of the data. The
//! entry of a lost shot stays that way.

use super::datasets::Data;
use super::structure::{ALIGN, Layout, MAX_BYTES};
use crate::medium::Medium;
use crate::metadata::header::{HeaderError, bytes};
use crate::metadata::tree::{self, Chunk};
use crate::positioned::ReadAt;
use rustix::io::Errno;

/// Filter mask of a compressed chunk: the second filter of the pipeline (bitshuffle, n-bit) was skipped.
const COMPRESSED: u32 = 0b10;
/// Filter mask of an uncompressed slot: the first filter was skipped.
const UNCOMPRESSED: u32 = 0b01;
/// Number of entries per read.
const BLOCK_ENTRIES: u64 = 1024;

/// Offset and length of a stored shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// File offset, a multiple of 4096.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The bytes are a compressed chunk; else an uncompressed slot.
    pub compressed: bool,
}

impl StoredChunk {
    /// Returns the end of the chunk, rounded up to a multiple of 4096.
    pub fn end(&self) -> u64 {
        (self.offset + u64::from(self.bytes)).next_multiple_of(ALIGN)
    }
}

impl Layout {
    /// Returns the slot of zeros that stands for a lost shot of a compressed run.
    pub fn zeros(&self, link: usize) -> StoredChunk {
        StoredChunk { offset: self.data_start + self.slots[link].0, bytes: self.slots[link].1, compressed: false }
    }

    /// Returns the index entry of a chunk.
    pub(super) fn entry(&self, data: &Data, row: u64, link: usize, stored: StoredChunk) -> Chunk {
        Chunk {
            first: [row, 0, (link - data.links.start) as u64 * self.channels[link]],
            address: stored.offset,
            bytes: stored.bytes,
            filter_mask: match (self.codec, stored.compressed) {
                (None, _) => 0,
                (Some(_), true) => COMPRESSED,
                (Some(_), false) => UNCOMPRESSED,
            },
        }
    }

    /// Parses and checks an entry of a compressed run's index.
    pub(super) fn parse(&self, data: &Data, row: u64, link: usize, entry: &Chunk) -> Result<StoredChunk, HeaderError> {
        let compressed = entry.filter_mask == COMPRESSED;
        let stored = StoredChunk { offset: entry.address, bytes: entry.bytes, compressed };
        let slot = self.slots[link].1;
        let length_valid = if compressed { (1..=slot).contains(&stored.bytes) } else { stored.bytes == slot };
        let inside = (self.data_start..self.end.min(MAX_BYTES)).contains(&stored.offset) && stored.end() <= self.end;
        if length_valid
            && inside
            && stored.offset.is_multiple_of(ALIGN)
            && *entry == self.entry(data, row, link, stored)
        {
            return Ok(stored);
        }
        Err(HeaderError::at(
            entry.address,
            &format!("a chunk of row {row}, of {slot} bytes or compressed, at a multiple of {ALIGN}"),
            &format!("{} bytes for {:?}, filter mask {}", entry.bytes, entry.first, entry.filter_mask),
        ))
    }
}

/// Looks up the chunk of a shot of a compressed run.
pub(super) fn read(
    file: &(impl ReadAt + ?Sized),
    layout: &Layout,
    row: u64,
    link: usize,
) -> Result<StoredChunk, HeaderError> {
    let data = layout.data_of(link);
    let shape = layout.data_shape();
    let (at, _) = shape.entry_at(data.leaves, data.index(row, link));
    let entry = tree::parse_entry(shape, &bytes(file, at, shape.entry_bytes())?);
    layout.parse(data, row, link, &entry)
}

/// Writes the entries of rows from `first` on: those of all links of a row, then those of the next.
pub(super) fn write(file: &Medium, layout: &Layout, first: u64, stored: &[StoredChunk]) -> Result<(), Errno> {
    let (shape, links) = (layout.data_shape(), layout.slots.len());
    let mut out = Vec::new();
    for data in &layout.data {
        let entries = (first..)
            .zip(stored.chunks_exact(links))
            .flat_map(|(row, stored)| data.links.clone().map(move |link| layout.entry(data, row, link, stored[link])));
        let mut index = data.index(first, data.links.start);
        let mut entries = entries.peekable();
        while entries.peek().is_some() {
            // Entries are contiguous within a leaf.
            let (at, leaf_entries) = shape.entry_at(data.leaves, index);
            out.clear();
            entries.by_ref().take(leaf_entries as usize).for_each(|entry| tree::push_entry(shape, &mut out, &entry));
            file.write_all(at, &out)?;
            index += (out.len() / shape.entry_bytes()) as u64;
        }
    }
    Ok(())
}

/// Resets the entry of a lost shot to the slot of zeros.
pub(super) fn clear(file: &Medium, layout: &Layout, row: u64, link: usize) -> Result<(), Errno> {
    let (data, shape) = (layout.data_of(link), layout.data_shape());
    let (at, _) = shape.entry_at(data.leaves, data.index(row, link));
    let mut out = Vec::with_capacity(shape.entry_bytes());
    tree::push_entry(shape, &mut out, &layout.entry(data, row, link, layout.zeros(link)));
    file.write_all(at, &out)
}

/// Iterator over the entries of a compressed run's first rows. They are read in blocks on demand; after an error, kept
/// in [`Entries::failed`], the remaining entries are undefined.
pub(super) struct Entries<'a> {
    file: &'a Medium,
    layout: &'a Layout,
    data: &'a Data,
    next: u64,
    count: u64,
    block: Vec<u8>,
    consumed: usize,
    /// Error of a failed read.
    pub failed: Option<Errno>,
}

impl<'a> Entries<'a> {
    pub fn new(file: &'a Medium, layout: &'a Layout, data: &'a Data, rows: u64) -> Self {
        let count = rows * data.links.len() as u64;
        Self { file, layout, data, next: 0, count, block: Vec::new(), consumed: 0, failed: None }
    }
}

impl Iterator for Entries<'_> {
    type Item = Chunk;
    fn next(&mut self) -> Option<Chunk> {
        let shape = self.layout.data_shape();
        if self.next == self.count {
            return None;
        }
        if self.consumed == self.block.len() {
            let (at, leaf_entries) = shape.entry_at(self.data.leaves, self.next);
            let entries = leaf_entries.min(self.count - self.next).min(BLOCK_ENTRIES) as usize;
            (self.block, self.consumed) = (vec![0; entries * shape.entry_bytes()], 0);
            if self.file.read_at(at, &mut self.block) < self.block.len() {
                self.failed = Some(Errno::IO);
            }
        }
        let entry = tree::parse_entry(shape, &self.block[self.consumed..]);
        self.consumed += shape.entry_bytes();
        self.next += 1;
        Some(entry)
    }
}
