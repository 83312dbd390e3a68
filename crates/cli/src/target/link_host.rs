//! A target whose initiators pass a socket for a link by shared memory: it has an endpoint for each of them.

use super::host::{EndpointHost, TargetHost, check_alone, rotated};
use super::report::{InitiatorState, RegionState, State};
use super::traffic::Budget;
use crate::Result as Outcome;
use rustix::fd::{BorrowedFd, OwnedFd};
use shotline_accelerate::Accelerator;
use shotline_memory::RegistrationCounters;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_verbs::api::{Description, VerbsError};
use shotline_verbs::cm::message::{
    Accept, Cause, MAX_LINKS, Offer, Refusal, RegionInfo, Regions, Rights, RoleAssignment, Statistics, VERSION, Welcome,
};
use shotline_verbs::cm::{
    Endpoint, EndpointCounters, Export, Exports, Host, MemoryBudget, Reservation, SessionId, add_usage,
};
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::spacefibre::{
    AnyCarrier, Connected, LinkParameters, LinkSelector, LinksStatus, SpaceFibreEndpoint,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Endpoint that is set up with one initiator, over a socket on whose other end the initiator has made its offer.
pub trait LinkedEndpoint: Endpoint + Sized {
    /// Options of the endpoint.
    type Options;
    /// Memory of an endpoint in bytes, without that of its queue pairs.
    const MEMORY_BYTES: u64;
    /// Returns the options of SpaceFibre links that initiators must have in common with it.
    fn parameters(options: &Self::Options) -> Option<LinkParameters>;
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
    fn parameters((): &()) -> Option<LinkParameters> {
        None
    }
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
    fn parameters(selector: &LinkSelector) -> Option<LinkParameters> {
        Some(selector.parameters())
    }
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
    accelerator: Option<Arc<Accelerator>>,
    links: BTreeMap<SessionId, Link<E>>,
    rounds: usize,
    /// State of links that have ended.
    ended: Ended,
}

/// State of links that have ended: the counters of endpoints and of their queue pairs, and the use of each region.
#[derive(Default)]
struct Ended {
    endpoint: EndpointCounters,
    queue_pairs: EndpointCounters,
    usage: Vec<RegistrationCounters>,
    links: LinksStatus,
}

impl Ended {
    fn add(&mut self, state: State) {
        self.endpoint.add(&state.endpoint);
        self.queue_pairs.add(&state.queue_pairs);
        self.usage.resize_with(state.regions.len(), RegistrationCounters::default);
        self.usage.iter_mut().zip(state.usage.iter().flatten()).for_each(|(sum, usage)| add_usage(sum, usage));
        state.spacefibre.into_iter().for_each(|links| self.links.add(links));
    }
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
        Self {
            options,
            description,
            exports,
            supports_roles,
            max_queue_pairs,
            strict,
            memory_budget,
            accelerator: None,
            links: BTreeMap::new(),
            rounds: 0,
            ended: Ended::default(),
        }
    }

    /// Adds an accelerator, if there is one, whose commands initiators may give.
    pub fn with_accelerator(self, accelerator: Option<Arc<Accelerator>>) -> Self {
        Self { accelerator, ..self }
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
    fn state(&self, lists_pairs: bool) -> State {
        let Ended { endpoint, queue_pairs, usage, links } = &self.ended;
        // A target whose processor is not involved cannot count the use of its regions.
        let counts_usage = !self.description.capabilities.target_cpu_is_idle;
        let mut usage = usage.clone();
        usage.resize_with(self.exports.len(), RegistrationCounters::default);
        let mut sum = State {
            provider: self.description.name(),
            regions: self.exports.iter().map(RegionState::of).collect(),
            usage: counts_usage.then_some(usage),
            initiators: Vec::new(),
            queue_pairs: queue_pairs.clone(),
            endpoint: endpoint.clone(),
            spacefibre: E::parameters(&self.options).map(|_| links.clone()),
            memory: self.memory_budget.state(),
            rdma_cm: None,
        };
        for (session, link) in &self.links {
            let state = link.host.state(lists_pairs);
            sum.endpoint.add(&state.endpoint);
            sum.queue_pairs.add(&state.queue_pairs);
            let usage = sum.usage.iter_mut().flatten().zip(state.usage.iter().flatten());
            usage.for_each(|(sum, usage)| add_usage(sum, usage));
            if let (Some(sum), Some(links)) = (&mut sum.spacefibre, state.spacefibre) {
                sum.add(numbered(links, *session));
            }
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
            link: E::parameters(&self.options),
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
        let host = EndpointHost::new(exports, self.supports_roles).with_accelerator(self.accelerator.clone());
        self.links.insert(session, Link { host, _reservation: reservation });
        Ok(())
    }

    fn connect(&mut self, session: SessionId, peer: Option<IpAddr>, offer: &Offer) -> Result<Accept, Refusal> {
        self.link(session)?.connect(session, peer, offer)
    }
    fn start_role(&mut self, session: SessionId, assignment: &RoleAssignment) -> Result<(), Refusal> {
        let has_others = self.links.keys().any(|other| *other != session);
        check_alone(assignment, self.accelerator.as_ref(), has_others)?;
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

    fn links(&mut self, first: u32) -> Result<LinksStatus, Refusal> {
        if E::parameters(&self.options).is_none() {
            let words = format!("{} has no SpaceFibre links, only spacefibre has", self.description.name());
            return Err(Refusal::new(Cause::Unsupported, words));
        }
        let mut sum = self.ended.links.clone();
        for (session, link) in &self.links {
            let skip = (first as usize).saturating_sub(sum.open as usize);
            if let Some(links) = link.host.provider().links(skip, MAX_LINKS - sum.links.len()) {
                sum.add(numbered(links, *session));
            }
        }
        Ok(sum)
    }

    fn session_ended(&mut self, session: SessionId) {
        if let Some(mut link) = self.links.remove(&session) {
            link.host.session_ended(session);
            self.ended.add(link.host.state(false));
        }
    }
}

/// Numbers the links of an endpoint, which has no more than one, by the session of the initiator.
fn numbered(mut status: LinksStatus, session: SessionId) -> LinksStatus {
    status.links.iter_mut().for_each(|link| link.number = session);
    status
}
