//! Why memory could not be had.

use crate::bytes_in_words;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why memory could not be had or named.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of memory: {source}; ask for a smaller pool, or free memory")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// The kernel's reason.
        source: Errno,
    },
    /// More than the machine or a control group has left.
    #[error(
        "{asked} of memory are needed, and {available} are available ({by}): ask for less, or free memory",
        asked = bytes_in_words(*.asked),
        available = bytes_in_words(*.available)
    )]
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are left.
        available: u64,
        /// Who says so.
        by: String,
    },
    /// Too few reserved huge pages.
    #[error(
        "{bytes} bytes need {needed} reserved pages of 2 MiB, {free} are free: sudo sysctl -w vm.nr_hugepages={wanted}"
    )]
    NoHugePages {
        /// Bytes asked for.
        bytes: usize,
        /// 2 MiB pages that they need.
        needed: usize,
        /// 2 MiB pages that are reserved and free.
        free: usize,
        /// What to reserve in all.
        wanted: usize,
    },
    /// A region without bytes.
    #[error("a region needs at least one byte")]
    Empty,
    /// A pool without slots.
    #[error("a pool needs slots and slot bytes, found {slots} slots of {slot_bytes} bytes")]
    EmptyPool {
        /// Slots asked for.
        slots: u32,
        /// Bytes of a slot asked for.
        slot_bytes: u32,
    },
    /// A file could not be opened, extended or locked.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's reason.
        source: Errno,
    },
    /// Only regular files can be memory.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another process has the file mapped.
    #[error("{} is in use by another process (locked)", .0.display())]
    InUse(PathBuf),
    /// A file that may not be written is too short.
    #[error("found {found} bytes of memory behind the file, {needed} are needed")]
    TooShort {
        /// Bytes that are there.
        found: u64,
        /// Bytes asked for.
        needed: u64,
    },
    /// A file descriptor of somebody else could become shorter while it is mapped, which would kill this process.
    #[error("the shared memory is not sealed against shrinking: seal it with F_SEAL_SHRINK before handing it over")]
    NotSealed,
    /// Another process can punch holes into memory of reserved huge pages in spite of its seals; if no page is left to fill
    /// one, the next access raises SIGBUS.
    #[error("the shared memory is of reserved huge pages: expected a memfd without MFD_HUGETLB")]
    SharedHugePages,
    /// A seal could not be set: the file descriptor is not of this kind, or somebody has sealed the seals.
    #[error("cannot seal the shared memory: {0}")]
    Seal(Errno),
}
