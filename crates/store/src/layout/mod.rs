//! On-disk layout of a recording, fixed before the first shot.
//!
//! ```text
//! 0 ┌──────────┐ written by libhdf5: names, types, attributes
//!   ├──────────┤ data_start, a multiple of 4096
//!   │ row 0    │ link 0's slot, link 1's slot, …
//!   │ row 1    │
//!   │ …        │
//!   ├──────────┤ the tail: chunk indexes and tables
//!   └──────────┘
//! ```
//!
//! The offset of a slot is a function of row and link. The tail comes last so that a run that ends early can release
//! its unused slots: a new tail is written directly after the data, the datasets are pointed to it, and the file is
//! truncated after it.
//!
//! A compressed run allocates the same space and one row of zeros before it, but its chunks are packed in the order in
//! which they were compressed ([`StoredChunk`]).

pub(crate) mod block_tables;
mod chunks;
mod consistent_read;
mod datasets;
mod locate;
mod pending;
pub(crate) mod skeleton;
mod structure;
mod tail;

use crate::info::{LinkInfo, RunInfo};
use crate::medium::Medium;
use crate::metadata::header::{self, DatasetHeader, Superblock};
use crate::nvme::{self, Target};
use crate::positioned::ReadAt;
use crate::rows::{COUNTER_BYTES, LOSS_BYTES, RowFormat};
use crate::{StoreError, lock};
pub use block_tables::BlockTable;
pub use chunks::StoredChunk;
pub(crate) use consistent_read::read_consistently;
pub use datasets::{Data, HeaderOffsets, Table};
pub use locate::locate;
pub(crate) use locate::locate_in;
use locate::{assemble, locate_locked, read_headers};
pub use pending::{CreateOptions, check_target, folder};
use pending::{PendingRecording, Size};
pub(crate) use pending::{
    check_unused, discard_reusable, hidden, is_in_memory, put_in_place, rename, reserve_for_reuse, reusable_bytes,
    sync_directory,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use skeleton::TableShape;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use structure::MAX_BYTES;
pub use structure::{ALIGN, Layout};
use tail::RowCounts;
pub(crate) use tail::{Contents, finish, truncate};

/// Unit that a drive writes atomically, in bytes.
const SECTOR: u64 = 512;
/// Maximum number of padding words to try when moving fields into sectors.
const MAX_PADDING_WORDS: usize = 64;
/// Maximum number of rows in a chunk of a table, a power of two.
const CHUNK_ROWS: u64 = 1024;
/// Minimum and maximum number of loss entries that can be visible during the run; the rest is written when it ends.
const LOSS_ROWS: (u64, u64) = (256, 1 << 18);
/// Counter entries (`/counters`) that fit without moving the tail.
const COUNTER_ROWS: u64 = 256;

/// A recording that is open for writing, and its layout.
#[derive(Debug)]
pub struct Opened {
    /// The file, without direct I/O, or a device's extent. It has a shared lock, which allows readers and excludes
    /// writers.
    pub file: Medium,
    /// Path of the recording.
    pub path: PathBuf,
    /// Offsets of all datasets.
    pub layout: Layout,
    /// Features that are not available, with the consequence of each.
    pub warnings: Vec<String>,
}

/// Creates a recording with space for `options.rows` rows, none of them visible. The file is then a valid HDF5 file of
/// its full size, with all blocks allocated.
///
/// The file is renamed to `path` once it is valid and durable, so after a power cut there is no file, the old one, or
/// the complete new one.
///
/// # Errors
/// Fails with [`StoreError::Exists`] if the path exists, unless `options.overwrite`; with [`StoreError::InUse`] if
/// another program reads or writes that file; with [`StoreError::NoSpace`] or [`StoreError::DeviceFull`] if there is
/// too little free space; with [`StoreError::Run`] if the run cannot be recorded.
pub fn create(path: &Path, run: &RunInfo, options: CreateOptions<'_>) -> Result<Opened, StoreError> {
    let (opened, pending) = begin(path, run, options)?;
    pending.end(path, options.overwrite)?;
    Ok(opened)
}

/// Like [`create`], without the rename, which [`PendingRecording::end`] does. Until then an existing file is unchanged.
pub(crate) fn begin(
    path: &Path,
    run: &RunInfo,
    options: CreateOptions<'_>,
) -> Result<(Opened, PendingRecording), StoreError> {
    run.check()?;
    if options.rows == 0 {
        return Err(StoreError::Run("expected space for 1 row or more, found 0".into()));
    }
    let mut pending = PendingRecording::begin(path, options)?;
    let opened = lay_out(&mut pending, path, run, options.rows)?;
    Ok((opened, pending))
}

fn lay_out(pending: &mut PendingRecording, path: &Path, run: &RunInfo, rows: u64) -> Result<Opened, StoreError> {
    let chunk_rows = rows.min(CHUNK_ROWS).next_power_of_two() as u32;
    let format = |link: &LinkInfo| RowFormat::new(link.geometry.packets(), &run.run_id);
    let formats: Vec<_> = run.links.iter().map(format).collect();
    let mut shapes: Vec<TableShape> =
        formats.iter().map(|format| TableShape { row_bytes: format.bytes() as u32, chunk_rows }).collect();
    shapes.push(TableShape { row_bytes: LOSS_BYTES as u32, chunk_rows: 256 });
    shapes.push(TableShape { row_bytes: COUNTER_BYTES as u32, chunk_rows: 64 });
    // Flat trees: three levels for 16 million chunks, with nodes of 12 kB.
    let chunk_k = rows.saturating_mul(run.links.len() as u64).div_ceil(2).clamp(32, 128) as u16;
    let recycled = pending.recycled();
    let create_image = |padding, data_start| {
        let shape = skeleton::Shape { tables: &shapes, chunk_k, recycled, data_start, padding };
        let (image, headers) = skeleton::create(run, &shape).map_err(StoreError::hdf5("lay out", path))?;
        let (data, tables) = read_headers(&image[..], &headers.data, &headers.tables, run, &formats, path)?;
        Ok(Image { bytes: image, data, tables, clocks: headers.clocks })
    };
    let Image { bytes: image, data, tables, clocks } = without_torn_fields(create_image)?;
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
    let counts = RowCounts { rows, losses, counters: COUNTER_ROWS };
    let tail_start = layout.data_end(rows);
    let end = tail::assign_offsets(&mut layout, tail_start, counts);

    let mut warnings = Vec::new();
    let size = Size { rows, head: layout.data_start, tail: end - tail_start, end };
    let medium = pending.allocate(path, run, size, &mut warnings)?;
    let file = &medium;
    if layout.codec.is_some() {
        // Zeros are written explicitly, because reused space may hold other bytes.
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
        .and_then(|()| tail::write_roots(file, &layout))
        .and_then(|()| file.write_all(layout.end_at, &layout.end.to_le_bytes()));
    written.map_err(StoreError::io("write the metadata of", path))?;
    Ok(Opened { file: medium, path: pending.path(path), layout, warnings })
}

/// Head of a file as written by libhdf5, and the field offsets of the sample datasets and tables.
struct Image {
    bytes: Vec<u8>,
    data: Vec<DatasetHeader>,
    tables: Vec<DatasetHeader>,
    clocks: Vec<u64>,
}

/// Creates an image in which every field that is patched later lies within one sector, so that a power cut cannot tear
/// it. libhdf5 puts the address of a chunk index at an odd offset; padding among the attributes moves it.
fn without_torn_fields(create_image: impl Fn(usize, u64) -> Result<Image, StoreError>) -> Result<Image, StoreError> {
    let tears = |at: u64| at % SECTOR > SECTOR - 8;
    let mut padding = 0;
    loop {
        let image = create_image(padding, 0)?;
        let torn =
            image.data.iter().chain(&image.tables).any(|header| tears(header.extent_at) || tears(header.tree_at));
        if !torn || padding == MAX_PADDING_WORDS {
            // Create it again with `data_start`, which depends on the length of the image.
            return create_image(padding, data_start(&image.bytes));
        }
        padding += 1;
    }
}

/// Returns the offset of the first slot after the head.
fn data_start(image: &[u8]) -> u64 {
    (image.len() as u64).next_multiple_of(ALIGN)
}

/// Opens an existing recording with an exclusive lock, for recovery.
///
/// # Errors
/// Fails with [`StoreError::InUse`] while another program reads or writes it.
pub fn open(path: &Path) -> Result<(RunInfo, Opened), StoreError> {
    let medium = match Target::of(path) {
        Some(target) => Medium::Extent(nvme::open(&target, nvme::Access::Write)?),
        None => Medium::File(lock::open_claimed(path, OFlags::RDWR)?),
    };
    opened(medium, path)
}

/// Like [`open`], for a file that is open for reading and writing.
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

/// Walks every chunk index: each chunk must be at the offset in the layout, so that HDF5 readers and raw readers read
/// the same bytes.
///
/// # Errors
/// Fails with [`StoreError::Format`] at the first chunk that is elsewhere.
pub fn check(path: &Path, file: &(impl ReadAt + ?Sized), layout: &Layout) -> Result<(), StoreError> {
    tail::check(file, layout).map_err(|error| StoreError::format(path, error.to_string()))
}

/// Returns the offset and length of a shot's bytes.
///
/// # Errors
/// Fails in a compressed run if the index entry cannot be read or is invalid.
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
    Ok(StoredChunk { offset: layout.slot(row, link), bytes: layout.slots[link].1, compressed: false })
}

/// Writes the chunk index entries of a compressed run from row `first` on: those of all links, row by row. Readers use
/// them once the rows are visible.
pub(crate) fn write_chunk_entries(
    file: &Medium,
    layout: &Layout,
    first: u64,
    stored: &[StoredChunk],
) -> Result<(), Errno> {
    chunks::write(file, layout, first, stored)
}

/// Resets the index entry of a lost shot of a compressed run to the slot of zeros.
pub(crate) fn clear_chunk(file: &Medium, layout: &Layout, row: u64, link: usize) -> Result<(), Errno> {
    chunks::clear(file, layout, row, link)
}

/// Returns the end of the data of the first rows of a compressed run; without rows, the end of the row of zeros.
pub(crate) fn end_of_chunks(file: &Medium, layout: &Layout, rows: u64, path: &Path) -> Result<u64, StoreError> {
    let mut end = layout.data_end(0);
    for (row, link) in (0..rows).flat_map(|row| (0..layout.slots.len()).map(move |link| (row, link))) {
        end = end.max(stored(file, layout, row, link, path)?.end());
    }
    Ok(end)
}

/// Reads the current first dimension of a dataset from the file.
pub fn visible(file: &(impl ReadAt + ?Sized), header: HeaderOffsets, path: &Path) -> Result<u64, StoreError> {
    let bytes = header::bytes(file, header.extent_at, 8).map_err(|e| StoreError::format(path, e.to_string()))?;
    Ok(header::u64_at(&bytes, 0))
}

impl Drop for Opened {
    fn drop(&mut self) {
        lock::release(self.file.handle());
    }
}

impl Opened {
    /// Returns the number of rows visible in all sample datasets.
    pub fn visible_rows(&self) -> Result<u64, StoreError> {
        visible_rows(&self.file, &self.layout, &self.path)
    }
    /// Returns the visible rows of a table, as bytes.
    pub fn table_bytes(&self, table: Table) -> Result<Vec<u8>, StoreError> {
        table_bytes(&self.file, table, &self.path)
    }
}

/// Returns the number of rows visible in all sample datasets.
pub fn visible_rows(file: &(impl ReadAt + ?Sized), layout: &Layout, path: &Path) -> Result<u64, StoreError> {
    let mut rows = layout.rows;
    for data in &layout.data {
        rows = rows.min(visible(file, data.header, path)?);
    }
    Ok(rows)
}

/// Reads into `buf` from an offset; returns the number of bytes read.
pub(crate) fn read_at(file: &Medium, offset: u64, buf: &mut [u8]) -> usize {
    file.read_at(offset, buf)
}

/// Returns rows of a table as bytes, visible or not.
///
/// # Errors
/// Fails if a row is beyond the capacity of the table or cannot be read.
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
    header::bytes(file, table.row_offset(rows.start), len).map_err(|error| StoreError::format(path, error.to_string()))
}

/// Returns the visible rows of a table, as bytes.
pub fn table_bytes(file: &(impl ReadAt + ?Sized), table: Table, path: &Path) -> Result<Vec<u8>, StoreError> {
    let rows = visible(file, table.header, path)?;
    table_rows(file, table, 0..rows, path)
}
