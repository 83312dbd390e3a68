//! Device memory as a region.

use super::MemoryError;
use rustix::fd::OwnedFd;
use std::any::Any;
use std::ptr::NonNull;

/// Memory of a device: a GPU, an FPGA, or another accelerator.
///
/// Copies are synchronous: they are complete when the method returns. They return no error: the first failure is kept
/// and returned by [`Self::failure`] from then on (as in CUDA, whose errors are sticky). The bytes of a failed copy, and of
/// all copies after it, are not defined, but none of them is what the target had before: a transport sends them to a peer,
/// and what was there may be another peer's.
///
/// # Safety
/// Copies access no host memory except the given ranges. If [`Self::host_address`] returns an address, it is a multiple
/// of 8, and this process can read and write [`Self::len`] bytes from there, rounded up to a multiple of 8, while the
/// value is alive.
pub unsafe trait DeviceMemory: Send + Sync {
    /// Returns the length of the memory in bytes, which never changes.
    fn len(&self) -> usize;
    /// Returns `true` if the memory has no bytes.
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
    /// Returns the first failure of the device: `None` as long as all copies have succeeded. May also check whether the
    /// device is still present, which a copy that needs no answer does not show.
    fn failure(&self) -> Option<MemoryError> {
        None
    }
    /// Returns a new file descriptor of the memory as a dma-buf, which another device can register to access the memory
    /// directly. `None` if the memory is not of a kind that has one.
    fn export(&self) -> Option<Result<OwnedFd, MemoryError>> {
        None
    }
    /// Returns the address at which the memory is mapped into this process, if it is (a PCIe BAR, managed memory).
    fn host_address(&self) -> Option<NonNull<u8>> {
        None
    }
    /// Returns itself, for code that needs to know its type. `None` if there is no such code.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }
}
