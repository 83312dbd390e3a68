//! One part of a run while it is being written: one recorder on each drive, used in turn.

use crate::StoreError;
use crate::recorder::Recorder;
use crate::shot::{Event, Loss, MAX_LINKS, Shot};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Summary of a row, kept until the row is visible in case its drive fails.
#[derive(Clone, Debug)]
pub(super) struct RowSummary {
    pub(super) number: u64,
    /// For each link, `Some(true)` if its shot was complete; `None` without a shot.
    pub(super) shots: ArrayVec<Option<bool>, MAX_LINKS>,
    /// Shot numbers by link, all equal unless rows join shots by timestamp.
    pub(super) numbers: ArrayVec<u64, MAX_LINKS>,
}

impl RowSummary {
    pub(super) fn of(event: &Event) -> Self {
        let shots = event.shots.iter().map(|shot| shot.as_ref().map(|shot| shot.meta.is_complete()));
        let number = |shot: &Option<Shot>| shot.as_ref().map_or(event.number, |shot| shot.meta.number);
        Self { number: event.number, shots: shots.collect(), numbers: event.shots.iter().map(number).collect() }
    }
}

/// A part's file on one drive.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) drive: usize,
    pub(super) recorder: Recorder,
    /// Rows offered.
    pub(super) offered: u64,
    /// Rows that are not visible yet.
    unseen: VecDeque<RowSummary>,
    /// Losses written to this file.
    losses: Vec<Loss>,
}

impl Stripe {
    fn loss(&mut self, loss: Loss, retain_unseen: bool) {
        if retain_unseen {
            self.losses.push(loss);
        }
        self.recorder.loss(loss);
    }
}

/// Removes losses up to and including a shot number from a list, and returns them.
fn split_off(losses: &mut Vec<Loss>, number: u64) -> Vec<Loss> {
    let mut taken = Vec::new();
    losses.retain_mut(|loss| {
        if loss.first > number {
            return true;
        }
        let count = loss.count.min(number - loss.first + 1);
        taken.push(Loss { count, ..*loss });
        loss.first += count;
        loss.count -= count;
        loss.count > 0
    });
    taken
}

/// A part's file whose drive has failed.
#[derive(Debug)]
pub(super) struct FailedStripe {
    pub(super) drive: usize,
    /// Rows that will never be visible.
    pub(super) unseen: VecDeque<RowSummary>,
    /// Losses that must be written to another file.
    pub(super) losses: Vec<Loss>,
    pub(super) error: StoreError,
}

/// A part that is being written.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) stripes: Vec<Stripe>,
    /// Failed drives, with the number of rows visible on each.
    pub(super) failed: Vec<(usize, u64)>,
    /// Rows offered.
    pub(super) offered: u64,
    /// Maximum number of rows.
    pub(super) capacity: u64,
    /// First and last shot number.
    pub(super) numbers: Option<(u64, u64)>,
    /// Highest shot number, which may not be the last: a restarted sender counts from 0 again.
    pub(super) highest: Option<u64>,
    /// Shots of each link, without lost ones.
    pub(super) shots: [u64; MAX_LINKS],
    /// Time of the first row.
    pub(super) first_offer: Option<Instant>,
    /// Rows and losses are kept until visible, so that a failed drive's can be entered elsewhere.
    retain_unseen: bool,
}

impl Part {
    pub(super) fn new(number: u32, recorders: Vec<(usize, Recorder)>, retain_unseen: bool) -> Self {
        let min_rows = recorders.iter().map(|(_, recorder)| recorder.remaining()).min().unwrap_or(0);
        // Files that come later in a turn may have one row less.
        let turn = recorders.iter().take_while(|(_, recorder)| recorder.remaining() > min_rows).count() as u64;
        let capacity = min_rows * recorders.len() as u64 + turn;
        let stripe =
            |(drive, recorder)| Stripe { drive, recorder, offered: 0, unseen: VecDeque::new(), losses: Vec::new() };
        Self {
            number,
            stripes: recorders.into_iter().map(stripe).collect(),
            failed: Vec::new(),
            offered: 0,
            capacity,
            numbers: None,
            highest: None,
            shots: [0; MAX_LINKS],
            first_offer: None,
            retain_unseen,
        }
    }

    /// Returns `true` if the part accepts no further row: it is full, or a drive has failed.
    pub(super) fn is_closed(&self) -> bool {
        self.offered >= self.capacity || !self.failed.is_empty()
    }

    /// Writes an event as the next row; returns it if its drive is busy. Losses with numbers up to `up_to` are entered
    /// before it.
    pub(super) fn offer(&mut self, event: Event, up_to: u64, losses: &mut Vec<Loss>) -> Result<(), Event> {
        if self.is_closed() || self.stripes.is_empty() {
            return Err(event);
        }
        let turn = (self.offered % self.stripes.len() as u64) as usize;
        let stripe = &mut self.stripes[turn];
        let summary = RowSummary::of(&event);
        // Losses are entered first, so that a reader that sees the row finds every number before it. If the event is
        // returned, they are already in the right file.
        split_off(losses, up_to).into_iter().for_each(|loss| stripe.loss(loss, self.retain_unseen));
        stripe.recorder.offer(event)?;
        stripe.offered += 1;
        self.first_offer.get_or_insert_with(Instant::now);
        self.offered += 1;
        self.numbers = Some((self.numbers.map_or(summary.number, |(first, _)| first), summary.number));
        self.highest = self.highest.max(Some(summary.number));
        for (count, shot) in self.shots.iter_mut().zip(&summary.shots) {
            *count += u64::from(shot.is_some());
        }
        if self.retain_unseen {
            stripe.unseen.push_back(summary);
        }
        Ok(())
    }

    /// Enters a loss that is not followed by an event.
    pub(super) fn loss(&mut self, loss: Loss) {
        if let Some(stripe) = self.stripes.first_mut() {
            stripe.loss(loss, self.retain_unseen);
        }
    }

    /// Reaps completed writes, blocking for at most `wait`. Returns the state of a drive that has failed.
    pub(super) fn poll(&mut self, wait: Option<Duration>) -> Result<(), Box<FailedStripe>> {
        let turn = (self.offered % self.stripes.len().max(1) as u64) as usize;
        for index in 0..self.stripes.len() {
            let stripe = &mut self.stripes[index];
            let wait = if index == turn { wait } else { None };
            let polled = stripe.recorder.poll(wait);
            let hidden = (stripe.offered - stripe.recorder.visible()) as usize;
            let seen = stripe.unseen.len().saturating_sub(hidden);
            stripe.unseen.drain(..seen);
            if let Err(error) = polled {
                return Err(Box::new(self.fail(index, error)));
            }
        }
        Ok(())
    }

    fn fail(&mut self, index: usize, error: StoreError) -> FailedStripe {
        let Stripe { drive, recorder, unseen, losses, .. } = self.stripes.remove(index);
        let rows = recorder.visible();
        self.failed.push((drive, rows));
        self.offered -= unseen.len() as u64;
        for summary in &unseen {
            for (count, shot) in self.shots.iter_mut().zip(&summary.shots) {
                *count -= u64::from(shot.is_some());
            }
        }
        FailedStripe { drive, unseen, losses, error }
    }

    /// Returns `true` if every row is visible.
    pub(super) fn is_settled(&self) -> bool {
        self.stripes.iter().all(|stripe| stripe.recorder.visible() == stripe.offered)
    }

    /// Returns the number of visible rows.
    pub(super) fn visible(&self) -> u64 {
        let failed: u64 = self.failed.iter().map(|(_, rows)| rows).sum();
        self.stripes.iter().map(|stripe| stripe.recorder.visible()).sum::<u64>() + failed
    }

    /// Returns the number of offered rows whose data is not written yet.
    pub(super) fn pending(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.recorder.pending()).sum()
    }

    /// Stops or resumes making rows visible.
    pub(super) fn hold(&mut self, held: bool) {
        self.stripes.iter_mut().for_each(|stripe| stripe.recorder.hold_commits(held));
    }
}
