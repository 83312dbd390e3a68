//! Exported memory of a provider: the resources of a target behind its control connections.

use super::budget::{MemoryBudget, Reservation};
use super::conversation::{Host, SessionId};
use super::endpoint::{Endpoint, EndpointCounters};
use super::message::{
    Accept, Bits24, Cause, Kind, MAX_LINKS, MAX_RD_ATOMIC, MAX_RECEIVES, MAX_REGIONS, Name, Offer, PathMtu, Refusal,
    RegionInfo, RegionKey, Regions, Rights, RoleAssignment, Statistics, VERSION, Welcome,
};
use crate::api::{Cq, Modify, Mtu, Provider, Qp, QpConfig, QpState, QpType, ReadyToReceive, ReadyToSend, VerbsError};
use crate::random::fresh_q_key;
use crate::spacefibre::LinksStatus;
use rustix::fd::OwnedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region, RegistrationCounters};
use shotline_wire::aeth::RnrTimer;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Exported memory with its name.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name.
    pub name: Name,
    /// Memory region.
    pub region: Arc<Region>,
    /// Exported bytes, from the start of the region.
    pub bytes: u64,
    /// Access rights of initiators.
    pub rights: Access,
}

/// Returns the total number of peers' one-sided operations.
pub fn operations(usage: &RegistrationCounters) -> u64 {
    usage.writes + usage.reads + usage.atomics
}

/// Adds usage counters.
pub fn add_usage(sum: &mut RegistrationCounters, other: &RegistrationCounters) {
    let RegistrationCounters { writes, bytes_in, reads, bytes_out, atomics } = *other;
    sum.writes += writes;
    sum.bytes_in += bytes_in;
    sum.reads += reads;
    sum.bytes_out += bytes_out;
    sum.atomics += atomics;
}

/// Connected initiator: its protection domain, keys and queue pairs.
#[derive(Debug)]
pub struct Initiator {
    /// IP address; `None`: on this machine, not by IP.
    pub peer: Option<IpAddr>,
    pd: Pd,
    /// One registration per export, so that no two initiators have the same keys.
    keys: Vec<Mr>,
    pairs: Vec<Pair>,
    /// Counters of its destroyed queue pairs.
    past_counters: EndpointCounters,
    /// Reserved memory of its keys.
    _reservation: Reservation,
}

#[derive(Debug)]
struct Pair {
    qp: Qp,
    cq: Cq,
    service: QpType,
    /// Number of the initiator's queue pair; none for datagrams.
    peer: Option<u32>,
    _reservation: Reservation,
}

impl Initiator {
    /// Returns the number of its queue pairs.
    pub fn queue_pairs(&self) -> usize {
        self.pairs.len()
    }
}

/// State of an initiator's queue pair.
#[derive(Clone, Debug)]
pub struct QueuePairState {
    /// Its number.
    pub number: u32,
    /// Its service.
    pub service: QpType,
    /// Number of the initiator's queue pair that it is connected with; none for datagrams.
    pub peer: Option<u32>,
    /// Its state; none if the provider cannot tell.
    pub state: Option<QpState>,
    /// Its counters.
    pub counters: EndpointCounters,
}

/// Handles of an initiator's queue pair, for code that posts to it.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedQp {
    /// Protection domain.
    pub pd: Pd,
    /// Queue pair.
    pub qp: Qp,
    /// Completion queue of this queue pair.
    pub cq: Cq,
}

/// Regions of a provider, exported to initiators.
///
/// Each initiator has its own protection domain and registrations, so that its keys are random, valid for its queue
/// pairs only, and revoked when it disconnects (ReDMArk's mitigations M2, M4 and M5).
#[derive(Debug)]
pub struct Exports<P> {
    provider: P,
    exports: Vec<Export>,
    initiators: HashMap<SessionId, Initiator>,
    /// Usage of each export by initiators that have disconnected.
    past_usage: Vec<RegistrationCounters>,
    /// Counters of the queue pairs of these initiators.
    past_counters: EndpointCounters,
    /// Maximum queue pairs of an initiator.
    pub max_queue_pairs: u32,
    /// Strict handling of invalid requests ([`QpConfig::strict`]).
    pub strict: bool,
    /// Accept any UDP port and any IPv4 identification of an initiator ([`QpConfig::accept_any_source_port`]).
    pub accept_any_source_port: bool,
    /// Maximum path MTU.
    pub mtu: Mtu,
    /// Limit of the memory that initiators make it allocate.
    pub budget: MemoryBudget,
}

/// Completion queue depth of a queue pair that posts nothing.
const IDLE_DEPTH: u32 = 2;
/// Acknowledgement timeout of a target's queue pairs.
const TIMEOUT: Duration = Duration::from_millis(67);
/// Inline bytes of a work request.
const MAX_INLINE: u32 = 64;

/// Upper bounds of the memory in a provider's tables, in bytes: per registration, per queue pair, and per send work
/// request (with inline data), receive and completion.
const KEY_BYTES: u64 = 256;
const PAIR_BYTES: u64 = 16 << 10;
const SEND_BYTES: u64 = 256 + MAX_INLINE as u64;
const RECEIVE_BYTES: u64 = 128;
const COMPLETION_BYTES: u64 = 128;

/// Returns the bytes of the requested queue pair and its queues. The size of a send queue is a power of two.
fn pair_bytes(offer: &Offer) -> u64 {
    let sends = u64::from(offer.sends).next_power_of_two();
    let queues = sends * SEND_BYTES + u64::from(offer.receives.count) * RECEIVE_BYTES;
    PAIR_BYTES + queues + u64::from(cq_depth(offer)) * COMPLETION_BYTES
}

fn cq_depth(offer: &Offer) -> u32 {
    (u32::from(offer.receives.count) + u32::from(offer.sends)).max(IDLE_DEPTH)
}

fn failed(error: VerbsError) -> Refusal {
    Refusal::new(Cause::Failed, error.to_string())
}

impl<P: Endpoint> Exports<P> {
    /// Creates a target without exports.
    pub fn new(provider: P) -> Self {
        Self {
            provider,
            exports: Vec::new(),
            initiators: HashMap::new(),
            past_usage: Vec::new(),
            past_counters: EndpointCounters::default(),
            max_queue_pairs: 1024,
            strict: false,
            accept_any_source_port: false,
            mtu: Mtu::MAX,
            budget: MemoryBudget::default(),
        }
    }

    /// Exports a region to initiators that connect from now on.
    ///
    /// # Errors
    /// [`Cause::Limit`] if there are [`MAX_REGIONS`] regions, [`Cause::Unsupported`] if one has this name.
    pub fn export(&mut self, export: Export) -> Result<(), Refusal> {
        if self.exports.len() == MAX_REGIONS {
            return Err(Refusal::new(Cause::Limit, format!("expected at most {MAX_REGIONS} regions, found more")));
        }
        if self.exports.iter().any(|other| other.name == export.name) {
            return Err(Refusal::new(
                Cause::Unsupported,
                format!("a region named {} is already exported", export.name),
            ));
        }
        self.exports.push(export);
        self.past_usage.push(RegistrationCounters::default());
        Ok(())
    }

    /// Returns the provider.
    pub fn provider(&self) -> &P {
        &self.provider
    }
    /// Returns the provider, to drive it and to post to its queue pairs. Queue pairs, completion queues and
    /// registrations that the exports created must not be destroyed through it.
    pub fn provider_mut(&mut self) -> &mut P {
        &mut self.provider
    }
    /// Returns the exports.
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }
    /// Returns the connected initiators, in no particular order.
    pub fn initiators(&self) -> impl Iterator<Item = (SessionId, &Initiator)> {
        self.initiators.iter().map(|(session, initiator)| (*session, initiator))
    }

    /// Returns the usage of each export by an initiator, if the provider counts it.
    pub fn usage(&self, initiator: &Initiator) -> Option<Vec<RegistrationCounters>> {
        initiator.keys.iter().map(|mr| self.provider.mr_usage(mr).ok()).collect()
    }
    /// Returns the usage of each export by all initiators since the start, disconnected ones included, if the provider
    /// counts it: a target whose CPU is not involved cannot.
    pub fn total_usage(&self) -> Option<Vec<RegistrationCounters>> {
        if self.provider.capabilities().target_cpu_is_idle {
            return None;
        }
        let mut total = self.past_usage.clone();
        for initiator in self.initiators.values() {
            total.iter_mut().zip(self.usage(initiator)?).for_each(|(sum, one)| add_usage(sum, &one));
        }
        Some(total)
    }
    /// Returns the queue pairs of an initiator.
    pub fn queue_pairs(&self, initiator: &Initiator) -> impl Iterator<Item = QueuePairState> {
        initiator.pairs.iter().map(|pair| QueuePairState {
            number: pair.qp.0,
            service: pair.service,
            peer: pair.peer,
            state: self.provider.qp_state(pair.qp).ok(),
            counters: self.provider.counters_of(pair.qp),
        })
    }
    /// Returns the counters of an initiator's queue pairs.
    pub fn initiator_counters(&self, initiator: &Initiator) -> EndpointCounters {
        let mut sum = initiator.past_counters.clone();
        initiator.pairs.iter().for_each(|pair| sum.add(&self.provider.counters_of(pair.qp)));
        sum
    }
    /// Returns the counters of all queue pairs since the start.
    pub fn total_counters(&self) -> EndpointCounters {
        let mut sum = self.past_counters.clone();
        self.initiators.values().for_each(|initiator| sum.add(&self.initiator_counters(initiator)));
        sum
    }
    /// Returns an initiator's registrations, in the order of the exports.
    pub fn registrations(&self, session: SessionId) -> &[Mr] {
        self.initiators.get(&session).map_or(&[], |initiator| &initiator.keys)
    }
    /// Returns the handles of an initiator's queue pair.
    pub fn connected(&self, session: SessionId, qp: u32) -> Option<ConnectedQp> {
        let initiator = self.initiators.get(&session)?;
        let pair = initiator.pairs.iter().find(|pair| pair.qp.0 == qp)?;
        Some(ConnectedQp { pd: initiator.pd, qp: pair.qp, cq: pair.cq })
    }

    fn mtu(&self) -> Mtu {
        self.mtu.min(self.provider.mtu())
    }

    fn infos(&self) -> impl Iterator<Item = RegionInfo> {
        let info = |export: &Export| RegionInfo {
            name: export.name.clone(),
            bytes: export.bytes,
            rights: Rights(export.rights),
        };
        self.exports.iter().map(info)
    }

    /// Creates the protection domain and the keys of an initiator, unless it has them.
    fn admit(&mut self, session: SessionId, peer: Option<IpAddr>) -> Result<(), Refusal> {
        if self.initiators.contains_key(&session) {
            return Ok(());
        }
        let reservation =
            self.budget.reserve(session, (self.exports.len() as u64).saturating_mul(KEY_BYTES), "keys")?;
        let pd = self.provider.alloc_pd().map_err(failed)?;
        let mut keys = Vec::with_capacity(self.exports.len());
        for export in &self.exports {
            let mr = self.provider.reg_mr(pd, &export.region, 0, export.bytes, export.rights, Addressing::ZeroBased);
            match mr {
                Ok(mr) => keys.push(mr),
                Err(error) => {
                    keys.iter().for_each(|mr| drop(self.provider.dereg_mr(mr)));
                    let _ = self.provider.dealloc_pd(pd);
                    return Err(failed(error));
                }
            }
        }
        let (pairs, past_counters) = (Vec::new(), EndpointCounters::default());
        self.initiators.insert(session, Initiator { peer, pd, keys, pairs, past_counters, _reservation: reservation });
        Ok(())
    }

    /// Connects a queue pair for an initiator, as [`Host::connect`] does, with the given initial PSN.
    ///
    /// # Errors
    /// See [`Host::connect`].
    pub fn connect_from(
        &mut self,
        session: SessionId,
        peer: Option<IpAddr>,
        offer: &Offer,
        psn: Bits24,
    ) -> Result<Accept, Refusal> {
        let capabilities = self.provider.capabilities();
        let (is_supported, needs_peer) = match offer.kind {
            Kind::Rc => (capabilities.rc, true),
            Kind::Uc => (capabilities.uc, true),
            Kind::Ud => (capabilities.ud, false),
        };
        if !is_supported {
            return Err(Refusal::new(
                Cause::Unsupported,
                format!("{} does not support {}", capabilities.name, QpType::from(offer.kind)),
            ));
        }
        if needs_peer && self.provider.address().is_some() && offer.address.is_none() {
            return Err(Refusal::new(Cause::Unsupported, "a connected queue pair needs the initiator's address"));
        }
        if offer.sends > MAX_RECEIVES {
            let words = format!("expected a send queue depth of at most {MAX_RECEIVES}, found {}", offer.sends);
            return Err(Refusal::new(Cause::Limit, words));
        }
        self.admit(session, peer)?;
        let initiator = &self.initiators[&session];
        if initiator.pairs.len() >= self.max_queue_pairs as usize {
            let words = format!("an initiator can have at most {} queue pairs", self.max_queue_pairs);
            return Err(Refusal::new(Cause::Limit, words));
        }
        let q_key = fresh_q_key().map_err(|_| no_random())?;
        let pd = initiator.pd;
        let reservation = self.budget.reserve(session, pair_bytes(offer), "a queue pair and its queues")?;
        let pair = self.create_pair(pd, offer, psn, q_key, reservation).map_err(failed)?;
        let number = Bits24::new(pair.qp.0)
            .ok_or_else(|| Refusal::new(Cause::Failed, "the queue pair number has more than 24 bits"));
        let infos: Vec<_> = self.infos().collect();
        let (address, max_mtu) = (self.provider.address(), self.mtu());
        let Some(initiator) = self.initiators.get_mut(&session) else {
            return Err(Refusal::new(Cause::Unknown, "the session has ended"));
        };
        initiator.pairs.push(pair);
        let key = |(region, mr): (RegionInfo, &Mr)| RegionKey { region, address: mr.address, rkey: mr.rkey };
        Ok(Accept {
            address,
            qp: number?,
            psn,
            mtu: PathMtu(offer.mtu.0.min(max_mtu)),
            max_rd_atomic: offer.max_rd_atomic.min(MAX_RD_ATOMIC),
            q_key,
            keys: infos.into_iter().zip(&initiator.keys).map(key).collect(),
        })
    }

    fn create_pair(
        &mut self,
        pd: Pd,
        offer: &Offer,
        psn: Bits24,
        q_key: u32,
        _reservation: Reservation,
    ) -> Result<Pair, VerbsError> {
        let max_mtu = self.mtu();
        let provider = &mut self.provider;
        let (receives, sends) = (u32::from(offer.receives.count), u32::from(offer.sends));
        let cq = provider.create_cq(cq_depth(offer))?;
        let config = QpConfig {
            max_send_wr: sends.max(1),
            max_recv_wr: receives.max(1),
            max_sge: 1,
            max_inline: if sends > 0 { MAX_INLINE } else { 0 },
            service_level: offer.service_level,
            strict: self.strict,
            accept_any_source_port: self.accept_any_source_port,
            ..QpConfig::new(offer.kind.into(), pd, cq, cq)
        };
        let qp = match provider.create_qp(&config) {
            Ok(qp) => qp,
            Err(error) => {
                let _ = provider.destroy_cq(cq);
                return Err(error);
            }
        };
        let rights = self.exports.iter().fold(Access::NONE, |all, export| all | export.rights);
        let attributes = PeerAttributes {
            peer: (offer.kind != Kind::Ud).then_some((offer.address.unwrap_or(NOWHERE), offer.qp.get())),
            mtu: offer.mtu.0.min(max_mtu),
            psn_in: offer.psn,
            psn_out: psn,
            rd_atomic: (offer.max_rd_atomic.min(MAX_RD_ATOMIC), offer.max_dest_rd_atomic.min(MAX_RD_ATOMIC)),
            timeout: TIMEOUT,
            retry_cnt: 7,
        };
        if let Err(error) = bring_up(provider, qp, rights, q_key, &attributes) {
            let _ = provider.destroy_qp(qp);
            let _ = provider.destroy_cq(cq);
            return Err(error);
        }
        let peer = attributes.peer.map(|(_, number)| number);
        Ok(Pair { qp, cq, service: offer.kind.into(), peer, _reservation })
    }

    fn destroy_pair(provider: &mut P, pair: &Pair) -> EndpointCounters {
        let counters = provider.counters_of(pair.qp);
        // These cannot fail: both objects exist, and nothing else uses them.
        let _ = provider.destroy_qp(pair.qp);
        let _ = provider.destroy_cq(pair.cq);
        counters
    }
}

fn no_random() -> Refusal {
    Refusal::new(Cause::Failed, "the operating system's random source cannot be read")
}

/// Placeholder address of a peer that is not reached by IP.
pub(super) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Attributes of the connection to the peer's queue pair.
pub(super) struct PeerAttributes {
    pub(super) peer: Option<(SocketAddr, u32)>,
    pub(super) mtu: Mtu,
    pub(super) psn_in: Bits24,
    pub(super) psn_out: Bits24,
    /// Maximum incoming and outgoing READs and atomic operations.
    pub(super) rd_atomic: (u8, u8),
    pub(super) timeout: Duration,
    pub(super) retry_cnt: u8,
}

/// Changes the state of a queue pair from `Reset` to `ReadyToSend`.
pub(super) fn bring_up(
    provider: &mut (impl Provider + ?Sized),
    qp: Qp,
    access: Access,
    q_key: u32,
    attributes: &PeerAttributes,
) -> Result<(), VerbsError> {
    let min_rnr_timer = RnrTimer::from_code(1).ok_or(VerbsError::NoSuch("RNR timer"))?; // 10 us
    let receive = ReadyToReceive {
        peer: attributes.peer,
        mtu: attributes.mtu,
        psn: attributes.psn_in.get(),
        max_dest_rd_atomic: attributes.rd_atomic.0,
        min_rnr_timer,
        ack_every: 0,
    };
    let send = ReadyToSend {
        psn: attributes.psn_out.get(),
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_cnt,
        rnr_retry: 7,
        max_rd_atomic: attributes.rd_atomic.1,
    };
    provider.modify_qp(qp, Modify::Init { access, q_key })?;
    provider.modify_qp(qp, Modify::ReadyToReceive(receive))?;
    provider.modify_qp(qp, Modify::ReadyToSend(send))
}

impl<P: Endpoint> Host for Exports<P> {
    fn welcome(&mut self) -> Welcome {
        let capabilities = self.provider.capabilities();
        Welcome {
            version: VERSION,
            provider: capabilities.name.into(),
            max_queue_pairs: self.max_queue_pairs,
            max_operation: capabilities.max_operation,
            supports_roles: false,
            link: self.provider.link_parameters(),
        }
    }

    fn regions(&mut self) -> Regions {
        Regions { regions: self.infos().collect() }
    }

    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        let psn = Bits24::random().ok_or_else(no_random)?;
        self.connect_from(session, peer, offer, psn)
    }

    fn link(&mut self, _: SessionId, _: OwnedFd) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unsupported, "this target does not support shared memory"))
    }

    fn start_role(&mut self, _: SessionId, _: &RoleAssignment) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unsupported, "this target serves memory only and supports no roles in measurements"))
    }

    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        let unknown = || Refusal::new(Cause::Unknown, format!("this connection has no queue pair {qp}"));
        let initiator = self.initiators.get_mut(&session).ok_or_else(unknown)?;
        let index = initiator.pairs.iter().position(|pair| pair.qp.0 == qp).ok_or_else(unknown)?;
        let pair = initiator.pairs.swap_remove(index);
        initiator.past_counters.add(&Self::destroy_pair(&mut self.provider, &pair));
        Ok(())
    }

    fn statistics(&mut self, session: SessionId) -> Statistics {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let counters =
            self.initiators.get(&session).map(|initiator| self.initiator_counters(initiator)).unwrap_or_default();
        Statistics {
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9,
            packets_in: counters.packets_in,
            packets_out: counters.packets_out,
            retransmitted: counters.retransmitted,
            timeouts: counters.timeouts,
            refused: counters.drops.values().sum(),
            ..Statistics::default()
        }
    }

    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        let name = self.provider.capabilities().name;
        let none = || Refusal::new(Cause::Unsupported, format!("{name} has no SpaceFibre links, only spacefibre has"));
        self.provider.links(first as usize, MAX_LINKS).ok_or_else(none)
    }

    fn session_ended(&mut self, session: SessionId) {
        let Some(mut initiator) = self.initiators.remove(&session) else { return };
        for pair in std::mem::take(&mut initiator.pairs) {
            initiator.past_counters.add(&Self::destroy_pair(&mut self.provider, &pair));
        }
        self.past_counters.add(&initiator.past_counters);
        for (index, mr) in initiator.keys.iter().enumerate() {
            if let Ok(usage) = self.provider.mr_usage(mr) {
                add_usage(&mut self.past_usage[index], &usage);
            }
            let _ = self.provider.dereg_mr(mr);
        }
        // The protection domain is unused now; it is deallocated because a target may serve many initiators over time.
        let _ = self.provider.dealloc_pd(initiator.pd);
    }
}
