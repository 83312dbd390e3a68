//! `/linkN/blocks`: what a digitizer said of its blocks, read where it landed.
//!
//! A description is part of the block's slot ([`shotline_wire::block`]), so nothing is written for this table: its chunks
//! are those bytes. A compressed run has no such table, because its slots are not in the file as they came.

use super::{Layout, Marks};
use crate::info::RunInfo;
use crate::metadata::header::HeaderError;
use crate::metadata::tree::{Chunk, Shape};
use shotline_wire::block;

/// A table whose rows lie in the slots of a link's shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its marks.
    pub marks: Marks,
    /// The link.
    pub link: usize,
    /// Where in a slot the row is.
    pub at: u32,
}

/// The links of a run that have one.
pub(crate) fn links(run: &RunInfo) -> impl Iterator<Item = usize> + '_ {
    let described = |link: &usize| run.codec.is_none() && run.links[*link].geometry.trailer().has_description();
    (0..run.links.len()).filter(described)
}

impl Layout {
    pub(super) fn described_shape(&self) -> Shape {
        Shape { rank: 1, k: self.chunk_k }
    }

    /// The entry of a row in the table's index.
    pub(super) fn described_entry(&self, table: &Described, row: u64) -> Chunk {
        Chunk {
            first: [row, 0, 0],
            address: self.slot(row, table.link).wrapping_add(table.at.into()),
            bytes: block::LEN as u32,
            filter_mask: 0,
        }
    }

    /// Refuses an entry that is another.
    pub(super) fn expect_described(&self, table: &Described, row: u64, chunk: &Chunk) -> Result<(), HeaderError> {
        let expected = self.described_entry(table, row);
        if *chunk == expected {
            return Ok(());
        }
        Err(HeaderError::at(
            chunk.address,
            &format!("the description of row {row} at {}", expected.address),
            &format!("{} bytes for {:?}: another program has rewritten this file", chunk.bytes, chunk.first),
        ))
    }
}
