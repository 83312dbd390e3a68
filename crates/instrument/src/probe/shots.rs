//! Shot sources of a probe: prepared patterns or a recording.

use super::clock::Stamp;
use super::config::MAX_REORDER_DEPTH;
use super::faults::Flips;
use super::samples::SourceReport;
use shotline_memory::{Region, RegionId, Sge};
use shotline_transport::IoError;
use shotline_wire::crc;
use shotline_wire::framing::{self, Framing};
use shotline_wire::setup::Model;
use shotline_wire::shot::{Geometry, PACKET_BYTES};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

/// Slots of a [`CopyRing`]: enough for several batches in flight.
const COPY_SLOTS: u64 = 256;

/// Size of a [`CopyRing`] in bytes.
pub(crate) const COPY_RING_BYTES: u64 = COPY_SLOTS * PACKET_BYTES as u64;

/// Maximum number of shots whose last packets may be held back when a new shot is prepared.
pub(super) const MAX_HELD_SHOTS: u64 = MAX_REORDER_DEPTH as u64;

/// Reason why the next shot could not be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ReadError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// Reason why a shot was not sent.
#[derive(Debug, thiserror::Error)]
pub enum FireError {
    /// The link failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The shot could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// State of the next shot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming {
    /// The shot can be loaded.
    Shot {
        /// Shot number.
        number: u64,
        /// Recorded time in ns by any clock; `None` if no timing must be kept.
        recorded_ns: Option<u64>,
    },
    /// The shot has not been read yet.
    Pending,
    /// No more shots follow. Holds the first unused number.
    End(u64),
}

/// Properties of a shot that are known only when it starts.
#[derive(Clone, Copy, Debug)]
pub struct ShotContext {
    /// Time of its first sample.
    pub stamp: Stamp,
    /// The shot was triggered.
    pub triggered: bool,
    /// Transmit event, if the receiver has set a transmit sequence.
    pub event: Option<u16>,
}

/// Payload of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Location of the bytes; the second part may be empty.
    pub gather: [Sge; 2],
    /// CRC remainder of the bytes.
    pub remainder: u32,
}

/// Addresses and keys of a link's packets, for hardware that builds complete packets.
#[derive(Clone, Debug)]
pub struct Route {
    /// Source address.
    pub source: SocketAddr,
    /// Destination address.
    pub destination: SocketAddr,
    /// Ethernet addresses of source and destination.
    pub ethernet: [[u8; 6]; 2],
    /// Framing of the packets.
    pub framing: Arc<dyn Framing>,
    /// Queue pairs, queue key and stream.
    pub keys: framing::Link,
    /// Sequence number of the next packet.
    pub psn: u32,
}

/// Source of a probe's shots; each shot is sent on all links.
///
/// Call [`Self::upcoming`], then [`Self::load`], then read the packets of that shot.
pub trait Shots: Debug {
    /// Returns the probe's model name.
    fn model(&self) -> Model;
    /// Returns a description for reports.
    fn report(&self) -> SourceReport;
    /// Returns the period of the test patterns for set-up messages: 0 for other samples.
    fn pattern_period(&self) -> u32;
    /// Returns the geometry of each link's shots, unless a receiver requests fewer samples.
    fn geometry(&self) -> &Geometry;
    /// Returns `true` if shots are acquired now, so a receiver may request fewer samples and set transmit sequences.
    fn is_live(&self) -> bool;
    /// Prepares a link's shots for sending as this stream. None of its packets may be in flight.
    fn prepare(&mut self, link: u8, stream: u32, geometry: &Geometry);
    /// Returns `true` if [`Self::payload`] is a complete frame from the Ethernet header to the ICRC, built by hardware
    /// or its model; no header or ICRC is then added.
    fn are_framed(&self) -> bool {
        false
    }
    /// Sets the route of a link's packets; called before [`Self::prepare`]. Only sources that build complete frames use
    /// it.
    fn set_route(&mut self, link: u8, route: &Route) {
        let _ = (link, route);
    }
    /// Starts over for a new owner: recordings rewind. Returns the number of the next shot, which is `next` for
    /// continuous sources.
    fn begin(&mut self, next: u64) -> u64;

    /// Returns the state of the next shot. A read error counts as a shot, and [`Self::load`] returns it.
    fn upcoming(&mut self) -> Upcoming;
    /// Makes the upcoming shot the current one and returns its number.
    ///
    /// # Errors
    /// If the shot could not be read.
    fn load(&mut self, context: &ShotContext) -> Result<u64, ReadError>;

    /// Returns the geometry of a link's shots.
    fn geometry_of(&self, link: u8) -> &Geometry;
    /// Returns `true` if the current shot has this packet.
    fn contains(&self, link: u8, packet: u16) -> bool;
    /// Returns the payload of a packet of the current shot, or of an earlier shot if the packet was held back.
    fn payload(&self, link: u8, shot: u64, packet: u16) -> Payload;
    /// Returns the ring for packets with flipped bits.
    fn copies(&mut self) -> &mut CopyRing;
}

/// Ring of copied packets with flipped bits; the original bytes are never modified.
#[derive(Debug)]
pub struct CopyRing {
    region: Arc<Region>,
    id: RegionId,
    offset: u64,
    copied: u64,
}

impl CopyRing {
    /// Creates a ring in the [`COPY_RING_BYTES`] of a region that start at `offset`.
    pub(crate) fn new(region: Arc<Region>, id: RegionId, offset: u64) -> Self {
        Self { region, id, offset, copied: 0 }
    }

    /// Flips bits of a packet, counted from the header. The returned remainder cancels the header's change (the CRC is
    /// linear), so a transport that computes the ICRC from it and the flipped header obtains the original packet's
    /// ICRC.
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

    /// Copies the payload to the next slot of the ring.
    fn copy(&mut self, payload: Payload) -> Sge {
        let offset = self.offset + self.copied % COPY_SLOTS * u64::from(PACKET_BYTES);
        self.copied += 1;
        let mut bytes = 0;
        for sge in payload.gather {
            let to = (offset + u64::from(bytes)) as usize;
            self.region.copy_from(to, &self.region, sge.offset as usize, sge.len as usize);
            bytes += sge.len;
        }
        Sge { region: self.id, offset, len: bytes }
    }
}
