//! Errors of memory allocation and mapping.

use super::bar::BarError;
use super::cuda::CudaError;
use super::dmabuf::DmabufError;
use crate::format_bytes;
use rustix::io::Errno;
use std::path::PathBuf;

/// Reason for which memory could not be allocated, mapped or shared.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel could not map the memory.
    #[error("cannot map {bytes} bytes of memory: {source}; request less, or free memory")]
    Map {
        /// Requested length in bytes.
        bytes: usize,
        /// Error of the kernel.
        source: Errno,
    },
    /// The request exceeds the available memory of the machine or of a control group.
    #[error(
        "{requested} of memory are needed, and {available} are available ({limit}): request less, or free memory",
        requested = format_bytes(*.requested),
        available = format_bytes(*.available)
    )]
    TooLarge {
        /// Requested length in bytes.
        requested: u64,
        /// Available bytes.
        available: u64,
        /// The limit that determines `available`.
        limit: String,
    },
    /// There are too few reserved huge pages.
    #[error(
        "{bytes} bytes need {needed} reserved pages of 2 MiB, {free} are free: sudo sysctl -w vm.nr_hugepages={nr_hugepages}"
    )]
    NoHugePages {
        /// Requested length in bytes.
        bytes: usize,
        /// Number of 2 MiB pages needed.
        needed: usize,
        /// Number of 2 MiB pages that are reserved and free.
        free: usize,
        /// Total number of pages to reserve.
        nr_hugepages: usize,
    },
    /// A region of 0 bytes was requested.
    #[error("a region needs at least one byte")]
    Empty,
    /// A pool without slots was requested.
    #[error("a pool needs slots and slot bytes, found {slots} slots of {slot_bytes} bytes")]
    EmptyPool {
        /// Requested number of slots.
        slots: u32,
        /// Requested length of a slot in bytes.
        slot_bytes: u32,
    },
    /// A file could not be opened, extended or locked.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The path is not a regular file.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another process has the file mapped.
    #[error("{} is in use by another process, which has locked it: end that process (fuser -v FILE), or use another file", .0.display())]
    InUse(PathBuf),
    /// A file that is mapped read-only is too short.
    #[error("the file has {found} bytes, {needed} are needed")]
    TooShort {
        /// Length of the file in bytes.
        found: u64,
        /// Requested length in bytes.
        needed: u64,
    },
    /// Another process could shrink the shared memory while it is mapped, which would kill this process.
    #[error("the shared memory is not sealed against shrinking: seal it with F_SEAL_SHRINK before passing it on")]
    NotSealed,
    /// Another process can punch holes into memory of reserved huge pages in spite of its seals; if no page is free to
    /// fill one, the next access raises SIGBUS.
    #[error("the shared memory is in reserved huge pages: expected a memfd without MFD_HUGETLB")]
    SharedHugePages,
    /// A seal could not be set: the file descriptor has no seals, or they are sealed (`F_SEAL_SEAL`).
    #[error("cannot seal the shared memory: {0}")]
    Seal(Errno),
    /// The memory behind a BAR cannot be used.
    #[error(transparent)]
    Bar(#[from] BarError),
    /// The dma-buf cannot be used.
    #[error(transparent)]
    Dmabuf(#[from] DmabufError),
    /// The memory of a CUDA device cannot be used.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}
