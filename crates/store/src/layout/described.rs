//! `/linkN/blocks`: what a digitizer said of its blocks, read where it landed.
//!
//! A description is part of the block's slot ([`shotline_wire::block`]), so nothing is written for this table: its chunks
//! are those bytes. A compressed run has no such table, because its slots are not in the file as they came.

use super::datasets::Marks;
use crate::info::RunInfo;

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
