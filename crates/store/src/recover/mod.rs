//! What a recording that broke off holds, shot by shot; and the recording made sound again.
//!
//! A run ends without order by a kill, a crash, or a power cut. The file opens then as it is, but without `--durable` a
//! power cut may have left anything of what was not synced: rows whose slots are not whole, rows that are torn, whole
//! shots that no marker shows. [`recover`] looks at every row and behind the last one, and tells which shots are whole:
//!
//! - a row is as it was written if its own CRC holds, and its shot is whole if the end-of-shot record's CRC holds over
//!   it, or where no record does, the CRC that the row has of it (`examine`);
//! - a shot whose record holds is whole even if its row is not: the row is made again. Not in a recycled file, whose
//!   slots hold shots of an older run; in one that was an earlier part of the same run, only shots of higher
//!   numbers;
//! - what is not whole becomes a row of state lost, with zeros and the cause `power_cut`, and numbers that are then in
//!   no row are losses of that cause (`account`).
//!
//! No slot is moved, every step can be repeated, and each is on the disk before the next, so that a power cut during
//! recovery does no harm.

mod account;
mod examine;
mod recovered;

use crate::StoreError;
use crate::info::RunInfo;
use crate::layout::{self, Contents, Opened};
use crate::rows::{self, LOSS_BYTES};
use crate::shot::Loss;
pub(crate) use account::Others;
use account::{Account, RowChange};
use examine::Examiner;
pub use recovered::{Change, Recovered};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Mutex;

/// Rows that are examined at once, by all threads together.
const BLOCK: u64 = 256;
/// Rows behind the last marker in which nothing was found, after which nothing more is looked for. No recorder has more
/// writes under way.
const NOTHING: u64 = 4096;

/// Is told the rows that were looked at, and an estimate of all.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// Makes a recording of one file that broke off sound, and cuts it to what came. Refused while a program still records it.
pub fn recover(path: &Path, dry_run: bool, progress: &Progress<'_>) -> Result<Recovered, StoreError> {
    let (run, mut opened) = layout::open(path)?;
    recover_among(&run, &mut opened, dry_run, progress, Others::default())
}

/// The same of one file of a run of many, which is open.
pub(crate) fn recover_among(
    run: &RunInfo,
    opened: &mut Opened,
    dry_run: bool,
    progress: &Progress<'_>,
    mut others: Others<'_>,
) -> Result<Recovered, StoreError> {
    let path = &opened.path.clone();
    if run.by_stamp {
        return Err(StoreError::format(
            path,
            "its rows join shots by their stamps, and only rows of one number can be put right: read it as it is, every row that shows is sound",
        ));
    }
    // What one of several drives does not have, another may.
    others.filled_elsewhere |= others.taken.is_empty() && run.part.is_some_and(|part| part.stripes > 1);
    let (visible, most) = visible_rows(opened)?;
    let losses = old_losses(opened)?;
    let account = look(run, opened, (visible, &losses), others, progress)?;
    let books = opened.table_bytes(opened.layout.books)?;
    let laid_out = opened.layout.rows;
    let mut found = account.end(run, losses, others);
    let recovered = &mut found.recovered;
    recovered.path = path.to_owned();
    recovered.dry_run = dry_run;
    recovered.rows_before = visible;
    recovered.shed = laid_out - recovered.rows;
    recovered.losses = found.losses.len() as u64;
    // Books tell of what was there: if that has changed, the run reads as broken off.
    let rows = recovered.rows;
    let as_it_was = found.changes.is_empty() && (rows, rows) == (visible, most) && !found.losses_changed;
    let cut = rows < laid_out || opened.file.bytes() > opened.layout.end;
    let changes = [(!as_it_was, Change::Repaired), (cut, Change::Cut)];
    recovered.changes.extend(changes.into_iter().filter(|(due, _)| *due).map(|(_, change)| change));
    if dry_run {
        recovered.file_bytes = opened.file.bytes();
        return Ok(found.recovered);
    }
    let mut bytes = Vec::with_capacity(found.losses.len() * LOSS_BYTES);
    found.losses.iter().for_each(|loss| rows::push_loss(loss, &mut bytes));
    repair(opened, &found.changes, rows, (visible, most)).map_err(StoreError::io("repair", path))?;
    if rows < laid_out || !as_it_was {
        let data_end = match opened.layout.codec {
            None => opened.layout.data_end(rows),
            Some(_) => layout::end_of_chunks(&opened.file, &opened.layout, rows, path)?,
        };
        let contents = Contents { rows, losses: &bytes, books: if as_it_was { &books } else { &[] }, data_end };
        let uncut = layout::finish(&opened.file, &mut opened.layout, contents).map_err(StoreError::io("cut", path))?;
        uncut.map_or(Ok(()), Err).map_err(StoreError::io("cut", path))?;
    }
    // What broke off just before its cut has nothing else to be done.
    layout::cut(&opened.file, &opened.layout).map_err(StoreError::io("cut", path))?;
    found.recovered.file_bytes = opened.layout.end;
    Ok(found.recovered)
}

/// The fewest rows that a dataset or table shows, and the most. After a power cut they may differ.
fn visible_rows(opened: &Opened) -> Result<(u64, u64), StoreError> {
    let (mut least, mut most) = (u64::MAX, 0);
    for marks in opened.layout.data.iter().map(|data| data.marks).chain(opened.layout.row_marks()) {
        let rows = layout::visible(&opened.file, marks, &opened.path)?;
        (least, most) = (least.min(rows), most.max(rows));
    }
    Ok((least.min(opened.layout.rows), most))
}

/// The entries of `/losses` that can be true.
pub(crate) fn old_losses(opened: &Opened) -> Result<Vec<Loss>, StoreError> {
    let bytes = opened.table_bytes(opened.layout.losses)?;
    Ok(bytes.chunks_exact(LOSS_BYTES).filter_map(rows::parse_loss).collect())
}

/// Examines rows in blocks, each block by all processors, and folds them in order.
fn look(
    run: &RunInfo,
    opened: &Opened,
    (visible, losses): (u64, &[Loss]),
    others: Others<'_>,
    progress: &Progress<'_>,
) -> Result<Account, StoreError> {
    let laid_out = opened.layout.common_rows;
    let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    let examiners: Vec<_> = (0..threads).map(|_| Mutex::new(Examiner::new(run, opened))).collect();
    let mut account = Account::new(run, &opened.layout, losses, others);
    let (mut first, mut nothing) = (0, 0);
    while first < laid_out && (first < visible || nothing < NOTHING) {
        progress(first, visible.max(first + BLOCK).min(laid_out));
        let rows = first..laid_out.min(first + BLOCK);
        let share = (rows.end - rows.start).div_ceil(threads as u64);
        let block: Vec<Result<Vec<_>, StoreError>> = std::thread::scope(|scope| {
            let part = |index: usize| {
                let start = (rows.start + share * index as u64).min(rows.end);
                let end = (start + share).min(rows.end);
                let examiner = &examiners[index];
                scope.spawn(move || {
                    // Each has its own; a lock that is held only here.
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
                nothing = if shots.iter().all(|shot| shot.is_nothing()) { nothing + 1 } else { 0 };
                account.row(row, row < visible, shots);
                row += 1;
            }
        }
        first = row;
    }
    progress(first, first);
    Ok(account)
}

/// Writes what has to change, each step durable before the next.
fn repair(opened: &Opened, changes: &[RowChange], rows: u64, (visible, most): (u64, u64)) -> Result<(), Errno> {
    let (file, layout) = (&opened.file, &opened.layout);
    if changes.is_empty() && (rows, rows) == (visible, most) {
        return Ok(());
    }
    // Slots of rows that are shed are left alone: a new tail may stand there, to which some tables point since a cut.
    let kept = changes.iter().filter(|change| change.row < rows);
    for (change, range) in kept.clone().filter_map(|change| Some((change, change.zero.as_ref()?))) {
        if layout.codec.is_some() && range.start == 0 {
            layout::clear_chunk(file, layout, change.row, change.link)?;
            continue;
        }
        // Bytes behind a shot are in the file only as those of a slot that is stored as it came.
        let stored = layout::stored(file, layout, change.row, change.link, &opened.path).map_err(|_| Errno::IO)?;
        file.write_all(stored.at + u64::from(range.start), &vec![0; (range.end - range.start) as usize])?;
    }
    file.sync_data()?;
    for change in kept {
        if let Some(bytes) = &change.table_row {
            file.write_all(layout.shots[change.link].at(change.row), bytes)?;
        }
    }
    file.sync_data()?;
    let mark = |at: u64| file.write_all(at, &rows.to_le_bytes());
    let mark_data = || layout.data.iter().try_for_each(|data| mark(data.marks.extent_at));
    if rows < most {
        mark_data()?;
        file.sync_data()?;
    }
    layout.row_marks().try_for_each(|marks| mark(marks.extent_at))?;
    file.sync_data()?;
    mark_data()?;
    file.sync_data()
}
