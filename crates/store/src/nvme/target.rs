//! What a path of a raw device names: a device, and a run on it.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// NVMe commands, passed through.
    Passthrough,
    /// Reads and writes past the page cache.
    Block,
}

/// A device, and a run on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub(super) by: By,
    pub(super) device: PathBuf,
    pub(super) run: Option<String>,
    /// As it was written, up to the device's name.
    pub(super) written: PathBuf,
}

impl Target {
    /// What a path names; none if it is a file's.
    pub fn of(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let (by, prefix) = match bytes {
            [b'n', b'v', b'm', b'e', b':', ..] => (By::Passthrough, "nvme:"),
            [b'b', b'l', b'o', b'c', b'k', b':', ..] => (By::Block, "block:"),
            _ => return None,
        };
        let named = PathBuf::from(std::ffi::OsString::from_vec(bytes[prefix.len()..].to_vec()));
        let is_device = |path: &Path| {
            path.metadata().is_ok_and(|there| {
                let kind = there.file_type();
                kind.is_char_device() || kind.is_block_device() || kind.is_file()
            })
        };
        let (device, run) = match (named.parent(), named.file_name().and_then(|name| name.to_str())) {
            (Some(parent), Some(name)) if !is_device(&named) && is_device(parent) => {
                (parent.to_owned(), Some(name.to_owned()))
            }
            _ => (named, None),
        };
        let written = PathBuf::from(format!("{prefix}{}", device.display()));
        Some(Self { by, device, run, written })
    }

    /// The path of a run on this device.
    pub(super) fn path_of(&self, run: &str) -> PathBuf {
        self.written.join(run)
    }
    /// The path of what is meant.
    pub(super) fn path(&self) -> PathBuf {
        self.run.as_ref().map_or_else(|| self.written.clone(), |run| self.path_of(run))
    }
    /// The run that is named.
    pub fn run(&self) -> Option<&str> {
        self.run.as_deref()
    }
}
