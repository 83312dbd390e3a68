//! Counters of a run in the form that recordings store.

use crate::align::EventCounters;
use crate::counters::StreamCounters;
use crate::latency::Latency;
use crate::live::{AlignmentStatus, LinkStatus};
use crate::receiver::Receiver;
use crate::stream::StreamConfig;
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::StreamRunCounters;
use shotline_transport::PacketIo;

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
        // Other names than `packets_CAUSE`, whose sum is all packets that were dropped.
        more: [
            ("missing_packets", counters.packets_missing),
            ("repaired_packets", counters.repaired),
            ("icrc_good", counters.icrc_good),
            ("icrc_solved", counters.icrc_solved),
            ("icrc_device", counters.icrc_device),
            ("icrc_unverified", counters.icrc_unverified),
            ("sender_restarts", counters.restarts),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .to_vec(),
    };
    let mut all = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        let (mut stored, times) = (stored(config.stream, receiver.counters(index)), receiver.latencies(index));
        stored.more.extend(latencies("latency_from_sender", &times.from_sender));
        stored.more.extend(latencies("latency_from_kernel", &times.from_kernel));
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
        whole.more.extend((status.window_ns > 0).then(|| ("align_window_ns".to_owned(), status.window_ns)));
        let counts = [
            ("events_complete", complete),
            ("events_incomplete", partial),
            ("events_below_quorum", dropped),
            ("events_forced", forced),
            ("events_expired", expired),
        ];
        whole.more.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    }
    all.push(whole);
    shotline_store::shot::RunCounters { streams: all }
}

/// Returns the alignment counters of a link.
fn alignment_counters(link: &LinkStatus) -> [(String, u64); 3] {
    let counters = &link.counters;
    [("events_missed", counters.missing), ("link_stops", counters.stops), ("link_rejoins", counters.rejoins)]
        .map(|(name, count)| (name.to_owned(), count))
}

/// Returns the latencies of complete shots.
fn latencies(name: &str, latency: &Latency) -> Vec<(String, u64)> {
    let mut entries = vec![("shots", latency.count())];
    if latency.count() > 0 {
        entries.extend([
            ("min_ns", latency.min_ns()),
            ("p50_ns", latency.percentile_ns(0.5)),
            ("p99_ns", latency.percentile_ns(0.99)),
            ("max_ns", latency.max_ns()),
        ]);
    }
    if latency.negative > 0 {
        entries.push(("negative", latency.negative));
    }
    entries.into_iter().map(|(what, value)| (format!("{name}_{what}"), value)).collect()
}
