//! What a check acts on: a format, a recording for it, and an empty folder.

use crate::export::{Array, ExportError, Exported, Format, Options, Progress, Selection, Takes, export};
use crate::read::Recording;
use shotline_conformance::{Failure, failed};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Shots of link 0, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of it was received.
    pub complete: u64,
    /// Some of it was.
    pub partial: u64,
    /// None of it was.
    pub lost: u64,
}

/// Recordings and folders for the checks.
pub trait Fixture {
    /// The path of a recording for a format. Of link 0 some shots are partial and some are lost, though not the first or
    /// last one; it has an even number of channels, samples of 16 bits, and stamps that continue each other.
    fn recording(&self, format: Format) -> Result<PathBuf, Failure>;
    /// What that recording has.
    fn counts(&self) -> Counts;
    /// The path of a recording for a format that has no shots.
    fn empty(&self, format: Format) -> Result<PathBuf, Failure>;
    /// An empty folder, another one at each call.
    fn folder(&self) -> Result<PathBuf, Failure>;
    /// A folder on a drive that is full. The error says why there is none.
    fn full(&self) -> Result<PathBuf, String>;
}

/// What a check acts on: a format, a recording for it, and an empty folder.
pub struct Stage<'a> {
    pub(super) fixture: &'a dyn Fixture,
    pub(super) format: Format,
    pub(super) recording: Recording,
    pub(super) folder: PathBuf,
}

/// The files of a folder and of those in it, by their paths.
pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

impl<'a> Stage<'a> {
    pub(super) fn new(fixture: &'a dyn Fixture, format: Format) -> Result<Self, Failure> {
        let recording = Recording::open(&fixture.recording(format)?).map_err(failed("open the recording"))?;
        Ok(Self { fixture, format, recording, folder: fixture.folder()? })
    }

    /// The name of an export in a folder.
    pub(super) fn name_in(&self, folder: &Path) -> PathBuf {
        folder.join("export").with_extension(self.format.about().endings.first().unwrap_or(&""))
    }

    /// The name of an export in the folder of this check.
    pub(super) fn to(&self) -> PathBuf {
        self.name_in(&self.folder)
    }

    /// Options that the format takes: three plane waves, and otherwise the defaults.
    pub(super) fn options(&self) -> Options {
        match self.format.about().takes {
            Takes::Array => Options::Array(Array { angles_rad: vec![-0.1, 0.0, 0.1], ..Array::default() }),
            takes @ (Takes::Nothing | Takes::Radio | Takes::Zarr) => Options::of(takes),
        }
    }

    /// What is exported: link 0 where a format takes a choice.
    pub(super) fn selection(&self) -> Selection {
        match self.format {
            Format::Uff | Format::Zea | Format::DigitalRf | Format::SigMf | Format::Zarr => {
                Selection { links: vec![0], ..Selection::default() }
            }
            Format::Pcapng | Format::Hdf5 => Selection::default(),
        }
    }

    /// Exports to a name, with or without leave to replace what is there.
    pub(super) fn export(&self, to: &Path, replace: bool, progress: Progress<'_>) -> Result<Exported, ExportError> {
        self.export_part(&self.selection(), to, replace, progress)
    }

    pub(super) fn export_part(
        &self,
        selection: &Selection,
        to: &Path,
        replace: bool,
        progress: Progress<'_>,
    ) -> Result<Exported, ExportError> {
        export(&self.recording, selection, (self.format, &self.options()), to, replace, progress)
    }

    /// Exports to the name of this check, which must succeed.
    pub(super) fn exported(&self) -> Result<Exported, Failure> {
        self.export(&self.to(), false, &go_on).map_err(failed("export"))
    }

    /// What is in the folder of this check.
    pub(super) fn files(&self) -> Result<Files, Failure> {
        let mut files = Files::new();
        collect(&self.folder, &self.folder, &mut files).map_err(failed("list the folder"))?;
        Ok(files)
    }

    /// Fails if there is anything in the folder of this check.
    pub(super) fn expect_nothing(&self) -> Result<(), Failure> {
        let left: Vec<_> = listed(&self.folder)?;
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
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

/// The names in a folder, hidden ones too.
pub(super) fn listed(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(failed("list a folder"))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Progress that never stops the export.
pub(super) fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Progress that is stopped at once.
pub(super) fn stop(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Break(())
}
