//! A run of many files: parts one after the other, each on one drive or striped over several, and a master that shows
//! them all as one recording.
//!
//! The calls are those of a [`Recorder`], of which each file has one of its own. A [`Set`] of one
//! file that does not roll is exactly that recorder. Otherwise a second thread (`keeper`) lays the next part out
//! while the present one is written, and ends the last one, so that the recording thread waits for neither; a part
//! that is not ready in time makes the recorder busy, as any slow drive does.
//!
//! - Row `i` of a part goes to drive `i mod n`. If a drive fails, the part ends there; its rows that no reader has
//!   seen are given up with the cause `sink_error`, and the next part is laid out on the drives that are left.
//! - No row of a part becomes visible before the master shows the part: whoever opens the master, also after
//!   `kill -9`, sees everything that was committed.
//! - Losses are entered before the row that follows them, in the same file.
//! - The books are those of the run and stand in the master; each part has the counts of its own rows.

mod files;
pub(crate) mod keeper;
mod part;
mod plan;
mod recover;

use crate::StoreError;
use crate::clocks::ClockSample;
use crate::info::RunInfo;
pub use crate::master::{FileEntry, Master, Removed, State};
use crate::recorder::{self, Recorder, Report};
use crate::shot::{Books, Event, Loss, MAX_LINKS, StreamBooks};
use keeper::{Back, Former, Keeper, LaidOut, News};
use part::{Brief, Failed, Part};
use plan::Plan;
pub use plan::{Roll, SetConfig};
pub use recover::{RecoveredRun, recover};
use shotline_memory::Regions;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait for one drive while others may have news.
const GLANCE: Duration = Duration::from_millis(1);

/// Shots of a stream that were handed to the recorder and are in no row after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Their link.
    pub link: usize,
    /// Why.
    pub cause: DropCause,
    /// Those that were complete.
    pub complete: u64,
    /// Those that were partial.
    pub partial: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its files together.
    pub report: Report,
    /// What is in no row after all.
    pub given_up: Vec<GivenUp>,
    /// What a bounded run has removed.
    pub removed: Removed,
}

/// Ends the wait of [`Set::poll`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Mutex<Option<recorder::Waker>>>);

impl Waker {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // Held for a pointer's change, once a part.
        if let Some(waker) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            waker.wake();
        }
    }
    fn set(&self, part: &Part) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = part.stripes.first().map(|s| s.recorder.waker());
    }
}

/// The part after the present one.
#[derive(Debug)]
enum Next {
    /// Nobody has asked for it.
    Unasked,
    /// It is being laid out.
    Asked,
    /// It is there.
    Ready(Box<Part>),
    /// There will be none.
    None,
}

/// Records events into the files of a run. See the module.
#[derive(Debug)]
pub struct Set {
    plan: Arc<Plan>,
    /// None if one plain file is all.
    keeper: Option<Keeper>,
    current: Part,
    /// Parts that take no more rows, but of which readers do not see all yet.
    draining: VecDeque<Part>,
    next: Next,
    /// Drives that work.
    drives: Vec<usize>,
    /// Losses that stand behind the last row.
    waiting: Vec<Loss>,
    given_up: Vec<GivenUp>,
    notes: Vec<(String, u64)>,
    offered: u64,
    /// Rows of parts that are settled.
    settled: u64,
    first_offer: Option<Instant>,
    /// Since when the next part has been waited for, and how long in all.
    short_since: Option<Instant>,
    short: Duration,
    waker: Waker,
    warnings: Vec<String>,
}

impl Set {
    /// Lays out the first part, on every drive. Everything that can be refused is refused here. The buffers of the
    /// events to come must be from `regions`.
    pub fn create(config: &SetConfig, run: &RunInfo, regions: &Regions) -> Result<Self, StoreError> {
        let plan = Plan::new(config, run, regions)?;
        if config.is_single() {
            let recorder = Recorder::create(config.master(), &config.recorder, run, regions)?;
            return Ok(Self::over(Arc::new(plan), Part::new(0, vec![(0, recorder)], false), None));
        }
        let rows = plan.part_rows.min(limit(&plan).unwrap_or(u64::MAX)).max(1);
        // What can be refused is refused before anything of an earlier run goes.
        run.check()?;
        let replaced = config.replaced()?;
        plan.check_space(rows, &replaced.files())?;
        replaced.clear_parts()?;
        let plan = Arc::new(plan);
        let drives: Vec<usize> = (0..plan.drives()).collect();
        let (recorders, mut refused) = keeper::lay_out(&plan, (0, &drives), rows, &Former::default());
        let begun = match refused.pop() {
            None => Back::new(Arc::clone(&plan), &drives, replaced.has_master()),
            Some((_, error)) => Err(error),
        };
        let back = match begun {
            Ok(back) => back,
            Err(error) => {
                remove(&plan, 0, recorders.iter().map(|(drive, _)| *drive));
                replaced.forgo();
                return Err(error);
            }
        };
        let mut set = Self::over(plan, Part::new(0, recorders, true), Some(Keeper::start(back)));
        set.warnings.extend(config.shared_drives());
        if config.rolls() {
            set.ask_next();
        }
        Ok(set)
    }

    fn over(plan: Arc<Plan>, current: Part, keeper: Option<Keeper>) -> Self {
        let waker = Waker(Arc::new(Mutex::new(None)));
        waker.set(&current);
        let of_run = plan.config.master().display().to_string();
        let mut warnings: Vec<String> = Vec::new();
        for stripe in &current.stripes {
            let path = stripe.recorder.so_far().path.display().to_string();
            warnings.extend(stripe.recorder.warnings().iter().map(|warning| warning.replace(&path, &of_run)));
        }
        warnings.dedup();
        Self {
            drives: (0..plan.drives()).collect(),
            plan,
            keeper,
            current,
            draining: VecDeque::new(),
            next: Next::Unasked,
            waiting: Vec::new(),
            given_up: Vec::new(),
            notes: Vec::new(),
            offered: 0,
            settled: 0,
            first_offer: None,
            short_since: None,
            short: Duration::ZERO,
            waker,
            warnings,
        }
    }

    /// What could not be had, and what that means.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
    /// Rows that can still be offered; [`u64::MAX`] if there is no end in sight.
    pub fn remaining(&self) -> u64 {
        let here = self.current.room.saturating_sub(self.current.offered);
        let here = if self.current.is_closed() { 0 } else { here };
        match (&self.keeper, &self.next) {
            (None, _) | (_, Next::None) => here,
            _ => limit(&self.plan).map_or(u64::MAX, |limit| limit.saturating_sub(self.offered)),
        }
    }
    /// Rows that readers see.
    pub fn visible(&self) -> u64 {
        self.settled + self.draining.iter().map(Part::visible).sum::<u64>() + self.current.visible()
    }
    /// Rows offered whose data is not in the files yet.
    pub fn pending(&self) -> usize {
        self.draining.iter().map(Part::pending).sum::<usize>() + self.current.pending()
    }
    /// Ends [`Self::poll`]'s wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }
    /// Notes a count of the whole run for its books.
    pub fn note(&mut self, name: String, value: u64) {
        self.notes.push((name, value));
    }

    /// Begins to write an event as the next row; gives it back while its drive is busy or the next part is not ready,
    /// or if there is no room at all ([`Self::remaining`]).
    pub fn offer(&mut self, event: Event) -> Result<(), Event> {
        if self.keeper.is_some() && (self.current.is_closed() || self.is_over()) {
            self.advance();
        }
        // Where stamps join events each link has numbers of its own: then all that is known is due.
        let due = if self.plan.run.by_stamp { u64::MAX - 1 } else { event.number };
        self.current.offer(event, due, &mut self.waiting)?;
        self.first_offer.get_or_insert_with(Instant::now);
        self.offered += 1;
        Ok(())
    }

    /// Enters a run of shots that are in no row, or in a row as lost.
    pub fn loss(&mut self, loss: Loss) {
        let recent = self.waiting.len().saturating_sub(2 * MAX_LINKS);
        let last = self.waiting[recent..].iter_mut().rev().find(|last| last.stream == loss.stream);
        match last.filter(|last| last.cause == loss.cause && last.first + last.count == loss.first) {
            Some(last) => last.count += loss.count,
            None => self.waiting.push(loss),
        }
    }

    /// Enters how a link's clock runs, into the files that are being written.
    pub fn clock(&mut self, link: usize, sample: &ClockSample) {
        self.current.stripes.iter_mut().for_each(|stripe| stripe.recorder.clock(link, sample));
    }

    /// Enters an event as losses: it was handed over, and is not to be recorded.
    pub fn give_up(&mut self, event: &Event, cause: DropCause) {
        self.lose(&Brief::of(event), cause);
    }

    fn lose(&mut self, brief: &Brief, cause: DropCause) {
        for (link, (complete, number)) in brief.shots.iter().zip(&brief.numbers).enumerate() {
            let (Some(complete), Some(info)) = (complete, self.plan.run.links.get(link)) else { continue };
            let stream = info.stream;
            let known = self.given_up.iter().position(|given| given.link == link && given.cause == cause);
            let index = known.unwrap_or_else(|| {
                self.given_up.push(GivenUp { link, cause, complete: 0, partial: 0 });
                self.given_up.len() - 1
            });
            let given = &mut self.given_up[index];
            *if *complete { &mut given.complete } else { &mut given.partial } += 1;
            self.loss(Loss { stream, cause, first: *number, count: 1 });
        }
    }

    /// Whether it is time for the next part.
    fn is_over(&self) -> bool {
        let after = self.plan.config.roll.after;
        after.zip(self.current.begun).is_some_and(|(after, begun)| begun.elapsed() >= after)
    }

    /// Goes on to the next part, if it is there.
    fn advance(&mut self) {
        if !matches!(self.next, Next::Ready(_)) {
            // A part that only time would end goes on meanwhile.
            if self.current.is_closed() && !matches!(self.next, Next::None) {
                self.short_since.get_or_insert_with(Instant::now);
            }
            return;
        }
        self.short += self.short_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let Next::Ready(part) = std::mem::replace(&mut self.next, Next::Unasked) else { return };
        self.draining.push_back(std::mem::replace(&mut self.current, *part));
        self.waker.set(&self.current);
    }

    /// Asks for the next part, if rows may come for it.
    fn ask_next(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        let here = if self.plan.config.roll.after.is_some() || self.current.is_closed() {
            self.current.offered
        } else {
            self.current.room
        };
        let before = self.offered - self.current.offered;
        let left = limit(&self.plan).map_or(u64::MAX, |limit| limit.saturating_sub(before + here));
        if left == 0 {
            self.next = Next::None;
            return;
        }
        keeper.lay_out(self.current.number + 1, self.drives.clone(), left.min(self.plan.part_rows));
        self.next = Next::Asked;
    }

    /// Reaps what has been written, waiting for at most so long (none: not at all), and makes rows visible that are
    /// due.
    pub fn poll(&mut self, wait: Option<Duration>) -> Result<(), StoreError> {
        while let Some(news) = self.keeper.as_ref().and_then(Keeper::news) {
            self.hear(news);
        }
        // Without that thread no part would ever follow.
        if self.keeper.as_ref().is_some_and(Keeper::is_gone) {
            return Err(no_part());
        }
        let mut failed = Vec::new();
        for part in &mut self.draining {
            failed.extend(part.poll(None).err());
        }
        self.settle();
        let busy = !self.draining.is_empty() || self.current.stripes.len() != 1 || self.short_since.is_some();
        let wait = if busy { wait.map(|wait| wait.min(GLANCE)) } else { wait };
        if let Some(wait) = wait.filter(|_| self.current.stripes.is_empty()) {
            std::thread::sleep(wait);
        }
        failed.extend(self.current.poll(wait).err());
        for failed in failed {
            self.lose_drive(*failed)?;
        }
        Ok(())
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Ready(part, laid_out) => self.take_next(part, laid_out),
            News::Listed(number) => {
                let parts = self.draining.iter_mut().chain([&mut self.current]);
                parts.filter(|part| part.number == number).for_each(|part| part.hold(false));
                if self.plan.config.rolls() && matches!(self.next, Next::Unasked) {
                    self.ask_next();
                }
            }
        }
    }

    fn take_next(&mut self, number: u32, (recorders, refused): LaidOut) {
        let (kept, dropped): (Vec<_>, Vec<_>) =
            recorders.into_iter().partition(|(drive, _)| self.drives.contains(drive));
        remove(&self.plan, number, dropped.iter().map(|(drive, _)| *drive));
        for (drive, error) in refused {
            let goes_on =
                if kept.is_empty() { "the run ends with the present part" } else { "the run goes on without it" };
            self.warnings.push(format!("part {number} has no file on drive {drive}, and {goes_on}: {error}"));
            self.drives.retain(|working| *working != drive || kept.is_empty());
        }
        self.next = if kept.is_empty() {
            Next::None
        } else {
            let mut part = Part::new(number, kept, true);
            part.hold(true);
            Next::Ready(Box::new(part))
        };
    }

    /// Hands over parts of which readers see every row.
    fn settle(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        while self.draining.front().is_some_and(Part::is_settled) {
            let Some(part) = self.draining.pop_front() else { break };
            self.settled += part.visible();
            let next = self.draining.front().unwrap_or(&self.current);
            // As it was laid out: a drive may have failed since.
            let drives = next.stripes.iter().map(|stripe| stripe.drive).chain(next.failed.iter().map(|f| f.0));
            let mut drives: Vec<usize> = drives.collect();
            drives.sort_unstable();
            keeper.settle(part, Some((next.number, drives)));
        }
    }

    /// Goes on without a drive, if there is another one.
    fn lose_drive(&mut self, failed: Failed) -> Result<(), StoreError> {
        let Failed { drive, unseen, losses, error } = failed;
        let known = !self.drives.contains(&drive);
        self.drives.retain(|working| *working != drive);
        if self.keeper.is_none() || self.drives.is_empty() {
            return Err(error);
        }
        if !known {
            self.warnings.push(format!(
                "the run goes on without drive {drive} ({} shots there are lost with the cause sink_error): {error}",
                unseen.iter().map(|brief| brief.shots.iter().flatten().count()).sum::<usize>()
            ));
        }
        losses.into_iter().for_each(|loss| self.waiting.push(loss));
        unseen.iter().for_each(|brief| self.lose(brief, DropCause::SinkError));
        if let Next::Ready(part) = &mut self.next {
            let number = part.number;
            part.stripes.retain(|stripe| stripe.drive != drive);
            let left: Vec<_> = std::mem::take(&mut part.stripes);
            remove(&self.plan, number, [drive].into_iter());
            self.take_next(number, (left.into_iter().map(|s| (s.drive, s.recorder)).collect(), Vec::new()));
        }
        if self.current.is_closed() && matches!(self.next, Next::Unasked | Next::None) {
            self.ask_next();
        }
        Ok(())
    }

    /// Ends the run: waits for its writes, makes every row visible, enters losses and books, and ends the files.
    /// What was given up is taken back from the books first.
    pub fn finish(mut self, mut books: Books) -> Result<Finished, StoreError> {
        if self.keeper.is_none() {
            self.waiting.drain(..).for_each(|loss| self.current.loss(loss));
            self.take_back(&mut books);
            let Some(stripe) = self.current.stripes.pop() else { return Err(no_part()) };
            let report = stripe.recorder.finish(&books)?;
            return Ok(Finished { report, given_up: std::mem::take(&mut self.given_up), removed: Removed::default() });
        }
        while !(self.draining.is_empty() && self.current.is_settled() && !self.current.stripes.is_empty()) {
            if self.current.stripes.is_empty() {
                if matches!(self.next, Next::None) {
                    return Err(no_part());
                }
                self.advance();
            }
            if self.keeper.as_ref().is_some_and(Keeper::is_gone) {
                return Err(no_part());
            }
            self.poll(Some(GLANCE))?;
        }
        let seconds = self.first_offer.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        self.waiting.drain(..).for_each(|loss| self.current.loss(loss));
        self.take_back(&mut books);
        let Some(back) = self.close() else { return Err(no_part()) };
        let current = std::mem::replace(&mut self.current, Part::new(0, Vec::new(), false));
        let (mut report, removed) = back.end(current, &books)?;
        report.seconds = seconds;
        if !self.short.is_zero() {
            self.warnings.push(format!(
                "the next part was waited for during {:.3} s in all: larger parts, or a faster drive, would mend that",
                self.short.as_secs_f64()
            ));
        }
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut report.warnings);
        report.warnings = warnings;
        Ok(Finished { report, given_up: std::mem::take(&mut self.given_up), removed })
    }

    /// Takes from the books what was given up, and enters notes.
    fn take_back(&mut self, books: &mut Books) {
        for given in &self.given_up {
            let stream = self.plan.run.links[given.link].stream;
            let Some(books) = books.streams.iter_mut().find(|books| books.stream == stream) else { continue };
            books.shots_complete = books.shots_complete.saturating_sub(given.complete);
            books.shots_partial = books.shots_partial.saturating_sub(given.partial);
            books.shot_drops.add(given.cause, given.complete + given.partial);
        }
        if !self.notes.is_empty() {
            let whole = books.streams.iter_mut().find(|books| books.stream == recorder::WHOLE_RUN);
            match whole {
                Some(whole) => whole.more.append(&mut self.notes),
                None => books.streams.push(StreamBooks {
                    stream: recorder::WHOLE_RUN,
                    more: std::mem::take(&mut self.notes),
                    ..StreamBooks::default()
                }),
            }
        }
    }

    /// Ends the second thread, and removes the part that nobody needs any more.
    fn close(&mut self) -> Option<Back> {
        let (back, news) = self.keeper.take()?.end();
        for news in news {
            if let News::Ready(part, (recorders, _)) = news {
                remove(&self.plan, part, recorders.iter().map(|(drive, _)| *drive));
            }
        }
        if let Next::Ready(part) = std::mem::replace(&mut self.next, Next::None) {
            remove(&self.plan, part.number, part.stripes.iter().map(|stripe| stripe.drive));
        }
        back
    }

    /// Leaves nothing behind: for a run that never began.
    pub fn abandon(mut self) {
        let files: Vec<PathBuf> = match self.keeper {
            None => Vec::new(),
            Some(_) => self.current.stripes.iter().map(|s| self.plan.path(self.current.number, s.drive)).collect(),
        };
        self.close();
        for file in files.iter().map(PathBuf::as_path).chain([self.plan.config.master()]) {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // A run that broke off: what was written stays, what was only laid out does not.
        self.close();
    }
}

/// Rows that a run will have at most.
fn limit(plan: &Plan) -> Option<u64> {
    if plan.config.rolls() { plan.config.rows } else { Some(plan.config.recorder.rows) }
}

/// Removes files of a part that have no rows.
fn remove(plan: &Plan, part: u32, drives: impl Iterator<Item = usize>) {
    for drive in drives {
        let _ = std::fs::remove_file(plan.path(part, drive));
    }
}

fn no_part() -> StoreError {
    StoreError::Run(
        "no part is left that the run could end with: every drive is full, or the thread that keeps the parts is gone"
            .into(),
    )
}
