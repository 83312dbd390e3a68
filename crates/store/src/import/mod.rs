//! Recordings made from what others have. [`Format`] lists the formats.
//!
//! The result is a recording like any other, with a record behind every shot: it can be replayed, verified and
//! exported. [`import`] reads shot by shot, so its memory does not grow with the input.

mod about;
mod blocks;
mod bounds;
mod digital_rf;
mod format;
mod frames;
mod npy;
mod sigmf;
mod uff;
mod write;
mod zarr;
mod zea;

use crate::StoreError;
use crate::beneath::Folder;
use crate::info::RunInfo;
use crate::shot::Loss;
use crate::sys::hdf5::open_same;
use crate::zarr::objects::ObjectError;
pub use about::{About, Takes};
pub use format::{Format, HEADER, rows};
use hdf5::Dataset;
use hdf5::dataset::Layout;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use shotline_wire::shot::GeometryError;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// What an import needs to be told.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Samples of a shot, of sources that go on without shots [chosen so that they divide them, if they can].
    pub samples: Option<u32>,
    /// Sample rate in Hz, of sources that do not tell it.
    pub rate_hz: Option<u32>,
    /// Channels of a source that has several [its only one].
    pub channel: Option<String>,
    /// Factor from the source's numbers to samples [1 if they are integers that fit, else what makes them fit].
    pub scale: Option<f64>,
    /// Gaps of a source that goes on are pauses, not losses.
    pub pauses: bool,
    /// Replace a file that is there.
    pub overwrite: bool,
}

/// What was imported.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Imported {
    /// The source's format.
    pub format: &'static str,
    /// The recording.
    pub to: PathBuf,
    /// Channels of each link.
    pub channels: Vec<u16>,
    /// Samples per channel of each link's shots.
    pub samples: Vec<u32>,
    /// Factor from the source's numbers to samples.
    pub scale: f64,
    /// Shots that are whole.
    pub complete: u64,
    /// Shots of which something is missing.
    pub partial: u64,
    /// Shots that are not there.
    pub lost: u64,
    /// Samples that were there but share a packet with missing ones, and are left out.
    pub left_out: u64,
    /// Bytes of the recording.
    pub file_bytes: u64,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] StoreError),
    /// The kernel refused something.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// libhdf5 failed.
    #[error("HDF5 cannot read {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        source: hdf5::Error,
    },
    /// It is not what it seems, or not what can be read here.
    #[error("{}: {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        found: String,
    },
    /// Its shots cannot be shots of ours.
    #[error("{}: {source}; choose other shots (--samples)", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: GeometryError,
    },
    /// There is no memory for the shots.
    #[error("no memory for shot buffers: {0}")]
    Memory(#[from] shotline_memory::MemoryError),
    /// An object store refused something.
    #[error(transparent)]
    Objects(#[from] ObjectError),
    /// The caller asked for it.
    #[error("the import was stopped; nothing of it is left")]
    Stopped,
}

impl ImportError {
    fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
    fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }
    fn format(path: &Path, found: impl Into<String>) -> Self {
        Self::Format { path: path.to_owned(), found: found.into() }
    }
}

/// Is told how many shots of how many are done, and says whether to go on.
pub type Progress<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

/// Refuses a dataset whose numbers are in other files: whoever made this one would choose what is read.
fn expect_own(dataset: &Dataset, file: &hdf5::File, path: &Path) -> Result<(), ImportError> {
    // Names of files do not tell them apart: a link may go by any.
    let numbers = dataset.loc_info().and_then(|there| Ok((there.fileno, file.loc_info()?.fileno)));
    let (there, here) = numbers.map_err(ImportError::hdf5(path))?;
    let own = there == here && dataset.layout() != Layout::Virtual;
    let external = dataset.dcpl().and_then(|plist| plist.get_external()).map_err(ImportError::hdf5(path))?;
    if own && external.is_empty() {
        return Ok(());
    }
    let found = format!("expected the numbers of {} in this file, found them in others", dataset.name());
    Err(ImportError::format(path, format!("{found}: copy them into it (h5repack, or h5py)")))
}

/// Opens a file that lies in or below the folder of the source, for HDF5.
fn open_below(folder: &Folder, name: &Path) -> Result<hdf5::File, ImportError> {
    let path = folder.path().join(name);
    let file = folder.file(name, OFlags::RDONLY).map_err(|errno| beneath(&path, errno))?;
    open_same(&file).map_err(ImportError::hdf5(&path))
}

/// Why a file that another one names is not read.
fn beneath(path: &Path, errno: Errno) -> ImportError {
    match errno {
        Errno::XDEV => {
            ImportError::format(path, "expected a file in its own folder, found a link to elsewhere: put it there")
        }
        Errno::INVAL => ImportError::format(path, "expected a regular file, found a folder, pipe or device"),
        errno => ImportError::io(path)(errno.into()),
    }
}

/// What numbers a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    /// 8-bit unsigned: kept as bytes.
    Bytes,
    /// They fit 16-bit integers.
    Int16,
    /// Any others: they are looked at first.
    Any,
}

/// What a source is.
#[derive(Clone, Debug)]
struct Described {
    format: &'static str,
    numbers: Numbers,
    /// The run that it becomes; links' geometries are those of int16 or bytes.
    run: RunInfo,
    /// Shots, at most.
    shots: u64,
    notes: Vec<String>,
}

/// One link's shot: numbers that are not a number are missing.
#[derive(Clone, Debug, Default)]
struct Piece {
    /// All channels of an instant, then those of the next.
    samples: Vec<f64>,
    /// TAI nanoseconds of the first one; 0: unknown.
    stamp_tai_ns: u64,
    /// What the source's own table says; none for sources without one.
    table: Option<Table>,
}

/// What a source that was a recording says of a shot.
#[derive(Clone, Debug, Default)]
struct Table {
    flags: u8,
    complete: bool,
    valid_bytes: u32,
    presence: Vec<u8>,
    arrived_tai_ns: u64,
    completed_tai_ns: u64,
}

/// Shots of all links with one number; none: lost.
#[derive(Clone, Debug, Default)]
struct Pieces {
    number: u64,
    links: Vec<Option<Piece>>,
}

/// Something that can be imported, opened and at its beginning.
trait Source {
    fn described(&self) -> &Described;
    /// The next shots; none at the end.
    fn next(&mut self) -> Result<Option<Pieces>, ImportError>;
    /// Losses that the source names; none: numbers that are passed over are lost.
    fn losses(&self) -> Option<&[Loss]> {
        None
    }
}

/// Makes the recording `to` of what is at `from`. An object store is named as `s3://bucket/prefix`.
pub fn import(
    from: &Path,
    to: &Path,
    options: &ImportOptions,
    progress: Progress<'_>,
) -> Result<Imported, ImportError> {
    if options.rate_hz == Some(0) {
        let found = "--rate-hz: expected 1 or more, found 0: leave it out if the sample rate is not known";
        return Err(ImportError::format(from, found));
    }
    let format = Format::of(from)?;
    let mut source = format.open(from, options)?;
    format.check(from, options)?;
    let scale = match (options.scale, source.described().numbers) {
        (Some(scale), _) => scale,
        (None, Numbers::Bytes | Numbers::Int16) => 1.0,
        (None, Numbers::Any) => {
            let scale = fitting(&mut *source, progress)?;
            source = format.open(from, options)?;
            scale
        }
    };
    write::write(&mut *source, to, options, scale, progress)
}

/// The factor that makes a source's numbers fit 16 bits: 1 if they do and are whole.
fn fitting(source: &mut dyn Source, progress: Progress<'_>) -> Result<f64, ImportError> {
    let (mut most, mut whole, mut done) = (0.0_f64, true, 0);
    let shots = source.described().shots;
    while let Some(pieces) = source.next()? {
        for sample in pieces.links.iter().flatten().flat_map(|piece| &piece.samples).filter(|x| x.is_finite()) {
            most = most.max(sample.abs());
            whole &= sample.fract() == 0.0;
        }
        done += 1;
        if progress(done, 2 * shots).is_break() {
            return Err(ImportError::Stopped);
        }
    }
    let limit = f64::from(i16::MAX);
    Ok(if (whole && most <= limit) || most == 0.0 { 1.0 } else { (limit / most).min(f64::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_the_file_that_was_looked_at_whatever_takes_its_name() {
        let outside = tempfile::tempdir().unwrap();
        let (named, moved) = (outside.path().join("named"), outside.path().join("moved"));
        let made = |folder: &Path, number: u32| {
            std::fs::create_dir(folder).unwrap();
            let file = hdf5::File::create(folder.join("a.h5")).unwrap();
            file.new_dataset_builder().with_data(&[number]).create("data").unwrap();
        };
        made(&named, 1);
        let folder = Folder::open(&named).unwrap();
        std::fs::rename(&named, &moved).unwrap();
        made(&named, 2);
        let file = open_below(&folder, Path::new("a.h5")).unwrap();
        let data = file.dataset("data").unwrap();
        assert_eq!(data.read_raw::<u32>().unwrap(), [1]);
    }
}
