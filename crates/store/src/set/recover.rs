//! Mends a run that broke off: each of its files, then the master.

use super::master::{FileEntry, Master, State};
use super::plan::{canonical, hidden_parts_beside, part_info, parts_beside};
use super::stretch::{share, there, unbroken};
use crate::StoreError;
use crate::layout::{self, folder};
use crate::nvme::Target;
use crate::read::Recording;
use crate::recover::{self as file, Others, Progress, Recovered};
use crate::runs::Run;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What [`recover`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveredRun {
    /// Every file, and what was done to it.
    pub files: Vec<Recovered>,
    /// Rows of the run.
    pub rows: u64,
    /// Rows in its files that stand behind a gap on another drive: they stay there, and are no part of the run.
    pub behind_gaps: u64,
    /// Files that were laid out for a part that never began, or that a bounded run had given up, and are removed.
    pub removed: Vec<PathBuf>,
    /// Files of the run that are missing, cannot be read, or belong to another run: nothing is done to them, and the
    /// master says of their parts what it said before.
    pub skipped: Vec<PathBuf>,
}

/// Makes every file of a run that broke off sound, and has the master show them; a recording of one file in the same way.
/// Refused while a program still records. See [`crate::recover`], also for `progress`.
pub fn recover(path: &Path, dry_run: bool, progress: &Progress<'_>) -> Result<RecoveredRun, StoreError> {
    let master = if Target::of(path).is_some() { None } else { Master::read(path)? };
    let Some(mut master) = master else {
        let one = file::recover(path, dry_run, progress)?;
        let rows = one.rows;
        return Ok(RecoveredRun { files: vec![one], rows, ..RecoveredRun::default() });
    };
    let outs = outs(path, &master);
    let unbegun = enter_unlisted(path, &mut master, &outs, progress)?;
    let (mut done, mut begins) = (RecoveredRun::default(), None);
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
        let following = losses_before(path, following, &master.run.run_id);
        let among = Others { taken: &following, begins, filled_elsewhere: false };
        begins = recover_part(path, (&master.run.run_id, part), (dry_run, progress), among, &mut done)?.or(begins);
        first = end;
    }
    done.rows = master.files.iter().map(|entry| entry.rows).sum();
    if !dry_run {
        master.write(path)?;
        remove_others(&master, &outs, unbegun, &mut done)?;
    }
    Ok(done)
}

/// Whether a file is there, and of this run. One that somebody writes to is an error.
fn is_of(file: &Path, run_id: &str) -> Result<bool, StoreError> {
    match Recording::open(file) {
        Ok(recording) => Ok(recording.parts().is_empty() && recording.run().run_id == run_id),
        Err(error @ StoreError::InUse { .. }) => Err(error),
        // A power cut may have left markers that contradict each other, which can be mended.
        Err(_) => Ok(File::open(file)
            .ok()
            .and_then(|open| layout::locate(file, &open).ok())
            .is_some_and(|(run, _)| run.part.is_some() && run.run_id == run_id)),
    }
}

/// Numbers below a part's first row that its losses name: what a drive lost that failed in the part before.
fn losses_before(path: &Path, part: &[FileEntry], run_id: &str) -> Vec<Run> {
    let (mut runs, mut first) = (Vec::new(), u64::MAX);
    for entry in part {
        let Ok(recording) = Recording::open(&resolve(path, &entry.file)) else { continue };
        if recording.run().run_id != run_id {
            continue;
        }
        first = recording.row(0, 0).map_or(first, |row| first.min(row.number));
        runs.extend(recording.losses().unwrap_or_default().iter().map(|l| (l.first, l.first.saturating_add(l.count))));
    }
    runs.iter().map(|run: &Run| (run.0, run.1.min(first))).filter(|run| run.0 < run.1).collect()
}

/// The files of one part, which stand side by side: what one has, the others need not. Returns the number behind its last.
fn recover_part(
    path: &Path,
    (run_id, part): (&str, &mut [FileEntry]),
    (dry_run, progress): (bool, &Progress<'_>),
    among: Others<'_>,
    done: &mut RecoveredRun,
) -> Result<Option<u64>, StoreError> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in &*part {
        let file = resolve(path, &entry.file);
        if is_of(&file, run_id)? { files.push(file) } else { done.skipped.push(file) }
    }
    let all_there = files.len() == part.len();
    let mut numbers: Vec<Vec<Run>> = Vec::new();
    for file in files.iter().filter(|_| files.len() > 1) {
        numbers.push(file::recover(file, true, progress)?.numbers);
    }
    let (mut seen, mut end) = (Vec::new(), None);
    for (index, file) in files.iter().enumerate() {
        let others = numbers.iter().enumerate().filter(|(other, _)| *other != index);
        let taken: Vec<Run> = others.flat_map(|(_, runs)| runs).chain(among.taken).copied().collect();
        // What nobody accounts for may be in a file that is not there.
        let others = Others { taken: &taken, filled_elsewhere: index > 0 || !all_there, ..among };
        let one = file::recover_among(file, dry_run, progress, others)?;
        end = end.max(one.numbers.last().map(|run| run.1));
        seen.push(one.rows);
        done.files.push(one);
    }
    // A drive may only be away: then the master goes on to say what it has.
    if !all_there {
        return Ok(end);
    }
    let listed: Vec<u64> = part.iter().map(|entry| entry.rows).collect();
    let live = part.iter().any(|entry| entry.state == State::Live);
    let rows = if live {
        let (rows, files) = (unbroken(&seen), part.len() as u64);
        (0..files).map(|turn| share(rows, turn, files)).collect()
    } else {
        there(&listed, &seen)
    };
    let of_run = part.iter().zip(&seen).filter(|(entry, _)| entry.state != State::Failed);
    done.behind_gaps += of_run.map(|(_, seen)| seen).sum::<u64>().saturating_sub(
        part.iter().zip(&rows).filter(|(entry, _)| entry.state != State::Failed).map(|(_, rows)| rows).sum(),
    );
    part.iter_mut().zip(&rows).for_each(|(entry, rows)| entry.rows = *rows);
    if dry_run {
        return Ok(end);
    }
    let (mut first, mut last) = (u64::MAX, 0);
    for (entry, file) in part.iter_mut().zip(&files) {
        let recording = Recording::open(file)?;
        if entry.state != State::Failed {
            entry.state = State::Ended;
            entry.losses = recording.losses()?.len() as u64;
        }
        if entry.rows > 0 {
            first = first.min(recording.row(0, 0)?.number);
            last = last.max(recording.row(entry.rows - 1, 0)?.number);
        }
    }
    if live || rows != listed {
        part.iter_mut().for_each(|entry| (entry.first, entry.last) = (first.min(last), last));
    }
    Ok(end)
}

/// The names after which the files of a run are named, one for each drive.
fn outs(path: &Path, master: &Master) -> BTreeSet<PathBuf> {
    let mut outs = BTreeSet::new();
    for entry in &master.files {
        let file = resolve(path, &entry.file);
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((stem, _)) = stem.rsplit_once(&format!("-{:05}", entry.part)) else { continue };
        let ending = file.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
        outs.insert(file.with_file_name(format!("{stem}{ending}")));
    }
    outs
}

/// Parts behind the last one of which the master knows: those that have something are entered. Returns the others.
fn enter_unlisted(
    path: &Path,
    master: &mut Master,
    outs: &BTreeSet<PathBuf>,
    progress: &Progress<'_>,
) -> Result<Vec<PathBuf>, StoreError> {
    let Some(newest) = master.files.last().map(|entry| entry.part) else { return Ok(Vec::new()) };
    let mut parts: BTreeMap<u32, Vec<(FileEntry, PathBuf)>> = BTreeMap::new();
    for out in outs {
        for (_, file) in parts_beside(out)? {
            let Some(place) = part_info(&file, &master.run.run_id).filter(|place| place.part > newest) else {
                continue;
            };
            // Shots may have been written while their rows were held back.
            let rows = file::recover(&file, true, progress)?.rows;
            let (own, name) = (canonical(folder(&file)), file.file_name().unwrap_or_default());
            let name = if own == canonical(folder(path)) { PathBuf::from(name) } else { own.join(name) };
            let entry = FileEntry {
                part: place.part,
                stripe: place.stripe,
                state: State::Live,
                rows,
                losses: 0,
                first: 0,
                last: 0,
                bytes: file.metadata().map_or(0, |metadata| metadata.len()),
                file: name.to_string_lossy().into_owned(),
            };
            parts.entry(place.part).or_default().push((entry, file));
        }
    }
    let mut unbegun = Vec::new();
    for (_, mut files) in parts {
        files.sort_by_key(|(entry, _)| entry.stripe);
        if files.iter().all(|(entry, _)| entry.rows == 0) {
            unbegun.extend(files.into_iter().map(|(_, file)| file));
        } else {
            master.files.extend(files.into_iter().map(|(entry, _)| entry));
        }
    }
    Ok(unbegun)
}

/// Removes files of this run that are no part of it: laid out ahead without a row, or given up by its bound.
fn remove_others(
    master: &Master,
    outs: &BTreeSet<PathBuf>,
    mut others: Vec<PathBuf>,
    done: &mut RecoveredRun,
) -> Result<(), StoreError> {
    let (run_id, oldest) = (&master.run.run_id, master.files.first().map_or(0, |entry| entry.part));
    for out in outs {
        let given_up = |file: &PathBuf| part_info(file, run_id).is_some_and(|place| place.part < oldest);
        others.extend(parts_beside(out)?.into_iter().map(|(_, file)| file).filter(given_up));
        // What is half laid out cannot be read; what can be, and is not of this run, may be of use to someone.
        let nobodys = |file: &PathBuf| part_info(file, run_id).is_some() || Recording::open(file).is_err();
        let hidden = hidden_parts_beside(out)?.into_iter().map(|(_, file)| file);
        others.extend(hidden.filter(nobodys));
    }
    for file in others.into_iter().filter(|file| !is_held(file)) {
        let failed = |source| StoreError::Create { path: file.clone(), source };
        std::fs::remove_file(&file).map_err(failed)?;
        done.removed.push(file);
    }
    Ok(())
}

/// Whether a program is at it.
fn is_held(file: &Path) -> bool {
    File::open(file).is_ok_and(|open| crate::lock::claim(&open, file).is_err())
}

/// A file of a run by its name in the master: beside it, unless the name is absolute and something is there. HDF5
/// looks in the same places.
pub(crate) fn resolve(master: &Path, name: &str) -> PathBuf {
    let folder = folder(master);
    let named = Path::new(name);
    if named.is_absolute() && !named.exists() {
        return folder.join(named.file_name().unwrap_or_default());
    }
    folder.join(named)
}
