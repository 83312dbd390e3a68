//! Copies through two staging buffers: while the device copies one, the processor copies the other.

use super::error::CudaError;
use super::kernels::CudaKernels;
use rustix::fd::OwnedFd;
use std::ffi::CStr;
use std::ptr::{self, NonNull};

/// Length of a staging buffer in bytes. The device copies it in about the time that waking the caller takes.
pub(super) const BUFFER: usize = 1 << 20;
/// Number of staging buffers.
pub(super) const BUFFERS: usize = 2;

/// Direction of a copy by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// From a staging buffer to the device.
    ToDevice,
    /// From the device to a staging buffer.
    FromDevice,
}

/// The part of a device that copies between its memory and the staging buffers.
///
/// # Safety
/// The staging buffers are [`BUFFER`] bytes long and live as long as the value. Nothing accesses them except, between
/// [`Self::start`] and the return of [`Self::wait`], the copy that was started.
pub(super) unsafe trait CopyEngine: Send {
    /// Returns the address of a staging buffer.
    fn staging(&self, buffer: usize) -> NonNull<u8>;
    /// Starts a copy of `len` bytes between the begin of a staging buffer and an offset of the memory.
    fn start(&mut self, transfer: Transfer, buffer: usize, offset: usize, len: usize) -> Result<(), CudaError>;
    /// Waits until the last copy of a staging buffer is complete.
    fn wait(&mut self, buffer: usize) -> Result<(), CudaError>;
}

/// Function that creates a file descriptor of the memory, as a dma-buf.
pub(super) type Export = Box<dyn Fn() -> Result<OwnedFd, CudaError> + Send + Sync>;

/// Function that compiles kernels for the device.
pub(super) type Compile = Box<dyn Fn(&str, &[&CStr]) -> Result<Box<dyn CudaKernels>, CudaError> + Send + Sync>;

/// What a driver has for memory of a device.
#[cfg_attr(not(any(feature = "cuda", test)), allow(dead_code))]
pub(super) struct Parts {
    pub(super) engine: Box<dyn CopyEngine>,
    pub(super) export: Export,
    pub(super) compile: Compile,
}

/// Offsets and lengths of the pieces of a copy.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(BUFFER).map(move |at| (at, BUFFER.min(len - at)))
}

/// Copies host memory to device memory. After an error, the engine must not be used again: it may still be copying.
///
/// # Safety
/// `from` is valid for reads of `len` bytes.
pub(super) unsafe fn copy_in(
    engine: &mut dyn CopyEngine,
    offset: usize,
    from: *const u8,
    len: usize,
) -> Result<(), CudaError> {
    let mut started = 0;
    for (index, (at, n)) in pieces(len).enumerate() {
        let buffer = index % BUFFERS;
        if index >= BUFFERS {
            engine.wait(buffer)?;
        }
        // SAFETY: the caller guarantees the source; the buffer is as long as a piece, and no copy uses it.
        unsafe { ptr::copy_nonoverlapping(from.add(at), engine.staging(buffer).as_ptr(), n) };
        engine.start(Transfer::ToDevice, buffer, offset + at, n)?;
        started = index + 1;
    }
    // In the order in which they were started.
    (started.saturating_sub(BUFFERS)..started).try_for_each(|index| engine.wait(index % BUFFERS))
}

/// Copies device memory to host memory. After an error, the engine must not be used again: it may still be copying.
///
/// # Safety
/// `to` is valid for writes of `len` bytes.
pub(super) unsafe fn copy_out(
    engine: &mut dyn CopyEngine,
    offset: usize,
    to: *mut u8,
    len: usize,
) -> Result<(), CudaError> {
    let mut ahead = pieces(len).enumerate();
    let mut start = |engine: &mut dyn CopyEngine| {
        ahead
            .next()
            .map_or(Ok(()), |(index, (at, n))| engine.start(Transfer::FromDevice, index % BUFFERS, offset + at, n))
    };
    for _ in 0..BUFFERS {
        start(engine)?;
    }
    for (index, (at, n)) in pieces(len).enumerate() {
        let buffer = index % BUFFERS;
        engine.wait(buffer)?;
        // SAFETY: the caller guarantees the target; the buffer is as long as a piece, and its copy is complete.
        unsafe { ptr::copy_nonoverlapping(engine.staging(buffer).as_ptr(), to.add(at), n) };
        start(engine)?;
    }
    Ok(())
}
