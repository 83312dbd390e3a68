//! Memory of a device as a region.

use std::ptr::NonNull;

/// Memory that is not this process's own: of a GPU, an FPGA, an accelerator behind a link.
///
/// Copies are synchronous: when a method returns, the bytes are where they should be. A device whose copy fails has no
/// caller to tell it to; it leaves the bytes as they are and reports the failure through its own interface (as CUDA
/// does, whose errors stay until they are asked for).
///
/// # Safety
/// Copies touch no host memory but what the pointers name. If [`Self::host_address`] gives an address, [`Self::len`]
/// bytes from there, rounded up to a multiple of 8, can be read and written by this process as long as the value lives, and
/// it is a multiple of 8.
pub unsafe trait DeviceMemory: Send + Sync {
    /// Its bytes; always the same.
    fn len(&self) -> usize;
    /// Whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies `len` bytes from `offset` to host memory.
    ///
    /// # Safety
    /// `offset + len` is at most [`Self::len`], and `to` is valid for writes of `len` bytes.
    unsafe fn copy_out(&self, offset: usize, to: *mut u8, len: usize);
    /// Copies `len` bytes of host memory to `offset`.
    ///
    /// # Safety
    /// `offset + len` is at most [`Self::len`], and `from` is valid for reads of `len` bytes.
    unsafe fn copy_in(&self, offset: usize, from: *const u8, len: usize);
    /// Where this process sees it, if it does (a PCIe BAR, managed memory).
    fn host_address(&self) -> Option<NonNull<u8>> {
        None
    }
}
