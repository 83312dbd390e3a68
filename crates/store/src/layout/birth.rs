//! How a recording gets its file, its blocks and its name.

use super::locate::locate_locked_file;
use crate::beneath::open_regular;
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

/// How a recording is created.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions<'a> {
    /// Rows to make room for.
    pub rows: u64,
    /// Replace a file that is there.
    pub overwrite: bool,
    /// With `overwrite`: give up the old file at once and lay out the new one in its blocks.
    pub recycle: bool,
    /// An earlier part of the run was given up for this file: it is laid out in that one's blocks, unless they are
    /// still read.
    pub inherited: bool,
    /// The serial number of the raw device whose contents may go ([`crate::nvme`]).
    pub serial: Option<&'a str>,
}

/// What a new recording takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Rows of shots.
    pub rows: u64,
    /// Bytes in front of the data, which libhdf5 reads.
    pub head: u64,
    /// Bytes behind it.
    pub tail: u64,
    /// Bytes of all.
    pub end: u64,
}

/// A recording that has no name yet. What there is of it goes if it is dropped before [`Birth::end`].
#[derive(Debug)]
pub(crate) enum Birth {
    File(Hidden),
    Extent(Box<nvme::Birth>),
}

impl Birth {
    /// Refuses a target that cannot be had.
    pub(super) fn begin(path: &Path, options: CreateOptions<'_>) -> Result<Self, StoreError> {
        match Target::of(path) {
            Some(target) => {
                let CreateOptions { overwrite, recycle, serial, .. } = options;
                let claim = nvme::Claim { overwrite, recycle, serial };
                nvme::Birth::begin(target, claim).map(|birth| Self::Extent(Box::new(birth)))
            }
            None => Hidden::begin(path, options).map(Self::File),
        }
    }
    /// Where this is laid out there may be bytes of another recording.
    pub(super) fn recycled(&self) -> bool {
        match self {
            Self::File(hidden) => hidden.recycled,
            Self::Extent(_) => true,
        }
    }
    /// The path by which it will be found.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        match self {
            Self::File(_) => path.to_owned(),
            Self::Extent(birth) => birth.path(),
        }
    }
    /// Takes the space.
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
            Self::Extent(birth) => {
                // The tail may have to stand a second time behind the first while the run ends.
                let room = nvme::Room { rows: size.rows, head: size.head, bytes: size.end + size.tail };
                birth.allocate(&run.run_id, room).map(Medium::Extent)
            }
        }
    }
    /// Makes the recording durable, gives it its name, and makes that durable too.
    pub(crate) fn end(self, path: &Path, overwrite: bool) -> Result<(), StoreError> {
        match self {
            Self::File(hidden) => hidden.end(path, overwrite),
            Self::Extent(birth) => birth.end(),
        }
    }
}

/// A file that is being laid out under a hidden name beside its own.
#[derive(Debug)]
pub(crate) struct Hidden {
    file: File,
    hidden: PathBuf,
    recycled: bool,
    named: bool,
}

impl Hidden {
    /// Refuses a target that cannot be had, and opens the hidden file.
    fn begin(path: &Path, options: CreateOptions<'_>) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Create { path: path.to_owned(), source };
        let hidden = hidden(path);
        let inherited = if options.inherited { Self::inherit(path, &hidden)? } else { None };
        check_target(path, options.overwrite)?;
        if let Some(birth) = inherited {
            return Ok(birth);
        }
        // Left behind by a program that was killed while it laid out; one that is still at it holds a lock.
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
                // From here on its blocks are written: its old name must be gone, also after a power cut.
                sync_directory(path)?;
                (old, true)
            }
            None => (File::options().read(true).write(true).create_new(true).open(&hidden).map_err(failed)?, false),
        };
        lock::share(&file, path)?;
        let birth = Self { file, hidden, recycled, named: false };
        birth.check_own(path)?;
        Ok(birth)
    }

    /// Takes over the file that [`bequeath`] has put there. None if it may not be written, because somebody still reads it
    /// or it has another name too: then its bytes stay theirs.
    fn inherit(path: &Path, hidden: &Path) -> Result<Option<Self>, StoreError> {
        // Not through a link that somebody has left in its place: what is there is theirs.
        let file = open_own(hidden, OFlags::RDWR).ok().flatten();
        let Some(file) = file.filter(|file| has_one_name(file) && is_alone(file)) else {
            let _ = std::fs::remove_file(hidden);
            return Ok(None);
        };
        lock::share(&file, path)?;
        let birth = Self { file, hidden: hidden.to_owned(), recycled: true, named: false };
        birth.check_own(path)?;
        Ok(Some(birth))
    }

    /// Refuses to go on if another program has put its file in the place of ours: both began at once.
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
        self.named = true;
        sync_directory(path)
    }
}

/// Gives a finished file its name; not that of one that a program is at.
pub(crate) fn put_in_place(hidden: &Path, path: &Path, overwrite: bool) -> Result<(), StoreError> {
    check_unused(path)?;
    match rename(hidden, path, overwrite) {
        Err(Errno::EXIST) => Err(StoreError::Exists { path: path.to_owned() }),
        renamed => renamed.map_err(StoreError::io("name", path)),
    }
}

/// Refuses a file that a program is at.
pub(crate) fn check_unused(path: &Path) -> Result<(), StoreError> {
    open_own(path, OFlags::RDONLY)?.map_or(Ok(()), |there| lock::claim(&there, path))
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A file of ours that could not be finished is of no use to anyone.
        if !self.named && self.check_own(&self.hidden).is_ok() {
            let _ = std::fs::remove_file(&self.hidden);
        }
    }
}

/// Gives a file up for one that is to be laid out in its blocks: it gets that one's hidden name, and has its own no more,
/// also after a power cut. Only then may it be written, so that nobody finds new bytes under the old name.
/// [`CreateOptions::inherited`] takes it over.
pub(crate) fn bequeath(path: &Path, heir: &Path) -> Result<(), StoreError> {
    rename(path, &hidden(heir), false).map_err(StoreError::io("rename", path))?;
    sync_directory(path)
}

/// Bytes of the drive that what was bequeathed to a file takes.
pub(crate) fn inheritance(heir: &Path) -> u64 {
    rustix::fs::stat(hidden(heir)).map_or(0, |stat| stat.st_blocks as u64 * 512)
}

/// Removes what was bequeathed to a file that will not be.
pub(crate) fn disinherit(heir: &Path) {
    let _ = std::fs::remove_file(hidden(heir));
}

/// Opens what has the name of a file of ours; none if nothing has, or if it may not be opened so. What is no regular file
/// is refused, without waiting for the other end of a pipe and without looking where a link leads.
fn open_own(path: &Path, access: OFlags) -> Result<Option<File>, StoreError> {
    match open_regular(path, access | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::Other => {
            Err(StoreError::Create { path: path.to_owned(), source: error })
        }
        Err(_) => Ok(None),
    }
}

/// `.run.h5.new` beside `run.h5`.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

/// Renames a file; unless `overwrite`, to a name that nothing has.
pub(crate) fn rename(from: &Path, to: &Path, overwrite: bool) -> Result<(), Errno> {
    if overwrite {
        return rustix::fs::rename(from, to);
    }
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system without it: then what was looked at before has to do.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => rustix::fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(Errno::EXIST),
        other => other,
    }
}

/// Refuses a path that cannot become a recording: for whoever wants to know before there are shots.
pub fn check_target(path: &Path, overwrite: bool) -> Result<(), StoreError> {
    if Target::of(path).is_some() {
        return Err(StoreError::Run(format!(
            "{} is a raw device: it takes one recording at a time, no parts, stripes or packets",
            path.display()
        )));
    }
    let failed = |source| StoreError::Create { path: path.to_owned(), source };
    match path.symlink_metadata() {
        Ok(there) if !there.is_file() => {
            Err(failed(std::io::Error::other("something is there that is no regular file, and stays")))
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

/// Only a recording of ours that has no other name gives its blocks away.
fn is_recyclable(file: &File, path: &Path) -> bool {
    has_one_name(file) && locate_locked_file(path, file).is_ok()
}

/// Whoever gave a file a second name wants to keep its bytes.
fn has_one_name(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 1)
}

/// Gives a file its size and all its blocks.
fn allocate(file: &File, path: &Path, rows: u64, end: u64, warnings: &mut Vec<String>) -> Result<(), StoreError> {
    // What is there already is from a file whose blocks are used again.
    let (len, blocks) = rustix::fs::fstat(file).map_or((0, 0), |stat| (stat.st_size as u64, stat.st_blocks as u64));
    if len > end {
        rustix::fs::ftruncate(file, end).map_err(StoreError::io("cut", path))?;
    }
    // In memory looking for holes is cheaper than allocating what is there. Other file systems may know of none.
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
                "the file system of {} cannot allocate space ahead: it may run full during the run, and writes are slower",
                path.display()
            ));
            rustix::fs::ftruncate(file, end).map_err(StoreError::io("extend", path))
        }
        Err(source) => Err(StoreError::Io { what: "allocate", path: path.to_owned(), source }),
    }
}

/// Whether a file is on tmpfs.
pub(crate) fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type == TMPFS)
}

/// The folder of a file that is, or is to be: `.` of a bare name.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the name as durable as the file.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = File::open(folder(path)).map_err(|e| os(e, "open the directory of", path))?;
    rustix::fs::fsync(&directory).map_err(StoreError::io("flush the directory of", path))
}

fn os(error: std::io::Error, what: &'static str, path: &Path) -> StoreError {
    let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    StoreError::Io { what, path: path.to_owned(), source }
}
