//! Replay: sends a recording as the packets in which it was received.
//!
//! A replay is a probe ([`crate::probe::Probe`]) whose shots come from a recording: set-up messages, pacing, framing
//! and ICRC are those of any probe. Shots keep their numbers, timestamps and records, and only the packets in the
//! recording are sent. A receiver therefore reproduces the recording, including its losses.
//!
//! ```text
//!  RecordingReader ── reader threads ──► row buffer ──────► RecordedShots ──► Probe
//!                         ▲        (bytes in the region,         │
//!                         │         CRC remainders)              │
//!                         └───────────── free buffers ◄──────────┘
//! ```
//!
//! This crate does not depend on the file format of recordings: the caller passes a [`RecordingReader`]. A replay
//! therefore shares no code with the recorder whose files it sends, and tests can replay from memory.
//!
//! [`flow`] sends the datagrams of a capture without interpreting shots.

mod converter;
pub mod flow;
mod patch;
mod reader;
mod recorded;
mod recording;
#[cfg(test)]
mod tests;

pub use converter::{ConversionError, ShotConverter};
pub use recorded::{RecordedShots, ReplayError, StampSource};
pub use recording::{RecordedLink, RecordingReader, ShotMetadata};
