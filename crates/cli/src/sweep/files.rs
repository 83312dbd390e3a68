//! Files that a sweep records to.

use super::point::Point;
use crate::Result;
use std::path::{Path, PathBuf};

/// Creates the files of a sweep, in one folder.
pub struct Files {
    folder: PathBuf,
    keep: bool,
    event_bytes: u64,
}

/// A file that is removed when this value is dropped, unless it is kept.
pub struct Scratch {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of rows to allocate, or `None` for the recorder's default.
    pub rows: Option<u64>,
    keep: bool,
}

impl Files {
    /// Uses an existing folder, for events of `event_bytes`.
    pub fn in_folder(folder: &Path, keep: bool, event_bytes: u64) -> Result<Self> {
        match folder.is_dir() {
            true => Ok(Self { folder: folder.to_owned(), keep, event_bytes }),
            false => Err(format!("expected --dir to be a directory, found {}", folder.display()).into()),
        }
    }

    /// Returns the file for one run. The recorder refuses to replace an existing file.
    pub fn next(&self, point: &Point, seconds: f64, repeat: u32) -> Scratch {
        let name = format!("sweep-{}-{}-{:.0}hz-{repeat}.h5", point.framing, point.samples, point.hz);
        // One row for every trigger and some for a late stop, if the disk has space for all of them.
        let rows = (point.hz * (seconds + 0.5)) as u64 + 16;
        let free = rustix::fs::statvfs(&self.folder).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        let fits = rows.saturating_mul(self.event_bytes) < free / 2;
        Scratch { path: self.folder.join(name), rows: fits.then_some(rows), keep: self.keep }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
