//! The packets that the shots came in, as a capture for Wireshark ([`crate::pcapng`]).

use super::draft::Draft;
use super::shots::{Shots, missing};
use super::{ExportError, Progress};
use crate::pcapng;
use crate::rows::NO_NUMBER;
use std::cell::Cell;
use std::path::Path;

pub(super) fn write(
    shots: &mut Shots<'_>,
    progress: Progress<'_>,
    to: &Path,
    replace: bool,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let links = shots.run().links.len();
    if shots.links().len() != links {
        let why = format!("expected all {links} links, found a choice of {}: leave out --links", shots.links().len());
        return Err(ExportError::Unfit { format: "pcapng", why });
    }
    let draft = Draft::new(to, replace)?;
    let stopped = Cell::new(false);
    let exported = pcapng::export(shots.recording(), shots.rows(), draft.path(), &|done, total| {
        let go_on = progress(done, total);
        stopped.set(go_on.is_break());
        go_on
    })?;
    if stopped.get() {
        return Err(ExportError::Stopped);
    }
    for link in 0..links {
        let (geometry, mut next) = (shots.link(link).geometry, None);
        for row in shots.rows() {
            let row = shots.recording().row(row, link)?;
            shots.count(&row, &missing(&row, &geometry), next);
            next = (row.number != NO_NUMBER).then_some(row.number.saturating_add(1)).or(next);
        }
    }
    draft.finish()?;
    notes.push(format!("{} packets; addresses, keys and sequence numbers are stand-ins", exported.packets));
    Ok(exported.bytes)
}
