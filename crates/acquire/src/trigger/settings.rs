//! What to measure, and how.

use shotline_wire::framing::Kind;
use std::net::SocketAddr;

/// How the receiver waits for what is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It asks again and again: the shortest latency, for a whole processor.
    Poll,
    /// It sleeps until the kernel wakes it.
    Sleep,
}

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The probe's set-up address.
    pub probe: SocketAddr,
    /// Overrule another receiver.
    pub take_over: bool,
    /// How packets name their places.
    pub framing: Kind,
    /// Links whose shots a trigger must bring.
    pub links: u8,
    /// Samples per channel and shot (N_s).
    pub samples: u32,
    /// How to wait.
    pub wait: Wait,
    /// Commands, and then triggers, that count. [`WARM_UP`](super::WARM_UP) of each come before.
    pub count: u32,
    /// Local address for the shots; none: the one that the probe is reached from, any port.
    pub bind: Option<SocketAddr>,
}
