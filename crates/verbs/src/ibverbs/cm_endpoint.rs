//! [`Endpoint`] of the connection manager for [`IbverbsEndpoint`].

use super::IbverbsEndpoint;
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, EndpointCounters};
use crate::spacefibre::{LinkParameters, LinksStatus};
use std::net::SocketAddr;

impl Endpoint for IbverbsEndpoint {
    fn address(&self) -> Option<SocketAddr> {
        Some(self.address())
    }
    fn mtu(&self) -> Mtu {
        self.mtu()
    }
    /// Always zero: a device counts for all of its queue pairs together.
    fn counters_of(&self, _: Qp) -> EndpointCounters {
        EndpointCounters::default()
    }
    fn total_counters(&self) -> EndpointCounters {
        EndpointCounters::default()
    }
    fn link_parameters(&self) -> Option<LinkParameters> {
        None
    }
    fn links(&self, _first: usize, _max: usize) -> Option<LinksStatus> {
        None
    }
}
