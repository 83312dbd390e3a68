//! What the viewer should know of a picture: which part of the data is missing.

use shotline_acquire::live::About;
use shotline_store::shot::{Event, Shot};

/// Returns the number of links of an event.
pub(super) fn links(event: &Event) -> usize {
    event.shots.iter().flatten().count()
}

/// Says which part of the data is missing; empty if none is.
pub(super) fn missing(found: usize, expected: usize, what: &str) -> String {
    if found == expected { String::new() } else { format!("{found} of {expected} {what}") }
}

/// Says what is missing of an event, and of the shot of it that is shown.
pub(super) fn faults(about: &About, event: &Event, shot: &Shot) -> String {
    let presence = &shot.meta.presence;
    let packets = missing(presence.received() as usize, presence.packets() as usize, "packets");
    joined([missing(links(event), about.links, "links"), packets])
}

/// Joins remarks, without those that say nothing.
pub(super) fn joined(remarks: impl IntoIterator<Item = String>) -> String {
    let mut said: Vec<String> = remarks.into_iter().collect();
    said.retain(|remark| !remark.is_empty());
    said.join("; ")
}
