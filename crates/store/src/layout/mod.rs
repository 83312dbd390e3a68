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
//!
//! A compressed run has room for as many bytes and one row of zeros in front, but its shots stand one behind the other
//! as they were finished ([`StoredChunk`]).

mod birth;
mod chunks;
mod datasets;
pub(crate) mod described;
mod locate;
pub(crate) mod skeleton;
mod steady;
mod structure;
mod tail;

use crate::info::{LinkInfo, RunInfo};
use crate::medium::Medium;
use crate::metadata::header::{self, Place, Superblock};
use crate::nvme::{self, Target};
use crate::positioned::ReadAt;
use crate::rows::{BOOK_BYTES, LOSS_BYTES, RowFormat};
use crate::{StoreError, lock};
use birth::{Birth, Size};
pub use birth::{CreateOptions, check_target, folder};
pub(crate) use birth::{
    bequeath, check_unused, disinherit, hidden, inheritance, is_in_memory, put_in_place, rename, sync_directory,
};
pub use chunks::StoredChunk;
pub use datasets::{Data, Marks, Table};
pub use described::Described;
pub use locate::locate;
pub(crate) use locate::locate_in;
use locate::{assemble, locate_locked, read_marks};
use rustix::fs::OFlags;
use rustix::io::Errno;
use skeleton::TableShape;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
pub(crate) use steady::steadily;
use structure::MAX_BYTES;
pub use structure::{ALIGN, Layout};
use tail::Counts;
pub(crate) use tail::{Contents, cut, finish};

/// What a drive writes whole or not at all.
const SECTOR: u64 = 512;
/// Words of padding that are tried to keep fields within sectors.
const MOST_PADDING: usize = 64;
/// Rows in a chunk of a table, at most. A power of two.
const CHUNK_ROWS: u64 = 1024;
/// Loss entries that are visible during the run, at least and at most; the rest is written when it ends.
const LOSS_ROWS: (u64, u64) = (256, 1 << 18);
/// Book entries that need no move of the tail.
const BOOK_ROWS: u64 = 256;

/// A recording's file, open for writing, and where everything in it is.
#[derive(Debug)]
pub struct Opened {
    /// The file, without direct I/O, or a device's extent. A shared lock on it lets readers in and keeps writers out.
    pub file: Medium,
    /// Its name.
    pub path: PathBuf,
    /// Where everything is.
    pub layout: Layout,
    /// What could not be had, and what that means.
    pub warnings: Vec<String>,
}

/// Makes a recording with room for `options.rows` rows and none visible. After this the file is valid, has
/// its full size, and no space is to be found any more.
///
/// It gets its name when it is valid and on the disk: whoever looks, also after a power cut, finds nothing, the old
/// file, or the new one.
pub fn create(path: &Path, run: &RunInfo, options: CreateOptions<'_>) -> Result<Opened, StoreError> {
    let (opened, birth) = begin(path, run, options)?;
    birth.end(path, options.overwrite)?;
    Ok(opened)
}

/// The same up to the name, which [`Birth::end`] gives: until then nothing has happened to what is there.
pub(crate) fn begin(path: &Path, run: &RunInfo, options: CreateOptions<'_>) -> Result<(Opened, Birth), StoreError> {
    run.check()?;
    if options.rows == 0 {
        return Err(StoreError::Run("expected room for 1 row or more, found 0".into()));
    }
    let mut birth = Birth::begin(path, options)?;
    let opened = lay_out(&mut birth, path, run, options.rows)?;
    Ok((opened, birth))
}

fn lay_out(birth: &mut Birth, path: &Path, run: &RunInfo, rows: u64) -> Result<Opened, StoreError> {
    let chunk_rows = rows.min(CHUNK_ROWS).next_power_of_two() as u32;
    let format = |link: &LinkInfo| RowFormat::new(link.geometry.packets(), &run.run_id);
    let formats: Vec<_> = run.links.iter().map(format).collect();
    let mut shapes: Vec<TableShape> =
        formats.iter().map(|format| TableShape { row_bytes: format.bytes() as u32, chunk_rows }).collect();
    shapes.push(TableShape { row_bytes: LOSS_BYTES as u32, chunk_rows: 256 });
    shapes.push(TableShape { row_bytes: BOOK_BYTES as u32, chunk_rows: 64 });
    // Flat trees: three levels for 16 million chunks, with nodes of 12 kB.
    let chunk_k = rows.saturating_mul(run.links.len() as u64).div_ceil(2).clamp(32, 128) as u16;
    let recycled = birth.recycled();
    let made = |padding, data_start| {
        let shape = skeleton::Shape { tables: &shapes, chunk_k, recycled, data_start, padding };
        let (image, headers) = skeleton::create(run, &shape).map_err(StoreError::hdf5("lay out", path))?;
        let (data, tables) = read_marks(&image[..], &headers.data, &headers.tables, run, &formats, path)?;
        Ok(Image { bytes: image, data, tables, clocks: headers.clocks })
    };
    let Image { bytes: image, data, tables, clocks } = untearable(made)?;
    let superblock = Superblock::read(&image[..]).map_err(|e| StoreError::format(path, e.to_string()))?;
    let mut layout = assemble(run, superblock, data, tables, formats);
    if rows.checked_mul(layout.row_bytes).is_none_or(|bytes| bytes > MAX_BYTES) {
        return Err(StoreError::Run(format!(
            "{rows} rows of {} bytes are more than a file can hold",
            layout.row_bytes
        )));
    }
    (layout.rows, layout.common_rows) = (rows, rows);
    layout.recycled = recycled;
    layout.clocks = clocks;
    layout.data_start = data_start(&image);
    let losses = (rows * run.links.len() as u64).clamp(LOSS_ROWS.0, LOSS_ROWS.1);
    let counts = Counts { rows, losses, books: BOOK_ROWS };
    let tail_start = layout.data_end(rows);
    let end = tail::place(&mut layout, tail_start, counts);

    let mut warnings = Vec::new();
    let size = Size { rows, head: layout.data_start, tail: end - tail_start, end };
    let medium = birth.allocate(path, run, size, &mut warnings)?;
    let file = &medium;
    if layout.codec.is_some() {
        // Not left to the file system: space that is used again may hold anything.
        file.write_all(layout.data_start, &vec![0; layout.row_bytes as usize])
            .map_err(StoreError::io("write zeros to", path))?;
    }
    if recycled {
        tail::clear_tables(file, &layout).map_err(StoreError::io("write zeros to", path))?;
    }
    layout.roots = tail::write(file, &layout, None, tail_start, rows)
        .map_err(StoreError::io("write the chunk indexes of", path))?;
    let written = file
        .write_all(0, &image)
        .and_then(|()| tail::point(file, &layout))
        .and_then(|()| file.write_all(layout.end_at, &layout.end.to_le_bytes()));
    written.map_err(StoreError::io("write the metadata of", path))?;
    Ok(Opened { file: medium, path: birth.path(path), layout, warnings })
}

/// A file's first bytes, and where the datasets of samples and the tables have their fields.
struct Image {
    bytes: Vec<u8>,
    data: Vec<Place>,
    tables: Vec<Place>,
    clocks: Vec<u64>,
}

/// Makes an image in which every field that is patched lies within one sector, so that no power cut tears it. libhdf5
/// puts the address of a chunk index at an odd offset; padding among the attributes moves it.
fn untearable(made: impl Fn(usize, u64) -> Result<Image, StoreError>) -> Result<Image, StoreError> {
    let tears = |at: u64| at % SECTOR > SECTOR - 8;
    let mut padding = 0;
    loop {
        let image = made(padding, 0)?;
        let torn = image.data.iter().chain(&image.tables).any(|place| tears(place.extent_at) || tears(place.tree_at));
        if !torn || padding == MOST_PADDING {
            // The same again, with the one number that only its own length tells.
            return made(padding, data_start(&image.bytes));
        }
        padding += 1;
    }
}

/// Where the first slot is behind these first bytes.
fn data_start(image: &[u8]) -> u64 {
    (image.len() as u64).next_multiple_of(ALIGN)
}

/// Opens and claims a recording that exists, to shed what a broken-off run left or to look where things are. Refused while
/// a program is at it.
pub fn open(path: &Path) -> Result<(RunInfo, Opened), StoreError> {
    let medium = match Target::of(path) {
        Some(target) => Medium::Extent(nvme::open(&target, nvme::Access::Write)?),
        None => Medium::File(lock::open_claimed(path, OFlags::RDWR)?),
    };
    opened(medium, path)
}

/// The same of a file that is open for reading and writing.
pub(crate) fn open_file(file: File, path: &Path) -> Result<(RunInfo, Opened), StoreError> {
    lock::claim(&file, path)?;
    opened(file.into(), path)
}

fn opened(file: Medium, path: &Path) -> Result<(RunInfo, Opened), StoreError> {
    match locate_locked(path, &file) {
        Ok((run, layout)) => Ok((run, Opened { file, path: path.to_owned(), layout, warnings: Vec::new() })),
        Err(error) => {
            lock::release(file.handle());
            Err(error)
        }
    }
}

/// Walks every chunk index of a recording that was located: each chunk must be where the layout has it, so that HDF5
/// readers read the same bytes as raw ones.
pub fn check(path: &Path, file: &(impl ReadAt + ?Sized), layout: &Layout) -> Result<(), StoreError> {
    tail::check(file, layout).map_err(|error| StoreError::format(path, error.to_string()))
}

/// Where the bytes of a shot are.
pub fn stored(
    file: &(impl ReadAt + ?Sized),
    layout: &Layout,
    row: u64,
    link: usize,
    path: &Path,
) -> Result<StoredChunk, StoreError> {
    if layout.codec.is_some() {
        return chunks::read(file, layout, row, link).map_err(|error| StoreError::format(path, error.to_string()));
    }
    Ok(StoredChunk { at: layout.slot(row, link), bytes: layout.slots[link].1, compressed: false })
}

/// Enters where the shots of a compressed run's rows are, from row `first` on: those of all links, row by row. Readers
/// look there once the rows are visible.
pub(crate) fn enter_chunks(file: &Medium, layout: &Layout, first: u64, stored: &[StoredChunk]) -> Result<(), Errno> {
    chunks::write(file, layout, first, stored)
}

/// Enters that a shot of a compressed run is lost.
pub(crate) fn clear_chunk(file: &Medium, layout: &Layout, row: u64, link: usize) -> Result<(), Errno> {
    chunks::clear(file, layout, row, link)
}

/// Where the data of the first rows of a compressed run ends: without any, behind the zeros of lost shots.
pub(crate) fn end_of_chunks(file: &Medium, layout: &Layout, rows: u64, path: &Path) -> Result<u64, StoreError> {
    let mut end = layout.data_end(0);
    for (row, link) in (0..rows).flat_map(|row| (0..layout.slots.len()).map(move |link| (row, link))) {
        end = end.max(stored(file, layout, row, link, path)?.end());
    }
    Ok(end)
}

/// The marker and capacity of a dataset or table, read afresh.
pub fn visible(file: &(impl ReadAt + ?Sized), marks: Marks, path: &Path) -> Result<u64, StoreError> {
    let bytes = header::bytes(file, marks.extent_at, 8).map_err(|e| StoreError::format(path, e.to_string()))?;
    Ok(header::u64_at(&bytes, 0))
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock::release(self.file.handle());
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
pub fn visible_rows(file: &(impl ReadAt + ?Sized), layout: &Layout, path: &Path) -> Result<u64, StoreError> {
    let mut rows = layout.rows;
    for data in &layout.data {
        rows = rows.min(visible(file, data.marks, path)?);
    }
    Ok(rows)
}

/// Fills `to` from an offset; returns how many bytes there were.
pub(crate) fn read_at(file: &Medium, at: u64, to: &mut [u8]) -> usize {
    file.read_at(at, to)
}

/// Some rows of a table, as bytes, visible or not.
pub fn table_rows(
    file: &(impl ReadAt + ?Sized),
    table: Table,
    rows: Range<u64>,
    path: &Path,
) -> Result<Vec<u8>, StoreError> {
    if rows.end > table.capacity || rows.start > rows.end {
        return Err(StoreError::format(
            path,
            format!("expected at most {} table rows, found {}", table.capacity, rows.end),
        ));
    }
    let len = (rows.end - rows.start).saturating_mul(u64::from(table.row_bytes)) as usize;
    header::bytes(file, table.at(rows.start), len).map_err(|error| StoreError::format(path, error.to_string()))
}

/// The visible rows of a table, as bytes.
pub fn table_bytes(file: &(impl ReadAt + ?Sized), table: Table, path: &Path) -> Result<Vec<u8>, StoreError> {
    let rows = visible(file, table.marks, path)?;
    table_rows(file, table, 0..rows, path)
}
