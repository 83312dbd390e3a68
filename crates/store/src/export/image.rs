//! Byte-for-byte copy of a recording on a raw device ([`crate::nvme`]) to an HDF5 file.

use super::about::{FormatInfo, Losses, OptionKind, Target};
use super::destination::Destination;
use super::error::ExportError;
use super::options::Options;
use super::shots::Shots;
use crate::layout;
use crate::medium::Medium;
use crate::positioned::{ReadAt, write_file};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::path::Path;

pub(super) const ABOUT: FormatInfo = FormatInfo {
    name: "hdf5",
    summary: "The recording as it is, from a raw device",
    extensions: &["h5"],
    option_kind: OptionKind::Nothing,
    target: Target::File,
    losses: &[Losses::Mask],
    feature: None,
};
const FORMAT: &str = ABOUT.name;
/// Bytes copied at a time.
const BLOCK_BYTES: u64 = 8 << 20;

pub(super) fn write(
    shots: &mut Shots<'_>,
    _options: &Options,
    to: &Destination<'_>,
    notes: &mut Vec<String>,
) -> Result<u64, ExportError> {
    let unsupported = |why: &str| ExportError::Unsupported { format: FORMAT, why: why.into() };
    let recording = shots.recording();
    if shots.are_selected() {
        return Err(unsupported("it is copied completely: omit --from, --shots and --links"));
    }
    let source_file =
        recording.on_device().ok_or_else(|| unsupported("the recording is not on a raw device: copy its files"))?;
    let source_layout = &*source_file.layout();
    let draft = to.draft()?;
    let failed = |what: &'static str| ExportError::io(what, to.path);
    let file = File::options().read(true).write(true).create_new(true).open(draft.path()).map_err(failed("create"))?;
    // A lack of space is reported before the copy. File systems without fallocate get a sparse file.
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, source_layout.end) {
        Err(errno @ Errno::NOSPC) => return Err(failed("allocate")(errno.into())),
        _ => file.set_len(source_layout.end).map_err(failed("extend"))?,
    }
    let progress = |done| shots.progress(done, source_layout.end);
    let copy = |range: Range<u64>| copy(&source_file.file, &file, range, &progress, to.path);
    copy(0..source_layout.data_start)?;
    // All rows that the copied header declares visible were written before the header was read.
    let rows = layout::visible_rows(&file, source_layout, recording.path())?;
    let data_end = match source_layout.codec {
        None => source_layout.data_end(rows),
        Some(_) => layout::end_of_chunks(&source_file.file, source_layout, rows, recording.path())?,
    };
    copy(source_layout.data_start..data_end)?;
    copy(source_layout.tail_start().max(data_end)..source_layout.end)?;
    file.sync_all().map_err(failed("flush"))?;
    let is_same = layout::locate(draft.path(), &file).is_ok_and(|(_, layout)| layout == *source_layout);
    let unchanged =
        layout::locate_in(recording.path(), &source_file.file).is_ok_and(|(_, layout)| layout == *source_layout);
    if !is_same || !unchanged || !recording.is_current() {
        return Err(unsupported("the run ended, or was replaced, while it was copied: export it again"));
    }
    shots.count_all()?;
    let bytes = draft.bytes();
    draft.finish()?;
    if shots.recording().final_counters()?.is_none() {
        notes.push(
            "the run continues or was interrupted: the copy has the visible rows (shotline recover finds the others)"
                .into(),
        );
    }
    Ok(bytes)
}

fn copy(
    from: &Medium,
    to: &File,
    range: Range<u64>,
    progress: &dyn Fn(u64) -> ControlFlow<()>,
    name: &Path,
) -> Result<(), ExportError> {
    let mut block = vec![0; BLOCK_BYTES.min(range.end.saturating_sub(range.start)) as usize];
    let mut at = range.start;
    while at < range.end {
        if progress(at).is_break() {
            return Err(ExportError::Stopped);
        }
        let count = block.len().min((range.end - at) as usize);
        if from.read_at(at, &mut block[..count]) < count {
            let source = std::io::Error::from(Errno::IO);
            return Err(ExportError::Io { what: "read the source of", path: name.to_owned(), source });
        }
        write_file(to, at, &block[..count]).map_err(|errno| ExportError::io("write", name)(errno.into()))?;
        at += count as u64;
    }
    Ok(())
}
