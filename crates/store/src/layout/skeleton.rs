//! What libhdf5 writes: names, types and attributes; no shot, no chunk index.
//!
//! It writes them in memory: on the disk it would hold a lock, in a descriptor that child processes inherit.

use crate::info::{LinkInfo, RunInfo, number, text, texts};
use crate::rows::{self, ROW_FIELDS, RowFormat};
use crate::sys::hdf5::{create_view, header_address, image, sample_type};
use hdf5::types::TypeDescriptor;
use hdf5::{Dataset, Datatype, Extent, File, Group, SimpleExtents};
use shotline_wire::shot::Geometry;

/// A table's name and shape.
pub(super) struct TableShape {
    pub row_bytes: u32,
    pub chunk_rows: u32,
}

/// Where libhdf5 put the object headers of the datasets that are laid out from outside.
pub(super) struct Headers {
    /// `/rf`, or each link's `rf` if they cannot be joined.
    pub data: Vec<u64>,
    /// `/linkN/shots`, `/losses`, `/books`.
    pub tables: Vec<u64>,
}

/// Makes the file's first bytes. `tables` has the shapes of the links' shots tables, then of `/losses` and `/books`.
pub(super) fn create(run: &RunInfo, tables: &[TableShape], chunk_k: u16) -> hdf5::Result<(Vec<u8>, Headers)> {
    let file = File::with_options()
        .with_fcpl(|p| p.istore_k(u32::from(chunk_k)))
        // Newer headers carry checksums: 'earliest' is what lets single fields be changed from outside.
        .with_fapl(|p| p.libver_earliest().core_options(1 << 20, false))
        // No such file comes to be: the name only tells it from others in memory.
        .create_excl(format!("recording-{}", run.run_id))?;
    run.write(&file)?;
    let mut headers = Headers { data: Vec::new(), tables: Vec::new() };
    let links = run.links.len();
    let joined = run.joined();
    if joined {
        let rf = real(&file, "rf", run.links[0].geometry, links)?;
        describe(&rf, &run.links[0].geometry)?;
        let order: Vec<String> =
            run.links.iter().map(|l| format!("{} ({} channels)", l.name, l.geometry.channels())).collect();
        text(&rf, "channel_order", &order.join(", "))?;
        headers.data.push(header_address(&rf)?);
    }
    for (index, link) in run.links.iter().enumerate() {
        let group = file.create_group(&format!("link{index}"))?;
        link.write(&group)?;
        if !joined {
            let rf = real(&group, "rf", link.geometry, 1)?;
            describe(&rf, &link.geometry)?;
            headers.data.push(header_address(&rf)?);
        } else if links == 1 {
            file.link_hard("/rf", "/link0/rf")?;
        } else {
            describe(&view(&group, link, index, links)?, &link.geometry)?;
        }
        let format = RowFormat::new(link.geometry.packets());
        let shots = table(&group, "shots", &format.descriptor(), &tables[index])?;
        text(&shots, "description", "one row for each shot of this link, in the order of rf's first dimension")?;
        for (field, meaning) in ROW_FIELDS {
            text(&shots, field, meaning)?;
        }
        headers.tables.push(header_address(&shots)?);
    }
    let losses = table(&file, "losses", &rows::loss_descriptor(), &tables[links])?;
    text(
        &losses,
        "description",
        "runs of shots that are in no row, or in a row as lost, and why: stream, cause, first number, count of consecutive numbers",
    )?;
    headers.tables.push(header_address(&losses)?);
    let books = table(&file, "books", &rows::book_descriptor(), &tables[links + 1])?;
    text(
        &books,
        "description",
        "counts of the run by stream, written when it ends: packets_in = packets_placed + packets_CAUSE (but wire_gap and overrun, which never arrived); shots_seen = shots_complete + shots_partial + shots_CAUSE",
    )?;
    text(&books, "whole_run", "stream 4294967295 stands for the whole run")?;
    headers.tables.push(header_address(&books)?);
    Ok((image(&file)?, headers))
}

/// A dataset whose chunks are shot slots. The n-bit filter stores 12-bit integers as the wire packs them;
/// for full 16-bit integers and bytes it changes nothing. Either way a filtered chunk may be longer than its samples
/// need, so the padding and the end-of-shot record stay in the chunk and readers pass over them.
fn real(at: &Group, name: &str, geometry: Geometry, links: usize) -> hdf5::Result<Dataset> {
    let (samples, channels) = (geometry.samples() as usize, usize::from(geometry.channels()));
    at.new_dataset_builder()
        .empty_as(sample_type(geometry.packing())?)
        .shape(extents(samples, links * channels))
        .chunk((1, samples, channels))
        .nbit()
        .create(name)
}

/// One link's channels of `/rf`: a virtual dataset with a single source, so its extent is that of `/rf`.
fn view(group: &Group, link: &LinkInfo, index: usize, links: usize) -> hdf5::Result<Dataset> {
    let (samples, channels) = (link.geometry.samples() as usize, usize::from(link.geometry.channels()));
    create_view(
        group,
        c"rf",
        &sample_type(link.geometry.packing())?,
        &extents(samples, channels),
        (c"/rf", &extents(samples, links * channels)),
        &[0, 0, (index * channels) as u64],
    )
}

fn table(at: &Group, name: &str, row: &TypeDescriptor, shape: &TableShape) -> hdf5::Result<Dataset> {
    debug_assert_eq!(row.size(), shape.row_bytes as usize);
    // A finished type, because the builder would move a descriptor's fields to where C puts them.
    at.new_dataset_builder()
        .empty_as(Datatype::from_descriptor(row)?)
        .shape(SimpleExtents::from_vec(vec![Extent::new(0, None)]))
        .chunk(shape.chunk_rows as usize)
        .create(name)
}

fn extents(samples: usize, channels: usize) -> SimpleExtents {
    SimpleExtents::from_vec(vec![
        Extent::new(0, None),
        Extent::new(samples, Some(samples)),
        Extent::new(channels, Some(channels)),
    ])
}

fn describe(rf: &Dataset, geometry: &Geometry) -> hdf5::Result<()> {
    texts(rf, "DIMENSION_LABELS", &["shot", "sample", "channel"])?;
    text(rf, "units", "counts")?;
    number(rf, "bits", geometry.bits())?;
    number(rf, "sample_rate_hz", geometry.sample_rate_hz())?;
    if geometry.sample_rate_hz() > 0 {
        number(rf, "sample_period_s", 1.0 / f64::from(geometry.sample_rate_hz()))?;
    }
    text(rf, "time_axis", "sample / sample_rate_hz, in seconds from stamp_tai_ns of the shot")
}
