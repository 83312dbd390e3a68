//! The words of acquisition: what a shot is, which of its packets arrived, and why others did not.

use core::fmt;

mod cause;
mod error;
mod geometry;

pub use cause::{DropCause, Drops};
pub use error::GeometryError;
pub use geometry::{Cut, Geometry, Packing, Trailer, UnknownPacking};

/// Payload bytes of every packet of a shot but its last (one 4096-byte RoCE MTU), unless its sender cuts otherwise
/// ([`Cut`]). Slots are multiples of it.
pub const PACKET_BYTES: u32 = 4096;
/// Shots are zero-padded to this before the end-of-shot record: one word of a 512-bit bus.
pub const PAD_BYTES: u32 = 64;
/// The end-of-shot record that closes every shot of a sender that speaks our formats ([`crate::record`]).
pub const RECORD_BYTES: u32 = 64;
/// Packets that RoCE's immediate can tell apart in a shot: its packet index has 12 bits.
pub const MAX_INDEXED: u32 = 1 << 12;
/// Packets of the largest shot of any framing: a presence map has room for so many.
pub const MAX_PACKETS: u32 = 1 << 14;

/// Shot numbers stay below this: 2^48, nine years at a million shots a second. A larger one is no number but damage.
pub const MAX_SHOTS: u64 = 1 << 48;

/// Which packets of a shot arrived: bit `i % 64` of word `i / 64` is packet `i`.
#[derive(Clone, PartialEq, Eq)]
pub struct Presence {
    words: [u64; (MAX_PACKETS / 64) as usize],
    packets: u32,
    placed: u32,
}

impl Presence {
    /// Nothing of `packets` packets has arrived. More than [`MAX_PACKETS`] cannot be.
    pub fn empty(packets: u32) -> Self {
        Self { words: [0; (MAX_PACKETS / 64) as usize], packets: packets.min(MAX_PACKETS), placed: 0 }
    }
    /// Marks a packet; false if it was there already or is no packet of this shot.
    pub fn insert(&mut self, index: u32) -> bool {
        if index >= self.packets || self.contains(index) {
            return false;
        }
        self.words[(index / 64) as usize] |= 1 << (index % 64);
        self.placed += 1;
        true
    }
    /// Whether a packet has arrived.
    pub fn contains(&self, index: u32) -> bool {
        index < self.packets && self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }
    /// Packets that a whole shot has.
    pub fn packets(&self) -> u32 {
        self.packets
    }
    /// Packets that have arrived.
    pub fn placed(&self) -> u32 {
        self.placed
    }
    /// Whether all have.
    pub fn is_complete(&self) -> bool {
        self.placed == self.packets
    }
    /// The packets that are missing, ascending.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.packets).filter(|index| !self.contains(*index))
    }
    /// The map's words, as many as `packets` needs.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.packets.div_ceil(64) as usize]
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presence({}/{})", self.placed, self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presence_counts_each_packet_once_and_ignores_foreign_indices() {
        let mut p = Presence::empty(70);
        assert!(p.insert(69) && !p.insert(69) && !p.insert(70) && !p.insert(u32::MAX));
        assert_eq!((p.placed(), p.missing().count()), (1, 69));
    }
}
