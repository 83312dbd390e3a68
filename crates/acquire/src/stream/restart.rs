//! Signs that a sender has begun to count anew, because it was restarted.
//!
//! Its numbers jump back, and a whole shot's worth of such packets comes while nothing else does. Or they seem to jump far
//! ahead, where they are few on the wire and wrap; then the frame number in a sensor bridge's metadata tells.

use super::config::StreamConfig;
use super::number::{self, Ring};
use shotline_wire::framing::Position;
use shotline_wire::shot::{DropCause, Drops};

/// Shots that a sender may well have skipped: an instrument that ran out of room.
pub(super) const NEAR: u64 = 64;
/// Turns of a ring of pages that a run of old packets begins with: there is room for numbers below.
const TURNS: u64 = 1 << 15;
/// One late packet is no restart, also where it is a whole shot.
const LEAST: u32 = 2;

/// Packets of old numbers that follow each other, by their sender's count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) ring: Option<Ring>,
    /// Those that came when nothing else had come for the time-out.
    in_silence: u32,
    /// How they were counted.
    pub(super) drops: Drops,
}

/// The frame number that a sensor bridge gave to a shot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    number: u64,
    frame: u16,
    /// It was as far from the one before as the shots' numbers: the bridge counts its frames.
    counts: bool,
}

impl Frame {
    /// Whether a later shot has a frame number that is far from where the count should be.
    pub(super) fn is_far(&self, number: u64, frame: u16) -> bool {
        let expected = self.frame.wrapping_add(number.wrapping_sub(self.number) as u16);
        u64::from((frame.wrapping_sub(expected) as i16).unsigned_abs()) > NEAR
    }
}

/// What speaks for a restart of the sender.
#[derive(Debug)]
pub(super) struct Restart {
    packets: u32,
    /// Shots by which the packets of one run may be apart.
    near: u64,
    /// Packets of old numbers, and nothing else since.
    run: Option<Run>,
    frame: Option<Frame>,
}

impl Restart {
    pub(super) fn new(config: &StreamConfig) -> Self {
        Self { packets: config.geometry.packets(), near: config.window.max(NEAR), run: None, frame: None }
    }

    /// A packet of a shot that has left. Stragglers say nothing; only such packets while nothing else comes do.
    pub(super) fn note_late(&mut self, position: Position, cause: DropCause, is_silent: bool) {
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
        let goes_on = self.run.filter(|run| (run.first..=run.last.saturating_add(self.near)).contains(&number));
        let run = self.run.insert(goes_on.unwrap_or(new));
        if number > run.last {
            (run.last, run.ring) = (number, ring);
        }
        run.in_silence += u32::from(is_silent);
        run.drops.add(cause, 1);
    }

    /// Notes that a packet was placed: the sender goes on as before.
    #[inline]
    pub(super) fn note_placed(&mut self) {
        self.run = None;
    }

    /// A whole shot's worth of packets with old numbers, and nothing else for the time-out: the sender has begun anew.
    #[inline]
    pub(super) fn has_happened(&self) -> bool {
        self.run.is_some_and(|run| run.in_silence >= self.packets.max(LEAST))
    }

    /// The packets that speak for a restart, which are no sign of another one.
    pub(super) fn take(&mut self) -> Option<Run> {
        self.run.take()
    }

    /// Takes note of the frame number in a sensor bridge's metadata.
    pub(super) fn note_frame(&mut self, number: u64, frame: u16) {
        let counts = self.frame.is_some_and(|before| {
            number > before.number && frame.wrapping_sub(before.frame) == (number - before.number) as u16
        });
        self.frame = Some(Frame { number, frame, counts });
    }

    /// The newest frame number, if the sender counts its frames.
    pub(super) fn counted_frame(&self) -> Option<Frame> {
        self.frame.filter(|frame| frame.counts)
    }

    /// Forgets frame numbers: the sender has begun anew.
    pub(super) fn forget_frames(&mut self) {
        self.frame = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a stream of shots of three packets.
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
            assert!(!restart.has_happened());
            restart.note_late(shot(number), DropCause::Late, true);
        }
        assert!(restart.has_happened());
        let run = restart.take().unwrap();
        assert_eq!((run.first, run.last, run.drops.get(DropCause::Late)), (3, 4, 3));
        assert!(!restart.has_happened());
    }

    #[test]
    fn stragglers_are_no_restart() {
        let mut restart = restart();
        (0..100).for_each(|_| restart.note_late(shot(3), DropCause::Late, false));
        assert!(!restart.has_happened(), "others came meanwhile");
        for number in [3, 3 + 1000, 3] {
            restart.note_late(shot(number), DropCause::Late, true);
        }
        assert!(!restart.has_happened(), "they do not follow each other");
        restart.note_late(shot(4), DropCause::Late, true);
        restart.note_placed();
        restart.note_late(shot(5), DropCause::Late, true);
        assert!(!restart.has_happened(), "one was placed between");
    }

    #[test]
    fn a_frame_number_far_from_the_count_is_another_count() {
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
