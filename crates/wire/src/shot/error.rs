//! Error type of shot geometries.

use super::MAX_PACKETS;

/// Maximum length of a shot in bytes. A digitizer's blocks are tens of megabytes.
pub(super) const MAX_SHOT_BYTES: u64 = 1 << 28;

/// Reason why a [`Geometry`](super::Geometry) was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The shot has no samples.
    #[error("a shot needs at least one channel and one sample, found {channels} x {samples}")]
    Empty {
        /// Requested number of channels.
        channels: u16,
        /// Requested number of samples per channel.
        samples: u32,
    },
    /// The shot is larger than 4096 packets of 4096 bytes.
    #[error(
        "a shot of {bytes} bytes needs {packets} packets of 4096 bytes, the packet index allows 4096: use fewer samples or channels"
    )]
    TooLarge {
        /// Length on the wire in bytes, with padding and trailer.
        bytes: u64,
        /// Number of packets needed.
        packets: u64,
    },
    /// The shot is larger than the maximum.
    #[error("a shot of {0} bytes is too large, the limit is {MAX_SHOT_BYTES}: use fewer samples or channels")]
    ShotTooLarge(u64),
    /// The shot has more packets than a presence map holds.
    #[error(
        "a shot of {bytes} bytes in packets of {packet} is {packets} packets, the limit is {MAX_PACKETS}: make the sender's packets larger or its shots smaller"
    )]
    TooManyPackets {
        /// Length on the wire in bytes.
        bytes: u64,
        /// Payload length of a packet in bytes.
        packet: u32,
        /// Number of packets needed.
        packets: u64,
    },
    /// A packet has no payload, or too much.
    #[error("a packet needs 1 to 65535 bytes of payload, found {0}")]
    PacketBytes(u32),
    /// The packing cannot hold samples of this resolution.
    #[error("{bits}-bit samples do not fit a packing of {holds} bits")]
    Bits {
        /// Requested resolution in bits.
        bits: u8,
        /// Bits per sample of the packing.
        holds: u32,
    },
    /// The number of 12-bit samples is odd, so the last one would end in half a byte.
    #[error("12-bit packing takes samples in pairs: {channels} x {samples} is odd")]
    OddSamples {
        /// Requested number of channels.
        channels: u16,
        /// Requested number of samples per channel.
        samples: u32,
    },
}
