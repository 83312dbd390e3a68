//! [`Endpoint`] of the connection manager for [`ShmEndpoint`].

use super::{Counters, ShmEndpoint};
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, Tally};
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
    fn tally(&self, _: Qp) -> Tally {
        Tally::default()
    }
    /// Counts messages as packets; those that arrived in sequence are not counted.
    fn total(&self) -> Tally {
        let Counters { stray, refused, nonsense, wakes: _ } = self.counters();
        let causes = [("stray", stray), ("refused", refused), ("nonsense", nonsense)];
        let refused = causes.into_iter().filter(|(_, count)| *count > 0).collect();
        Tally { packets_in: causes.iter().map(|(_, count)| count).sum(), refused, ..Tally::default() }
    }
}
