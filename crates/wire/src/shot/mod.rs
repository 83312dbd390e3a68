//! The words of acquisition: what a shot is, which of its packets arrived, and why others did not.

use core::fmt;

mod error;
mod geometry;

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

/// Why a packet or a shot is not where it should be. Causes are added, never merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropCause {
    /// Never arrived: a hole in the shot's sequence.
    WireGap = 0,
    /// The invariant CRC does not match: some bit changed on the way.
    BadIcrc = 1,
    /// Truncated, oversized, or not of this framing or geometry.
    Malformed = 2,
    /// Its place was filled already.
    Duplicate = 3,
    /// Its shot was closed already.
    Late = 4,
    /// No stream of ours: unknown queue pair, wrong Q_Key, foreign sender.
    UnknownStream = 5,
    /// No shot buffer was free when its shot began.
    NoBuffer = 6,
    /// The sink was too slow and the policy gave up this shot.
    SinkBusy = 7,
    /// The sink failed to take this shot (an I/O error, a full disk).
    SinkError = 8,
    /// The stream was stopped.
    ChannelStopped = 9,
    /// The source itself ran out of room.
    Overrun = 10,
    /// It belongs to a shot that was under way before the receiver joined.
    BeforeStart = 11,
    /// All packets arrived with good CRCs, but the end-of-shot record does not fit them.
    BadRecord = 12,
    /// The sink has taken all that it was laid out for.
    SinkFull = 13,
    /// Not a shot's: stream control or descriptions that share the shots' way and their numbers (SPEAD).
    NotData = 14,
    /// It had been handed to the sink, but was not on the drive when the power went or the program was killed.
    PowerCut = 15,
    /// Nobody asked for it: it was held for a trigger that did not come.
    NotTriggered = 16,
    /// It came, and nobody knows where it belongs: others of its shot are missing, and nothing but a count tells them
    /// apart.
    Unplaced = 17,
    /// Its sender has begun to count anew, and this came before the receiver was certain of it.
    SenderRestart = 18,
}

impl DropCause {
    /// Every cause, in the order of its number.
    pub const ALL: [Self; 19] = [
        Self::WireGap,
        Self::BadIcrc,
        Self::Malformed,
        Self::Duplicate,
        Self::Late,
        Self::UnknownStream,
        Self::NoBuffer,
        Self::SinkBusy,
        Self::SinkError,
        Self::ChannelStopped,
        Self::Overrun,
        Self::BeforeStart,
        Self::BadRecord,
        Self::SinkFull,
        Self::NotData,
        Self::PowerCut,
        Self::NotTriggered,
        Self::Unplaced,
        Self::SenderRestart,
    ];

    /// The name used in files, metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::WireGap => "wire_gap",
            Self::BadIcrc => "bad_icrc",
            Self::Malformed => "malformed",
            Self::Duplicate => "duplicate",
            Self::Late => "late",
            Self::UnknownStream => "unknown_stream",
            Self::NoBuffer => "no_buffer",
            Self::SinkBusy => "sink_busy",
            Self::SinkError => "sink_error",
            Self::ChannelStopped => "channel_stopped",
            Self::Overrun => "overrun",
            Self::BeforeStart => "before_start",
            Self::BadRecord => "bad_record",
            Self::SinkFull => "sink_full",
            Self::NotData => "not_data",
            Self::PowerCut => "power_cut",
            Self::NotTriggered => "not_triggered",
            Self::Unplaced => "unplaced",
            Self::SenderRestart => "sender_restart",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One count per drop cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl Drops {
    /// Adds `count` to a cause.
    pub fn add(&mut self, cause: DropCause, count: u64) {
        self.0[cause as usize] += count;
    }
    /// Takes back counts that turned out to have another cause, as many as there are.
    pub fn replace(&mut self, counted: &Self, cause: DropCause) {
        for (mine, theirs) in self.0.iter_mut().zip(counted.0) {
            *mine = mine.saturating_sub(theirs);
        }
        self.add(cause, counted.total());
    }
    /// The count of a cause.
    pub fn get(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }
    /// All causes together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// Causes that have a count, with it.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        let some = |(cause, count): (DropCause, &u64)| (*count > 0).then_some((cause, *count));
        DropCause::ALL.into_iter().zip(&self.0).filter_map(some)
    }
    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

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
