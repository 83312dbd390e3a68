//! Operating point of a probe, and the timing of its shots.

use serde::Serialize;
use shotline_wire::framing::Kind;

/// Operating point of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Framing of the packets.
    pub framing: Kind,
    /// Samples per channel and shot.
    pub samples: u32,
    /// Frequency of the trigger, or the requested rate, in Hz.
    pub hz: f64,
}

/// What starts the shots of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ShotTiming {
    /// An external trigger: the probe misses triggers that arrive while it is busy
    Trigger,
    /// The probe's own clock, at a configured rate
    Rate,
}
