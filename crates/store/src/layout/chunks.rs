//! The chunks of a compressed run: they differ in length, stand in the order in which they were finished, and are looked
//! up in the index, whose leaves stand one behind the other.
//!
//! The index of a new file has room for every row and says of each that it is a slot of zeros at the front of the data.
//! A shot that is lost stays so.

use super::datasets::Data;
use super::structure::{ALIGN, Layout, MAX_BYTES};
use crate::medium::Medium;
use crate::metadata::header::{HeaderError, bytes};
use crate::metadata::tree::{self, Chunk};
use crate::positioned::ReadAt;
use rustix::io::Errno;

/// The filter mask of a compressed chunk: of the pipeline bitshuffle, n-bit the second was skipped.
const COMPRESSED: u32 = 0b10;
/// That of a slot as it came: the first was.
const AS_IT_CAME: u32 = 0b01;
/// Entries that are read at once.
const BLOCK: u64 = 1024;

/// Where a shot of a compressed run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// Its first byte, a multiple of 4096.
    pub at: u64,
    /// Its bytes.
    pub bytes: u32,
    /// They are a compressed chunk; else the slot as it came.
    pub compressed: bool,
}

impl StoredChunk {
    /// The first multiple of 4096 behind it.
    pub fn end(&self) -> u64 {
        (self.at + u64::from(self.bytes)).next_multiple_of(ALIGN)
    }
}

impl Layout {
    /// A slot of zeros: what a lost shot of a compressed run is.
    pub fn zeros(&self, link: usize) -> StoredChunk {
        StoredChunk { at: self.data_start + self.slots[link].0, bytes: self.slots[link].1, compressed: false }
    }

    /// The entry of a chunk.
    pub(super) fn entry(&self, data: &Data, row: u64, link: usize, stored: StoredChunk) -> Chunk {
        Chunk {
            first: [row, 0, (link - data.links.start) as u64 * self.channels[link]],
            address: stored.at,
            bytes: stored.bytes,
            filter_mask: match (self.codec, stored.compressed) {
                (None, _) => 0,
                (Some(_), true) => COMPRESSED,
                (Some(_), false) => AS_IT_CAME,
            },
        }
    }

    /// What an entry of a compressed run's index says; refuses what cannot be that.
    pub(super) fn parse(&self, data: &Data, row: u64, link: usize, entry: &Chunk) -> Result<StoredChunk, HeaderError> {
        let compressed = entry.filter_mask == COMPRESSED;
        let stored = StoredChunk { at: entry.address, bytes: entry.bytes, compressed };
        let slot = self.slots[link].1;
        let long = if compressed { (1..=slot).contains(&stored.bytes) } else { stored.bytes == slot };
        let inside = (self.data_start..self.end.min(MAX_BYTES)).contains(&stored.at) && stored.end() <= self.end;
        if long && inside && stored.at.is_multiple_of(ALIGN) && *entry == self.entry(data, row, link, stored) {
            return Ok(stored);
        }
        Err(HeaderError::at(
            entry.address,
            &format!("a chunk of row {row}, of {slot} bytes or compressed, at a multiple of {ALIGN}"),
            &format!("{} bytes for {:?}, filter mask {}", entry.bytes, entry.first, entry.filter_mask),
        ))
    }
}

/// Looks up where a shot of a compressed run is.
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

/// Enters where the shots of some rows are, the first of which is `first`: those of all links of a row, then those of
/// the next.
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
            // As many as are in one leaf stand one behind the other.
            let (at, most) = shape.entry_at(data.leaves, index);
            out.clear();
            entries.by_ref().take(most as usize).for_each(|entry| tree::push_entry(shape, &mut out, &entry));
            file.write_all(at, &out)?;
            index += (out.len() / shape.entry_bytes()) as u64;
        }
    }
    Ok(())
}

/// Enters that a shot is lost.
pub(super) fn clear(file: &Medium, layout: &Layout, row: u64, link: usize) -> Result<(), Errno> {
    let (data, shape) = (layout.data_of(link), layout.data_shape());
    let (at, _) = shape.entry_at(data.leaves, data.index(row, link));
    let mut out = Vec::with_capacity(shape.entry_bytes());
    tree::push_entry(shape, &mut out, &layout.entry(data, row, link, layout.zeros(link)));
    file.write_all(at, &out)
}

/// The entries of a compressed run's first rows, in their order. They are read when they are asked for; after an error,
/// which [`Entries::failed`] keeps, the rest is of no meaning.
pub(super) struct Entries<'a> {
    file: &'a Medium,
    layout: &'a Layout,
    data: &'a Data,
    next: u64,
    count: u64,
    block: Vec<u8>,
    taken: usize,
    /// Why they could not be read.
    pub failed: Option<Errno>,
}

impl<'a> Entries<'a> {
    pub fn new(file: &'a Medium, layout: &'a Layout, data: &'a Data, rows: u64) -> Self {
        let count = rows * data.links.len() as u64;
        Self { file, layout, data, next: 0, count, block: Vec::new(), taken: 0, failed: None }
    }
}

impl Iterator for Entries<'_> {
    type Item = Chunk;
    fn next(&mut self) -> Option<Chunk> {
        let shape = self.layout.data_shape();
        if self.next == self.count {
            return None;
        }
        if self.taken == self.block.len() {
            let (at, most) = shape.entry_at(self.data.leaves, self.next);
            let entries = most.min(self.count - self.next).min(BLOCK) as usize;
            (self.block, self.taken) = (vec![0; entries * shape.entry_bytes()], 0);
            if self.file.read_at(at, &mut self.block) < self.block.len() {
                self.failed = Some(Errno::IO);
            }
        }
        let entry = tree::parse_entry(shape, &self.block[self.taken..]);
        self.taken += shape.entry_bytes();
        self.next += 1;
        Some(entry)
    }
}
