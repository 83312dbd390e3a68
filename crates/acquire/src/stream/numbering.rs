//! Converts numbers on the wire to the numbers of a run's shots, which have 64 bits and never repeat.
//!
//! The newest shot is the reference for unwrapping the few bits on the wire. A framing without shot numbers has a
//! sequence number, which counts packets from the first one on, or the page of a ring. Where packets have no position,
//! because a device does not report the sequence number, they are counted. The end-of-shot record in the last packet of
//! a shot is then the only check of the count: if they disagree, packets were lost (or duplicated) since the record
//! before, and it is unknown which. The count continues from the record.

use super::config::StreamConfig;
use super::number::{self, RingReference};
use super::restart::{LateRun, MAX_SKIPPED};
use shotline_wire::framing::Position;
use shotline_wire::shot::{DropCause, Geometry, MAX_SHOTS};

/// Lower bound of the width of shot numbers in framings whose packets have no CRC of their own, in bits.
const UNPROTECTED_BITS: u32 = 40;
/// Maximum number of shots that a record may be ahead of the count; records further ahead are ignored.
const MAX_RECORD_AHEAD: u64 = 1 << 16;

/// Numbering of a stream's shots.
#[derive(Debug)]
pub(super) struct Numbering {
    packets: u32,
    /// Maximum number of shots that a number may be ahead of the newest one without confirmation.
    near: u64,
    /// Announced first shot, or 0; packets are counted from here.
    start: u64,
    /// Announced sequence number of the first packet.
    first_psn: Option<u32>,
    /// Newest shot; none until the stream has a first one.
    newest: Option<u64>,
    /// Set if numbers are known to 64 bits, and not only to the bits on the wire.
    anchored: bool,
    wire_bits: u32,
    /// Offset added to the sender's numbers after a restart, because a run's numbers never repeat.
    shift: u64,
    /// Newest shot in a ring of pages, by its sender's number.
    ring: Option<RingReference>,
    /// The last packet of a shot far ahead, which needs confirmation.
    suspect: Option<(u64, u32)>,
    /// Number of packets that arrived, where they have no position.
    counted: u64,
}

/// Correction of the number of a shot, and of all newer ones, by a proven record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correction {
    /// Difference that was added to the shots' numbers.
    pub(super) ahead: u64,
    /// Set for the stream's first record: nothing was lost, the bits that the wire does not carry were unknown.
    pub(super) is_first: bool,
}

impl Numbering {
    pub(super) fn new(config: &StreamConfig) -> Self {
        Self {
            packets: config.geometry.packets(),
            near: config.window.max(MAX_SKIPPED),
            start: config.first_shot.unwrap_or(0),
            first_psn: config.first_psn,
            newest: config.first_shot,
            anchored: config.first_shot.is_some(),
            wire_bits: u64::BITS,
            shift: 0,
            ring: None,
            suspect: None,
            counted: 0,
        }
    }

    /// Returns the shot number and packet index of a header. `before` is the drop cause of a packet whose
    /// shot would have a number below 0.
    #[inline]
    pub(super) fn locate(
        &mut self,
        position: Position,
        geometry: &Geometry,
        before: DropCause,
    ) -> Result<(u64, u32), DropCause> {
        match position {
            Position::Shot { number: wire, bits, offset, .. } => {
                let index = geometry.packet_at(offset).ok_or(DropCause::Malformed)?;
                self.wire_bits = bits;
                let reference = self.newest.map_or(wire, |newest| newest.wrapping_sub(self.shift));
                self.shifted(number::unwrap(wire, bits, reference), index)
            }
            Position::Sequence { bits: 0, .. } => Ok(self.next_counted()),
            Position::Sequence { number: psn, bits, .. } => {
                // Without set-up the start of shots is unknown: nothing can be placed.
                let first = u64::from(self.first_psn.ok_or(DropCause::BeforeStart)?);
                let packets = u64::from(self.packets);
                let reference = first + (self.newest() - self.start) * packets;
                let position =
                    number::unwrap(u64::from(psn), bits, reference).checked_sub(first).ok_or(DropCause::Late)?;
                Ok((self.start + position / packets, (position % packets) as u32))
            }
            Position::Paged { page, pages, first, bits, offset } => {
                let index = geometry.packet_at(offset).ok_or(DropCause::Malformed)?;
                self.wire_bits = bits;
                let number = match self.ring {
                    Some(ring) => ring.number_of(page, pages, first, bits, self.packets).ok_or(before)?,
                    None => u64::from(page),
                };
                self.shifted(number, index)
            }
        }
    }

    fn shifted(&self, sent: u64, index: u32) -> Result<(u64, u32), DropCause> {
        let number = sent.wrapping_add(self.shift);
        if number >= MAX_SHOTS { Err(DropCause::Malformed) } else { Ok((number, index)) }
    }

    /// Converts a whole number from the sender to the run's number, at most [`MAX_SHOTS`].
    pub(super) fn of_sent(&self, sent: u64) -> u64 {
        sent.wrapping_add(self.shift).min(MAX_SHOTS)
    }

    /// Returns the newest shot; before there is one, the announced first shot or 0.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.newest.unwrap_or(self.start)
    }

    /// Starts with this shot: the first one of a stream that is joined.
    pub(super) fn begin(&mut self, number: u64) {
        self.newest = Some(number);
    }

    /// Notes a number in use: the newest shot is not older.
    #[inline]
    pub(super) fn reach(&mut self, number: u64) {
        self.newest = Some(self.newest().max(number));
    }

    /// Notes the first packet of a shot.
    pub(super) fn note_shot(&mut self, number: u64, position: Position) {
        self.reach(number);
        if let Position::Paged { first, .. } = position
            && let number = number.wrapping_sub(self.shift)
            && self.ring.is_none_or(|ring| ring.number < number)
        {
            self.ring = Some(RingReference { number, first });
        }
    }

    /// Returns `true` if a number is too far ahead to be accepted from one packet. Long numbers are used in framings
    /// without an ICRC: one flipped bit would close every shot before it. A second packet of a nearby shot confirms it,
    /// so that only one packet is lost after an outage.
    pub(super) fn is_doubtful(&mut self, number: u64, index: u32) -> bool {
        if self.wire_bits < UNPROTECTED_BITS || number <= self.newest().saturating_add(self.near) {
            return false;
        }
        let other = self.suspect.replace((number, index));
        !other.is_some_and(|other| other != (number, index) && other.0.abs_diff(number) <= self.near)
    }

    /// Completes the bits of the shot number that the wire does not carry by a proven record: of the first shot, and of
    /// one after an outage so long that the number wrapped around. None if the record contradicts the wire.
    pub(super) fn anchor(&mut self, number: u64, proven: u64) -> Option<Correction> {
        let bits = self.wire_bits;
        let ahead = proven.checked_sub(number).filter(|_| bits < u64::BITS && proven < MAX_SHOTS)?;
        if ahead & ((1 << bits) - 1) != 0 {
            return None;
        }
        self.newest = Some(self.newest() + ahead);
        let is_first = !std::mem::replace(&mut self.anchored, true);
        Some(Correction { ahead, is_first })
    }

    /// Continues with this number after a restarted sender has begun with another.
    pub(super) fn resume_from(&mut self, from: u64, run: &LateRun) {
        self.shift = from.wrapping_sub(run.first);
        self.newest = Some(from + (run.last - run.first));
        self.ring = run.ring;
    }

    /// Lowers the numbers of open shots and of all that follow: what seemed to be a jump ahead was a restart.
    pub(super) fn lower(&mut self, ahead: u64) {
        self.newest = Some(self.newest() - ahead);
        self.shift = self.shift.wrapping_sub(ahead);
    }

    /// Returns the position of the next counted packet, if none is missing.
    fn next_counted(&self) -> (u64, u32) {
        let packets = u64::from(self.packets);
        (self.start + self.counted / packets, (self.counted % packets) as u32)
    }

    /// Counts a packet of the sender.
    pub(super) fn count(&mut self) {
        self.counted += 1;
    }

    /// Sets the count by a packet with the record of this shot, or without a record.
    pub(super) fn set_count(&mut self, record: Option<u64>) {
        let last = self.packets - 1;
        let (number, index) = self.next_counted();
        match record {
            // The record may be one shot back: duplicated packets have advanced the count.
            Some(shot) if (number.saturating_sub(1)..number + MAX_RECORD_AHEAD).contains(&shot) => {
                self.counted = shot.saturating_sub(self.start) * u64::from(self.packets) + u64::from(last);
            }
            // The end of its shot is missing: this packet belongs to the next one.
            None if index == last => self.counted += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::restart::Restart;
    use super::*;

    fn geometry() -> Geometry {
        StreamConfig::of_three_packets().geometry
    }

    fn numbering(first_shot: Option<u64>, first_psn: Option<u32>) -> Numbering {
        Numbering::new(&StreamConfig { first_shot, first_psn, ..StreamConfig::of_three_packets() })
    }

    fn locate(numbering: &mut Numbering, position: Position) -> Result<(u64, u32), DropCause> {
        numbering.locate(position, &geometry(), DropCause::Late)
    }

    fn shot(number: u64, bits: u32) -> Position {
        Position::Shot { number, bits, offset: 4096, last: false }
    }

    #[test]
    fn short_numbers_follow_the_newest_shot() {
        let mut numbering = numbering(None, None);
        assert_eq!(locate(&mut numbering, shot(250, 8)), Ok((250, 1)), "there is no reference");
        numbering.begin(250);
        assert_eq!(locate(&mut numbering, shot(3, 8)), Ok((259, 1)));
        numbering.note_shot(259, shot(3, 8));
        assert_eq!(locate(&mut numbering, shot(250, 8)), Ok((250, 1)));
        assert_eq!(locate(&mut numbering, shot(u64::MAX, 64)), Err(DropCause::Malformed));
        let odd = Position::Shot { number: 0, bits: 8, offset: 17, last: false };
        assert_eq!(locate(&mut numbering, odd), Err(DropCause::Malformed));
    }

    #[test]
    fn sequence_numbers_count_from_the_first_packet() {
        let psn = |number| Position::Sequence { number, bits: 24 };
        let mut announced = numbering(Some(7), Some(0xff_ffff));
        assert_eq!(locate(&mut announced, psn(0xff_ffff)), Ok((7, 0)));
        assert_eq!(locate(&mut announced, psn(3)), Ok((8, 1)));
        assert_eq!(locate(&mut announced, psn(0xff_fffe)), Err(DropCause::Late));
        assert_eq!(locate(&mut numbering(Some(7), None), psn(0)), Err(DropCause::BeforeStart));
    }

    #[test]
    fn a_packet_far_ahead_needs_confirmation_by_a_second() {
        let mut numbering = numbering(Some(0), None);
        assert_eq!(locate(&mut numbering, shot(MAX_SKIPPED, 48)), Ok((MAX_SKIPPED, 1)));
        assert!(!numbering.is_doubtful(MAX_SKIPPED, 1));
        assert!(numbering.is_doubtful(1 << 40, 1));
        assert!(numbering.is_doubtful(1 << 40, 1), "the same packet again");
        assert!(numbering.is_doubtful(1 << 41, 1), "another one far from it");
        assert!(!numbering.is_doubtful((1 << 41) + 1, 1));
        assert_eq!(locate(&mut numbering, shot(1, 20)), Ok((1, 1)));
        assert!(!numbering.is_doubtful(1 << 19, 1), "an ICRC protects short numbers");
    }

    #[test]
    fn a_record_completes_the_bits_missing_on_the_wire() {
        let mut numbering = numbering(None, None);
        locate(&mut numbering, shot(5, 20)).unwrap();
        numbering.begin(5);
        assert_eq!(numbering.anchor(5, 7), None);
        let first = numbering.anchor(5, (3 << 20) + 5);
        assert_eq!(first, Some(Correction { ahead: 3 << 20, is_first: true }));
        assert_eq!(locate(&mut numbering, shot(6, 20)), Ok(((3 << 20) + 6, 1)));
        let later = numbering.anchor((3 << 20) + 6, (4 << 20) + 6);
        assert_eq!(later, Some(Correction { ahead: 1 << 20, is_first: false }));
        assert_eq!(numbering.anchor((4 << 20) + 6, 6), None, "never back");
    }

    #[test]
    fn numbers_continue_after_a_restart() {
        let mut numbering = numbering(Some(100), None);
        let mut restart = Restart::new(&StreamConfig::of_three_packets());
        for number in [0, 1] {
            restart.note_late(shot(number, 48), DropCause::Late, true);
        }
        numbering.resume_from(150, &restart.take().unwrap());
        assert_eq!((numbering.newest(), numbering.of_sent(2)), (151, 152));
        assert_eq!(locate(&mut numbering, shot(2, 48)), Ok((152, 1)));
        numbering.lower(10);
        assert_eq!(locate(&mut numbering, shot(2, 48)), Ok((142, 1)));
    }

    #[test]
    fn a_record_sets_the_count_of_packets() {
        let mut numbering = numbering(Some(10), None);
        let place = |numbering: &mut Numbering| locate(numbering, Position::Sequence { number: 0, bits: 0 }).unwrap();
        numbering.count();
        assert_eq!(place(&mut numbering), (10, 1));
        numbering.set_count(Some(12));
        assert_eq!(place(&mut numbering), (12, 2), "the packet with the record is the last of its shot");
        numbering.set_count(None);
        assert_eq!(place(&mut numbering), (13, 0), "no record: the end of the shot is missing");
        numbering.set_count(Some(13 + MAX_RECORD_AHEAD));
        assert_eq!(place(&mut numbering), (13, 0), "too far ahead");
    }
}
