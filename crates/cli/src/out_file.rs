//! Files that have their names only when all of their bytes are on the drive.

use crate::Result;
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// A file under a temporary name in its folder, which is removed when this value is dropped.
pub struct OutFile {
    partial: NamedTempFile,
    path: PathBuf,
    force: bool,
}

/// Returns the folder of a file.
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl OutFile {
    /// Creates the file. With `force` it replaces one that has its name.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        if path.exists() && !path.is_file() {
            // A folder cannot be replaced, and a device must not be.
            return Err(format!("{} exists and is not a file: choose another name", path.display()).into());
        }
        if !force && path.exists() {
            return Err(format!("{} exists: choose another name, or use --force", path.display()).into());
        }
        let mut name = path
            .file_name()
            .ok_or_else(|| format!("expected the name of a file, found {}", path.display()))?
            .to_owned();
        name.push(".");
        let readable = Permissions::from_mode(0o644);
        let partial = Builder::new().prefix(&name).suffix(".partial").permissions(readable).tempfile_in(folder(path));
        let partial = partial.map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Self { partial, path: path.into(), force })
    }

    /// Returns the path of the file while it has its temporary name.
    pub fn partial_path(&self) -> &Path {
        self.partial.path()
    }

    /// Returns the file, to write it.
    pub fn file(&mut self) -> &mut File {
        self.partial.as_file_mut()
    }

    /// Writes all bytes of the file, and gives it its name. Returns the name.
    pub fn save(mut self, bytes: &[u8]) -> Result<PathBuf> {
        let written = self.file().write_all(bytes);
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        self.publish()
    }

    /// Gives the file its name, once its bytes are on the drive. Returns the name.
    pub fn publish(self) -> Result<PathBuf> {
        let Self { partial, path, force } = self;
        let failed = |error| format!("cannot save {}: {error}", path.display());
        partial.as_file().sync_all().map_err(failed)?;
        let kept = if force { partial.persist(&path) } else { partial.persist_noclobber(&path) };
        kept.map_err(|error| failed(error.error))?;
        File::open(folder(&path)).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(path)
    }
}
