//! [`Endpoint`] of the connection manager for [`ShmEndpoint`].

use super::{ShmCounters, ShmEndpoint};
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, EndpointCounters};
use crate::spacefibre::{LinkParameters, LinksStatus};
use std::net::SocketAddr;

impl Endpoint for ShmEndpoint {
    fn address(&self) -> Option<SocketAddr> {
        None
    }
    /// Meaningless, because there are no packets.
    fn mtu(&self) -> Mtu {
        Mtu::B4096
    }
    /// Always zero: the initiator executes all one-sided operations.
    fn counters_of(&self, _: Qp) -> EndpointCounters {
        EndpointCounters::default()
    }
    /// Counts messages as packets; those that arrived in sequence are not counted.
    fn total_counters(&self) -> EndpointCounters {
        let ShmCounters { stray, refused, malformed, wakes: _ } = self.counters();
        let causes = [("stray", stray), ("refused", refused), ("malformed", malformed)];
        let drops = causes.into_iter().filter(|(_, count)| *count > 0).collect();
        EndpointCounters {
            packets_in: causes.iter().map(|(_, count)| count).sum(),
            drops,
            ..EndpointCounters::default()
        }
    }
    fn link_parameters(&self) -> Option<LinkParameters> {
        None
    }
    fn links(&self, _first: usize, _max: usize) -> Option<LinksStatus> {
        None
    }
}
