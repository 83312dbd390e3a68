//! Something under way, in a hidden folder beside its name: it gets that only when it is whole.

use crate::{StoreError, layout, lock};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Finds the first thing in a folder that must not go with it; none: another folder may take its place.
pub(crate) type Foreign = fn(&Path) -> io::Result<Option<PathBuf>>;

/// What a draft may take the place of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replace {
    /// Of nothing: the name must be free.
    Nothing,
    /// Of a file.
    File,
    /// Of a file, or of a folder in which nothing is foreign.
    Folder(Foreign),
}

impl Replace {
    /// Whether something of the name may be replaced.
    pub fn is_allowed(self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Refuses to replace a folder, or one that has anything foreign in it.
    fn check_folder(self, to: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Create { path: to.to_owned(), source };
        let foreign = match self {
            Self::Nothing => return Err(StoreError::Exists { path: to.to_owned() }),
            Self::File => return Err(failed(io::Error::other("a folder is there, and stays"))),
            Self::Folder(foreign) => foreign(to).map_err(failed)?,
        };
        let Some(foreign) = foreign else { return Ok(()) };
        let why =
            format!("{} is of no export, and would be lost: move it away, or choose another name", foreign.display());
        Err(failed(io::Error::other(why)))
    }
}

/// A file or folder that is being made. Dropped before [`Self::finish`], it leaves nothing.
#[derive(Debug)]
pub(crate) struct Draft {
    to: PathBuf,
    /// Where it is made: `.NAME.partial`. Its lock tells other programs that somebody is at it.
    folder: PathBuf,
    held: File,
    /// `.NAME.partial/NAME`
    path: PathBuf,
    replace: Replace,
}

impl Draft {
    /// Begins it. Refuses a name that is taken, unless it may be replaced, and one that another program is about to make.
    pub fn new(to: &Path, replace: Replace) -> Result<Self, StoreError> {
        let name = to.file_name().ok_or_else(|| {
            let source = io::Error::other("it is no name of a file");
            StoreError::Create { path: to.to_owned(), source }
        })?;
        if to.symlink_metadata().is_ok() && !replace.is_allowed() {
            return Err(StoreError::Exists { path: to.to_owned() });
        }
        if to.is_dir() {
            replace.check_folder(to)?;
        }
        let folder = to.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        let held = hold(to, &folder)?;
        let draft = Self { to: to.to_owned(), held, path: folder.join(name), folder, replace };
        // Left behind by a program that was killed.
        draft.clear().map_err(StoreError::io("remove", &draft.path))?;
        Ok(draft)
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in it by now.
    pub fn bytes(&self) -> u64 {
        size(&self.path)
    }

    /// Makes it a folder.
    pub fn folder(self) -> Result<Self, StoreError> {
        fs::create_dir(&self.path).map_err(|source| StoreError::Create { path: self.path.clone(), source })?;
        Ok(self)
    }

    /// Gives it its name. What others have put there meanwhile, or are at, is not replaced.
    pub fn finish(self) -> Result<(), StoreError> {
        if self.path.is_dir() || self.to.is_dir() {
            self.change_places()?;
        } else {
            layout::put_in_place(&self.path, &self.to, self.replace.is_allowed())?;
        }
        layout::sync_directory(&self.to)
    }

    /// A folder cannot be renamed over one that is not empty: both change places, and the old one goes with the draft.
    fn change_places(&self) -> Result<(), StoreError> {
        let to = &self.to;
        let there = to.symlink_metadata().is_ok();
        if there && !self.replace.is_allowed() {
            return Err(StoreError::Exists { path: to.clone() });
        }
        if !to.is_dir() {
            layout::check_unused(to)?;
        } else {
            self.replace.check_folder(to)?;
        }
        let flags = if there { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(CWD, &self.path, CWD, to, flags) {
            Err(Errno::EXIST) => Err(StoreError::Exists { path: to.clone() }),
            // A file system without these.
            Err(Errno::INVAL | Errno::NOSYS) => remove(to)
                .and_then(|()| fs::rename(&self.path, to))
                .map_err(errno)
                .map_err(StoreError::io("replace", to)),
            renamed => renamed.map_err(StoreError::io("replace", to)),
        }
    }

    fn clear(&self) -> Result<(), Errno> {
        let hidden = layout::hidden(&self.path);
        remove(&self.path).and_then(|()| remove(&hidden)).map_err(errno)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Whatever else is in the folder stays, and so does the folder then.
        let _ = self.clear();
        let _ = fs::remove_dir(&self.folder);
        lock::release(&self.held);
    }
}

/// Makes the hidden folder, or takes over that of a program that was killed. Refuses that of one that is at it.
fn hold(to: &Path, folder: &Path) -> Result<File, StoreError> {
    let failed = |errno: Errno| StoreError::Create { path: to.to_owned(), source: errno.into() };
    loop {
        match rustix::fs::mkdir(folder, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = match rustix::fs::open(folder, flags, Mode::empty()) {
            Ok(held) => File::from(held),
            Err(Errno::NOENT) => continue, // its owner has just finished
            Err(errno) => return Err(failed(errno)),
        };
        lock::claim(&held, to)?;
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let ours = rustix::fs::fstat(&held).map(identity).map_err(failed)?;
        if rustix::fs::lstat(folder).map(identity) == Ok(ours) {
            return Ok(held);
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

fn size(path: &Path) -> u64 {
    let Ok(there) = path.symlink_metadata() else { return 0 };
    if !there.is_dir() {
        return there.len();
    }
    fs::read_dir(path).map_or(0, |entries| entries.flatten().map(|entry| size(&entry.path())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Foreign is what has the word `mine` in it.
    const REPLACE: Replace = Replace::Folder(|folder| {
        let foreign = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains("mine"));
        let mut paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        Ok(paths.find(foreign))
    });

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing_and_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.uff");
        fs::write(&to, "old").unwrap();
        assert!(matches!(Draft::new(&to, Replace::Nothing), Err(StoreError::Exists { .. })));
        let draft = Draft::new(&to, REPLACE).unwrap();
        fs::write(draft.path(), "new").unwrap();
        drop(draft);
        assert_eq!(fs::read_to_string(&to).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_takes_the_place_of_a_full_one_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        fs::create_dir(&to).unwrap();
        fs::write(to.join("zarr.json"), r#"{"attributes": {"format": "shotline zarr"}}"#).unwrap();
        let draft = Draft::new(&to, REPLACE).unwrap().folder().unwrap();
        fs::write(draft.path().join("new"), "four").unwrap();
        assert!(to.join("zarr.json").exists());
        assert_eq!(draft.bytes(), 4);
        draft.finish().unwrap();
        assert!(to.join("new").exists() && !to.join("zarr.json").exists());
    }

    #[test]
    fn a_folder_that_no_export_made_stays_even_when_asked_to_replace_it() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        fs::create_dir(&to).unwrap();
        let foreign = to.join("thesis.tex");
        fs::write(&foreign, "mine").unwrap();
        for (replace, expected) in [
            (REPLACE, format!("{} is of no export", foreign.display())),
            (Replace::File, "a folder is there, and stays".to_owned()),
        ] {
            let error = Draft::new(&to, replace).unwrap_err().to_string();
            assert!(error.contains(&expected), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "there is no draft");
            assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
        }
    }

    #[test]
    fn what_came_into_an_export_while_its_successor_was_made_stays() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        fs::create_dir(&to).unwrap();
        let draft = Draft::new(&to, REPLACE).unwrap().folder().unwrap();
        fs::write(to.join("thesis.tex"), "mine").unwrap();
        let error = draft.finish().unwrap_err().to_string();
        assert!(error.contains("thesis.tex is of no export"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
        assert_eq!(fs::read_to_string(to.join("thesis.tex")).unwrap(), "mine");
    }

    #[test]
    fn one_name_is_made_by_one_program_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.uff");
        let first = Draft::new(&to, REPLACE).unwrap();
        fs::write(first.path(), "first").unwrap();
        assert!(matches!(Draft::new(&to, REPLACE), Err(StoreError::InUse { path }) if path == to));
        assert_eq!(fs::read_to_string(first.path()).unwrap(), "first", "what the first makes stays");
        first.finish().unwrap();
        drop(Draft::new(&to, REPLACE).unwrap());
        assert_eq!(fs::read_to_string(&to).unwrap(), "first");
    }

    #[test]
    fn what_a_killed_program_left_goes_and_what_others_left_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.h5");
        let left = folder.path().join(".a.h5.partial");
        fs::create_dir(&left).unwrap();
        for name in ["a.h5", ".a.h5.new", "precious"] {
            fs::write(left.join(name), name).unwrap();
        }
        let draft = Draft::new(&to, Replace::Nothing).unwrap();
        assert_eq!(fs::read_dir(&left).unwrap().count(), 1);
        fs::write(draft.path(), "new").unwrap();
        draft.finish().unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
        assert_eq!(fs::read_to_string(left.join("precious")).unwrap(), "precious");
    }

    #[test]
    fn a_name_that_another_program_took_meanwhile_stays_its_own() {
        for is_folder in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("a.zarr");
            let mut draft = Draft::new(&to, Replace::Nothing).unwrap();
            if is_folder {
                draft = draft.folder().unwrap();
                fs::create_dir(&to).unwrap();
            } else {
                fs::write(draft.path(), "new").unwrap();
                fs::write(&to, "old").unwrap();
            }
            assert!(matches!(draft.finish(), Err(StoreError::Exists { .. })));
            assert_eq!(to.is_dir(), is_folder);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
        }
    }

    #[test]
    fn a_file_that_a_program_writes_is_not_replaced_by_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        let written = File::create_new(&to).unwrap();
        lock::share(&written, &to).unwrap();
        let draft = Draft::new(&to, REPLACE).unwrap().folder().unwrap();
        assert!(matches!(draft.finish(), Err(StoreError::InUse { .. })));
        assert!(to.is_file());
    }
}
