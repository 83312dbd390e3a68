//! Why a recording could not be made, written or read.

use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why a recording could not be made, written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Something of that name is there already.
    #[error("{} exists already: choose another name, or overwrite it (--force)", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another program has the file open for recording or writing.
    #[error("{} is in use by a program that records or writes it: stop that one first, or choose another name", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A master names files in folders that nobody has allowed.
    #[error(
        "{} names files of its run in {}: nothing was changed; if that is a drive of this run, say so (--drive {})",
        path.display(), list(folders, " and "), list(folders, " --drive ")
    )]
    Elsewhere {
        /// The master.
        path: PathBuf,
        /// The folders.
        folders: Vec<PathBuf>,
    },
    /// No file can be made there.
    #[error("cannot create {}: {source}{}", path.display(), hint(source))]
    Create {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// The file system has too little room for the whole recording.
    #[error(
        "{} needs {needed} bytes for {rows} rows, the file system has {free} free: record fewer shots (--shots), or in smaller files (--roll-shots, --roll-size), or free {} bytes",
        path.display(), needed.saturating_sub(*free)
    )]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Rows that were to be laid out.
        rows: u64,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// A bounded run cannot stay within its bound.
    #[error(
        "a run cannot stay within {keep} bytes: {least} are needed, for a part that has ended, one that is being written and one that is laid out; give a larger --keep, or smaller parts (--roll-size, --roll-shots)"
    )]
    Keep {
        /// The bound.
        keep: u64,
        /// The least bound that could be kept.
        least: u64,
    },
    /// A bounded run has no room on a drive.
    #[error("a run of --keep bytes takes {share} on the drive of {}, which has {free} free: give a smaller --keep, or free {} bytes", path.display(), share.saturating_sub(*free))]
    KeepNoSpace {
        /// The file that names the drive.
        path: PathBuf,
        /// Bytes that the run may take there.
        share: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// The kernel refused an operation on the file.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: Errno,
    },
    /// The kernel refused a ring.
    #[error(
        "cannot set up io_uring: {source}; the kernel needs io_uring (5.11 or newer, sysctl kernel.io_uring_disabled=0)"
    )]
    Ring {
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Not a namespace of an NVMe drive.
    #[error("{} is no NVMe namespace: expected /dev/ngXnY, /dev/nvmeXnY or a partition; for another block device write block:{}", path.display(), path.display())]
    NotNvme {
        /// The device.
        path: PathBuf,
    },
    /// A drive does not say what it is.
    #[error("cannot ask {} what it is: {source}; NVMe commands need root, or CAP_SYS_ADMIN, and a kernel of 5.19 or newer", path.display())]
    Identify {
        /// The device.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Somebody has a device mounted, or holds it otherwise.
    #[error("{} is in use: it, or a part of it, is mounted, is swap, or belongs to LVM, MD or another program; that is never written over: unmount or stop that first", path.display())]
    Held {
        /// The device.
        path: PathBuf,
    },
    /// A device holds what is not ours.
    #[error("{} holds {found}: expected a drive with recordings, or one whose first and last MiB are zeros; to give up what is there, add --force --serial {serial}", path.display())]
    Foreign {
        /// The device.
        path: PathBuf,
        /// What it holds.
        found: String,
        /// Its serial number.
        serial: String,
    },
    /// The serial number is another drive's.
    #[error("{} has the serial number {found}, not {typed}: is it the drive that you mean?", path.display())]
    Serial {
        /// The device.
        path: PathBuf,
        /// What was said.
        typed: String,
        /// What the drive says.
        found: String,
    },
    /// A device has too little room for the whole recording.
    #[error("{} has no {needed} bytes in a row for {rows} rows, the largest free stretch has {free}: record fewer shots (--shots), or over a run that is there (--force), or export runs and clear the drive", path.display())]
    DeviceFull {
        /// The device.
        path: PathBuf,
        /// Rows that were to be laid out.
        rows: u64,
        /// Bytes that they need.
        needed: u64,
        /// Bytes that there are.
        free: u64,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot {what} {}: {source}", path.display())]
    Hdf5 {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The library's reason.
        source: hdf5::Error,
    },
    /// The file is not what this program writes.
    #[error("{} is not a recording that can be read raw: {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        found: String,
    },
    /// A shot's compressed chunk cannot be unpacked.
    #[error("{}: the chunk of row {row} of link {link} cannot be unpacked: {source}", path.display())]
    Chunk {
        /// The file.
        path: PathBuf,
        /// The shot's row.
        row: u64,
        /// Its link.
        link: usize,
        /// What is wrong with it.
        source: crate::codec::DecodeError,
    },
    /// The description of a run contradicts itself.
    #[error("this run cannot be recorded: {0}")]
    Run(String),
    /// The kernel refused a thread.
    #[error("cannot start a thread for compression: {source}; ask for fewer (--compress-threads)")]
    Thread {
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// There is no memory for what is made.
    #[error("cannot have room for compressed shots: {source}")]
    Memory {
        /// The reason.
        source: shotline_memory::MemoryError,
    },
    /// No write reaches the disk any more.
    #[error("the last {count} writes to {} all failed, the latest with: {source}; the rows before them are safe", path.display())]
    EveryWriteFails {
        /// Consecutive failures.
        count: u32,
        /// The file.
        path: PathBuf,
        /// The latest reason.
        source: Errno,
    },
}

/// What to do where the kernel refuses to create a file; a reason of our own says that itself.
fn hint(source: &std::io::Error) -> &'static str {
    if source.raw_os_error().is_some() { "; check that its directory exists and may be written to" } else { "" }
}

impl StoreError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
    /// Of a file that could not be opened.
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
