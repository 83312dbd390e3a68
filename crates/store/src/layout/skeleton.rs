//! The part of a file that libhdf5 writes: names, types and attributes, without shots and chunk indexes.
//!
//! libhdf5 writes it in memory: on disk it would hold a lock on a descriptor that child processes inherit.

use super::block_tables;
use crate::blocks;
use crate::clocks::{CLOCK_BYTES, CLOCK_FIELDS, CLOCK_ROWS, clock_descriptor};
use crate::codec::{self, Codec};
use crate::info::{LinkInfo, RunInfo, number, text, texts, timestamp};
use crate::rows::{self, ROW_FIELDS, RowFormat};
use crate::sys::hdf5::{Mapping, create_filtered, create_virtual, header_address, image, sample_type};
use hdf5::plist::dataset_create::AllocTime;
use hdf5::types::{TypeDescriptor, VarLenUnicode};
use hdf5::{Dataset, Datatype, Error, Extent, File, Group, SimpleExtents};
use shotline_wire::block;
use shotline_wire::shot::Geometry;
use std::ffi::CString;
use std::str::FromStr;

/// Row size and chunk length of a table.
pub(super) struct TableShape {
    pub row_bytes: u32,
    pub chunk_rows: u32,
}

/// Addresses of the object headers of the datasets whose data is written without libhdf5.
pub(super) struct Headers {
    /// `/rf`, or each link's `rf` if they cannot be joined.
    pub data: Vec<u64>,
    /// `/linkN/shots`, `/losses`, `/counters`, then `/linkN/blocks` of the links that have it.
    pub tables: Vec<u64>,
    /// Offsets of the rows of `/linkN/clock`.
    pub clocks: Vec<u64>,
}

/// Parameters of a skeleton other than its run.
pub(super) struct Shape<'a> {
    /// The links' shots tables, then `/losses` and `/counters`.
    pub tables: &'a [TableShape],
    /// Half the fan-out of chunk indexes.
    pub chunk_k: u16,
    /// The blocks of the file held another recording.
    pub recycled: bool,
    /// Offset of the first slot, 0 while unknown.
    pub data_start: u64,
    /// Number of padding words, which shift the following metadata.
    pub padding: usize,
}

/// Creates the head of a file.
pub(super) fn create(run: &RunInfo, shape: &Shape<'_>) -> hdf5::Result<(Vec<u8>, Headers)> {
    let &Shape { tables, chunk_k, recycled, data_start, padding } = shape;
    let file = File::with_options()
        .with_fcpl(|p| p.istore_k(u32::from(chunk_k)))
        // Newer header versions have checksums; with 'earliest', single fields can be patched in place.
        .with_fapl(|p| p.libver_earliest().core_options(1 << 20, false).alignment(CLOCK_TABLE_BYTES, 512))
        // The core driver creates no file; the name only distinguishes it from other in-memory files.
        .create_excl(format!("recording-{}", run.run_id))?;
    run.write(&file)?;
    number(&file, "recycled", u8::from(recycled))?;
    number(&file, "data_start", data_start)?;
    if padding > 0 {
        file.new_attr::<u64>().shape(padding).create("padding")?.write_raw(&vec![0_u64; padding])?;
    }
    let entry = nexus_entry(&file, run)?;
    let mut headers = Headers { data: Vec::new(), tables: Vec::new(), clocks: Vec::new() };
    let links = run.links.len();
    let joined = run.joined();
    if joined {
        let rf = sample_dataset(&file, "rf", run.links[0].geometry, links, run.codec)?;
        describe(&rf, &run.links[0].geometry)?;
        text(&rf, "channel_order", &channel_order(run))?;
        headers.data.push(header_address(&rf)?);
    }
    for (index, link) in run.links.iter().enumerate() {
        let group = file.create_group(&format!("link{index}"))?;
        link.write(&group)?;
        nexus_data(&group)?;
        // A soft link, so that a walk over the file's objects visits each once.
        entry.link_soft(&format!("/link{index}"), &format!("link{index}"))?;
        if !joined {
            let rf = sample_dataset(&group, "rf", link.geometry, 1, run.codec)?;
            describe(&rf, &link.geometry)?;
            headers.data.push(header_address(&rf)?);
        } else if links == 1 {
            file.link_hard("/rf", "/link0/rf")?;
        } else {
            describe(&sample_view(&group, link, index, links)?, &link.geometry)?;
        }
        let format = RowFormat::new(link.geometry.packets(), &run.run_id);
        let shots = table(&group, "shots", &format.descriptor(), &tables[index])?;
        text(&shots, "description", "one row for each shot of this link, in the order of rf's first dimension")?;
        for (field, meaning) in ROW_FIELDS {
            text(&shots, field, meaning)?;
        }
        headers.tables.push(header_address(&shots)?);
        headers.clocks.push(clock_table(&group)?);
    }
    let losses = table(&file, "losses", &rows::loss_descriptor(), &tables[links])?;
    text(
        &losses,
        "description",
        "ranges of shots without a row, or with a row as lost, and the cause: stream, cause, first number, count of consecutive numbers",
    )?;
    headers.tables.push(header_address(&losses)?);
    let counters = table(&file, "counters", &rows::counter_descriptor(), &tables[links + 1])?;
    text(
        &counters,
        "description",
        "counts of the run by stream, written when it ends: packets_in = packets_placed + packets_CAUSE (except wire_gap and overrun, which never arrived); shots_seen = shots_complete + shots_partial + shots_CAUSE",
    )?;
    text(&counters, "whole_run", "stream 4294967295 is the complete run")?;
    headers.tables.push(header_address(&counters)?);
    for link in block_tables::links(run) {
        let shape = TableShape { row_bytes: block::LEN as u32, chunk_rows: 1 };
        let blocks = table(&file, &format!("link{link}/blocks"), &blocks::descriptor(), &shape)?;
        describe_blocks(&blocks)?;
        headers.tables.push(header_address(&blocks)?);
    }
    let mut image = image(&file)?;
    for at in headers.clocks.iter().map(|at| *at as usize) {
        // libhdf5 does not initialise the space.
        image.get_mut(at..at + CLOCK_TABLE_BYTES as usize).ok_or("expected a clock table within the file")?.fill(0);
    }
    Ok((image, headers))
}

/// Bytes of a link's clock table. It is the only object of this size or more, so only it is aligned to sectors.
const CLOCK_TABLE_BYTES: u64 = (CLOCK_ROWS * CLOCK_BYTES) as u64;

/// Creates a link's clock table; returns the offset of its rows.
fn clock_table(group: &Group) -> hdf5::Result<u64> {
    let table = group
        .new_dataset_builder()
        .empty_as(Datatype::from_descriptor(&clock_descriptor())?)
        .shape(CLOCK_ROWS)
        .alloc_time(Some(AllocTime::Early))
        .create("clock")?;
    for (name, meaning) in CLOCK_FIELDS {
        text(&table, name, meaning)?;
    }
    table.offset().ok_or_else(|| Error::from("expected space for the clock table, found none"))
}

/// Writes the NeXus entry of the file with its default data.
/// (NeXus definitions: NXroot, NXentry, NXdata; <https://manual.nexusformat.org>.)
fn nexus_entry(file: &File, run: &RunInfo) -> hdf5::Result<Group> {
    text(file, "NX_class", "NXroot")?;
    text(file, "default", "entry")?;
    let entry = file.create_group("entry")?;
    text(&entry, "NX_class", "NXentry")?;
    text(&entry, "default", "link0")?;
    for (name, words) in
        [("title", &run.instrument), ("program_name", &run.software), ("entry_identifier", &run.run_id)]
    {
        field(&entry, name, words)?;
    }
    field(&entry, "start_time", &timestamp(run.start_utc_ns))?;
    Ok(entry)
}

/// Marks a link's group as NXdata: `rf` is the signal, and its axes have no datasets.
fn nexus_data(group: &Group) -> hdf5::Result<()> {
    text(group, "NX_class", "NXdata")?;
    text(group, "signal", "rf")?;
    texts(group, "axes", &[".", ".", "."])
}

/// Writes a scalar string dataset.
fn field(at: &Group, name: &str, words: &str) -> hdf5::Result<()> {
    let words = VarLenUnicode::from_str(&words.replace('\0', "\u{fffd}")).map_err(|e| Error::from(e.to_string()))?;
    at.new_dataset::<VarLenUnicode>().create(name)?.write_scalar(&words)
}

/// Describes the order of the links' channels in `/rf`.
pub(crate) fn channel_order(run: &RunInfo) -> String {
    let links = run.links.iter().map(|link| format!("{} ({} channels)", link.name, link.geometry.channels()));
    links.collect::<Vec<_>>().join(", ")
}

/// Creates a dataset whose chunks are shot slots. The n-bit filter stores 12-bit integers in the packing of the wire
/// format and does not change 16-bit integers and bytes. A filtered chunk may be longer than its samples need, so the
/// padding and the end-of-shot record stay in the chunk and readers skip them. In a compressed run the filter mask of
/// each chunk says which filter applies: bitshuffle or n-bit.
fn sample_dataset(
    at: &Group,
    name: &str,
    geometry: Geometry,
    links: usize,
    codec: Option<Codec>,
) -> hdf5::Result<Dataset> {
    let (samples, channels) = (geometry.samples() as usize, usize::from(geometry.channels()));
    let (datatype, extents) = (sample_type(geometry.packing())?, extents(samples, links * channels));
    if let Some(codec) = codec {
        let (name, chunk) =
            (CString::new(name).map_err(|_| "expected a name without a zero byte")?, [1, samples, channels]);
        let bitshuffle = (codec::FILTER, codec.filter(geometry.packing()));
        return create_filtered(at, &name, &datatype, &extents, chunk, &bitshuffle);
    }
    at.new_dataset_builder().empty_as(datatype).shape(extents).chunk((1, samples, channels)).nbit().create(name)
}

/// Creates a virtual dataset of one link's channels of `/rf`. It has a single source, so its extent follows that of
/// `/rf`.
fn sample_view(group: &Group, link: &LinkInfo, index: usize, links: usize) -> hdf5::Result<Dataset> {
    let (samples, channels) = (link.geometry.samples() as usize, usize::from(link.geometry.channels()));
    let source = Mapping {
        file: c".",
        dataset: c"/rf",
        extents: &extents(samples, links * channels),
        source_start: &[0, 0, (index * channels) as u64],
        row: 0,
        stride: 1,
        rows: None,
    };
    create_virtual(group, c"rf", &sample_type(link.geometry.packing())?, &extents(samples, channels), &[source])
}

fn table(at: &Group, name: &str, row: &TypeDescriptor, shape: &TableShape) -> hdf5::Result<Dataset> {
    debug_assert_eq!(row.size(), shape.row_bytes as usize);
    // Pass a datatype, because the builder would change the field offsets of a descriptor to those of C.
    at.new_dataset_builder()
        .empty_as(Datatype::from_descriptor(row)?)
        .shape(SimpleExtents::from_vec(vec![Extent::new(0, None)]))
        .chunk(shape.chunk_rows as usize)
        .create(name)
}

pub(crate) fn extents(samples: usize, channels: usize) -> SimpleExtents {
    SimpleExtents::from_vec(vec![
        Extent::new(0, None),
        Extent::new(samples, Some(samples)),
        Extent::new(channels, Some(channels)),
    ])
}

pub(crate) fn describe(rf: &Dataset, geometry: &Geometry) -> hdf5::Result<()> {
    if geometry.trailer().has_description() && geometry.channels() == 2 {
        texts(rf, "DIMENSION_LABELS", &["shot", "sample", "component"])?;
        texts(rf, "components", &["I", "Q"])?;
    } else {
        texts(rf, "DIMENSION_LABELS", &["shot", "sample", "channel"])?;
    }
    text(rf, "units", "counts")?;
    number(rf, "bits", geometry.bits())?;
    number(rf, "sample_rate_hz", geometry.sample_rate_hz())?;
    if geometry.sample_rate_hz() > 0 {
        number(rf, "sample_period_s", 1.0 / f64::from(geometry.sample_rate_hz()))?;
    }
    text(rf, "time_axis", "sample / sample_rate_hz, in seconds from stamp_tai_ns of the shot")
}

/// Writes the attributes of a table of block descriptions.
pub(crate) fn describe_blocks(table: &Dataset) -> hdf5::Result<()> {
    text(table, "description", blocks::DESCRIPTION)?;
    blocks::FIELDS.iter().try_for_each(|(field, meaning)| text(table, field, meaning))
}

#[cfg(test)]
mod tests {
    use super::super::{CreateOptions, create};
    use super::*;
    use shotline_wire::shot::Packing;

    #[test]
    fn patched_fields_never_cross_a_sector_boundary() {
        let geometry = Geometry::new(2, 10, 12, Packing::Packed12, 0).unwrap();
        let links = (0..3).map(|stream| LinkInfo { name: "a".into(), stream, geometry }).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut run = RunInfo::new(links);
        // Covers every offset within a sector.
        for words in 0..64 {
            run.config = "x".repeat(8 * words);
            let options = CreateOptions { rows: 1, overwrite: true, ..CreateOptions::default() };
            let layout = create(&folder.path().join("a.h5"), &run, options).unwrap().layout.clone();
            let tables = layout.shots.iter().chain([&layout.losses, &layout.counters]).map(|table| table.header);
            for header in tables.chain(layout.data.iter().map(|data| data.header)) {
                assert!(header.extent_at % 512 <= 504 && header.tree_at % 512 <= 504, "{words} words: {header:?}");
            }
        }
    }
}
