//! A target with one endpoint: exported memory, and roles in measurements.

use super::report::{CmListenerCounters, InitiatorState, RegionState, State};
use super::traffic::{Budget, TrafficPeer};
use crate::Result as Outcome;
use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_accelerate::Accelerator;
use shotline_verbs::cm::message::{
    Accept, Cause, Offer, Refusal, Regions, RoleAssignment, Statistics, TargetRole, Welcome,
};
use shotline_verbs::cm::{Endpoint, EndpointCounters, Exports, Host, SessionId};
use shotline_verbs::spacefibre::LinksStatus;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What the loop of a target drives.
pub trait TargetHost: Host {
    /// Receives, answers, sends, and drives roles. Returns `true` if there was anything to do.
    fn progress(&mut self) -> Outcome<bool>;
    /// Returns `true` if memory must be polled, so that the loop must not sleep.
    fn must_poll(&self) -> bool;
    /// Arms the completion queues. Returns `true` if there is something to do already.
    fn prepare_sleep(&mut self) -> Outcome<bool>;
    /// Disconnects all initiators that did not use a control connection.
    fn close(&mut self) -> Outcome;
    /// Returns the file descriptors to sleep on.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    /// Returns the state of the target, with its queue pairs if `lists_pairs` is set: devices are asked for their states.
    fn state(&self, lists_pairs: bool) -> State;
}

/// Maximum number of queue pairs of an initiator that are listed.
const MAX_PAIRS: usize = 64;

/// A listener for initiators that do not use a control connection.
pub trait Listener<P> {
    /// Accepts initiators and serves them. Returns `true` if there was anything to do.
    fn progress(&mut self, exports: &mut Exports<P>) -> Outcome<bool>;
    /// Returns the counters of the listener.
    fn counters(&self) -> CmListenerCounters;
    /// Returns the counters of the listener's queue pair.
    fn qp_counters(&self, exports: &Exports<P>) -> EndpointCounters;
    /// Disconnects all of its initiators.
    fn close(&mut self, exports: &mut Exports<P>) -> Outcome;
}

/// One endpoint with its exports, and queue pairs with roles in measurements.
pub struct EndpointHost<P: Endpoint> {
    exports: Exports<P>,
    listener: Option<Box<dyn Listener<P>>>,
    traffic_peers: HashMap<SessionId, Vec<TrafficPeer>>,
    rounds: usize,
    /// Initiators may have messages received and roles assigned.
    supports_roles: bool,
    accelerator: Option<Arc<Accelerator>>,
}

impl<P: Endpoint> EndpointHost<P> {
    /// Serves these exports.
    pub fn new(exports: Exports<P>, supports_roles: bool) -> Self {
        let (listener, traffic_peers) = (None, HashMap::new());
        Self { exports, listener, traffic_peers, rounds: 0, supports_roles, accelerator: None }
    }

    /// Adds an accelerator, if there is one, whose commands initiators may give.
    pub fn with_accelerator(self, accelerator: Option<Arc<Accelerator>>) -> Self {
        Self { accelerator, ..self }
    }

    /// Adds a listener, if there is one.
    pub fn with_listener(self, listener: Option<Box<dyn Listener<P>>>) -> Self {
        Self { listener, ..self }
    }

    /// Drives the endpoint as [`TargetHost::progress`] does. Roles post no more than the budget allows.
    pub fn round(&mut self, budget: &mut Budget) -> Outcome<bool> {
        let provider = self.exports.provider_mut();
        let mut busy = provider.progress()?;
        while provider.next_event().is_some() {}
        self.rounds = self.rounds.wrapping_add(1);
        for traffic_peer in rotated(self.traffic_peers.values_mut().flatten(), self.rounds) {
            busy |= traffic_peer.progress(self.exports.provider_mut(), budget);
        }
        if let Some(listener) = &mut self.listener {
            busy |= listener.progress(&mut self.exports)?;
        }
        Ok(busy)
    }

    /// Returns the endpoint.
    pub fn provider(&self) -> &P {
        self.exports.provider()
    }
    /// Returns the endpoint, to drive it.
    pub fn provider_mut(&mut self) -> &mut P {
        self.exports.provider_mut()
    }

    fn remove_traffic(&mut self, session: SessionId, qp: Option<u32>) {
        let Some(traffic_peers) = self.traffic_peers.get_mut(&session) else { return };
        traffic_peers.retain(|traffic_peer| {
            let matches = qp.is_none_or(|qp| traffic_peer.qp() == qp);
            if matches {
                traffic_peer.deregister(self.exports.provider_mut());
            }
            !matches
        });
        if traffic_peers.is_empty() {
            self.traffic_peers.remove(&session);
        }
    }
}

/// Refuses the first command queue of an accelerator while others are connected: a neighbour of an earlier run that hangs
/// could write to the memory later.
pub fn check_alone(
    assignment: &RoleAssignment,
    accelerator: Option<&Arc<Accelerator>>,
    has_others: bool,
) -> Result<(), Refusal> {
    let is_first = accelerator.is_some_and(|accelerator| accelerator.is_free());
    if assignment.role != TargetRole::Commands || !is_first || !has_others {
        return Ok(());
    }
    let words =
        "another initiator is connected, which can write to the accelerator's memory: end it, or try again later";
    Err(Refusal::new(Cause::Limit, words))
}

/// Returns all items, starting with a different one in each round, because the first ones may use up the budget.
pub fn rotated<T>(all: impl Iterator<Item = T>, round: usize) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    let first = round.checked_rem(all.len()).unwrap_or(0);
    all.rotate_left(first);
    all
}

impl<P: Endpoint> TargetHost for EndpointHost<P> {
    fn progress(&mut self) -> Outcome<bool> {
        self.round(&mut Budget::of_a_round())
    }

    fn close(&mut self) -> Outcome {
        self.listener.as_mut().map_or(Ok(()), |listener| listener.close(&mut self.exports))
    }

    fn must_poll(&self) -> bool {
        self.traffic_peers.values().flatten().any(TrafficPeer::must_poll)
    }

    fn prepare_sleep(&mut self) -> Outcome<bool> {
        for traffic_peer in self.traffic_peers.values().flatten() {
            self.exports.provider_mut().arm_cq(traffic_peer.cq(), false)?;
        }
        // A completion that arrived before its queue was armed does not wake the loop.
        if self.traffic_peers.is_empty() { Ok(false) } else { self.progress() }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.exports.provider().fd()]
    }

    fn state(&self, lists_pairs: bool) -> State {
        let exports = &self.exports;
        let initiators = exports.initiators().map(|(session, initiator)| InitiatorState {
            session,
            address: initiator.peer,
            queue_pairs: initiator.queue_pairs(),
            pairs: exports.queue_pairs(initiator).take(if lists_pairs { MAX_PAIRS } else { 0 }).collect(),
            regions: exports.usage(initiator),
            counters: exports.initiator_counters(initiator),
        });
        State {
            provider: exports.provider().capabilities().name,
            regions: exports.exports().iter().map(RegionState::of).collect(),
            usage: exports.total_usage(),
            initiators: initiators.collect(),
            queue_pairs: {
                let mut sum = exports.total_counters();
                self.listener.iter().for_each(|listener| sum.add(&listener.qp_counters(exports)));
                sum
            },
            endpoint: exports.provider().total_counters(),
            spacefibre: exports.provider().links(0, usize::MAX),
            memory: exports.budget.state(),
            rdma_cm: self.listener.as_ref().map(|listener| listener.counters()),
        }
    }
}

impl<P: Endpoint> Host for EndpointHost<P> {
    fn welcome(&mut self) -> Welcome {
        Welcome { supports_roles: self.supports_roles, ..self.exports.welcome() }
    }

    fn regions(&mut self) -> Regions {
        self.exports.regions()
    }

    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        let needs_role = offer.receives.count > 0 || offer.sends > 0;
        let is_command_queue = self.accelerator.is_some() && offer.receives.bytes == 0;
        if needs_role && !self.supports_roles && !is_command_queue {
            let words = "this target serves memory only: start it with --messages to accept messages";
            return Err(Refusal::new(Cause::Unsupported, words));
        }
        let accept = self.exports.connect(session, peer, offer)?;
        if needs_role && let Some(connected) = self.exports.connected(session, accept.qp.get()) {
            let budget = self.exports.budget.clone();
            let reservation = budget.reserve(session, TrafficPeer::memory_bytes(offer.receives), "messages");
            let provider = self.exports.provider_mut();
            match reservation.and_then(|reservation| {
                TrafficPeer::new(provider, connected, (offer.receives, offer.sends), reservation)
            }) {
                Ok(traffic_peer) => self.traffic_peers.entry(session).or_default().push(traffic_peer),
                Err(refusal) => {
                    self.exports.disconnect(session, accept.qp.get())?;
                    return Err(refusal);
                }
            }
        }
        Ok(accept)
    }

    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal> {
        self.exports.link(session, socket)
    }

    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal> {
        if !self.supports_roles && assignment.role != TargetRole::Commands {
            let words = "this target takes no part in measurements: start it with --messages";
            return Err(Refusal::new(Cause::Unsupported, words));
        }
        let has_others = self.exports.initiators().any(|(other, _)| other != session);
        check_alone(assignment, self.accelerator.as_ref(), has_others)?;
        let exports = self.exports.exports().to_vec();
        let traffic_peers = self.traffic_peers.get_mut(&session).into_iter().flatten();
        let traffic_peer = traffic_peers.into_iter().find(|traffic_peer| traffic_peer.qp() == assignment.qp.get());
        let traffic_peer =
            traffic_peer.ok_or_else(|| Refusal::new(Cause::Unknown, "this queue pair has no memory for a role"))?;
        let budget = self.exports.budget.clone();
        let charge = |bytes| budget.reserve(session, bytes, "a stream's operations");
        let accelerator = (session, self.accelerator.as_ref());
        traffic_peer.set_role(self.exports.provider_mut(), assignment.role, &exports, accelerator, charge)
    }

    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.exports.disconnect(session, qp)?;
        self.remove_traffic(session, Some(qp));
        Ok(())
    }

    fn statistics(&mut self, session: SessionId) -> Statistics {
        let traffic_peers = || self.traffic_peers.get(&session).into_iter().flatten();
        let (role_operations, role_bytes) =
            (traffic_peers().map(|p| p.operations).sum(), traffic_peers().map(|p| p.bytes).sum());
        Statistics { role_operations, role_bytes, ..self.exports.statistics(session) }
    }

    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        self.exports.links(first)
    }

    fn session_ended(&mut self, session: SessionId) {
        // The memory for messages is deregistered first, so that nothing uses the protection domain any more.
        self.remove_traffic(session, None);
        self.exports.session_ended(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Access, Addressing, Region};
    use shotline_verbs::api::{
        Modify, Mtu, Provider as _, Qp, QpConfig, QpType, ReadyToReceive, ReadyToSend, VerbsError,
    };
    use shotline_verbs::cm::message::{Bits24, Kind, PathMtu, Receives, RegisteredMemory, TargetRole};
    use shotline_verbs::shm::ShmEndpoint;
    use shotline_wire::aeth::RnrTimer;
    use std::time::Duration;

    const SESSION: SessionId = 1;
    const MIB: u64 = 1 << 20;
    const PSN: u32 = 5;

    fn bring_up(side: &mut ShmEndpoint, qp: Qp, peer: Bits24) -> Result<(), VerbsError> {
        let receive = ReadyToReceive {
            peer: Some(("127.0.0.1:0".parse().unwrap(), peer.get())),
            mtu: Mtu::B4096,
            psn: PSN,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1).unwrap(),
            ack_every: 0,
        };
        let timeout = Duration::from_secs(1);
        let send = ReadyToSend { psn: PSN, timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        let init = Modify::Init { access: Access::ALL, q_key: 0 };
        let steps = [init, Modify::ReadyToReceive(receive), Modify::ReadyToSend(send)];
        steps.into_iter().try_for_each(|step| side.modify_qp(qp, step))
    }

    #[test]
    fn measurements_need_messages_also_on_a_node() {
        let (_, target) = ShmEndpoint::pair().unwrap();
        let mut host = EndpointHost::new(Exports::new(target), false);
        let mut cause = |role| {
            let qp = Bits24::new(5).unwrap();
            host.start_role(SESSION, &RoleAssignment { qp, role }).unwrap_err().cause
        };
        assert_eq!(cause(TargetRole::Echo), Cause::Unsupported);
        // Only the queue pair is unknown.
        assert_eq!(cause(TargetRole::Commands), Cause::Unknown);
    }

    #[test]
    fn round_budget_is_bounded_and_shared_fairly() {
        const PAIRS: u64 = 6;
        const GROUP: u16 = 16;
        const ROUNDS: u64 = 64;
        let (mut initiator, target) = ShmEndpoint::pair().unwrap();
        let mut host = EndpointHost::new(Exports::new(target), true);
        let pd = initiator.alloc_pd().unwrap();
        let cq = initiator.create_cq(16).unwrap();
        let region = Region::memfd("theirs", usize::from(GROUP) << 20).unwrap();
        let len = region.len() as u64;
        let mr = initiator.reg_mr(pd, &region, 0, len, Access::ALL, Addressing::ZeroBased).unwrap();
        for _ in 0..PAIRS {
            let qp = initiator.create_qp(&QpConfig::new(QpType::Rc, pd, cq, cq)).unwrap();
            let offer = Offer {
                kind: Kind::Rc,
                address: None,
                qp: Bits24::new(qp.0).unwrap(),
                psn: Bits24::new(PSN).unwrap(),
                mtu: PathMtu(Mtu::B4096),
                max_dest_rd_atomic: 1,
                max_rd_atomic: 1,
                service_level: 0,
                receives: Receives::default(),
                sends: GROUP,
            };
            let accept = host.connect(SESSION, None, &offer).unwrap();
            bring_up(&mut initiator, qp, accept.qp).unwrap();
            let memory = RegisteredMemory { address: mr.address, bytes: len, rkey: mr.rkey };
            let role = TargetRole::Stream { read: false, bytes: MIB as u32, group: GROUP, memory };
            host.start_role(SESSION, &RoleAssignment { qp: accept.qp, role }).unwrap();
        }
        for _ in 0..ROUNDS {
            assert!(host.progress().unwrap(), "there is always more to stream");
        }
        // Operations are counted when their group is complete.
        let copied: Vec<u64> = host.traffic_peers[&SESSION].iter().map(|traffic_peer| traffic_peer.bytes).collect();
        assert!(copied.iter().sum::<u64>() <= ROUNDS * 4 * MIB, "{copied:?}");
        assert!(copied.iter().all(|bytes| *bytes > 0), "{copied:?}");
    }
}
