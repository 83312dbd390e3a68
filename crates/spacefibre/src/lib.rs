//! SpaceFibre links (ECSS-E-ST-50-11C) as state machines without I/O.
//!
//! No sockets, no clock, no threads: words and frames are arguments, and time is counted in words sent.
#![deny(missing_docs)]

pub mod column;
pub mod qos;
