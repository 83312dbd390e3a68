//! What happens to parts beside the recording: a thread lays out the next one, ends the last one, gives up the oldest
//! ones of a bounded run, whose files become the next parts, and keeps the master.

use super::part::Part;
use super::plan::Plan;
use crate::StoreError;
use crate::beneath::open_regular;
use crate::info;
use crate::layout::{self, folder};
use crate::lock::Held;
use crate::master::stretch::share;
use crate::master::{FileEntry, Master, Removed, State};
use crate::read::Recording;
use crate::recorder::{Recorder, RecorderConfig, Report, WHOLE_RUN};
use crate::rows::{self, push_book};
use crate::shot::{Books, MAX_LINKS};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Further ones say nothing new.
const MOST_WARNINGS: usize = 20;

/// Recorders of a part by drive, and drives that could not have one.
pub(super) type LaidOut = (Vec<(usize, Recorder)>, Vec<(usize, StoreError)>);

/// What a bounded run has given up for a part that is to be laid out.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Drives on which a file waits for it ([`layout::bequeath`]).
    drives: Vec<usize>,
    /// The highest number of a shot that was removed, if there is one and each row has one number.
    stale_to: Option<u64>,
}

impl Former {
    /// Bytes of a drive that the part has already.
    fn bytes(&self, path: &Path, drive: usize) -> u64 {
        if self.drives.contains(&drive) { layout::inheritance(path) } else { 0 }
    }
    /// Removes what the part will not use after all.
    fn forgo(&self, path: &Path, drive: usize) {
        if self.drives.contains(&drive) {
            layout::disinherit(path);
        }
    }
}

#[derive(Debug)]
enum Order {
    LayOut { part: u32, drives: Vec<usize>, rows: u64 },
    Settle { part: Box<Part>, next: Option<(u32, Vec<usize>)> },
}

/// What the thread has to tell.
#[derive(Debug)]
pub(super) enum News {
    /// The next part is laid out, as far as it could be.
    Ready(u32, LaidOut),
    /// The master shows this part: its rows may become visible.
    Listed(u32),
}

/// The recording thread's side.
#[derive(Debug)]
pub(super) struct Keeper {
    orders: Sender<Order>,
    news: Receiver<News>,
    thread: JoinHandle<Back>,
}

impl Keeper {
    pub(super) fn start(back: Back) -> Self {
        let (orders, taken) = channel();
        let (told, news) = channel();
        let thread = std::thread::spawn(move || back.work(&taken, &told));
        Self { orders, news, thread }
    }
    /// Asks for the next part; [`News::Ready`] answers. If the thread has panicked nothing ever does, and
    /// [`Self::end`] says so.
    pub(super) fn lay_out(&self, part: u32, drives: Vec<usize>, rows: u64) {
        let _ = self.orders.send(Order::LayOut { part, drives, rows });
    }
    /// Hands over a part all of whose rows are visible, and tells which one follows; [`News::Listed`] answers.
    pub(super) fn settle(&self, part: Part, next: Option<(u32, Vec<usize>)>) {
        let _ = self.orders.send(Order::Settle { part: Box::new(part), next });
    }
    /// What there is to tell.
    pub(super) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
    /// Whether the thread has ended by itself: it must have panicked.
    pub(super) fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }
    /// Ends the thread once it has done all that was asked. Returns what it knows, and what it still had to tell.
    pub(super) fn end(self) -> (Option<Back>, Vec<News>) {
        drop(self.orders);
        let back = self.thread.join().ok();
        (back, self.news.try_iter().collect())
    }
}

/// A part that has ended.
#[derive(Debug)]
struct Kept {
    part: u32,
    numbers: Option<(u64, u64)>,
    highest: Option<u64>,
    shots: [u64; MAX_LINKS],
    report: Report,
}

/// Everything about the files of a run that are not being written.
#[derive(Debug)]
pub(super) struct Back {
    plan: Arc<Plan>,
    master: Master,
    /// The lock on the master that was written last.
    held: Held,
    kept: VecDeque<Kept>,
    removed_shots: [u64; MAX_LINKS],
    /// The highest number of a shot of the parts that were removed.
    stale_to: Option<u64>,
    /// Files that were laid out in those of earlier parts.
    reused: u64,
    /// Counts of the parts that were removed.
    removed: Report,
    warnings: Vec<String>,
    /// Why the last part could not be ended on any drive.
    failure: Option<StoreError>,
}

impl Back {
    /// For a run whose first part is laid out; writes its master, in the place of another if it `replaces` one.
    pub(super) fn new(plan: Arc<Plan>, drives: &[usize], replaces: bool) -> Result<Self, StoreError> {
        let mut master = Master {
            run: plan.run.clone(),
            stripes: plan.drives() as u32,
            files: Vec::new(),
            removed: Removed::default(),
            books: Vec::new(),
        };
        begin(&mut master, &plan, 0, drives);
        let held = master.write(plan.config.master(), replaces)?;
        Ok(Self {
            plan,
            master,
            held,
            kept: VecDeque::new(),
            removed_shots: [0; MAX_LINKS],
            stale_to: None,
            reused: 0,
            removed: Report::default(),
            warnings: Vec::new(),
            failure: None,
        })
    }

    fn work(mut self, orders: &Receiver<Order>, news: &Sender<News>) -> Self {
        for order in orders {
            let told = match order {
                Order::LayOut { part, drives, rows } => Some(News::Ready(part, self.lay_out(part, &drives, rows))),
                Order::Settle { part, next } => {
                    self.list(&part, next.as_ref());
                    let told = next.map(|(next, _)| News::Listed(next));
                    told.map(|told| news.send(told));
                    self.end_part(*part);
                    None
                }
            };
            // Whoever does not listen any more finds what was laid out when it ends this thread.
            told.map(|told| news.send(told));
        }
        self
    }

    /// Lays a part out, on every drive that has room.
    fn lay_out(&mut self, part: u32, drives: &[usize], rows: u64) -> LaidOut {
        let mut former = Former::default();
        if let Err(error) = self.make_room(self.plan.part_bound(rows), (part, drives), &mut former) {
            drives.iter().for_each(|drive| former.forgo(&self.plan.path(part, *drive), *drive));
            return (Vec::new(), vec![(drives.first().copied().unwrap_or(0), error)]);
        }
        former.stale_to = self.stale_to.filter(|_| !self.plan.run.by_stamp);
        let laid_out = lay_out(&self.plan, (part, drives), rows, &former);
        self.reused += laid_out.0.iter().filter(|(_, recorder)| recorder.is_recycled()).count() as u64;
        laid_out
    }

    /// Gives the oldest parts of a bounded run up, until so many bytes more are within the bound: for the next part, or to
    /// be removed.
    fn make_room(&mut self, needed: u64, next: (u32, &[usize]), former: &mut Former) -> Result<(), StoreError> {
        let Some(keep) = self.plan.config.keep else { return Ok(()) };
        loop {
            let used: u64 = self.master.files.iter().map(|entry| self.bytes(entry)).sum();
            let least = used + needed + self.plan.spare();
            if least <= keep {
                return Ok(());
            }
            if self.kept.is_empty() {
                return Err(StoreError::Keep { keep, least });
            }
            self.give_up_oldest(next, former)?;
        }
    }

    fn give_up_oldest(&mut self, (next, drives): (u32, &[usize]), former: &mut Former) -> Result<(), StoreError> {
        let Some(oldest) = self.kept.front() else { return Ok(()) };
        let mut master = self.master.clone();
        let (gone, left) = std::mem::take(&mut master.files).into_iter().partition(|e| e.part == oldest.part);
        let gone: Vec<FileEntry> = gone;
        master.files = left;
        let removed = &mut master.removed;
        if let Some((first, last)) = oldest.numbers {
            removed.first = if removed.rows == 0 { first } else { removed.first };
            removed.last = last;
        }
        removed.parts += 1;
        removed.rows += gone.iter().map(|entry| entry.rows).sum::<u64>();
        // The master first: it never shows what is not there.
        self.held = master.write(self.plan.config.master(), true)?;
        let (mut any_gone, mut failure) = (false, None);
        for entry in gone {
            let drive = entry.stripe as usize;
            let path = self.plan.path(entry.part, drive);
            let heir = drives.contains(&drive) && !former.drives.contains(&drive);
            if heir && layout::bequeath(&path, &self.plan.path(next, drive)).is_ok() {
                former.drives.push(drive);
                any_gone = true;
                continue;
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let source = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                    failure = Some(StoreError::Io { what: "remove", path, source });
                }
                _ => any_gone = true,
            }
        }
        if let Some(failure) = failure.take_if(|_| !any_gone) {
            // All of the part is still there, and is shown again.
            self.write()?;
            return Err(failure);
        }
        self.master = master;
        if let Some(oldest) = self.kept.pop_front() {
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
        self.held = self.master.write(self.plan.config.master(), true)?;
        Ok(())
    }

    /// Has the master show exactly the rows of a part, and whatever comes in the next one.
    fn list(&mut self, part: &Part, next: Option<&(u32, Vec<usize>)>) {
        // On the disk first: after a power cut no file has fewer rows than the master says.
        for drive in part.stripes.iter().map(|stripe| stripe.drive).chain(part.failed.iter().map(|failed| failed.0)) {
            let path = self.plan.path(part.number, drive);
            if let Err(error) = flush(&path) {
                self.warn(format!("cannot flush {}: {error}; a power cut may cost rows of it", path.display()));
            }
        }
        let losses = |drive: usize| visible_losses(&self.plan.path(part.number, drive));
        let mut told: Vec<(usize, State, u64, u64)> =
            part.failed.iter().map(|(drive, rows)| (*drive, State::Failed, *rows, 0)).collect();
        told.extend(part.stripes.iter().map(|s| (s.drive, State::Ended, s.recorder.visible(), losses(s.drive))));
        let (first, last) = part.numbers.unwrap_or_default();
        for entry in self.master.files.iter_mut().filter(|entry| entry.part == part.number) {
            let Some((drive, state, rows, losses)) = told.iter().find(|told| told.0 == entry.stripe as usize) else {
                continue;
            };
            let bytes = bytes_of(&self.plan.path(entry.part, *drive));
            *entry = FileEntry { state: *state, rows: *rows, losses: *losses, first, last, bytes, ..entry.clone() };
        }
        if let Some((part, drives)) = next {
            begin(&mut self.master, &self.plan, *part, drives);
        }
        if let Err(error) = self.write() {
            self.warn(format!("{error}; the parts are whole by themselves"));
        }
    }

    /// Ends the files of a part.
    fn end_part(&mut self, part: Part) {
        let mut sum = Report::default();
        let (mut ended, mut failure) = (0, None);
        for stripe in part.stripes {
            let path = self.plan.path(part.number, stripe.drive);
            match stripe.recorder.finish(&Books::default()) {
                Ok(report) => {
                    ended += 1;
                    add(&mut sum, &report);
                    // What holds for every file is said of the first one only.
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
                    self.warn(format!("a part was not ended in order: {error}"));
                    failure = Some(error);
                    self.count(&path, u64::MAX, &mut sum);
                }
            }
        }
        for (drive, rows) in part.failed {
            self.count(&self.plan.path(part.number, drive), rows, &mut sum);
        }
        self.failure = failure.filter(|_| ended == 0);
        self.kept.push_back(Kept {
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
        if self.warnings.len() < MOST_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Ends the run with its last part: the books go into the master.
    pub(super) fn end(mut self, part: Part, books: &Books) -> Result<(Report, Removed), StoreError> {
        self.list(&part, None);
        self.end_part(part);
        let mut report = Report { path: self.plan.config.master().to_owned(), ..Report::default() };
        self.kept.iter().for_each(|kept| add(&mut report, &kept.report));
        report.warnings = std::mem::take(&mut self.warnings);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for stream in &books.streams {
            for (name, value) in stream.entries() {
                push_book(stream.stream, &name, value, &mut self.master.books);
            }
        }
        for (link, shots) in self.plan.run.links.iter().zip(self.removed_shots).filter(|(_, shots)| *shots > 0) {
            push_book(link.stream, REMOVED_SHOTS, shots, &mut self.master.books);
        }
        let removed = self.master.removed;
        let own = [
            ("rows", report.rows),
            ("rows_complete", report.complete),
            ("rows_partial", report.partial),
            ("rows_lost", report.lost),
            ("rows_sink_error", report.sink_error),
            ("bytes_written", report.bytes),
            ("parts", self.kept.len() as u64),
            ("ring_removed_parts", removed.parts),
            ("ring_removed_rows", removed.rows),
            ("ring_removed_first", removed.first),
            ("ring_removed_last", removed.last),
            ("ring_reused_files", self.reused),
            ("finished_tai_ns", info::now_tai_ns()),
        ];
        let told = own.into_iter().filter(|(name, _)| removed.parts > 0 || !name.starts_with("ring_"));
        told.for_each(|(name, value)| push_book(WHOLE_RUN, name, value, &mut self.master.books));
        if let Some(chunks) = report.chunks {
            let stored = chunks.entries().into_iter();
            stored.for_each(|(name, value)| push_book(WHOLE_RUN, name, value, &mut self.master.books));
        }
        self.write()?;
        // The run recorded those too that it has removed since.
        add(&mut report, &self.removed);
        let files: u64 = self.master.files.iter().map(|entry| self.bytes(entry)).sum();
        report.file_bytes = files + bytes_of(self.plan.config.master());
        Ok((report, removed))
    }
}

/// Enters a part that is about to be written.
fn begin(master: &mut Master, plan: &Plan, part: u32, drives: &[usize]) {
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

/// In the books of a stream: shots that were handed to the recorder and are in parts that were removed since.
pub(crate) const REMOVED_SHOTS: &str = "ring_removed_shots";

/// Lays a part out on these drives.
pub(super) fn lay_out(plan: &Plan, (part, drives): (u32, &[usize]), rows: u64, former: &Former) -> LaidOut {
    let (mut recorders, mut refused) = (Vec::new(), Vec::new());
    for (turn, drive) in (0..).zip(drives) {
        let path = plan.path(part, *drive);
        // The first part was looked at with the run. Later ones leave room for what ends the parts, and for the master.
        let needed = plan.part_bound(rows) / drives.len() as u64 + plan.spare();
        let free = rustix::fs::statvfs(folder(&path)).map_or(u64::MAX, |stat| stat.f_bavail * stat.f_frsize);
        let free = free.saturating_add(former.bytes(&path, *drive));
        if part > 0 && free < needed {
            former.forgo(&path, *drive);
            refused.push((*drive, StoreError::NoSpace { path, rows, needed, free }));
            continue;
        }
        let rows = share(rows, turn, drives.len() as u64).max(1);
        // What an earlier run left has been removed.
        let config = RecorderConfig { rows, overwrite: false, ..plan.config.recorder.clone() };
        let run = plan.info(part, *drive, former.stale_to);
        match Recorder::create_part(&path, &config, &run, &plan.regions, former.drives.contains(drive)) {
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

/// Bytes that a file takes on its drive.
fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.blocks() * 512)
}

/// Has a file on its drive. Somebody may have put something else in its place meanwhile: a pipe is not waited for.
fn flush(path: &Path) -> io::Result<()> {
    open_regular(path, OFlags::RDONLY)?.sync_all()
}

/// Rows of a file's `/losses`, none where it is no longer a file.
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
    fn a_pipe_in_the_place_of_a_part_is_an_error_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("run.p0.h5");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(flush(&pipe).unwrap_err().to_string().contains("pipe"));
        assert_eq!(visible_losses(&pipe), 0);
    }
}
