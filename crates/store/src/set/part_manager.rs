//! Background thread that manages the parts of a run: it allocates the next part, ends the last one, evicts the oldest
//! parts of a bounded run and reuses their files, and updates the master.

use super::part::Part;
use super::plan::Plan;
use crate::StoreError;
use crate::confined_path::open_regular;
use crate::info;
use crate::layout::{self, folder};
use crate::lock::FileLock;
use crate::master::interleaving::share;
use crate::master::{FileEntry, Master, Removed, State};
use crate::read::Recording;
use crate::recorder::{Recorder, RecorderConfig, Report, WHOLE_RUN};
use crate::rows::{self, push_counter};
use crate::shot::{MAX_LINKS, RunCounters};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Maximum number of distinct warnings; later ones are discarded.
const MAX_WARNINGS: usize = 20;

/// Recorders of a part by drive, and drives on which none could be created.
pub(super) type PartRecorders = (Vec<(usize, Recorder)>, Vec<(usize, StoreError)>);

/// Files of evicted parts that the next part of a bounded run can reuse.
#[derive(Debug, Default)]
pub(super) struct ReusedFiles {
    /// Drives with a file reserved for the part ([`layout::reserve_for_reuse`]).
    drives: Vec<usize>,
    /// Highest shot number that was removed, if any; `None` if rows join shots by timestamp.
    stale_to: Option<u64>,
}

impl ReusedFiles {
    /// Returns the bytes on a drive that are reserved for the part.
    fn bytes(&self, path: &Path, drive: usize) -> u64 {
        if self.drives.contains(&drive) { layout::reusable_bytes(path) } else { 0 }
    }
    /// Removes the reserved file, which the part will not use.
    fn discard(&self, path: &Path, drive: usize) {
        if self.drives.contains(&drive) {
            layout::discard_reusable(path);
        }
    }
}

#[derive(Debug)]
enum Request {
    LayOut { part: u32, drives: Vec<usize>, rows: u64 },
    Settle { part: Box<Part>, next: Option<(u32, Vec<usize>)> },
}

/// Notification from the thread.
#[derive(Debug)]
pub(super) enum Notice {
    /// The next part is allocated, on the drives where that succeeded.
    Ready(u32, PartRecorders),
    /// The master lists this part, so its rows may become visible.
    Listed(u32),
}

/// Handle of the thread, used by the recording thread.
#[derive(Debug)]
pub(super) struct PartManager {
    requests: Sender<Request>,
    notices: Receiver<Notice>,
    thread: JoinHandle<ManagerThread>,
}

impl PartManager {
    pub(super) fn start(manager: ManagerThread) -> Self {
        let (requests, request_rx) = channel();
        let (notify, notices) = channel();
        let thread = std::thread::spawn(move || manager.work(&request_rx, &notify));
        Self { requests, notices, thread }
    }
    /// Requests the next part; [`Notice::Ready`] follows. If the thread has panicked nothing follows, and [`Self::end`]
    /// returns `None`.
    pub(super) fn lay_out(&self, part: u32, drives: Vec<usize>, rows: u64) {
        let _ = self.requests.send(Request::LayOut { part, drives, rows });
    }
    /// Hands over a part whose rows are all visible, and the number and drives of the next; [`Notice::Listed`] follows.
    pub(super) fn settle(&self, part: Part, next: Option<(u32, Vec<usize>)>) {
        let _ = self.requests.send(Request::Settle { part: Box::new(part), next });
    }
    /// Returns the next notification, without blocking.
    pub(super) fn next_notice(&self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }
    /// Returns `true` if the thread has ended, which means that it panicked.
    pub(super) fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }
    /// Ends the thread after its pending requests. Returns its state, `None` if it panicked, and the remaining
    /// notifications.
    pub(super) fn end(self) -> (Option<ManagerThread>, Vec<Notice>) {
        drop(self.requests);
        let manager = self.thread.join().ok();
        (manager, self.notices.try_iter().collect())
    }
}

/// A part that has ended and is not removed.
#[derive(Debug)]
struct EndedPart {
    part: u32,
    numbers: Option<(u64, u64)>,
    highest: Option<u64>,
    shots: [u64; MAX_LINKS],
    report: Report,
}

/// State of the thread: all files of the run that are not being written.
#[derive(Debug)]
pub(super) struct ManagerThread {
    plan: Arc<Plan>,
    master: Master,
    /// Lock on the master that was written last.
    lock: FileLock,
    ended_parts: VecDeque<EndedPart>,
    removed_shots: [u64; MAX_LINKS],
    /// Highest shot number of the removed parts.
    stale_to: Option<u64>,
    /// Number of files that reuse the blocks of evicted parts.
    reused: u64,
    /// Counters of the removed parts.
    removed: Report,
    warnings: Vec<String>,
    /// Error if the last part could not be ended on any drive.
    failure: Option<StoreError>,
}

impl ManagerThread {
    /// Creates the state of a run whose first part is allocated, and writes its master; `replaces` overwrites an old
    /// one.
    pub(super) fn new(plan: Arc<Plan>, drives: &[usize], replaces: bool) -> Result<Self, StoreError> {
        let mut master = Master {
            run: plan.run.clone(),
            stripes: plan.drives() as u32,
            files: Vec::new(),
            removed: Removed::default(),
            counters: Vec::new(),
        };
        add_live_part(&mut master, &plan, 0, drives);
        let lock = master.write(plan.config.master(), replaces)?;
        Ok(Self {
            plan,
            master,
            lock,
            ended_parts: VecDeque::new(),
            removed_shots: [0; MAX_LINKS],
            stale_to: None,
            reused: 0,
            removed: Report::default(),
            warnings: Vec::new(),
            failure: None,
        })
    }

    fn work(mut self, requests: &Receiver<Request>, notices: &Sender<Notice>) -> Self {
        for request in requests {
            let notice = match request {
                Request::LayOut { part, drives, rows } => Some(Notice::Ready(part, self.lay_out(part, &drives, rows))),
                Request::Settle { part, next } => {
                    self.list(&part, next.as_ref());
                    let notice = next.map(|(next, _)| Notice::Listed(next));
                    notice.map(|notice| notices.send(notice));
                    self.end_part(*part);
                    None
                }
            };
            // If the receiver no longer polls, `PartManager::end` returns the notification.
            notice.map(|notice| notices.send(notice));
        }
        self
    }

    /// Allocates a part on every drive with enough free space.
    fn lay_out(&mut self, part: u32, drives: &[usize], rows: u64) -> PartRecorders {
        let mut reused = ReusedFiles::default();
        if let Err(error) = self.free_space(self.plan.part_bound(rows), (part, drives), &mut reused) {
            drives.iter().for_each(|drive| reused.discard(&self.plan.path(part, *drive), *drive));
            return (Vec::new(), vec![(drives.first().copied().unwrap_or(0), error)]);
        }
        reused.stale_to = self.stale_to.filter(|_| !self.plan.run.by_stamp);
        let laid_out = lay_out(&self.plan, (part, drives), rows, &reused);
        self.reused += laid_out.0.iter().filter(|(_, recorder)| recorder.is_recycled()).count() as u64;
        laid_out
    }

    /// Evicts the oldest parts of a bounded run until `needed` bytes more are within the bound. Their files are
    /// reserved for the next part, or removed.
    fn free_space(&mut self, needed: u64, next: (u32, &[usize]), reused: &mut ReusedFiles) -> Result<(), StoreError> {
        let Some(keep) = self.plan.config.keep else { return Ok(()) };
        loop {
            let used: u64 = self.master.files.iter().map(|entry| self.bytes(entry)).sum();
            let total = used + needed + self.plan.spare();
            if total <= keep {
                return Ok(());
            }
            if self.ended_parts.is_empty() {
                return Err(StoreError::BoundTooSmall { keep, min_bytes: total });
            }
            self.evict_oldest_part(next, reused)?;
        }
    }

    fn evict_oldest_part(
        &mut self,
        (next, drives): (u32, &[usize]),
        reused: &mut ReusedFiles,
    ) -> Result<(), StoreError> {
        let Some(oldest) = self.ended_parts.front() else { return Ok(()) };
        let mut master = self.master.clone();
        let (evicted, left) = std::mem::take(&mut master.files).into_iter().partition(|e| e.part == oldest.part);
        let evicted: Vec<FileEntry> = evicted;
        master.files = left;
        let removed = &mut master.removed;
        if let Some((first, last)) = oldest.numbers {
            removed.first = if removed.rows == 0 { first } else { removed.first };
            removed.last = last;
        }
        removed.parts += 1;
        removed.rows += evicted.iter().map(|entry| entry.rows).sum::<u64>();
        // The master is written first, so that it never lists a removed file.
        self.lock = master.write(self.plan.config.master(), true)?;
        let (mut any_evicted, mut failure) = (false, None);
        for entry in evicted {
            let drive = entry.stripe as usize;
            let path = self.plan.path(entry.part, drive);
            let reusable = drives.contains(&drive) && !reused.drives.contains(&drive);
            if reusable && layout::reserve_for_reuse(&path, &self.plan.path(next, drive)).is_ok() {
                reused.drives.push(drive);
                any_evicted = true;
                continue;
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let source = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                    failure = Some(StoreError::Io { what: "remove", path, source });
                }
                _ => any_evicted = true,
            }
        }
        if let Some(failure) = failure.take_if(|_| !any_evicted) {
            // No file of the part was removed, so the master lists it again.
            self.write()?;
            return Err(failure);
        }
        self.master = master;
        if let Some(oldest) = self.ended_parts.pop_front() {
            self.stale_to = self.stale_to.max(oldest.highest);
            self.removed_shots.iter_mut().zip(oldest.shots).for_each(|(all, shots)| *all += shots);
            add(&mut self.removed, &oldest.report);
        }
        failure.map_or(Ok(()), Err)
    }

    fn bytes(&self, entry: &FileEntry) -> u64 {
        bytes_of(&self.plan.path(entry.part, entry.stripe as usize))
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.lock = self.master.write(self.plan.config.master(), true)?;
        Ok(())
    }

    /// Enters the final rows of a part into the master, and the next part as live.
    fn list(&mut self, part: &Part, next: Option<&(u32, Vec<usize>)>) {
        // The files are flushed first: after a power cut no file has fewer rows than the master says.
        for drive in part.stripes.iter().map(|stripe| stripe.drive).chain(part.failed.iter().map(|failed| failed.0)) {
            let path = self.plan.path(part.number, drive);
            if let Err(error) = flush(&path) {
                self.warn(format!("cannot flush {}: {error}; a power cut may lose rows of it", path.display()));
            }
        }
        let losses = |drive: usize| visible_losses(&self.plan.path(part.number, drive));
        let mut stripes: Vec<(usize, State, u64, u64)> =
            part.failed.iter().map(|(drive, rows)| (*drive, State::Failed, *rows, 0)).collect();
        stripes.extend(part.stripes.iter().map(|s| (s.drive, State::Ended, s.recorder.visible(), losses(s.drive))));
        let (first, last) = part.numbers.unwrap_or_default();
        for entry in self.master.files.iter_mut().filter(|entry| entry.part == part.number) {
            let Some((drive, state, rows, losses)) = stripes.iter().find(|stripe| stripe.0 == entry.stripe as usize)
            else {
                continue;
            };
            let bytes = bytes_of(&self.plan.path(entry.part, *drive));
            *entry = FileEntry { state: *state, rows: *rows, losses: *losses, first, last, bytes, ..entry.clone() };
        }
        if let Some((part, drives)) = next {
            add_live_part(&mut self.master, &self.plan, *part, drives);
        }
        if let Err(error) = self.write() {
            self.warn(format!("{error}; each part is complete without it"));
        }
    }

    /// Ends the files of a part.
    fn end_part(&mut self, part: Part) {
        let mut sum = Report::default();
        let (mut ended, mut failure) = (0, None);
        for stripe in part.stripes {
            let path = self.plan.path(part.number, stripe.drive);
            match stripe.recorder.finish(&RunCounters::default()) {
                Ok(report) => {
                    ended += 1;
                    add(&mut sum, &report);
                    // A warning that applies to every file is reported once, with the name of the run.
                    let of_run = self.plan.config.master().display().to_string();
                    let general = |warning: &String| warning.replace(&path.display().to_string(), &of_run);
                    report.warnings.iter().map(general).for_each(|warning| self.warn(warning));
                    let (losses, bytes) = (visible_losses(&path), bytes_of(&path));
                    let is_it =
                        |entry: &&mut FileEntry| entry.part == part.number && entry.stripe == stripe.drive as u32;
                    if let Some(entry) = self.master.files.iter_mut().find(is_it) {
                        (entry.losses, entry.bytes) = (losses, bytes);
                    }
                }
                Err(error) => {
                    self.warn(format!("a part was not closed: {error}"));
                    failure = Some(error);
                    self.count(&path, u64::MAX, &mut sum);
                }
            }
        }
        for (drive, rows) in part.failed {
            self.count(&self.plan.path(part.number, drive), rows, &mut sum);
        }
        self.failure = failure.filter(|_| ended == 0);
        self.ended_parts.push_back(EndedPart {
            part: part.number,
            numbers: part.numbers,
            highest: part.highest,
            shots: part.shots,
            report: sum,
        });
    }

    /// Counts the visible rows of a file that was not ended.
    fn count(&self, path: &Path, rows: u64, sum: &mut Report) {
        let Ok(recording) = Recording::open(path) else { return };
        let seen = recording.rows().min(rows);
        sum.rows += seen;
        for link in 0..recording.run().links.len() {
            for row in recording.rows_of(link).take(seen as usize).flatten() {
                let count = match row.state {
                    rows::State::Complete => &mut sum.complete,
                    rows::State::Partial => &mut sum.partial,
                    rows::State::Lost => &mut sum.lost,
                };
                *count += 1;
                let failed = row.drops[shotline_wire::shot::DropCause::SinkError as usize] > 0;
                sum.sink_error += u64::from(row.state == rows::State::Lost && failed);
            }
        }
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Ends the run with its last part, and writes the counters into the master.
    pub(super) fn end(mut self, part: Part, counters: &RunCounters) -> Result<(Report, Removed), StoreError> {
        self.list(&part, None);
        self.end_part(part);
        let mut report = Report { path: self.plan.config.master().to_owned(), ..Report::default() };
        self.ended_parts.iter().for_each(|ended| add(&mut report, &ended.report));
        report.warnings = std::mem::take(&mut self.warnings);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for stream in &counters.streams {
            for (name, value) in stream.entries() {
                push_counter(stream.stream, &name, value, &mut self.master.counters);
            }
        }
        for (link, shots) in self.plan.run.links.iter().zip(self.removed_shots).filter(|(_, shots)| *shots > 0) {
            push_counter(link.stream, REMOVED_SHOTS, shots, &mut self.master.counters);
        }
        let removed = self.master.removed;
        let totals = [
            ("rows", report.rows),
            ("rows_complete", report.complete),
            ("rows_partial", report.partial),
            ("rows_lost", report.lost),
            ("rows_sink_error", report.sink_error),
            ("bytes_written", report.bytes),
            ("parts", self.ended_parts.len() as u64),
            ("ring_removed_parts", removed.parts),
            ("ring_removed_rows", removed.rows),
            ("ring_removed_first", removed.first),
            ("ring_removed_last", removed.last),
            ("ring_reused_files", self.reused),
            ("finished_tai_ns", info::now_tai_ns()),
        ];
        let shown = totals.into_iter().filter(|(name, _)| removed.parts > 0 || !name.starts_with("ring_"));
        shown.for_each(|(name, value)| push_counter(WHOLE_RUN, name, value, &mut self.master.counters));
        if let Some(chunks) = report.chunks {
            let stored = chunks.entries().into_iter();
            stored.for_each(|(name, value)| push_counter(WHOLE_RUN, name, value, &mut self.master.counters));
        }
        self.write()?;
        // The report includes the parts that were recorded and removed since.
        add(&mut report, &self.removed);
        let files: u64 = self.master.files.iter().map(|entry| self.bytes(entry)).sum();
        report.file_bytes = files + bytes_of(self.plan.config.master());
        Ok((report, removed))
    }
}

/// Lists a part that is about to be written as live.
fn add_live_part(master: &mut Master, plan: &Plan, part: u32, drives: &[usize]) {
    for drive in drives {
        master.files.push(FileEntry {
            part,
            stripe: *drive as u32,
            state: State::Live,
            rows: 0,
            losses: 0,
            first: 0,
            last: 0,
            bytes: 0,
            file: plan.name(part, *drive),
        });
    }
}

/// Name of a stream's counter of shots that were recorded in parts removed since.
pub(crate) const REMOVED_SHOTS: &str = "ring_removed_shots";

/// Allocates a part on these drives.
pub(super) fn lay_out(plan: &Plan, (part, drives): (u32, &[usize]), rows: u64, reused: &ReusedFiles) -> PartRecorders {
    let (mut recorders, mut refused) = (Vec::new(), Vec::new());
    for (turn, drive) in (0..).zip(drives) {
        let path = plan.path(part, *drive);
        // `Plan::check_space` covers the first part. Later ones leave space to end the parts and to write the master.
        let needed = plan.part_bound(rows) / drives.len() as u64 + plan.spare();
        let free = rustix::fs::statvfs(folder(&path)).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize);
        let free = free.saturating_add(reused.bytes(&path, *drive));
        if part > 0 && free < needed {
            reused.discard(&path, *drive);
            refused.push((*drive, StoreError::NoSpace { path, rows, needed, free }));
            continue;
        }
        let rows = share(rows, turn, drives.len() as u64).max(1);
        // Files of an earlier run are removed by now.
        let config = RecorderConfig { rows, overwrite: false, ..plan.config.recorder.clone() };
        let run = plan.info(part, *drive, reused.stale_to);
        match Recorder::create_part(&path, &config, &run, &plan.regions, reused.drives.contains(drive)) {
            Ok(recorder) => recorders.push((*drive, recorder)),
            Err(error) => refused.push((*drive, error)),
        }
    }
    (recorders, refused)
}

fn add(sum: &mut Report, report: &Report) {
    sum.rows += report.rows;
    sum.complete += report.complete;
    sum.partial += report.partial;
    sum.lost += report.lost;
    sum.sink_error += report.sink_error;
    sum.not_zeroed += report.not_zeroed;
    sum.bytes += report.bytes;
    if let Some(chunks) = report.chunks {
        let all = sum.chunks.get_or_insert_default();
        all.compressed += chunks.compressed;
        all.uncompressed += chunks.uncompressed;
        all.bytes_raw += chunks.bytes_raw;
        all.bytes_stored += chunks.bytes_stored;
    }
    for (cause, count) in &report.losses {
        match sum.losses.iter_mut().find(|(name, _)| name == cause) {
            Some((_, all)) => *all += count,
            None => sum.losses.push((cause.clone(), *count)),
        }
    }
}

/// Returns the bytes allocated to a file.
fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.blocks() * 512)
}

/// Flushes a file to its drive. The name may belong to something else by now: opening a FIFO does not block.
fn flush(path: &Path) -> io::Result<()> {
    open_regular(path, OFlags::RDONLY)?.sync_all()
}

/// Returns the number of rows of a file's `/losses`, 0 if the name is no longer a regular file.
fn visible_losses(path: &Path) -> u64 {
    if open_regular(path, OFlags::RDONLY).is_err() {
        return 0;
    }
    hdf5::File::open(path).and_then(|file| file.dataset("losses")).map_or(0, |losses| losses.size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn pipe_in_place_of_a_part_fails_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("run.p0.h5");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(flush(&pipe).unwrap_err().to_string().contains("pipe"));
        assert_eq!(visible_losses(&pipe), 0);
    }
}
