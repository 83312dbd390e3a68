//! Export of a recording as a packet capture.

use super::link::{Endpoints, LinkCapture, comment, to_utc};
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

/// Size of an exported capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportedCapture {
    /// Number of packets.
    pub packets: u64,
    /// Size of the file, in bytes.
    pub bytes: u64,
}

/// Writes rows of a recording to a new file as the packets in which they arrived.
///
/// `progress` is called with the rows written and the total; [`ControlFlow::Break`] stops the export. The interface
/// statistics are those of the whole run, if it has ended.
///
/// Headers are not recorded. They are rebuilt with documentation addresses, queue pairs from 0x100 on and queue key
/// 0x11111111, and the capture's comment says so. All packets of a shot have the time at which the kernel received its
/// first packet, or the sender's timestamp if that is unknown. Missing packets are not written; the statistics of each
/// interface (one per link) give their drop causes.
///
/// # Errors
/// [`StoreError::Exists`] if the file exists; otherwise if the framing of the run is unknown, the recording cannot be
/// read or the file cannot be written. The file is not removed then.
pub fn export(
    recording: &Recording,
    rows: Range<u64>,
    path: &Path,
    progress: &dyn Fn(u64, u64) -> ControlFlow<()>,
) -> Result<ExportedCapture, StoreError> {
    let file = File::create_new(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => StoreError::Exists { path: path.to_owned() },
        _ => StoreError::Create { path: path.to_owned(), source },
    })?;
    let failed = |error: std::io::Error| {
        let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        StoreError::Io { what: "write", path: path.to_owned(), source }
    };
    let run = recording.run();
    let comment = comment(run, "addresses, queue pairs, keys and sequence numbers are placeholders");
    let mut writer = Writer::new(file, &run.software, &comment).map_err(failed)?;
    let first = if rows.is_empty() { 0 } else { recording.row(rows.start, 0)?.number };
    let mut links = Vec::new();
    for (index, link) in run.links.iter().enumerate() {
        let capture =
            LinkCapture::new((run, link, index), first, first_stamp(recording, &rows, index)?, Endpoints::default());
        let capture = capture.ok_or_else(|| {
            StoreError::format(recording.path(), format!("expected a known framing, found {:?}", run.framing))
        })?;
        writer.interface(&capture.interface).map_err(failed)?;
        links.push(capture);
    }
    let mut slots = recording.slot_reader();
    let mut exported = ExportedCapture::default();
    for row in rows.clone() {
        for (index, link) in links.iter_mut().enumerate() {
            let entry = recording.row(row, index)?;
            let tai_ns = if entry.arrived_tai_ns > 0 { entry.arrived_tai_ns } else { entry.stamp_tai_ns };
            link.count_shot(
                to_utc(run, tai_ns),
                entry.placed,
                DropCause::ALL.into_iter().zip(entry.drops.map(u64::from)),
            );
            if entry.state == State::Lost {
                continue;
            }
            let bytes = slots.read(row, index)?;
            for packet in (0..entry.packets).filter(|packet| entry.contains(*packet)) {
                let wrote = link
                    .packets
                    .packet(entry.number, packet, bytes, |frame| writer.packet(index as u32, link.time_ns, frame));
                wrote.map_err(failed)?;
                exported.packets += 1;
            }
        }
        if progress(row + 1 - rows.start, rows.end - rows.start).is_break() {
            break;
        }
    }
    let final_counters = recording.final_counters()?.unwrap_or_default();
    let unassigned: Vec<_> = final_counters.totals.into_iter().collect();
    for (index, (link, info)) in links.iter().zip(&run.links).enumerate() {
        let counters = final_counters.counters.streams.iter().find(|counters| counters.stream == info.stream);
        writer.statistics(index as u32, &link.statistics(counters, &unassigned)).map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    Ok(ExportedCapture { bytes: writer.bytes(), ..exported })
}

/// Returns the shot number and timestamp of the first of these rows with a timestamp, or zeros.
fn first_stamp(recording: &Recording, rows: &Range<u64>, link: usize) -> Result<(u64, u64), StoreError> {
    for row in rows.clone() {
        let entry = recording.row(row, link)?;
        if entry.stamp_tai_ns > 0 {
            return Ok((entry.number, entry.stamp_tai_ns));
        }
    }
    Ok((0, 0))
}
