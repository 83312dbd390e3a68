//! Recovery of an interrupted run: each of its files, then the master.
//!
//! The contents of a master are untrusted: a file that it names is opened for writing only if it is in a folder that
//! the user chose and its own attributes say that it is this part of this run ([`Files`]). A file that holds a shot is
//! never removed.

use super::files::{Files, NamedFile, Removable, RunFile};
use crate::StoreError;
use crate::layout::{self, Opened};
use crate::lock::FileLock;
use crate::master::interleaving::{file_rows_before_gap, rows_before_gap, share};
use crate::master::{FileEntry, Master, State};
use crate::nvme::Target;
use crate::recover::{self as file, Progress, Recovered, SiblingFiles};
use crate::shot_ranges::ShotRange;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Result of [`recover`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveredRun {
    /// Path of the master; `None` for a recording of one file.
    pub master: Option<PathBuf>,
    /// Nothing was changed; the result describes what recovery would do.
    pub dry_run: bool,
    /// Result for each file.
    #[serde(skip)]
    pub files: Vec<Recovered>,
    /// Number of rows of the run.
    pub rows: u64,
    /// Rows after a gap on another drive: they stay in their files and are not rows of the run.
    pub rows_after_gaps: u64,
    /// The master was rewritten.
    pub rewritten: bool,
    /// Removed files of the run, which hold no shot or are hidden: allocated for a part that never started, or evicted
    /// by a bounded run and reserved for another part.
    pub removed: Vec<PathBuf>,
    /// Other files, left unchanged: evicted parts of a bounded run that still hold shots, and files with the hidden
    /// name of a part that are not known to be of this run.
    pub unchanged: Vec<PathBuf>,
    /// Listed files that are missing, cannot be read, or belong to another run: they are left unchanged, and so are the
    /// master's entries of their parts.
    pub skipped: Vec<PathBuf>,
}

/// Repairs every file of an interrupted run and updates the master; accepts a recording of one file too. Files are
/// searched in the master's folder and the folders of `drives` only. See [`crate::recover`], also for `progress`.
///
/// # Errors
/// Fails with [`StoreError::InUse`] while a program still records.
pub fn recover(
    path: &Path,
    drives: &[PathBuf],
    dry_run: bool,
    progress: &Progress<'_>,
) -> Result<RecoveredRun, StoreError> {
    if Target::of(path).is_some() || Master::read(path)?.is_none() {
        let recovered = file::recover(path, dry_run, progress)?;
        let rows = recovered.rows;
        return Ok(RecoveredRun { files: vec![recovered], rows, dry_run, ..RecoveredRun::default() });
    }
    // Read again under the lock, which keeps other programs from changing the master or the run.
    let claimed = FileLock::exclusive(path)?;
    let master = Master::read_claimed(&claimed, path)?;
    let mut master = master.ok_or_else(|| StoreError::InUse { path: path.to_owned() })?;
    let draft = Master::check_draft(path)?;
    let files = Files::of(path, &master, drives)?;
    let before = master.files.clone();
    let mut unlisted = add_unlisted(&files, &mut master, progress)?;
    let mut done = RecoveredRun {
        master: Some(path.to_owned()),
        dry_run,
        unchanged: unlisted.unchanged,
        ..RecoveredRun::default()
    };
    let (mut min_number, mut part_before) = (None, None);
    let ends: Vec<usize> = master
        .parts()
        .scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        })
        .collect();
    let mut first = 0;
    for end in ends {
        let (part, rest) = master.files[first..].split_at_mut(end - first);
        let following = rest.chunk_by(|a, b| a.part == b.part).next().unwrap_or_default();
        let following = losses_before(&files, following)?;
        // Shot numbers of a part that is neither listed nor found are not losses of this one.
        let number = part.first().map(|entry| entry.part);
        min_number = min_number.filter(|_| number == part_before.map(|before: u32| before + 1));
        part_before = number;
        let siblings = SiblingFiles { taken: &following, min_number, skip_gaps: false };
        let skipped = done.skipped.len();
        let end_number = recover_part(&files, part, (dry_run, progress), siblings, &mut done)?;
        // Shot numbers of a missing file are not losses, so the next part's do not start after them.
        min_number = if done.skipped.len() == skipped { end_number.or(min_number) } else { None };
        first = end;
    }
    done.rows = master.files.iter().map(|entry| entry.rows).sum();
    done.rewritten = master.files != before;
    if done.rewritten {
        done.removed.extend(draft);
    } else if let Some(draft) = draft.and_then(NamedFile::of_master) {
        match files.draft(draft) {
            Ok(removable) => unlisted.remove.push(removable),
            Err(named) => done.unchanged.push(named.path),
        }
    }
    // `write` locks the new master before it renames it.
    let _held = if done.rewritten && !dry_run { Some(master.write(path, true)?) } else { None };
    for removable in unlisted.remove {
        if !dry_run {
            files.remove(&removable)?;
        }
        done.removed.push(removable.named.path);
    }
    Ok(done)
}

/// Returns the losses of a part with numbers below its first row: those of a drive that failed in the previous part.
fn losses_before(files: &Files, part: &[FileEntry]) -> Result<Vec<ShotRange>, StoreError> {
    let (mut ranges, mut first) = (Vec::new(), u64::MAX);
    for entry in part {
        let Some(RunFile { opened, .. }) = files.find(entry)? else { continue };
        if opened.visible_rows()? > 0 {
            first = number(&opened, 0)?.map_or(first, |number| first.min(number));
        }
        ranges.extend(file::old_losses(&opened)?.iter().map(|l| (l.first, l.first.saturating_add(l.count))));
    }
    let below = ranges.iter().map(|range: &ShotRange| (range.0, range.1.min(first)));
    Ok(below.filter(|range| range.0 < range.1).collect())
}

/// Reads the shot number of a row; `None` if the row is invalid.
fn number(opened: &Opened, row: u64) -> Result<Option<u64>, StoreError> {
    let bytes = layout::table_rows(&opened.file, opened.layout.shots[0], row..row + 1, &opened.path)?;
    Ok(opened.layout.formats[0].parse(&bytes).map(|row| row.number))
}

/// Recovers the files of one part, each of which holds a share of the rows. Returns the number after the last shot.
fn recover_part(
    files: &Files,
    part: &mut [FileEntry],
    (dry_run, progress): (bool, &Progress<'_>),
    siblings: SiblingFiles<'_>,
    done: &mut RecoveredRun,
) -> Result<Option<u64>, StoreError> {
    let mut found = Vec::new();
    for entry in &mut *part {
        match files.find(entry)? {
            Some(file) => {
                entry.file.clone_from(&file.name);
                found.push(file);
            }
            None => done.skipped.push(files.listed_path(entry)),
        }
    }
    let all_there = found.len() == part.len();
    let mut numbers: Vec<Vec<ShotRange>> = Vec::new();
    if found.len() > 1 {
        for RunFile { run, opened, .. } in &mut found {
            numbers.push(file::recover_among(run, opened, true, progress, SiblingFiles::default())?.numbers);
        }
    }
    let (mut seen, mut end) = (Vec::new(), None);
    for (index, RunFile { run, opened, .. }) in found.iter_mut().enumerate() {
        let others = numbers.iter().enumerate().filter(|(other, _)| *other != index);
        let taken: Vec<ShotRange> = others.flat_map(|(_, ranges)| ranges).chain(siblings.taken).copied().collect();
        // Numbers that no file accounts for may be in a missing file.
        let siblings = SiblingFiles { taken: &taken, skip_gaps: index > 0 || !all_there, ..siblings };
        let recovered = file::recover_among(run, opened, dry_run, progress, siblings)?;
        end = end.max(recovered.numbers.last().map(|range| range.1));
        seen.push(recovered);
    }
    // A missing drive may only be disconnected: then the master's entries stay.
    if all_there {
        done.rows_after_gaps += update_entries(part, &found, &seen, dry_run)?;
    }
    done.files.extend(seen);
    Ok(end)
}

/// Updates the master's entries of a part to what its files hold. Returns the number of rows after a gap.
fn update_entries(
    part: &mut [FileEntry],
    found: &[RunFile],
    seen: &[Recovered],
    dry_run: bool,
) -> Result<u64, StoreError> {
    let listed: Vec<u64> = part.iter().map(|entry| entry.rows).collect();
    let found_rows: Vec<u64> = seen.iter().map(|recovered| recovered.rows).collect();
    let live = part.iter().any(|entry| entry.state == State::Live);
    let rows = if live {
        let (rows, files) = (rows_before_gap(&found_rows), part.len() as u64);
        (0..files).map(|turn| share(rows, turn, files)).collect()
    } else {
        file_rows_before_gap(&listed, &found_rows)
    };
    let (mut first, mut last, mut after_gap) = (u64::MAX, 0, 0);
    for (index, (entry, recovered)) in part.iter_mut().zip(seen).enumerate() {
        entry.rows = rows[index];
        if entry.state != State::Failed {
            (entry.state, entry.losses) = (State::Ended, recovered.losses);
            after_gap += recovered.rows - entry.rows.min(recovered.rows);
        }
        if entry.rows > 0 && !dry_run {
            first = number(&found[index].opened, 0)?.map_or(first, |number| first.min(number));
            last = number(&found[index].opened, entry.rows - 1)?.map_or(last, |number| last.max(number));
        }
    }
    if live || rows != listed {
        part.iter_mut().for_each(|entry| (entry.first, entry.last) = (first.min(last), last));
    }
    Ok(after_gap)
}

/// Files of a run that its master does not list.
#[derive(Debug, Default)]
struct UnlistedFiles {
    remove: Vec<Removable>,
    unchanged: Vec<PathBuf>,
}

/// Enters unlisted parts that have rows into the master, unless a bounded run had evicted them. Returns the other
/// files.
fn add_unlisted(files: &Files, master: &mut Master, progress: &Progress<'_>) -> Result<UnlistedFiles, StoreError> {
    let mut unlisted = UnlistedFiles::default();
    let listed: BTreeSet<u32> = master.files.iter().map(|entry| entry.part).collect();
    let Some(oldest) = listed.first().copied() else { return Ok(unlisted) };
    let is_listed = |part: u64| u32::try_from(part).is_ok_and(|part| listed.contains(&part));
    let mut parts: BTreeMap<u32, Vec<(FileEntry, Removable)>> = BTreeMap::new();
    for named in files.named()?.into_iter().filter(|named| !is_listed(named.part)) {
        let Some(mut file) = files.open(&named)?.filter(|file| !is_listed(file.position.part.into())) else { continue };
        let RunFile { position, run, opened, name } = &mut file;
        // Shots may have been written before their rows became visible.
        let rows = file::recover_among(run, opened, true, progress, SiblingFiles::default())?.rows;
        let (part, stripe, bytes) = (position.part, position.stripe, opened.file.bytes());
        let file_name = std::mem::take(name);
        let entry =
            FileEntry { part, stripe, state: State::Live, rows, losses: 0, first: 0, last: 0, bytes, file: file_name };
        match part < oldest {
            true if rows > 0 => unlisted.unchanged.push(named.path),
            true => unlisted.remove.push(Removable::part(named, file)),
            false => parts.entry(part).or_default().push((entry, Removable::part(named, file))),
        }
    }
    for (_, mut of_part) in parts {
        of_part.sort_by_key(|(entry, _)| entry.stripe);
        if of_part.iter().all(|(entry, _)| entry.rows == 0) {
            unlisted.remove.extend(of_part.into_iter().map(|(_, removable)| removable));
        } else {
            master.files.extend(of_part.into_iter().map(|(entry, _)| entry));
        }
    }
    master.files.sort_by_key(|entry| (entry.part, entry.stripe));
    for named in files.hidden()? {
        match files.draft(named) {
            Ok(removable) => unlisted.remove.push(removable),
            Err(named) => unlisted.unchanged.push(named.path),
        }
    }
    Ok(unlisted)
}
