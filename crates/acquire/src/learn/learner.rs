//! What a learner of one kind of sender gets, does and returns.

use shotline_wire::framing::Framing;
use shotline_wire::shot::{Cut, Packing, Trailer};
use std::sync::Arc;

/// Learns one sender of a kind.
pub(super) trait Learner {
    /// Whether what was looked at is handed on to the receiver; else it is as if it had come before the start.
    const HANDS_ON: bool = true;
    fn new(hints: Hints) -> Self;
    /// Bytes of header of a packet whose leading bytes these are.
    fn header_len(first: &[u8]) -> usize;
    /// What tells the streams of one address apart; none if the packet is not of this kind.
    fn key(packet: &[u8]) -> Option<u32>;
    /// Looks at a packet: what stands between UDP header and ICRC. An error is final for this sender.
    fn look(&mut self, packet: &[u8]) -> Result<Option<Learned>, String>;
    /// What it is still waiting for.
    fn missing(&self) -> String;
}

/// What was learned.
#[derive(Debug)]
pub struct Learned {
    /// How packets name their places.
    pub framing: Arc<dyn Framing>,
    /// What names the stream in its packets ([`Framing::key`]).
    pub key: u32,
    /// The stream's own number, if its packets tell one.
    pub stream: Option<u32>,
    /// What the samples are, if packets tell.
    pub shape: Option<Shape>,
    /// Bytes of samples in a shot.
    pub sample_bytes: u32,
    /// What closes a shot.
    pub trailer: Trailer,
    /// How it is cut into packets.
    pub cut: Cut,
    /// The oldest shot whose beginning was seen, if its packets number their shots.
    pub first_shot: Option<u64>,
    /// All that in words.
    pub words: String,
}

/// What the samples of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels per sample instant.
    pub channels: u16,
    /// How they lie in bytes.
    pub packing: Packing,
    /// Resolution of a sample in bits.
    pub bits: u8,
    /// Sample rate in Hz, 0 if unknown.
    pub sample_rate_hz: u32,
}

/// What the user has said of the sender.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// Pages in the ring of a sensor bridge.
    pub pages: Option<u32>,
    /// Samples of a shot, for senders that have no shots.
    pub samples: Option<u32>,
    /// Samples a second, where packets do not tell.
    pub sample_rate_hz: Option<u32>,
    /// Streams to wait for.
    pub streams: usize,
}

impl Default for Hints {
    fn default() -> Self {
        Self { pages: None, samples: None, sample_rate_hz: None, streams: 1 }
    }
}
