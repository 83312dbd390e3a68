//! Counters of a run in the form that recordings store.

use crate::align::EventCounters;
use crate::align::{AlignmentStatus, LinkStatus};
use crate::counters::StreamCounters;
use crate::latency::Latency;
use crate::receiver::Receiver;
use crate::stream::StreamConfig;
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::StreamRunCounters;
use shotline_transport::{DeviceCounters, PacketIo};

/// Counters of each stream. Other names than `packets_CAUSE`, whose sum is all packets that were dropped.
const OF_STREAM: [&str; 7] = [
    "missing_packets",
    "repaired_packets",
    "icrc_good",
    "icrc_solved",
    "icrc_device",
    "icrc_unverified",
    "sender_restarts",
];
/// Counters of each link of an aligned run.
const OF_LINK: [&str; 3] = ["events_missed", "link_stops", "link_rejoins"];
/// Counters of the events of an aligned run.
const OF_EVENTS: [&str; 5] =
    ["events_complete", "events_incomplete", "events_below_quorum", "events_forced", "events_expired"];
const ALIGN_WINDOW: &str = "align_window_ns";
/// Prefixes of the latencies of complete shots.
const LATENCIES: [&str; 2] = ["latency_from_sender", "latency_from_kernel"];
/// What is stored of each latency: number of shots, quantiles, and shots without a latency.
const OF_LATENCY: [&str; 6] = ["shots", "min_ns", "p50_ns", "p99_ns", "max_ns", "negative"];

/// Returns the names of all counters that a run can store besides those with a field of their own
/// ([`StreamRunCounters::more`]), with one example of those that a device names (`counter_`).
pub fn stored_counter_names() -> Vec<String> {
    let plain =
        OF_STREAM.iter().chain(&OF_LINK).chain(&OF_EVENTS).chain([&ALIGN_WINDOW]).map(|name| (*name).to_owned());
    let latencies = LATENCIES.iter().flat_map(|name| OF_LATENCY.map(|what| format!("{name}_{what}")));
    let device = DeviceCounters::default().causes().map(|(cause, _)| format!("device_{cause}"));
    plain.chain(latencies).chain(device).chain(["counter_rx_packets".to_owned()]).collect()
}

fn named<const N: usize>(names: [&str; N], counts: [u64; N]) -> impl Iterator<Item = (String, u64)> {
    names.map(str::to_owned).into_iter().zip(counts)
}

/// Returns the counters of a receiver, and those of the alignment of its links.
pub(super) fn stored_counters<P: PacketIo>(
    receiver: &mut Receiver<P>,
    configs: &[StreamConfig],
    status: &AlignmentStatus,
) -> shotline_store::shot::RunCounters {
    let (device, counters) = (receiver.io().device_counters(), receiver.io().counters());
    let stored = |stream: u32, counters: &StreamCounters| StreamRunCounters {
        stream,
        packets_in: counters.packets,
        packets_placed: counters.placed,
        packet_drops: counters.packet_drops,
        shots_seen: counters.shots,
        shots_complete: counters.complete,
        shots_partial: counters.partial,
        shot_drops: counters.shot_drops,
        more: named(
            OF_STREAM,
            [
                counters.packets_missing,
                counters.repaired,
                counters.icrc_good,
                counters.icrc_solved,
                counters.icrc_device,
                counters.icrc_unverified,
                counters.restarts,
            ],
        )
        .collect(),
    };
    let mut all = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let (mut stored, times) = (stored(config.stream, receiver.counters(index)), receiver.latencies(index));
        for (name, latency) in LATENCIES.into_iter().zip([&times.from_sender, &times.from_kernel]) {
            stored.more.extend(latencies(name, latency));
        }
        stored.more.extend(
            status.links.get(index).filter(|_| configs.len() > 1).map(alignment_counters).into_iter().flatten(),
        );
        all.push(stored);
    }
    let mut whole = stored(WHOLE_RUN, receiver.unknown());
    let lost = device.causes().into_iter().filter(|(_, count)| *count > 0);
    whole.more.extend(lost.map(|(cause, count)| (format!("device_{cause}"), count)));
    whole.more.extend(counters.iter().map(|(name, count)| (format!("counter_{name}"), *count)));
    if configs.len() > 1 {
        let EventCounters { complete, partial, dropped, forced, expired, .. } = status.events;
        whole.more.extend((status.window_ns > 0).then(|| (ALIGN_WINDOW.to_owned(), status.window_ns)));
        whole.more.extend(named(OF_EVENTS, [complete, partial, dropped, forced, expired]));
    }
    all.push(whole);
    shotline_store::shot::RunCounters { streams: all }
}

/// Returns the alignment counters of a link.
fn alignment_counters(link: &LinkStatus) -> impl Iterator<Item = (String, u64)> + use<> {
    let counters = &link.counters;
    named(OF_LINK, [counters.missing, counters.stops, counters.rejoins])
}

/// Returns the latencies of complete shots.
fn latencies(name: &str, latency: &Latency) -> Vec<(String, u64)> {
    let quantile = |fraction| latency.percentile_ns(fraction);
    let values = [latency.count(), latency.min_ns(), quantile(0.5), quantile(0.99), latency.max_ns(), latency.negative];
    let is_stored = |what: &str| match what {
        "shots" => true,
        "negative" => latency.negative > 0,
        _ => latency.count() > 0,
    };
    let stored = OF_LATENCY.into_iter().zip(values).filter(|(what, _)| is_stored(what));
    stored.map(|(what, value)| (format!("{name}_{what}"), value)).collect()
}
