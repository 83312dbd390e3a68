//! One measurement of `shotline perf`.

use serde::Serialize;
use shotline_memory::Access;
use shotline_verbs::api::{CompletionKind, Operation, Remote};
use std::time::Duration;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What is measured.
    pub metric: Metric,
    /// Bytes of an operation.
    pub size: u32,
    /// Operations of a group.
    pub group: u16,
    /// Length of an iteration.
    pub seconds: Duration,
    /// Number of iterations.
    pub iterations: u16,
}

/// What a measurement measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Rate of a verb.
    Rate(Verb),
    /// Latency of an operation.
    Latency(LatencyKind),
    /// Processor time of posting and completing a verb.
    Overhead(Verb),
}

/// Operation that is measured, or the latency of single operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// WRITEs into the target's memory
    Write,
    /// READs of the target's memory
    Read,
    /// Messages into receives that the target has posted
    Send,
    /// Fetch and add on the target's memory
    Atomic,
    /// Latency of single operations
    Latency,
}

impl Verb {
    /// Returns the kind of its completions.
    pub fn completed(self) -> CompletionKind {
        match self {
            Self::Write | Self::Latency => CompletionKind::Write,
            Self::Read => CompletionKind::Read,
            Self::Send => CompletionKind::Send,
            Self::Atomic => CompletionKind::FetchAdd,
        }
    }
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
            Self::Latency => "latency",
        }
    }
}

/// Operation whose latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LatencyKind {
    /// A WRITE, until it is acknowledged
    Write,
    /// A READ, until its bytes have arrived
    Read,
    /// A fetch and add, until the old value has arrived
    Atomic,
    /// Half the round trip of a message
    Send,
    /// Half the round trip of a WRITE into memory that the target polls
    Ping,
}

impl LatencyKind {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write latency",
            Self::Read => "read latency",
            Self::Atomic => "atomic latency",
            Self::Send => "send latency",
            Self::Ping => "ping latency",
        }
    }
    /// Returns the verb of its operations.
    pub fn verb(self) -> Verb {
        match self {
            Self::Write | Self::Ping => Verb::Write,
            Self::Read => Verb::Read,
            Self::Atomic => Verb::Atomic,
            Self::Send => Verb::Send,
        }
    }
    /// Returns `true` if it is a round trip, whose time is halved.
    pub fn is_halved(self) -> bool {
        matches!(self, Self::Send | Self::Ping)
    }
}

/// Latencies that are measured by default.
pub const DEFAULT_LATENCIES: [LatencyKind; 4] =
    [LatencyKind::Write, LatencyKind::Read, LatencyKind::Send, LatencyKind::Ping];

/// Returns the operation of a verb on the target's memory.
pub fn operation(verb: Verb, remote: Remote) -> Operation {
    match verb {
        Verb::Write | Verb::Latency => Operation::Write(remote),
        Verb::Read => Operation::Read(remote),
        Verb::Send => Operation::Send,
        Verb::Atomic => Operation::FetchAdd { remote, add: 1 },
    }
}

/// Returns the access that a verb requires.
pub fn rights(verb: Verb) -> Access {
    match verb {
        Verb::Write | Verb::Latency => Access::REMOTE_WRITE,
        Verb::Read => Access::REMOTE_READ,
        Verb::Send => Access::NONE,
        Verb::Atomic => Access::REMOTE_ATOMIC,
    }
}
