//! SpaceFibre links (ECSS-E-ST-50-11C) as state machines without I/O.
//!
//! No sockets, no clock, no threads: words and frames are arguments, and time is counted in words sent.
//!
//! - [`mod@column`]: scrambling and CRC-16 of whole data frames, one column per lane.
//! - [`frames`]: a link whose carrier moves whole frames.
//! - [`lane`]: the lane layer: initialisation, receive errors, loss of signal.
//! - [`link`]: the data link layer: virtual channels, flow control, sequence numbers, retry.
//! - [`multilane`]: the multi-lane layer: rows over several lanes, their alignment.
//! - [`qos`]: quality of service of virtual channels.
#![deny(missing_docs)]

pub mod column;
mod events;
pub mod frames;
pub mod lane;
pub mod link;
pub mod multilane;
pub mod qos;
