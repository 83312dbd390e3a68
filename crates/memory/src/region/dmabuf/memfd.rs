//! Dma-bufs of ordinary shared memory, which the kernel makes (`include/uapi/linux/udmabuf.h`).

use super::DmabufError;
use crate::{MemoryError, Region};
use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::ffi::c_void;

/// Device that makes them.
const DEVICE: &str = "/dev/udmabuf";

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `UDMABUF_FLAGS_CLOEXEC`.
const CLOEXEC: u32 = 1;

// SAFETY: the request reads the structure, and returns a new descriptor.
unsafe impl Ioctl for Create {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> Opcode {
        opcode::write::<Self>(b'u', 0x42)
    }
    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }
    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the caller passes what the request returned, which is a new descriptor.
        Ok(unsafe { OwnedFd::from_raw_fd(output) })
    }
}

impl Region {
    /// Returns a dma-buf of a range of shared memory, without a copy, so that a device can use it: `offset` is a multiple of
    /// the page, and `len` is rounded up to pages.
    ///
    /// # Errors
    /// If the region is no shared memory (`memfd`), the kernel has no `/dev/udmabuf` or this user may not open it, or it
    /// refuses the range.
    pub fn to_dmabuf(&self, offset: usize, len: usize) -> Result<OwnedFd, MemoryError> {
        let memfd = self.fd().ok_or(DmabufError::NotShared)?;
        let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let device = device.map_err(|source| DmabufError::Create { device: DEVICE, source })?;
        let size = len.next_multiple_of(rustix::param::page_size());
        let created = create(&device, memfd, offset as u64, size as u64);
        created.map_err(|source| DmabufError::Create { device: DEVICE, source }.into())
    }
}

/// Creates a dma-buf of a range of a memfd, in whole pages, which is sealed against shrinking. `device` is [`DEVICE`].
fn create(device: impl AsFd, memfd: BorrowedFd<'_>, offset: u64, size: u64) -> rustix::io::Result<OwnedFd> {
    let create = Create { memfd: memfd.as_raw_fd().cast_unsigned(), flags: CLOEXEC, offset, size };
    // SAFETY: see the implementation of the trait. Another kind of device refuses the request, or it is one whose request of
    // this number reads as many bytes and returns a number: the path is a constant of the only caller.
    unsafe { rustix::ioctl::ioctl(device, create) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_that_makes_no_dmabuf_is_refused() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(create(&null, null.as_fd(), 0, 4096).unwrap_err(), rustix::io::Errno::NOTTY);
    }

    #[test]
    fn memory_without_a_descriptor_has_no_dmabuf() {
        let error = Region::heap(4096).unwrap().to_dmabuf(0, 4096).unwrap_err();
        assert!(error.to_string().contains("expected shared memory"), "{error}");
    }
}
