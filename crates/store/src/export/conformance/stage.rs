//! Environment of a check: a format, a recording for it, and an empty folder.

use crate::export::{ExportError, ExportReport, Format, OptionKind, Options, Progress, Selection, export};
use crate::read::Recording;
use shotline_compute::ultrasound::Array;
use shotline_conformance::{Failure, failed};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Counts of the shots of link 0, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completely received shots.
    pub complete: u64,
    /// Partially received shots.
    pub partial: u64,
    /// Lost shots.
    pub lost: u64,
}

/// Provider of recordings and folders for the checks.
pub trait Fixture {
    /// Returns the path of a recording for a format.
    ///
    /// Some shots of link 0 are partial and some are lost, but not the first or last one. It has an even number of
    /// channels, 16-bit samples, and contiguous timestamps.
    fn recording(&self, format: Format) -> Result<PathBuf, Failure>;
    /// Returns the shot counts of that recording.
    fn counts(&self) -> Counts;
    /// Returns the path of a recording without shots for a format.
    fn empty(&self, format: Format) -> Result<PathBuf, Failure>;
    /// Returns a new empty folder.
    fn folder(&self) -> Result<PathBuf, Failure>;
    /// Returns a folder on a full drive, or the reason why there is none.
    fn full(&self) -> Result<PathBuf, String>;
}

/// Environment of a check: a format, a recording for it, and an empty folder.
pub struct Stage<'a> {
    pub(super) fixture: &'a dyn Fixture,
    pub(super) format: Format,
    pub(super) recording: Recording,
    pub(super) folder: PathBuf,
}

/// Files in a folder and its subfolders, by relative path.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

impl<'a> Stage<'a> {
    pub(super) fn new(fixture: &'a dyn Fixture, format: Format) -> Result<Self, Failure> {
        let recording = Recording::open(&fixture.recording(format)?).map_err(failed("open the recording"))?;
        Ok(Self { fixture, format, recording, folder: fixture.folder()? })
    }

    /// Returns the path of an export in a folder.
    pub(super) fn name_in(&self, folder: &Path) -> PathBuf {
        folder.join("export").with_extension(self.format.about().extensions.first().unwrap_or(&""))
    }

    /// Returns the path of the export of this check.
    pub(super) fn to(&self) -> PathBuf {
        self.name_in(&self.folder)
    }

    /// Returns options for the format: three plane waves for arrays, the defaults otherwise.
    pub(super) fn options(&self) -> Options {
        match self.format.about().option_kind {
            OptionKind::Array => Options::Array(Array { angles_rad: vec![-0.1, 0.0, 0.1], ..Array::default() }),
            kind @ (OptionKind::Nothing | OptionKind::Radio | OptionKind::Zarr) => Options::of(kind),
        }
    }

    /// Returns the exported selection: link 0 if the format can export single links.
    pub(super) fn selection(&self) -> Selection {
        match self.format {
            Format::Uff | Format::Zea | Format::DigitalRf | Format::SigMf | Format::Zarr => {
                Selection { links: vec![0], ..Selection::default() }
            }
            Format::Pcapng | Format::Hdf5 => Selection::default(),
        }
    }

    /// Exports to a path; `replace` permits replacing an existing export.
    pub(super) fn export(&self, to: &Path, replace: bool, progress: Progress<'_>) -> Result<ExportReport, ExportError> {
        self.export_part(&self.selection(), to, replace, progress)
    }

    pub(super) fn export_part(
        &self,
        selection: &Selection,
        to: &Path,
        replace: bool,
        progress: Progress<'_>,
    ) -> Result<ExportReport, ExportError> {
        export(&self.recording, selection, (self.format, &self.options()), to, replace, progress)
    }

    /// Exports to the path of this check, which must succeed.
    pub(super) fn exported(&self) -> Result<ExportReport, Failure> {
        self.export(&self.to(), false, &proceed).map_err(failed("export"))
    }

    /// Returns the files in the folder of this check.
    pub(super) fn files(&self) -> Result<Files, Failure> {
        let mut files = Files::new();
        collect(&self.folder, &self.folder, &mut files).map_err(failed("list the folder"))?;
        Ok(files)
    }

    /// Fails if the folder of this check is not empty.
    pub(super) fn expect_nothing(&self) -> Result<(), Failure> {
        let left: Vec<_> = listed(&self.folder)?;
        if left.is_empty() { Ok(()) } else { Err(format!("files were left: {}", left.join(", "))) }
    }
}

fn collect(folder: &Path, root: &Path, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, root, files)?;
        } else {
            files.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), fs::read(&path)?);
        }
    }
    Ok(())
}

/// Returns the names in a folder, including hidden ones.
pub(super) fn listed(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(failed("list a folder"))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Progress callback that never stops the export.
pub(super) fn proceed(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Progress callback that stops the export at once.
pub(super) fn stop(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Break(())
}
