//! Files that another file names. Such a name is not the user's word: it is looked up beneath a folder that the user did
//! name, and nothing outside of it is reached, be it by `..`, an absolute path or a symbolic link.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A folder, held open.
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

    /// The folder as it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path is that of this folder.
    pub(crate) fn is(&self, path: &Path) -> bool {
        let own = rustix::fs::fstat(&self.open).map(|stat| identity(&stat));
        own.is_ok() && own == rustix::fs::stat(path).map(|stat| identity(&stat))
    }

    /// Opens a regular file. One that is elsewhere is refused with `EXDEV`.
    pub(crate) fn file(&self, name: &Path, access: OFlags) -> Result<File, Errno> {
        // A pipe must not keep us waiting.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = rustix::fs::openat2(&self.open, name, flags, Mode::empty(), resolve)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Removes a file that was opened by this name, if the name is still that file's.
    pub(crate) fn remove(&self, name: &Path, file: &File) -> Result<(), Errno> {
        let there = rustix::fs::statat(&self.open, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if identity(&there) != identity(&rustix::fs::fstat(file)?) {
            return Err(Errno::STALE);
        }
        rustix::fs::unlinkat(&self.open, name, AtFlags::empty())
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_name_and_no_link_leads_out_of_the_folder() {
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
