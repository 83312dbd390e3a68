//! Locates the datasets of an existing recording.

use super::block_tables::{self, BlockTable};
use super::consistent_read;
use super::datasets::{Data, HeaderOffsets, Table};
use super::structure::Layout;
use crate::StoreError;
use crate::info::{RunInfo, read_number};
use crate::medium::Medium;
use crate::metadata::header::{DatasetHeader, HeaderError, Superblock};
use crate::nvme::Extent;
use crate::positioned::ReadAt;
use crate::rows::{COUNTER_BYTES, LOSS_BYTES, RowFormat};
use crate::sys::hdf5::{header_address, open_image, open_locked, open_same};
use shotline_wire::block;
use shotline_wire::shot::Packing;
use std::fs::File;
use std::path::Path;

/// Reads the metadata and layout of a recording.
///
/// # Errors
/// Fails if libhdf5 cannot open the file, or with [`StoreError::Format`] if it does not have the layout of a recording.
pub fn locate(path: &Path, file: &File) -> Result<(RunInfo, Layout), StoreError> {
    let hdf5 = open_same(file).map_err(StoreError::hdf5("open", path))?;
    locate_by(path, &hdf5, file)
}

/// Like [`locate`], for any medium.
pub(crate) fn locate_in(path: &Path, medium: &Medium) -> Result<(RunInfo, Layout), StoreError> {
    match medium {
        Medium::File(file) => locate(path, file),
        Medium::Extent(extent) => locate_in_extent(path, medium, extent),
    }
}

/// Like [`locate_in`], for a medium that the caller has locked.
pub(super) fn locate_locked(path: &Path, medium: &Medium) -> Result<(RunInfo, Layout), StoreError> {
    match medium {
        Medium::File(file) => locate_locked_file(path, file),
        Medium::Extent(extent) => locate_in_extent(path, medium, extent),
    }
}

/// Like [`locate`], for a file that the caller has locked.
pub(super) fn locate_locked_file(path: &Path, file: &File) -> Result<(RunInfo, Layout), StoreError> {
    let hdf5 = open_locked(file).map_err(StoreError::hdf5("open", path))?;
    locate_by(path, &hdf5, file)
}

fn locate_in_extent(path: &Path, medium: &Medium, extent: &Extent) -> Result<(RunInfo, Layout), StoreError> {
    // libhdf5 receives the bytes before the data as a complete file image, with the end-of-file address adjusted.
    let mut head = extent.read_head().map_err(StoreError::io("read", path))?;
    let superblock = Superblock::read(&head[..]).map_err(|error| StoreError::format(path, error.to_string()))?;
    let len = head.len() as u64;
    if let Some(end) = head.get_mut(superblock.end_at as usize..).and_then(|rest| rest.get_mut(..8)) {
        end.copy_from_slice(&len.to_le_bytes());
    }
    let hdf5 = open_image(&head).map_err(StoreError::hdf5("open", path))?;
    locate_by(path, &hdf5, medium)
}

fn locate_by(path: &Path, hdf5: &hdf5::File, file: &impl ReadAt) -> Result<(RunInfo, Layout), StoreError> {
    let (run, recycled, data_start, formats, clocks, headers) = {
        let run = RunInfo::read(hdf5, file, path)?;
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
            formats.push(
                RowFormat::of(link.geometry.packets(), &run.run_id, &row)
                    .ok_or_else(|| StoreError::format(path, found()))?,
            );
        }
        let links = 0..run.links.len();
        let data = if run.joined() {
            vec![address("rf")?]
        } else {
            links.clone().map(|l| address(&format!("link{l}/rf"))).collect::<Result<_, _>>()?
        };
        let mut tables = links.map(|l| address(&format!("link{l}/shots"))).collect::<Result<Vec<_>, _>>()?;
        tables.extend([address("losses")?, address("counters")?]);
        for link in block_tables::links(&run) {
            tables.push(address(&format!("link{link}/blocks"))?);
        }
        let recycled = read_number::<u8>(hdf5, "recycled").is_ok_and(|recycled| recycled != 0);
        let data_start = read_number(hdf5, "data_start").map_err(StoreError::hdf5("read the attributes of", path))?;
        let clocks = (0..run.links.len()).map(|link| {
            let table = hdf5.dataset(&format!("link{link}/clock"));
            let table = table.map_err(StoreError::hdf5("find a clock table in", path))?;
            table.offset().ok_or_else(|| StoreError::format(path, format!("expected a contiguous link{link}/clock")))
        });
        let clocks = clocks.collect::<Result<_, _>>()?;
        (run, recycled, data_start, formats, clocks, (data, tables))
    };
    let format_error = |error: HeaderError| StoreError::format(path, error.to_string());
    let (data, tables) = read_headers(file, &headers.0, &headers.1, &run, &formats, path)?;
    let superblock = Superblock::read(file).map_err(format_error)?;
    let mut layout = assemble(&run, superblock, data, tables, formats);
    layout.recycled = recycled;
    layout.clocks = clocks;
    layout.data_start = data_start;
    consistent_read::find(file, &mut layout, path)?;
    Ok((run, layout))
}

/// Parses the object headers of the sample datasets and tables, and checks their chunk shapes.
pub(super) fn read_headers(
    file: &(impl ReadAt + ?Sized),
    data: &[u64],
    tables: &[u64],
    run: &RunInfo,
    formats: &[RowFormat],
    path: &Path,
) -> Result<(Vec<DatasetHeader>, Vec<DatasetHeader>), StoreError> {
    let read = |address: &u64| DatasetHeader::read(file, *address).map_err(|e| StoreError::format(path, e.to_string()));
    let data: Vec<DatasetHeader> = data.iter().map(read).collect::<Result<_, _>>()?;
    let tables: Vec<DatasetHeader> = tables.iter().map(read).collect::<Result<_, _>>()?;
    for (index, header) in data.iter().enumerate() {
        let g = run.links[index].geometry;
        let element = if g.packing() == Packing::Uint8 { 1 } else { 2 };
        let expected = [1, g.samples(), u32::from(g.channels()), element];
        if header.chunk != expected {
            return Err(StoreError::format(
                path,
                format!("expected sample chunks of {expected:?}, found {:?}", header.chunk),
            ));
        }
    }
    for (index, header) in tables.iter().enumerate() {
        let expected = match index.checked_sub(run.links.len()) {
            None => formats[index].bytes(),
            Some(0) => LOSS_BYTES,
            Some(1) => COUNTER_BYTES,
            Some(_) => block::LEN,
        } as u32;
        let whole = index < run.links.len() + 2 || header.chunk[0] == 1;
        if header.chunk.len() != 2 || header.chunk[1] != expected || !header.chunk[0].is_power_of_two() || !whole {
            return Err(StoreError::format(
                path,
                format!("expected table rows of {expected} bytes, found chunks of {:?}", header.chunk),
            ));
        }
    }
    Ok((data, tables))
}

/// Builds a layout from geometries and object headers, without row counts and offsets.
pub(super) fn assemble(
    run: &RunInfo,
    superblock: Superblock,
    data: Vec<DatasetHeader>,
    tables: Vec<DatasetHeader>,
    formats: Vec<RowFormat>,
) -> Layout {
    let offsets = |header: &DatasetHeader| HeaderOffsets { extent_at: header.extent_at, tree_at: header.tree_at };
    let mut row_bytes = 0;
    let mut slots = Vec::new();
    for link in &run.links {
        slots.push((row_bytes, link.geometry.slot_bytes()));
        row_bytes += u64::from(link.geometry.slot_bytes());
    }
    let links = run.links.len();
    let data = data.iter().enumerate();
    let data = data.map(|(i, header)| Data {
        header: offsets(header),
        links: if run.joined() { 0..links } else { i..i + 1 },
        leaves: 0,
    });
    let block_tables = block_tables::links(run).zip(tables.iter().skip(links + 2));
    let block_tables = block_tables.map(|(link, header)| BlockTable {
        header: offsets(header),
        link,
        slot_offset: run.links[link].geometry.trailer_offset(),
    });
    let mut tables: Vec<Table> = (tables.iter().take(links + 2))
        .map(|header| Table {
            header: offsets(header),
            row_bytes: header.chunk[1],
            chunk_rows: header.chunk[0],
            start: 0,
            capacity: 0,
        })
        .collect();
    let (losses, counters) = (tables[links], tables[links + 1]);
    tables.truncate(links);
    Layout {
        rows: 0,
        common_rows: 0,
        codec: run.codec,
        data_start: 0,
        row_bytes,
        slots,
        data: data.collect(),
        shots: tables,
        formats,
        losses,
        counters,
        clocks: Vec::new(),
        block_tables: block_tables.collect(),
        chunk_k: superblock.chunk_k,
        end_at: superblock.end_at,
        end: superblock.end,
        roots: Vec::new(),
        recycled: false,
        channels: run.links.iter().map(|link| u64::from(link.geometry.channels())).collect(),
    }
}
