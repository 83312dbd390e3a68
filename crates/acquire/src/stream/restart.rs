//! Detects that a sender was restarted, so that its numbers start again.
//!
//! Either its numbers jump back, and a whole shot's worth of such packets arrives without any other. Or they seem to
//! jump far ahead, if the wire carries few bits that wrap; the frame number in a sensor bridge's metadata then shows
//! the restart.

use super::config::StreamConfig;
use super::number::{self, RingReference};
use shotline_wire::framing::Position;
use shotline_wire::shot::{DropCause, DropCounters};

/// Number of shots that a sender may have skipped without a restart, for example because its buffer was full.
pub(super) const MAX_SKIPPED: u64 = 64;
/// Ring revolutions assumed before the first packet of a run, so that packets of earlier shots have numbers above 0.
const START_TURNS: u64 = 1 << 15;
/// Minimum number of packets of a restart: one late packet is none, even if it is a whole shot.
const MIN_PACKETS: u32 = 2;

/// Packets with old numbers that follow each other, by their sender's count.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateRun {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) ring: Option<RingReference>,
    /// Number of these packets that arrived when no packet had been placed for the timeout.
    in_silence: u32,
    /// Drop causes under which they were counted.
    pub(super) drops: DropCounters,
}

/// Frame number that a sensor bridge gave to a shot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    number: u64,
    frame: u16,
    /// Set if it is as far from the one before as the shots' numbers: the bridge counts its frames.
    counts: bool,
}

impl Frame {
    /// Returns `true` if a later shot has a frame number that is far from the expected one.
    pub(super) fn is_far(&self, number: u64, frame: u16) -> bool {
        let expected = self.frame.wrapping_add(number.wrapping_sub(self.number) as u16);
        u64::from((frame.wrapping_sub(expected) as i16).unsigned_abs()) > MAX_SKIPPED
    }
}

/// Evidence of a restart of the sender.
#[derive(Debug)]
pub(super) struct Restart {
    packets: u32,
    /// Maximum distance between packets of one run, in shots.
    near: u64,
    /// Current run of packets with old numbers; none after any other packet.
    run: Option<LateRun>,
    frame: Option<Frame>,
}

impl Restart {
    pub(super) fn new(config: &StreamConfig) -> Self {
        Self { packets: config.geometry.packets(), near: config.window.max(MAX_SKIPPED), run: None, frame: None }
    }

    /// Adds a packet of a shot that has left. It is evidence only while no other packets arrive: otherwise it is a
    /// straggler.
    pub(super) fn note_late(&mut self, position: Position, cause: DropCause, is_silent: bool) {
        let (number, ring) = match position {
            Position::Shot { number, bits, .. } => {
                (number::unwrap(number, bits, self.run.map_or(number, |run| run.last)), None)
            }
            Position::Paged { page, pages, first, bits, .. } => {
                let known = self.run.and_then(|run| run.ring);
                let number = known.and_then(|ring| ring.number_of(page, pages, first, bits, self.packets));
                let number = number.unwrap_or(u64::from(pages) * START_TURNS + u64::from(page));
                (number, Some(RingReference { number, first }))
            }
            Position::Sequence { .. } => return,
        };
        let new = LateRun { first: number, last: number, ring, in_silence: 0, drops: DropCounters::default() };
        let continued = self.run.filter(|run| (run.first..=run.last.saturating_add(self.near)).contains(&number));
        let run = self.run.insert(continued.unwrap_or(new));
        if number > run.last {
            (run.last, run.ring) = (number, ring);
        }
        run.in_silence += u32::from(is_silent);
        run.drops.add(cause, 1);
    }

    /// Notes that a packet was placed: the sender continues as before.
    #[inline]
    pub(super) fn note_placed(&mut self) {
        self.run = None;
    }

    /// Returns `true` after a whole shot's worth of packets with old numbers, and no others for the timeout.
    #[inline]
    pub(super) fn is_detected(&self) -> bool {
        self.run.is_some_and(|run| run.in_silence >= self.packets.max(MIN_PACKETS))
    }

    /// Takes the packets that are evidence of a restart.
    pub(super) fn take(&mut self) -> Option<LateRun> {
        self.run.take()
    }

    /// Notes the frame number in a sensor bridge's metadata.
    pub(super) fn note_frame(&mut self, number: u64, frame: u16) {
        let counts = self.frame.is_some_and(|before| {
            number > before.number && frame.wrapping_sub(before.frame) == (number - before.number) as u16
        });
        self.frame = Some(Frame { number, frame, counts });
    }

    /// Returns the newest frame number, if the sender counts its frames.
    pub(super) fn counted_frame(&self) -> Option<Frame> {
        self.frame.filter(|frame| frame.counts)
    }

    /// Discards frame numbers after a restart.
    pub(super) fn forget_frames(&mut self) {
        self.frame = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the state for shots of three packets.
    fn restart() -> Restart {
        Restart::new(&StreamConfig::of_three_packets())
    }

    fn shot(number: u64) -> Position {
        Position::Shot { number, bits: 64, offset: 0, last: false }
    }

    #[test]
    fn a_shot_of_old_packets_in_silence_is_a_restart() {
        let mut restart = restart();
        for number in [3, 3, 4] {
            assert!(!restart.is_detected());
            restart.note_late(shot(number), DropCause::Late, true);
        }
        assert!(restart.is_detected());
        let run = restart.take().unwrap();
        assert_eq!((run.first, run.last, run.drops.get(DropCause::Late)), (3, 4, 3));
        assert!(!restart.is_detected());
    }

    #[test]
    fn stragglers_are_no_restart() {
        let mut restart = restart();
        (0..100).for_each(|_| restart.note_late(shot(3), DropCause::Late, false));
        assert!(!restart.is_detected(), "others arrived in between");
        for number in [3, 3 + 1000, 3] {
            restart.note_late(shot(number), DropCause::Late, true);
        }
        assert!(!restart.is_detected(), "their numbers do not follow each other");
        restart.note_late(shot(4), DropCause::Late, true);
        restart.note_placed();
        restart.note_late(shot(5), DropCause::Late, true);
        assert!(!restart.is_detected(), "a packet was placed in between");
    }

    #[test]
    fn a_frame_number_far_from_the_count_is_detected() {
        let mut restart = restart();
        restart.note_frame(10, 0xfff0);
        assert!(restart.counted_frame().is_none(), "one frame is no count");
        restart.note_frame(12, 0xfff2);
        let frame = restart.counted_frame().unwrap();
        assert!(!frame.is_far(112, 0x56) && !frame.is_far(112, 0x56 - 64) && frame.is_far(112, 0x56 + 65));
        restart.note_frame(13, 7);
        assert!(restart.counted_frame().is_none());
        restart.forget_frames();
        restart.note_frame(14, 8);
        assert!(restart.counted_frame().is_none());
    }
}
