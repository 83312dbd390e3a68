//! The emulated ultrasound probe.
//!
//! It is built like the real one, which is an FPGA with a 100G link for every 96 channels: it waits on a
//! set-up port for a receiver that says where to send, samples 96 channels of 12 bits at 40 MS/s on each
//! link, packs them, and sends each shot as RoCEv2 datagrams (or in another framing) that end in an
//! end-of-shot record.
//!
//! ```text
//!  set-up messages, triggers          samples: test pattern or recorded RF
//!        │                                  │ once, at set-up
//!        ▼                                  ▼
//!     Probe ──── Pacer ── a shot ──►  prebuilt shots in one region
//!   (what to do)  (when)                    │ gather lists and CRC remainders: no byte is touched again
//!                                           ▼
//!                                    Link ── Injector ──► PacketIo, one for each link
//!                                    (sequence numbers, faults)
//! ```
//!
//! [`Probe`] has no sockets and no clock; [`Server`] gives it both.

pub(crate) mod clock;
mod config;
mod device;
mod error;
pub mod faults;
mod link;
mod outlet;
pub mod pace;
mod patterns;
mod prebuilt;
mod rf;
#[cfg(feature = "rtl")]
pub mod rtl;
pub mod samples;
mod serve;
pub(crate) mod shots;
mod stats;
#[cfg(test)]
mod tests;

pub use clock::{Skew, Stamp};
pub use config::{Config, ConfigError, MAX_REORDER_DEPTH, MODEL};
pub use device::{Answer, FireError, Probe, Step};
pub use error::{ProbeError, SampleError};
pub use link::LinkCounts;
pub use outlet::{Outlet, Wanted};
pub use patterns::Patterns;
pub use rf::RfReport;
pub use serve::{ServeError, Server};
pub use shots::{Copies, Moment, Payload, ReadError, Shots, Upcoming, Way};
pub use stats::{Failures, LinkStats, Stats};
