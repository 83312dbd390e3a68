//! Errors of dma-bufs.

use crate::format_bytes;
use rustix::fd::RawFd;
use rustix::io::Errno;

/// Reason for which a dma-buf cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DmabufError {
    /// The process has no such file descriptor.
    #[error(
        "file descriptor {0} is not open: expected a dma-buf that the parent process passes on (without close-on-exec)"
    )]
    NotOpen(RawFd),
    /// The descriptor is of another kind.
    #[error(
        "file descriptor {0} is no dma-buf: expected one that a driver has exported (ls -l /proc/self/fd shows dmabuf)"
    )]
    NotADmabuf(RawFd),
    /// The request exceeds the buffer.
    #[error("the dma-buf has {found} bytes, {requested} bytes are requested: request less")]
    TooLarge {
        /// Length of the buffer in bytes.
        found: u64,
        /// Requested length in bytes.
        requested: u64,
    },
    /// The driver that exported the buffer does not let a process map it.
    #[error(
        "cannot map the dma-buf of {}: {source}; its driver must support mmap, and for writing the descriptor must have \
         been exported with O_RDWR",
        format_bytes(*.bytes)
    )]
    Map {
        /// Length of the buffer in bytes.
        bytes: u64,
        /// Error of the kernel.
        source: Errno,
    },
    /// The kernel refused an operation on the descriptor.
    #[error("the file descriptor of the dma-buf cannot be used: {0}; check the limit of open files (ulimit -n)")]
    Descriptor(Errno),
    /// The region is no shared memory.
    #[error("a dma-buf cannot be made of this memory: expected shared memory (memfd)")]
    NotShared,
    /// The kernel does not make a dma-buf of the memory.
    #[error(
        "cannot make a dma-buf of shared memory by {device}: {source}; the device needs `modprobe udmabuf`, and permission"
    )]
    Create {
        /// Path of the device.
        device: &'static str,
        /// Error of the kernel.
        source: Errno,
    },
    /// The driver could not make the bytes visible to the processor or to the device.
    #[error("synchronising the dma-buf failed: {0}; the device that exported it may be lost (dmesg)")]
    Sync(Errno),
}
