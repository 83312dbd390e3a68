//! What the page of a target shows.

use super::report::Report;
use crate::link;
use crate::serve::metrics::numbers;
use shotline_dashboard::status::{Family, FamilyKind, Phase, Rate, Sample, Status, Table};
use shotline_memory::{RegistrationCounters, format_bytes};
use shotline_verbs::cm::{QueuePairState, operations};
use std::collections::BTreeMap;

/// Returns the state of a target.
pub(super) fn status(report: &Report) -> Status {
    let phase = if report.initiators.is_empty() { Phase::Waiting } else { Phase::Running };
    let families = families(report).into_iter().filter(|family| !family.samples.is_empty()).collect();
    Status { phase, families, tables: tables(report), ..Status::default() }
}

fn tables(report: &Report) -> Vec<Table> {
    let tables = [regions(report), initiators(report), queue_pairs(report)].into_iter();
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn families(report: &Report) -> Vec<Family> {
    let Report { queue_pairs, endpoint, control, memory, initiators, .. } = report;
    let mut families = regions_used(report);
    families.extend([
        Family {
            rate: Some(Rate { label: "Packets in", unit: "packets/s", factor: 1.0 }),
            ..Family::counter("packets_received", "Packets that arrived", endpoint.packets_in)
        },
        Family {
            rate: Some(Rate { label: "Packets out", unit: "packets/s", factor: 1.0 }),
            ..Family::counter("packets_sent", "Packets that were sent", endpoint.packets_out)
        },
        Family::counter("packets_retransmitted", "Packets that were sent again", queue_pairs.retransmitted),
        Family::counter("acknowledgement_timeouts", "Acknowledgements that did not come in time", queue_pairs.timeouts),
        dropped(&[&queue_pairs.drops, &endpoint.drops]),
        Family::gauge("initiators", "Connected initiators", initiators.len() as f64),
        Family::counter("initiators_welcomed", "Initiators that were welcomed", control.welcomed),
        Family {
            samples: [
                ("wrong_token", control.wrong_token),
                ("wrong_version", control.wrong_version),
                ("malformed", control.malformed),
                ("slow", control.slow),
                ("displaced", control.displaced),
                ("too_many", control.full),
                ("closed_by_peer", control.closed_by_peer),
            ]
            .map(|(cause, count)| Sample::count(vec![("cause", cause.to_owned())], count))
            .to_vec(),
            ..Family::new("connections_rejected", "Control connections that were not welcomed", FamilyKind::Counter)
        },
        Family::counter("memory_refused", "Requests for memory that were refused", memory.refused),
    ]);
    families.push(Family::counter(
        "packets_copied",
        "Packets that were copied before they were sealed",
        endpoint.packets_copied,
    ));
    families.extend(report.rdma_cm.as_ref().map(|counters| Family {
        samples:
            numbers(counters).into_iter().map(|(event, count)| Sample::count(vec![("event", event)], count)).collect(),
        ..Family::new(
            "rdma_cm_events",
            "Requests to the connection manager and what became of them, by event",
            FamilyKind::Counter,
        )
    }));
    // Its packets are those of the target.
    let of_links = report.spacefibre.iter().flat_map(link::page::families);
    families.extend(of_links.filter(|family| family.name.starts_with("link")));
    families
}

fn regions_used(report: &Report) -> Vec<Family> {
    let each = |direction: &'static str, value: fn(&RegistrationCounters) -> u64| {
        let regions = report.regions.iter().filter_map(|region| Some((&region.state.name, region.usage.as_ref()?)));
        regions.map(move |(name, usage)| {
            Sample::count(vec![("region", name.to_string()), ("operation", direction.to_owned())], value(usage))
        })
    };
    let bytes = each("write", |usage| usage.bytes_in).chain(each("read", |usage| usage.bytes_out));
    let operations = each("write", |usage| usage.writes)
        .chain(each("read", |usage| usage.reads))
        .chain(each("atomic", |usage| usage.atomics));
    vec![
        Family {
            unit: Some("bytes"),
            rate: Some(Rate { label: "Memory", unit: "Gbit/s", factor: 8e-9 }),
            samples: bytes.collect(),
            ..Family::new("region_passed", "Bytes that initiators have written and read", FamilyKind::Counter)
        },
        Family {
            rate: Some(Rate { label: "Operations", unit: "operations/s", factor: 1.0 }),
            samples: operations.collect(),
            ..Family::new("region_operations", "Operations of initiators", FamilyKind::Counter)
        },
    ]
}

/// Returns the dropped packets, which reliable services repeat: they are no losses of data, unlike those of a recorder,
/// which have another name.
fn dropped(drops: &[&BTreeMap<&'static str, u64>]) -> Family {
    let mut sums = BTreeMap::new();
    for (cause, count) in drops.iter().copied().flatten() {
        *sums.entry(*cause).or_insert(0) += count;
    }
    let samples = sums.into_iter().map(|(cause, count)| Sample::count(vec![("cause", cause.to_owned())], count));
    Family {
        samples: samples.collect(),
        ..Family::new("rdma_packets_dropped", "Packets that no queue pair has accepted, by cause", FamilyKind::Counter)
    }
}

fn idle(seconds: Option<f64>) -> String {
    seconds.map_or("-".into(), |seconds| format!("{seconds:.1} s"))
}

fn regions(report: &Report) -> Table {
    let columns = ["region", "size", "rights", "writes", "reads", "atomics", "idle"];
    let rows = report.regions.iter().map(|region| {
        let state = &region.state;
        let counts = region.usage.map_or(["-".into(), "-".into(), "-".into()], |usage| {
            [usage.writes, usage.reads, usage.atomics].map(|count| count.to_string())
        });
        let [writes, reads, atomics] = counts;
        let size = format_bytes(state.bytes);
        vec![state.name.to_string(), size, state.rights.into(), writes, reads, atomics, idle(region.idle_s)]
    });
    Table { title: "Regions".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}

fn initiators(report: &Report) -> Table {
    let columns = ["initiator", "address", "queue pairs", "operations", "packets in", "packets out", "idle"];
    let rows = report.initiators.iter().map(|initiator| {
        let state = &initiator.state;
        let sum = state.regions.as_ref().map(|regions| regions.iter().map(operations).sum::<u64>());
        vec![
            state.session.to_string(),
            state.address.map_or("this machine".into(), |address| address.to_string()),
            state.queue_pairs.to_string(),
            sum.map_or("-".into(), |sum| sum.to_string()),
            state.counters.packets_in.to_string(),
            state.counters.packets_out.to_string(),
            idle(initiator.idle_s),
        ]
    });
    Table { title: "Initiators".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}

fn queue_pairs(report: &Report) -> Table {
    let columns =
        ["queue pair", "initiator", "service", "state", "peer", "packets in", "packets out", "repeated", "dropped"];
    let rows = report.initiators.iter().flat_map(|initiator| {
        initiator.state.pairs.iter().map(|QueuePairState { number, service, peer, state, counters }| {
            vec![
                format!("{number:#08x}"),
                initiator.state.session.to_string(),
                service.to_string(),
                state.map_or("-".into(), |state| state.to_string()),
                peer.map_or("-".into(), |peer| format!("{peer:#08x}")),
                counters.packets_in.to_string(),
                counters.packets_out.to_string(),
                counters.retransmitted.to_string(),
                counters.drops.values().sum::<u64>().to_string(),
            ]
        })
    });
    Table { title: "Queue pairs".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}
