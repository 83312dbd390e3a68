//! Reading of recordings: descriptions and checks of arguments that every binding needs.

use crate::samples::{Element, Selection, Stride};
use serde_json::{Value, json};
use shotline_store::read::Recording;
use shotline_wire::shot::Geometry;

/// An axis of a selection, not checked yet: start, step, count.
pub type Axis = (usize, isize, usize);

/// Returns the shape of a link's shots.
pub fn geometry(g: &Geometry) -> Value {
    json!({
        "channels": g.channels(),
        "samples": g.samples(),
        "bits": g.bits(),
        "packing": g.packing().name(),
        "sample_rate_hz": g.sample_rate_hz(),
        "packets": g.packets(),
        "trailer": g.trailer().name(),
        "sample_bytes": g.sample_bytes(),
        "trailer_offset": g.trailer_offset(),
        "shot_bytes": g.shot_bytes(),
        "slot_bytes": g.slot_bytes(),
    })
}

/// Returns the properties of a run and its links.
pub fn about(recording: &Recording) -> Value {
    let run = recording.run();
    let links = run.links.iter().map(|link| {
        let mut about = geometry(&link.geometry);
        about["name"] = link.name.as_str().into();
        about["stream"] = link.stream.into();
        about
    });
    let links: Vec<_> = links.collect();
    json!({ "run": run, "links": links, "joined": run.joined() })
}

/// Checks indexes of links.
///
/// # Errors
/// Fails if a link does not exist.
pub fn check_links(recording: &Recording, links: &[usize]) -> Result<(), String> {
    let count = recording.run().links.len();
    match links.iter().find(|link| **link >= count) {
        Some(link) => Err(format!("expected a link below {count}, found {link}")),
        None => Ok(()),
    }
}

/// Returns the number of samples and of channels of links side by side: those of the shortest, and those of all.
pub fn extents(recording: &Recording, links: &[usize]) -> (usize, usize) {
    let geometries = || links.iter().map(|link| recording.run().links[*link].geometry);
    let channels = geometries().map(|g| usize::from(g.channels())).sum();
    (geometries().map(|g| g.samples() as usize).min().unwrap_or(0), channels)
}

/// Checks a selection of `rows` rows that is to be read into `elements` elements of type `T`.
///
/// # Errors
/// Fails if a link, a sample or a channel does not exist, if the samples have another type, or if the number of elements
/// differs.
pub fn select<T: Element>(
    recording: &Recording,
    links: Vec<usize>,
    (samples, channels): (Axis, Axis),
    threads: usize,
    (rows, elements): (usize, usize),
) -> Result<Selection, String> {
    check_links(recording, &links)?;
    let (all_samples, all_channels) = extents(recording, &links);
    let samples = Stride::within(samples, all_samples)
        .ok_or("expected samples within the shots, found an axis beyond their end")?;
    let channels = Stride::within(channels, all_channels)
        .ok_or("expected channels of the links, found an axis beyond the last one")?;
    if !links.iter().all(|link| T::supports(recording.run().links[*link].geometry.packing())) {
        return Err(
            "expected int16 for 12- and 16-bit samples and uint8 for 8-bit samples, found the other type".into()
        );
    }
    let selected = samples.count.checked_mul(channels.count).and_then(|elements| elements.checked_mul(rows));
    if selected != Some(elements) {
        return Err(format!("expected rows x samples x channels elements of output, found {elements}"));
    }
    Ok(Selection { links, samples, channels, threads })
}
