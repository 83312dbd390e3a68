//! Queue pairs of a measurement.

use shotline_verbs::api::{Cq, Destination, Qp};
use shotline_verbs::cm::message::{Bits24, RegionKey};
use std::net::IpAddr;

/// A connected queue pair.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedQp {
    /// The local queue pair.
    pub qp: Qp,
    /// Number of the target's queue pair.
    pub peer: Bits24,
    /// Its service level.
    pub service_level: u8,
    /// Address of the target's queue pair, if it has one.
    pub address: Option<IpAddr>,
}

/// The queue pairs of a measurement.
pub struct QpSet {
    /// Completion queue of all of them.
    pub cq: Cq,
    /// The queue pairs.
    pub all: Vec<ConnectedQp>,
    /// Key of the target's region.
    pub key: RegionKey,
    /// Index of that region in the target's list.
    pub region_index: usize,
    /// Destination of datagrams.
    pub to: Option<Destination>,
}
