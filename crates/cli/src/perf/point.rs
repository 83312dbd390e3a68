//! What one measurement measures.

use serde::Serialize;
use shotline_memory::Access;
use shotline_verbs::api::{CompletionKind, Operation, Remote};
use std::time::Duration;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What.
    pub what: What,
    /// Bytes of an operation.
    pub size: u32,
    /// Operations of a group.
    pub group: u16,
    /// Length of an iteration.
    pub seconds: Duration,
    /// Iterations.
    pub iterations: u16,
}

/// What one measurement measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A rate of these.
    Rate(Verb),
    /// A latency of these.
    Latency(Of),
    /// The processor time of posting these.
    Overhead(Verb),
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Bytes into the target's memory
    Write,
    /// Bytes out of the target's memory
    Read,
    /// Messages into receives that the target has posted
    Send,
    /// Fetch and add on the target's memory
    Atomic,
    /// The time that single operations take
    Latency,
}

impl Verb {
    /// What its completions say.
    pub fn completed(self) -> CompletionKind {
        match self {
            Self::Write | Self::Latency => CompletionKind::Write,
            Self::Read => CompletionKind::Read,
            Self::Send => CompletionKind::Send,
            Self::Atomic => CompletionKind::FetchAdd,
        }
    }
    /// As it is called.
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

/// Whose latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Of {
    /// A WRITE, until it is acknowledged
    Write,
    /// A READ, until its bytes are here
    Read,
    /// A fetch and add, until the old value is here
    Atomic,
    /// A message there and one back, halved
    Send,
    /// A WRITE into memory that the target polls, and one back, halved
    Ping,
}

impl Of {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write latency",
            Self::Read => "read latency",
            Self::Atomic => "atomic latency",
            Self::Send => "send latency",
            Self::Ping => "ping latency",
        }
    }
    /// The verb of its operations.
    pub fn verb(self) -> Verb {
        match self {
            Self::Write | Self::Ping => Verb::Write,
            Self::Read => Verb::Read,
            Self::Atomic => Verb::Atomic,
            Self::Send => Verb::Send,
        }
    }
    /// Whether it goes there and back.
    pub fn is_halved(self) -> bool {
        matches!(self, Self::Send | Self::Ping)
    }
}

/// What is measured unless something is asked for.
pub const USUAL: [Of; 4] = [Of::Write, Of::Read, Of::Send, Of::Ping];

/// The operation of a verb on the target's memory.
pub fn operation(verb: Verb, remote: Remote) -> Operation {
    match verb {
        Verb::Write | Verb::Latency => Operation::Write(remote),
        Verb::Read => Operation::Read(remote),
        Verb::Send => Operation::Send,
        Verb::Atomic => Operation::FetchAdd { remote, add: 1 },
    }
}

/// Rights that a verb needs.
pub fn rights(verb: Verb) -> Access {
    match verb {
        Verb::Write | Verb::Latency => Access::REMOTE_WRITE,
        Verb::Read => Access::REMOTE_READ,
        Verb::Send => Access::NONE,
        Verb::Atomic => Access::REMOTE_ATOMIC,
    }
}
