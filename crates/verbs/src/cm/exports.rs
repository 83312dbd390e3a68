//! A provider's memory, exported: what a target-only endpoint is, behind its control connections.

use super::account::{Account, Loan};
use super::conversation::{Host, SessionId};
use super::endpoint::{Endpoint, Tally};
use super::message::{
    Accept, Bits24, Cause, Kind, MOST_RD_ATOMIC, MOST_RECEIVES, MOST_REGIONS, Name, Offer, PathMtu, Playing, Refusal,
    RegionInfo, RegionKey, Regions, Rights, Statistics, VERSION, Welcome,
};
use crate::api::{Cq, Modify, Mtu, Provider, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend, VerbsError};
use crate::random::fresh_q_key;
use rustix::fd::OwnedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region, Usage};
use shotline_wire::aeth::RnrTimer;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Memory under a name.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name.
    pub name: Name,
    /// The memory.
    pub region: Arc<Region>,
    /// How much of it, from its beginning.
    pub bytes: u64,
    /// What initiators may do with it.
    pub rights: Access,
}

/// All operations of peers.
pub fn operations(usage: &Usage) -> u64 {
    usage.writes + usage.reads + usage.atomics
}

fn add(sum: &mut Usage, other: &Usage) {
    let Usage { writes, bytes_in, reads, bytes_out, atomics } = *other;
    sum.writes += writes;
    sum.bytes_in += bytes_in;
    sum.reads += reads;
    sum.bytes_out += bytes_out;
    sum.atomics += atomics;
}

/// An initiator that is connected: its protection domain, its keys, its queue pairs.
#[derive(Debug)]
pub struct Initiator {
    /// Where it is; none: on this machine, not by IP.
    pub peer: Option<IpAddr>,
    pd: Pd,
    /// One registration for each export: keys that are its own.
    keys: Vec<Mr>,
    pairs: Vec<Pair>,
    /// Of queue pairs that it had.
    past: Tally,
    /// For its keys.
    _loan: Loan,
}

#[derive(Debug)]
struct Pair {
    qp: Qp,
    cq: Cq,
    _loan: Loan,
}

impl Initiator {
    /// How many queue pairs it has.
    pub fn queue_pairs(&self) -> usize {
        self.pairs.len()
    }
}

/// A queue pair of an initiator, for whoever posts to it.
#[derive(Clone, Copy, Debug)]
pub struct Connected {
    /// Its protection domain.
    pub pd: Pd,
    /// The queue pair.
    pub qp: Qp,
    /// Its own completion queue.
    pub cq: Cq,
}

/// Regions of a provider, exported to initiators.
///
/// Each initiator gets a protection domain and registrations of its own, so that its keys are random, work on its queue
/// pairs only, and end with its connection (ReDMArk's mitigations M2, M4 and M5).
#[derive(Debug)]
pub struct Exports<P> {
    provider: P,
    exports: Vec<Export>,
    initiators: HashMap<SessionId, Initiator>,
    /// What initiators that have left did with each export.
    past: Vec<Usage>,
    past_tally: Tally,
    /// Most queue pairs of an initiator.
    pub max_queue_pairs: u32,
    /// The InfiniBand rules for what arrives wrong ([`QpConfig::strict`]).
    pub strict: bool,
    /// Any UDP port of an initiator's, any IPv4 identification ([`QpConfig::lax`]).
    pub lax: bool,
    /// The longest payload that the path carries.
    pub mtu: Mtu,
    /// The memory that initiators make it take.
    pub account: Account,
}

/// Completions of a queue pair that posts nothing.
const IDLE_DEPTH: u32 = 2;
const TIMEOUT: Duration = Duration::from_millis(67);
/// Inline data of a work request.
const MOST_INLINE: u32 = 64;

/// What a provider's tables take at most: for a registration, for a queue pair, for each of its work requests (with
/// inline data), receives and completions.
const KEY_BYTES: u64 = 256;
const PAIR_BYTES: u64 = 16 << 10;
const SEND_BYTES: u64 = 256 + MOST_INLINE as u64;
const RECEIVE_BYTES: u64 = 128;
const COMPLETION_BYTES: u64 = 128;

/// Bytes of the queue pair that is offered a connection, and of its queues. A send queue has a power of two of places.
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
    /// Of nothing yet.
    pub fn new(provider: P) -> Self {
        Self {
            provider,
            exports: Vec::new(),
            initiators: HashMap::new(),
            past: Vec::new(),
            past_tally: Tally::default(),
            max_queue_pairs: 1024,
            strict: false,
            lax: false,
            mtu: Mtu::B4096,
            account: Account::default(),
        }
    }

    /// Exports a region, for initiators that come from now on.
    pub fn export(&mut self, export: Export) -> Result<(), Refusal> {
        if self.exports.len() == MOST_REGIONS {
            return Err(Refusal::new(Cause::Limit, format!("at most {MOST_REGIONS} regions")));
        }
        if self.exports.iter().any(|other| other.name == export.name) {
            return Err(Refusal::new(Cause::Unsupported, format!("there are two regions of the name {}", export.name)));
        }
        self.exports.push(export);
        self.past.push(Usage::default());
        Ok(())
    }

    /// The provider.
    pub fn provider(&self) -> &P {
        &self.provider
    }
    /// The provider, to drive it and to post to its queue pairs; what is made here is destroyed here.
    pub fn provider_mut(&mut self) -> &mut P {
        &mut self.provider
    }
    /// What is exported.
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }
    /// Who is connected, in no order.
    pub fn initiators(&self) -> impl Iterator<Item = (SessionId, &Initiator)> {
        self.initiators.iter().map(|(session, initiator)| (*session, initiator))
    }

    /// What an initiator did with each export, if the provider knows.
    pub fn usage(&self, initiator: &Initiator) -> Option<Vec<Usage>> {
        initiator.keys.iter().map(|mr| self.provider.mr_usage(mr).ok()).collect()
    }
    /// What all initiators did with each export since the beginning, those that have left included, if the provider
    /// knows: a target that sleeps does not.
    pub fn total_usage(&self) -> Option<Vec<Usage>> {
        if self.provider.capabilities().target_sleeps {
            return None;
        }
        let mut total = self.past.clone();
        for initiator in self.initiators.values() {
            total.iter_mut().zip(self.usage(initiator)?).for_each(|(sum, one)| add(sum, &one));
        }
        Some(total)
    }
    /// What happened to an initiator's queue pairs.
    pub fn tally(&self, initiator: &Initiator) -> Tally {
        let mut sum = initiator.past.clone();
        initiator.pairs.iter().for_each(|pair| sum.add(&self.provider.tally(pair.qp)));
        sum
    }
    /// What happened to all queue pairs since the beginning.
    pub fn total_tally(&self) -> Tally {
        let mut sum = self.past_tally.clone();
        self.initiators.values().for_each(|initiator| sum.add(&self.tally(initiator)));
        sum
    }
    /// An initiator's own registrations, in the order of the exports.
    pub fn keys(&self, session: SessionId) -> &[Mr] {
        self.initiators.get(&session).map_or(&[], |initiator| &initiator.keys)
    }
    /// A queue pair of an initiator.
    pub fn connected(&self, session: SessionId, qp: u32) -> Option<Connected> {
        let initiator = self.initiators.get(&session)?;
        let pair = initiator.pairs.iter().find(|pair| pair.qp.0 == qp)?;
        Some(Connected { pd: initiator.pd, qp: pair.qp, cq: pair.cq })
    }

    fn mtu(&self) -> Mtu {
        self.mtu.min(self.provider.mtu())
    }

    fn infos(&self) -> impl Iterator<Item = RegionInfo> {
        let info = |export: &Export| RegionInfo {
            name: export.name.clone(),
            bytes: export.bytes,
            rights: Rights(export.rights.and(REMOTE)),
        };
        self.exports.iter().map(info)
    }

    /// Makes an initiator known, with keys of its own.
    fn admit(&mut self, session: SessionId, peer: Option<IpAddr>) -> Result<(), Refusal> {
        if self.initiators.contains_key(&session) {
            return Ok(());
        }
        let loan = self.account.lend(session, (self.exports.len() as u64).saturating_mul(KEY_BYTES), "keys")?;
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
        let (pairs, past) = (Vec::new(), Tally::default());
        self.initiators.insert(session, Initiator { peer, pd, keys, pairs, past, _loan: loan });
        Ok(())
    }

    /// Connects a queue pair for an initiator, as [`Host::connect`] does, that begins to send with this sequence number.
    pub fn connect_from(
        &mut self,
        session: SessionId,
        peer: Option<IpAddr>,
        offer: &Offer,
        psn: Bits24,
    ) -> Result<Accept, Refusal> {
        let can = self.provider.capabilities();
        let (has, needs_peer) = match offer.kind {
            Kind::Rc => (can.rc, true),
            Kind::Uc => (can.uc, true),
            Kind::Ud => (can.ud, false),
        };
        if !has {
            return Err(Refusal::new(
                Cause::Unsupported,
                format!("{} has no {:?}", can.name, QpType::from(offer.kind)),
            ));
        }
        if needs_peer && self.provider.address().is_some() && offer.address.is_none() {
            return Err(Refusal::new(Cause::Unsupported, "a connected queue pair needs the peer's address"));
        }
        if offer.sends > MOST_RECEIVES {
            let words = format!("expected room for at most {MOST_RECEIVES} sends, found {}", offer.sends);
            return Err(Refusal::new(Cause::Limit, words));
        }
        self.admit(session, peer)?;
        let initiator = &self.initiators[&session];
        if initiator.pairs.len() >= self.max_queue_pairs as usize {
            let words = format!("{} queue pairs are all that one initiator can have here", self.max_queue_pairs);
            return Err(Refusal::new(Cause::Limit, words));
        }
        let q_key = fresh_q_key().map_err(|_| no_random())?;
        let pd = initiator.pd;
        let loan = self.account.lend(session, pair_bytes(offer), "a queue pair and its queues")?;
        let pair = self.make_pair(pd, offer, psn, q_key, loan).map_err(failed)?;
        let number = Bits24::new(pair.qp.0).ok_or_else(|| Refusal::new(Cause::Failed, "no number of 24 bits"));
        let infos: Vec<_> = self.infos().collect();
        let (address, most) = (self.provider.address(), self.mtu());
        let Some(initiator) = self.initiators.get_mut(&session) else {
            return Err(Refusal::new(Cause::Unknown, "the session has ended"));
        };
        initiator.pairs.push(pair);
        let key = |(region, mr): (RegionInfo, &Mr)| RegionKey { region, address: mr.address, rkey: mr.rkey };
        Ok(Accept {
            address,
            qp: number?,
            psn,
            mtu: PathMtu(offer.mtu.0.min(most)),
            max_rd_atomic: offer.max_rd_atomic.min(MOST_RD_ATOMIC),
            q_key,
            keys: infos.into_iter().zip(&initiator.keys).map(key).collect(),
        })
    }

    fn make_pair(&mut self, pd: Pd, offer: &Offer, psn: Bits24, q_key: u32, _loan: Loan) -> Result<Pair, VerbsError> {
        let most = self.mtu();
        let provider = &mut self.provider;
        let (receives, sends) = (u32::from(offer.receives.count), u32::from(offer.sends));
        let cq = provider.create_cq(cq_depth(offer))?;
        let config = QpConfig {
            max_send_wr: sends.max(1),
            max_recv_wr: receives.max(1),
            max_sge: 1,
            max_inline: if sends > 0 { MOST_INLINE } else { 0 },
            strict: self.strict,
            lax: self.lax,
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
        let to = To {
            peer: (offer.kind != Kind::Ud).then_some((offer.address.unwrap_or(NOWHERE), offer.qp.get())),
            mtu: offer.mtu.0.min(most),
            psn_in: offer.psn,
            psn_out: psn,
            rd_atomic: (offer.max_rd_atomic.min(MOST_RD_ATOMIC), offer.max_dest_rd_atomic.min(MOST_RD_ATOMIC)),
            timeout: TIMEOUT,
            retries: 7,
        };
        if let Err(error) = bring_up(provider, qp, rights, q_key, &to) {
            let _ = provider.destroy_qp(qp);
            let _ = provider.destroy_cq(cq);
            return Err(error);
        }
        Ok(Pair { qp, cq, _loan })
    }

    fn unmake(provider: &mut P, pair: &Pair) -> Tally {
        let tally = provider.tally(pair.qp);
        // Both are there, and nobody else uses them.
        let _ = provider.destroy_qp(pair.qp);
        let _ = provider.destroy_cq(pair.cq);
        tally
    }
}

const REMOTE: Access = Access::ALL;

fn no_random() -> Refusal {
    Refusal::new(Cause::Failed, "the operating system's random source cannot be read")
}

/// The address of a peer that is reached by other means.
pub(super) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// What a queue pair needs to know of the other one.
pub(super) struct To {
    pub(super) peer: Option<(SocketAddr, u32)>,
    pub(super) mtu: Mtu,
    pub(super) psn_in: Bits24,
    pub(super) psn_out: Bits24,
    /// Incoming and outgoing READs and atomic operations at once.
    pub(super) rd_atomic: (u8, u8),
    pub(super) timeout: Duration,
    pub(super) retries: u8,
}

/// Takes a queue pair from `Reset` to `ReadyToSend`.
pub(super) fn bring_up(
    provider: &mut impl Provider,
    qp: Qp,
    access: Access,
    q_key: u32,
    to: &To,
) -> Result<(), VerbsError> {
    let min_rnr_timer = RnrTimer::from_code(1).ok_or(VerbsError::NoSuch("RNR timer"))?; // 10 us
    let receive = ReadyToReceive {
        peer: to.peer,
        mtu: to.mtu,
        psn: to.psn_in.get(),
        max_dest_rd_atomic: to.rd_atomic.0,
        min_rnr_timer,
        ack_every: 0,
    };
    let send = ReadyToSend {
        psn: to.psn_out.get(),
        timeout: to.timeout,
        retries: to.retries,
        rnr_retries: 7,
        max_rd_atomic: to.rd_atomic.1,
    };
    provider.modify_qp(qp, Modify::Init { access, q_key })?;
    provider.modify_qp(qp, Modify::ReadyToReceive(receive))?;
    provider.modify_qp(qp, Modify::ReadyToSend(send))
}

impl<P: Endpoint> Host for Exports<P> {
    fn welcome(&mut self) -> Welcome {
        let can = self.provider.capabilities();
        Welcome {
            version: VERSION,
            provider: can.name.into(),
            max_queue_pairs: self.max_queue_pairs,
            max_operation: can.max_operation,
            plays: false,
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
        Err(Refusal::new(Cause::Unsupported, "this target is not reached by shared memory"))
    }

    fn play(&mut self, _: SessionId, _: &Playing) -> Result<(), Refusal> {
        Err(Refusal::new(Cause::Unsupported, "this target does not take part in measurements"))
    }

    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        let unknown = || Refusal::new(Cause::Unknown, format!("you have no queue pair {qp} here"));
        let initiator = self.initiators.get_mut(&session).ok_or_else(unknown)?;
        let place = initiator.pairs.iter().position(|pair| pair.qp.0 == qp).ok_or_else(unknown)?;
        let pair = initiator.pairs.swap_remove(place);
        initiator.past.add(&Self::unmake(&mut self.provider, &pair));
        Ok(())
    }

    fn statistics(&mut self, session: SessionId) -> Statistics {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let tally = self.initiators.get(&session).map(|initiator| self.tally(initiator)).unwrap_or_default();
        Statistics {
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 * 1e-9,
            packets_in: tally.packets_in,
            packets_out: tally.packets_out,
            retransmitted: tally.retransmitted,
            timeouts: tally.timeouts,
            refused: tally.refused.values().sum(),
            ..Statistics::default()
        }
    }

    fn left(&mut self, session: SessionId) {
        let Some(mut initiator) = self.initiators.remove(&session) else { return };
        for pair in std::mem::take(&mut initiator.pairs) {
            initiator.past.add(&Self::unmake(&mut self.provider, &pair));
        }
        self.past_tally.add(&initiator.past);
        for (place, mr) in initiator.keys.iter().enumerate() {
            if let Ok(usage) = self.provider.mr_usage(mr) {
                add(&mut self.past[place], &usage);
            }
            let _ = self.provider.dereg_mr(mr);
        }
        // Nothing uses it any more: a target may see many initiators come and go.
        let _ = self.provider.dealloc_pd(initiator.pd);
    }
}
