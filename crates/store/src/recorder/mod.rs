//! Records events: shot buffers to their slots, rows to their tables, and then the marker.
//!
//! Call order: [`Recorder::create`]; then [`Recorder::offer`], [`Recorder::loss`] and [`Recorder::poll`] in any
//! order from one thread; then [`Recorder::finish`]. A recorder that is dropped without it leaves a valid file
//! with all committed rows and its full laid-out size, as a killed one does; [`recover`] sheds the rest.

mod commit;

use crate::StoreError;
use crate::info::{self, RunInfo};
use crate::layout::{self, CreateOptions, Opened};
use crate::rows::RowFormat;
use crate::shot::{Books, Event, Loss, MAX_LINKS, ShotMeta};
use crate::sys::ring::{self, Done, Ring};
use arrayvec::ArrayVec;
use commit::Committer;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use shotline_memory::Regions;
use shotline_wire::shot::{DropCause, Drops};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Consecutive failed writes after which there is no point in going on.
const HOPELESS: u32 = 64;
/// The stream number in `/books` of counts that belong to the whole run.
pub const WHOLE_RUN: u32 = u32::MAX;

/// How to record.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Rows to lay out: no run records more.
    pub rows: u64,
    /// Writes under way at once.
    pub in_flight: u32,
    /// Write past the page cache.
    pub direct: bool,
    /// Survive a power cut, not only a kill: data is synced before its rows become visible.
    pub durable: bool,
    /// Replace a file that is there.
    pub overwrite: bool,
    /// Rows become visible at least this often.
    pub commit_every: Duration,
    /// And at the latest after so many.
    pub commit_rows: u64,
}

impl RecorderConfig {
    /// The usual way for `rows` rows.
    pub fn new(rows: u64) -> Self {
        Self {
            rows,
            in_flight: 16,
            direct: true,
            durable: false,
            overwrite: false,
            commit_every: Duration::from_millis(20),
            commit_rows: 1024,
        }
    }
}

/// What has been recorded.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Rows in it.
    pub rows: u64,
    /// Shots of them that are complete.
    pub complete: u64,
    /// Shots that are partial.
    pub partial: u64,
    /// Shots that are lost: of a link that had none, or whose write failed.
    pub lost: u64,
    /// Shots whose write failed (cause `sink_error`).
    pub sink_error: u64,
    /// Of these, shots whose slot could not be zeroed either: their samples may be of any part of the shot.
    pub not_zeroed: u64,
    /// Bytes of slots written.
    pub bytes: u64,
    /// From the first event to the last write.
    pub seconds: f64,
    /// Losses entered with [`Recorder::loss`], in shots by cause.
    pub losses: Vec<(String, u64)>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What did not go as it should, in words.
    pub warnings: Vec<String>,
}

/// One event on its way into the file.
#[derive(Debug)]
struct Pending {
    number: u64,
    writing: u32,
    shots: ArrayVec<Option<(ShotMeta, bool)>, MAX_LINKS>,
}

/// Ends a recorder's [`Recorder::poll`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // The descriptor is ours and open; a full counter is a wake-up too.
        let _ = ring::wake(self.0.as_fd());
    }
}

impl AsRawFd for Waker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Records events into one file. See the module.
#[derive(Debug)]
pub struct Recorder {
    // Before `committer`, so that a dropped recorder waits for its writes before the file is closed.
    ring: Ring,
    committer: Committer,
    formats: Vec<RowFormat>,
    pending: VecDeque<Pending>,
    next_row: u64,
    first_offer: Option<Instant>,
    last_write: Option<Instant>,
    done: Vec<Done>,
    failures: u32,
    last_failure: Option<Errno>,
    losses: Drops,
    report: Report,
}

impl Recorder {
    /// Lays out the file and sets up the ring. Everything that can be refused is refused here. The buffers of
    /// the events to come must be from `regions`.
    pub fn create(path: &Path, config: &RecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let opened = layout::create(path, run, CreateOptions { rows: config.rows, overwrite: config.overwrite })?;
        Self::over(opened, config, run, regions).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }

    fn over(mut opened: Opened, config: &RecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let path = opened.path.clone();
        let mut warnings = std::mem::take(&mut opened.warnings);
        let open = |flags| rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty());
        let file = match if config.direct { open(OFlags::DIRECT) } else { open(OFlags::empty()) } {
            Err(Errno::INVAL) => {
                warnings.push(format!(
                    "the file system of {} has no direct I/O: writing through the page cache, at a fraction of the speed",
                    path.display()
                ));
                open(OFlags::empty())
            }
            other => other,
        }
        .map_err(StoreError::io("open", &path))?;
        let depth = config.in_flight.clamp(run.links.len() as u32, 4096);
        let (ring, refused) = Ring::new(depth, regions, &file.into()).map_err(|source| StoreError::Ring { source })?;
        if let Some(error) = refused {
            let bytes: usize = regions.iter().map(|(_, region)| region.len()).sum();
            warnings.push(format!(
                "cannot register {bytes} bytes of shot buffers with io_uring ({error}): every write pins its pages anew; raise the locked-memory limit (ulimit -l) above that"
            ));
        }
        let formats = opened.layout.formats.clone();
        Ok(Self {
            ring,
            committer: Committer::new(opened, config),
            formats,
            pending: VecDeque::new(),
            next_row: 0,
            first_offer: None,
            last_write: None,
            done: Vec::with_capacity(depth as usize + 2),
            failures: 0,
            last_failure: None,
            losses: Drops::default(),
            report: Report { path, warnings, ..Report::default() },
        })
    }

    /// What could not be had, and what that means.
    pub fn warnings(&self) -> &[String] {
        &self.report.warnings
    }
    /// What has been recorded so far; sizes and times come with [`Self::finish`].
    pub fn so_far(&self) -> &Report {
        &self.report
    }
    /// Rows that can still be offered.
    pub fn remaining(&self) -> u64 {
        self.committer.layout().rows - self.next_row
    }
    /// Rows offered whose data is not in the file yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    /// Rows that readers see.
    pub fn visible(&self) -> u64 {
        self.committer.visible()
    }
    /// Ends [`Self::poll`]'s wait from another thread.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(self.ring.wake_fd()))
    }

    /// Begins to write an event as the next row; gives it back if too many writes are under way, or if every
    /// row that was laid out is taken ([`Self::remaining`]). Its buffers are held until they are written.
    ///
    /// Links without a shot are rows of state lost, and read as zeros.
    #[expect(clippy::result_large_err, reason = "the event itself is what comes back, and it comes back often")]
    pub fn offer(&mut self, event: Event) -> Result<(), Event> {
        let shots = event.shots.iter().take(self.formats.len()).flatten().count();
        if self.remaining() == 0 || shots > self.ring.room() {
            return Err(event);
        }
        self.first_offer.get_or_insert_with(Instant::now);
        let row = self.next_row;
        self.next_row += 1;
        let mut pending = Pending { number: event.number, writing: 0, shots: ArrayVec::new() };
        for (link, shot) in event.shots.into_iter().take(self.formats.len()).enumerate() {
            let Some(shot) = shot else {
                pending.shots.push(None);
                continue;
            };
            let layout = self.committer.layout();
            let (at, len) = (layout.slot(row, link), layout.slots[link].1);
            let fits = shot.buffer.len() >= len;
            let queued = fits && self.ring.write(shot.buffer, len, at, row * MAX_LINKS as u64 + link as u64).is_ok();
            pending.writing += u32::from(queued);
            if !queued {
                self.failed(row, link, Errno::INVAL);
            }
            pending.shots.push(Some((shot.meta, queued)));
        }
        while pending.shots.len() < self.formats.len() {
            pending.shots.push(None);
        }
        self.pending.push_back(pending);
        // What the kernel does not take now stays queued and goes with the next submission; if the ring is gone,
        // that of `poll` says so.
        let _ = self.ring.submit();
        self.enter_ready();
        Ok(())
    }

    /// Enters a run of shots that are in no row, or in a row as lost.
    pub fn loss(&mut self, loss: Loss) {
        self.losses.add(loss.cause, loss.count);
        self.committer.loss(loss);
    }

    /// Reaps completions, waiting at most `wait` for one (none: not at all), and makes rows visible that are
    /// due. Returns the rows whose data got into the file.
    pub fn poll(&mut self, wait: Option<Duration>) -> Result<usize, StoreError> {
        let due = self.committer.due_in();
        let wait = wait.map(|wait| due.map_or(wait, |due| wait.min(due)));
        let before = self.pending.len();
        self.reap(wait)?;
        self.committer.step(&mut self.ring).map_err(StoreError::io("write rows to", &self.report.path))?;
        if self.failures >= HOPELESS {
            let source = self.last_failure.unwrap_or(Errno::IO);
            return Err(StoreError::EveryWriteFails { count: self.failures, path: self.report.path.clone(), source });
        }
        Ok(before - self.pending.len())
    }

    fn reap(&mut self, wait: Option<Duration>) -> Result<(), StoreError> {
        let mut done = std::mem::take(&mut self.done);
        let polled = self.ring.poll(wait, |entry| done.push(entry));
        let mut synced = Ok(());
        for entry in done.drain(..) {
            match entry {
                Done::Write { tag, result } => self.written(tag, result),
                Done::Sync(result) => synced = self.committer.synced(result),
                Done::Woken => {}
            }
        }
        self.done = done;
        self.enter_ready();
        polled.map_err(|source| StoreError::Ring { source })?;
        synced.map_err(StoreError::io("flush", &self.report.path))
    }

    /// Enters the rows at the front whose writes have all ended.
    fn enter_ready(&mut self) {
        while self.pending.front().is_some_and(|row| row.writing == 0) {
            let Some(row) = self.pending.pop_front() else { break };
            self.enter(&row);
        }
    }

    fn written(&mut self, tag: u64, result: Result<(), Errno>) {
        let (row, link) = (tag / MAX_LINKS as u64, (tag % MAX_LINKS as u64) as usize);
        let front = self.next_row - self.pending.len() as u64;
        let layout = self.committer.layout();
        let (at, len) = (layout.slot(row, link), layout.slots[link].1);
        if let Some(pending) = self.pending.get_mut((row - front) as usize) {
            pending.writing -= 1;
            if let (Err(_), Some(Some((_, stored)))) = (result, pending.shots.get_mut(link)) {
                *stored = false;
            }
        }
        match result {
            Ok(()) => {
                self.failures = 0;
                self.report.bytes += u64::from(len);
                self.last_write = Some(Instant::now());
            }
            Err(errno) => {
                self.failed(row, link, errno);
                self.report.not_zeroed += u64::from(self.zero(at, u64::from(len)).is_err());
            }
        }
    }

    /// Part of a failed write may be in the file: take it out again.
    fn zero(&self, at: u64, len: u64) -> Result<(), Errno> {
        let file = self.committer.file();
        let fallocate = |how| rustix::fs::fallocate(file, how | FallocateFlags::KEEP_SIZE, at, len);
        fallocate(FallocateFlags::ZERO_RANGE)
            .or_else(|_| fallocate(FallocateFlags::PUNCH_HOLE))
            .or_else(|_| layout::write_all(file, at, &vec![0; len as usize]))
    }

    /// Counts a shot that is lost with the cause `sink_error`, and describes the first.
    fn failed(&mut self, row: u64, link: usize, errno: Errno) {
        self.failures += 1;
        self.last_failure = Some(errno);
        if self.report.sink_error == 0 {
            let layout = self.committer.layout();
            self.report.warnings.push(format!(
                "cannot write row {row} of link {link} ({} bytes at {}): {errno}; such shots are lost with the cause sink_error",
                layout.slots[link].1,
                layout.slot(row, link),
            ));
        }
        self.report.sink_error += 1;
    }

    /// Appends the rows of an event whose writes have all ended.
    fn enter(&mut self, row: &Pending) {
        for (link, (shot, format)) in row.shots.iter().zip(&self.formats).enumerate() {
            let out = self.committer.stage(link);
            match shot {
                Some((meta, true)) => {
                    format.push(meta, out);
                    let count = if meta.is_complete() { &mut self.report.complete } else { &mut self.report.partial };
                    *count += 1;
                }
                Some((meta, false)) => {
                    format.push_lost(row.number, Some(meta), Some(DropCause::SinkError), out);
                    self.report.lost += 1;
                }
                None => {
                    format.push_lost(row.number, None, None, out);
                    self.report.lost += 1;
                }
            }
        }
        self.committer.entered();
    }

    /// Ends the recording: waits for its writes, makes every row visible, writes losses and books, and cuts the
    /// file behind what came.
    pub fn finish(mut self, books: &Books) -> Result<Report, StoreError> {
        while !self.pending.is_empty() {
            self.reap(Some(Duration::from_secs(1)))?;
        }
        let end = self.last_write.unwrap_or_else(Instant::now);
        self.report.seconds = self.first_offer.map_or(0.0, |first| (end - first).as_secs_f64());
        self.report.rows = self.next_row;
        self.report.losses = self.losses.iter().map(|(cause, count)| (cause.name().to_owned(), count)).collect();
        let mut entries: Vec<(u32, String, u64)> = Vec::new();
        for stream in &books.streams {
            entries.extend(stream.entries().into_iter().map(|(name, value)| (stream.stream, name, value)));
        }
        let report = &self.report;
        let own = [
            ("rows", report.rows),
            ("rows_complete", report.complete),
            ("rows_partial", report.partial),
            ("rows_lost", report.lost),
            ("rows_sink_error", report.sink_error),
            ("bytes_written", report.bytes),
            ("finished_tai_ns", info::now_tai_ns()),
        ];
        entries.extend(own.into_iter().map(|(name, value)| (WHOLE_RUN, name.to_owned(), value)));
        let path = self.report.path.clone();
        let (bytes, uncut) = self.committer.finish(&entries).map_err(StoreError::io("finish", &path))?;
        self.report.file_bytes = bytes;
        if let Some(errno) = uncut {
            self.report.warnings.push(format!(
                "{} is complete but could not be cut to its {} rows: {errno}; it keeps its full size",
                path.display(),
                self.report.rows
            ));
        }
        Ok(self.report)
    }
}

/// What [`recover`] found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Rows that were visible, all of which are kept.
    pub rows: u64,
    /// Rows that had been laid out for more and are given back.
    pub shed: u64,
    /// Bytes of the file now.
    pub file_bytes: u64,
}

/// Cuts a recording that broke off (a kill, a crash) to the rows that were visible. It is valid and readable
/// before and after; only its size changes. Refused while a program still records it.
pub fn recover(path: &Path) -> Result<Recovered, StoreError> {
    let (_, mut opened) = layout::open(path)?;
    if rustix::fs::flock(&opened.file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(StoreError::InUse { path: path.to_owned() });
    }
    let rows = opened.visible_rows()?;
    let laid_out = opened.layout.rows;
    if rows < laid_out {
        let losses = opened.table_bytes(opened.layout.losses)?;
        let books = opened.table_bytes(opened.layout.books)?;
        let contents = layout::Contents { rows, losses: &losses, books: &books };
        let uncut = layout::finish(&opened.file, &mut opened.layout, contents).map_err(StoreError::io("cut", path))?;
        uncut.map_or(Ok(()), Err).map_err(StoreError::io("cut", path))?;
    }
    Ok(Recovered { rows, shed: laid_out - rows, file_bytes: opened.layout.end })
}
