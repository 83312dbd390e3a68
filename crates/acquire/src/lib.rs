//! From packets to whole shots: steering, assembly, events, full-buffer policies and counters.
//!
//! [`Receiver`] owns one `PacketIo` and the streams on it. It posts receives that point into the buffers of the next
//! shots, steers each packet to its destination, repairs what landed elsewhere, and emits shots and losses in the order
//! of their numbers; [`event::Joiner`] combines them into events; [`sink`] hands events over. The module
//! [`run`](mod@run) combines all of it with a probe, a recorder and their threads: start at [`run::run`].

pub mod align;
pub mod clock;
pub mod completion;
pub mod config;
pub mod consumer;
pub mod control;
pub mod counters;
pub mod cpu;
pub mod event;
pub mod journal;
pub mod latency;
pub mod learn;
pub mod live;
mod memory;
pub mod pretrigger;
pub mod receiver;
pub mod run;
pub mod sink;
pub mod stages;
mod stream;
pub mod summary;
mod sys;
pub mod tap;
pub mod trigger;

pub use latency::ShotLatencies;
pub use receiver::{Receiver, ReceiverConfig};
pub use stream::{EndReason, Item, StreamConfig};
