//! Panels: ranges of columns that are processed together, so that their buffers fit in a cache.

use super::row::BLOCK;
use std::ops::Range;

/// Bytes of the buffers of one thread. Larger ones need more than the second-level cache can deliver, smaller ones spend
/// more on the halos of their panels.
const BUFFER_BYTES: usize = 96 << 10;
/// Number of parts, at least, in which the memory of a row is accessed while it is computed.
const MIN_PARTS: usize = 4;
/// Columns that are computed at a time if there are fewer steps than parts.
const CHUNK: usize = 128;

/// Number of columns of panels.
#[derive(Clone, Copy, Debug)]
pub(super) struct PanelSize {
    /// Columns of a panel, except for the last one: a multiple of [`BLOCK`].
    pub(super) columns: usize,
    /// Columns that are computed at a time, a multiple of [`LINE`](super::row::LINE).
    pub(super) chunk: usize,
}

impl PanelSize {
    /// Returns the best size for a number of steps.
    pub(super) fn new<F>(steps: usize) -> Self {
        let columns = (BUFFER_BYTES / size_of::<F>() / slots(steps) / BLOCK * BLOCK).max(BLOCK);
        Self { columns, chunk: if steps < MIN_PARTS { CHUNK } else { usize::MAX } }
    }
}

/// Returns the number of rows in the buffers.
pub(super) fn slots(steps: usize) -> usize {
    2 * steps + 4
}

/// Divides the columns into panels. All but the last have a multiple of [`BLOCK`] columns; the last one has at least as
/// many as steps if there are several.
pub(super) fn split(columns: usize, width: usize, steps: usize) -> Vec<Range<usize>> {
    let mut panels: Vec<Range<usize>> =
        (0..columns).step_by(width).map(|first| first..columns.min(first + width)).collect();
    if let [.., before, last] = panels.as_mut_slice()
        && last.len() < steps
    {
        before.end = last.end;
        panels.pop();
    }
    panels
}
