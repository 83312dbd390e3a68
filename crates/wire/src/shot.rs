//! The words of acquisition: what a shot is, which of its packets arrived, and why others did not.

use core::fmt;

/// Payload bytes of every packet of a shot but its last (one 4096-byte RoCE MTU).
pub const PACKET_BYTES: u32 = 4096;
/// Shots are zero-padded to this before the end-of-shot record: one word of a 512-bit bus.
pub const PAD_BYTES: u32 = 64;
/// The end-of-shot record that closes every shot ([`crate::record`]).
pub const RECORD_BYTES: u32 = 64;
/// Packets in the largest shot: the packet index has 12 bits on the wire.
pub const MAX_PACKETS: u32 = 1 << 12;

/// Shot numbers stay below this: 2^48, nine years at a million shots a second. A larger one is no number but damage.
pub const MAX_SHOTS: u64 = 1 << 48;

/// How samples lie in a shot's bytes. The numbers are those of the end-of-shot record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Packing {
    /// 16-bit little-endian integers.
    Int16Le = 0,
    /// 12-bit two's complement, most significant bit first: two samples in three bytes.
    Packed12 = 1,
}

impl Packing {
    /// The packing with this number, if there is one.
    pub fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::Int16Le),
            1 => Some(Self::Packed12),
            _ => None,
        }
    }

    /// Bits that one sample takes on the wire.
    pub fn bits_per_sample(self) -> u32 {
        match self {
            Self::Int16Le => 16,
            Self::Packed12 => 12,
        }
    }
}

/// The shape of every shot of a stream. It exists only if such a shot fits the wire's 12-bit index.
///
/// Sample order is time first: all channels of sample 0, then of sample 1, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    channels: u16,
    samples: u32,
    bits: u8,
    packing: Packing,
    sample_rate_hz: u32,
}

/// Why a [`Geometry`] was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A shot without samples.
    #[error("a shot needs at least one channel and one sample, found {channels} x {samples}")]
    Empty {
        /// Channels asked for.
        channels: u16,
        /// Samples per channel asked for.
        samples: u32,
    },
    /// More bytes than 4096 packets of 4096 bytes carry.
    #[error(
        "a shot of {bytes} bytes needs {packets} packets of 4096 bytes, the packet index allows 4096: use fewer samples or channels"
    )]
    TooLarge {
        /// Bytes on the wire, with padding and record.
        bytes: u64,
        /// Packets they take.
        packets: u64,
    },
    /// Resolution that the packing cannot hold.
    #[error("{bits}-bit samples do not fit a packing of {holds} bits")]
    Bits {
        /// Bits asked for.
        bits: u8,
        /// Bits that the packing holds.
        holds: u32,
    },
    /// An odd number of 12-bit samples would end in half a byte.
    #[error("12-bit packing takes samples in pairs: {channels} x {samples} is odd")]
    OddSamples {
        /// Channels asked for.
        channels: u16,
        /// Samples per channel asked for.
        samples: u32,
    },
}

impl Geometry {
    /// Checks and makes a geometry. `bits` is the resolution of a sample, `sample_rate_hz` may be 0 (unknown).
    pub fn new(
        channels: u16,
        samples: u32,
        bits: u8,
        packing: Packing,
        sample_rate_hz: u32,
    ) -> Result<Self, GeometryError> {
        if channels == 0 || samples == 0 {
            return Err(GeometryError::Empty { channels, samples });
        }
        if bits == 0 || u32::from(bits) > packing.bits_per_sample() {
            return Err(GeometryError::Bits { bits, holds: packing.bits_per_sample() });
        }
        let count = u64::from(channels) * u64::from(samples);
        if packing == Packing::Packed12 && count % 2 == 1 {
            return Err(GeometryError::OddSamples { channels, samples });
        }
        let sample_bytes = count * u64::from(packing.bits_per_sample()) / 8;
        let bytes = sample_bytes.next_multiple_of(u64::from(PAD_BYTES)) + u64::from(RECORD_BYTES);
        let packets = bytes.div_ceil(u64::from(PACKET_BYTES));
        if packets > u64::from(MAX_PACKETS) {
            return Err(GeometryError::TooLarge { bytes, packets });
        }
        Ok(Self { channels, samples, bits, packing, sample_rate_hz })
    }

    /// Channels per sample instant.
    pub fn channels(&self) -> u16 {
        self.channels
    }
    /// Samples per channel (the papers' N_s).
    pub fn samples(&self) -> u32 {
        self.samples
    }
    /// Resolution of a sample in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }
    /// How samples lie in bytes.
    pub fn packing(&self) -> Packing {
        self.packing
    }
    /// Sample rate in Hz, 0 if unknown.
    pub fn sample_rate_hz(&self) -> u32 {
        self.sample_rate_hz
    }
    /// Bytes of samples alone.
    pub fn sample_bytes(&self) -> u32 {
        // Cannot overflow: `new` bounded the whole shot to 16 MiB.
        (u64::from(self.channels) * u64::from(self.samples) * u64::from(self.packing.bits_per_sample()) / 8) as u32
    }
    /// Samples padded to a bus word: the offset of the end-of-shot record.
    pub fn record_offset(&self) -> u32 {
        self.sample_bytes().next_multiple_of(PAD_BYTES)
    }
    /// Bytes of the shot on the wire: samples, padding and record.
    pub fn shot_bytes(&self) -> u32 {
        self.record_offset() + RECORD_BYTES
    }
    /// Packets of the shot.
    pub fn packets(&self) -> u32 {
        self.shot_bytes().div_ceil(PACKET_BYTES)
    }
    /// Bytes of the slot that holds the shot in memory and in the file, a multiple of 4096.
    pub fn slot_bytes(&self) -> u32 {
        self.packets() * PACKET_BYTES
    }
    /// Payload bytes of packet `index`, which must be below [`Self::packets`].
    pub fn packet_bytes(&self, index: u32) -> u32 {
        (self.shot_bytes() - index * PACKET_BYTES).min(PACKET_BYTES)
    }
}

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
}

impl DropCause {
    /// Every cause, in the order of its number.
    pub const ALL: [Self; 14] = [
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
        DropCause::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
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
    fn a_2000_sample_shot_has_the_sizes_of_the_design() {
        let g = Geometry::new(96, 2000, 12, Packing::Packed12, 40_000_000).unwrap();
        assert_eq!((g.sample_bytes(), g.shot_bytes(), g.packets(), g.slot_bytes()), (288_000, 288_064, 71, 290_816));
        assert_eq!(g.packet_bytes(70), 1344);
    }

    #[test]
    fn a_shot_beyond_the_packet_index_is_refused() {
        let error = Geometry::new(1024, 20_000, 12, Packing::Packed12, 0).unwrap_err();
        assert!(matches!(error, GeometryError::TooLarge { .. }));
    }

    #[test]
    fn presence_counts_each_packet_once_and_ignores_foreign_indices() {
        let mut p = Presence::empty(70);
        assert!(p.insert(69) && !p.insert(69) && !p.insert(70) && !p.insert(u32::MAX));
        assert_eq!((p.placed(), p.missing().count()), (1, 69));
    }
}
