//! [`cm::Endpoint`](crate::cm::Endpoint) of the connection manager for [`SpaceFibreEndpoint`].

use super::options::SEGMENT;
use super::{Connector, LinkParameters, LinksStatus, SpaceFibreEndpoint};
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, EndpointCounters};
use std::net::SocketAddr;

impl<K: Connector> Endpoint for SpaceFibreEndpoint<K> {
    fn address(&self) -> Option<SocketAddr> {
        // Over shared memory the far end is not reached by IP.
        Some(self.address()).filter(|address| address.port() != 0)
    }
    fn mtu(&self) -> Mtu {
        SEGMENT
    }
    fn counters_of(&self, qp: Qp) -> EndpointCounters {
        self.qp_counters(qp).map(EndpointCounters::from).unwrap_or_default()
    }
    fn link_parameters(&self) -> Option<LinkParameters> {
        Some(self.link_parameters())
    }
    fn links(&self, first: usize, max: usize) -> Option<LinksStatus> {
        Some(self.status(first, max))
    }
    fn total_counters(&self) -> EndpointCounters {
        EndpointCounters {
            packets_in: self.counters().packets_in,
            packets_out: self.counters().packets_out,
            drops: self.counters().drops.by_cause().into_iter().filter(|(_, count)| *count > 0).collect(),
            ..EndpointCounters::default()
        }
    }
}
