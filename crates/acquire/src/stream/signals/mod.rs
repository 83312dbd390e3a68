//! Messages of a sender other than samples: numbers that belong to no shot, its stop, what samples mean,
//! which packets it never sent, and the end of a stream whose format has changed.

use super::config::StreamConfig;
use context::Context;
use shotline_memory::Buffer;
use shotline_wire::framing::SampleContext;
use shotline_wire::shot::{DropCause, Geometry, Presence, Trailer};
use std::collections::VecDeque;
use std::ops::Range;

mod context;

/// Maximum number of shots missing before a sender's stop; a stop further ahead is ignored.
const MAX_GAP_BEFORE_STOP: u64 = 1 << 16;
/// Maximum number of pending numbers that belong to no shot; further ones are counted as missing shots.
const MAX_NUMBERS: usize = 64;

/// Reason why a stream has ended before its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Samples of another kind have arrived.
    FormatChanged,
    /// Its sender was restarted, and its shots contain their own numbers, which the run already has.
    Restarted,
}

impl EndReason {
    /// Returns the drop cause of packets after the end.
    pub(super) fn cause(self) -> DropCause {
        match self {
            Self::FormatChanged => DropCause::NotData,
            Self::Restarted => DropCause::SenderRestart,
        }
    }
}

/// Messages of a stream's sender other than samples.
#[derive(Debug)]
pub(super) struct Signals {
    packets: u32,
    /// Numbers used by stream control or similar packets instead of shots, ascending.
    numbers: VecDeque<u64>,
    /// Number at which the sender stopped.
    stopped: Option<u64>,
    /// Contents of context packets, if these replace the trailer.
    context: Option<Context>,
    /// Set once the stream has ended.
    ended: Option<EndReason>,
}

impl Signals {
    /// Creates the state; `meaning` applies until the first context packet.
    pub(super) fn new(config: &StreamConfig, meaning: SampleContext) -> Self {
        let has_context = config.geometry.trailer() == Trailer::Context;
        Self {
            packets: config.geometry.packets(),
            numbers: VecDeque::new(),
            stopped: None,
            context: has_context.then(|| Context::new(meaning)),
            ended: None,
        }
    }

    /// Notes that a packet that belongs to no shot has this number; `next` is the first shot that has not left. With
    /// `stop` it is the sender's last number. A number with data remains a shot's (`is_shot`), even if another packet
    /// has it, too.
    pub(super) fn note_number(&mut self, number: u64, stop: bool, next: u64, is_shot: bool) {
        if stop {
            self.stopped = Some(number);
        }
        self.numbers.retain(|number| *number >= next);
        if number >= next && !is_shot && !self.numbers.contains(&number) && self.numbers.len() < MAX_NUMBERS {
            let at = self.numbers.partition_point(|other| *other < number);
            self.numbers.insert(at, number);
        }
    }

    /// Notes what samples mean from a shot on. With `lost`, samples were lost just before.
    pub(super) fn note_meaning(&mut self, from: u64, meaning: SampleContext, lost: bool) {
        if let Some(context) = &mut self.context {
            context.note_meaning(from, meaning, lost);
        }
    }

    /// Returns `true` if packets have counts, which show the packets that were never sent.
    #[inline]
    pub(super) fn has_counts(&self) -> bool {
        self.context.is_some()
    }

    /// Notes the sender's count in a packet of samples.
    pub(super) fn note_count(&mut self, number: u64, index: u32, count: u8) {
        if let Some(context) = &mut self.context {
            context.note_count(number, number * u64::from(self.packets) + u64::from(index), count);
        }
    }

    /// Notes that a shot has this number, even if another packet has it, too.
    #[inline]
    pub(super) fn note_shot(&mut self, number: u64) {
        self.numbers.retain(|signal| *signal != number);
    }

    /// Ends the stream: following packets are dropped.
    pub(super) fn end(&mut self, ended: EndReason) {
        self.ended = Some(ended);
    }

    /// Returns the reason why the stream has ended, if it has.
    #[inline]
    pub(super) fn ended(&self) -> Option<EndReason> {
        self.ended
    }

    /// Returns `true` if the sender has announced that no more shots follow.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the number after the sender's last shot, if it has stopped. No CRC protects the stop, so an end far
    /// beyond `next` is ignored.
    pub(super) fn stop(&self, next: u64) -> Option<u64> {
        self.stopped.map(|number| number + 1).filter(|end| end.saturating_sub(next) < MAX_GAP_BEFORE_STOP)
    }

    /// Discards numbers and the stop after a restart of the sender.
    pub(super) fn forget_numbers(&mut self) {
        self.stopped = None;
        self.numbers.clear();
    }

    /// Returns `true` if no shot has the number `next`.
    #[inline]
    pub(super) fn is_taken(&self, next: u64) -> bool {
        self.numbers.front() == Some(&next)
    }

    /// Splits missing shots by cause: numbers of packets that belong to no shot, shots that were never sent, and the
    /// others, which have the cause `cause`. Calls `emit` for each range, in ascending order; ranges may be empty.
    pub(super) fn divide(&mut self, shots: Range<u64>, cause: DropCause, mut emit: impl FnMut(Range<u64>, DropCause)) {
        let Range { start: mut first, end } = shots;
        while let Some(number) = self.numbers.front().copied().filter(|number| *number < end) {
            self.numbers.pop_front();
            if number >= first {
                self.divide_shots(first..number, cause, &mut emit);
                emit(number..number + 1, DropCause::NotData);
                first = number + 1;
            }
        }
        self.divide_shots(first..end, cause, &mut emit);
    }

    /// Splits missing shots like [`Self::divide`], where every number is that of a shot.
    fn divide_shots(&self, shots: Range<u64>, cause: DropCause, emit: &mut impl FnMut(Range<u64>, DropCause)) {
        let (Range { start: mut first, end }, packets) = (shots, u64::from(self.packets));
        let gaps = self.context.as_ref().filter(|_| cause == DropCause::WireGap);
        for unsent in gaps.into_iter().flat_map(Context::unsent) {
            let (start, end) = (unsent.start.div_ceil(packets).max(first), (unsent.end / packets).min(end));
            if start < end {
                emit(first..start, cause);
                emit(start..end, DropCause::Overrun);
                first = end;
            }
        }
        emit(first..end, cause);
    }

    /// Returns the number of a shot's missing packets that were never sent.
    pub(super) fn unsent(&self, number: u64, presence: &Presence) -> u64 {
        let first = number.saturating_mul(u64::from(self.packets));
        self.context.as_ref().map_or(0, |context| {
            presence.missing().filter(|index| context.is_unsent(first + u64::from(*index))).count() as u64
        })
    }

    /// Writes the description of a shot's samples to its slot, in place of a trailer from the sender. Returns their
    /// meaning.
    pub(super) fn describe(&mut self, number: u64, geometry: &Geometry, buffer: &Buffer) -> SampleContext {
        self.context.as_mut().map_or_else(SampleContext::default, |context| context.describe(number, geometry, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::{Packetization, Packing};

    /// Creates the state for shots of three packets.
    fn signals(trailer: Trailer) -> Signals {
        let geometry = Geometry::new(1, 2400, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(trailer, Packetization::uniform(800)).unwrap();
        assert_eq!(geometry.packets(), 3);
        let config = StreamConfig { geometry, ..StreamConfig::of_three_packets() };
        Signals::new(&config, SampleContext::default())
    }

    fn divided(signals: &mut Signals, shots: Range<u64>) -> Vec<(u64, u64, DropCause)> {
        let mut ranges = Vec::new();
        signals.divide(shots, DropCause::WireGap, |range, cause| ranges.push((range.start, range.end, cause)));
        ranges.retain(|(start, end, _)| start < end);
        ranges
    }

    #[test]
    fn a_number_of_no_shot_splits_a_loss() {
        let mut signals = signals(Trailer::None);
        for number in [7, 5, 7, 2] {
            signals.note_number(number, false, 3, false);
        }
        signals.note_number(9, false, 3, true);
        assert!(!signals.is_taken(3) && signals.is_taken(5));
        let [gap, none] = [DropCause::WireGap, DropCause::NotData];
        assert_eq!(divided(&mut signals, 3..7), [(3, 5, gap), (5, 6, none), (6, 7, gap)]);
        assert!(signals.is_taken(7));
        signals.note_shot(7);
        assert_eq!(divided(&mut signals, 7..10), [(7, 10, gap)], "7 has data, and so has 9");
    }

    #[test]
    fn pending_numbers_are_bounded() {
        let mut signals = signals(Trailer::None);
        (0..1000).for_each(|number| signals.note_number(number, false, 0, false));
        assert_eq!(signals.numbers.len(), MAX_NUMBERS);
        signals.note_number(1000, false, 1000, false);
        assert_eq!(signals.numbers, [1000], "numbers of emitted shots are removed");
    }

    #[test]
    fn a_stop_far_ahead_is_ignored() {
        let mut signals = signals(Trailer::None);
        assert!(!signals.has_stopped() && signals.stop(0).is_none());
        signals.note_number(MAX_GAP_BEFORE_STOP, true, 0, false);
        assert_eq!(
            (signals.has_stopped(), signals.stop(0), signals.stop(2)),
            (true, None, Some(MAX_GAP_BEFORE_STOP + 1))
        );
        signals.forget_numbers();
        assert!(!signals.has_stopped() && !signals.is_taken(MAX_GAP_BEFORE_STOP));
    }

    #[test]
    fn unsent_shots_are_overruns() {
        let mut signals = signals(Trailer::Context);
        signals.note_count(1, 2, 0);
        signals.note_count(5, 1, 1); // ten packets are missing, none of them sent according to the count
        assert_eq!(signals.unsent(2, &Presence::empty(3)), 3);
        let [gap, overrun] = [DropCause::WireGap, DropCause::Overrun];
        assert_eq!(divided(&mut signals, 1..6), [(1, 2, gap), (2, 5, overrun), (5, 6, gap)]);
        assert_eq!(divided(&mut signals, 3..4), [(3, 4, overrun)]);
    }

    #[test]
    fn an_ended_stream_drops_packets() {
        let mut signals = signals(Trailer::None);
        assert_eq!(signals.ended(), None);
        signals.end(EndReason::FormatChanged);
        assert_eq!(signals.ended().map(EndReason::cause), Some(DropCause::NotData));
        assert_eq!(EndReason::Restarted.cause(), DropCause::SenderRestart);
    }
}
