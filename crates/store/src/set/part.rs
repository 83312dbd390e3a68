//! One part of a run while it is being written: a recorder on each drive, taking turns.

use crate::StoreError;
use crate::recorder::Recorder;
use crate::shot::{Event, Loss, MAX_LINKS, Shot};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What is remembered of a row until readers see it, in case that its drive fails.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) number: u64,
    /// Of each link: whether its shot was complete, if there was one.
    pub(super) shots: ArrayVec<Option<bool>, MAX_LINKS>,
    /// Their numbers: one and the same, unless they were joined by stamps.
    pub(super) numbers: ArrayVec<u64, MAX_LINKS>,
}

impl Brief {
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
    /// Rows that readers do not see yet.
    unseen: VecDeque<Brief>,
    /// All losses that were entered here.
    losses: Vec<Loss>,
}

impl Stripe {
    fn loss(&mut self, loss: Loss, remembers: bool) {
        if remembers {
            self.losses.push(loss);
        }
        self.recorder.loss(loss);
    }
}

/// Takes what is not above a shot number out of a list of losses.
fn split_off(losses: &mut Vec<Loss>, number: u64) -> Vec<Loss> {
    let mut due = Vec::new();
    losses.retain_mut(|loss| {
        if loss.first > number {
            return true;
        }
        let count = loss.count.min(number - loss.first + 1);
        due.push(Loss { count, ..*loss });
        loss.first += count;
        loss.count -= count;
        loss.count > 0
    });
    due
}

/// A part's file whose drive has failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) drive: usize,
    /// Rows that readers will never see.
    pub(super) unseen: VecDeque<Brief>,
    /// Losses to be entered elsewhere.
    pub(super) losses: Vec<Loss>,
    pub(super) error: StoreError,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) number: u32,
    pub(super) stripes: Vec<Stripe>,
    /// Drives that failed, and rows that readers see there.
    pub(super) failed: Vec<(usize, u64)>,
    /// Rows offered, and rows that there is room for.
    pub(super) offered: u64,
    pub(super) room: u64,
    /// The first and the last shot number.
    pub(super) numbers: Option<(u64, u64)>,
    /// The highest one: a sender that restarted may have begun to count anew.
    pub(super) highest: Option<u64>,
    /// Shots of each link, lost ones not counted.
    pub(super) shots: [u64; MAX_LINKS],
    pub(super) begun: Option<Instant>,
    /// Whether a failed drive must be made up for.
    remembers: bool,
}

impl Part {
    pub(super) fn new(number: u32, recorders: Vec<(usize, Recorder)>, remembers: bool) -> Self {
        let least = recorders.iter().map(|(_, recorder)| recorder.remaining()).min().unwrap_or(0);
        // Files that come later in a turn may have one row less.
        let turn = recorders.iter().take_while(|(_, recorder)| recorder.remaining() > least).count() as u64;
        let room = least * recorders.len() as u64 + turn;
        let stripe =
            |(drive, recorder)| Stripe { drive, recorder, offered: 0, unseen: VecDeque::new(), losses: Vec::new() };
        Self {
            number,
            stripes: recorders.into_iter().map(stripe).collect(),
            failed: Vec::new(),
            offered: 0,
            room,
            numbers: None,
            highest: None,
            shots: [0; MAX_LINKS],
            begun: None,
            remembers,
        }
    }

    /// Whether it takes no further row: all are taken, or a drive has failed.
    pub(super) fn is_closed(&self) -> bool {
        self.offered >= self.room || !self.failed.is_empty()
    }

    /// Takes an event as the next row, unless its drive is busy. Losses of numbers up to `due` stand before it.
    pub(super) fn offer(&mut self, event: Event, due: u64, losses: &mut Vec<Loss>) -> Result<(), Event> {
        if self.is_closed() || self.stripes.is_empty() {
            return Err(event);
        }
        let turn = (self.offered % self.stripes.len() as u64) as usize;
        let stripe = &mut self.stripes[turn];
        let brief = Brief::of(&event);
        // Losses first: whoever sees the row then finds every number before it. If the event has to wait, they
        // are where they belong already.
        split_off(losses, due).into_iter().for_each(|loss| stripe.loss(loss, self.remembers));
        stripe.recorder.offer(event)?;
        stripe.offered += 1;
        self.begun.get_or_insert_with(Instant::now);
        self.offered += 1;
        self.numbers = Some((self.numbers.map_or(brief.number, |(first, _)| first), brief.number));
        self.highest = self.highest.max(Some(brief.number));
        for (count, shot) in self.shots.iter_mut().zip(&brief.shots) {
            *count += u64::from(shot.is_some());
        }
        if self.remembers {
            stripe.unseen.push_back(brief);
        }
        Ok(())
    }

    /// Enters a loss that no further event follows.
    pub(super) fn loss(&mut self, loss: Loss) {
        if let Some(stripe) = self.stripes.first_mut() {
            stripe.loss(loss, self.remembers);
        }
    }

    /// Reaps what has been written, waiting for at most so long. A drive that has failed comes back.
    pub(super) fn poll(&mut self, wait: Option<Duration>) -> Result<(), Box<Failed>> {
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

    fn fail(&mut self, index: usize, error: StoreError) -> Failed {
        let Stripe { drive, recorder, unseen, losses, .. } = self.stripes.remove(index);
        let rows = recorder.visible();
        self.failed.push((drive, rows));
        self.offered -= unseen.len() as u64;
        for brief in &unseen {
            for (count, shot) in self.shots.iter_mut().zip(&brief.shots) {
                *count -= u64::from(shot.is_some());
            }
        }
        Failed { drive, unseen, losses, error }
    }

    /// Whether every row of it is seen by readers.
    pub(super) fn is_settled(&self) -> bool {
        self.stripes.iter().all(|stripe| stripe.recorder.visible() == stripe.offered)
    }

    /// Rows that readers see.
    pub(super) fn visible(&self) -> u64 {
        let failed: u64 = self.failed.iter().map(|(_, rows)| rows).sum();
        self.stripes.iter().map(|stripe| stripe.recorder.visible()).sum::<u64>() + failed
    }

    /// Rows offered whose data is not in the files yet.
    pub(super) fn pending(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.recorder.pending()).sum()
    }

    pub(super) fn hold(&mut self, held: bool) {
        self.stripes.iter_mut().for_each(|stripe| stripe.recorder.hold(held));
    }
}
