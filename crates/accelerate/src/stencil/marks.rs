//! Marks behind tiles, which show that the memory of a node has not failed.

use crate::error::NodeError;
use crate::node::Node;
use shotline_memory::{Mr, Region};
use shotline_verbs::cm::Endpoint;
use std::sync::Arc;

/// Bytes of a mark, at the end of a buffer.
pub(super) const MARK_BYTES: u64 = 8;
/// First mark. No memory that has failed returns it or one after it, least of all zeros or ones.
const FIRST: u64 = 0x4C69_7374_0000_0001;

/// The marks of a node.
///
/// Memory of a device that fails returns undefined bytes from then on, without an error: the node ends only some time
/// later. So each tile is written with a mark of its own behind it, which is read back after the result. If it is still
/// there, the memory had not failed before.
pub(super) struct Marks {
    /// For each buffer, what is written and what has been read back.
    region: Arc<Region>,
    mr: Mr,
    next: u64,
}

impl Marks {
    /// Registers memory for the marks with a node.
    pub(super) fn new<P: Endpoint>(node: &mut Node<P>, buffers: u32) -> Result<Self, NodeError> {
        let region = Region::heap(buffers as usize * 2 * MARK_BYTES as usize)?;
        Ok(Self { mr: node.register(&region)?, region, next: FIRST })
    }

    /// Writes a new mark for a buffer to the node's memory.
    pub(super) fn write<P: Endpoint>(&mut self, node: &mut Node<P>, buffer: usize, to: u64) -> Result<(), NodeError> {
        let from = written(buffer);
        self.region.write(from, &self.next.to_le_bytes());
        self.next += 1;
        node.write(&self.mr, from as u64, to, MARK_BYTES, buffer as u64)
    }

    /// Reads the mark of a buffer back.
    pub(super) fn read<P: Endpoint>(&self, node: &mut Node<P>, buffer: usize, from: u64) -> Result<(), NodeError> {
        let to = written(buffer) as u64 + MARK_BYTES;
        node.read(&self.mr, to, from, MARK_BYTES, buffer as u64)
    }

    /// Compares the mark that was read back with the one that was written.
    pub(super) fn check(&self, buffer: usize) -> Result<(), NodeError> {
        let mark = |at: usize| {
            let mut bytes = [0; MARK_BYTES as usize];
            self.region.read(at, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        let (expected, found) = (mark(written(buffer)), mark(written(buffer) + MARK_BYTES as usize));
        if expected == found {
            return Ok(());
        }
        let words = format!("its memory has failed: expected the mark {expected:#x} behind a tile, found {found:#x}");
        Err(NodeError::Operation(words))
    }
}

/// Returns the offset of the mark that is written for a buffer.
fn written(buffer: usize) -> usize {
    buffer * 2 * MARK_BYTES as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Values;
    use crate::stencil::plan::{Matrix, Plan};
    use proptest::prelude::*;
    use shotline_compute::stencil::{Boundary, Weights};

    proptest! {
        #[test]
        fn marks_are_behind_everything_of_a_tile(
            rows in 1_u64..400,
            columns in 1_u64..300,
            steps in 1_u64..12,
            fewer in 0_u64..4,
            is_wide: bool,
            kind in 0_usize..3,
            pages in 2_u64..40,
            residual: bool,
        ) {
            let boundary = [Boundary::Fixed, Boundary::Periodic, Boundary::Insulated][kind];
            let values = if is_wide { Values::F64 } else { Values::F32 };
            let matrix = Matrix { rows, columns, values, boundary, weights: Weights::heat(0.2) };
            // Tiles of as many rows as fit, if the memory suffices for any.
            let Ok(plan) = Plan::new(matrix, steps, pages * 4096, 2, None, 1) else { return Ok(()) };
            let steps = steps.saturating_sub(fewer).max(1);
            for tile in (0..plan.tiles()).map(|index| plan.tile(index, steps)) {
                let work = plan.command(&tile, steps, 0, residual);
                prop_assert_eq!(work.check(plan.buffer_bytes - MARK_BYTES, 1), Ok(()), "{:?} {:?}", plan, tile);
            }
        }
    }
}
