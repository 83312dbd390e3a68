//! Shots: their geometry, the presence map of their packets, and drop causes.

use core::fmt;

mod cause;
mod error;
mod explanation;
mod geometry;

pub use cause::{DropCause, DropCounters};
pub use error::GeometryError;
pub use explanation::{Explanation, NO_REMEDY};
pub use geometry::{Geometry, Packetization, Packing, Trailer, UnknownPacking};

/// Default payload length, in bytes, of every packet of a shot but its last: one 4096-byte RoCE MTU. A
/// [`Packetization`] can have other lengths. The length of a slot is a multiple of this one.
pub const PACKET_BYTES: u32 = 4096;
/// Alignment of the end-of-shot record in bytes: one word of a 512-bit bus. Samples are zero-padded to it.
pub const PAD_BYTES: u32 = 64;
/// Length in bytes of the end-of-shot record ([`crate::record`]).
pub const RECORD_BYTES: u32 = 64;
/// Maximum number of packets of a shot whose immediate has the 12-bit packet index.
pub const MAX_INDEXED_PACKETS: u32 = 1 << 12;
/// Maximum number of packets of a shot in any framing: the capacity of a presence map.
pub const MAX_PACKETS: u32 = 1 << 14;

/// Exclusive upper bound of shot numbers: 2^48, nine years at a million shots per second. A number at or above it is
/// corrupt.
pub const MAX_SHOTS: u64 = 1 << 48;

/// Presence map of a shot's packets: bit `i % 64` of word `i / 64` is set if packet `i` has arrived.
#[derive(Clone, PartialEq, Eq)]
pub struct Presence {
    words: [u64; (MAX_PACKETS / 64) as usize],
    packets: u32,
    received: u32,
}

impl Presence {
    /// Returns an empty map for a shot of `packets` packets, clamped to [`MAX_PACKETS`].
    pub fn empty(packets: u32) -> Self {
        Self { words: [0; (MAX_PACKETS / 64) as usize], packets: packets.min(MAX_PACKETS), received: 0 }
    }
    /// Marks a packet as arrived. Returns `false` if it was already marked or `index` is out of range.
    pub fn insert(&mut self, index: u32) -> bool {
        if index >= self.packets || self.contains(index) {
            return false;
        }
        self.words[(index / 64) as usize] |= 1 << (index % 64);
        self.received += 1;
        true
    }
    /// Returns `true` if a packet has arrived.
    pub fn contains(&self, index: u32) -> bool {
        index < self.packets && self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }
    /// Returns the number of packets in the shot.
    pub fn packets(&self) -> u32 {
        self.packets
    }
    /// Returns the number of packets that have arrived.
    pub fn received(&self) -> u32 {
        self.received
    }
    /// Returns `true` if all packets have arrived.
    pub fn is_complete(&self) -> bool {
        self.received == self.packets
    }
    /// Returns the indices of the missing packets, in ascending order.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.packets).filter(|index| !self.contains(*index))
    }
    /// Returns the words of the map that the shot's packets need.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.packets.div_ceil(64) as usize]
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presence({}/{})", self.received, self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_counts_each_packet_once_and_checks_bounds() {
        let mut p = Presence::empty(70);
        assert!(p.insert(69) && !p.insert(69) && !p.insert(70) && !p.insert(u32::MAX));
        assert_eq!((p.received(), p.missing().count()), (1, 69));
    }
}
