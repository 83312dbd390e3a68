//! The packets that the shots came in, as a capture for Wireshark ([`crate::pcapng`]).

use super::shots::Shots;
use super::{ExportError, Progress};
use crate::draft::Draft;
use crate::pcapng;
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
    shots.count_all()?;
    draft.finish()?;
    notes.push(format!("{} packets; addresses, keys and sequence numbers are stand-ins", exported.packets));
    Ok(exported.bytes)
}
