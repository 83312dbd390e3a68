//! Settings of a measurement.

use shotline_wire::framing::Kind;
use std::net::SocketAddr;

/// How the receiver waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Busy polling: the lowest latency, for a whole processor.
    Poll,
    /// Sleep until the kernel wakes the thread.
    Sleep,
}

/// Settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The probe's set-up address.
    pub probe: SocketAddr,
    /// Overrides another receiver.
    pub take_over: bool,
    /// Framing of the packets.
    pub framing: Kind,
    /// Number of links whose shots a trigger must produce.
    pub links: u8,
    /// Samples per channel and shot (N_s).
    pub samples: u32,
    /// How the receiver waits.
    pub wait: Wait,
    /// Number of commands, and then of triggers, that count. [`WARM_UP`](super::WARM_UP) of each are sent before.
    pub count: u32,
    /// Local address for the shots; none: the address that reaches the probe, with any port.
    pub bind: Option<SocketAddr>,
}
