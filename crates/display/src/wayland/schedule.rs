//! When buffers are committed.
//!
//! The protocol has no target refresh: a commit becomes visible at the next refresh for which the compositor has not composed
//! yet. A buffer is therefore committed once the refresh before its own has passed, which the compositor's reports show, and
//! between them the time. While a buffer waits, commits without a buffer (ticks) cause such reports.

use super::refreshes::Refreshes;
use crate::{Mode, Shown};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Refreshes before that of a waiting buffer from which there are ticks.
const LEAD: u64 = 4;

/// Time after which a compositor that has composed with the first frame, but has not reported its refresh, never does.
const SILENCE: Duration = Duration::from_secs(1);

/// A commit, for which the compositor has not reported yet what became of it.
#[derive(Debug)]
struct Commit {
    serial: u64,
    /// The buffer that this commit shows, if no report on an earlier one says so. `None` for a tick.
    buffer: Option<usize>,
    /// Refresh before which it cannot have become visible.
    least: u64,
    /// When the compositor reported that it has composed with it: a later commit does not replace it.
    latched: Option<Instant>,
    /// Whether a later commit may have replaced it.
    replaced: bool,
}

/// A commit that is to be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub serial: u64,
    /// `None` for a tick.
    pub buffer: Option<usize>,
}

enum Decision {
    Show(usize),
    Tick,
    /// Nothing before this time.
    At(Instant),
    /// Nothing before the compositor reports something.
    Wait,
}

/// Waiting buffers and commits. It has no clock and no connection.
#[derive(Debug)]
pub(super) struct Schedule {
    refreshes: Refreshes,
    /// Buffers that wait for their refresh, with it.
    waiting: VecDeque<(usize, u64)>,
    commits: VecDeque<Commit>,
    serial: u64,
    last_commit: Option<Instant>,
    /// No commit before this time, since the compositor has discarded one: it would discard the next one, too.
    hold: Option<Instant>,
}

impl Schedule {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            refreshes: Refreshes::new(mode.interval()),
            waiting: VecDeque::new(),
            commits: VecDeque::new(),
            serial: 0,
            last_commit: None,
            hold: None,
        }
    }

    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.refreshes.interval = interval.max(Duration::from_nanos(1));
    }

    /// Appends a buffer that is to be shown at this refresh, or at the first possible one after it.
    pub(super) fn push(&mut self, buffer: usize, due: u64) {
        self.waiting.push_back((buffer, due));
    }

    /// Returns the commit that is to be made now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Action> {
        let buffer = match self.decide(now) {
            Decision::Show(buffer) => Some(buffer),
            Decision::Tick => None,
            Decision::At(_) | Decision::Wait => return None,
        };
        Some(self.commit(buffer, now))
    }

    fn commit(&mut self, buffer: Option<usize>, now: Instant) -> Action {
        let due = buffer.and_then(|_| self.waiting.pop_front()).map_or(0, |(_, due)| due);
        let least = self.earliest(now).unwrap_or(due);
        for commit in self.commits.iter_mut().filter(|commit| commit.latched.is_none()) {
            commit.replaced = true;
        }
        self.serial += 1;
        self.last_commit = Some(now);
        self.commits.push_back(Commit { serial: self.serial, buffer, least, latched: None, replaced: false });
        Action { serial: self.serial, buffer }
    }

    /// Returns a tick that is to be committed now, to apply other state of the window. `None` before the first buffer, whose
    /// commit applies it.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Action> {
        self.last_commit.map(|_| self.commit(None, now))
    }

    /// Returns the time after which [`Self::next`] may return a commit, although nothing was reported.
    pub(super) fn timeout(&self, now: Instant) -> Option<Duration> {
        let next = match self.decide(now) {
            Decision::Show(_) | Decision::Tick => Some(now),
            Decision::At(time) => Some(time),
            Decision::Wait => None,
        };
        let time = next.into_iter().chain(self.silent_from()).min();
        time.map(|time| time.saturating_duration_since(now))
    }

    /// Returns when it is certain that the compositor does not report refreshes, unless it does before.
    fn silent_from(&self) -> Option<Instant> {
        let first = self.commits.iter().find_map(|commit| commit.latched).filter(|_| self.refreshes.last.is_none());
        first.map(|time| time + SILENCE)
    }

    /// Returns the commits with which the compositor has composed, by serial number and time, if it does not report refreshes.
    pub(super) fn silent(&self, now: Instant) -> Option<Vec<(u64, Instant)>> {
        self.silent_from().filter(|time| *time <= now)?;
        let latched = self.commits.iter().filter_map(|commit| Some((commit.serial, commit.latched?)));
        Some(latched.collect())
    }

    fn decide(&self, now: Instant) -> Decision {
        let Some((buffer, due)) = self.waiting.front().copied() else { return Decision::Wait };
        if let Some(hold) = self.hold.filter(|hold| *hold > now) {
            return Decision::At(hold);
        }
        let mut unlatched = self.commits.iter().filter(|commit| commit.latched.is_none());
        if unlatched.clone().any(|commit| commit.buffer.is_some()) {
            return Decision::Wait;
        }
        let (Some(last), Some(earliest)) = (self.refreshes.last, self.earliest(now)) else {
            // Refreshes have no numbers before the first frame, for which a window is not visible. Some compositors do not show
            // that frame yet when they report that they have composed with it.
            let is_first = self.commits.iter().all(|commit| commit.buffer.is_none());
            return if is_first { Decision::Show(buffer) } else { Decision::Wait };
        };
        if earliest >= due {
            return Decision::Show(buffer);
        }
        let alone = self.refreshes.time_before(due);
        let at = |time: Option<Instant>| time.map_or(Decision::Wait, Decision::At);
        if unlatched.any(|commit| !commit.replaced) {
            return at(alone);
        }
        let lead = self.refreshes.span(due.saturating_sub(last.number).saturating_sub(LEAD));
        let limit = self.last_commit.map(|time| time + self.refreshes.interval / 2);
        let tick = last.received.checked_add(lead).max(limit);
        match tick {
            Some(tick) if tick <= now => Decision::Tick,
            Some(tick) => Decision::At(alone.map_or(tick, |alone| alone.min(tick))),
            None => at(alone),
        }
    }

    /// Returns the first refresh at which a commit now can become visible. `None` before the first one is known.
    fn earliest(&self, now: Instant) -> Option<u64> {
        // Each commit that the compositor has composed with becomes visible at a refresh of its own.
        let composed = self.commits.iter().filter(|commit| commit.latched.is_some() && !commit.replaced).count() as u64;
        let last = self.refreshes.last?;
        self.refreshes.after(now).map(|after| after.max(last.number.saturating_add(1).saturating_add(composed)))
    }

    /// Records that the compositor has composed with a commit, and with all before it.
    pub(super) fn latched(&mut self, serial: u64, now: Instant) {
        for commit in self.commits.iter_mut().filter(|commit| commit.serial <= serial) {
            commit.latched.get_or_insert(now);
        }
    }

    /// Records that a commit became visible. Returns what was shown, `None` for a tick.
    ///
    /// `counter` is that of the screen's refreshes, 0 if there is none.
    pub(super) fn presented(&mut self, serial: u64, at: Duration, counter: u64, now: Instant) -> Option<Shown> {
        self.latched(serial, now);
        self.hold = None;
        let index = self.position(serial)?;
        let commit = self.commits.remove(index)?;
        let refresh = self.refreshes.add(at, counter, commit.least, now);
        commit.buffer.map(|buffer| Shown { buffer, refresh, at, crc32: None })
    }

    /// Drops the commits before one that became visible, on which the compositor should have reported. Returns their buffers.
    pub(super) fn unreported(&mut self, serial: u64) -> Vec<usize> {
        let count = self.position(serial).unwrap_or(0);
        self.commits.drain(..count).filter_map(|commit| commit.buffer).collect()
    }

    /// Records that a commit will not become visible by itself. Returns its buffer if that will not become visible; a tick that
    /// has replaced the commit shows its buffer.
    pub(super) fn discarded(&mut self, serial: u64) -> Option<usize> {
        let index = self.position(serial)?;
        let buffer = self.commits.remove(index)?.buffer;
        match self.commits.get_mut(index) {
            Some(tick) if tick.buffer.is_none() => {
                tick.buffer = buffer;
                None
            }
            Some(_) => buffer,
            None => {
                self.hold = self.last_commit.and_then(|time| time.checked_add(self.refreshes.interval));
                buffer
            }
        }
    }

    fn position(&self, serial: u64) -> Option<usize> {
        self.commits.iter().position(|commit| commit.serial == serial)
    }
}

#[cfg(test)]
mod tests;
