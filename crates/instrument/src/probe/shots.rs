//! What a probe sends: patterns that were made before the first shot, or a recording.

use super::clock::Stamp;
use super::config::MAX_REORDER_DEPTH;
use super::faults::Flips;
use super::samples::SourceReport;
use shotline_memory::{Region, RegionId, Sge};
use shotline_wire::crc;
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::Model;
use shotline_wire::shot::{Geometry, PACKET_BYTES};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

/// Corrupted packets that stay untouched after they were made: several whole batches.
const COPIES: u64 = 256;

/// Bytes that a region needs for its [`Copies`].
pub(crate) const COPIES_BYTES: u64 = COPIES * PACKET_BYTES as u64;

/// Shots whose last packets may still be held back when a new one is made.
pub(super) const HELD_SHOTS: u64 = MAX_REORDER_DEPTH as u64;

/// Why there is no next shot, in words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReadError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming {
    /// This shot.
    Shot {
        /// Its number.
        number: u64,
        /// When it was taken, in nanoseconds of any clock; none if there is nothing to keep to.
        taken_ns: Option<u64>,
    },
    /// A shot that has not been read yet.
    Later,
    /// No more. Numbers went up to this one, which is the first that is not used.
    End(u64),
}

/// What only the moment tells of a shot.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time of its first sample.
    pub stamp: Stamp,
    /// A trigger began it.
    pub triggered: bool,
    /// The transmission that it answers, if the receiver has said.
    pub event: Option<u16>,
}

/// The payload of one packet: where it is, and its CRC remainder.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Where it is.
    pub gather: [Sge; 2],
    /// Its CRC remainder.
    pub remainder: u32,
}

/// Where a link's packets go, and under which names: what hardware has to know that makes its packets itself.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where they come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
    /// Ethernet addresses of the same.
    pub ethernet: [[u8; 6]; 2],
    /// How shots become packets.
    pub framing: Arc<dyn Framing>,
    /// Queue pairs, queue key and stream.
    pub keys: framing::Link,
    /// Sequence number of the next packet.
    pub psn: u32,
}

/// The shots of a probe, one after the other, each on all links.
///
/// The order is [`Self::upcoming`], then [`Self::load`], then the packets of that shot.
pub trait Shots: Debug {
    /// What the probe calls itself.
    fn model(&self) -> Model;
    /// What it gives, for reports.
    fn report(&self) -> SourceReport;
    /// The period of its test patterns as set-up tells it: 0 for real samples.
    fn pattern_period(&self) -> u32;
    /// The shape of every shot of each link, unless a receiver asks for fewer samples.
    fn geometry(&self) -> &Geometry;
    /// Whether a receiver may ask for fewer samples, and for transmit sequences: it is taken now, not before.
    fn is_live(&self) -> bool;
    /// Makes a link's shots ready to be sent as this stream. Nothing of it may be on its way.
    fn prepare(&mut self, link: u8, stream: u32, geometry: &Geometry);
    /// Whether [`Self::payload`] is a packet's whole frame, from the Ethernet header to the ICRC, which no header or
    /// seal of this program's is added to: hardware has made it, or its model.
    fn are_framed(&self) -> bool {
        false
    }
    /// Tells where a link's packets go; before [`Self::prepare`]. Only those need it who frame them.
    fn direct(&mut self, link: u8, way: &Way) {
        let _ = (link, way);
    }
    /// A new owner begins: whatever has a beginning goes back to it. Returns the number of the next shot, which is
    /// `next` for those that only go on.
    fn begin(&mut self, next: u64) -> u64;

    /// What comes next. An error, too, is something that can be loaded.
    fn upcoming(&mut self) -> Upcoming;
    /// Makes the upcoming shot the present one, and returns its number.
    fn load(&mut self, moment: &Moment) -> Result<u64, ReadError>;

    /// The shape of a link's shots.
    fn geometry_of(&self, link: u8) -> &Geometry;
    /// Whether the present shot has this packet.
    fn contains(&self, link: u8, packet: u16) -> bool;
    /// The payload of a packet of the present shot, or of one of those before if it was held back.
    fn payload(&self, link: u8, shot: u64, packet: u16) -> Payload;
    /// Where packets with flipped bits are made.
    fn copies(&mut self) -> &mut Copies;
}

/// A ring of packets with flipped bits: copies, so that the good bytes stay good.
#[derive(Debug)]
pub struct Copies {
    region: Arc<Region>,
    id: RegionId,
    at: u64,
    made: u64,
}

impl Copies {
    /// A ring in the [`COPIES_BYTES`] of a region from `at` on.
    pub(crate) fn new(region: Arc<Region>, id: RegionId, at: u64) -> Self {
        Self { region, id, at, made: 0 }
    }

    /// Flips bits of a packet, header first. The remainder comes out such that a transport that makes the
    /// ICRC from it and the flipped header makes the one of the packet as it was: it takes the header's
    /// change back, by linearity.
    pub(super) fn flip(&mut self, header: &mut [u8], payload: Payload, flips: &Flips) -> Payload {
        let header_bits = header.len() as u32 * 8;
        let payload_bytes: u32 = payload.gather.iter().map(|sge| sge.len).sum();
        let mut change = [0; shotline_wire::framing::MAX_HEADER];
        let change = &mut change[..header.len()];
        let mut copy = None;
        for bit in flips.bits() {
            if *bit < header_bits {
                change[(bit / 8) as usize] |= 1 << (bit % 8);
            } else {
                let copy = copy.get_or_insert_with(|| self.copy(payload));
                let at = (copy.offset + u64::from((bit - header_bits) / 8)) as usize;
                let mut byte = [0];
                self.region.read(at, &mut byte);
                self.region.write(at, &[byte[0] ^ 1 << (bit % 8)]);
            }
        }
        header.iter_mut().zip(&*change).for_each(|(byte, change)| *byte ^= change);
        let remainder = payload.remainder ^ crc::shift(crc::remainder(change), payload_bytes.into());
        Payload { gather: copy.map_or(payload.gather, |copy| [copy, Sge::EMPTY]), remainder }
    }

    /// The next place of the ring, with the payload in it.
    fn copy(&mut self, payload: Payload) -> Sge {
        let offset = self.at + self.made % COPIES * u64::from(PACKET_BYTES);
        self.made += 1;
        let mut bytes = 0;
        for sge in payload.gather {
            let to = (offset + u64::from(bytes)) as usize;
            self.region.copy_from(to, &self.region, sge.offset as usize, sge.len as usize);
            bytes += sge.len;
        }
        Sge { region: self.id, offset, len: bytes }
    }
}
