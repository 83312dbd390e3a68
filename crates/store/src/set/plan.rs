//! Names and sizes of the files of a run.

use crate::StoreError;
use crate::confined_path::{has_name, open_regular};
use crate::info::{PartInfo, RunInfo};
use crate::layout::{ALIGN, check_target, folder};
use crate::lock::FileLock;
use crate::master::Master;
use crate::master::interleaving::share;
use crate::nvme::{self, Target};
use crate::recorder::RecorderConfig;
use crate::rows::{COUNTER_BYTES, LOSS_BYTES, RowFormat};
use crate::sys::hdf5::open_same;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shotline_memory::Regions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of parts of a bounded run without a configured part size.
const DEFAULT_PARTS: u64 = 8;
/// Minimum number of parts of a bounded run: one that has ended, one being written and one allocated.
const MIN_PARTS: u64 = 3;

/// Limits of a part: the first limit reached ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roll {
    /// Size of a file in bytes.
    pub bytes: Option<u64>,
    /// Time since the part's first row.
    pub after: Option<Duration>,
    /// Number of rows.
    pub rows: Option<u64>,
}

/// Configuration of a run's files.
#[derive(Clone, Debug)]
pub struct RunRecorderConfig {
    /// One path for each drive. A run of one file has that path. In a run of several the first is the master, and the
    /// parts have numbered names in the folder of each path.
    pub outs: Vec<PathBuf>,
    /// Configuration of each file. Its `rows` are those of the whole run, or of one part if parts end by time only.
    pub recorder: RecorderConfig,
    /// Limits of a part; the default has none.
    pub roll: Roll,
    /// Maximum size of the whole run in bytes, over all drives: the oldest parts are removed.
    pub keep: Option<u64>,
    /// Maximum number of rows of the run, if known.
    pub rows: Option<u64>,
}

impl RunRecorderConfig {
    /// Returns `true` for a run of one file without parts.
    pub fn is_single(&self) -> bool {
        self.outs.len() == 1 && !self.rolls()
    }
    /// Returns `true` if the run has consecutive parts.
    pub fn rolls(&self) -> bool {
        self.roll != Roll::default() || self.keep.is_some()
    }
    /// Returns the path of the master, or of the only file.
    pub fn master(&self) -> &Path {
        &self.outs[0]
    }

    /// Checks that a recording can be created, before anything is written.
    ///
    /// # Errors
    /// Fails if the configuration contradicts itself, or if a path exists and must not be overwritten.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.outs.is_empty() {
            return Err(StoreError::Run("expected a file to record to, found none".into()));
        }
        if let Some(target) = Target::of(self.master()).filter(|_| self.is_single()) {
            return nvme::check(&target, self.recorder.overwrite, self.recorder.serial.as_deref());
        }
        check_target(self.master(), self.recorder.overwrite)?;
        if self.is_single() {
            return Ok(());
        }
        if self.recorder.recycle {
            return Err(StoreError::Run(
                "--recycle is supported for a run of one file only: omit --recycle, or record to one --out without parts".into(),
            ));
        }
        for (drive, out) in self.outs.iter().enumerate() {
            if self.outs[..drive].iter().any(|other| same(other, out)) {
                return Err(StoreError::Run(format!(
                    "{} is named twice: give each drive a file of its own",
                    out.display()
                )));
            }
            check_target(out, true)?;
        }
        self.earlier(Master::read(self.master()).ok().flatten().as_ref()).map(|_| ())
    }

    /// Returns the parts of the run that is replaced. Fails if a file has the name of a part and is not one of that
    /// run.
    fn earlier(&self, master: Option<&Master>) -> Result<Vec<PathBuf>, StoreError> {
        let mut old = Vec::new();
        for out in &self.outs {
            for (_, part) in part_files(out)? {
                check_target(&part, self.recorder.overwrite)?;
                let replaced = |master: &Master| part_info(&part, &master.run.run_id).is_some();
                if !master.is_some_and(replaced) {
                    let source = std::io::Error::other(
                        "it exists, has the name of a part, and does not belong to the run that is replaced: move it away, or choose another name",
                    );
                    return Err(StoreError::Create { path: part, source });
                }
                old.push(part);
            }
        }
        Ok(old)
    }

    /// Returns all files of an earlier run of this name. Fails if they must not be overwritten or are in use. The
    /// master is locked before its parts are listed: until then a recorder may end some and create others.
    pub(super) fn replaced(&self) -> Result<EarlierRun, StoreError> {
        self.check()?;
        let name = self.master();
        let master = match FileLock::exclusive(name) {
            Err(StoreError::Io { source: Errno::NOENT, .. }) => None,
            claimed => Some(claimed?),
        };
        let read = master.as_ref().and_then(|master| Master::read_claimed(master, name).ok().flatten());
        let parts = self.earlier(read.as_ref())?;
        for part in &parts {
            drop(FileLock::exclusive(part)?);
        }
        Ok(EarlierRun { parts, master: master.map(|lock| (name.to_owned(), lock)) })
    }

    /// Returns a warning if two drives are the same file system.
    pub(super) fn shared_drives(&self) -> Option<String> {
        let devices: Vec<_> = self.outs.iter().map(|out| device(folder(out))).collect();
        let (later, first) = (1..devices.len()).find_map(|later| {
            devices[..later].iter().position(|first| *first == devices[later]).map(|first| (later, first))
        })?;
        Some(format!(
            "{} and {} are on one file system: striping over them does not increase throughput",
            self.outs[first].display(),
            self.outs[later].display()
        ))
    }
}

/// The files of an earlier run.
#[derive(Debug)]
pub(super) struct EarlierRun {
    parts: Vec<PathBuf>,
    /// The master with its exclusive lock, if it exists.
    master: Option<(PathBuf, FileLock)>,
}

impl EarlierRun {
    /// Returns the paths of all files.
    pub(super) fn files(&self) -> Vec<&Path> {
        self.parts.iter().chain(self.master.iter().map(|(path, _)| path)).map(PathBuf::as_path).collect()
    }
    /// Returns `true` if a master exists that the new one replaces.
    pub(super) fn has_master(&self) -> bool {
        self.master.is_some()
    }
    /// Removes the parts. The master stays and reserves the name until the new one replaces it.
    pub(super) fn clear_parts(&self) -> Result<(), StoreError> {
        self.parts.iter().try_for_each(|part| remove(part))
    }
    /// Removes the master too, whose parts are removed, if no new one follows.
    pub(super) fn discard(self) {
        let _ = self.master.filter(|(path, lock)| has_name(lock.file(), path)).map(|(path, _)| remove(&path));
    }
}

fn remove(file: &Path) -> Result<(), StoreError> {
    std::fs::remove_file(file).map_err(|source| StoreError::Create { path: file.to_owned(), source })
}

/// Names and sizes of the files of one run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) config: RunRecorderConfig,
    pub(super) run: RunInfo,
    pub(super) regions: Regions,
    /// Rows of a part, over all its files.
    pub(super) part_rows: u64,
}

impl Plan {
    pub(super) fn new(config: &RunRecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let drives = config.outs.len() as u64;
        let mut rows = config.recorder.rows;
        if config.rolls() {
            let by_bound = config.keep.filter(|_| config.roll.rows.is_none()).map(|keep| keep / DEFAULT_PARTS / drives);
            let file_bytes = config.roll.bytes.or(by_bound);
            let by_size = match file_bytes {
                Some(bytes) => Some(drives * rows_within(run, bytes)?),
                None => None,
            };
            let sizes = [config.roll.rows, by_size].into_iter().flatten();
            rows = sizes.min().unwrap_or(rows).max(1);
        }
        let plan = Self { config: config.clone(), run: run.clone(), regions: regions.clone(), part_rows: rows };
        plan.check_bound()?;
        Ok(plan)
    }

    /// Fails if a drive has too little free space for a first part of `rows` rows, or for its share of a bounded run.
    /// `replaced` are files that are removed first.
    pub(super) fn check_space(&self, rows: u64, replaced: &[&Path]) -> Result<(), StoreError> {
        let drives = self.drives() as u64;
        let row: u64 = self.run.links.iter().map(|link| u64::from(link.geometry.slot_bytes())).sum();
        let devices: Vec<_> = self.config.outs.iter().map(|out| device(folder(out))).collect();
        for (drive, out) in self.config.outs.iter().enumerate() {
            // Drives on the same file system share its free space.
            let here =
                |of: u64| devices[of as usize] == devices[drive] && (of == drive as u64 || devices[drive].is_some());
            let on_drive =
                |all: u64| -> u64 { (0..drives).filter(|of| here(*of)).map(|of| share(all, of, drives)).sum() };
            let freed = replaced.iter().filter_map(|file| rustix::fs::stat(*file).ok());
            let freed = freed.filter(|stat| Some(stat.st_dev) == devices[drive] && stat.st_nlink == 1);
            let freed: u64 = freed.map(|stat| stat.st_blocks as u64 * 512).sum();
            let free = rustix::fs::statvfs(folder(out)).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize);
            let free = free.saturating_add(freed);
            let (rows, needed) = (on_drive(rows), on_drive(rows).saturating_mul(row));
            if free < needed {
                return Err(StoreError::NoSpace { path: out.clone(), rows, needed, free });
            }
            let share = self.config.keep.map_or(0, on_drive);
            if free < share {
                return Err(StoreError::KeepNoSpace { path: out.clone(), share, free });
            }
        }
        Ok(())
    }

    /// Fails if the bound is too small for the minimum number of parts.
    fn check_bound(&self) -> Result<(), StoreError> {
        let Some(keep) = self.config.keep else { return Ok(()) };
        let min_bytes = MIN_PARTS * self.part_bound(self.part_rows) + self.spare();
        if keep < min_bytes { Err(StoreError::BoundTooSmall { keep, min_bytes }) } else { Ok(()) }
    }

    pub(super) fn drives(&self) -> usize {
        self.config.outs.len()
    }

    /// Returns the path of a file of the run.
    pub(super) fn path(&self, part: u32, drive: usize) -> PathBuf {
        let out = &self.config.outs[drive];
        let stem = out.file_stem().unwrap_or_default().to_string_lossy();
        let stripe = if self.drives() > 1 { format!("-s{drive}") } else { String::new() };
        let extension =
            out.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
        out.with_file_name(format!("{stem}-{part:05}{stripe}{extension}"))
    }

    /// Returns a file's name in the master: relative if both are in one folder, so that the folder can be moved.
    pub(super) fn name(&self, part: u32, drive: usize) -> String {
        let path = self.path(part, drive);
        let (own, master) = (canonical(folder(&path)), canonical(folder(self.config.master())));
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        if own == master { name } else { own.join(name) }.to_string_lossy().into_owned()
    }

    /// Returns the metadata of a file. `stale_to` is the highest shot number removed before it was created.
    pub(super) fn info(&self, part: u32, drive: usize, stale_to: Option<u64>) -> RunInfo {
        let position = PartInfo { part, stripe: drive as u32, stripes: self.drives() as u32, stale_to };
        RunInfo { part: Some(position), ..self.run.clone() }
    }

    /// Returns an upper bound of the size of a part of `rows` rows, in bytes.
    pub(super) fn part_bound(&self, rows: u64) -> u64 {
        let drives = self.drives() as u64;
        (0..drives).map(|drive| file_bound(&self.run, share(rows, drive, drives).max(1))).sum()
    }

    /// Returns the bytes kept free in a bounded run: ending a part rewrites its tables, and a new master is written
    /// next to the old one.
    pub(super) fn spare(&self) -> u64 {
        let data: u64 = self.run.links.iter().map(|link| u64::from(link.geometry.slot_bytes())).sum();
        self.part_bound(self.part_rows).saturating_sub(data * self.part_rows) + (1 << 20)
    }
}

/// Returns an upper bound of the size of a file of `rows` rows (data, chunk indexes, tables; see `layout`), in bytes.
fn file_bound(run: &RunInfo, rows: u64) -> u64 {
    let links = run.links.len() as u64;
    let data: u64 = run.links.iter().map(|link| u64::from(link.geometry.slot_bytes())).sum();
    // An index has 48 bytes per chunk, in three levels of nodes of up to 12.4 kB.
    let index = rows * links * 50 + links * (40 << 10);
    let chunk = rows.min(1024).next_power_of_two();
    let row = |packets| RowFormat::new(packets, "").bytes() as u64 + 1;
    let tables: u64 = run.links.iter().map(|link| rows.next_multiple_of(chunk) * row(link.geometry.packets())).sum();
    let losses = (rows * links).clamp(256, 1 << 18).next_multiple_of(256) * LOSS_BYTES as u64;
    let counters = 256 * COUNTER_BYTES as u64;
    let head = (128 << 10) + run.config.len() as u64 + run.notes.len() as u64;
    // A compressed run has a row of zeros before the data.
    let rows = rows + u64::from(run.codec.is_some());
    (rows * data + index + tables + losses + counters + head + (96 << 10)).next_multiple_of(ALIGN)
}

/// Returns the maximum number of rows of a file of `bytes` bytes.
fn rows_within(run: &RunInfo, bytes: u64) -> Result<u64, StoreError> {
    let least = file_bound(run, 1);
    if bytes < least {
        return Err(StoreError::Run(format!(
            "a file of {bytes} bytes holds no shot: one needs {least}; give larger parts (--roll-size, or --keep)"
        )));
    }
    let data: u64 = run.links.iter().map(|link| u64::from(link.geometry.slot_bytes())).sum();
    let (mut holds, mut too_many) = (1, bytes / data.max(1) + 1);
    while too_many - holds > 1 {
        let middle = holds + (too_many - holds) / 2;
        if file_bound(run, middle) <= bytes { holds = middle } else { too_many = middle }
    }
    Ok(holds)
}

/// Returns `true` if two paths of files that may not exist are the same.
fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| folder(path).canonicalize().unwrap_or_else(|_| folder(path).to_owned());
    a.file_name() == b.file_name() && real(a) == real(b)
}

/// Returns the device number of a folder's file system.
fn device(folder: &Path) -> Option<u64> {
    rustix::fs::stat(folder).ok().map(|stat| stat.st_dev)
}

/// Reads a file's position in the run; `None` if it is not a part, belongs to another run, or cannot be read.
fn part_info(path: &Path, run_id: &str) -> Option<PartInfo> {
    let file = open_regular(path, OFlags::RDONLY).ok()?;
    let run = RunInfo::read(&open_same(&file).ok()?, &file, path).ok()?;
    run.part.filter(|_| run.run_id == run_id)
}

pub(super) fn canonical(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap_or_else(|_| folder.to_owned())
}

/// Lists files that have the name of a part of this run, with the part number in the name.
pub(super) fn part_files(out: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    parts_named(out, |name| Some(name))
}

/// Returns `true` if there are files of parts of a run with this name, or of one that was killed while it began.
///
/// # Errors
/// If the folder cannot be read.
pub fn has_parts(out: &Path) -> Result<bool, StoreError> {
    Ok(!part_files(out)?.is_empty() || !hidden_part_files(out)?.is_empty())
}

/// Lists hidden files of parts that were being allocated when their program was killed.
pub(super) fn hidden_part_files(out: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    parts_named(out, |name| name.strip_prefix('.')?.strip_suffix(".new"))
}

fn parts_named(out: &Path, shown: impl Fn(&str) -> Option<&str>) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let failed = |source| StoreError::Create { path: out.to_owned(), source };
    let (stem, extension) = (out.file_stem().unwrap_or_default(), out.extension());
    let stem = format!("{}-", stem.to_string_lossy());
    let part_of = |path: &Path| {
        let name = Path::new(shown(path.file_name()?.to_str()?)?);
        let rest = name.file_stem()?.to_str()?.strip_prefix(&stem)?;
        let (number, stripe) = rest.split_once("-s").unwrap_or((rest, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let named = name.extension() == extension && number.len() >= 5 && is_number(number) && is_number(stripe);
        number.parse().ok().filter(|_| named)
    };
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder(out)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        parts.extend(part_of(&path).map(|part| (part, path)));
    }
    parts.sort();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::LinkInfo;
    use crate::layout::{CreateOptions, create};
    use shotline_wire::shot::{Geometry, Packing};
    use std::fs::File;

    fn run(links: u32, channels: u16, samples: u32) -> RunInfo {
        let geometry = Geometry::new(channels, samples, 12, Packing::Packed12, 40_000_000).unwrap();
        let link = |stream| LinkInfo { name: format!("link {stream}"), stream, geometry };
        RunInfo::new((0..links).map(link).collect())
    }

    #[test]
    fn file_bound_is_a_tight_upper_bound() {
        let folder = tempfile::tempdir().unwrap();
        for (links, channels, samples) in [(1, 2, 8), (2, 16, 300), (8, 16, 100), (1, 96, 200)] {
            let run = run(links, channels, samples);
            for rows in [1, 2, 100, 1023, 1025, 5000] {
                let path = folder.path().join("a.h5");
                let opened =
                    create(&path, &run, CreateOptions { rows, overwrite: true, ..CreateOptions::default() }).unwrap();
                let (size, bound) = (opened.layout.end, file_bound(&run, rows));
                assert!(size <= bound, "{rows} rows of {links} links: {size} bytes, bound {bound}");
                assert!(
                    bound - size < (1 << 20) + size / 10,
                    "{rows} rows of {links} links: {size} bytes, bound {bound}"
                );
            }
        }
    }

    #[test]
    fn rows_within_returns_the_maximum() {
        let run = run(2, 96, 500);
        let rows = rows_within(&run, 64 << 20).unwrap();
        assert!(file_bound(&run, rows) <= 64 << 20 && file_bound(&run, rows + 1) > 64 << 20, "{rows}");
        assert!(rows_within(&run, 1000).is_err());
    }

    #[test]
    fn parts_are_found_by_their_numbered_names() {
        let folder = tempfile::tempdir().unwrap();
        let of_run = ["run-00000.h5", "run-00001-s3.h5", "run-123456.h5"];
        let others = ["run.h5", "run-0001.h5", "run-00001.hdf", "other-00001.h5", "run-00001-s.h5", "run-x0001.h5"];
        for name in of_run.iter().chain(&others) {
            File::create(folder.path().join(name)).unwrap();
        }
        let found = part_files(&folder.path().join("run.h5")).unwrap();
        let numbers: Vec<u64> = found.iter().map(|(part, _)| *part).collect();
        assert_eq!(numbers, [0, 1, 123_456], "{found:?}");
    }
}
