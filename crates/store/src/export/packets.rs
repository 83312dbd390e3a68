//! Packet capture of the recorded shots, for Wireshark ([`crate::pcapng`]).

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::options::Options;
use super::shots::Shots;
use crate::pcapng;
use std::cell::Cell;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "pcapng",
    summary: "The packets of the shots, for Wireshark",
    extensions: &["pcapng"],
    option_kind: OptionKind::Nothing,
    target: Target::File,
    losses: &[Losses::Gap],
    feature: None,
};
const FORMAT: &str = ABOUT.name;

pub(super) fn write(
    shots: &mut Shots<'_>,
    _options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let links = shots.run().links.len();
    if shots.links().len() != links {
        let why = format!("expected all {links} links, found a selection of {}: omit --links", shots.links().len());
        return Err(ExportError::Unsupported { format: FORMAT, why });
    }
    let draft = to.draft()?;
    let stopped = Cell::new(false);
    let exported = pcapng::export(shots.recording(), shots.rows(), draft.path(), &|done, total| {
        let flow = shots.progress(done, total);
        stopped.set(flow.is_break());
        flow
    })?;
    if stopped.get() {
        return Err(ExportError::Stopped);
    }
    shots.count_all()?;
    draft.finish()?;
    notes.push(format!("{} packets; addresses, keys and sequence numbers are placeholders", exported.packets));
    Ok(exported.bytes)
}
