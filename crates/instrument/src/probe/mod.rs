//! The emulated ultrasound probe.
//!
//! It models the probe of Cossettini et al. ("A RDMA Interface for Ultra-Fast Ultrasound Data-Streaming over an Optical
//! Link"), an FPGA with one 100G link per 96 channels. It waits on a set-up port for a receiver to configure the
//! destination, samples 96 channels of 12 bits at 40 MS/s on each link, packs the samples, and sends each shot as
//! RoCEv2 datagrams (or in another framing) that end with an end-of-shot record.
//!
//! ```text
//!  set-up messages, triggers          samples: test pattern, recorded RF or a phantom
//!        │                                  │ once, at set-up
//!        ▼                                  ▼
//!     Probe ──── Pacer ── a shot ──►  prebuilt shots in one region
//!   (what to do)  (when)                    │ gather lists and CRC remainders: no sample is touched again
//!                                           ▼
//!                                    Link ── Injector ──► PacketIo, one per link
//!                                    (sequence numbers, faults)
//! ```
//!
//! [`Probe`] has no sockets and no clock; [`Server`] supplies both.

mod array;
pub(crate) mod clock;
mod config;
mod counters;
mod device;
mod error;
pub mod faults;
mod given;
mod link;
pub mod pace;
mod patterns;
pub mod phantom;
mod prebuilt;
mod rf;
#[cfg(feature = "rtl")]
pub mod rtl;
pub mod samples;
mod serve;
pub(crate) mod shots;
#[cfg(test)]
mod tests;
mod transport;

pub use clock::{Skew, Stamp};
pub use config::{Config, ConfigError, MAX_REORDER_DEPTH, MODEL, Phantom};
pub use counters::{Failures, LinkReport, ProbeCounters, ProbeState};
pub use device::{Probe, Response, Step};
pub use error::{ProbeError, SampleError};
pub use given::{GivenError, GivenShots};
pub use link::LinkCounters;
pub use patterns::Patterns;
pub use rf::RfReport;
pub use serve::{ServeError, Server};
pub use shots::{CopyRing, FireError, Payload, ReadError, Route, ShotContext, Shots, Upcoming};
pub use transport::{LinkRequest, LinkTransport};
