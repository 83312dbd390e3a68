//! A run of many files: consecutive parts, each on one drive or striped over several, and a master that joins them into
//! one recording.
//!
//! [`RunRecorder`] has the interface of [`Recorder`] and uses one recorder for each file. A run of one file without
//! parts uses a single recorder and has no master. Otherwise a background thread (`part_manager`) allocates the next
//! part while the current one is written, and ends the previous one, so that the recording thread waits for neither. A
//! part that is not ready in time makes the recorder busy, like a slow drive.
//!
//! - Row `i` of a part goes to drive `i mod n`. If a drive fails, the part ends; rows of that drive that are not
//!   visible yet become losses with the cause `sink_error`, and the next part is allocated on the remaining drives.
//! - No row of a part becomes visible before the master lists the part, so a reader of the master sees every committed
//!   row, also after `kill -9`.
//! - Losses are entered before the row that follows them, in the same file.
//! - The counters of the run are in the master; each part has the counters of its own rows.

mod files;
mod part;
pub(crate) mod part_manager;
mod plan;
mod recover;

use crate::StoreError;
use crate::clocks::ClockSample;
use crate::info::RunInfo;
pub use crate::master::{FileEntry, Master, Removed, State};
use crate::recorder::{self, Recorder, Report};
use crate::shot::{Event, Loss, MAX_LINKS, RunCounters, StreamRunCounters};
use part::{FailedStripe, Part, RowSummary};
use part_manager::{ManagerThread, Notice, PartManager, PartRecorders, ReusedFiles};
use plan::Plan;
pub use plan::{Roll, RunRecorderConfig, has_parts};
pub use recover::{RecoveredRun, recover};
use shotline_memory::Regions;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum wait for one drive while others may have completions.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Shots of a link that were handed to the recorder and could not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnrecordedShots {
    /// Index of the link.
    pub link: usize,
    /// Drop cause.
    pub cause: DropCause,
    /// Number of complete shots.
    pub complete: u64,
    /// Number of partial shots.
    pub partial: u64,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// Report over all files.
    pub report: Report,
    /// Shots that were offered and are in no row.
    pub unrecorded: Vec<UnrecordedShots>,
    /// Parts and rows that a bounded run has removed.
    pub removed: Removed,
}

/// Ends the wait of [`RunRecorder::poll`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Mutex<Option<recorder::Waker>>>);

impl Waker {
    /// Ends the current wait, or the next one if there is none.
    pub fn wake(&self) {
        // Contended only while the waker is replaced, once per part.
        if let Some(waker) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            waker.wake();
        }
    }
    fn set(&self, part: &Part) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = part.stripes.first().map(|s| s.recorder.waker());
    }
}

/// State of the part after the current one.
#[derive(Debug)]
enum Next {
    /// Not requested yet.
    NotRequested,
    /// Being allocated.
    Requested,
    /// Allocated and empty.
    Ready(Box<Part>),
    /// The current part is the last one.
    None,
}

/// Recorder of a run over one or more files. See the module.
#[derive(Debug)]
pub struct RunRecorder {
    plan: Arc<Plan>,
    /// `None` for a run of one file.
    manager: Option<PartManager>,
    current: Part,
    /// Closed parts whose rows are not all visible yet.
    draining: VecDeque<Part>,
    next: Next,
    /// Drives in use; failed ones are removed.
    drives: Vec<usize>,
    /// Losses after the last row, not entered yet.
    pending_losses: Vec<Loss>,
    unrecorded: Vec<UnrecordedShots>,
    /// Counters of the whole run from [`Self::add_counter`].
    run_counters: Vec<(String, u64)>,
    offered: u64,
    /// Visible rows of parts that were handed to the background thread.
    settled: u64,
    first_offer: Option<Instant>,
    /// Start of the current wait for the next part.
    waiting_since: Option<Instant>,
    /// Total time spent waiting for the next part.
    waited: Duration,
    waker: Waker,
    warnings: Vec<String>,
}

impl RunRecorder {
    /// Allocates the first part on every drive. The buffers of later events must be from `regions`.
    ///
    /// # Errors
    /// Fails if any check of the configuration, the run or the drives fails; later calls fail only on I/O errors.
    pub fn create(config: &RunRecorderConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let plan = Plan::new(config, run, regions)?;
        if config.is_single() {
            let recorder = Recorder::create(config.master(), &config.recorder, run, regions)?;
            return Ok(Self::with_part(Arc::new(plan), Part::new(0, vec![(0, recorder)], false), None));
        }
        let rows = plan.part_rows.min(limit(&plan).unwrap_or(u64::MAX)).max(1);
        // All checks come before files of an earlier run are removed.
        run.check()?;
        let replaced = config.replaced()?;
        plan.check_space(rows, &replaced.files())?;
        replaced.clear_parts()?;
        let plan = Arc::new(plan);
        let drives: Vec<usize> = (0..plan.drives()).collect();
        let (recorders, mut refused) = part_manager::lay_out(&plan, (0, &drives), rows, &ReusedFiles::default());
        let begun = match refused.pop() {
            None => ManagerThread::new(Arc::clone(&plan), &drives, replaced.has_master()),
            Some((_, error)) => Err(error),
        };
        let manager = match begun {
            Ok(manager) => manager,
            Err(error) => {
                remove(&plan, 0, recorders.iter().map(|(drive, _)| *drive));
                replaced.discard();
                return Err(error);
            }
        };
        let mut recorder = Self::with_part(plan, Part::new(0, recorders, true), Some(PartManager::start(manager)));
        recorder.warnings.extend(config.shared_drives());
        if config.rolls() {
            recorder.request_next();
        }
        Ok(recorder)
    }

    fn with_part(plan: Arc<Plan>, current: Part, manager: Option<PartManager>) -> Self {
        let waker = Waker(Arc::new(Mutex::new(None)));
        waker.set(&current);
        let of_run = plan.config.master().display().to_string();
        let mut warnings: Vec<String> = Vec::new();
        for stripe in &current.stripes {
            let path = stripe.recorder.report().path.display().to_string();
            warnings.extend(stripe.recorder.warnings().iter().map(|warning| warning.replace(&path, &of_run)));
        }
        warnings.dedup();
        Self {
            drives: (0..plan.drives()).collect(),
            plan,
            manager,
            current,
            draining: VecDeque::new(),
            next: Next::NotRequested,
            pending_losses: Vec::new(),
            unrecorded: Vec::new(),
            run_counters: Vec::new(),
            offered: 0,
            settled: 0,
            first_offer: None,
            waiting_since: None,
            waited: Duration::ZERO,
            waker,
            warnings,
        }
    }

    /// Returns the features that are not available, with the consequence of each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    /// Returns the number of rows that can still be offered; [`u64::MAX`] if unlimited.
    pub fn remaining(&self) -> u64 {
        let here = self.current.capacity.saturating_sub(self.current.offered);
        let here = if self.current.is_closed() { 0 } else { here };
        match (&self.manager, &self.next) {
            (None, _) | (_, Next::None) => here,
            _ => limit(&self.plan).map_or(u64::MAX, |limit| limit.saturating_sub(self.offered)),
        }
    }
    /// Returns the number of visible rows.
    pub fn visible(&self) -> u64 {
        self.settled + self.draining.iter().map(Part::visible).sum::<u64>() + self.current.visible()
    }
    /// Returns the shots that could not be recorded so far, by link and cause.
    pub fn unrecorded(&self) -> &[UnrecordedShots] {
        &self.unrecorded
    }
    /// Returns the number of offered rows whose data is not written yet.
    pub fn pending(&self) -> usize {
        self.draining.iter().map(Part::pending).sum::<usize>() + self.current.pending()
    }
    /// Returns a handle that ends the wait of [`Self::poll`] from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
    /// Adds a counter of the whole run.
    pub fn add_counter(&mut self, name: String, value: u64) {
        self.run_counters.push((name, value));
    }

    /// Starts writing an event as the next row.
    ///
    /// # Errors
    /// Returns the event if its drive is busy, the next part is not ready, or the run is full ([`Self::remaining`]).
    pub fn offer(&mut self, event: Event) -> Result<(), Event> {
        if self.manager.is_some() && (self.current.is_closed() || self.is_over()) {
            self.advance();
        }
        // Shot numbers of different links are not comparable if rows join shots by timestamp: enter all known losses.
        let up_to = if self.plan.run.by_stamp { u64::MAX - 1 } else { event.number };
        self.current.offer(event, up_to, &mut self.pending_losses)?;
        self.first_offer.get_or_insert_with(Instant::now);
        self.offered += 1;
        Ok(())
    }

    /// Records consecutive shots that are in no row, or in a row as lost.
    pub fn loss(&mut self, loss: Loss) {
        let recent = self.pending_losses.len().saturating_sub(2 * MAX_LINKS);
        let last = self.pending_losses[recent..].iter_mut().rev().find(|last| last.stream == loss.stream);
        match last.filter(|last| last.cause == loss.cause && last.first + last.count == loss.first) {
            Some(last) => last.count += loss.count,
            None => self.pending_losses.push(loss),
        }
    }

    /// Records a sample of a link's clock, in the files that are being written.
    pub fn clock(&mut self, link: usize, sample: &ClockSample) {
        self.current.stripes.iter_mut().for_each(|stripe| stripe.recorder.clock(link, sample));
    }

    /// Records the shots of an event as losses, if the event was handed over and cannot be recorded.
    pub fn discard(&mut self, event: &Event, cause: DropCause) {
        self.lose(&RowSummary::of(event), cause);
    }

    fn lose(&mut self, summary: &RowSummary, cause: DropCause) {
        for (link, (complete, number)) in summary.shots.iter().zip(&summary.numbers).enumerate() {
            let (Some(complete), Some(info)) = (complete, self.plan.run.links.get(link)) else { continue };
            let stream = info.stream;
            let known = self.unrecorded.iter().position(|entry| entry.link == link && entry.cause == cause);
            let index = known.unwrap_or_else(|| {
                self.unrecorded.push(UnrecordedShots { link, cause, complete: 0, partial: 0 });
                self.unrecorded.len() - 1
            });
            let entry = &mut self.unrecorded[index];
            *if *complete { &mut entry.complete } else { &mut entry.partial } += 1;
            self.loss(Loss { stream, cause, first: *number, count: 1 });
        }
    }

    /// Returns `true` if the time limit of the current part has passed.
    fn is_over(&self) -> bool {
        let after = self.plan.config.roll.after;
        after.zip(self.current.first_offer).is_some_and(|(after, begun)| begun.elapsed() >= after)
    }

    /// Switches to the next part, if it is ready.
    fn advance(&mut self) {
        if !matches!(self.next, Next::Ready(_)) {
            // A part that is only past its time limit continues until the next one is ready.
            if self.current.is_closed() && !matches!(self.next, Next::None) {
                self.waiting_since.get_or_insert_with(Instant::now);
            }
            return;
        }
        self.waited += self.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let Next::Ready(part) = std::mem::replace(&mut self.next, Next::NotRequested) else { return };
        self.draining.push_back(std::mem::replace(&mut self.current, *part));
        self.waker.set(&self.current);
    }

    /// Requests the next part, if the run can have rows for it.
    fn request_next(&mut self) {
        let Some(manager) = &self.manager else { return };
        let here = if self.plan.config.roll.after.is_some() || self.current.is_closed() {
            self.current.offered
        } else {
            self.current.capacity
        };
        let before = self.offered - self.current.offered;
        let left = limit(&self.plan).map_or(u64::MAX, |limit| limit.saturating_sub(before + here));
        if left == 0 {
            self.next = Next::None;
            return;
        }
        manager.lay_out(self.current.number + 1, self.drives.clone(), left.min(self.plan.part_rows));
        self.next = Next::Requested;
    }

    /// Reaps completed writes, blocking for at most `wait` (`None`: without blocking), and makes the completed rows
    /// visible.
    ///
    /// # Errors
    /// Fails if no drive is left to write to, if the only file fails, or if the background thread has panicked. A
    /// failed drive of several is a warning.
    pub fn poll(&mut self, wait: Option<Duration>) -> Result<(), StoreError> {
        while let Some(notice) = self.manager.as_ref().and_then(PartManager::next_notice) {
            self.handle(notice);
        }
        // The thread has panicked, so no further part would follow.
        if self.manager.as_ref().is_some_and(PartManager::is_gone) {
            return Err(no_part());
        }
        let mut failed = Vec::new();
        for part in &mut self.draining {
            failed.extend(part.poll(None).err());
        }
        self.settle();
        let busy = !self.draining.is_empty() || self.current.stripes.len() != 1 || self.waiting_since.is_some();
        let wait = if busy { wait.map(|wait| wait.min(POLL_INTERVAL)) } else { wait };
        if let Some(wait) = wait.filter(|_| self.current.stripes.is_empty()) {
            std::thread::sleep(wait);
        }
        failed.extend(self.current.poll(wait).err());
        for failed in failed {
            self.drop_drive(*failed)?;
        }
        Ok(())
    }

    fn handle(&mut self, notice: Notice) {
        match notice {
            Notice::Ready(part, laid_out) => self.take_next(part, laid_out),
            Notice::Listed(number) => {
                let parts = self.draining.iter_mut().chain([&mut self.current]);
                parts.filter(|part| part.number == number).for_each(|part| part.hold(false));
                if self.plan.config.rolls() && matches!(self.next, Next::NotRequested) {
                    self.request_next();
                }
            }
        }
    }

    fn take_next(&mut self, number: u32, (recorders, refused): PartRecorders) {
        let (usable, dropped): (Vec<_>, Vec<_>) =
            recorders.into_iter().partition(|(drive, _)| self.drives.contains(drive));
        remove(&self.plan, number, dropped.iter().map(|(drive, _)| *drive));
        for (drive, error) in refused {
            let consequence =
                if usable.is_empty() { "the run ends with the current part" } else { "the run continues without it" };
            self.warnings.push(format!("part {number} has no file on drive {drive}, and {consequence}: {error}"));
            self.drives.retain(|working| *working != drive || usable.is_empty());
        }
        self.next = if usable.is_empty() {
            Next::None
        } else {
            let mut part = Part::new(number, usable, true);
            part.hold(true);
            Next::Ready(Box::new(part))
        };
    }

    /// Hands parts whose rows are all visible to the background thread.
    fn settle(&mut self) {
        let Some(manager) = &self.manager else { return };
        while self.draining.front().is_some_and(Part::is_settled) {
            let Some(part) = self.draining.pop_front() else { break };
            self.settled += part.visible();
            let next = self.draining.front().unwrap_or(&self.current);
            // The drives of its allocation, including those that have failed since.
            let drives = next.stripes.iter().map(|stripe| stripe.drive).chain(next.failed.iter().map(|f| f.0));
            let mut drives: Vec<usize> = drives.collect();
            drives.sort_unstable();
            manager.settle(part, Some((next.number, drives)));
        }
    }

    /// Continues without a failed drive, if another one is left.
    fn drop_drive(&mut self, failed: FailedStripe) -> Result<(), StoreError> {
        let FailedStripe { drive, unseen, losses, error } = failed;
        let known = !self.drives.contains(&drive);
        self.drives.retain(|working| *working != drive);
        if self.manager.is_none() || self.drives.is_empty() {
            return Err(error);
        }
        if !known {
            self.warnings.push(format!(
                "the run continues without drive {drive} ({} shots there are lost with the cause sink_error): {error}",
                unseen.iter().map(|summary| summary.shots.iter().flatten().count()).sum::<usize>()
            ));
        }
        losses.into_iter().for_each(|loss| self.pending_losses.push(loss));
        unseen.iter().for_each(|summary| self.lose(summary, DropCause::SinkError));
        if let Next::Ready(part) = &mut self.next {
            let number = part.number;
            part.stripes.retain(|stripe| stripe.drive != drive);
            let left: Vec<_> = std::mem::take(&mut part.stripes);
            remove(&self.plan, number, [drive].into_iter());
            self.take_next(number, (left.into_iter().map(|s| (s.drive, s.recorder)).collect(), Vec::new()));
        }
        if self.current.is_closed() && matches!(self.next, Next::NotRequested | Next::None) {
            self.request_next();
        }
        Ok(())
    }

    /// Ends the run: waits for its writes, makes every row visible, writes losses and counters, and ends the files.
    /// Offered shots that could not be recorded are first subtracted from `counters`.
    ///
    /// # Errors
    /// Fails if no file is left to end with, if the last part can be ended on no drive, or if the master cannot be
    /// written. The committed rows stay valid.
    pub fn finish(mut self, mut counters: RunCounters) -> Result<RunResult, StoreError> {
        if self.manager.is_none() {
            self.pending_losses.drain(..).for_each(|loss| self.current.loss(loss));
            self.subtract_unrecorded(&mut counters);
            let Some(stripe) = self.current.stripes.pop() else { return Err(no_part()) };
            let report = stripe.recorder.finish(&counters)?;
            return Ok(RunResult {
                report,
                unrecorded: std::mem::take(&mut self.unrecorded),
                removed: Removed::default(),
            });
        }
        while !(self.draining.is_empty() && self.current.is_settled() && !self.current.stripes.is_empty()) {
            if self.current.stripes.is_empty() {
                if matches!(self.next, Next::None) {
                    return Err(no_part());
                }
                self.advance();
            }
            if self.manager.as_ref().is_some_and(PartManager::is_gone) {
                return Err(no_part());
            }
            self.poll(Some(POLL_INTERVAL))?;
        }
        let seconds = self.first_offer.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        self.pending_losses.drain(..).for_each(|loss| self.current.loss(loss));
        self.subtract_unrecorded(&mut counters);
        let Some(manager) = self.close() else { return Err(no_part()) };
        let current = std::mem::replace(&mut self.current, Part::new(0, Vec::new(), false));
        let (mut report, removed) = manager.end(current, &counters)?;
        report.seconds = seconds;
        if !self.waited.is_zero() {
            self.warnings.push(format!(
                "the recorder waited {:.3} s in total for the next part: use larger parts or a faster drive",
                self.waited.as_secs_f64()
            ));
        }
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut report.warnings);
        report.warnings = warnings;
        Ok(RunResult { report, unrecorded: std::mem::take(&mut self.unrecorded), removed })
    }

    /// Moves shots that could not be recorded to the drop counters, and adds the counters of the whole run.
    fn subtract_unrecorded(&mut self, counters: &mut RunCounters) {
        for entry in &self.unrecorded {
            let stream = self.plan.run.links[entry.link].stream;
            let Some(stream) = counters.streams.iter_mut().find(|counters| counters.stream == stream) else { continue };
            stream.retract(entry.complete, entry.partial, entry.cause);
        }
        if !self.run_counters.is_empty() {
            let whole = counters.streams.iter_mut().find(|counters| counters.stream == recorder::WHOLE_RUN);
            match whole {
                Some(whole) => whole.more.append(&mut self.run_counters),
                None => counters.streams.push(StreamRunCounters {
                    stream: recorder::WHOLE_RUN,
                    more: std::mem::take(&mut self.run_counters),
                    ..StreamRunCounters::default()
                }),
            }
        }
    }

    /// Ends the background thread, and removes an allocated part that is unused.
    fn close(&mut self) -> Option<ManagerThread> {
        let (manager, notice) = self.manager.take()?.end();
        for notice in notice {
            if let Notice::Ready(part, (recorders, _)) = notice {
                remove(&self.plan, part, recorders.iter().map(|(drive, _)| *drive));
            }
        }
        if let Next::Ready(part) = std::mem::replace(&mut self.next, Next::None) {
            remove(&self.plan, part.number, part.stripes.iter().map(|stripe| stripe.drive));
        }
        manager
    }

    /// Removes all files, for a run that never started.
    pub fn abandon(mut self) {
        let files: Vec<PathBuf> = match self.manager {
            None => Vec::new(),
            Some(_) => self.current.stripes.iter().map(|s| self.plan.path(self.current.number, s.drive)).collect(),
        };
        self.close();
        for file in files.iter().map(PathBuf::as_path).chain([self.plan.config.master()]) {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Drop for RunRecorder {
    fn drop(&mut self) {
        // After an interrupted run, written parts stay and parts that were only allocated are removed.
        self.close();
    }
}

/// Returns the maximum number of rows of a run, if limited.
fn limit(plan: &Plan) -> Option<u64> {
    if plan.config.rolls() { plan.config.rows } else { Some(plan.config.recorder.rows) }
}

/// Removes the files of a part without rows.
fn remove(plan: &Plan, part: u32, drives: impl Iterator<Item = usize>) {
    for drive in drives {
        let _ = std::fs::remove_file(plan.path(part, drive));
    }
}

fn no_part() -> StoreError {
    StoreError::Run(
        "no part is left for the run to end with: every drive is full, or the part manager has ended".into(),
    )
}
