//! `/linkN/blocks`: a digitizer's descriptions of its blocks, read in place.
//!
//! A description is part of the block's slot ([`shotline_wire::block`]), so this table has no data of its own: its
//! chunks refer to those bytes. A compressed run has no such table, because its slots are not in the file uncompressed.

use super::datasets::HeaderOffsets;
use crate::info::RunInfo;

/// A table whose rows are inside the slots of a link's shots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTable {
    /// Offsets of the header fields that are patched.
    pub header: HeaderOffsets,
    /// Index of the link.
    pub link: usize,
    /// Offset of the row in a slot.
    pub slot_offset: u32,
}

/// Returns the links of a run that have such a table.
pub(crate) fn links(run: &RunInfo) -> impl Iterator<Item = usize> + '_ {
    let has_table = |link: &usize| run.codec.is_none() && run.links[*link].geometry.trailer().has_description();
    (0..run.links.len()).filter(has_table)
}
