//! A sender that begins to count anew, because it was restarted.
//!
//! Its numbers jump back, and a whole shot's worth of such packets comes while nothing else does. Or they seem to jump far
//! ahead, where they are few on the wire and wrap; then the frame number in a sensor bridge's metadata tells. A run goes
//! on with numbers of its own, which never repeat. Where each shot carries its sender's number in its record or its time
//! stamp, it ends instead: run and shots would contradict each other.

use super::{Item, NEAR, Open, Stream};
use crate::number::{self, Ring};
use shotline_wire::framing::Position;
use shotline_wire::shot::{DropCause, Drops, Trailer};

/// Turns of a ring of pages that a run of old packets begins with: there is room for numbers below.
const TURNS: u64 = 1 << 15;

/// One late packet is no restart, also where it is a whole shot.
const LEAST: u32 = 2;

/// Packets of old numbers that follow each other, by their sender's count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: u64,
    last: u64,
    ring: Option<Ring>,
    /// Those that came when nothing else had come for the time-out.
    in_silence: u32,
    /// How they were counted.
    drops: Drops,
}

/// Why a stream has ended before its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Samples of another kind have come.
    Other,
    /// Its sender has begun anew, and its shots carry numbers of their own, which the run has already.
    Anew,
}

impl Ended {
    /// Why what comes now is dropped.
    pub(super) fn cause(self) -> DropCause {
        match self {
            Self::Other => DropCause::NotData,
            Self::Anew => DropCause::SenderRestart,
        }
    }
}

impl Stream {
    /// A packet of a shot that has left. Stragglers say nothing; only such packets while nothing else comes do.
    pub(crate) fn note_late(&mut self, position: Position, cause: DropCause, now_ns: u64) {
        // A sender that was set up has forgotten that when it begins anew.
        if self.config.source.is_some() || self.next.is_none() {
            return;
        }
        let (number, ring) = match position {
            Position::Shot { number, bits, .. } => {
                (number::unwrap(number, bits, self.run.map_or(number, |run| run.last)), None)
            }
            Position::Paged { page, pages, first, bits, .. } => {
                let known = self.run.and_then(|run| run.ring);
                let number = known.and_then(|ring| ring.number_of(page, pages, first, bits, self.packets));
                let number = number.unwrap_or(u64::from(pages) * TURNS + u64::from(page));
                (number, Some(Ring { number, first }))
            }
            Position::Sequence { .. } => return,
        };
        let new = Run { first: number, last: number, ring, in_silence: 0, drops: Drops::default() };
        let near = self.config.window.max(NEAR);
        let goes_on = self.run.filter(|run| (run.first..=run.last.saturating_add(near)).contains(&number));
        let in_silence = u32::from(self.is_silent(now_ns));
        let run = self.run.insert(goes_on.unwrap_or(new));
        if number > run.last {
            (run.last, run.ring) = (number, ring);
        }
        run.in_silence += in_silence;
        run.drops.add(cause, 1);
    }

    /// A whole shot's worth of packets with old numbers, and nothing else for the time-out: the sender has begun anew.
    pub(crate) fn has_restarted(&self) -> bool {
        self.ended.is_none() && self.run.is_some_and(|run| run.in_silence >= self.packets.max(LEAST))
    }

    /// Goes on with numbers of its own where the next shot begins, or ends.
    pub(crate) fn restart(&mut self, out: &mut Vec<Item>, withdraw: &mut Vec<u32>) {
        let Some(run) = self.run.take() else { return };
        self.finish(None, out, withdraw);
        self.books.restarts += 1;
        self.books.packet_drops.replace(&run.drops, DropCause::SenderRestart);
        if !matches!(self.config.geometry.trailer(), Trailer::None | Trailer::HsbMetadata) {
            self.ended = Some(Ended::Anew);
            return;
        }
        let from = self.next.take().unwrap_or(0);
        self.goes_on = Some(from);
        self.shift = from.wrapping_sub(run.first);
        self.newest = from + (run.last - run.first);
        self.ring = run.ring;
        (self.stopped, self.frame) = (None, None);
        self.signals.clear();
    }

    /// Takes note of the frame number in a sensor bridge's metadata.
    pub(super) fn note_frame(&mut self, number: u64, frame: u16) {
        let counts = self
            .frame
            .is_some_and(|(before, was, _)| number > before && frame.wrapping_sub(was) == (number - before) as u16);
        self.frame = Some((number, frame, counts));
    }

    /// Whether the first shot behind a wide gap is one of a sender that has begun anew; none: that is not known yet.
    pub(super) fn is_anew(&self, next: u64, first: Open, stale: bool) -> Option<bool> {
        let known = self.frame.filter(|(.., counts)| *counts && first.number - next > NEAR);
        let (Some((number, frame, _)), Some(entry)) = (known, first.entry) else { return Some(false) };
        let state = &self.entries[entry];
        let metadata = state.buffer.as_ref().and_then(|buffer| self.metadata(buffer, &state.presence));
        match metadata {
            Some(metadata) => {
                let expected = frame.wrapping_add(first.number.wrapping_sub(number) as u16);
                Some(u64::from((metadata.frame.wrapping_sub(expected) as i16).unsigned_abs()) > NEAR)
            }
            None if stale || self.newest >= first.number + self.config.window => Some(false),
            None => None,
        }
    }

    /// Shots that are open, and all that follow, have numbers lower by so much.
    pub(super) fn renumber(&mut self, ahead: u64) {
        self.books.restarts += 1;
        self.open.iter_mut().for_each(|open| open.number -= ahead);
        self.newest -= ahead;
        self.shift = self.shift.wrapping_sub(ahead);
        self.frame = None;
    }
}
