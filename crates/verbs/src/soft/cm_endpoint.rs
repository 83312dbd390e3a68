//! [`Endpoint`] of the connection manager for [`SoftEndpoint`].

use super::{SoftDropCounters, SoftEndpoint};
use crate::api::{Mtu, Qp};
use crate::cm::{Endpoint, EndpointCounters};
use crate::spacefibre::{LinkParameters, LinksStatus};
use shotline_transport::PacketIo;
use std::net::SocketAddr;

impl<P: PacketIo> Endpoint for SoftEndpoint<P> {
    fn address(&self) -> Option<SocketAddr> {
        Some(self.address())
    }
    fn mtu(&self) -> Mtu {
        Mtu::B4096
    }
    fn counters_of(&self, qp: Qp) -> EndpointCounters {
        self.qp_counters(qp).map(EndpointCounters::from).unwrap_or_default()
    }
    fn total_counters(&self) -> EndpointCounters {
        let counters = self.counters();
        let SoftDropCounters { malformed, unknown_qp, wrong_service, bad_icrc, unverified } = counters.drops;
        let drops = [
            ("malformed", malformed),
            ("unknown_qp", unknown_qp),
            ("wrong_service", wrong_service),
            ("bad_icrc", bad_icrc),
            ("unverified", unverified),
        ];
        EndpointCounters {
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            packets_copied: counters.packets_copied,
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
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
