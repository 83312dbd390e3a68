//! Mends a run that broke off: each of its files, then the master.
//!
//! A master is a file like any other, and may come from anywhere: no file is opened for writing because it names it, but
//! because it lies in a folder of the user's choice and says of itself that it is this part of this run ([`Files`]).
//! What holds a shot is never removed.

use super::files::{Files, Named, OfRun, Removable};
use crate::StoreError;
use crate::layout::{self, Opened};
use crate::lock::Held;
use crate::master::stretch::{share, there, unbroken};
use crate::master::{FileEntry, Master, State};
use crate::nvme::Target;
use crate::recover::{self as file, Others, Progress, Recovered};
use crate::runs::Run;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What [`recover`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveredRun {
    /// The master; none of a recording of one file.
    pub master: Option<PathBuf>,
    /// Nothing was changed: this is what recovery would do.
    pub dry_run: bool,
    /// Every file, and what was done to it.
    #[serde(skip)]
    pub files: Vec<Recovered>,
    /// Rows of the run.
    pub rows: u64,
    /// Rows in its files that stand behind a gap on another drive: they stay there, and are no part of the run.
    pub behind_gaps: u64,
    /// The master is written anew.
    pub rewritten: bool,
    /// Files of the run that hold no shot, or never got a name, and are removed: laid out for a part that never began, or
    /// given up by a bounded run and about to become another part.
    pub removed: Vec<PathBuf>,
    /// Files beside the run's that are left as they are: parts that a bounded run had given up and that still hold shots,
    /// and what has the hidden name of a part and is not known to be of this run.
    pub left: Vec<PathBuf>,
    /// Files of the run that are missing, cannot be read, or belong to another run: nothing is done to them, and the
    /// master says of their parts what it said before.
    pub skipped: Vec<PathBuf>,
}

/// Makes every file of a run that broke off sound, and has the master show them; a recording of one file in the same way.
/// Files are looked for in the master's folder and in the folders of `drives`, and nowhere else. Refused while a program
/// still records. See [`crate::recover`], also for `progress`.
pub fn recover(
    path: &Path,
    drives: &[PathBuf],
    dry_run: bool,
    progress: &Progress<'_>,
) -> Result<RecoveredRun, StoreError> {
    if Target::of(path).is_some() || Master::read(path)?.is_none() {
        let one = file::recover(path, dry_run, progress)?;
        let rows = one.rows;
        return Ok(RecoveredRun { files: vec![one], rows, dry_run, ..RecoveredRun::default() });
    }
    // Read again under the lock: from here on no other program changes it, or the run.
    let claimed = Held::claim(path)?;
    let master = Master::read_claimed(&claimed, path)?;
    let mut master = master.ok_or_else(|| StoreError::InUse { path: path.to_owned() })?;
    let draft = Master::check_draft(path)?;
    let files = Files::of(path, &master, drives)?;
    let before = master.files.clone();
    let mut others = enter_unlisted(&files, &mut master, progress)?;
    let mut done =
        RecoveredRun { master: Some(path.to_owned()), dry_run, left: others.left, ..RecoveredRun::default() };
    let (mut begins, mut part_before) = (None, None);
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
        // Numbers of a part that is neither listed nor there are not lost, either.
        let number = part.first().map(|entry| entry.part);
        begins = begins.filter(|_| number == part_before.map(|before: u32| before + 1));
        part_before = number;
        let among = Others { taken: &following, begins, filled_elsewhere: false };
        let skipped = done.skipped.len();
        let behind = recover_part(&files, part, (dry_run, progress), among, &mut done)?;
        // Numbers of a file that is not there are not lost: the next part does not begin behind them.
        begins = if done.skipped.len() == skipped { behind.or(begins) } else { None };
        first = end;
    }
    done.rows = master.files.iter().map(|entry| entry.rows).sum();
    done.rewritten = master.files != before;
    if done.rewritten {
        done.removed.extend(draft);
    } else if let Some(draft) = draft.and_then(Named::of_master) {
        match files.draft(draft) {
            Ok(removable) => others.remove.push(removable),
            Err(named) => done.left.push(named.path),
        }
    }
    // The new one is locked before it has the name.
    let _held = if done.rewritten && !dry_run { Some(master.write(path, true)?) } else { None };
    for removable in others.remove {
        if !dry_run {
            files.remove(&removable)?;
        }
        done.removed.push(removable.named.path);
    }
    Ok(done)
}

/// Numbers below a part's first row that its losses name: what a drive lost that failed in the part before.
fn losses_before(files: &Files, part: &[FileEntry]) -> Result<Vec<Run>, StoreError> {
    let (mut runs, mut first) = (Vec::new(), u64::MAX);
    for entry in part {
        let Some(OfRun { opened, .. }) = files.find(entry)? else { continue };
        if opened.visible_rows()? > 0 {
            first = number(&opened, 0)?.map_or(first, |number| first.min(number));
        }
        runs.extend(file::old_losses(&opened)?.iter().map(|l| (l.first, l.first.saturating_add(l.count))));
    }
    Ok(runs.iter().map(|run: &Run| (run.0, run.1.min(first))).filter(|run| run.0 < run.1).collect())
}

/// The shot number of a row; none if the row is not as it was written.
fn number(opened: &Opened, row: u64) -> Result<Option<u64>, StoreError> {
    let bytes = layout::table_rows(&opened.file, opened.layout.shots[0], row..row + 1, &opened.path)?;
    Ok(opened.layout.formats[0].parse(&bytes).map(|row| row.number))
}

/// The files of one part, which stand side by side: what one has, the others need not. Returns the number behind its last.
fn recover_part(
    files: &Files,
    part: &mut [FileEntry],
    (dry_run, progress): (bool, &Progress<'_>),
    among: Others<'_>,
    done: &mut RecoveredRun,
) -> Result<Option<u64>, StoreError> {
    let mut found = Vec::new();
    for entry in &mut *part {
        match files.find(entry)? {
            Some(file) => {
                entry.file.clone_from(&file.name);
                found.push(file);
            }
            None => done.skipped.push(files.said(entry)),
        }
    }
    let all_there = found.len() == part.len();
    let mut numbers: Vec<Vec<Run>> = Vec::new();
    if found.len() > 1 {
        for OfRun { run, opened, .. } in &mut found {
            numbers.push(file::recover_among(run, opened, true, progress, Others::default())?.numbers);
        }
    }
    let (mut seen, mut end) = (Vec::new(), None);
    for (index, OfRun { run, opened, .. }) in found.iter_mut().enumerate() {
        let others = numbers.iter().enumerate().filter(|(other, _)| *other != index);
        let taken: Vec<Run> = others.flat_map(|(_, runs)| runs).chain(among.taken).copied().collect();
        // What nobody accounts for may be in a file that is not there.
        let others = Others { taken: &taken, filled_elsewhere: index > 0 || !all_there, ..among };
        let one = file::recover_among(run, opened, dry_run, progress, others)?;
        end = end.max(one.numbers.last().map(|run| run.1));
        seen.push(one);
    }
    // A drive may only be away: then the master goes on to say what it has.
    if all_there {
        done.behind_gaps += enter(part, &found, &seen, dry_run)?;
    }
    done.files.extend(seen);
    Ok(end)
}

/// Has the master's entries of a part say what its files hold. Returns how many rows stand behind a gap.
fn enter(part: &mut [FileEntry], found: &[OfRun], seen: &[Recovered], dry_run: bool) -> Result<u64, StoreError> {
    let listed: Vec<u64> = part.iter().map(|entry| entry.rows).collect();
    let there_are: Vec<u64> = seen.iter().map(|one| one.rows).collect();
    let live = part.iter().any(|entry| entry.state == State::Live);
    let rows = if live {
        let (rows, files) = (unbroken(&there_are), part.len() as u64);
        (0..files).map(|turn| share(rows, turn, files)).collect()
    } else {
        there(&listed, &there_are)
    };
    let (mut first, mut last, mut all) = (u64::MAX, 0, 0);
    for (index, (entry, one)) in part.iter_mut().zip(seen).enumerate() {
        entry.rows = rows[index];
        if entry.state != State::Failed {
            (entry.state, entry.losses) = (State::Ended, one.losses);
            all += one.rows - entry.rows.min(one.rows);
        }
        if entry.rows > 0 && !dry_run {
            first = number(&found[index].opened, 0)?.map_or(first, |number| first.min(number));
            last = number(&found[index].opened, entry.rows - 1)?.map_or(last, |number| last.max(number));
        }
    }
    if live || rows != listed {
        part.iter_mut().for_each(|entry| (entry.first, entry.last) = (first.min(last), last));
    }
    Ok(all)
}

/// Files that are no part of a run.
#[derive(Debug, Default)]
struct OthersOfRun {
    remove: Vec<Removable>,
    left: Vec<PathBuf>,
}

/// Parts of which the master does not know: those that have something are entered, unless a bounded run had given them up.
/// Returns what else is there.
fn enter_unlisted(files: &Files, master: &mut Master, progress: &Progress<'_>) -> Result<OthersOfRun, StoreError> {
    let mut others = OthersOfRun::default();
    let listed: BTreeSet<u32> = master.files.iter().map(|entry| entry.part).collect();
    let Some(oldest) = listed.first().copied() else { return Ok(others) };
    let is_listed = |part: u64| u32::try_from(part).is_ok_and(|part| listed.contains(&part));
    let mut parts: BTreeMap<u32, Vec<(FileEntry, Removable)>> = BTreeMap::new();
    for named in files.named()?.into_iter().filter(|named| !is_listed(named.part)) {
        let Some(mut file) = files.open(&named)?.filter(|file| !is_listed(file.place.part.into())) else { continue };
        let OfRun { place, run, opened, name } = &mut file;
        // Shots may have been written while their rows were held back.
        let rows = file::recover_among(run, opened, true, progress, Others::default())?.rows;
        let (part, stripe, bytes) = (place.part, place.stripe, opened.file.bytes());
        let file_name = std::mem::take(name);
        let entry =
            FileEntry { part, stripe, state: State::Live, rows, losses: 0, first: 0, last: 0, bytes, file: file_name };
        match part < oldest {
            true if rows > 0 => others.left.push(named.path),
            true => others.remove.push(Removable::part(named, file)),
            false => parts.entry(part).or_default().push((entry, Removable::part(named, file))),
        }
    }
    for (_, mut of_part) in parts {
        of_part.sort_by_key(|(entry, _)| entry.stripe);
        if of_part.iter().all(|(entry, _)| entry.rows == 0) {
            others.remove.extend(of_part.into_iter().map(|(_, removable)| removable));
        } else {
            master.files.extend(of_part.into_iter().map(|(entry, _)| entry));
        }
    }
    master.files.sort_by_key(|entry| (entry.part, entry.stripe));
    for named in files.hidden()? {
        match files.draft(named) {
            Ok(removable) => others.remove.push(removable),
            Err(named) => others.left.push(named.path),
        }
    }
    Ok(others)
}
