//! What every export format must do: named checks over any recording, and what each proves.
//!
//! A [`Fixture`] brings recordings of which it knows what is missing, and folders to write to; [`run`] lets every check
//! of [`all`] act on a format, each in a folder of its own.

mod contents;
mod names;
mod refusals;

use super::{Array, ExportError, Exported, Format, Losses, Options, Progress, Selection, Takes, Target, export};
use crate::read::Recording;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Why a check failed, for a person.
pub type Failure = String;

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
    fixture: &'a dyn Fixture,
    format: Format,
    recording: Recording,
    folder: PathBuf,
}

/// One thing that a format must do.
#[derive(Clone, Copy)]
pub struct Check {
    /// A sentence that says what.
    pub name: &'static str,
    /// What it proves.
    pub proves: &'static str,
    /// Does it.
    pub run: fn(&Stage<'_>) -> Result<Outcome, Failure>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Check({})", self.name)
    }
}

/// Every check.
pub fn all() -> impl Iterator<Item = Check> {
    [names::CHECKS, contents::CHECKS, refusals::CHECKS].into_iter().flatten().copied()
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The format does it.
    Passed,
    /// The check has nothing to act on, and why.
    Cannot(String),
    /// It does not.
    Failed(Failure),
}

/// The outcomes of one format, in the order of [`all`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The format.
    pub format: Format,
    /// A check's name and what became of it.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// The checks that failed, one a line; empty if none did.
    pub fn failures(&self) -> String {
        let failed = self.outcomes.iter().filter_map(|(check, outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{}: {check}: {why}\n", self.format.name())),
            Outcome::Passed | Outcome::Cannot(_) => None,
        });
        failed.collect()
    }
}

/// Lets every check whose name contains `filter` act on a format.
pub fn run(fixture: &dyn Fixture, format: Format, filter: &str) -> Report {
    let outcome = |check: Check| {
        let stage = Stage::new(fixture, format);
        (check.name, stage.and_then(|stage| (check.run)(&stage)).unwrap_or_else(Outcome::Failed))
    };
    Report { format, outcomes: all().filter(|check| check.name.contains(filter)).map(outcome).collect() }
}

/// The files of a folder and of those in it, by their paths.
type Files = BTreeMap<PathBuf, Vec<u8>>;

impl<'a> Stage<'a> {
    fn new(fixture: &'a dyn Fixture, format: Format) -> Result<Self, Failure> {
        let recording = Recording::open(&fixture.recording(format)?).map_err(failed("open the recording"))?;
        Ok(Self { fixture, format, recording, folder: fixture.folder()? })
    }

    /// The name of an export in a folder.
    fn name_in(&self, folder: &Path) -> PathBuf {
        folder.join("export").with_extension(self.format.about().endings.first().unwrap_or(&""))
    }

    /// The name of an export in the folder of this check.
    fn to(&self) -> PathBuf {
        self.name_in(&self.folder)
    }

    /// Options that the format takes: three plane waves, and otherwise the defaults.
    fn options(&self) -> Options {
        match self.format.about().takes {
            Takes::Array => Options::Array(Array { angles_rad: vec![-0.1, 0.0, 0.1], ..Array::default() }),
            takes @ (Takes::Nothing | Takes::Radio | Takes::Zarr) => Options::of(takes),
        }
    }

    /// What is exported: link 0 where a format takes a choice.
    fn selection(&self) -> Selection {
        match self.format {
            Format::Uff | Format::Zea | Format::DigitalRf | Format::SigMf | Format::Zarr => {
                Selection { links: vec![0], ..Selection::default() }
            }
            Format::Pcapng | Format::Hdf5 => Selection::default(),
        }
    }

    /// Exports to a name, with or without leave to replace what is there.
    fn export(&self, to: &Path, replace: bool, progress: Progress<'_>) -> Result<Exported, ExportError> {
        self.export_part(&self.selection(), to, replace, progress)
    }

    fn export_part(
        &self,
        selection: &Selection,
        to: &Path,
        replace: bool,
        progress: Progress<'_>,
    ) -> Result<Exported, ExportError> {
        export(&self.recording, selection, (self.format, &self.options()), to, replace, progress)
    }

    /// Exports to the name of this check, which must succeed.
    fn exported(&self) -> Result<Exported, Failure> {
        self.export(&self.to(), false, &go_on).map_err(failed("export"))
    }

    /// What is in the folder of this check.
    fn files(&self) -> Result<Files, Failure> {
        let mut files = Files::new();
        collect(&self.folder, &self.folder, &mut files).map_err(failed("list the folder"))?;
        Ok(files)
    }

    /// Fails if there is anything in the folder of this check.
    fn expect_nothing(&self) -> Result<(), Failure> {
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
fn listed(folder: &Path) -> Result<Vec<String>, Failure> {
    let entries = fs::read_dir(folder).map_err(failed("list a folder"))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Progress that nobody stops.
fn go_on(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Progress that is stopped at once.
fn stop(_: u64, _: u64) -> ControlFlow<()> {
    ControlFlow::Break(())
}

fn failed<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Failure {
    move |error| format!("cannot {what}: {error}")
}

/// Fails a check with a reason if something is not so.
macro_rules! ensure {
    ($is_so:expr, $($why:tt)+) => {
        if !$is_so {
            return Err(format!($($why)+));
        }
    };
}

use ensure;
