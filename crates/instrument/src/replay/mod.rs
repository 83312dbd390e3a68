//! Replay: what was recorded is sent again as the packets that it came in.
//!
//! A replay acts as a probe ([`crate::probe::Probe`]) whose shots come from a recording: it answers set-up, keeps a
//! pace, frames and seals as any other. Shots keep their numbers, stamps and records; of each shot the packets are sent
//! that the recording has. So what a receiver makes of it is the recording again, its losses included.
//!
//! ```text
//!  Tape ─── reader threads ── a rack: one row, its bytes in the region, CRC remainders ──► Recorded ──► Probe
//!  (a recording)   ▲                                                                          │
//!                  └────────────────────────── empty racks ◄──────────────────────────────────┘
//! ```
//!
//! This crate does not know how recordings are stored: whoever does hands in a [`Tape`]. So a replay shares no code with
//! the recorder whose files it sends, and a test can replay from memory.
//!
//! [`flow`] sends the datagrams of a capture, which need no shots.

pub mod flow;
mod form;
mod patch;
mod reader;
mod recorded;
mod tape;
#[cfg(test)]
mod tests;

pub use form::{Form, FormError};
pub use recorded::{Recorded, ReplayError, Stamps};
pub use tape::{Kept, Tape, TapeLink};
