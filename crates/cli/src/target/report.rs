//! Reports of a target: counters of regions, initiators and connections, and whether they balance.

use crate::output::{CpuTime, Rows};
use serde::Serialize;
use shotline_memory::{RegistrationCounters, format_bytes};
use shotline_verbs::cm::message::{Name, Rights};
use shotline_verbs::cm::{
    ControlCounters, EndpointCounters, Export, MemoryBudgetState, QueuePairState, SessionId, operations,
};
use shotline_verbs::rdma_cm;
use shotline_verbs::spacefibre::LinksStatus;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// State of a target.
pub struct State {
    /// Name of the provider.
    pub provider: &'static str,
    /// The regions.
    pub regions: Vec<RegionState>,
    /// Use of each region, or `None` if the target cannot count it (shm: the initiators' processors do all the work).
    pub usage: Option<Vec<RegistrationCounters>>,
    /// Connected initiators.
    pub initiators: Vec<InitiatorState>,
    /// Counters of all queue pairs, including destroyed ones.
    pub queue_pairs: EndpointCounters,
    /// Counters of the endpoint. Packets that it dropped reached no queue pair.
    pub endpoint: EndpointCounters,
    /// SpaceFibre links and the counters of their packets, if the provider has links.
    pub spacefibre: Option<LinksStatus>,
    /// Memory reserved by initiators.
    pub memory: MemoryBudgetState,
    /// Counters of the connection manager's listener, if it is open.
    pub rdma_cm: Option<CmListenerCounters>,
}

/// A region.
#[derive(Serialize)]
pub struct RegionState {
    pub(super) name: Name,
    pub(super) bytes: u64,
    pub(super) rights: Rights,
}

impl RegionState {
    /// Returns the state of an export.
    pub fn of(export: &Export) -> Self {
        Self { name: export.name.clone(), bytes: export.bytes, rights: Rights(export.rights) }
    }
}

/// An initiator and its counters.
#[derive(Serialize)]
pub struct InitiatorState {
    /// Session number of its connection.
    pub session: SessionId,
    /// Its address, or `None` if it is on this machine.
    pub address: Option<IpAddr>,
    /// Number of its queue pairs.
    pub queue_pairs: usize,
    /// The first of them, for the page.
    #[serde(skip)]
    pub pairs: Vec<QueuePairState>,
    /// Its use of each region, in the order of the regions.
    pub regions: Option<Vec<RegistrationCounters>>,
    /// Counters of its queue pairs.
    #[serde(flatten)]
    pub counters: EndpointCounters,
}

/// Report of a target, while it runs or at its end.
#[derive(Serialize)]
pub struct Report {
    kind: &'static str,
    provider: &'static str,
    seconds: f64,
    pub(super) regions: Vec<Region>,
    pub(super) initiators: Vec<Initiator>,
    pub(super) queue_pairs: EndpointCounters,
    pub(super) endpoint: EndpointCounters,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spacefibre: Option<LinksStatus>,
    pub(super) control: ControlCounters,
    pub(super) memory: MemoryBudgetState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rdma_cm: Option<CmListenerCounters>,
    /// Every packet received reached a queue pair or was dropped with a cause; every connection was welcomed, was
    /// rejected with a cause, or is not authenticated yet; the same holds for requests to the connection manager.
    balanced: bool,
    #[serde(flatten)]
    cpu: CpuTime,
}

/// A region and its use by all initiators.
#[derive(Serialize)]
pub(super) struct Region {
    #[serde(flatten)]
    pub(super) state: RegionState,
    #[serde(flatten)]
    pub(super) usage: Option<RegistrationCounters>,
    /// Time since the last operation was observed, up to a report interval or a second after it was executed.
    pub(super) idle_s: Option<f64>,
}

/// An initiator and the time since its last operation.
#[derive(Serialize)]
pub(super) struct Initiator {
    #[serde(flatten)]
    pub(super) state: InitiatorState,
    pub(super) idle_s: Option<f64>,
}

/// Number of operations, and the time when the last of them was noticed.
type LastActivity = (u64, Option<Instant>);

/// Creates reports, and keeps track of when counters changed.
pub struct Reporter {
    start: Instant,
    regions: Vec<LastActivity>,
    initiators: HashMap<SessionId, LastActivity>,
}

impl Reporter {
    /// Starts at the current time.
    pub fn new() -> Self {
        Self { start: Instant::now(), regions: Vec::new(), initiators: HashMap::new() }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notices changes of the counters. The time of the last operation is known to within the interval of two calls.
    pub fn observe(&mut self, state: &State) {
        let now = Instant::now();
        let update = |last: &mut LastActivity, count: u64| {
            if last.0 != count {
                *last = (count, Some(now));
            }
        };
        let totals = state.usage.as_deref().unwrap_or_default();
        self.regions.resize(totals.len(), (0, None));
        self.regions.iter_mut().zip(totals).for_each(|(last, usage)| update(last, operations(usage)));
        let known = std::mem::take(&mut self.initiators);
        for initiator in &state.initiators {
            let sum = initiator.regions.iter().flatten().map(operations).sum();
            let mut last = known.get(&initiator.session).copied().unwrap_or((0, None));
            update(&mut last, sum);
            self.initiators.insert(initiator.session, last);
        }
    }

    /// Creates a report. `unauthenticated` is the number of connections that have not sent a token yet.
    pub fn report(
        &mut self,
        kind: &'static str,
        state: State,
        control: ControlCounters,
        unauthenticated: u64,
    ) -> Report {
        self.observe(&state);
        let now = Instant::now();
        let idle = |last: &LastActivity| last.1.map(|when| (now - when).as_secs_f64());
        let State { provider, regions, usage, mut initiators, queue_pairs, endpoint, spacefibre, memory, rdma_cm } =
            state;
        let regions = regions.into_iter().enumerate().map(|(index, state)| Region {
            state,
            usage: usage.as_ref().map(|usage| usage[index]),
            idle_s: self.regions.get(index).and_then(idle),
        });
        initiators.sort_by_key(|initiator| initiator.session);
        let initiators = initiators.into_iter().map(|state| {
            let idle_s = self.initiators.get(&state.session).and_then(idle);
            Initiator { state, idle_s }
        });
        let packets = queue_pairs.packets_in + endpoint.drops.values().sum::<u64>();
        let ControlCounters {
            accepted,
            welcomed,
            wrong_token,
            wrong_version,
            malformed,
            slow,
            displaced,
            closed_by_peer,
            full: _,
        } = control;
        let accounted =
            welcomed + wrong_token + wrong_version + malformed + slow + displaced + closed_by_peer + unauthenticated;
        Report {
            kind,
            provider,
            seconds: self.start.elapsed().as_secs_f64(),
            regions: regions.collect(),
            initiators: initiators.collect(),
            balanced: packets == endpoint.packets_in
                && accounted == accepted
                && rdma_cm.is_none_or(|counts| counts.manager.is_balanced()),
            queue_pairs,
            endpoint,
            spacefibre,
            control,
            memory,
            rdma_cm,
            cpu: CpuTime::now(),
        }
    }
}

impl Report {
    /// Returns `true` if the counters balance.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// Returns a line that summarises a running target.
    pub fn line(&self) -> String {
        let region = |region: &Region| {
            let usage = region.usage?;
            let bytes = format_bytes(usage.bytes_in + usage.bytes_out);
            Some(format!("{}: {} operations, {bytes}", region.state.name, operations(&usage)))
        };
        let dropped: u64 = self.queue_pairs.drops.values().chain(self.endpoint.drops.values()).sum();
        let regions: Vec<_> = self.regions.iter().filter_map(region).collect();
        let links = self.spacefibre.as_ref().and_then(LinksStatus::repairs);
        let links = links.map_or(String::new(), |repairs| format!("; links: {repairs}"));
        format!("{} initiators; {}; {dropped} packets dropped{links}", self.initiators.len(), regions.join("; "))
    }
}

impl Rows for Report {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        for region in &self.regions {
            let Some(usage) = region.usage else {
                rows.push((format!("region {}", region.state.name), "not counted (shm)".into()));
                continue;
            };
            let words = |count: u64, bytes: u64| format!("{count} ({})", format_bytes(bytes));
            rows.push((format!("region {}: writes", region.state.name), words(usage.writes, usage.bytes_in)));
            rows.push((format!("region {}: reads", region.state.name), words(usage.reads, usage.bytes_out)));
            if usage.atomics > 0 {
                rows.push((format!("region {}: atomic operations", region.state.name), usage.atomics.to_string()));
            }
        }
        for (cause, count) in self.queue_pairs.drops.iter().chain(&self.endpoint.drops) {
            rows.push((format!("dropped: {cause}"), count.to_string()));
        }
        let control = &self.control;
        rows.push(("initiators".into(), control.welcomed.to_string()));
        let rejections = [
            ("wrong token", control.wrong_token),
            ("wrong version", control.wrong_version),
            ("malformed", control.malformed),
            ("slow", control.slow),
            ("displaced", control.displaced),
            ("too many", control.full),
            ("closed by the peer before the token", control.closed_by_peer),
        ];
        for (cause, count) in rejections.into_iter().filter(|(_, count)| *count > 0) {
            rows.push((format!("connections rejected: {cause}"), count.to_string()));
        }
        let cm = self.rdma_cm.map(|counts| (counts.manager, counts.rejected_near_limit, counts.unresponsive));
        if let Some((manager, rejected_near_limit, unresponsive)) = cm {
            let rdma_cm::CmCounters { established, no_service, no_resources, rejected, displaced, unconfirmed, .. } =
                manager;
            rows.push(("connection manager: established".into(), established.to_string()));
            let causes = [
                ("connection manager: rejected, no such program", no_service),
                ("connection manager: rejected, no resources", no_resources),
                ("connection manager: rejected near the limit of connections", rejected_near_limit),
                ("connection manager: rejected for another reason", rejected),
                ("connection manager: displaced by newer requests", displaced),
                ("connection manager: not confirmed by an RTU", unconfirmed),
                ("connection manager: not answered, too many requests", manager.unanswered),
                ("connection manager: disconnected, unresponsive", unresponsive),
                ("connection manager: malformed messages", manager.malformed),
                ("connection manager: messages of unknown connections", manager.stray),
                ("connection manager: messages not sent", manager.unsent),
            ];
            let causes = causes.into_iter().filter(|(_, count)| *count > 0);
            rows.extend(causes.map(|(cause, count)| (cause.into(), count.to_string())));
        }
        if self.memory.refused > 0 {
            rows.push(("refused: memory of initiators".into(), self.memory.refused.to_string()));
        }
        rows.push(("packets in".into(), self.endpoint.packets_in.to_string()));
        rows.push(("packets out".into(), self.endpoint.packets_out.to_string()));
        let again = [
            ("packets retransmitted", self.queue_pairs.retransmitted),
            ("timeouts", self.queue_pairs.timeouts),
            ("packets copied before they were sealed", self.endpoint.packets_copied),
        ];
        rows.extend(
            again.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| (what.into(), count.to_string())),
        );
        if let Some(repairs) = self.spacefibre.as_ref().and_then(LinksStatus::repairs) {
            rows.push(("links".into(), repairs));
        }
        rows.push(("processor".into(), format!("{:.2} s of {:.2} s", self.cpu.total(), self.seconds)));
        rows.push(("counters".into(), if self.balanced { "balance" } else { "DO NOT BALANCE" }.into()));
        rows
    }
}

/// Counters of the connection manager's listener.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CmListenerCounters {
    /// Counters of the connection manager.
    #[serde(flatten)]
    pub manager: rdma_cm::CmCounters,
    /// Number of requests rejected because the address already has a connection and few are left, or because another
    /// request took the last one.
    pub rejected_near_limit: u64,
    /// Number of established connections that were ended because they did not answer.
    pub unresponsive: u64,
}
