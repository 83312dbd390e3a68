//! A target whose initiators pass a socket for a link by shared memory: it has an endpoint for each of them.

use super::host::{EndpointHost, TargetHost, rotated};
use super::report::{InitiatorState, RegionState, State};
use super::traffic::Budget;
use crate::Result as Outcome;
use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_verbs::api::{Description, VerbsError};
use shotline_verbs::cm::message::{
    Accept, Cause, Offer, Refusal, RegionInfo, Regions, Rights, RoleAssignment, Statistics, VERSION, Welcome,
};
use shotline_verbs::cm::{Endpoint, EndpointCounters, Export, Exports, Host, MemoryBudget, Reservation, SessionId};
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::spacefibre::{AnyCarrier, Connected, LinkSelector, SpaceFibreEndpoint};
use std::collections::HashMap;
use std::net::IpAddr;

/// Endpoint that is set up with one initiator, over a socket on whose other end the initiator has made its offer.
pub trait LinkedEndpoint: Endpoint + Sized {
    /// Options of the endpoint.
    type Options;
    /// Memory of an endpoint in bytes, without that of its queue pairs.
    const MEMORY_BYTES: u64;
    /// Sets up the endpoint. Never blocks.
    fn accept(options: &Self::Options, socket: OwnedFd) -> Result<Self, VerbsError>;
    /// Charges memory that the initiator registers to a budget.
    fn charge(&mut self, budget: MemoryBudget, session: SessionId);
    /// Returns the reason why memory of the initiator was refused, if any was.
    fn refusal(&mut self) -> Option<Refusal>;
}

impl LinkedEndpoint for ShmEndpoint {
    type Options = ();
    const MEMORY_BYTES: u64 = Self::MEMORY_BYTES;
    fn accept((): &(), socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::from_offered_socket(socket)
    }
    fn charge(&mut self, budget: MemoryBudget, session: SessionId) {
        self.charge(budget, session);
    }
    fn refusal(&mut self) -> Option<Refusal> {
        self.refusal()
    }
}

impl LinkedEndpoint for SpaceFibreEndpoint<Connected<AnyCarrier>> {
    type Options = LinkSelector;
    /// The two rings of the carrier, the retry buffer, and packets that are being received.
    const MEMORY_BYTES: u64 = 8 << 20;
    fn accept(selector: &LinkSelector, socket: OwnedFd) -> Result<Self, VerbsError> {
        Self::shm(ShmCarrier::offer(socket)?.join_now()?, selector)
    }
    /// The initiator's memory is not mapped here.
    fn charge(&mut self, _: MemoryBudget, _: SessionId) {}
    fn refusal(&mut self) -> Option<Refusal> {
        None
    }
}

struct Link<E: LinkedEndpoint> {
    host: EndpointHost<E>,
    _reservation: Reservation,
}

/// Exports over links by shared memory.
pub struct LinkHost<E: LinkedEndpoint> {
    options: E::Options,
    description: &'static Description,
    exports: Vec<Export>,
    supports_roles: bool,
    max_queue_pairs: u32,
    strict: bool,
    memory_budget: MemoryBudget,
    links: HashMap<SessionId, Link<E>>,
    rounds: usize,
    /// Counters of links that have ended, and of their queue pairs.
    ended: EndpointCounters,
    ended_pairs: EndpointCounters,
}

impl<E: LinkedEndpoint> LinkHost<E> {
    /// Exports these regions, whose memory must be shareable with another process. `strict` is as for queue pairs.
    pub fn new(
        (options, description): (E::Options, &'static Description),
        exports: Vec<Export>,
        supports_roles: bool,
        max_queue_pairs: u32,
        strict: bool,
        memory_budget: MemoryBudget,
    ) -> Self {
        let (links, rounds) = (HashMap::new(), 0);
        let (ended, ended_pairs) = (EndpointCounters::default(), EndpointCounters::default());
        Self {
            options,
            description,
            exports,
            supports_roles,
            max_queue_pairs,
            strict,
            memory_budget,
            links,
            rounds,
            ended,
            ended_pairs,
        }
    }

    fn link(&mut self, session: SessionId) -> Result<&mut EndpointHost<E>, Refusal> {
        let link = self.links.get_mut(&session).map(|link| &mut link.host);
        link.ok_or_else(|| Refusal::new(Cause::Message, "link first, then connect"))
    }
}

impl<E: LinkedEndpoint> TargetHost for LinkHost<E> {
    fn progress(&mut self) -> Outcome<bool> {
        self.rounds = self.rounds.wrapping_add(1);
        let mut budget = Budget::of_a_round();
        let mut links = rotated(self.links.values_mut(), self.rounds).into_iter();
        links.try_fold(false, |busy, link| Ok(link.host.round(&mut budget)? | busy))
    }
    fn must_poll(&self) -> bool {
        self.links.values().any(|link| link.host.must_poll())
    }
    fn prepare_sleep(&mut self) -> Outcome<bool> {
        self.links.values_mut().try_fold(false, |busy, link| Ok(link.host.prepare_sleep()? | busy))
    }
    /// There is no other listener, so there is nothing to close.
    fn close(&mut self) -> Outcome {
        Ok(())
    }
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.links.values().flat_map(|link| link.host.descriptors()).collect()
    }
    fn state(&self) -> State {
        let mut sum = State {
            provider: self.description.name(),
            regions: self.exports.iter().map(RegionState::of).collect(),
            usage: None,
            initiators: Vec::new(),
            queue_pairs: self.ended_pairs.clone(),
            endpoint: self.ended.clone(),
            memory: self.memory_budget.state(),
            rdma_cm: None,
        };
        for (session, link) in &self.links {
            let state = link.host.state();
            sum.endpoint.add(&state.endpoint);
            sum.queue_pairs.add(&state.queue_pairs);
            sum.initiators.extend(state.initiators.into_iter().map(|one| InitiatorState { session: *session, ..one }));
        }
        sum
    }
}

impl<E: LinkedEndpoint> Host for LinkHost<E> {
    fn welcome(&mut self) -> Welcome {
        let (max_queue_pairs, max_operation) = (self.max_queue_pairs, self.description.capabilities.max_operation);
        Welcome {
            version: VERSION,
            provider: self.description.name().into(),
            max_queue_pairs,
            max_operation,
            supports_roles: self.supports_roles,
        }
    }

    fn regions(&mut self) -> Regions {
        let info = |export: &Export| RegionInfo {
            name: export.name.clone(),
            bytes: export.bytes,
            rights: Rights(export.rights),
        };
        Regions { regions: self.exports.iter().map(info).collect() }
    }

    fn link(&mut self, session: SessionId, socket: OwnedFd) -> Result<(), Refusal> {
        if self.links.contains_key(&session) {
            return Err(Refusal::new(Cause::Message, "a link exists already"));
        }
        let reservation = self.memory_budget.reserve(session, E::MEMORY_BYTES, "a link of shared memory")?;
        let endpoint = E::accept(&self.options, socket);
        let mut endpoint = endpoint.map_err(|error| Refusal::new(Cause::Failed, error.to_string()))?;
        endpoint.charge(self.memory_budget.clone(), session);
        let mut exports = Exports::new(endpoint);
        (exports.max_queue_pairs, exports.strict) = (self.max_queue_pairs, self.strict);
        exports.budget = self.memory_budget.clone();
        self.exports.iter().try_for_each(|export| exports.export(export.clone()))?;
        self.links
            .insert(session, Link { host: EndpointHost::new(exports, self.supports_roles), _reservation: reservation });
        Ok(())
    }

    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        self.link(session)?.connect(session, peer, offer)
    }
    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal> {
        let link = self.link(session)?;
        // Memory that exceeded the initiator's limit when it was opened is refused when it is used.
        link.provider_mut().refusal().map_or(Ok(()), Err)?;
        link.start_role(session, assignment)
    }
    fn disconnect(&mut self, session: SessionId, qp: u32) -> Result<(), Refusal> {
        self.link(session)?.disconnect(session, qp)
    }
    fn statistics(&mut self, session: SessionId) -> Statistics {
        match self.links.get_mut(&session) {
            Some(link) => link.host.statistics(session),
            None => Statistics { cpu_s: crate::output::CpuTime::now().total(), ..Statistics::default() },
        }
    }

    fn session_ended(&mut self, session: SessionId) {
        if let Some(mut link) = self.links.remove(&session) {
            link.host.session_ended(session);
            let state = link.host.state();
            self.ended.add(&state.endpoint);
            self.ended_pairs.add(&state.queue_pairs);
        }
    }
}
