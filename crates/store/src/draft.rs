//! Output that is being written, in a hidden folder next to its final name. It is renamed once it is complete.

use crate::{StoreError, layout, lock};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Finds the first entry of a folder that must not be removed; `None` if the folder may be replaced.
pub(crate) type FindForeign = fn(&Path) -> io::Result<Option<PathBuf>>;

/// What a draft may replace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replace {
    /// The name must not exist.
    Nothing,
    /// A file.
    File,
    /// A file, or a folder without foreign entries.
    Folder(FindForeign),
}

impl Replace {
    /// Returns `true` if an existing file may be replaced.
    pub fn is_allowed(self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Fails if an existing folder must not be replaced, or has a foreign entry.
    fn check_folder(self, to: &Path) -> Result<(), StoreError> {
        let failed = |source| StoreError::Create { path: to.to_owned(), source };
        let foreign = match self {
            Self::Nothing => return Err(StoreError::Exists { path: to.to_owned() }),
            Self::File => return Err(failed(io::Error::other("it is a folder, which is not replaced"))),
            Self::Folder(foreign) => foreign(to).map_err(failed)?,
        };
        let Some(foreign) = foreign else { return Ok(()) };
        let why = format!(
            "{} was not written by an export and would be lost: move it away, or choose another name",
            foreign.display()
        );
        Err(failed(io::Error::other(why)))
    }
}

/// A file or folder that is being written. It is removed if dropped before [`Self::finish`].
#[derive(Debug)]
pub(crate) struct Draft {
    final_path: PathBuf,
    /// `.NAME.partial`, which is locked while the draft exists.
    folder: PathBuf,
    /// The folder, open to hold the lock.
    locked: File,
    /// Output, `.NAME.partial/NAME`.
    path: PathBuf,
    replace: Replace,
}

impl Draft {
    /// Creates the hidden folder. Fails if the name exists and must not be replaced, or if another program is writing
    /// it.
    pub fn new(to: &Path, replace: Replace) -> Result<Self, StoreError> {
        let name = to.file_name().ok_or_else(|| {
            let source = io::Error::other("it is not a file name");
            StoreError::Create { path: to.to_owned(), source }
        })?;
        if to.symlink_metadata().is_ok() && !replace.is_allowed() {
            return Err(StoreError::Exists { path: to.to_owned() });
        }
        if to.is_dir() {
            replace.check_folder(to)?;
        }
        let folder = to.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        let locked = lock_folder(to, &folder)?;
        let draft = Self { final_path: to.to_owned(), locked, path: folder.join(name), folder, replace };
        // Remains of a program that was killed.
        draft.clear().map_err(StoreError::io("remove", &draft.path))?;
        Ok(draft)
    }

    /// Path to write to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        size(&self.path)
    }

    /// Creates the draft as a folder.
    pub fn folder(self) -> Result<Self, StoreError> {
        fs::create_dir(&self.path).map_err(|source| StoreError::Create { path: self.path.clone(), source })?;
        Ok(self)
    }

    /// Renames the draft to its final name. Fails if another program has created or locked that name in the meantime.
    pub fn finish(self) -> Result<(), StoreError> {
        if self.path.is_dir() || self.final_path.is_dir() {
            self.exchange()?;
        } else {
            layout::put_in_place(&self.path, &self.final_path, self.replace.is_allowed())?;
        }
        layout::sync_directory(&self.final_path)
    }

    /// Exchanges the draft with an existing folder: a folder cannot be renamed over one that is not empty. The old one
    /// is removed with the draft.
    fn exchange(&self) -> Result<(), StoreError> {
        let to = &self.final_path;
        let exists = to.symlink_metadata().is_ok();
        if exists && !self.replace.is_allowed() {
            return Err(StoreError::Exists { path: to.clone() });
        }
        if !to.is_dir() {
            layout::check_unused(to)?;
        } else {
            self.replace.check_folder(to)?;
        }
        let flags = if exists { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        match rustix::fs::renameat_with(CWD, &self.path, CWD, to, flags) {
            Err(Errno::EXIST) => Err(StoreError::Exists { path: to.clone() }),
            // The file system does not support these flags.
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
        // If the folder has other entries, it stays.
        let _ = self.clear();
        let _ = fs::remove_dir(&self.folder);
        lock::release(&self.locked);
    }
}

/// Creates and locks the hidden folder, or takes over the one that a killed program left. Fails if another program
/// holds its lock.
fn lock_folder(to: &Path, folder: &Path) -> Result<File, StoreError> {
    let failed = |errno: Errno| StoreError::Create { path: to.to_owned(), source: errno.into() };
    loop {
        match rustix::fs::mkdir(folder, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let locked = match rustix::fs::open(folder, flags, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::NOENT) => continue, // removed since: the other program has finished
            Err(errno) => return Err(failed(errno)),
        };
        lock::claim(&locked, to)?;
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let ours = rustix::fs::fstat(&locked).map(identity).map_err(failed)?;
        if rustix::fs::lstat(folder).map(identity) == Ok(ours) {
            return Ok(locked);
        }
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).map_or(0, |entries| entries.flatten().map(|entry| size(&entry.path())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that contain the word `mine` are foreign.
    const REPLACE: Replace = Replace::Folder(|folder| {
        let foreign = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains("mine"));
        let mut paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        Ok(paths.find(foreign))
    });

    #[test]
    fn dropped_draft_leaves_no_files() {
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
    fn folder_replaces_a_full_one_only_when_finished() {
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
    fn folder_with_foreign_files_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        fs::create_dir(&to).unwrap();
        let foreign = to.join("thesis.tex");
        fs::write(&foreign, "mine").unwrap();
        for (replace, expected) in [
            (REPLACE, format!("{} was not written by an export", foreign.display())),
            (Replace::File, "it is a folder, which is not replaced".to_owned()),
        ] {
            let error = Draft::new(&to, replace).unwrap_err().to_string();
            assert!(error.contains(&expected), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "there is no draft");
            assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
        }
    }

    #[test]
    fn foreign_file_added_during_the_export_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        fs::create_dir(&to).unwrap();
        let draft = Draft::new(&to, REPLACE).unwrap().folder().unwrap();
        fs::write(to.join("thesis.tex"), "mine").unwrap();
        let error = draft.finish().unwrap_err().to_string();
        assert!(error.contains("thesis.tex was not written by an export"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
        assert_eq!(fs::read_to_string(to.join("thesis.tex")).unwrap(), "mine");
    }

    #[test]
    fn one_draft_of_a_name_exists_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.uff");
        let first = Draft::new(&to, REPLACE).unwrap();
        fs::write(first.path(), "first").unwrap();
        assert!(matches!(Draft::new(&to, REPLACE), Err(StoreError::InUse { path }) if path == to));
        assert_eq!(fs::read_to_string(first.path()).unwrap(), "first", "the first draft is unchanged");
        first.finish().unwrap();
        drop(Draft::new(&to, REPLACE).unwrap());
        assert_eq!(fs::read_to_string(&to).unwrap(), "first");
    }

    #[test]
    fn stale_draft_is_removed_and_other_files_are_kept() {
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
    fn name_created_in_the_meantime_is_not_replaced() {
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
    fn locked_file_is_not_replaced_by_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.zarr");
        let written = File::create_new(&to).unwrap();
        lock::share(&written, &to).unwrap();
        let draft = Draft::new(&to, REPLACE).unwrap().folder().unwrap();
        assert!(matches!(draft.finish(), Err(StoreError::InUse { .. })));
        assert!(to.is_file());
    }
}
