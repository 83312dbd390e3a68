//! A CUDA device whose memory is the accelerator's.

mod plan;
mod sys;

use super::execute::Executor;
use super::notice::Notice;
use super::processor::Processor;
use crate::command::{Outcome, TileSteps};
use shotline_memory::{CudaError, CudaKernels};
use std::sync::Arc;
use sys::Gpu;

/// The kernels, which NVRTC compiles for the device.
const SOURCE: &str = include_str!("kernels.cu");

/// A GPU, and the processor for commands that need more scratch memory than the GPU has.
pub(super) struct Cuda {
    gpu: Gpu,
    processor: Processor,
    notice: Arc<Notice>,
}

impl Cuda {
    /// Compiles the kernels for the device that has the processor's memory. Returns the processor if it is not memory of a
    /// GPU, or if that cannot compute: a notice has the reason.
    pub(super) fn new(processor: Processor, notice: &Arc<Notice>) -> Result<Self, Processor> {
        match processor.memory.cuda_kernels(SOURCE, &plan::KERNELS) {
            None => Err(processor),
            Some(Ok(kernels)) => Self::with(kernels, processor, notice),
            Some(Err(error)) => {
                notice.give(format!("the processor computes, not the GPU: {error}"));
                Err(processor)
            }
        }
    }

    fn with(kernels: Box<dyn CudaKernels>, processor: Processor, notice: &Arc<Notice>) -> Result<Self, Processor> {
        let address = kernels.memory();
        if !address.is_multiple_of(8) {
            // Values at multiples of their length in the memory would not be so for the device.
            notice.give(format!(
                "the processor computes, not the GPU: expected memory at a multiple of 8, found {address:#x}"
            ));
            return Err(processor);
        }
        Ok(Self { gpu: Gpu::new(kernels, Arc::clone(&processor.memory)), processor, notice: Arc::clone(notice) })
    }
}

impl Executor for Cuda {
    fn execute(&mut self, work: &TileSteps) -> (Outcome, f64) {
        match self.gpu.run(work) {
            Ok(max) => (Outcome::Done, max),
            // Nothing has been launched.
            Err(error @ CudaError::OutOfMemory { .. }) => {
                self.notice.give(format!("the processor computes, not the GPU, for want of scratch memory: {error}"));
                self.processor.execute(work)
            }
            Err(error) => {
                self.notice.give(format!("the GPU has failed: {error}"));
                (Outcome::Failed, 0.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SOURCE;
    use shotline_memory::{CudaError, compile_cuda_kernels};

    /// Newer than all devices: the result is the text of portable code.
    const NEWEST: i32 = 9999;

    #[test]
    fn compiler_joins_no_multiplication_and_addition() {
        let code = match compile_cuda_kernels(SOURCE, NEWEST) {
            Err(error @ (CudaError::NoCompiler | CudaError::NotBuilt)) => shotline_testing::skip!("{error}"),
            code => String::from_utf8(code.unwrap()).unwrap(),
        };
        for name in super::plan::KERNELS {
            assert!(code.contains(&format!(".visible .entry {}(", name.to_str().unwrap())), "{name:?}");
        }
        assert!(code.contains("mul.rn.f32") && code.contains("add.rn.f64"), "{code}");
        assert!(!code.contains("fma") && !code.contains(".ftz") && !code.contains(".approx"), "{code}");
    }

    #[test]
    fn kernels_compile_for_devices_of_several_ages() {
        for capability in [75, 86, 90] {
            match compile_cuda_kernels(SOURCE, capability) {
                Err(error @ (CudaError::NoCompiler | CudaError::NotBuilt)) => shotline_testing::skip!("{error}"),
                code => assert!(code.unwrap().starts_with(b"\x7fELF"), "{capability}"),
            }
        }
    }
}
