//! Kernels on the memory of a CUDA device.

use super::error::CudaError;

/// Kernels that are compiled for the device of a memory ([`Region::cuda_kernels`](crate::Region::cuda_kernels)), with a
/// stream and scratch memory of their own.
pub trait CudaKernels: Send {
    /// Returns the address of the first byte of the memory on the device.
    fn memory(&self) -> u64;

    /// Returns the address of scratch memory of at least `len` bytes on the device: the same as before, if that is long
    /// enough. Its bytes are not defined. No kernel may be in progress.
    ///
    /// # Errors
    /// If the device has too little memory, or the driver fails. There is no scratch memory then.
    fn scratch(&mut self, len: usize) -> Result<u64, CudaError>;

    /// Copies bytes from an offset of the scratch memory. No kernel may be in progress.
    ///
    /// # Errors
    /// If the driver fails.
    ///
    /// # Panics
    /// If they are not inside the scratch memory.
    fn read_scratch(&mut self, offset: usize, to: &mut [u8]) -> Result<(), CudaError>;

    /// Starts the kernel with this index in the names, in a grid of blocks of threads, both of one dimension. It begins when
    /// those before it have ended. The arguments are those of its parameter, one structure.
    ///
    /// # Safety
    /// The structure has the length of the arguments. With them, the kernel accesses only the memory and the scratch memory,
    /// both of which stay allocated until [`Self::finish`] has returned, and nothing else uses the same bytes until then.
    ///
    /// # Errors
    /// If the driver fails.
    unsafe fn launch(&mut self, kernel: usize, grid: u32, block: u32, arguments: &[u64]) -> Result<(), CudaError>;

    /// Waits, asleep, until all kernels have ended.
    ///
    /// # Errors
    /// If a kernel or the device has failed. The memory and its copies cannot be used any more.
    fn finish(&mut self) -> Result<(), CudaError>;
}
