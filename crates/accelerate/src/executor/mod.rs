//! What computes the steps of a command: the processor, or the GPU that has the memory.

mod cuda;
mod execute;
mod notice;
mod processor;

pub(crate) use execute::Executor;
pub(crate) use notice::Notice;

use cuda::Cuda;
use processor::Processor;
use shotline_memory::Region;
use std::sync::Arc;

/// Returns the executor for a memory. A notice says why it is the processor for memory of a GPU.
pub(crate) fn choose(memory: &Arc<Region>, threads: usize, notice: &Arc<Notice>) -> Box<dyn Executor> {
    let processor = Processor { memory: Arc::clone(memory), threads };
    match Cuda::new(processor, notice) {
        Ok(cuda) => Box::new(cuda),
        Err(processor) => Box::new(processor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_processor_needs_no_notice() {
        let notice = Arc::default();
        choose(&Region::heap(4096).unwrap(), 1, &notice);
        assert_eq!(notice.take(), None);
    }
}
