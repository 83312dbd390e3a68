//! The master: a small HDF5 file that joins all files of a run into one recording.
//!
//! libhdf5 creates it in memory; it is written under a hidden name, synced, and renamed over its predecessor, so a
//! reader always finds a complete one. Its datasets are virtual. They map exactly the existing rows of parts that have
//! ended, and an unlimited number of rows of the part that is being written. So the master changes only between parts,
//! and stays correct if the recorder is killed.

pub(crate) mod interleaving;

use crate::StoreError;
use crate::blocks;
use crate::confined_path::open_regular;
use crate::info::{LinkInfo, RunInfo, number, read_number, text};
use crate::layout::skeleton::{channel_order, describe, describe_blocks, extents};
use crate::layout::{block_tables, folder, rename, sync_directory};
use crate::lock::FileLock;
use crate::metadata::header::SIGNATURE;
use crate::positioned::write_file;
use crate::rows::{self, RowFormat};
use crate::sys::hdf5::{Mapping, create_virtual, image, open_locked, open_same, read_bytes, sample_type, write_bytes};
use hdf5::types::{CompoundField, CompoundType, EnumMember, EnumType, IntSize, TypeDescriptor};
use hdf5::{Dataset, Datatype, Extent, File, Group, SimpleExtents};
use interleaving::stretches;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::{CStr, CString};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// State of a file of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// Being written, or the run was interrupted.
    Live = 0,
    /// Ended in order.
    Ended = 1,
    /// Its drive failed; the file has the rows that were visible by then.
    Failed = 2,
}

impl State {
    const ALL: [Self; 3] = [Self::Live, Self::Ended, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// Entry of one file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// Part number.
    pub part: u32,
    /// Index of the drive.
    pub stripe: u32,
    /// State of the file.
    pub state: State,
    /// Number of its rows that belong to the run; 0 while it is being written.
    pub rows: u64,
    /// Number of its rows of `/losses` that belong to the run.
    pub losses: u64,
    /// First shot number of the part, 0 while it is being written.
    pub first: u64,
    /// Last shot number of the part.
    pub last: u64,
    /// Bytes allocated to the file when the master was written.
    pub bytes: u64,
    /// Path: relative to the master's folder, or absolute.
    pub file: String,
}

/// Parts and rows that a bounded run has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Number of parts.
    pub parts: u64,
    /// Number of rows.
    pub rows: u64,
    /// First shot number.
    pub first: u64,
    /// Last shot number.
    pub last: u64,
}

/// Contents of a master.
#[derive(Clone, Debug)]
pub struct Master {
    /// Metadata of the run.
    pub run: RunInfo,
    /// Number of drives at the start of the run.
    pub stripes: u32,
    /// Files of the run, sorted by part and drive.
    pub files: Vec<FileEntry>,
    /// Parts and rows that are removed.
    pub removed: Removed,
    /// Encoded rows of `/counters`; empty until the run ends.
    pub counters: Vec<u8>,
}

/// Description of `/linkN/shots` of a master, written as an HDF5 attribute.
const SHOTS: &str = "one row for each shot of this link, in the order of rf's first dimension; the fields are described in each part. During the run: rows from the first one with packets = 0 on are not yet recorded";

/// Maximum number of rows of a file; the sum over all files fits 64 bits.
const MAX_ROWS: u64 = 1 << 40;

/// Byte offsets of the fields of a row of `/parts`.
const PART: usize = 0;
const STRIPE: usize = 4;
const ROWS: usize = 8;
const LOSSES: usize = 16;
const FIRST: usize = 24;
const LAST: usize = 32;
const BYTES: usize = 40;
const STATE: usize = 48;
const NAME: usize = 56;

impl Master {
    /// Returns the files of each part.
    pub fn parts(&self) -> impl Iterator<Item = &[FileEntry]> {
        self.files.chunk_by(|a, b| a.part == b.part)
    }

    /// Returns the hidden name of a master until it is complete. A killed writer leaves such a file; the next one
    /// replaces it.
    pub(crate) fn draft(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.new"))
    }

    /// Returns the hidden file that a killed writer left, if any. Fails if it is a folder, which must not be removed.
    pub(crate) fn check_draft(path: &Path) -> Result<Option<PathBuf>, StoreError> {
        let draft = Self::draft(path);
        match draft.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => Err(StoreError::Create {
                path: draft,
                source: std::io::Error::other(
                    "the draft of the new master cannot be written: a folder has its name; move it away",
                ),
            }),
            metadata => Ok(metadata.is_ok().then_some(draft)),
        }
    }

    /// Writes the master atomically. The returned lock keeps other programs from replacing the master and from
    /// recovering the run.
    ///
    /// # Errors
    /// Fails with [`StoreError::Exists`] if there is a file of this name, unless `overwrite`, and with another
    /// error if the file cannot be written.
    pub fn write(&self, path: &Path, overwrite: bool) -> Result<FileLock, StoreError> {
        let bytes = self.image().map_err(StoreError::hdf5("make the master file", path))?;
        let hidden = Self::draft(path);
        // Remains of a killed writer. Unlinking and `O_EXCL` make sure that no symbolic link is followed.
        let _ = std::fs::remove_file(&hidden);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let failed = StoreError::io("write", path);
        let file = rustix::fs::open(&hidden, flags, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let write = |file: std::fs::File| {
            write_file(&file, 0, &bytes).map_err(StoreError::io("write", path))?;
            rustix::fs::fsync(&file).map_err(StoreError::io("write", path))?;
            let lock = FileLock::shared(file, path)?;
            match rename(&hidden, path, overwrite) {
                Err(Errno::EXIST) => Err(StoreError::Exists { path: path.to_owned() }),
                renamed => renamed.map(|()| lock).map_err(StoreError::io("write", path)),
            }
        };
        let lock = write(file.into()).inspect_err(|_| drop(std::fs::remove_file(&hidden)))?;
        sync_directory(path)?;
        Ok(lock)
    }

    fn image(&self) -> hdf5::Result<Vec<u8>> {
        let file = File::with_options()
            .with_fapl(|p| p.libver_earliest().core_options(1 << 20, false))
            // The core driver creates no file; the name only distinguishes it from other in-memory files.
            .create_excl(format!("master-{}", uuid::Uuid::new_v4()))?;
        self.run.write(&file)?;
        number(&file, "parts", self.parts().count() as u32)?;
        number(&file, "stripes", self.stripes)?;
        let Removed { parts, rows, first, last } = self.removed;
        if parts > 0 {
            number(&file, "ring_removed_parts", parts)?;
            number(&file, "ring_removed_rows", rows)?;
            number(&file, "ring_removed_first", first)?;
            number(&file, "ring_removed_last", last)?;
        }
        let names: Vec<CString> = self.files.iter().map(|entry| c_string(&entry.file)).collect::<hdf5::Result<_>>()?;
        let rows = View { names: &names, pieces: self.row_pieces() };
        let links = self.run.links.len();
        let joined = self.run.joined();
        let shape = |link: &LinkInfo, links: usize| {
            extents(link.geometry.samples() as usize, links * usize::from(link.geometry.channels()))
        };
        if joined {
            let (link, all) = (&self.run.links[0], shape(&self.run.links[0], links));
            let rf = rows.create(&file, c"rf", &sample_type(link.geometry.packing())?, &all, (c"/rf", &all, 0))?;
            describe(&rf, &link.geometry)?;
            text(&rf, "channel_order", &channel_order(&self.run))?;
        }
        for (index, link) in self.run.links.iter().enumerate() {
            let group = file.create_group(&format!("link{index}"))?;
            link.write(&group)?;
            let own = c_string(&format!("/link{index}/rf"))?;
            let view = shape(link, 1);
            let channel = index as u64 * u64::from(link.geometry.channels());
            let (samples, all) = (sample_type(link.geometry.packing())?, shape(link, links));
            if joined && links == 1 {
                file.link_hard("/rf", "/link0/rf")?;
            } else {
                // Joined links map `/rf` of the parts directly: a view of a view would be opened twice.
                let source = if joined { (c"/rf", &all, channel) } else { (own.as_c_str(), &view, 0) };
                describe(&rows.create(&group, c"rf", &samples, &view, source)?, &link.geometry)?;
            }
            let table = c_string(&format!("/link{index}/shots"))?;
            let row =
                Datatype::from_descriptor(&RowFormat::new(link.geometry.packets(), &self.run.run_id).descriptor())?;
            let shots = rows.create(&group, c"shots", &row, &unlimited(), (&table, &unlimited(), 0))?;
            text(&shots, "description", SHOTS)?;
            if block_tables::links(&self.run).any(|link| link == index) {
                let (table, row) =
                    (c_string(&format!("/link{index}/blocks"))?, Datatype::from_descriptor(&blocks::descriptor())?);
                describe_blocks(&rows.create(&group, c"blocks", &row, &unlimited(), (&table, &unlimited(), 0))?)?;
            }
        }
        let losses = View { names: &names, pieces: self.loss_pieces() };
        let row = Datatype::from_descriptor(&rows::loss_descriptor())?;
        let losses = losses.create(&file, c"losses", &row, &unlimited(), (c"/losses", &unlimited(), 0))?;
        text(
            &losses,
            "description",
            "ranges of shots without a row, or with a row as lost, and the cause; an entry with a count of 0 is unused",
        )?;
        table(&file, "counters", &rows::counter_descriptor(), &self.counters)?;
        let width = self.files.iter().map(|entry| entry.file.len()).max().unwrap_or(0).next_multiple_of(8).max(8);
        let files: Vec<u8> = self.files.iter().flat_map(|entry| push_file(entry, width)).collect();
        let files = table(&file, "parts", &file_descriptor(width), &files)?;
        text(&files, "description", "the files of the run: names are relative to this file's folder, or absolute")?;
        image(&file)
    }

    /// Maps the rows of each file to rows of the run.
    fn row_pieces(&self) -> Vec<Piece> {
        let (mut pieces, mut row, mut index) = (Vec::new(), 0, 0);
        for files in self.parts() {
            let count = files.len();
            if files.iter().any(|entry| entry.state == State::Live) {
                let piece = |file| Piece {
                    file: index + file,
                    row: row + file as u64,
                    stride: count as u64,
                    source_row: 0,
                    rows: None,
                };
                pieces.extend((0..count).map(piece));
            } else {
                let counts: Vec<u64> = files.iter().map(|entry| entry.rows).collect();
                for stretch in stretches(&counts) {
                    for (turn, file) in (0..).zip(&stretch.files) {
                        pieces.push(Piece {
                            file: index + file,
                            row: row + stretch.first + turn,
                            stride: stretch.files.len() as u64,
                            source_row: stretch.first_in_file,
                            rows: Some(stretch.rows_per_file),
                        });
                    }
                }
                row += counts.iter().sum::<u64>();
            }
            index += count;
        }
        pieces
    }

    /// Maps the losses of each file to rows of the run's: first those of ended files, consecutively, then those of live
    /// files, interleaved.
    fn loss_pieces(&self) -> Vec<Piece> {
        let (mut pieces, mut row) = (Vec::new(), 0);
        for (file, entry) in
            self.files.iter().enumerate().filter(|(_, entry)| entry.losses > 0 && entry.state != State::Live)
        {
            pieces.push(Piece { file, row, stride: 1, source_row: 0, rows: Some(entry.losses) });
            row += entry.losses;
        }
        let live: Vec<usize> = (0..self.files.len()).filter(|file| self.files[*file].state == State::Live).collect();
        let stride = live.len() as u64;
        pieces.extend((0..).zip(live).map(|(turn, file)| Piece {
            file,
            row: row + turn,
            stride,
            source_row: 0,
            rows: None,
        }));
        pieces
    }

    /// Reads a master; `None` if the file is a recording of one file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, is not an HDF5 file, or is a master with invalid entries.
    pub fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        let plain = open_regular(path, OFlags::RDONLY).map_err(StoreError::open(path))?;
        check_signature(&plain, path)?;
        let file = open_same(&plain).map_err(StoreError::hdf5("open", path))?;
        Self::of(&file, &plain, path)
    }

    /// Like [`Self::read`], for a file that the caller has locked.
    pub(crate) fn read_claimed(claimed: &FileLock, path: &Path) -> Result<Option<Self>, StoreError> {
        let file = open_locked(claimed.file()).map_err(StoreError::hdf5("open", path))?;
        Self::of(&file, claimed.file(), path)
    }

    fn of(file: &File, plain: &std::fs::File, path: &Path) -> Result<Option<Self>, StoreError> {
        if file.attr("parts").is_err() {
            return Ok(None);
        }
        let run = RunInfo::read(file, plain, path)?;
        let bytes = |name: &str, min_bytes: usize| -> hdf5::Result<(Vec<u8>, usize)> {
            let dataset = file.dataset(name)?;
            let row = dataset.dtype()?.size();
            if row < min_bytes {
                Err(format!("expected rows of {min_bytes} bytes in /{name}, found {row}").into())
            } else {
                Ok((read_bytes(&dataset)?, row))
            }
        };
        let read = || -> hdf5::Result<_> {
            Ok((bytes("parts", NAME)?, bytes("counters", rows::COUNTER_BYTES)?.0, read_number(file, "stripes")?))
        };
        let ((files, row), counters, stripes) = read().map_err(StoreError::hdf5("read the list of parts in", path))?;
        let files: Option<Vec<FileEntry>> = files.chunks_exact(row).map(parse_file).collect();
        let files = files.ok_or_else(|| StoreError::format(path, "expected known states in /parts, found others"))?;
        if let Some(entry) = files.iter().find(|entry| entry.rows.max(entry.losses) > MAX_ROWS) {
            let found = entry.rows.max(entry.losses);
            return Err(StoreError::format(path, format!("expected at most {MAX_ROWS} rows of a file, found {found}")));
        }
        let removed = Removed {
            parts: read_number(file, "ring_removed_parts").unwrap_or(0),
            rows: read_number(file, "ring_removed_rows").unwrap_or(0),
            first: read_number(file, "ring_removed_first").unwrap_or(0),
            last: read_number(file, "ring_removed_last").unwrap_or(0),
        };
        Ok(Some(Self { run, stripes, files, removed, counters }))
    }
}

/// Resolves the name of a file in the master: in the master's folder, unless the name is absolute and exists, as HDF5
/// does. For reading only: the name is untrusted, and recovery opens no file by it.
pub(crate) fn resolve(master: &Path, name: &str) -> PathBuf {
    let folder = folder(master);
    let named = Path::new(name);
    if named.is_absolute() && !named.exists() {
        return folder.join(named.file_name().unwrap_or_default());
    }
    folder.join(named)
}

/// Checks the HDF5 signature, for a clearer message than libhdf5's.
fn check_signature(file: &std::fs::File, path: &Path) -> Result<(), StoreError> {
    let mut first = [0; SIGNATURE.len()];
    let len = file.read_at(&mut first, 0).map_err(StoreError::open(path))?;
    if first == *SIGNATURE {
        return Ok(());
    }
    let bytes: Vec<String> = first[..len].iter().map(|byte| format!("{byte:02x}")).collect();
    let found = if len == 0 { "an empty one".into() } else { format!("one that begins with {}", bytes.join(" ")) };
    Err(StoreError::format(path, format!("expected an HDF5 file, found {found}; shotline inspect reads captures, too")))
}

/// Mapping of rows of a file to rows of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// Index of the file.
    file: usize,
    /// Row of the run to which the first row is mapped.
    row: u64,
    /// Rows of the run per row of the file.
    stride: u64,
    /// First mapped row of the file.
    source_row: u64,
    /// Number of mapped rows; `None`: unlimited, including rows added later.
    rows: Option<u64>,
}

/// Creates the virtual datasets of a master.
struct View<'a> {
    names: &'a [CString],
    pieces: Vec<Piece>,
}

impl View<'_> {
    fn create(
        &self,
        at: &Group,
        name: &CStr,
        datatype: &Datatype,
        view: &SimpleExtents,
        (dataset, extents, channel): (&CStr, &SimpleExtents, u64),
    ) -> hdf5::Result<Dataset> {
        if self.pieces.is_empty() {
            let name = name.to_str().unwrap_or_default();
            return at.new_dataset_builder().empty_as(datatype).shape(view.clone()).chunk(chunk(view)).create(name);
        }
        let source_start = |piece: &Piece| {
            let mut start = vec![0; extents.ndim()];
            start[0] = piece.source_row;
            start.iter_mut().skip(2).for_each(|first| *first = channel);
            start
        };
        let starts: Vec<Vec<u64>> = self.pieces.iter().map(source_start).collect();
        let mut mappings = Vec::new();
        for (piece, source_start) in self.pieces.iter().zip(&starts) {
            let Piece { file, row, stride, rows, .. } = *piece;
            mappings.push(Mapping { file: &self.names[file], dataset, extents, source_start, row, stride, rows });
        }
        let fixed =
            |piece: &Piece| piece.rows.filter(|rows| *rows > 0).map(|rows| piece.row + (rows - 1) * piece.stride + 1);
        let rows = self.pieces.iter().filter_map(fixed).max().unwrap_or(0);
        let mut dimensions = view.to_vec();
        dimensions[0] = Extent::new(rows as usize, None);
        create_virtual(at, name, datatype, &SimpleExtents::from_vec(dimensions), &mappings)
    }
}

fn unlimited() -> SimpleExtents {
    SimpleExtents::from_vec(vec![Extent::new(0, None)])
}

/// Returns the chunk shape of a dataset that stays empty.
fn chunk(view: &SimpleExtents) -> Vec<usize> {
    view.iter().map(|extent| extent.dim.max(1)).collect()
}

fn c_string(text: &str) -> hdf5::Result<CString> {
    CString::new(text).map_err(|_| format!("expected a name without a zero byte, found {text:?}").into())
}

/// Creates a table with all its rows.
fn table(at: &Group, name: &str, row: &TypeDescriptor, bytes: &[u8]) -> hdf5::Result<Dataset> {
    let rows = bytes.len() / row.size();
    let datatype = Datatype::from_descriptor(row)?;
    let table = at.new_dataset_builder().empty_as(&datatype).shape(rows).create(name)?;
    if rows > 0 {
        write_bytes(&table, bytes)?;
    }
    Ok(table)
}

fn push_file(entry: &FileEntry, width: usize) -> Vec<u8> {
    let mut row = vec![0; NAME + width];
    row[PART..][..4].copy_from_slice(&entry.part.to_le_bytes());
    row[STRIPE..][..4].copy_from_slice(&entry.stripe.to_le_bytes());
    let numbers =
        [(ROWS, entry.rows), (LOSSES, entry.losses), (FIRST, entry.first), (LAST, entry.last), (BYTES, entry.bytes)];
    for (at, value) in numbers {
        row[at..][..8].copy_from_slice(&value.to_le_bytes());
    }
    row[STATE] = entry.state as u8;
    row[NAME..][..entry.file.len()].copy_from_slice(entry.file.as_bytes());
    row
}

fn parse_file(row: &[u8]) -> Option<FileEntry> {
    let u32_at = |at: usize| row.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let u64_at = |at: usize| row.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let name = row.get(NAME..)?;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(FileEntry {
        part: u32_at(PART)?,
        stripe: u32_at(STRIPE)?,
        state: *State::ALL.get(usize::from(*row.get(STATE)?))?,
        rows: u64_at(ROWS)?,
        losses: u64_at(LOSSES)?,
        first: u64_at(FIRST)?,
        last: u64_at(LAST)?,
        bytes: u64_at(BYTES)?,
        file: String::from_utf8_lossy(&name[..len]).into_owned(),
    })
}

fn file_descriptor(width: usize) -> TypeDescriptor {
    let u32 = || TypeDescriptor::Unsigned(IntSize::U4);
    let u64 = || TypeDescriptor::Unsigned(IntSize::U8);
    let states =
        State::ALL.iter().map(|state| EnumMember { name: state.name().into(), value: *state as u64 }).collect();
    let state = TypeDescriptor::Enum(EnumType { size: IntSize::U1, signed: false, members: states });
    let fields = [
        ("part", u32(), PART),
        ("stripe", u32(), STRIPE),
        ("rows", u64(), ROWS),
        ("losses", u64(), LOSSES),
        ("first", u64(), FIRST),
        ("last", u64(), LAST),
        ("bytes", u64(), BYTES),
        ("state", state, STATE),
        ("file", TypeDescriptor::FixedUnicode(width), NAME),
    ];
    let field = |(index, (name, ty, offset)): (usize, (&str, TypeDescriptor, usize))| CompoundField {
        name: name.into(),
        ty,
        offset,
        index,
    };
    let fields = fields.into_iter().enumerate().map(field).collect();
    TypeDescriptor::Compound(CompoundType { fields, size: NAME + width })
}
