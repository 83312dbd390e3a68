//! Records events: shot buffers to their slots, rows to their tables, and then the marker.
//!
//! Call order: [`Recorder::create`]; then [`Recorder::offer`], [`Recorder::loss`] and [`Recorder::poll`] in any
//! order from one thread; then [`Recorder::finish`]. A recorder that is dropped without it leaves a valid file
//! with all committed rows and its full laid-out size, as a killed one does; [`recover`](crate::recover::recover) sheds the rest.

mod commit;
mod compression;
mod drives;

use crate::StoreError;
use crate::clocks::{ClockLog, ClockSample};
use crate::info::{self, RunInfo};
use crate::layout::{self, CreateOptions, Opened, StoredChunk};
use crate::rows::{NO_NUMBER, RowFormat};
use crate::shot::{Books, Event, Loss, MAX_LINKS, Shot, ShotMeta};
use crate::sys::drive::{Done, Drive, Wake};
use commit::Committer;
use compression::Compression;
pub use compression::{Chunks, default_threads};
use rustix::fd::{AsRawFd, RawFd};
use rustix::io::Errno;
use serde::Serialize;
use shotline_memory::{Buffer, Regions};
use shotline_wire::crc;
use shotline_wire::shot::{DropCause, Drops, Geometry};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Consecutive failed writes after which there is no point in going on.
const HOPELESS: u32 = 64;
/// Bytes of a shot that are looked at at once.
const SCRATCH: u32 = 1 << 15;
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
    /// With `overwrite`: give up the old file at once and write into its blocks, which is faster than into new ones.
    pub recycle: bool,
    /// With `overwrite`: the serial number of the raw device whose contents may go ([`crate::nvme`]).
    pub serial: Option<String>,
    /// Rows become visible at least this often.
    pub commit_every: Duration,
    /// And at the latest after so many.
    pub commit_rows: u64,
    /// Threads that compress the shots of a run with a codec; if nobody says, [`default_threads`]. With none every shot
    /// is stored as it came.
    pub compress_threads: Option<usize>,
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
            recycle: false,
            serial: None,
            commit_every: Duration::from_millis(20),
            commit_rows: 1024,
            compress_threads: None,
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
    /// Bytes of slots and chunks written.
    pub bytes: u64,
    /// How shots are stored, in a compressed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Chunks>,
    /// From the first event to the last write.
    pub seconds: f64,
    /// Losses entered with [`Recorder::loss`], in shots by cause.
    pub losses: Vec<(String, u64)>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What did not go as it should, in words.
    pub warnings: Vec<String>,
}

/// A shot that the ring did not take.
struct Unwritten;

/// One event on its way into the file.
#[derive(Debug)]
struct Pending {
    number: u64,
    writing: u32,
    shots: Vec<Option<Handed>>,
}

/// One shot on its way into the file.
#[derive(Debug)]
struct Handed {
    meta: ShotMeta,
    /// See [`Row::slot_crc32`](crate::rows::Row::slot_crc32).
    crc32: u32,
    /// Where it is written. None if it is being compressed, or could not be written.
    stored: Option<StoredChunk>,
}

/// Ends a recorder's [`Recorder::poll`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

impl Waker {
    /// Ends the current wait, or the next one.
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
    // Before `committer`, so that a dropped recorder waits for its writes before the file is closed.
    drive: Box<dyn Drive>,
    committer: Committer,
    clocks: Vec<ClockLog>,
    /// In a run with a codec.
    compression: Option<Compression>,
    formats: Vec<RowFormat>,
    geometries: Vec<Geometry>,
    scratch: Box<[u8]>,
    pending: VecDeque<Pending>,
    next_row: u64,
    first_offer: Option<Instant>,
    last_write: Option<Instant>,
    done: Vec<Done>,
    failures: u32,
    last_failure: Option<Errno>,
    losses: Drops,
    held: bool,
    by_stamp: bool,
    report: Report,
}

impl Recorder {
    /// Lays out the file and sets up the ring. Everything that can be refused is refused here. The buffers of
    /// the events to come must be from `regions`.
    pub fn create(path: &Path, config: &RecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let RecorderConfig { rows, overwrite, recycle, ref serial, .. } = *config;
        let options = CreateOptions { rows, overwrite, recycle, inherited: false, serial: serial.as_deref() };
        Self::begin(path, config, options, run, regions)
    }

    /// The same for a part of a bounded run; if it is `inherited`, in the file of an earlier one ([`layout::bequeath`]).
    pub(crate) fn create_part(
        path: &Path,
        config: &RecorderConfig,
        run: &RunInfo,
        regions: &Regions,
        inherited: bool,
    ) -> Result<Self, StoreError> {
        let options = CreateOptions { rows: config.rows, inherited, ..CreateOptions::default() };
        Self::begin(path, config, options, run, regions)
    }

    fn begin(
        path: &Path,
        config: &RecorderConfig,
        options: CreateOptions<'_>,
        run: &RunInfo,
        regions: &Regions,
    ) -> Result<Self, StoreError> {
        let (opened, birth) = layout::begin(path, run, options)?;
        let recorder = Self::over(opened, config, run, regions)?;
        // Last: what can fail has not, and only now does the old file go.
        birth.end(path, options.overwrite)?;
        Ok(recorder)
    }

    fn over(mut opened: Opened, config: &RecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let path = opened.path.clone();
        let mut warnings = std::mem::take(&mut opened.warnings);
        let depth = config.in_flight.clamp(run.links.len() as u32, 4096);
        let geometries: Vec<_> = run.links.iter().map(|link| link.geometry).collect();
        let room = run.codec.map(|_| compression::room(config, &geometries, regions)).transpose()?;
        let regions = room.as_ref().map_or(regions, |(_, regions)| regions);
        let drive: Box<dyn Drive> = match drives::mapped(&opened, warnings.is_empty(), regions) {
            Some(mapped) => Box::new(mapped),
            None => drives::drive(&opened, config.direct, depth, regions, &mut warnings)?,
        };
        let formats = opened.layout.formats.clone();
        let compression = run
            .codec
            .zip(room)
            .map(|(codec, (out, _))| Compression::start(codec, config, out, &geometries, &opened.layout, &*drive));
        Ok(Self {
            drive,
            clocks: opened.layout.clocks.iter().map(|at| ClockLog::new(*at)).collect(),
            committer: Committer::new(opened, config),
            compression: compression.transpose()?,
            formats,
            geometries,
            scratch: vec![0; SCRATCH as usize].into(),
            pending: VecDeque::new(),
            next_row: 0,
            first_offer: None,
            last_write: None,
            done: Vec::with_capacity(depth as usize + 2),
            failures: 0,
            last_failure: None,
            losses: Drops::default(),
            held: false,
            by_stamp: run.by_stamp,
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
    /// Whether it writes into the blocks of an older recording, or of an earlier part.
    pub(crate) fn is_recycled(&self) -> bool {
        self.committer.layout().recycled
    }
    /// Rows offered whose data is not in the file yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
    /// Rows that readers see.
    pub fn visible(&self) -> u64 {
        self.committer.visible()
    }
    /// While a recorder is held, it writes shots but makes no row visible.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }
    /// Ends [`Self::poll`]'s wait from another thread.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(self.drive.wake()))
    }

    /// Begins to write an event as the next row; gives it back if too many writes are under way, or if every
    /// row that was laid out is taken ([`Self::remaining`]). Its buffers are held until they are written, in a run with
    /// a codec until they are compressed.
    ///
    /// Links without a shot are rows of state lost, and read as zeros.
    pub fn offer(&mut self, event: Event) -> Result<(), Event> {
        let shots = event.shots.iter().take(self.formats.len()).flatten().count();
        self.write_made();
        if self.remaining() == 0 || shots > self.drive.room() {
            return Err(event);
        }
        self.first_offer.get_or_insert_with(Instant::now);
        let row = self.next_row;
        self.next_row += 1;
        let mut pending = Pending { number: event.number, writing: 0, shots: Vec::with_capacity(self.formats.len()) };
        for (link, shot) in event.shots.into_iter().take(self.formats.len()).enumerate() {
            let layout = self.committer.layout();
            let (at, len) = (layout.slot(row, link), layout.slots[link].1);
            let Some(shot) = shot else {
                if layout.recycled && self.compression.is_none() {
                    self.report.not_zeroed += u64::from(self.zero(at, u64::from(len)).is_err());
                }
                pending.shots.push(None);
                continue;
            };
            let crc32 = if shot.buffer.len() >= len { self.crc32(link, &shot) } else { 0 };
            let stored = self.store(row, link, shot.buffer);
            pending.writing += u32::from(stored.is_ok());
            if stored.is_err() {
                self.failed(row, link, Errno::INVAL);
            }
            pending.shots.push(Some(Handed { meta: shot.meta, crc32, stored: stored.unwrap_or(None) }));
        }
        while pending.shots.len() < self.formats.len() {
            pending.shots.push(None);
        }
        self.pending.push_back(pending);
        // What the kernel does not take now stays queued and goes with the next submission; if the ring is gone,
        // that of `poll` says so.
        let _ = self.drive.submit();
        self.enter_ready();
        Ok(())
    }

    /// Begins to store one shot: hands it to compression, or to the ring, and then says where it will be.
    fn store(&mut self, row: u64, link: usize, mut buffer: Buffer) -> Result<Option<StoredChunk>, Unwritten> {
        let tag = row * MAX_LINKS as u64 + link as u64;
        let layout = self.committer.layout();
        let len = layout.slots[link].1;
        if buffer.len() < len {
            return Err(Unwritten);
        }
        let stored = match &mut self.compression {
            None => StoredChunk { at: layout.slot(row, link), bytes: len, compressed: false },
            Some(compression) => match compression.submit(tag, link, buffer) {
                Ok(()) => return Ok(None),
                Err(back) => {
                    buffer = back;
                    compression.place(None, len)
                }
            },
        };
        self.drive.write(buffer, (stored.end() - stored.at) as u32, stored.at, tag).map_err(|_| Unwritten)?;
        Ok(Some(stored))
    }

    /// Begins to write what compression has made, as far as the ring has room.
    fn write_made(&mut self) {
        let Some(compression) = &mut self.compression else { return };
        let front = self.next_row - self.pending.len() as u64;
        while self.drive.room() > 0
            && let Some(made) = compression.next()
        {
            let (row, link) = (made.tag / MAX_LINKS as u64, (made.tag % MAX_LINKS as u64) as usize);
            let stored = compression.place(made.compressed, self.committer.layout().slots[link].1);
            let pending =
                self.pending.get_mut((row - front) as usize).and_then(|row| row.shots.get_mut(link)?.as_mut());
            pending.expect("a shot that is compressed is pending").stored = Some(stored);
            let queued = self.drive.write(made.buffer, (stored.end() - stored.at) as u32, stored.at, made.tag);
            queued.expect("the ring said that it has room");
        }
        // As in `offer`.
        let _ = self.drive.submit();
    }

    /// Enters a run of shots that are in no row, or in a row as lost.
    pub fn loss(&mut self, loss: Loss) {
        self.losses.add(loss.cause, loss.count);
        self.committer.loss(loss);
    }

    /// Enters how a link's clock runs: about once a second. If the drive does not take it, the next one may do.
    pub fn clock(&mut self, link: usize, sample: &ClockSample) {
        if let Some(log) = self.clocks.get_mut(link) {
            let _ = log.enter(self.committer.file(), sample);
        }
    }

    /// Reaps completions, waiting at most `wait` for one (none: not at all), and makes rows visible that are
    /// due. Returns the rows whose data got into the file.
    pub fn poll(&mut self, wait: Option<Duration>) -> Result<usize, StoreError> {
        let due = if self.held { None } else { self.committer.due_in() };
        let wait = wait.map(|wait| due.map_or(wait, |due| wait.min(due)));
        let before = self.pending.len();
        self.reap(wait)?;
        self.write_made();
        if !self.held {
            self.committer.step(&mut *self.drive).map_err(StoreError::io("write rows to", &self.report.path))?;
        }
        if self.failures >= HOPELESS {
            let source = self.last_failure.unwrap_or(Errno::IO);
            return Err(StoreError::EveryWriteFails { count: self.failures, path: self.report.path.clone(), source });
        }
        Ok(before - self.pending.len())
    }

    fn reap(&mut self, wait: Option<Duration>) -> Result<(), StoreError> {
        let mut done = std::mem::take(&mut self.done);
        let polled = self.drive.poll(wait, &mut |entry| done.push(entry));
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
        let Some(pending) = self.pending.get_mut((row - front) as usize) else { return };
        pending.writing -= 1;
        let Some(shot) = pending.shots.get_mut(link).and_then(Option::as_mut) else { return };
        let Some(stored) = shot.stored else { return };
        match result {
            Ok(()) => {
                self.failures = 0;
                self.report.bytes += stored.end() - stored.at;
                self.last_write = Some(Instant::now());
                if let Some(compression) = &mut self.compression {
                    compression.stored(stored, self.committer.layout().slots[link].1);
                }
            }
            Err(errno) => {
                shot.stored = None;
                self.failed(row, link, errno);
                self.report.not_zeroed += u64::from(self.zero(stored.at, stored.end() - stored.at).is_err());
            }
        }
    }

    /// CRC-32 of a shot that its own record does not prove; 0 of one that it does.
    fn crc32(&mut self, link: usize, shot: &Shot) -> u32 {
        let geometry = self.geometries[link];
        if shot.meta.is_complete() && geometry.trailer().has_record() {
            return 0;
        }
        let (mut state, mut at) = (u32::MAX, 0);
        while at < geometry.shot_bytes() {
            let block = &mut self.scratch[..(geometry.shot_bytes() - at).min(SCRATCH) as usize];
            shot.buffer.read(at, block);
            state = crc::register(state, block);
            at += block.len() as u32;
        }
        !state
    }

    /// Part of a failed write may be in the file: take it out again.
    fn zero(&self, at: u64, len: u64) -> Result<(), Errno> {
        self.committer.file().zero(at, len)
    }

    /// Counts a shot that is lost with the cause `sink_error`, and describes the first.
    fn failed(&mut self, row: u64, link: usize, errno: Errno) {
        self.failures += 1;
        self.last_failure = Some(errno);
        if self.report.sink_error == 0 {
            self.report.warnings.push(format!(
                "cannot write row {row} of link {link}: {errno}; such shots are lost with the cause sink_error"
            ));
        }
        self.report.sink_error += 1;
    }

    /// Appends the rows of an event whose writes have all ended.
    fn enter(&mut self, row: &Pending) {
        for (link, (shot, format)) in row.shots.iter().zip(&self.formats).enumerate() {
            let out = self.committer.stage(link);
            match shot {
                Some(Handed { meta, crc32, stored: Some(_) }) => {
                    format.push(meta, *crc32, out);
                    let count = if meta.is_complete() { &mut self.report.complete } else { &mut self.report.partial };
                    *count += 1;
                }
                Some(Handed { meta, stored: None, .. }) => {
                    format.push_lost(meta.number, Some(meta), Some(DropCause::SinkError), out);
                    self.report.lost += 1;
                }
                None => {
                    let number = if self.by_stamp { NO_NUMBER } else { row.number };
                    format.push_lost(number, None, None, out);
                    self.report.lost += 1;
                }
            }
        }
        if self.compression.is_some() {
            self.committer.stage_chunks(row.shots.iter().map(|shot| shot.as_ref().and_then(|shot| shot.stored)));
        }
        self.committer.entered();
    }

    /// Ends the recording: waits for its writes, makes every row visible, writes losses and books, and cuts the
    /// file behind what came.
    pub fn finish(mut self, books: &Books) -> Result<Report, StoreError> {
        while !self.pending.is_empty() {
            self.reap(Some(Duration::from_secs(1)))?;
            self.write_made();
        }
        let end = self.last_write.unwrap_or_else(Instant::now);
        self.report.seconds = self.first_offer.map_or(0.0, |first| (end - first).as_secs_f64());
        self.report.rows = self.next_row;
        self.report.chunks = self.compression.as_ref().map(|compression| compression.chunks);
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
        let chunks = report.chunks.iter().flat_map(Chunks::entries);
        let own = own.into_iter().chain(chunks);
        entries.extend(own.map(|(name, value)| (WHOLE_RUN, name.to_owned(), value)));
        let path = self.report.path.clone();
        let data_end = self.compression.as_ref().map(Compression::end);
        let (bytes, uncut) = self.committer.finish(&entries, data_end).map_err(StoreError::io("finish", &path))?;
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
