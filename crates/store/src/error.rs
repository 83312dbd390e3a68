//! Errors of creating, writing and reading recordings.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Error of creating, writing or reading a recording.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The path exists already.
    #[error("{} exists already: choose another name, or overwrite it (--force)", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another program has the file open for recording or writing.
    #[error("{} is in use by a program that records or writes it: stop that program first, or choose another name", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A master names files in folders that the user has not allowed.
    #[error(
        "{} names files of its run in {}: nothing was changed; if they are on a drive of this run, add --drive {}",
        path.display(), list(folders, " and "), list(folders, " --drive ")
    )]
    FilesOutside {
        /// The master.
        path: PathBuf,
        /// The folders.
        folders: Vec<PathBuf>,
    },
    /// The file cannot be created.
    #[error("cannot create {}: {source}{}", path.display(), hint(source))]
    Create {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The file system has too little free space for the whole recording.
    #[error(
        "{} needs {needed} bytes for {rows} rows, the file system has {free} free: record fewer shots (--shots), or in smaller files (--roll-shots, --roll-size), or free {} bytes",
        path.display(), needed.saturating_sub(*free)
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Rows to allocate.
        rows: u64,
        /// Bytes required.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// A bounded run cannot stay within its bound.
    #[error(
        "a run cannot stay within {keep} bytes: at least {min_bytes} are needed, for a part that has ended, one that is being written and one that is allocated; give a larger --keep, or smaller parts (--roll-size, --roll-shots)"
    )]
    BoundTooSmall {
        /// The bound in bytes.
        keep: u64,
        /// Smallest bound that is possible.
        min_bytes: u64,
    },
    /// A drive has too little free space for its share of a bounded run.
    #[error("a run of --keep bytes takes {share} on the drive of {}, which has {free} free: give a smaller --keep, or free {} bytes", path.display(), share.saturating_sub(*free))]
    KeepNoSpace {
        /// File on the drive.
        path: PathBuf,
        /// Bytes that the run may use on the drive.
        share: u64,
        /// Bytes free.
        free: u64,
    },
    /// The kernel refused an operation on the file.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The kernel refused to set up io_uring.
    #[error(
        "cannot set up io_uring: {source}; the kernel needs io_uring (5.11 or newer, sysctl kernel.io_uring_disabled=0)"
    )]
    Ring {
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The device is not a namespace of an NVMe drive.
    #[error("{} is not an NVMe namespace: expected /dev/ngXnY, /dev/nvmeXnY or a partition; for another block device write block:{}", path.display(), path.display())]
    NotNvme {
        /// The device.
        path: PathBuf,
    },
    /// The Identify command failed.
    #[error("cannot identify {}: {source}; NVMe commands need root, or CAP_SYS_ADMIN, and a kernel of 5.19 or newer", path.display())]
    Identify {
        /// The device.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The device is mounted or otherwise in use.
    #[error("{} is in use: it, or a part of it, is mounted, is swap, or belongs to LVM, MD or another program; a device in use is never overwritten: unmount it, or stop the program, first", path.display())]
    DeviceBusy {
        /// The device.
        path: PathBuf,
    },
    /// The device holds data that is not a recording.
    #[error("{} holds {found}: expected a drive with recordings, or one whose first and last MiB are zeros; to discard its contents, add --force --serial {serial}", path.display())]
    ForeignData {
        /// The device.
        path: PathBuf,
        /// Description of the data found.
        found: String,
        /// Serial number of the drive.
        serial: String,
    },
    /// The serial number given does not match the drive.
    #[error("{} has the serial number {found}, not {typed}: check the device name", path.display())]
    Serial {
        /// The device.
        path: PathBuf,
        /// Serial number given by the user.
        typed: String,
        /// Serial number reported by the drive.
        found: String,
    },
    /// The device has no contiguous free extent for the whole recording.
    #[error("{} has no contiguous free extent of {needed} bytes for {rows} rows, the largest free extent has {free}: record fewer shots (--shots), or overwrite a run (--force), or export runs and clear the drive", path.display())]
    DeviceFull {
        /// The device.
        path: PathBuf,
        /// Rows to allocate.
        rows: u64,
        /// Bytes required.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot {what} {}: {source}", path.display())]
    Hdf5 {
        /// Operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the library.
        source: hdf5::Error,
    },
    /// The file does not have the expected structure.
    #[error("{}: {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found instead.
        found: String,
    },
    /// A compressed chunk cannot be decompressed.
    #[error("{}: the chunk of row {row} of link {link} cannot be decompressed: {source}", path.display())]
    Chunk {
        /// The file.
        path: PathBuf,
        /// Row of the shot.
        row: u64,
        /// Index of the link.
        link: usize,
        /// Error of the decoder.
        source: crate::codec::DecodeError,
    },
    /// The description of a run contradicts itself.
    #[error("this run cannot be recorded: {0}")]
    Run(String),
    /// The kernel refused to start a thread.
    #[error("cannot start a thread for compression: {source}; use fewer (--compress-threads)")]
    Thread {
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// Buffers for compressed shots cannot be allocated.
    #[error("cannot allocate buffers for compressed shots: {source}")]
    Memory {
        /// The reason.
        source: shotline_memory::MemoryError,
    },
    /// Host memory for shots in memory of a device cannot be allocated.
    #[error(
        "cannot allocate host memory for writes of shots from a device's memory: {source}; use fewer writes (--in-flight)"
    )]
    Staging {
        /// The reason.
        source: shotline_memory::MemoryError,
    },
    /// Every recent write failed.
    #[error("the last {count} writes to {} all failed, the latest with: {source}; the rows before them are safe", path.display())]
    EveryWriteFails {
        /// Number of consecutive failures.
        count: u32,
        /// The file.
        path: PathBuf,
        /// Latest error.
        source: Errno,
    },
}

/// Advice for errors from the kernel; this crate's own errors already contain it.
fn hint(source: &std::io::Error) -> &'static str {
    if source.raw_os_error().is_some() { "; check that its directory exists and is writable" } else { "" }
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
    /// Error of a file that could not be opened.
    pub(crate) fn open(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| match Errno::from_io_error(&error) {
            Some(source) => Self::Io { what: "open", path, source },
            None => Self::Format { path, found: error.to_string() },
        }
    }
    pub(crate) fn hdf5(what: &'static str, path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { what, path, source }
    }
    pub(crate) fn format(path: &Path, found: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), found: found.into() }
    }
}

fn list(folders: &[PathBuf], between: &str) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(between)
}
