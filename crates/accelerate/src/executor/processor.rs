//! The processor.

use super::execute::Executor;
use crate::command::{Outcome, TileSteps, Values};
use shotline_compute::stencil::{Real, RegionCells, Residual, StencilError};
use shotline_memory::Region;
use std::sync::Arc;

/// Threads of the processor, which copy what they need of the memory.
pub(super) struct Processor {
    pub(super) memory: Arc<Region>,
    pub(super) threads: usize,
}

impl Executor for Processor {
    fn execute(&mut self, work: &TileSteps) -> (Outcome, f64) {
        let done = match work.values {
            Values::F32 => self.advance::<f32>(work),
            Values::F64 => self.advance::<f64>(work),
        };
        match (done, work.squares) {
            (Err(_), _) => (Outcome::NoResult, 0.0),
            (Ok(_), None) => (Outcome::Done, 0.0),
            (Ok(residual), Some(at)) => {
                let bytes: Vec<u8> = residual.squares.iter().flat_map(|sum| sum.to_le_bytes()).collect();
                self.memory.write(at as usize, &bytes);
                (Outcome::Done, residual.max)
            }
        }
    }
}

impl Processor {
    fn advance<F: Real>(&self, work: &TileSteps) -> Result<Residual, StencilError> {
        let stride = work.stride as usize;
        let cells = |offset| RegionCells { region: &self.memory, offset: offset as usize, stride };
        work.stencil(self.threads).advance::<F>(work.tile, &cells(work.source), &cells(work.result))
    }
}
