//! A recording as a capture.

use super::link::{Ends, OneLink, comment, to_utc};
use super::write::Writer;
use crate::StoreError;
use crate::read::Recording;
use crate::rows::State;
use rustix::io::Errno;
use serde::Serialize;
use shotline_wire::shot::DropCause;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::path::Path;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Packets.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes rows of a recording as the packets that they came in to a new file. `progress` is told how many rows were
/// written, and of how many, and says whether to go on. The statistics are the whole run's, if it has ended.
///
/// A receiver keeps no headers: they are made anew, with addresses for documentation, queue pairs from 0x100 on and
/// queue key 0x11111111, and the capture says so. All packets of a shot bear the time at which the kernel received its
/// first (where that is unknown, the sender's stamp). What the recording lacks is not there; the statistics of each
/// interface, one a link, tell what became of it.
pub fn export(
    recording: &Recording,
    rows: Range<u64>,
    path: &Path,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<Exported, StoreError> {
    let file = File::create_new(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
        _ => StoreError::Create { path: path.to_owned(), source },
    })?;
    let failed = |error: std::io::Error| {
        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        StoreError::Io { what: "write", path: path.to_owned(), source }
    };
    let run = recording.run();
    let comment = comment(run, "addresses, queue pairs, keys and sequence numbers are stand-ins");
    let mut writer = Writer::new(file, &run.software, &comment).map_err(failed)?;
    let first = if rows.is_empty() { 0 } else { recording.row(rows.start, 0)?.number };
    let mut links = Vec::new();
    for (index, link) in run.links.iter().enumerate() {
        let of = OneLink::new((run, link, index), first, stamp(recording, &rows, index)?, Ends::default());
        let of = of.ok_or_else(|| {
            StoreError::format(recording.path(), format!("expected a known framing, found {:?}", run.framing))
        })?;
        writer.interface(&of.interface).map_err(failed)?;
        links.push(of);
    }
    let mut slots = recording.slots();
    let mut exported = Exported::default();
    for row in rows.clone() {
        for (index, link) in links.iter_mut().enumerate() {
            let kept = recording.row(row, index)?;
            let tai_ns = if kept.arrived_tai_ns > 0 { kept.arrived_tai_ns } else { kept.stamp_tai_ns };
            link.tally(to_utc(run, tai_ns), kept.placed, DropCause::ALL.into_iter().zip(kept.drops.map(u64::from)));
            if kept.state == State::Lost {
                continue;
            }
            let bytes = slots.read(row, index)?;
            for packet in (0..kept.packets).filter(|packet| kept.contains(*packet)) {
                let wrote = link
                    .packets
                    .packet(kept.number, packet, bytes, |frame| writer.packet(index as u32, link.time_ns, frame));
                wrote.map_err(failed)?;
                exported.packets += 1;
            }
        }
        if progress(row + 1 - rows.start, rows.end - rows.start).is_break() {
            break;
        }
    }
    let ended = recording.ended()?.unwrap_or_default();
    let nowhere: Vec<_> = ended.totals.into_iter().collect();
    for (index, (link, info)) in links.iter().zip(&run.links).enumerate() {
        let books = ended.books.streams.iter().find(|books| books.stream == info.stream);
        writer.statistics(index as u32, &link.statistics(books, &nowhere)).map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    Ok(Exported { bytes: writer.bytes(), ..exported })
}

/// Number and stamp of the first of these rows that has a stamp.
fn stamp(recording: &Recording, rows: &Range<u64>, link: usize) -> Result<(u64, u64), StoreError> {
    for row in rows.clone() {
        let kept = recording.row(row, link)?;
        if kept.stamp_tai_ns > 0 {
            return Ok((kept.number, kept.stamp_tai_ns));
        }
    }
    Ok((0, 0))
}
