//! Opening files by untrusted names. A path given by the user must be a regular file. A name read from another file is
//! resolved beneath a folder that the user gave (`RESOLVE_BENEATH`): `..`, absolute paths and symbolic links cannot
//! leave it.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Open folder in which untrusted names are resolved.
#[derive(Debug)]
pub(crate) struct Folder {
    open: OwnedFd,
    path: PathBuf,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self { open: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// Path by which the folder was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns `true` if the path leads to this folder.
    pub(crate) fn is(&self, path: &Path) -> bool {
        let own = rustix::fs::fstat(&self.open).map(|stat| identity(&stat));
        own.is_ok() && own == rustix::fs::stat(path).map(|stat| identity(&stat))
    }

    /// Opens a regular file. Fails with `EXDEV` if the name leads out of the folder, with `EINVAL` if it is not a
    /// regular file.
    pub(crate) fn file(&self, name: &Path, access: OFlags) -> Result<File, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        regular(rustix::fs::openat2(&self.open, name, access | NO_WAIT, Mode::empty(), resolve)?)
    }

    /// Removes a file that was opened by this name. Fails with `ESTALE` if the name now belongs to another file.
    pub(crate) fn remove(&self, name: &Path, file: &File) -> Result<(), Errno> {
        let stat = rustix::fs::statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&stat) != identity(&rustix::fs::fstat(file)?) {
            return Err(Errno::STALE);
        }
        rustix::fs::unlinkat(&self.open, name, AtFlags::empty())
    }
}

/// Flags of every open. Without `O_NONBLOCK`, opening a FIFO blocks until its other end is opened.
const NO_WAIT: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK);

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Opens a regular file by a path that the user gave. Does not block on a FIFO.
pub(crate) fn open_regular(path: &Path, access: OFlags) -> io::Result<File> {
    let file = rustix::fs::open(path, access | NO_WAIT, Mode::empty()).and_then(regular);
    file.map_err(|errno| match errno {
        Errno::INVAL | Errno::ISDIR | Errno::LOOP | Errno::NXIO => {
            io::Error::other("expected a regular file, found a folder, link, pipe or device")
        }
        errno => errno.into(),
    })
}

/// Returns `true` if the path leads to the open file.
pub(crate) fn has_name(file: &File, path: &Path) -> bool {
    let own = rustix::fs::fstat(file).map(|stat| identity(&stat));
    own.is_ok() && own == rustix::fs::stat(path).map(|stat| identity(&stat))
}

/// Returns the first 8 bytes of a regular file, or all of a shorter one, to tell formats apart.
///
/// # Errors
/// Fails if the file cannot be opened or read, or is not a regular file.
pub fn read_magic(path: &Path) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    open_regular(path, OFlags::RDONLY)?.take(8).read_to_end(&mut first)?;
    Ok(first)
}

fn regular(file: OwnedFd) -> Result<File, Errno> {
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_and_links_cannot_leave_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        let precious = outside.path().join("precious");
        std::fs::write(&precious, "mine").unwrap();
        let inside = outside.path().join("inside");
        std::fs::create_dir_all(inside.join("below")).unwrap();
        std::fs::write(inside.join("below/own"), "own").unwrap();
        symlink(&precious, inside.join("absolute")).unwrap();
        symlink("../precious", inside.join("relative")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink("below/own", inside.join("alias")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, inside.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let folder = Folder::open(&inside).unwrap();
        for name in ["../precious", precious.to_str().unwrap(), "absolute", "relative", "up/precious", "below/../../x"]
        {
            assert_eq!(folder.file(Path::new(name), OFlags::RDWR).unwrap_err(), Errno::XDEV, "{name}");
        }
        for name in ["", ".", "below", "pipe", "none"] {
            assert!(folder.file(Path::new(name), OFlags::RDWR).is_err(), "{name}");
        }
        let own = folder.file(Path::new("alias"), OFlags::RDWR).unwrap();
        assert_eq!(folder.remove(Path::new("alias"), &own), Err(Errno::STALE), "the link is not that file");
        assert_eq!(folder.remove(Path::new("below/own"), &own), Ok(()));
        assert!(folder.is(&inside.join("below/..")) && !folder.is(outside.path()));
    }
}
