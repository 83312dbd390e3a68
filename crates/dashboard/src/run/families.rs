//! The metrics of a run: the counters that its recording stores, under the same names.

use crate::status::{Family, FamilyKind, Rate, Sample, Text};
use shotline_acquire::live::{Details, LiveCounters};
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::StreamRunCounters;
use shotline_wire::shot::{DropCause, DropCounters};

/// Returns all metrics of a run.
pub(super) fn of_run(reading: &LiveCounters, details: Option<&Details>) -> Vec<Family> {
    let mut families = vec![
        Family {
            unit: Some("bytes"),
            rate: Some(Rate { label: "Payload", unit: "Gbit/s", factor: 8e-9 }),
            ..counter("payload", "Payload bytes in their destinations", reading.bytes)
        },
        counter("rows", "Rows that readers of the file see", reading.rows),
    ];
    let Some(details) = details else { return families };
    let streams = &details.counters.streams;
    let each = |value: fn(&StreamRunCounters) -> u64| {
        streams.iter().map(move |stream| sample(stream_labels(stream), value(stream))).collect::<Vec<_>>()
    };
    let of_links = |value: fn(&StreamRunCounters) -> u64| {
        let links = streams.iter().filter(|stream| stream.stream != WHOLE_RUN);
        links.map(move |stream| sample(stream_labels(stream), value(stream))).collect::<Vec<_>>()
    };
    families.extend([
        Family {
            samples: each(|stream| stream.packets_in),
            rate: Some(Rate { label: "Packets", unit: "packets/s", factor: 1.0 }),
            ..family("packets_received", "Packets that arrived", FamilyKind::Counter)
        },
        Family {
            samples: of_links(|stream| stream.packets_placed),
            ..family("packets_placed", "Packets whose payload is in its shot", FamilyKind::Counter)
        },
        dropped("packets_dropped", "Packets that were dropped, by cause", streams, |stream| &stream.packet_drops),
        Family {
            samples: of_links(|stream| stream.shots_seen),
            rate: Some(Rate { label: "Shots", unit: "shots/s", factor: 1.0 }),
            ..family(
                "shots_seen",
                "Shots that were closed, whether any of their packets arrived or not",
                FamilyKind::Counter,
            )
        },
        // Not counters: a shot that the recorder discards later is moved to the dropped ones.
        Family {
            samples: of_links(|stream| stream.shots_complete),
            ..family("shots_complete", "Shots with every packet and a valid trailer", FamilyKind::Gauge)
        },
        Family {
            samples: of_links(|stream| stream.shots_partial),
            is_loss: true,
            ..family("shots_partial", "Shots with packets missing or a wrong trailer", FamilyKind::Gauge)
        },
        dropped("shots_dropped", "Shots that are not in the file, by cause", streams, |stream| &stream.shot_drops),
        gauge("pool_slots", "Shot buffers of the pool", details.pool.1 as f64),
        gauge("pool_slots_free", "Shot buffers of the pool that are free", details.pool.0 as f64),
        gauge("clock_locked", "1 if the receiver's clock follows a reference", u8::from(details.clock.locked).into()),
        Family {
            unit: Some("seconds"),
            ..gauge(
                "clock_max_error",
                "Upper bound of the clock's error; 0 if unknown",
                details.clock.max_error_ns as f64 / 1e9,
            )
        },
    ]);
    add_more(&mut families, streams);
    families
}

/// Adds the further counters, which are named in the recording only. Percentiles of latencies are no counters: the
/// histograms have them.
fn add_more(families: &mut Vec<Family>, streams: &[StreamRunCounters]) {
    for stream in streams {
        for (name, value) in stream.more.iter().filter(|(name, _)| !name.starts_with("latency_")) {
            let sample = sample(stream_labels(stream), *value);
            match families.iter_mut().find(|family| family.name == *name) {
                Some(family) => family.samples.push(sample),
                None => {
                    let help = format!("Counter {name} of the recording");
                    let kind = if name.ends_with("_ns") { FamilyKind::Gauge } else { FamilyKind::Counter };
                    let is_loss = name.starts_with("device_");
                    families.push(Family { samples: vec![sample], is_loss, ..family(name.clone(), help, kind) });
                }
            }
        }
    }
}

fn family(name: impl Into<Text>, help: impl Into<Text>, kind: FamilyKind) -> Family {
    Family { name: name.into(), help: help.into(), kind, unit: None, rate: None, is_loss: false, samples: Vec::new() }
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Family {
    Family { samples: vec![sample(Vec::new(), value)], ..family(name, help, FamilyKind::Counter) }
}

fn gauge(name: &'static str, help: &'static str, value: f64) -> Family {
    Family { samples: vec![Sample { labels: Vec::new(), value }], ..family(name, help, FamilyKind::Gauge) }
}

/// Returns the counters of every cause: an alert must find them at 0 before the first loss.
fn dropped(
    name: &'static str,
    help: &'static str,
    streams: &[StreamRunCounters],
    drops: fn(&StreamRunCounters) -> &DropCounters,
) -> Family {
    let samples = streams.iter().flat_map(|stream| {
        DropCause::ALL.into_iter().map(move |cause| {
            let mut labels = stream_labels(stream);
            labels.push(("cause", cause.name().to_owned()));
            sample(labels, drops(stream).get(cause))
        })
    });
    Family { samples: samples.collect(), is_loss: true, ..family(name, help, FamilyKind::Counter) }
}

fn sample(labels: Vec<(&'static str, String)>, count: u64) -> Sample {
    Sample { labels, value: count as f64 }
}

/// Packets that belong to no stream have the stream `none`.
fn stream_labels(stream: &StreamRunCounters) -> Vec<(&'static str, String)> {
    let name = if stream.stream == WHOLE_RUN { "none".to_owned() } else { stream.stream.to_string() };
    vec![("stream", name)]
}
