//! Packets that say nothing of their place, because a device keeps the sequence number to itself.
//!
//! They are counted. The end-of-shot record in the last packet of a shot is the only word on where the count should be:
//! where it is not, packets were lost (or came twice) since the record before, and nobody knows which. What came of such a
//! shot has no place, so the file shows none of it, and the books say how many packets that is
//! ([`DropCause::Unplaced`]). The count goes on from the record.

use super::Stream;
use shotline_memory::Buffer;
use shotline_wire::record::Record;
use shotline_wire::shot::{DropCause, Presence, RECORD_BYTES};

/// Shots that a record may be ahead of the count: more is not believed.
const MOST_AHEAD: u64 = 1 << 16;

impl Stream {
    /// Whether packets of this stream are counted: the framing says nothing of their place.
    pub(crate) fn is_counting(&self) -> bool {
        self.line.is_some() && self.framing.name() == "counted"
    }

    /// Where the next packet belongs, if none is missing.
    pub(super) fn counted_place(&self) -> (u64, u32) {
        let packets = u64::from(self.packets);
        (self.config.first_shot.unwrap_or(0) + self.counted / packets, (self.counted % packets) as u32)
    }

    /// A packet of the sender's has come.
    pub(crate) fn count_on(&mut self) {
        self.counted += 1;
    }

    /// Looks whether the packet that has landed in the place of this id ends a shot, and sets the count by it.
    pub(crate) fn recount(&mut self, at: u32, len: u32) {
        let last = self.packets - 1;
        let (number, index) = self.counted_place();
        match self.record_in(at, len) {
            // One shot back: packets that came twice have led the count astray.
            Some(record) if (number.saturating_sub(1)..number + MOST_AHEAD).contains(&record.shot) => {
                let shots = record.shot.saturating_sub(self.config.first_shot.unwrap_or(0));
                self.counted = shots * u64::from(self.packets) + u64::from(last);
            }
            // The end of its shot is missing: this is the next one's.
            None if index == last => self.counted += 1,
            _ => {}
        }
    }

    /// The record at the end of a packet, if it ends a shot of this stream.
    fn record_in(&self, at: u32, len: u32) -> Option<Record> {
        if len != self.config.geometry.packet_bytes(self.packets - 1) {
            return None;
        }
        let place = self.landing_place(at)?;
        let mut bytes = [0; RECORD_BYTES as usize];
        let offset = place.offset + u64::from(len.checked_sub(RECORD_BYTES)?);
        self.line.as_ref()?.regions.get(place.region).read(offset as usize, &mut bytes);
        Record::parse(&bytes).ok().filter(|record| record.stream == self.config.stream)
    }

    /// Takes back all packets of a shot that its record does not prove.
    pub(super) fn unplace(&mut self, buffer: &Buffer, presence: &Presence) -> Presence {
        let came = u64::from(presence.placed());
        self.books.placed -= came.min(self.books.placed);
        self.books.packet_drops.add(DropCause::Unplaced, came);
        buffer.zero(0, buffer.len());
        Presence::empty(self.packets)
    }
}
