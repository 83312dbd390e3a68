//! Creation of a recording: its file, its blocks and its name.

use super::locate::locate_locked_file;
use crate::confined_path::open_regular;
use crate::info::RunInfo;
use crate::medium::Medium;
use crate::nvme::{self, Target};
use crate::sys::lease::is_alone;
use crate::{StoreError, lock};
use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Options of creating a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions<'a> {
    /// Number of rows to allocate.
    pub rows: u64,
    /// Replace an existing file.
    pub overwrite: bool,
    /// With `overwrite`: discard the old file at once and reuse its blocks for the new one.
    pub recycle: bool,
    /// Use the file that `reserve_for_reuse` has renamed to the hidden name, with its blocks, unless a reader has it
    /// open.
    pub reuse_reserved: bool,
    /// Serial number of the raw device whose contents may be discarded ([`crate::nvme`]).
    pub serial: Option<&'a str>,
}

/// Size of a new recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Rows of shots.
    pub rows: u64,
    /// Bytes before the data, which libhdf5 reads.
    pub head: u64,
    /// Bytes after the data.
    pub tail: u64,
    /// Total size in bytes.
    pub end: u64,
}

/// A recording that is not visible under its name yet. It is removed if dropped before [`PendingRecording::end`].
#[derive(Debug)]
pub(crate) enum PendingRecording {
    File(HiddenFile),
    Extent(Box<nvme::PendingRun>),
}

impl PendingRecording {
    /// Checks the target and opens a file or device for the recording.
    pub(super) fn begin(path: &Path, options: CreateOptions<'_>) -> Result<Self, StoreError> {
        match Target::of(path) {
            Some(target) => {
                let CreateOptions { overwrite, recycle, serial, .. } = options;
                let policy = nvme::ReplacePolicy { overwrite, recycle, serial };
                nvme::PendingRun::begin(target, policy).map(|pending| Self::Extent(Box::new(pending)))
            }
            None => HiddenFile::begin(path, options).map(Self::File),
        }
    }
    /// Returns `true` if the space may hold bytes of another recording.
    pub(super) fn recycled(&self) -> bool {
        match self {
            Self::File(hidden) => hidden.recycled,
            Self::Extent(_) => true,
        }
    }
    /// Returns the final path.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        match self {
            Self::File(_) => path.to_owned(),
            Self::Extent(pending) => pending.path(),
        }
    }
    /// Allocates the space.
    pub(super) fn allocate(
        &mut self,
        path: &Path,
        run: &RunInfo,
        size: Size,
        warnings: &mut Vec<String>,
    ) -> Result<Medium, StoreError> {
        match self {
            Self::File(hidden) => {
                allocate(&hidden.file, path, size.rows, size.end, warnings)?;
                let file = hidden.file.try_clone();
                file.map(Medium::File).map_err(|source| StoreError::Create { path: path.to_owned(), source })
            }
            Self::Extent(pending) => {
                // Ending the run may write a second tail after the first.
                let request = nvme::SpaceRequest { rows: size.rows, head: size.head, bytes: size.end + size.tail };
                pending.allocate(&run.run_id, request).map(Medium::Extent)
            }
        }
    }
    /// Makes the recording durable, renames it to its final name, and makes the rename durable.
    pub(crate) fn end(self, path: &Path, overwrite: bool) -> Result<(), StoreError> {
        match self {
            Self::File(hidden) => hidden.end(path, overwrite),
            Self::Extent(pending) => pending.end(),
        }
    }
}

/// A file that is being allocated under a hidden name in the folder of its final name.
#[derive(Debug)]
pub(crate) struct HiddenFile {
    file: File,
    hidden: PathBuf,
    recycled: bool,
    renamed: bool,
}

impl HiddenFile {
    /// Checks the target and opens the hidden file.
    fn begin(path: &Path, options: CreateOptions<'_>) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Create { path: path.to_owned(), source };
        let hidden = hidden(path);
        let reserved = if options.reuse_reserved { Self::open_reserved(path, &hidden)? } else { None };
        check_target(path, options.overwrite)?;
        if let Some(pending) = reserved {
            return Ok(pending);
        }
        // Remains of a program that was killed during allocation; a running one would hold a lock.
        if let Some(stale) = open_own(&hidden, OFlags::RDONLY)? {
            lock::claim(&stale, &hidden)?;
            std::fs::remove_file(&hidden).map_err(failed)?;
        }
        let old = open_own(path, if options.recycle { OFlags::RDWR } else { OFlags::RDONLY })?;
        if let Some(old) = &old {
            lock::claim(old, path)?;
        }
        let (file, recycled) = match old.filter(|old| options.overwrite && options.recycle && is_recyclable(old, path))
        {
            Some(old) => {
                std::fs::rename(path, &hidden).map_err(failed)?;
                // The rename must be durable before the blocks are overwritten.
                sync_directory(path)?;
                (old, true)
            }
            None => (File::options().read(true).write(true).create_new(true).open(&hidden).map_err(failed)?, false),
        };
        lock::share(&file, path)?;
        let pending = Self { file, hidden, recycled, renamed: false };
        pending.check_own(path)?;
        Ok(pending)
    }

    /// Opens the file that [`reserve_for_reuse`] has renamed to the hidden name. `None` if it must not be overwritten,
    /// because a reader has it open or it has a second hard link.
    fn open_reserved(path: &Path, hidden: &Path) -> Result<Option<Self>, StoreError> {
        // `open_own` does not follow a symbolic link in its place.
        let file = open_own(hidden, OFlags::RDWR).ok().flatten();
        let Some(file) = file.filter(|file| has_one_name(file) && is_alone(file)) else {
            let _ = std::fs::remove_file(hidden);
            return Ok(None);
        };
        lock::share(&file, path)?;
        let pending = Self { file, hidden: hidden.to_owned(), recycled: true, renamed: false };
        pending.check_own(path)?;
        Ok(Some(pending))
    }

    /// Fails if another program that started at the same time has replaced the hidden file.
    fn check_own(&self, path: &Path) -> Result<(), StoreError> {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let ours = rustix::fs::fstat(&self.file).map(identity);
        if ours.is_ok() && ours == rustix::fs::stat(&self.hidden).map(identity) {
            return Ok(());
        }
        Err(StoreError::InUse { path: path.to_owned() })
    }

    fn end(mut self, path: &Path, overwrite: bool) -> Result<(), StoreError> {
        rustix::fs::fsync(&self.file).map_err(StoreError::io("flush", path))?;
        self.check_own(path)?;
        put_in_place(&self.hidden, path, overwrite)?;
        self.renamed = true;
        sync_directory(path)
    }
}

/// Renames a finished file to its final name. Fails if a file of that name is locked.
pub(crate) fn put_in_place(hidden: &Path, path: &Path, overwrite: bool) -> Result<(), StoreError> {
    check_unused(path)?;
    match rename(hidden, path, overwrite) {
        Err(Errno::EXIST) => Err(StoreError::Exists { path: path.to_owned() }),
        renamed => renamed.map_err(StoreError::io("name", path)),
    }
}

/// Fails if a file of this name is locked by another program.
pub(crate) fn check_unused(path: &Path) -> Result<(), StoreError> {
    open_own(path, OFlags::RDONLY)?.map_or(Ok(()), |file| lock::claim(&file, path))
}

impl Drop for HiddenFile {
    fn drop(&mut self) {
        // An unfinished file is useless.
        if !self.renamed && self.check_own(&self.hidden).is_ok() {
            let _ = std::fs::remove_file(&self.hidden);
        }
    }
}

/// Renames an evicted file to the hidden name of a new one, which will reuse its blocks, and makes the rename durable.
/// The file may be overwritten only after that, so that no reader finds new bytes under the old name. See
/// [`CreateOptions::reuse_reserved`].
pub(crate) fn reserve_for_reuse(path: &Path, reusable: &Path) -> Result<(), StoreError> {
    rename(path, &hidden(reusable), false).map_err(StoreError::io("rename", path))?;
    sync_directory(path)
}

/// Returns the bytes allocated to the file that is reserved for a new one.
pub(crate) fn reusable_bytes(reusable: &Path) -> u64 {
    rustix::fs::stat(hidden(reusable)).map_or(0, |stat| stat.st_blocks as u64 * 512)
}

/// Removes the file that is reserved for a new one.
pub(crate) fn discard_reusable(reusable: &Path) {
    let _ = std::fs::remove_file(hidden(reusable));
}

/// Opens a file that this crate may have created; `None` if it does not exist or cannot be opened. Fails if it is not a
/// regular file, without blocking on a FIFO and without following a symbolic link.
fn open_own(path: &Path, access: OFlags) -> Result<Option<File>, StoreError> {
    match open_regular(path, access | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::Other => {
            Err(StoreError::Create { path: path.to_owned(), source: error })
        }
        Err(_) => Ok(None),
    }
}

/// Returns the hidden name of a file: `.run.h5.new` for `run.h5`.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Renames a file. Fails with `EEXIST` if the name exists, unless `overwrite`.
pub(crate) fn rename(from: &Path, to: &Path, overwrite: bool) -> Result<(), Errno> {
    if overwrite {
        return rustix::fs::rename(from, to);
    }
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag, so the check is not atomic.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => rustix::fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST),
        other => other,
    }
}

/// Checks that a recording can be created at a path, without creating anything.
///
/// # Errors
/// Fails if the path is that of a raw device or of something other than a regular file, if its folder does not exist,
/// or with [`StoreError::Exists`] if a file exists and `overwrite` is `false`.
pub fn check_target(path: &Path, overwrite: bool) -> Result<(), StoreError> {
    if Target::of(path).is_some() {
        return Err(StoreError::Run(format!(
            "{} is a raw device: it takes one recording at a time, no parts, stripes or packets",
            path.display()
        )));
    }
    let failed = |source| StoreError::Create { path: path.to_owned(), source };
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.is_file() => {
            Err(failed(std::io::Error::other("it exists and is not a regular file")))
        }
        Ok(_) if !overwrite => Err(StoreError::Exists { path: path.to_owned() }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        Err(error) => {
            if folder(path).is_dir() {
                Ok(())
            } else {
                Err(failed(error))
            }
        }
    }
}

/// Returns `true` for a recording with a single hard link: only its blocks may be reused.
fn is_recyclable(file: &File, path: &Path) -> bool {
    has_one_name(file) && locate_locked_file(path, file).is_ok()
}

/// Returns `true` if a file has a single hard link. A second one means that its contents must be kept.
fn has_one_name(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 1)
}

/// Sets the size of a file and allocates all its blocks.
fn allocate(file: &File, path: &Path, rows: u64, end: u64, warnings: &mut Vec<String>) -> Result<(), StoreError> {
    // A size other than 0 means that the blocks of an earlier file are reused.
    let (len, blocks) = rustix::fs::fstat(file).map_or((0, 0), |stat| (stat.st_size as u64, stat.st_blocks as u64));
    if len > end {
        rustix::fs::ftruncate(file, end).map_err(StoreError::io("truncate", path))?;
    }
    // On tmpfs SEEK_HOLE is cheaper than fallocate on allocated blocks. Other file systems may report no holes.
    if len >= end && is_in_memory(file) && rustix::fs::seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole >= end) {
        return Ok(());
    }
    let free = || rustix::fs::fstatvfs(file).map_or(0, |s| s.f_bavail * s.f_frsize + 512 * blocks);
    let no_space = |free| StoreError::NoSpace { path: path.to_owned(), rows, needed: end, free };
    let before = free();
    if before < end {
        return Err(no_space(before));
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let _ = rustix::fs::ftruncate(file, 0);
            Err(no_space(free()))
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            warnings.push(format!(
                "the file system of {} cannot preallocate: it may become full during the run, and writes are slower",
                path.display()
            ));
            rustix::fs::ftruncate(file, end).map_err(StoreError::io("extend", path))
        }
        Err(source) => Err(StoreError::Io { what: "allocate", path: path.to_owned(), source }),
    }
}

/// Returns `true` if a file is on tmpfs.
pub(crate) fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type == TMPFS)
}

/// Returns the folder of a path: `.` for a bare name.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the directory entry of a file durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = File::open(folder(path)).map_err(|e| os(e, "open the directory of", path))?;
    rustix::fs::fsync(&directory).map_err(StoreError::io("flush the directory of", path))
}

fn os(error: std::io::Error, what: &'static str, path: &Path) -> StoreError {
    let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    StoreError::Io { what, path: path.to_owned(), source }
}
