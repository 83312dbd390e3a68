//! The structure of a recording: where everything is, before the first shot.
//!
//! ```text
//! 0 ┌──────────┐ what libhdf5 wrote: names, types, attributes
//!   ├──────────┤ data_start, a multiple of 4096
//!   │ row 0    │ link 0's slot, link 1's slot, …
//!   │ row 1    │
//!   │ …        │
//!   ├──────────┤ the tail: chunk indexes and tables
//!   └──────────┘
//! ```
//!
//! A slot's place is a plain function of row and link. The tail comes last so that a run which ends early
//! can shed the slots that it did not need: a tail for the rows that came is written behind their data, the
//! datasets are pointed to it, and the file is cut behind it.

mod header;
mod skeleton;
mod tail;
mod tree;

use crate::StoreError;
use crate::info::RunInfo;
use crate::rows::{BOOK_BYTES, LOSS_BYTES, RowFormat};
use crate::sys::hdf5::header_address;
use header::{HeaderError, Place, ReadAt, Superblock};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use shotline_wire::shot::Packing;
use skeleton::TableShape;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tail::Counts;
pub(crate) use tail::{Contents, finish, write_all};

/// Direct I/O's unit here: the file's slots begin at multiples of it.
pub const ALIGN: u64 = 4096;
/// Rows in a chunk of a table, at most. A power of two.
const CHUNK_ROWS: u64 = 1024;
/// Loss entries that are visible during the run, at least and at most; the rest is written when it ends.
const LOSS_ROWS: (u64, u64) = (256, 1 << 18);
/// Data of more bytes is refused: no disk holds it, and sums of addresses must not overflow.
const MAX_BYTES: u64 = 1 << 60;
/// Book entries that need no move of the tail.
const BOOK_ROWS: u64 = 256;

/// A chunked dataset that is laid out from outside: where its marker and its index's address stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Offset of the current first dimension.
    pub extent_at: u64,
    /// Offset of the index's address.
    pub tree_at: u64,
}

/// A dataset of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its marks.
    pub marks: Marks,
    /// The links whose slots are its chunks.
    pub links: Range<usize>,
}

/// A table: its rows stand one behind the other from `start`, because its chunks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its marks.
    pub marks: Marks,
    /// Bytes of a row.
    pub row_bytes: u32,
    /// Rows of a chunk, a power of two.
    pub chunk_rows: u32,
    /// Where its first row is.
    pub start: u64,
    /// Rows that it has room for.
    pub capacity: u64,
}

impl Table {
    /// Where a row is.
    pub fn at(&self, row: u64) -> u64 {
        self.start + row * u64::from(self.row_bytes)
    }
    fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_rows) * u64::from(self.row_bytes)
    }
}

/// Where everything of a recording is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows that there is room for.
    pub rows: u64,
    /// Where row 0's first slot is.
    pub data_start: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u64,
    /// Each link's first byte in a row, and its slot's bytes.
    pub slots: Vec<(u64, u32)>,
    /// The datasets of samples.
    pub data: Vec<Data>,
    /// The links' shots tables.
    pub shots: Vec<Table>,
    /// How their rows are read.
    pub formats: Vec<RowFormat>,
    /// `/losses`.
    pub losses: Table,
    /// `/books`.
    pub books: Table,
    /// Half the fan-out of chunk indexes.
    pub chunk_k: u16,
    /// Where the superblock has the end of the file.
    pub end_at: u64,
    /// The end of the file.
    pub end: u64,
    channels: Vec<u64>,
}

impl Layout {
    /// Where the slot of a link's shot is.
    pub fn slot(&self, row: u64, link: usize) -> u64 {
        self.data_start + row * self.row_bytes + self.slots[link].0
    }
    /// Where the data of `rows` rows ends.
    pub fn data_end(&self, rows: u64) -> u64 {
        self.data_start + rows * self.row_bytes
    }
}

/// How a recording is created.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Rows to make room for.
    pub rows: u64,
    /// Replace a file that is there.
    pub overwrite: bool,
}

/// A recording's file, open for writing, and where everything in it is.
#[derive(Debug)]
pub struct Opened {
    /// The file, without direct I/O. A shared lock on it lets readers in and keeps writers out.
    pub file: File,
    /// Its name.
    pub path: PathBuf,
    /// Where everything is.
    pub layout: Layout,
    /// What could not be had, and what that means.
    pub warnings: Vec<String>,
}

/// Makes a recording with room for `options.rows` rows and none visible. After this the file is valid, has
/// its full size, and no space is to be found any more.
pub fn create(path: &Path, run: &RunInfo, options: CreateOptions) -> Result<Opened, StoreError> {
    run.check()?;
    if options.rows == 0 {
        return Err(StoreError::Run("expected room for 1 row or more, found 0".into()));
    }
    let file = create_locked(path, options.overwrite)?;
    let created = lay_out(file, path, run, options.rows);
    // A file of ours that could not be finished is of no use to anyone.
    if created.is_err() {
        let _ = std::fs::remove_file(path);
    }
    created
}

/// Refuses a path that cannot become a recording: for whoever wants to know before there are shots.
pub fn check_target(path: &Path, overwrite: bool) -> Result<(), StoreError> {
    let failed = |source| StoreError::Create { path: path.to_owned(), source };
    match path.symlink_metadata() {
        Ok(there) if !there.is_file() => {
            Err(failed(std::io::Error::other("something is there that is no regular file, and stays")))
        }
        Ok(_) if !overwrite => Err(StoreError::Exists { path: path.to_owned() }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
        Err(error) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if folder.is_dir() { Ok(()) } else { Err(failed(error)) }
        }
    }
}

/// Refuses or removes what is there, and makes an empty file.
fn create_locked(path: &Path, overwrite: bool) -> Result<File, StoreError> {
    check_target(path, overwrite)?;
    let failed = |source| StoreError::Create { path: path.to_owned(), source };
    if overwrite && path.symlink_metadata().is_ok() {
        let old = File::open(path).map_err(failed)?;
        if rustix::fs::flock(&old, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(StoreError::InUse { path: path.to_owned() });
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    match File::options().read(true).write(true).create_new(true).open(path) {
        Ok(file) => locked(file, path),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(failed(error)),
    }
}

fn lay_out(file: File, path: &Path, run: &RunInfo, rows: u64) -> Result<Opened, StoreError> {
    let chunk_rows = rows.min(CHUNK_ROWS).next_power_of_two() as u32;
    let formats: Vec<_> = run.links.iter().map(|link| RowFormat::new(link.geometry.packets())).collect();
    let mut shapes: Vec<TableShape> =
        formats.iter().map(|format| TableShape { row_bytes: format.bytes() as u32, chunk_rows }).collect();
    shapes.push(TableShape { row_bytes: LOSS_BYTES as u32, chunk_rows: 256 });
    shapes.push(TableShape { row_bytes: BOOK_BYTES as u32, chunk_rows: 64 });
    // Flat trees: three levels for 16 million chunks, with nodes of 12 kB.
    let chunk_k = rows.saturating_mul(run.links.len() as u64).div_ceil(2).clamp(32, 128) as u16;
    let (image, headers) = skeleton::create(run, &shapes, chunk_k).map_err(StoreError::hdf5("lay out", path))?;
    let (data, tables) = read_marks(&image[..], &headers.data, &headers.tables, run, &formats, path)?;
    let superblock = Superblock::read(&image[..]).map_err(|e| StoreError::format(path, e.to_string()))?;
    let mut layout = assemble(run, superblock, data, tables, formats);
    if rows.checked_mul(layout.row_bytes).is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err(StoreError::Run(format!(
            "{rows} rows of {} bytes are more than a file can hold",
            layout.row_bytes
        )));
    }
    layout.rows = rows;
    layout.data_start = (image.len() as u64).next_multiple_of(ALIGN);
    let losses = (rows * run.links.len() as u64).clamp(LOSS_ROWS.0, LOSS_ROWS.1);
    let counts = Counts { rows, losses, books: BOOK_ROWS };
    let tail_start = layout.data_end(rows);
    let end = tail::place(&mut layout, tail_start, counts);

    let mut warnings = Vec::new();
    allocate(&file, path, rows, end, &mut warnings)?;
    let roots =
        tail::write(&file, &layout, tail_start, rows).map_err(StoreError::io("write the chunk indexes of", path))?;
    let written = write_all(&file, 0, &image).and_then(|()| tail::point(&file, &layout, &roots));
    written.map_err(StoreError::io("write the metadata of", path))?;
    rustix::fs::fsync(&file).map_err(StoreError::io("flush", path))?;
    sync_directory(path)?;
    Ok(Opened { file, path: path.to_owned(), layout, warnings })
}

/// Opens a recording that exists, to shed what a broken-off run left or to look where things are.
pub fn open(path: &Path) -> Result<(RunInfo, Opened), StoreError> {
    let file = open_locked(path)?;
    let (run, layout) = locate(path, &file)?;
    Ok((run, Opened { file, path: path.to_owned(), layout, warnings: Vec::new() }))
}

/// Reads from a recording where everything in it is.
pub fn locate(path: &Path, file: &File) -> Result<(RunInfo, Layout), StoreError> {
    let (run, formats, headers) = {
        let hdf5 = hdf5::File::open(path).map_err(StoreError::hdf5("open", path))?;
        let run = RunInfo::read(&hdf5, path)?;
        let address = |name: &str| {
            hdf5.dataset(name)
                .and_then(|dataset| header_address(&dataset))
                .map_err(StoreError::hdf5("find a dataset in", path))
        };
        let mut formats = Vec::new();
        for (index, link) in run.links.iter().enumerate() {
            let row = hdf5.dataset(&format!("link{index}/shots")).and_then(|table| table.dtype()?.to_descriptor());
            let row = row.map_err(StoreError::hdf5("find a table in", path))?;
            let found = || {
                format!(
                    "expected rows as this version writes them in link{index}/shots, found {row}: read it with the version that wrote it"
                )
            };
            formats
                .push(RowFormat::of(link.geometry.packets(), &row).ok_or_else(|| StoreError::format(path, found()))?);
        }
        let links = 0..run.links.len();
        let data = if run.joined() {
            vec![address("rf")?]
        } else {
            links.clone().map(|l| address(&format!("link{l}/rf"))).collect::<Result<_, _>>()?
        };
        let mut tables = links.map(|l| address(&format!("link{l}/shots"))).collect::<Result<Vec<_>, _>>()?;
        tables.extend([address("losses")?, address("books")?]);
        (run, formats, (data, tables))
    };
    let broken = |error: HeaderError| StoreError::format(path, error.to_string());
    let (data, tables) = read_marks(file, &headers.0, &headers.1, &run, &formats, path)?;
    let superblock = Superblock::read(file).map_err(broken)?;
    let mut layout = assemble(&run, superblock, data, tables, formats);
    tail::find(file, &mut layout).map_err(broken)?;
    Ok((run, layout))
}

/// The marker and capacity of a dataset or table, read afresh.
pub fn visible(file: &File, marks: Marks, path: &Path) -> Result<u64, StoreError> {
    let bytes = header::bytes(file, marks.extent_at, 8).map_err(|e| StoreError::format(path, e.to_string()))?;
    Ok(header::u64_at(&bytes, 0))
}

fn read_marks(
    file: &(impl ReadAt + ?Sized),
    data: &[u64],
    tables: &[u64],
    run: &RunInfo,
    formats: &[RowFormat],
    path: &Path,
) -> Result<(Vec<Place>, Vec<Place>), StoreError> {
    let read = |address: &u64| Place::read(file, *address).map_err(|e| StoreError::format(path, e.to_string()));
    let data: Vec<Place> = data.iter().map(read).collect::<Result<_, _>>()?;
    let tables: Vec<Place> = tables.iter().map(read).collect::<Result<_, _>>()?;
    for (index, place) in data.iter().enumerate() {
        let g = run.links[index].geometry;
        let element = if g.packing() == Packing::Uint8 { 1 } else { 2 };
        let expected = [1, g.samples(), u32::from(g.channels()), element];
        if place.chunk != expected {
            return Err(StoreError::format(
                path,
                format!("expected sample chunks of {expected:?}, found {:?}", place.chunk),
            ));
        }
    }
    for (index, place) in tables.iter().enumerate() {
        let expected = match index.checked_sub(run.links.len()) {
            None => formats[index].bytes(),
            Some(0) => LOSS_BYTES,
            Some(_) => BOOK_BYTES,
        } as u32;
        if place.chunk.len() != 2 || place.chunk[1] != expected || !place.chunk[0].is_power_of_two() {
            return Err(StoreError::format(
                path,
                format!("expected table rows of {expected} bytes, found chunks of {:?}", place.chunk),
            ));
        }
    }
    Ok((data, tables))
}

fn assemble(
    run: &RunInfo,
    superblock: Superblock,
    data: Vec<Place>,
    tables: Vec<Place>,
    formats: Vec<RowFormat>,
) -> Layout {
    let marks = |place: &Place| Marks { extent_at: place.extent_at, tree_at: place.tree_at };
    let mut row_bytes = 0;
    let mut slots = Vec::new();
    for link in &run.links {
        slots.push((row_bytes, link.geometry.slot_bytes()));
        row_bytes += u64::from(link.geometry.slot_bytes());
    }
    let links = run.links.len();
    let data = data.iter().enumerate();
    let data =
        data.map(|(i, place)| Data { marks: marks(place), links: if run.joined() { 0..links } else { i..i + 1 } });
    let mut tables: Vec<Table> = (tables.iter())
        .map(|place| Table {
            marks: marks(place),
            row_bytes: place.chunk[1],
            chunk_rows: place.chunk[0],
            start: 0,
            capacity: 0,
        })
        .collect();
    let (losses, books) = (tables[links], tables[links + 1]);
    tables.truncate(links);
    Layout {
        rows: 0,
        data_start: 0,
        row_bytes,
        slots,
        data: data.collect(),
        shots: tables,
        formats,
        losses,
        books,
        chunk_k: superblock.chunk_k,
        end_at: superblock.end_at,
        end: superblock.end,
        channels: run.links.iter().map(|link| u64::from(link.geometry.channels())).collect(),
    }
}

fn open_locked(path: &Path) -> Result<File, StoreError> {
    let open = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    locked(open.map_err(StoreError::io("open", path))?.into(), path)
}

/// Readers of HDF5 take a shared lock, writers an exclusive one: ours is shared, so that readers may come.
fn locked(file: File, path: &Path) -> Result<File, StoreError> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Err(StoreError::InUse { path: path.to_owned() }),
        // A file system without locks: then nobody else is kept out either.
        _ => Ok(file),
    }
}

fn allocate(file: &File, path: &Path, rows: u64, end: u64, warnings: &mut Vec<String>) -> Result<(), StoreError> {
    let free = || rustix::fs::fstatvfs(file).map_or(0, |s| s.f_bavail * s.f_frsize);
    let no_space = |free| StoreError::NoSpace { path: path.to_owned(), rows, needed: end, free };
    let before = free();
    if before < end {
        return Err(no_space(before));
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, end) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let _ = rustix::fs::ftruncate(file, 0);
            Err(no_space(free()))
        }
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            warnings.push(format!(
                "the file system of {} cannot allocate space ahead: it may run full during the run, and writes are slower",
                path.display()
            ));
            rustix::fs::ftruncate(file, end).map_err(StoreError::io("extend", path))
        }
        Err(source) => Err(StoreError::Io { what: "allocate", path: path.to_owned(), source }),
    }
}

/// Makes the name as durable as the file.
fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = File::open(parent).map_err(|e| os(e, "open the directory of", path))?;
    rustix::fs::fsync(&directory).map_err(StoreError::io("flush the directory of", path))
}

fn os(error: std::io::Error, what: &'static str, path: &Path) -> StoreError {
    let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    StoreError::Io { what, path: path.to_owned(), source }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Said aloud, because a child process that is just being started may hold the descriptor a little longer.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Opened {
    /// Rows that readers see in every dataset of samples.
    pub fn visible_rows(&self) -> Result<u64, StoreError> {
        visible_rows(&self.file, &self.layout, &self.path)
    }
    /// The visible rows of a table, as bytes.
    pub fn table_bytes(&self, table: Table) -> Result<Vec<u8>, StoreError> {
        table_bytes(&self.file, table, &self.path)
    }
}

/// Rows that readers see in every dataset of samples.
pub fn visible_rows(file: &File, layout: &Layout, path: &Path) -> Result<u64, StoreError> {
    let mut rows = layout.rows;
    for data in &layout.data {
        rows = rows.min(visible(file, data.marks, path)?);
    }
    Ok(rows)
}

/// The visible rows of a table, as bytes.
pub fn table_bytes(file: &File, table: Table, path: &Path) -> Result<Vec<u8>, StoreError> {
    let rows = visible(file, table.marks, path)?;
    if rows > table.capacity {
        return Err(StoreError::format(path, format!("expected at most {} table rows, found {rows}", table.capacity)));
    }
    header::bytes(file, table.start, rows as usize * table.row_bytes as usize)
        .map_err(|error| StoreError::format(path, error.to_string()))
}
