//! Files that a sweep records to.

use super::point::Point;
use crate::Result;
use std::path::{Path, PathBuf};

/// Files to record to, in one folder.
pub struct Files {
    folder: PathBuf,
    keep: bool,
    event_bytes: u64,
}

/// A file that is gone when this is dropped, unless it is to be kept.
pub struct Scratch {
    /// The file.
    pub path: PathBuf,
    /// Rows to lay it out for; none: as the recorder sees fit.
    pub rows: Option<u64>,
    keep: bool,
}

impl Files {
    /// In an existing folder, for events of this size in bytes.
    pub fn in_folder(folder: &Path, keep: bool, event_bytes: u64) -> Result<Self> {
        match folder.is_dir() {
            true => Ok(Self { folder: folder.to_owned(), keep, event_bytes }),
            false => Err(format!("expected --dir to be a folder, found {}", folder.display()).into()),
        }
    }

    /// A file for one run. Nothing that is there already is replaced: the recorder refuses.
    pub fn next(&self, point: &Point, seconds: f64, repeat: u32) -> Scratch {
        let name = format!("sweep-{}-{}-{:.0}hz-{repeat}.h5", point.framing, point.samples, point.hz);
        // A row for every trigger, and some for a stop that comes late; if the disk has room for all of them.
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
