//! The launches of kernels.

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod tests;

use super::plan::{Launch, MAX_GRID, Plan, THREADS};
use crate::command::TileSteps;
use shotline_memory::{CudaError, CudaKernels, Region};
use std::sync::Arc;

/// A device with kernels for its memory.
pub(super) struct Gpu {
    kernels: Box<dyn CudaKernels>,
    /// The memory, which stays allocated while kernels may use it.
    memory: Arc<Region>,
    max_grid: u32,
}

impl Gpu {
    /// Computes by kernels of kernels.cu, which were compiled for this memory.
    pub(super) fn new(kernels: Box<dyn CudaKernels>, memory: Arc<Region>) -> Self {
        Self { kernels, memory, max_grid: MAX_GRID }
    }

    /// Computes the steps of a command. Returns the largest change, if sums are requested. If the device has too little
    /// memory, nothing has changed.
    ///
    /// # Panics
    /// If the work is not inside the memory.
    pub(super) fn run(&mut self, work: &TileSteps) -> Result<f64, CudaError> {
        // Again, because what the kernels access depends on it.
        work.check(self.memory.len() as u64, 1).expect("the work was checked");
        let results = work.tile.result_rows(work.steps as usize).expect("the work was checked");
        let plan = Plan::new(work, results, self.max_grid);
        let scratch = self.kernels.scratch(plan.scratch_bytes())?;
        for Launch { kernel, grid, arguments } in plan.launches(self.kernels.memory(), scratch) {
            // SAFETY: the arguments have the length of `Launch` in kernels.cu. Rows of the source, of the result and of the
            // squares are inside the memory, which was checked above; other rows and the largest changes are inside the
            // scratch memory, which has the plan's length. The memory is alive, and `finish` is called before either is
            // freed, also when an error leaves launches in progress: by the destructor of the kernels.
            unsafe { self.kernels.launch(kernel, grid, THREADS, &arguments) }?;
        }
        self.kernels.finish()?;
        let mut bytes = vec![0; plan.maxima().len()];
        self.kernels.read_scratch(plan.maxima().start, &mut bytes)?;
        let maxima = bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
        Ok(maxima.fold(0.0, |max: f64, change| if change <= max || max.is_nan() { max } else { change }))
    }
}
