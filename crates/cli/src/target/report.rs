//! What a target tells of itself: per region, per initiator, at the door, and whether it adds up.

use crate::output::{CpuTime, Rows};
use serde::Serialize;
use shotline_memory::{RegistrationCounters, format_bytes};
use shotline_verbs::cm::message::{Name, Rights};
use shotline_verbs::cm::{Counts, Export, MemoryBudgetState, SessionId, EndpointCounters, operations};
use shotline_verbs::rdma_cm;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How a target is at a moment.
pub struct State {
    /// Its provider's name.
    pub provider: &'static str,
    /// Its regions.
    pub regions: Vec<RegionState>,
    /// What was done with each; none if the target does not know (shm: the initiators' processors do it all).
    pub usage: Option<Vec<RegistrationCounters>>,
    /// Who is connected.
    pub initiators: Vec<InitiatorState>,
    /// Of all queue pairs that there ever were.
    pub queue_pairs: EndpointCounters,
    /// Of the endpoint; what it refused reached no queue pair.
    pub endpoint: EndpointCounters,
    /// Memory that initiators have made the target take.
    pub account: MemoryBudgetState,
    /// What happened at the connection manager's door, if it is open.
    pub rdma_cm: Option<GuestCounts>,
}

/// A region.
#[derive(Serialize)]
pub struct RegionState {
    name: Name,
    bytes: u64,
    rights: Rights,
}

impl RegionState {
    /// Of an exported one.
    pub fn of(export: &Export) -> Self {
        Self { name: export.name.clone(), bytes: export.bytes, rights: Rights(export.rights) }
    }
}

/// An initiator and what it did.
#[derive(Serialize)]
pub struct InitiatorState {
    /// Its connection.
    pub session: SessionId,
    /// Where it is; none: on this machine.
    pub address: Option<IpAddr>,
    /// How many it has.
    pub queue_pairs: usize,
    /// What it did, in the order of the regions.
    pub regions: Option<Vec<RegistrationCounters>>,
    /// What happened to its queue pairs.
    #[serde(flatten)]
    pub tally: EndpointCounters,
}

/// How a target is, or was.
#[derive(Serialize)]
pub struct Report {
    kind: &'static str,
    provider: &'static str,
    seconds: f64,
    regions: Vec<Region>,
    initiators: Vec<Initiator>,
    queue_pairs: EndpointCounters,
    endpoint: EndpointCounters,
    control: Counts,
    memory: MemoryBudgetState,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_cm: Option<GuestCounts>,
    /// Every packet that came in was for a queue pair or refused under its cause, and every connection that was taken
    /// was welcomed, turned away under its cause, or is a stranger still; so was every request of a guest.
    balanced: bool,
    #[serde(flatten)]
    cpu: CpuTime,
}

/// A region and what all initiators did with it.
#[derive(Serialize)]
struct Region {
    #[serde(flatten)]
    state: RegionState,
    #[serde(flatten)]
    usage: Option<RegistrationCounters>,
    /// Since the last operation was noticed, which is within a report or a second.
    idle_s: Option<f64>,
}

/// An initiator and when it was noticed last.
#[derive(Serialize)]
struct Initiator {
    #[serde(flatten)]
    state: InitiatorState,
    idle_s: Option<f64>,
}

/// How many operations there were, and when the last of them was noticed.
type Last = (u64, Option<Instant>);

/// Remembers when what was counted last.
pub struct Reporter {
    began: Instant,
    regions: Vec<Last>,
    initiators: HashMap<SessionId, Last>,
}

impl Reporter {
    /// Begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), regions: Vec::new(), initiators: HashMap::new() }
    }

    /// Since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Looks at the counters, so that the time of the last operation is known to within two looks.
    pub fn look(&mut self, state: &State) {
        let now = Instant::now();
        let notice = |last: &mut Last, count: u64| {
            if last.0 != count {
                *last = (count, Some(now));
            }
        };
        let totals = state.usage.as_deref().unwrap_or_default();
        self.regions.resize(totals.len(), (0, None));
        self.regions.iter_mut().zip(totals).for_each(|(last, usage)| notice(last, operations(usage)));
        let known = std::mem::take(&mut self.initiators);
        for initiator in &state.initiators {
            let sum = initiator.regions.iter().flatten().map(operations).sum();
            let mut last = known.get(&initiator.session).copied().unwrap_or((0, None));
            notice(&mut last, sum);
            self.initiators.insert(initiator.session, last);
        }
    }

    /// Sums up. `strangers` are connections of which nothing is known yet.
    pub fn report(&mut self, kind: &'static str, state: State, control: Counts, strangers: u64) -> Report {
        self.look(&state);
        let now = Instant::now();
        let idle = |last: &Last| last.1.map(|when| (now - when).as_secs_f64());
        let State { provider, regions, usage, mut initiators, queue_pairs, endpoint, account, rdma_cm } = state;
        let regions = regions.into_iter().enumerate().map(|(place, state)| Region {
            state,
            usage: usage.as_ref().map(|usage| usage[place]),
            idle_s: self.regions.get(place).and_then(idle),
        });
        initiators.sort_by_key(|initiator| initiator.session);
        let initiators = initiators.into_iter().map(|state| {
            let idle_s = self.initiators.get(&state.session).and_then(idle);
            Initiator { state, idle_s }
        });
        let packets = queue_pairs.packets_in + endpoint.refused.values().sum::<u64>();
        let Counts { begun, welcomed, wrong_token, wrong_version, malformed, slow, displaced, hung_up, full: _ } =
            control;
        let met = welcomed + wrong_token + wrong_version + malformed + slow + displaced + hung_up + strangers;
        Report {
            kind,
            provider,
            seconds: self.began.elapsed().as_secs_f64(),
            regions: regions.collect(),
            initiators: initiators.collect(),
            balanced: packets == endpoint.packets_in
                && met == begun
                && rdma_cm.is_none_or(|counts| counts.requests.is_balanced()),
            queue_pairs,
            endpoint,
            control,
            memory: account,
            rdma_cm,
            cpu: CpuTime::now(),
        }
    }
}

impl Report {
    /// Whether everything adds up.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// One line while it runs.
    pub fn line(&self) -> String {
        let region = |region: &Region| {
            let usage = region.usage?;
            let bytes = format_bytes(usage.bytes_in + usage.bytes_out);
            Some(format!("{}: {} operations, {bytes}", region.state.name, operations(&usage)))
        };
        let refused: u64 = self.queue_pairs.refused.values().chain(self.endpoint.refused.values()).sum();
        let regions: Vec<_> = self.regions.iter().filter_map(region).collect();
        format!("{} initiators; {}; {refused} refused", self.initiators.len(), regions.join("; "))
    }
}

impl Rows for Report {
    fn rows(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        for region in &self.regions {
            let Some(usage) = region.usage else {
                rows.push((format!("region {}", region.state.name), "not known to the target (shm)".into()));
                continue;
            };
            let words = |count: u64, bytes: u64| format!("{count} ({})", format_bytes(bytes));
            rows.push((format!("region {}: writes", region.state.name), words(usage.writes, usage.bytes_in)));
            rows.push((format!("region {}: reads", region.state.name), words(usage.reads, usage.bytes_out)));
            if usage.atomics > 0 {
                rows.push((format!("region {}: atomic operations", region.state.name), usage.atomics.to_string()));
            }
        }
        for (cause, count) in self.queue_pairs.refused.iter().chain(&self.endpoint.refused) {
            rows.push((format!("refused: {cause}"), count.to_string()));
        }
        let Counts { welcomed, wrong_token, wrong_version, malformed, slow, displaced, full, hung_up, .. } =
            self.control;
        rows.push(("initiators".into(), welcomed.to_string()));
        let doors = [
            ("wrong token", wrong_token),
            ("wrong version", wrong_version),
            ("malformed", malformed),
            ("slow", slow),
            ("displaced", displaced),
            ("too many", full),
            ("hung up before the token", hung_up),
        ];
        for (cause, count) in doors.into_iter().filter(|(_, count)| *count > 0) {
            rows.push((format!("connections turned away: {cause}"), count.to_string()));
        }
        let guests = self.rdma_cm.map(|counts| (counts.requests, counts.crowded, counts.silent));
        if let Some((requests, crowded, silent)) = guests {
            let rdma_cm::Counts { established, no_service, no_resources, rejected, displaced, unconfirmed, .. } =
                requests;
            rows.push(("guests (--rdma-cm)".into(), established.to_string()));
            let causes = [
                ("guests turned away: no such program", no_service),
                ("guests turned away: no room", no_resources),
                ("guests turned away: the address holds places already", crowded),
                ("guests turned away: refused", rejected),
                ("guests turned away: made room for newer ones", displaced),
                ("guests turned away: never confirmed", unconfirmed),
                ("guests turned away: too many at once", requests.unanswered),
                ("guests given up: silent", silent),
                ("connection manager: not a message", requests.malformed),
                ("connection manager: of no connection", requests.stray),
                ("connection manager: answers not sent", requests.unsent),
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
            ("packets sent again", self.queue_pairs.retransmitted),
            ("time-outs", self.queue_pairs.timeouts),
            ("packets copied before they were sealed", self.endpoint.packets_copied),
        ];
        rows.extend(
            again.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| (what.into(), count.to_string())),
        );
        rows.push(("processor".into(), format!("{:.2} s of {:.2} s", self.cpu.total(), self.seconds)));
        rows.push(("counters".into(), if self.balanced { "balance" } else { "DO NOT BALANCE" }.into()));
        rows
    }
}

/// What happened at the door, counted.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct GuestCounts {
    /// Requests for connections.
    #[serde(flatten)]
    pub requests: rdma_cm::Counts,
    /// Turned away because the address holds a place already and few are left, or because another took the last one.
    pub crowded: u64,
    /// Of those established: they were given up because they did not answer any more.
    pub silent: u64,
}
