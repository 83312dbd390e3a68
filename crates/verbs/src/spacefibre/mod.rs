//! RDMA over SpaceFibre: queue pairs in software over a SpaceFibre link, which a
//! [`Carrier`](shotline_transport::carrier::Carrier) carries.
//!
//! A [`SpaceFibreEndpoint`] is an [`Endpoint`] at one end of links, one to each far end. Its queue pairs are reliable
//! connections: the engine is RoCE's, and its packets are translated to RDMA packets over SpaceFibre
//! ([`rdma`](shotline_wire::spacefibre::rdma)). A link repairs what its carrier loses, so an engine sends again only
//! after a link reset.
//!
//! | content | module |
//! |---|---|
//! | packets of the engines as RDMA packets over SpaceFibre | `packet` |
//! | packets on their way into the link, and segments of them as data frames | `transmit` |
//! | packets that arrive, put together and checked | `receive` |
//! | links and carriers | `datapath` |
//! | what reports and watchers see of links | `status` |
//! | queue pairs, queues, timers, the verbs | [`endpoint`](crate::endpoint) |

mod channels;
mod cm_endpoint;
mod counters;
mod datapath;
mod link;
mod open;
mod options;
mod packet;
mod receive;
mod selector;
mod status;
#[cfg(test)]
mod tests;
mod time_slots;
mod transmit;

pub use channels::{ChannelSpec, Channels, Percentage};
pub use counters::{SpaceFibreCounters, SpaceFibreDropCounters};
pub use datapath::{Connected, Connector, DESCRIPTION, LinkDatapath, SHM_DESCRIPTION};
pub use open::{AnyCarrier, UdpConnector};
pub use options::LinkOptions;
pub use selector::{CarrierKind, LinkParameters, LinkSelector};
pub use status::{ChannelRates, ChannelStatus, EndedLinks, LinkRates, LinkStatus, LinksStatus};
pub use time_slots::{TimeSlots, time_slot};

use crate::api::VerbsError;
use crate::endpoint::Endpoint;
use shotline_memory::Registrar;
use shotline_spacefibre::frames::FrameLink;
use std::net::SocketAddr;

/// Queue pairs over links, one to each far end.
pub type SpaceFibreEndpoint<K> = Endpoint<LinkDatapath<K>>;

impl<K: Connector> SpaceFibreEndpoint<K> {
    /// Creates an endpoint whose links are carried by a connector's carriers.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] if memory cannot be allocated, [`VerbsError::Io`] if file descriptors cannot be created.
    pub fn open(connector: K, options: LinkOptions) -> Result<Self, VerbsError> {
        let regions = Registrar::new().finish();
        Endpoint::new(LinkDatapath::new(connector, options, regions.clone())?, regions)
    }

    /// Returns the local address.
    pub fn address(&self) -> SocketAddr {
        self.datapath.connector.address()
    }
    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> &SpaceFibreCounters {
        &self.datapath.counters
    }
    /// Returns the options that far ends must have in common with this end.
    pub fn link_parameters(&self) -> LinkParameters {
        let LinkOptions { lanes, ref channels, .. } = self.datapath.options;
        let carrier = if self.address().port() == 0 { CarrierKind::Shm } else { CarrierKind::Udp };
        LinkParameters { carrier, lanes, channels: channels.len() as u8 }
    }
    /// Returns the counters, and the status of the links from the one with index `first` on, at most `max`.
    pub fn status(&self, first: usize, max: usize) -> LinksStatus {
        let links = || self.datapath.links.iter().enumerate().filter_map(|(index, link)| Some((index, link.as_ref()?)));
        let status =
            |(index, link): (usize, &link::Link<K::Carrier>)| LinkStatus::of(index as u64, link.peer, &link.frames);
        LinksStatus {
            packets: *self.counters(),
            ended: self.datapath.ended,
            open: links().count() as u32,
            links: links().skip(first).take(max).map(status).collect(),
        }
    }
    /// Returns the links with the addresses of their far ends.
    pub fn links(&self) -> impl Iterator<Item = (SocketAddr, &FrameLink)> {
        self.datapath.links.iter().flatten().map(|link| (link.peer, &link.frames))
    }
}
