//! The metrics of counters that a recording stores by name only.

use crate::status::FamilyKind::{self, Counter, Gauge};

/// How a stored counter is exported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    /// Name without the prefix, the unit and the suffix.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: FamilyKind,
    pub unit: Option<&'static str>,
    /// Value of the metric for a count of 1.
    pub scale: f64,
    pub is_loss: bool,
}

const COUNTER: Metric = Metric { name: "", help: "", kind: Counter, unit: None, scale: 1.0, is_loss: false };

/// Returns the metric of a stored counter, with a label if one metric has several counters; none if a histogram has
/// what it says, or the name is unknown.
pub(super) fn metric(stored: &str) -> Option<(Metric, Option<(&'static str, &str)>)> {
    let counter = |name, help| Metric { name, help, ..COUNTER };
    let icrc =
        "Packets by the result of the check of their invariant CRC; those that do not match are dropped as bad_icrc";
    let events = "Events of several links by result; below_quorum ones are not recorded";
    let behind = "Shots without a latency because the sender's clock is ahead of the receiver's";
    let (metric, label) = match stored {
        "missing_packets" => (
            Metric { is_loss: true, ..counter("packets_missing", "Packets that closed shots lack, for any reason") },
            None,
        ),
        "repaired_packets" => {
            (counter("packets_repaired", "Packets whose payload was moved to its offset after the copy"), None)
        }
        "icrc_good" => (counter("icrc_checks", icrc), Some(("result", "good"))),
        "icrc_solved" => (counter("icrc_checks", icrc), Some(("result", "solved"))),
        "icrc_device" => (counter("icrc_checks", icrc), Some(("result", "device"))),
        "icrc_unverified" => (counter("icrc_checks", icrc), Some(("result", "unverified"))),
        "sender_restarts" => (counter("sender_restarts", "Restarts of the sender's shot count"), None),
        "latency_from_sender_negative" => (counter("shots_clock_ahead", behind), Some(("from", "sender"))),
        "latency_from_kernel_negative" => (counter("shots_clock_ahead", behind), Some(("from", "kernel"))),
        "events_complete" => (counter("events", events), Some(("result", "complete"))),
        "events_incomplete" => (counter("events", events), Some(("result", "incomplete"))),
        "events_below_quorum" => (counter("events", events), Some(("result", "below_quorum"))),
        "events_forced" => {
            (counter("events_forced", "Events that were decided early because too many were undecided"), None)
        }
        "events_expired" => {
            (counter("events_expired", "Events that were decided without a link whose shot did not come in time"), None)
        }
        "events_missed" => (counter("link_events_missed", "Events without a shot of this link"), None),
        "link_stops" => (counter("link_stops", "Times that nothing arrived from the link any more"), None),
        "link_rejoins" => (counter("link_rejoins", "Times that a silent link came back"), None),
        "align_window_ns" => (
            Metric {
                kind: Gauge,
                unit: Some("seconds"),
                scale: 1e-9,
                ..counter("align_window", "Largest difference between the stamps of one event")
            },
            None,
        ),
        _ => match stored.strip_prefix("device_") {
            Some(cause) => {
                let help = "Packets that the device or its driver dropped, by the device's name of the cause";
                (Metric { is_loss: true, ..counter("device_drops", help) }, Some(("cause", cause)))
            }
            None => {
                let name = stored.strip_prefix("counter_")?;
                let help = "Increments of the device's own counters, with the traffic of its other users";
                (counter("device_events", help), Some(("counter", name)))
            }
        },
    };
    Some((metric, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_acquire::run::stored_counter_names;
    use std::collections::BTreeMap;

    /// Returns `true` for counters whose content the histograms of latencies have.
    fn is_in_histogram(stored: &str) -> bool {
        ["latency_from_sender_", "latency_from_kernel_"].iter().any(|prefix| {
            stored
                .strip_prefix(prefix)
                .is_some_and(|what| matches!(what, "shots" | "min_ns" | "p50_ns" | "p99_ns" | "max_ns"))
        })
    }

    #[test]
    fn every_stored_counter_has_a_metric_with_help() {
        let mut helps = BTreeMap::new();
        let names = stored_counter_names();
        assert!(names.len() > 25);
        for stored in &names {
            match metric(stored) {
                None => assert!(is_in_histogram(stored), "{stored} is exported nowhere"),
                Some((metric, label)) => {
                    assert!(!is_in_histogram(stored), "{stored} is exported twice");
                    assert!(metric.help.len() > 20 && !metric.help.ends_with('.'), "{stored}: {}", metric.help);
                    assert!(!metric.name.ends_with("_total") && !metric.name.contains("_ns"), "{}", metric.name);
                    let labels = helps.entry(metric.name).or_insert((metric.help, Vec::new()));
                    assert_eq!(labels.0, metric.help, "{}: one help", metric.name);
                    assert!(!labels.1.contains(&label.map(|(_, value)| value)), "{stored}: a label of its own");
                    labels.1.push(label.map(|(_, value)| value));
                }
            }
        }
        assert!(metric("unheard_of").is_none());
    }
}
