//! Interface of the learners.

use shotline_wire::framing::Framing;
use shotline_wire::shot::{Packetization, Packing, Trailer};
use std::sync::Arc;

/// Learns the format of one sender.
pub(super) trait Learner {
    /// Set if examined packets are passed on to the receiver; otherwise they count as sent before the start.
    const KEEPS_PACKETS: bool = true;
    /// Creates a learner that has seen no packet.
    fn new(hints: Hints) -> Self;
    /// Returns the header length of a packet that begins with `first`.
    fn header_len(first: &[u8]) -> usize;
    /// Returns the key that distinguishes the streams of one address; none if the packet is not of this kind.
    fn key(packet: &[u8]) -> Option<u32>;
    /// Examines a packet, from the end of the UDP header to the ICRC. Returns the result once the sender is learned.
    ///
    /// # Errors
    /// If this sender cannot be received at all.
    fn examine(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String>;
    /// Describes the packets that are still needed.
    fn missing(&self) -> String;
}

/// Result of learning a stream.
#[derive(Debug)]
pub struct LearnedStream {
    /// Framing of the packets.
    pub framing: Arc<dyn Framing>,
    /// Key of the stream in its packets ([`Framing::key`]).
    pub key: u32,
    /// The stream's own number, if its packets have one.
    pub stream: Option<u32>,
    /// Shape of the samples, if packets have it.
    pub shape: Option<Shape>,
    /// Bytes of samples in a shot.
    pub sample_bytes: u32,
    /// Trailer of a shot.
    pub trailer: Trailer,
    /// Division of a shot into packets.
    pub packetization: Packetization,
    /// The oldest shot whose beginning was received, if its packets number their shots.
    pub first_shot: Option<u64>,
    /// Description for the user.
    pub description: String,
}

/// Shape of a stream's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels per sample instant.
    pub channels: u16,
    /// Layout in bytes.
    pub packing: Packing,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// Sample rate in Hz, 0 if unknown.
    pub sample_rate_hz: u32,
}

/// Settings that describe the sender.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// Pages in the ring of a sensor bridge.
    pub pages: Option<u32>,
    /// Samples of a shot, for senders without shots.
    pub samples: Option<u32>,
    /// Sample rate in Hz, where packets do not have it.
    pub sample_rate_hz: Option<u32>,
    /// Number of streams to learn.
    pub streams: usize,
}

impl Default for Hints {
    fn default() -> Self {
        Self { pages: None, samples: None, sample_rate_hz: None, streams: 1 }
    }
}
