//! What the connection manager asks of the provider besides the verbs.

use super::IbverbsEndpoint;
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, Tally};
use std::net::SocketAddr;

impl Endpoint for IbverbsEndpoint {
    fn address(&self) -> Option<SocketAddr> {
        Some(self.address())
    }
    fn mtu(&self) -> Mtu {
        self.mtu()
    }
    /// Nothing: a device counts for all of its queue pairs together.
    fn tally(&self, _: Qp) -> Tally {
        Tally::default()
    }
    fn total(&self) -> Tally {
        Tally::default()
    }
}
