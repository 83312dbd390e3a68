//! Why a geometry was refused.

use super::MAX_PACKETS;

/// Bytes of the largest shot: blocks of a digitizer are tens of megabytes.
pub(super) const MAX_SHOT_BYTES: u64 = 1 << 28;

/// Why a [`Geometry`](super::Geometry) was refused.
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
        /// Bytes on the wire, with padding and trailer.
        bytes: u64,
        /// Packets they take.
        packets: u64,
    },
    /// More bytes than any shot may have.
    #[error("a shot of {0} bytes is too large, {MAX_SHOT_BYTES} can be handled: use fewer samples or channels")]
    Huge(u64),
    /// Cut into more packets than a presence map holds.
    #[error(
        "a shot of {bytes} bytes in packets of {packet} is {packets} packets, {MAX_PACKETS} can be kept track of: make the sender's packets larger or its shots smaller"
    )]
    TooFine {
        /// Bytes on the wire.
        bytes: u64,
        /// Payload bytes of a packet.
        packet: u32,
        /// Packets they take.
        packets: u64,
    },
    /// Packets without payload.
    #[error("a packet needs 1 to 65535 bytes of payload, found {0}")]
    EmptyPacket(u32),
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
