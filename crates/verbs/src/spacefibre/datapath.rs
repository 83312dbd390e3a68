//! [`Datapath`] of SpaceFibre links, one to each far end.

use super::counters::SpaceFibreCounters;
use super::link::Link;
use super::options::{LinkOptions, SEGMENT};
use super::selector::FORM;
use super::status::EndedLinks;
use super::time_slots::{next_start, time_slot};
use crate::api::{Capabilities, ControlSocket, Description, Flag, Reach, VerbsError};
use crate::endpoint::{CAPABILITIES, Core, Datapath};
use crate::engine::Nanos;
use crate::random;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::Regions;
use shotline_spacefibre::frames::{FrameConfig, FrameLink};
use shotline_spacefibre::link::MAX_VCS;
use shotline_transport::IoError;
use shotline_transport::carrier::Carrier;
use std::net::SocketAddr;
use std::time::Duration;

/// The provider's entry in the registry.
pub const DESCRIPTION: Description = Description {
    capabilities: Capabilities { name: "spacefibre", ..CAPABILITIES },
    form: FORM,
    summary: "RDMA over a SpaceFibre link in software, carried by UDP or shared memory",
    reach: Reach::Network,
    needs_device: false,
    flags: &[Flag::Bind, Flag::Mtu],
    mtu: Some(SEGMENT),
    control: ControlSocket::Tcp,
};

/// The entry for links over shared memory: set up over a Unix socket, and without an address.
pub const SHM_DESCRIPTION: Description =
    Description { flags: &[Flag::Mtu], control: ControlSocket::Unix, ..DESCRIPTION };

/// Maximum number of far ends of an endpoint.
pub(super) const MAX_LINKS: usize = 16;

/// Opens carriers to far ends.
pub trait Connector {
    /// The carriers.
    type Carrier: Carrier;
    /// Opens the carrier to a far end.
    ///
    /// # Errors
    /// If the far end cannot be reached, or there is no carrier for another one.
    fn connect(&mut self, peer: SocketAddr) -> Result<Self::Carrier, VerbsError>;
    /// Closes a carrier that was opened, when the last queue pair of its link is reset or destroyed.
    fn disconnect(&mut self, carrier: Self::Carrier);
    /// Returns the address by which far ends name this end.
    fn address(&self) -> SocketAddr;
}

/// Connector of a carrier that is connected to its one far end already.
pub struct Connected<C> {
    carrier: Option<C>,
    address: SocketAddr,
}

impl<C> Connected<C> {
    /// Creates a connector; `address` is the one by which the far end names this end.
    pub fn new(carrier: C, address: SocketAddr) -> Self {
        Self { carrier: Some(carrier), address }
    }
}

impl<C: Carrier> Connector for Connected<C> {
    type Carrier = C;
    fn connect(&mut self, peer: SocketAddr) -> Result<C, VerbsError> {
        self.carrier.take().ok_or_else(|| {
            VerbsError::Invalid(format!(
                "this SpaceFibre link has another far end than {peer}: open an endpoint for it"
            ))
        })
    }
    fn disconnect(&mut self, carrier: C) {
        self.carrier = Some(carrier);
    }
    fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The links of an endpoint. Send queue `MAX_VCS * link + vc` has the packets of a virtual channel.
pub struct LinkDatapath<K: Connector> {
    pub(super) connector: K,
    pub(super) options: LinkOptions,
    /// The time-slot matters to a channel.
    has_time_slots: bool,
    pub(super) links: Vec<Option<Link<K::Carrier>>>,
    pub(super) counters: SpaceFibreCounters,
    pub(super) ended: EndedLinks,
    regions: Regions,
    /// Readable if the carrier of a link is.
    epoll: OwnedFd,
    /// First error of a link that was not reported yet: [`Datapath::receive`] reports it.
    failure: Option<IoError>,
}

impl<K: Connector> LinkDatapath<K> {
    /// Creates a datapath without links.
    pub(super) fn new(connector: K, options: LinkOptions, regions: Regions) -> Result<Self, VerbsError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("creating an epoll set", error))?;
        Ok(Self {
            connector,
            has_time_slots: options.has_time_slots(),
            options,
            links: Vec::new(),
            counters: SpaceFibreCounters::default(),
            ended: EndedLinks::default(),
            regions,
            epoll,
            failure: None,
        })
    }

    /// Opens a link and returns its index.
    fn open(&mut self, peer: SocketAddr) -> Result<usize, VerbsError> {
        let index = self.links.iter().position(Option::is_none).unwrap_or(self.links.len());
        if index == MAX_LINKS {
            return Err(VerbsError::Invalid(format!(
                "expected at most {MAX_LINKS} far ends, each with a SpaceFibre link, found {peer} as another one: \
                 disconnect one of them first, or use another endpoint"
            )));
        }
        let carrier = self.connector.connect(peer)?;
        let frames = match self.prepare(&carrier, index) {
            Ok(frames) => frames,
            Err(error) => {
                self.connector.disconnect(carrier);
                return Err(error);
            }
        };
        let queues = ((index * MAX_VCS) as u32, self.options.channels.len());
        let link = Link::new(carrier, frames, peer, queues, self.regions.clone());
        if index == self.links.len() {
            self.links.push(None);
        }
        self.links[index] = Some(link);
        Ok(index)
    }

    /// Creates the link with this index over a carrier, and waits for its datagrams from now on.
    fn prepare(&self, carrier: &K::Carrier, index: usize) -> Result<FrameLink, VerbsError> {
        let LinkOptions { lanes, scrambled, ref channels } = self.options;
        let (needed, found) = (FrameLink::datagram_bytes(lanes, 1), carrier.max_datagram());
        if found < needed {
            let text = format!("a frame of {lanes} lanes needs datagrams of {needed} bytes, the carrier has {found}");
            return Err(VerbsError::Invalid(text));
        }
        let config = FrameConfig { lanes, scrambled, seed: u64::from_ne_bytes(random::bytes()?) };
        let frames = FrameLink::new(config, channels).map_err(|error| VerbsError::Invalid(error.to_string()))?;
        epoll::add(&self.epoll, carrier.fd(), EventData::new_u64(index as u64), EventFlags::IN)
            .map_err(|error| failed("waiting for a carrier", error))?;
        Ok(frames)
    }

    /// Passes the present time-slot to the links.
    fn set_time_slot(&mut self, now: Nanos) {
        for link in self.links.iter_mut().flatten() {
            // It is one of the schedule's.
            let _ = link.frames.link().access().set_slot(time_slot(now));
        }
    }

    #[cfg(test)]
    pub(super) fn reset_links(&mut self, core: &mut Core) {
        self.links.iter_mut().flatten().for_each(|link| link.reset(core, &mut self.counters));
    }

    /// Calls `work` for each link. Returns `true` if it does for any of them. A link that fails does not disturb the others:
    /// its requests end by their timeouts. If all links fail, the first error is kept.
    fn any(
        &mut self,
        mut work: impl FnMut(&mut Link<K::Carrier>, &mut SpaceFibreCounters) -> Result<bool, IoError>,
    ) -> bool {
        let (mut any, mut some_work, mut failure) = (false, false, None);
        for link in self.links.iter_mut().flatten() {
            match work(link, &mut self.counters) {
                Ok(is_busy) => (any, some_work) = (any | is_busy, true),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        self.failure = self.failure.take().or(failure.filter(|_| !some_work));
        any
    }
}

fn failed(what: &str, error: rustix::io::Errno) -> VerbsError {
    IoError::System { what: what.into(), source: error.into(), hint: "" }.into()
}

impl<K: Connector> Datapath for LinkDatapath<K> {
    const DESCRIPTION: &'static Description = &DESCRIPTION;

    fn register(&mut self, regions: &Regions) {
        self.regions = regions.clone();
        self.links.iter_mut().flatten().for_each(|link| link.register(regions));
    }

    fn connect(&mut self, peer: SocketAddr, service_level: u8) -> Result<u32, VerbsError> {
        let count = self.options.channels.len();
        if usize::from(service_level) >= count {
            return Err(VerbsError::Invalid(format!(
                "expected a service level below {count}, the number of virtual channels, found {service_level}"
            )));
        }
        let known = self.links.iter().position(|link| link.as_ref().is_some_and(|link| link.peer == peer));
        let index = known.map_or_else(|| self.open(peer), Ok)?;
        if let Some(link) = &mut self.links[index] {
            link.users += 1;
        }
        Ok((index * MAX_VCS) as u32 + u32::from(service_level))
    }

    fn disconnect(&mut self, queue: u32) {
        let index = queue as usize / MAX_VCS;
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else { return };
        link.users -= 1;
        if link.users == 0
            && let Some(link) = self.links[index].take()
        {
            self.ended.add_link(link.frames.link_counters(), link.frames.counters());
            let _ = epoll::delete(&self.epoll, link.carrier.fd());
            self.connector.disconnect(link.end(&mut self.counters));
        }
    }

    fn transmit(&mut self, core: &mut Core) -> bool {
        if self.has_time_slots {
            self.set_time_slot(core.now());
        }
        self.any(|link, counters| link.transmit(core, counters))
    }

    fn receive(&mut self, core: &mut Core) -> Result<bool, IoError> {
        let any = self.any(|link, counters| link.receive(core, counters));
        self.failure.take().map_or(Ok(any), Err)
    }

    fn deadline(&self, now: Nanos) -> Option<Nanos> {
        let links = || self.links.iter().flatten();
        let waiting = |link: &Link<_>| {
            let (ready, channels) = (link.ready(), self.options.channels.iter().enumerate());
            channels.filter(move |(vc, _)| ready >> vc & 1 == 1).map(|(_, channel)| channel.qos.slots)
        };
        let slot = if self.has_time_slots { next_start(now, links().flat_map(waiting)) } else { None };
        links().filter_map(Link::deadline).chain(slot).min()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        if self.links.iter_mut().flatten().any(Link::prepare_sleep) {
            return Ok(());
        }
        let mut fds = [rustix::event::PollFd::new(&self.epoll, rustix::event::PollFlags::IN)];
        let time = rustix::time::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(source) => {
                Err(IoError::System { what: "waiting for a datagram".into(), source: source.into(), hint: "" })
            }
        }
    }
}
