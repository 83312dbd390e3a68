//! Dma-bufs of ordinary memory, which the kernel makes (`include/uapi/linux/udmabuf.h`).

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::ffi::c_void;

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

/// Creates a dma-buf of a range of a memfd, in whole pages, which is sealed against shrinking. `device` is `/dev/udmabuf`.
pub(super) fn dmabuf(device: impl AsFd, memfd: BorrowedFd<'_>, offset: u64, size: u64) -> rustix::io::Result<OwnedFd> {
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
        assert_eq!(dmabuf(&null, null.as_fd(), 0, 4096).unwrap_err(), rustix::io::Errno::NOTTY);
    }
}
