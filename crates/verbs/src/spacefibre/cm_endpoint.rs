//! [`cm::Endpoint`](crate::cm::Endpoint) of the connection manager for [`SpaceFibreEndpoint`].

use super::options::SEGMENT;
use super::{Connector, LinkParameters, LinksStatus, SpaceFibreDropCounters, SpaceFibreEndpoint};
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
        let SpaceFibreDropCounters {
            eep,
            link_reset,
            malformed,
            too_long,
            early_eop,
            too_much_data,
            bad_data_crc,
            unknown_qp,
            wrong_service,
        } = self.counters().drops;
        let drops = [
            ("eep", eep),
            ("link_reset", link_reset),
            ("malformed", malformed),
            ("too_long", too_long),
            ("early_eop", early_eop),
            ("too_much_data", too_much_data),
            ("bad_data_crc", bad_data_crc),
            ("unknown_qp", unknown_qp),
            ("wrong_service", wrong_service),
        ];
        EndpointCounters {
            packets_in: self.counters().packets_in,
            packets_out: self.counters().packets_out,
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
            ..EndpointCounters::default()
        }
    }
}
