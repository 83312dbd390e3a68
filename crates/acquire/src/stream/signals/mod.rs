//! What a sender says besides samples: numbers that are no shots', that it stops, what samples mean, which packets it
//! never sent, and that what follows is another stream.

use super::config::StreamConfig;
use context::Context;
use shotline_memory::Buffer;
use shotline_wire::framing::Meaning;
use shotline_wire::shot::{DropCause, Geometry, Presence, Trailer};
use std::collections::VecDeque;
use std::ops::Range;

mod context;

/// Shots that may be missing before the sender's word that it has ended.
const MOST_BEFORE_STOP: u64 = 1 << 16;
/// Numbers that were no shots' and lie ahead of those that have left, at most: more are counted as missing.
const MOST_NUMBERS: usize = 64;

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

/// What the sender of a stream has said besides samples.
#[derive(Debug)]
pub(super) struct Signals {
    packets: u32,
    /// Numbers that stream control or the like took from the shots, ascending.
    numbers: VecDeque<u64>,
    /// The number with which the sender has ended its stream.
    stopped: Option<u64>,
    /// What packets of context said, where they are what closes a shot.
    context: Option<Context>,
    /// What comes now is not what the stream was: it has ended.
    ended: Option<Ended>,
}

impl Signals {
    /// `meaning` is what samples mean before any packet says so.
    pub(super) fn new(config: &StreamConfig, meaning: Meaning) -> Self {
        let has_context = config.geometry.trailer() == Trailer::Context;
        Self {
            packets: config.geometry.packets(),
            numbers: VecDeque::new(),
            stopped: None,
            context: has_context.then(|| Context::new(meaning)),
            ended: None,
        }
    }

    /// A packet has taken this number from the shots, of which `next` is the first that has not left. With `stop` it is
    /// the sender's last one. A number that has data is a shot's (`is_shot`), whatever else bears it.
    pub(super) fn note_number(&mut self, number: u64, stop: bool, next: u64, is_shot: bool) {
        if stop {
            self.stopped = Some(number);
        }
        self.numbers.retain(|number| *number >= next);
        if number >= next && !is_shot && !self.numbers.contains(&number) && self.numbers.len() < MOST_NUMBERS {
            let at = self.numbers.partition_point(|other| *other < number);
            self.numbers.insert(at, number);
        }
    }

    /// A packet of context says what samples mean from a shot on. With `lost`, samples were lost just before.
    pub(super) fn note_meaning(&mut self, from: u64, meaning: Meaning, lost: bool) {
        if let Some(context) = &mut self.context {
            context.note_meaning(from, meaning, lost);
        }
    }

    /// Whether packets' counts tell which of them were never sent.
    #[inline]
    pub(super) fn has_counts(&self) -> bool {
        self.context.is_some()
    }

    /// Takes note of the sender's count in a packet of samples.
    pub(super) fn note_count(&mut self, number: u64, index: u32, count: u8) {
        if let Some(context) = &mut self.context {
            context.note_count(number, number * u64::from(self.packets) + u64::from(index), count);
        }
    }

    /// A shot has this number, whatever else bears it.
    #[inline]
    pub(super) fn note_shot(&mut self, number: u64) {
        self.numbers.retain(|signal| *signal != number);
    }

    /// Ends the stream: what comes from now on is dropped.
    pub(super) fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Why the stream has ended, if it has.
    #[inline]
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether the sender has said that no more shots come.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The number after the sender's last shot, if it has stopped. No CRC protects its word: an end that is far behind
    /// `next` is not believed.
    pub(super) fn stop(&self, next: u64) -> Option<u64> {
        self.stopped.map(|number| number + 1).filter(|end| end.saturating_sub(next) < MOST_BEFORE_STOP)
    }

    /// Forgets numbers and the stop: the sender has begun anew.
    pub(super) fn forget_numbers(&mut self) {
        self.stopped = None;
        self.numbers.clear();
    }

    /// Whether no shot has the number `next`.
    #[inline]
    pub(super) fn is_at(&self, next: u64) -> bool {
        self.numbers.front() == Some(&next)
    }

    /// Divides shots that never came by why: numbers that were no shots', those that were never sent, and the others,
    /// which have this cause. Calls `enter` for each range, in ascending order; ranges may be empty.
    pub(super) fn divide(&mut self, shots: Range<u64>, cause: DropCause, mut enter: impl FnMut(Range<u64>, DropCause)) {
        let Range { start: mut first, end } = shots;
        while let Some(number) = self.numbers.front().copied().filter(|number| *number < end) {
            self.numbers.pop_front();
            if number >= first {
                self.divide_shots(first..number, cause, &mut enter);
                enter(number..number + 1, DropCause::NotData);
                first = number + 1;
            }
        }
        self.divide_shots(first..end, cause, &mut enter);
    }

    /// The same where all of the numbers are shots'.
    fn divide_shots(&self, shots: Range<u64>, cause: DropCause, enter: &mut impl FnMut(Range<u64>, DropCause)) {
        let (Range { start: mut first, end }, packets) = (shots, u64::from(self.packets));
        let gaps = self.context.as_ref().filter(|_| cause == DropCause::WireGap);
        for left_out in gaps.into_iter().flat_map(Context::left_out) {
            let (start, end) = (left_out.start.div_ceil(packets).max(first), (left_out.end / packets).min(end));
            if start < end {
                enter(first..start, cause);
                enter(start..end, DropCause::Overrun);
                first = end;
            }
        }
        enter(first..end, cause);
    }

    /// How many of the packets that a shot lacks were never sent.
    pub(super) fn unsent(&self, number: u64, presence: &Presence) -> u64 {
        let first = number.saturating_mul(u64::from(self.packets));
        self.context.as_ref().map_or(0, |context| {
            presence.missing().filter(|index| context.is_left_out(first + u64::from(*index))).count() as u64
        })
    }

    /// Writes what is known of a shot's samples to its slot, as the trailer that was not sent. Returns what they mean.
    pub(super) fn describe(&mut self, number: u64, geometry: &Geometry, buffer: &Buffer) -> Meaning {
        self.context.as_mut().map_or_else(Meaning::default, |context| context.describe(number, geometry, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::{Cut, Packing};

    /// Of a stream of shots of three packets.
    fn signals(trailer: Trailer) -> Signals {
        let geometry = Geometry::new(1, 2400, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(trailer, Cut::uniform(800)).unwrap();
        assert_eq!(geometry.packets(), 3);
        let config = StreamConfig { geometry, ..StreamConfig::of_three_packets() };
        Signals::new(&config, Meaning::default())
    }

    fn divided(signals: &mut Signals, shots: Range<u64>) -> Vec<(u64, u64, DropCause)> {
        let mut ranges = Vec::new();
        signals.divide(shots, DropCause::WireGap, |range, cause| ranges.push((range.start, range.end, cause)));
        ranges.retain(|(start, end, _)| start < end);
        ranges
    }

    #[test]
    fn a_number_that_is_no_shots_divides_a_loss() {
        let mut signals = signals(Trailer::None);
        for number in [7, 5, 7, 2] {
            signals.note_number(number, false, 3, false);
        }
        signals.note_number(9, false, 3, true);
        assert!(!signals.is_at(3) && signals.is_at(5));
        let [gap, none] = [DropCause::WireGap, DropCause::NotData];
        assert_eq!(divided(&mut signals, 3..7), [(3, 5, gap), (5, 6, none), (6, 7, gap)]);
        assert!(signals.is_at(7));
        signals.note_shot(7);
        assert_eq!(divided(&mut signals, 7..10), [(7, 10, gap)], "7 has data, and so has 9");
    }

    #[test]
    fn numbers_ahead_take_bounded_room() {
        let mut signals = signals(Trailer::None);
        (0..1000).for_each(|number| signals.note_number(number, false, 0, false));
        assert_eq!(signals.numbers.len(), MOST_NUMBERS);
        signals.note_number(1000, false, 1000, false);
        assert_eq!(signals.numbers, [1000], "what has left is forgotten");
    }

    #[test]
    fn a_stop_far_ahead_is_not_believed() {
        let mut signals = signals(Trailer::None);
        assert!(!signals.has_stopped() && signals.stop(0).is_none());
        signals.note_number(MOST_BEFORE_STOP, true, 0, false);
        assert_eq!((signals.has_stopped(), signals.stop(0), signals.stop(2)), (true, None, Some(MOST_BEFORE_STOP + 1)));
        signals.forget_numbers();
        assert!(!signals.has_stopped() && !signals.is_at(MOST_BEFORE_STOP));
    }

    #[test]
    fn whole_shots_that_were_never_sent_are_no_loss_of_the_wire() {
        let mut signals = signals(Trailer::Context);
        signals.note_count(1, 2, 0);
        signals.note_count(5, 1, 1); // ten packets are missing, and the count says that none of them was sent
        assert_eq!(signals.unsent(2, &Presence::empty(3)), 3);
        let [gap, overrun] = [DropCause::WireGap, DropCause::Overrun];
        assert_eq!(divided(&mut signals, 1..6), [(1, 2, gap), (2, 5, overrun), (5, 6, gap)]);
        assert_eq!(divided(&mut signals, 3..4), [(3, 4, overrun)]);
    }

    #[test]
    fn an_ended_stream_drops_what_comes() {
        let mut signals = signals(Trailer::None);
        assert_eq!(signals.ended(), None);
        signals.end(Ended::Other);
        assert_eq!(signals.ended().map(Ended::cause), Some(DropCause::NotData));
        assert_eq!(Ended::Anew.cause(), DropCause::SenderRestart);
    }
}
