//! Something under way, under a hidden name: it gets its own only when it is whole.

use super::{ExportError, zarr};
use std::fs;
use std::path::{Path, PathBuf};

/// A file or folder that is being made. Dropped before [`Self::finish`], it leaves nothing.
#[derive(Debug)]
pub(super) struct Draft {
    to: PathBuf,
    hidden: PathBuf,
    replace: bool,
    done: bool,
}

impl Draft {
    /// Begins it. Refuses a name that is taken, unless it may be replaced.
    pub fn new(to: &Path, replace: bool) -> Result<Self, ExportError> {
        let name = to.file_name().ok_or_else(|| {
            let source = std::io::Error::other("it is no name of a file");
            ExportError::Io { what: "create", path: to.to_owned(), source }
        })?;
        if to.symlink_metadata().is_ok() && !replace {
            return Err(ExportError::Exists { path: to.to_owned() });
        }
        let hidden = to.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        remove(&hidden).map_err(ExportError::io("remove", &hidden))?;
        Ok(Self { to: to.to_owned(), hidden, replace, done: false })
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.hidden
    }

    /// Bytes in it by now.
    pub fn bytes(&self) -> u64 {
        size(&self.hidden)
    }

    /// Makes it a folder.
    pub fn folder(self) -> Result<Self, ExportError> {
        fs::create_dir(&self.hidden).map_err(ExportError::io("create", &self.hidden))?;
        Ok(self)
    }

    /// Gives it its name.
    pub fn finish(mut self) -> Result<(), ExportError> {
        // What others have put there meanwhile is not ours to replace.
        if self.to.symlink_metadata().is_ok() {
            if !self.replace {
                return Err(ExportError::Exists { path: self.to.clone() });
            }
            if self.to.is_dir() && !is_export(&self.to) {
                let source = std::io::Error::other("it is a folder of other things, which stay");
                return Err(ExportError::Io { what: "replace", path: self.to.clone(), source });
            }
            // A folder cannot be renamed over one that is not empty.
            if self.to.is_dir() || self.hidden.is_dir() {
                remove(&self.to).map_err(ExportError::io("replace", &self.to))?;
            }
        }
        fs::rename(&self.hidden, &self.to).map_err(ExportError::io("create", &self.to))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.done {
            let _ = remove(&self.hidden);
        }
    }
}

/// Whether a folder is what an export makes: Zarr, or Digital RF, or nothing yet.
fn is_export(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let radio = |path: &PathBuf| path.join("drf_properties.h5").exists();
    let zarr = || fs::read(folder.join("zarr.json")).is_ok_and(|root| zarr::is_own(&root));
    entries.is_empty() || zarr() || entries.iter().all(radio)
}

fn remove(path: &Path) -> std::io::Result<()> {
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

    #[test]
    fn a_draft_that_is_given_up_leaves_nothing_and_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("a.uff");
        fs::write(&to, "old").unwrap();
        assert!(matches!(Draft::new(&to, false), Err(ExportError::Exists { .. })));
        let draft = Draft::new(&to, true).unwrap();
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
        let draft = Draft::new(&to, true).unwrap().folder().unwrap();
        fs::write(draft.path().join("new"), "four").unwrap();
        assert!(to.join("zarr.json").exists());
        assert_eq!(draft.bytes(), 4);
        draft.finish().unwrap();
        assert!(to.join("new").exists() && !to.join("zarr.json").exists());
    }

    #[test]
    fn a_folder_that_no_export_made_stays_even_when_asked_to_replace_it() {
        // The second: arrays of another program.
        for (name, words) in [("thesis.tex", "mine"), ("zarr.json", r#"{"zarr_format": 3}"#)] {
            let folder = tempfile::tempdir().unwrap();
            let to = folder.path().join("a.zarr");
            fs::create_dir(&to).unwrap();
            fs::write(to.join(name), words).unwrap();
            let draft = Draft::new(&to, true).unwrap().folder().unwrap();
            let error = draft.finish().unwrap_err().to_string();
            assert!(error.contains("a folder of other things"), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft is gone");
            assert_eq!(fs::read_to_string(to.join(name)).unwrap(), words);
        }
    }
}
