//! RDMA over SpaceFibre: queue pairs in software over a SpaceFibre link, which a
//! [`Carrier`](shotline_transport::carrier::Carrier) carries.
//!
//! A [`SpaceFibreEndpoint`] is an [`Endpoint`] at one end of links, one to each far end. Its queue pairs are reliable
//! connections: the engine is RoCE's, and its packets are translated to RDMA packets over SpaceFibre
//! ([`rdma`](shotline_wire::spacefibre::rdma)). A link repairs what its carrier loses, so an engine sends again only
//! after a link reset.
//!
//! # Several virtual channels
//! A queue pair's service level is its virtual channel, and each channel has its own quality of service. Here a group of
//! long WRITEs and an urgent one have a channel each; the target is woken by the urgent one, and gets notices of the others.
//!
//! ```
//! use shotline_memory::{Access, Addressing, Region};
//! use shotline_transport::carrier::faulty::Faults;
//! use shotline_verbs::api::*;
//! use shotline_verbs::spacefibre::{LinkSelector, SpaceFibreEndpoint};
//! use shotline_wire::aeth::RnrTimer;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Channel 0 has 90 % of the link, channel 1 has 10 % and the higher priority.
//! let options = "lanes=4,vc=90%/1,vc=10%/0".parse::<LinkSelector>()?.options();
//! let addresses = ["10.0.0.1:1".parse()?, "10.0.0.2:1".parse()?];
//! let mut ends = SpaceFibreEndpoint::pair(&options, addresses, Faults::default())?;
//!
//! let (mut regions, mut queues, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
//! for end in &mut ends {
//!     let (pd, memory) = (end.alloc_pd()?, Region::heap(1 << 20)?);
//!     regions.push(end.reg_mr(pd, &memory, 0, 1 << 20, Access::ALL, Addressing::ZeroBased)?);
//!     let cq = end.create_cq(64)?;
//!     queues.push(cq);
//!     for service_level in [0, 1] {
//!         let config = QpConfig { service_level, ..QpConfig::new(QpType::Rc, pd, cq, cq) };
//!         pairs.push(end.create_qp(&config)?);
//!     }
//! }
//! for (this, peer) in [(0, 2), (1, 3), (2, 0), (3, 1)] {
//!     let (end, address) = (&mut ends[this / 2], addresses[peer / 2]);
//!     end.modify_qp(pairs[this], Modify::Init { access: Access::ALL, q_key: 0 })?;
//!     let receive = ReadyToReceive {
//!         peer: Some((address, pairs[peer].0)),
//!         mtu: Mtu::B16384,
//!         psn: 0,
//!         max_dest_rd_atomic: 4,
//!         min_rnr_timer: RnrTimer::from_code(1).ok_or("no such time")?,
//!         ack_every: 0,
//!     };
//!     end.modify_qp(pairs[this], Modify::ReadyToReceive(receive))?;
//!     let timeout = Duration::from_millis(500);
//!     let send = ReadyToSend { psn: 0, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 4 };
//!     end.modify_qp(pairs[this], Modify::ReadyToSend(send))?;
//! }
//!
//! let [near, far] = &mut ends;
//! far.watch_mr(&regions[1], true)?;
//! far.post_recv(pairs[3], &[RecvWr { id: 7, elements: &[] }]).map_err(|(_, error)| error)?;
//! far.arm_cq(queues[1], true)?;
//!
//! // One completion for the group: that of its last request.
//! let from = [Element { address: 0, len: 100_000, lkey: regions[0].lkey }];
//! let to = |address| Remote { address, rkey: regions[1].rkey };
//! let write = |id| SendWr::new(id, Operation::Write(to(id * 100_000)), Data::Elements(&from));
//! let group = [0, 1, 2, 3].map(|id| SendWr { signalled: id == 3, ..write(id) });
//! near.post_send(pairs[0], &group).map_err(|(_, error)| error)?;
//! let urgent = SendWr::new(9, Operation::WriteImm(to(500_000), 0xCAFE), Data::Inline(b"now"));
//! near.post_send(pairs[1], &[SendWr { solicited: true, ..urgent }]).map_err(|(_, error)| error)?;
//!
//! let (mut done, mut event) = (Vec::new(), None);
//! while done.len() < 2 || event.is_none() {
//!     let mut completions = [Completion::default(); 8];
//!     let count = near.poll_cq(queues[0], &mut completions)?;
//!     done.extend(completions[..count].iter().map(|completion| completion.id));
//!     event = event.or(far.wait(Duration::ZERO)?);
//! }
//! // The urgent one has overtaken the group.
//! assert_eq!((done, event), (vec![9, 3], Some(queues[1])));
//! let mut received = [Completion::default()];
//! assert_eq!(far.poll_cq(queues[1], &mut received)?, 1);
//! assert_eq!((received[0].id, received[0].imm), (7, Some(0xCAFE)));
//! let notices = std::iter::from_fn(|| far.next_access()).filter(|notice| notice.qp == pairs[2].0);
//! assert_eq!(notices.map(|notice| notice.address).collect::<Vec<_>>(), [0, 100_000, 200_000, 300_000]);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
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
