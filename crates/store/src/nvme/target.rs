//! Parsing of raw device paths: a device, and a run on it.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Access method of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessMethod {
    /// NVMe passthrough commands.
    Passthrough,
    /// Direct I/O, which bypasses the page cache.
    Block,
}

/// A device, and a run on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(super) method: AccessMethod,
    pub(super) device: PathBuf,
    pub(super) run: Option<String>,
    /// Path as given by the user, without the run.
    pub(super) given: PathBuf,
}

impl Target {
    /// Parses a path; `None` if it is that of a file.
    pub fn of(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let (method, prefix) = match bytes {
            [b'n', b'v', b'm', b'e', b':', ..] => (AccessMethod::Passthrough, "nvme:"),
            [b'b', b'l', b'o', b'c', b'k', b':', ..] => (AccessMethod::Block, "block:"),
            _ => return None,
        };
        let named = PathBuf::from(std::ffi::OsString::from_vec(bytes[prefix.len()..].to_vec()));
        let is_device = |path: &Path| {
            path.metadata().is_ok_and(|metadata| {
                let kind = metadata.file_type();
                kind.is_char_device() || kind.is_block_device() || kind.is_file()
            })
        };
        let (device, run) = match (named.parent(), named.file_name().and_then(|name| name.to_str())) {
            (Some(parent), Some(name)) if !is_device(&named) && is_device(parent) => {
                (parent.to_owned(), Some(name.to_owned()))
            }
            _ => (named, None),
        };
        let given = PathBuf::from(format!("{prefix}{}", device.display()));
        Some(Self { method, device, run, given })
    }

    /// Returns the path of a run on this device.
    pub(super) fn path_of(&self, run: &str) -> PathBuf {
        self.given.join(run)
    }
    /// Returns the path, with the run if it has one.
    pub(super) fn path(&self) -> PathBuf {
        self.run.as_ref().map_or_else(|| self.given.clone(), |run| self.path_of(run))
    }
    /// Returns the name of the run, if given.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }
}
