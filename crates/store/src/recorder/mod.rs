//! Recorder of events: writes shot buffers to their slots, rows to their tables, and then the markers that commit them.
//!
//! Call order: [`Recorder::create`]; then [`Recorder::offer`], [`Recorder::loss`] and [`Recorder::poll`] in any
//! order from one thread; then [`Recorder::finish`]. Dropping a recorder without `finish` leaves a valid file of its
//! full allocated size with all committed rows, like `kill -9`; [`recover`](crate::recover::recover) truncates it.

mod commit;
mod compression;
mod config;
mod drives;

use crate::StoreError;
use crate::clocks::{ClockLog, ClockSample};
use crate::info::{self, RunInfo};
use crate::layout::{self, CreateOptions, Opened, StoredChunk};
use crate::rows::{NO_NUMBER, RowFormat, State};
use crate::shot::{Event, Loss, MAX_LINKS, RunCounters, Shot, ShotMeta};
use crate::sys::drive::{Completion, Drive, Wake};
use crate::sys::staged::Staging;
use commit::Committer;
use compression::Compression;
pub use compression::{Chunks, default_threads};
pub use config::RecorderConfig;
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use serde::Serialize;
use shotline_memory::{Buffer, Regions};
use shotline_wire::crc;
use shotline_wire::shot::{DropCause, DropCounters, Geometry};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of consecutive failed writes after which [`Recorder::poll`] fails.
const MAX_CONSECUTIVE_FAILURES: u32 = 64;
/// Queued writes are submitted when they reach this fraction (1/n) of the queue depth, or at the next poll.
const SUBMIT_FRACTION: u32 = 4;
/// Bytes of a shot that are read at a time to compute its CRC.
const SCRATCH_BYTES: u32 = 1 << 15;
/// Stream number in `/counters` of the counters of the whole run.
pub const WHOLE_RUN: u32 = u32::MAX;

/// Report of a recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of rows.
    pub rows: u64,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Lost shots: the link had none, or the write failed.
    pub lost: u64,
    /// Shots whose write failed (cause `sink_error`).
    pub sink_error: u64,
    /// Of these, shots whose slot could not be zeroed: it may hold any part of the shot.
    pub not_zeroed: u64,
    /// Bytes written to slots and chunks.
    pub bytes: u64,
    /// Chunk storage of a compressed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Chunks>,
    /// Seconds from the first event to the last write.
    pub seconds: f64,
    /// Losses recorded with [`Recorder::loss`], in shots by cause.
    pub losses: Vec<(String, u64)>,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Error of a shot that could not be queued.
struct Unwritten;

/// Ends a recorder's [`Recorder::poll`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

impl Waker {
    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        self.0.wake();
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
    // Declared before `committer`: fields drop in order, so the writes end before the file is closed.
    drive: Box<dyn Drive>,
    committer: Committer,
    clocks: Vec<ClockLog>,
    /// Compression, in a run with a codec.
    compression: Option<Compression>,
    formats: Vec<RowFormat>,
    geometries: Vec<Geometry>,
    scratch: Box<[u8]>,
    /// Number of outstanding writes of each offered row that is not complete, oldest first.
    pending: VecDeque<u32>,
    /// Number of queued writes that are not submitted.
    queued: u32,
    /// Number of queued writes that triggers a submission.
    batch: u32,
    next_row: u64,
    first_offer: Option<Instant>,
    last_write: Option<Instant>,
    completions: Vec<Completion>,
    failures: u32,
    last_failure: Option<Errno>,
    losses: DropCounters,
    hold_commits: bool,
    by_stamp: bool,
    report: Report,
}

impl Recorder {
    /// Allocates the file and sets up the drive that writes it. The buffers of later events must be from `regions`.
    ///
    /// # Errors
    /// Fails if any check of the configuration, the run or the target fails; later calls fail only on I/O errors.
    pub fn create(path: &Path, config: &RecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let RecorderConfig { rows, overwrite, recycle, ref serial, .. } = *config;
        let options = CreateOptions { rows, overwrite, recycle, reuse_reserved: false, serial: serial.as_deref() };
        Self::begin(path, config, options, run, regions)
    }

    /// Like [`Self::create`], for a part of a bounded run; `reuse_reserved` uses the file of an evicted one
    /// ([`layout::reserve_for_reuse`]).
    pub(crate) fn create_part(
        path: &Path,
        config: &RecorderConfig,
        run: &RunInfo,
        regions: &Regions,
        reuse_reserved: bool,
    ) -> Result<Self, StoreError> {
        let options = CreateOptions { rows: config.rows, reuse_reserved, ..CreateOptions::default() };
        Self::begin(path, config, options, run, regions)
    }

    fn begin(
        path: &Path,
        config: &RecorderConfig,
        options: CreateOptions<'_>,
        run: &RunInfo,
        regions: &Regions,
    ) -> Result<Self, StoreError> {
        let (opened, pending) = layout::begin(path, run, options)?;
        let recorder = Self::with_layout(opened, config, run, regions)?;
        // Everything that can fail is done, so the old file may be replaced.
        pending.end(path, options.overwrite)?;
        Ok(recorder)
    }

    fn with_layout(
        mut opened: Opened,
        config: &RecorderConfig,
        run: &RunInfo,
        regions: &Regions,
    ) -> Result<Self, StoreError> {
        let path = opened.path.clone();
        let mut warnings = std::mem::take(&mut opened.warnings);
        let depth = config.in_flight.clamp(run.links.len() as u32, 4096);
        let geometries: Vec<_> = run.links.iter().map(|link| link.geometry).collect();
        let out = run.codec.map(|_| compression::output_buffers(config, &geometries, regions)).transpose()?;
        let regions = out.as_ref().map_or(regions, |(_, regions)| regions);
        let slot_bytes = geometries.iter().map(Geometry::slot_bytes).max().unwrap_or(0);
        let staging = Staging::new(regions, depth, slot_bytes)?;
        let regions = staging.as_ref().map_or(regions, Staging::regions);
        let drive: Box<dyn Drive> = match drives::mapped(&opened, warnings.is_empty(), regions) {
            Some(mapped) => Box::new(mapped),
            None => drives::drive(&opened, config.direct, depth, regions, &mut warnings)?,
        };
        let drive = match staging {
            Some(staging) => staging.over(drive),
            None => drive,
        };
        let formats = opened.layout.formats.clone();
        let compression = run
            .codec
            .zip(out)
            .map(|(codec, (out, _))| Compression::start(codec, config, out, &geometries, &opened.layout, &*drive));
        Ok(Self {
            drive,
            clocks: opened.layout.clocks.iter().map(|at| ClockLog::new(*at)).collect(),
            committer: Committer::new(opened, config),
            compression: compression.transpose()?,
            formats,
            geometries,
            scratch: vec![0; SCRATCH_BYTES as usize].into(),
            pending: VecDeque::new(),
            queued: 0,
            batch: (depth / SUBMIT_FRACTION).max(1),
            next_row: 0,
            first_offer: None,
            last_write: None,
            completions: Vec::with_capacity(depth as usize + 2),
            failures: 0,
            last_failure: None,
            losses: DropCounters::default(),
            hold_commits: false,
            by_stamp: run.by_stamp,
            report: Report { path, warnings, ..Report::default() },
        })
    }

    /// Returns the features that are not available, with the consequence of each.
    pub fn warnings(&self) -> &[String] {
        &self.report.warnings
    }
    /// Returns the report so far; [`Self::finish`] adds sizes and times.
    pub fn report(&self) -> &Report {
        &self.report
    }
    /// Returns the number of rows that can still be offered.
    pub fn remaining(&self) -> u64 {
        self.committer.layout().rows - self.next_row
    }
    /// Returns `true` if the file reuses the blocks of an older recording or an evicted part.
    pub(crate) fn is_recycled(&self) -> bool {
        self.committer.layout().recycled
    }
    /// Returns the number of offered rows whose data is not written yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    /// Returns the number of visible rows.
    pub fn visible(&self) -> u64 {
        self.committer.visible()
    }
    /// Stops or resumes making rows visible; shots are written in either case.
    pub fn hold_commits(&mut self, held: bool) {
        self.hold_commits = held;
    }
    /// Returns a handle that ends the wait of [`Self::poll`] from another thread.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(self.drive.wake()))
    }

    /// Starts writing an event as the next row. Its buffers are held until they are written, or compressed in a run
    /// with a codec. A link without a shot gets a row of state lost, which reads as zeros.
    ///
    /// # Errors
    /// Returns the event if too many writes are in flight, or if no row is left ([`Self::remaining`]).
    pub fn offer(&mut self, event: Event) -> Result<(), Event> {
        let links = self.formats.len();
        let shots = event.shots.iter().take(links).flatten().count();
        if self.compression.is_some() {
            self.write_compressed();
        }
        if self.remaining() == 0 || shots > self.drive.available() {
            return Err(event);
        }
        self.first_offer.get_or_insert_with(Instant::now);
        let row = self.next_row;
        self.next_row += 1;
        if self.compression.is_some() {
            self.committer.stage_chunks();
        }
        let mut writing = 0;
        for link in 0..links {
            let Some(Some(Shot { meta, buffer })) = event.shots.get(link) else {
                self.stage_lost(row, link, event.number);
                continue;
            };
            // Cloning the buffer handle is cheaper than moving the whole shot.
            match self.store(row, link, meta, buffer.clone()) {
                Ok(()) => writing += 1,
                Err(Unwritten) => self.fail_shot(row, link, Errno::INVAL),
            }
        }
        self.pending.push_back(writing);
        self.queued += writing;
        if self.queued >= self.batch {
            self.submit();
        }
        if writing == 0 {
            self.complete_ready_rows();
        }
        Ok(())
    }

    /// Stages the row of a link without a shot.
    fn stage_lost(&mut self, row: u64, link: usize, number: u64) {
        let (at, len) = self.committer.layout().slot_of(row, link);
        let number = if self.by_stamp { NO_NUMBER } else { number };
        self.formats[link].push_lost(number, self.committer.stage(link));
        if self.committer.layout().recycled && self.compression.is_none() {
            self.report.not_zeroed += u64::from(self.zero(at, u64::from(len)).is_err());
        }
    }

    /// Submits queued writes. Those that the kernel does not accept now stay queued for the next submission; a
    /// persistent error is returned by [`Self::poll`].
    fn submit(&mut self) {
        self.queued = 0;
        let _ = self.drive.submit();
    }

    /// Stages a shot's row, and passes its bytes to compression or to the drive.
    #[inline]
    fn store(&mut self, row: u64, link: usize, meta: &ShotMeta, mut buffer: Buffer) -> Result<(), Unwritten> {
        let tag = row * MAX_LINKS as u64 + link as u64;
        let (at, len) = self.committer.layout().slot_of(row, link);
        let fits = buffer.len() >= len;
        let crc32 = if fits && !self.has_valid_record(link, meta) { self.crc32(link, &buffer) } else { 0 };
        self.formats[link].push(meta, crc32, self.committer.stage(link));
        if !fits {
            return Err(Unwritten);
        }
        let mut stored = StoredChunk { offset: at, bytes: len, compressed: false };
        if let Some(compression) = &mut self.compression {
            match compression.submit(tag, link, buffer) {
                Ok(()) => return Ok(()),
                Err(back) => buffer = back,
            }
            stored = compression.allocate(None, len);
            *self.committer.chunk(row, link) = stored;
        }
        self.drive.write(buffer, (stored.end() - stored.offset) as u32, stored.offset, tag).map_err(|_| Unwritten)
    }

    /// Queues writes of compressed shots, as many as the drive accepts.
    fn write_compressed(&mut self) {
        let Some(compression) = &mut self.compression else { return };
        while self.drive.available() > 0
            && let Some(completed) = compression.next()
        {
            let (row, link) = (completed.tag / MAX_LINKS as u64, (completed.tag % MAX_LINKS as u64) as usize);
            let stored = compression.allocate(completed.compressed, self.committer.layout().slots[link].1);
            *self.committer.chunk(row, link) = stored;
            let queued =
                self.drive.write(completed.buffer, (stored.end() - stored.offset) as u32, stored.offset, completed.tag);
            queued.expect("the drive has a free slot, as was just checked");
        }
        self.submit();
    }

    /// Records consecutive shots that are in no row, or in a row as lost.
    pub fn loss(&mut self, loss: Loss) {
        self.losses.add(loss.cause, loss.count);
        self.committer.loss(loss);
    }

    /// Records a sample of a link's clock, about once per second. Write errors are ignored.
    pub fn clock(&mut self, link: usize, sample: &ClockSample) {
        if let Some(log) = self.clocks.get_mut(link) {
            let _ = log.push(self.committer.file(), sample);
        }
    }

    /// Reaps completions, blocking for at most `wait` for one (`None`: without blocking), and commits rows when the
    /// commit interval has passed. Returns the number of rows whose data was written.
    ///
    /// # Errors
    /// A failed write is not an error: its shot becomes lost. Fails with [`StoreError::EveryWriteFails`] after many
    /// consecutive failed writes, and with another error if a commit, a sync or io_uring itself fails.
    pub fn poll(&mut self, wait: Option<Duration>) -> Result<usize, StoreError> {
        let next_commit = if self.hold_commits { None } else { self.committer.next_commit_in() };
        let wait = wait.map(|wait| next_commit.map_or(wait, |next| wait.min(next)));
        let before = self.pending.len();
        self.reap(wait)?;
        self.write_compressed();
        if !self.hold_commits {
            self.committer.step(&mut *self.drive).map_err(StoreError::io("write rows to", &self.report.path))?;
        }
        if self.failures >= MAX_CONSECUTIVE_FAILURES {
            let source = self.last_failure.unwrap_or(Errno::IO);
            return Err(StoreError::EveryWriteFails { count: self.failures, path: self.report.path.clone(), source });
        }
        Ok(before - self.pending.len())
    }

    fn reap(&mut self, wait: Option<Duration>) -> Result<(), StoreError> {
        let mut completions = std::mem::take(&mut self.completions);
        let polled = self.drive.poll(wait, &mut |entry| completions.push(entry));
        self.queued = 0;
        let (mut synced, bytes) = (Ok(()), self.report.bytes);
        for entry in completions.drain(..) {
            match entry {
                Completion::Write { tag, result } => self.on_write_completion(tag, result),
                Completion::Sync(result) => synced = self.committer.synced(result),
                Completion::Woken => {}
            }
        }
        self.completions = completions;
        if self.report.bytes > bytes {
            self.last_write = Some(Instant::now());
        }
        self.complete_ready_rows();
        polled.map_err(|source| StoreError::Ring { source })?;
        synced.map_err(StoreError::io("flush", &self.report.path))
    }

    /// Passes the oldest rows whose writes have all completed to the committer.
    fn complete_ready_rows(&mut self) {
        while self.pending.front() == Some(&0) {
            self.pending.pop_front();
            self.complete_row();
        }
    }

    fn on_write_completion(&mut self, tag: u64, result: Result<(), Errno>) {
        let (row, link) = (tag / MAX_LINKS as u64, (tag % MAX_LINKS as u64) as usize);
        let front = self.next_row - self.pending.len() as u64;
        let Some(writing) = self.pending.get_mut((row - front) as usize) else { return };
        *writing -= 1;
        let (at, bytes) = self.committer.layout().slot_of(row, link);
        let stored = match self.compression {
            Some(_) => *self.committer.chunk(row, link),
            None => StoredChunk { offset: at, bytes, compressed: false },
        };
        match result {
            Ok(()) => {
                self.failures = 0;
                self.report.bytes += stored.end() - stored.offset;
                if let Some(compression) = &mut self.compression {
                    compression.count_stored(stored, bytes);
                }
            }
            Err(errno) => {
                self.fail_shot(row, link, errno);
                self.report.not_zeroed += u64::from(self.zero(stored.offset, stored.end() - stored.offset).is_err());
            }
        }
    }

    /// Returns `true` if a shot has a valid end-of-shot record, whose CRC covers it.
    fn has_valid_record(&self, link: usize, meta: &ShotMeta) -> bool {
        meta.is_complete() && self.geometries[link].trailer().has_record()
    }

    /// Computes the CRC-32 of a shot that no end-of-shot record covers.
    fn crc32(&mut self, link: usize, buffer: &Buffer) -> u32 {
        let bytes = self.geometries[link].shot_bytes();
        let (mut state, mut at) = (u32::MAX, 0);
        while at < bytes {
            let block = &mut self.scratch[..(bytes - at).min(SCRATCH_BYTES) as usize];
            buffer.read(at, block);
            state = crc::register(state, block);
            at += block.len() as u32;
        }
        !state
    }

    /// Zeroes a range, because a failed write may have been partial.
    fn zero(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.committer.file().zero(at, len)
    }

    /// Counts a shot as lost with the cause `sink_error` and updates its row; the first one adds a warning.
    fn fail_shot(&mut self, row: u64, link: usize, errno: Errno) {
        self.failures += 1;
        self.last_failure = Some(errno);
        if self.report.sink_error == 0 {
            self.report.warnings.push(format!(
                "cannot write row {row} of link {link}: {errno}; such shots are lost with the cause sink_error"
            ));
        }
        self.report.sink_error += 1;
        self.formats[link].mark_lost(self.committer.row(row, link), DropCause::SinkError);
        if self.compression.is_some() {
            *self.committer.chunk(row, link) = self.committer.layout().zeros(link);
        }
    }

    /// Counts the next row, whose writes have all completed.
    fn complete_row(&mut self) {
        let row = self.committer.complete_row();
        for link in 0..self.formats.len() {
            let count = match RowFormat::state(self.committer.row(row, link)) {
                State::Complete => &mut self.report.complete,
                State::Partial => &mut self.report.partial,
                State::Lost => &mut self.report.lost,
            };
            *count += 1;
        }
    }

    /// Ends the recording: waits for its writes, makes every row visible, writes losses and counters, and truncates the
    /// file.
    ///
    /// # Errors
    /// Fails if rows, losses or counters cannot be written; the committed rows stay valid. A file that cannot be
    /// truncated is reported as a warning.
    pub fn finish(mut self, counters: &RunCounters) -> Result<Report, StoreError> {
        while !self.pending.is_empty() {
            self.reap(Some(Duration::from_secs(1)))?;
            self.write_compressed();
        }
        let end = self.last_write.unwrap_or_else(Instant::now);
        self.report.seconds = self.first_offer.map_or(0.0, |first| (end - first).as_secs_f64());
        self.report.rows = self.next_row;
        self.report.chunks = self.compression.as_ref().map(|compression| compression.chunks);
        self.report.losses = self.losses.iter().map(|(cause, count)| (cause.name().to_owned(), count)).collect();
        let mut entries: Vec<(u32, String, u64)> = Vec::new();
        for stream in &counters.streams {
            entries.extend(stream.entries().into_iter().map(|(name, value)| (stream.stream, name, value)));
        }
        let report = &self.report;
        let totals = [
            ("rows", report.rows),
            ("rows_complete", report.complete),
            ("rows_partial", report.partial),
            ("rows_lost", report.lost),
            ("rows_sink_error", report.sink_error),
            ("bytes_written", report.bytes),
            ("finished_tai_ns", info::now_tai_ns()),
        ];
        let chunks = report.chunks.iter().flat_map(Chunks::entries);
        let totals = totals.into_iter().chain(chunks);
        entries.extend(totals.map(|(name, value)| (WHOLE_RUN, name.to_owned(), value)));
        let path = self.report.path.clone();
        let data_end = self.compression.as_ref().map(Compression::end);
        let (bytes, truncate_error) =
            self.committer.finish(&entries, data_end).map_err(StoreError::io("finish", &path))?;
        self.report.file_bytes = bytes;
        if let Some(errno) = truncate_error {
            self.report.warnings.push(format!(
                "{} is complete but could not be truncated to its {} rows: {errno}; it keeps its full size",
                path.display(),
                self.report.rows
            ));
        }
        Ok(self.report)
    }
}
