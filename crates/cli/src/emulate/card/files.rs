//! Captures of frames that the simulated card received or was given.

use crate::Result;
use shotline_store::pcapng::{Interface, Writer};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A capture that is written.
pub(super) struct Capture {
    path: PathBuf,
    writer: Writer<File>,
}

impl Capture {
    /// Creates a capture of one interface.
    pub fn create(path: PathBuf, name: String, module: &str, comment: &str) -> Result<Self> {
        let file = File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!("{} exists: choose another folder with --out", path.display()),
            _ => format!("cannot create {}: {error}", path.display()),
        })?;
        let mut writer = Writer::new(file, concat!("shotline ", env!("CARGO_PKG_VERSION")), comment)?;
        let description = format!("{module}, simulated");
        writer.interface(&Interface { name, description, hardware: "none".into(), ..Interface::default() })?;
        Ok(Self { path, writer })
    }

    /// Writes a frame without FCS.
    pub fn write(&mut self, time_ns: u64, frame: &[u8]) -> Result {
        let done = self.writer.packet(0, time_ns, &[frame]);
        Ok(done.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?)
    }

    /// Writes what is left.
    pub fn finish(&mut self) -> Result {
        Ok(self.writer.flush().map_err(|error| format!("cannot write {}: {error}", self.path.display()))?)
    }
}

/// Creates the folder for captures.
pub(super) fn create_folder(folder: &Path) -> Result {
    Ok(std::fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?)
}
