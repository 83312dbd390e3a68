//! Recovery of an interrupted recording, shot by shot.
//!
//! A kill, a crash or a power cut interrupts a run. The file stays readable, but without `--durable` a power cut may
//! have lost any part of the data that was not synced: rows whose slots are incomplete, torn rows, complete shots that
//! no marker shows. [`recover`] examines every row, and those after the last one, and reports which shots are complete:
//!
//! - a row is valid if its CRC holds, and its shot is complete if the CRC of the end-of-shot record holds over it, or,
//!   without a record, the CRC in the row (`examine`);
//! - a shot whose record holds is complete even if its row is not: the row is rebuilt. This excludes a recycled
//!   file, whose slots hold shots of an older run; in a file that reuses an earlier part of the same run it applies to
//!   shots of higher numbers only;
//! - everything else becomes a row of state lost, with zeros and the cause `power_cut`, and numbers that are then in no
//!   row are losses of that cause (`account`).
//!
//! No slot is moved, every step is idempotent, and each is durable before the next, so a power cut during recovery is
//! harmless.

mod account;
mod examine;
mod recovered;

use crate::StoreError;
use crate::info::RunInfo;
use crate::layout::{self, Contents, Opened};
use crate::rows::{self, LOSS_BYTES};
use crate::shot::Loss;
pub(crate) use account::SiblingFiles;
use account::{Accounting, RowChange};
use examine::Examiner;
pub use recovered::{Change, Recovered};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Mutex;

/// Rows per block, which is examined by all threads.
const BLOCK_ROWS: u64 = 256;
/// Number of consecutive empty rows after the last marker that ends the search. No recorder has more writes in flight.
const MAX_EMPTY_ROWS: u64 = 4096;

/// Progress callback: number of rows examined, and an estimate of the total.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Repairs an interrupted recording of one file and truncates it to its shots.
///
/// # Errors
/// Fails with [`StoreError::InUse`] while a program still records it.
pub fn recover(path: &Path, dry_run: bool, progress: &Progress<'_>) -> Result<Recovered, StoreError> {
    let (run, mut opened) = layout::open(path)?;
    recover_among(&run, &mut opened, dry_run, progress, SiblingFiles::default())
}

/// Like [`recover`], for an open file of a run of several.
pub(crate) fn recover_among(
    run: &RunInfo,
    opened: &mut Opened,
    dry_run: bool,
    progress: &Progress<'_>,
    mut siblings: SiblingFiles<'_>,
) -> Result<Recovered, StoreError> {
    let path = &opened.path.clone();
    if run.by_stamp {
        return Err(StoreError::format(
            path,
            "its rows join shots by timestamp, and recovery needs rows of one shot number; read the file as it is: every visible row is valid",
        ));
    }
    // A number that is missing on one of several drives may be on another.
    siblings.skip_gaps |= siblings.taken.is_empty() && run.part.is_some_and(|part| part.stripes > 1);
    let (visible, max_visible) = visible_rows(opened)?;
    let losses = old_losses(opened)?;
    let account = examine_rows(run, opened, (visible, &losses), siblings, progress)?;
    let counters = opened.table_bytes(opened.layout.counters)?;
    let allocated_rows = opened.layout.rows;
    let mut plan = account.end(run, losses, siblings);
    let recovered = &mut plan.recovered;
    recovered.path = path.to_owned();
    recovered.dry_run = dry_run;
    recovered.rows_before = visible;
    recovered.released_rows = allocated_rows - recovered.rows;
    recovered.losses = plan.losses.len() as u64;
    // The counters describe the unrepaired file: if it changes they are removed, and the run reads as interrupted.
    let rows = recovered.rows;
    let unchanged = plan.changes.is_empty() && (rows, rows) == (visible, max_visible) && !plan.losses_changed;
    let truncated = rows < allocated_rows || opened.file.bytes() > opened.layout.end;
    let changes = [(!unchanged, Change::Repaired), (truncated, Change::Truncated)];
    recovered.changes.extend(changes.into_iter().filter(|(applies, _)| *applies).map(|(_, change)| change));
    if dry_run {
        recovered.file_bytes = opened.file.bytes();
        return Ok(plan.recovered);
    }
    let mut bytes = Vec::with_capacity(plan.losses.len() * LOSS_BYTES);
    plan.losses.iter().for_each(|loss| rows::push_loss(loss, &mut bytes));
    repair(opened, &plan.changes, rows, (visible, max_visible)).map_err(StoreError::io("repair", path))?;
    if rows < allocated_rows || !unchanged {
        let data_end = match opened.layout.codec {
            None => opened.layout.data_end(rows),
            Some(_) => layout::end_of_chunks(&opened.file, &opened.layout, rows, path)?,
        };
        let contents = Contents { rows, losses: &bytes, counters: if unchanged { &counters } else { &[] }, data_end };
        let truncate_error =
            layout::finish(&opened.file, &mut opened.layout, contents).map_err(StoreError::io("truncate", path))?;
        truncate_error.map_or(Ok(()), Err).map_err(StoreError::io("truncate", path))?;
    }
    // A run that was interrupted just before its truncation needs nothing else.
    layout::truncate(&opened.file, &opened.layout).map_err(StoreError::io("truncate", path))?;
    plan.recovered.file_bytes = opened.layout.end;
    Ok(plan.recovered)
}

/// Returns the minimum and maximum of the visible rows over all datasets. After a power cut they may differ.
fn visible_rows(opened: &Opened) -> Result<(u64, u64), StoreError> {
    let (mut min, mut max) = (u64::MAX, 0);
    for header in opened.layout.data.iter().map(|data| data.header).chain(opened.layout.row_headers()) {
        let rows = layout::visible(&opened.file, header, &opened.path)?;
        (min, max) = (min.min(rows), max.max(rows));
    }
    Ok((min.min(opened.layout.rows), max))
}

/// Reads the valid entries of `/losses`.
pub(crate) fn old_losses(opened: &Opened) -> Result<Vec<Loss>, StoreError> {
    let bytes = opened.table_bytes(opened.layout.losses)?;
    Ok(bytes.chunks_exact(LOSS_BYTES).filter_map(rows::parse_loss).collect())
}

/// Examines rows in blocks, each block in parallel, and adds them to the accounting in order.
fn examine_rows(
    run: &RunInfo,
    opened: &Opened,
    (visible, losses): (u64, &[Loss]),
    siblings: SiblingFiles<'_>,
    progress: &Progress<'_>,
) -> Result<Accounting, StoreError> {
    let allocated_rows = opened.layout.common_rows;
    let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    let examiners: Vec<_> = (0..threads).map(|_| Mutex::new(Examiner::new(run, opened))).collect();
    let mut account = Accounting::new(run, &opened.layout, losses, siblings);
    let (mut first, mut empty) = (0, 0);
    while first < allocated_rows && (first < visible || empty < MAX_EMPTY_ROWS) {
        progress(first, visible.max(first + BLOCK_ROWS).min(allocated_rows));
        let rows = first..allocated_rows.min(first + BLOCK_ROWS);
        let share = (rows.end - rows.start).div_ceil(threads as u64);
        let block: Vec<Result<Vec<_>, StoreError>> = std::thread::scope(|scope| {
            let part = |index: usize| {
                let start = (rows.start + share * index as u64).min(rows.end);
                let end = (start + share).min(rows.end);
                let examiner = &examiners[index];
                scope.spawn(move || {
                    // Never contended: each thread has its own examiner.
                    let mut examiner = examiner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    (start..end).map(|row| examiner.row(row, row < visible)).collect()
                })
            };
            let parts: Vec<_> = (0..threads).map(part).collect();
            parts.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut row = first;
        for part in block {
            for shots in part? {
                empty = if shots.iter().all(|shot| shot.is_nothing()) { empty + 1 } else { 0 };
                account.row(row, row < visible, shots);
                row += 1;
            }
        }
        first = row;
    }
    progress(first, first);
    Ok(account)
}

/// Writes the changes, each step durable before the next.
fn repair(opened: &Opened, changes: &[RowChange], rows: u64, (visible, max_visible): (u64, u64)) -> Result<(), Errno> {
    let (file, layout) = (&opened.file, &opened.layout);
    if changes.is_empty() && (rows, rows) == (visible, max_visible) {
        return Ok(());
    }
    // Slots of released rows are not touched: after a power cut, a new tail may be there, to which some tables point.
    let kept = changes.iter().filter(|change| change.row < rows);
    for (change, range) in kept.clone().filter_map(|change| Some((change, change.zero.as_ref()?))) {
        if layout.codec.is_some() && range.start == 0 {
            layout::clear_chunk(file, layout, change.row, change.link)?;
            continue;
        }
        // Only uncompressed slots have bytes after the shot.
        let stored = layout::stored(file, layout, change.row, change.link, &opened.path).map_err(|_| Errno::IO)?;
        file.write_all(stored.offset + u64::from(range.start), &vec![0; (range.end - range.start) as usize])?;
    }
    file.sync_data()?;
    for change in kept {
        if let Some(bytes) = &change.table_row {
            file.write_all(layout.shots[change.link].row_offset(change.row), bytes)?;
        }
    }
    file.sync_data()?;
    let mark = |at: u64| file.write_all(at, &rows.to_le_bytes());
    let mark_data = || layout.data.iter().try_for_each(|data| mark(data.header.extent_at));
    if rows < max_visible {
        mark_data()?;
        file.sync_data()?;
    }
    layout.row_headers().try_for_each(|header| mark(header.extent_at))?;
    file.sync_data()?;
    mark_data()?;
    file.sync_data()
}
