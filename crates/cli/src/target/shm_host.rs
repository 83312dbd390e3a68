//! A target that is reached by shared memory: it has a link, and so an endpoint, for each initiator.

use super::host::{EndpointHost, TargetHost, rotated};
use super::report::{InitiatorState, RegionState, State};
use super::traffic::Budget;
use crate::Result as Outcome;
use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_verbs::cm::message::{
    Accept, Cause, Offer, Refusal, RegionInfo, Regions, Rights, RoleAssignment, Statistics, VERSION, Welcome,
};
use shotline_verbs::cm::{EndpointCounters, Export, Exports, Host, MemoryBudget, Reservation, SessionId};
use shotline_verbs::shm::{DESCRIPTION, ShmEndpoint};
use std::collections::HashMap;
use std::net::IpAddr;

struct ShmLink {
    host: EndpointHost<ShmEndpoint>,
    _reservation: Reservation,
}

/// Exports over shared memory.
pub struct ShmHost {
    exports: Vec<Export>,
    supports_roles: bool,
    max_queue_pairs: u32,
    strict: bool,
    memory_budget: MemoryBudget,
    links: HashMap<SessionId, ShmLink>,
    rounds: usize,
    /// Counters of links that have ended.
    ended: EndpointCounters,
}

impl ShmHost {
    /// Exports these regions, whose memory must be shareable with another process. `strict` is as for queue pairs.
    pub fn new(
        exports: Vec<Export>,
        supports_roles: bool,
        max_queue_pairs: u32,
        strict: bool,
        memory_budget: MemoryBudget,
    ) -> Self {
        let (links, rounds, ended) = (HashMap::new(), 0, EndpointCounters::default());
        Self { exports, supports_roles, max_queue_pairs, strict, memory_budget, links, rounds, ended }
    }

    fn link(&mut self, session: SessionId) -> Result<&mut EndpointHost<ShmEndpoint>, Refusal> {
        let link = self.links.get_mut(&session).map(|link| &mut link.host);
        link.ok_or_else(|| Refusal::new(Cause::Message, "link first, then connect"))
    }
}

impl TargetHost for ShmHost {
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
            provider: DESCRIPTION.name(),
            regions: self.exports.iter().map(RegionState::of).collect(),
            usage: None,
            initiators: Vec::new(),
            queue_pairs: EndpointCounters::default(),
            endpoint: self.ended.clone(),
            memory: self.memory_budget.state(),
            rdma_cm: None,
        };
        for (session, link) in &self.links {
            let state = link.host.state();
            sum.endpoint.add(&state.endpoint);
            sum.initiators.extend(state.initiators.into_iter().map(|one| InitiatorState { session: *session, ..one }));
        }
        sum
    }
}

impl Host for ShmHost {
    fn welcome(&mut self) -> Welcome {
        let (max_queue_pairs, max_operation) = (self.max_queue_pairs, DESCRIPTION.capabilities.max_operation);
        Welcome {
            version: VERSION,
            provider: DESCRIPTION.name().into(),
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
        let reservation = self.memory_budget.reserve(session, ShmEndpoint::MEMORY_BYTES, "a link of shared memory")?;
        let endpoint = ShmEndpoint::from_offered_socket(socket);
        let mut endpoint = endpoint.map_err(|error| Refusal::new(Cause::Failed, error.to_string()))?;
        endpoint.charge(self.memory_budget.clone(), session);
        let mut exports = Exports::new(endpoint);
        (exports.max_queue_pairs, exports.strict) = (self.max_queue_pairs, self.strict);
        exports.budget = self.memory_budget.clone();
        self.exports.iter().try_for_each(|export| exports.export(export.clone()))?;
        self.links.insert(
            session,
            ShmLink { host: EndpointHost::new(exports, self.supports_roles), _reservation: reservation },
        );
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
            self.ended.add(&link.host.total());
        }
    }
}
