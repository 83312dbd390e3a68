//! The metrics of a run.

use super::catalogue::{self, Metric};
use crate::progress;
use crate::status::{Family, FamilyKind, Level, Phase, Rate, Sample};
use shotline_acquire::align::LinkStatus;
use shotline_acquire::live::{Details, Live, LiveCounters};
use shotline_acquire::run::Cause;
use shotline_acquire::stages::Reading;
use shotline_store::recorder::WHOLE_RUN;
use shotline_store::shot::StreamRunCounters;
use shotline_wire::shot::{DropCause, DropCounters};

/// Returns all metrics of a run.
pub(super) fn of_run(reading: &LiveCounters, details: Option<&Details>) -> Vec<Family> {
    let mut families = vec![
        Family {
            unit: Some("bytes"),
            rate: Some(Rate { label: "Payload", unit: "Gbit/s", factor: 8e-9 }),
            ..Family::counter("payload", "Payload bytes in their destinations", reading.bytes)
        },
        Family::counter("rows", "Rows that readers of the file see", reading.rows),
    ];
    let Some(details) = details else { return families };
    let streams = &details.counters.streams;
    let each = |value: fn(&StreamRunCounters) -> u64| {
        streams.iter().map(move |stream| Sample::count(stream_labels(stream), value(stream))).collect::<Vec<_>>()
    };
    let of_links = |value: fn(&StreamRunCounters) -> u64| {
        let links = streams.iter().filter(|stream| stream.stream != WHOLE_RUN);
        links.map(move |stream| Sample::count(stream_labels(stream), value(stream))).collect::<Vec<_>>()
    };
    families.extend([
        Family {
            samples: each(|stream| stream.packets_in),
            rate: Some(Rate { label: "Packets", unit: "packets/s", factor: 1.0 }),
            ..Family::new("packets_received", "Packets that arrived", FamilyKind::Counter)
        },
        Family {
            samples: of_links(|stream| stream.packets_placed),
            ..Family::new("packets_placed", "Packets whose payload is in its shot", FamilyKind::Counter)
        },
        Family {
            samples: of_links(|stream| stream.shots_seen),
            rate: Some(Rate { label: "Shots", unit: "shots/s", factor: 1.0 }),
            ..Family::new(
                "shots_seen",
                "Shots that were closed, whether any of their packets arrived or not",
                FamilyKind::Counter,
            )
        },
        // Not counters: a shot that the recorder discards later is moved to the dropped ones.
        Family {
            samples: of_links(|stream| stream.shots_complete),
            ..Family::new("shots_complete", "Shots with every packet and a valid trailer", FamilyKind::Gauge)
        },
        Family {
            samples: of_links(|stream| stream.shots_partial),
            is_loss: true,
            ..Family::new("shots_partial", "Shots with packets missing or a wrong trailer", FamilyKind::Gauge)
        },
        Family::gauge("pool_slots", "Shot buffers of the pool", details.pool.1 as f64),
        Family::gauge("pool_slots_free", "Shot buffers of the pool that are free", details.pool.0 as f64),
        Family::gauge(
            "clock_locked",
            "1 if the receiver's clock follows a reference",
            u8::from(details.clock.locked).into(),
        ),
        Family {
            unit: Some("seconds"),
            ..Family::gauge(
                "clock_max_error",
                "Upper bound of the clock's error; 0 if unknown",
                details.clock.max_error_ns as f64 / 1e9,
            )
        },
    ]);
    let packets = "Packets that were dropped, by cause";
    families.extend(dropped("packets_dropped", packets, streams, |stream| &stream.packet_drops));
    let shots = "Shots that are not in the file, by cause";
    families.extend(dropped("shots_dropped", shots, streams, |stream| &stream.shot_drops));
    add_more(&mut families, streams);
    families
}

/// Adds the further counters, which are named in the recording only.
fn add_more(families: &mut Vec<Family>, streams: &[StreamRunCounters]) {
    for stream in streams {
        for (stored, value) in &stream.more {
            let Some((metric, label)) = catalogue::metric(stored) else { continue };
            let Metric { name, help, kind, unit, scale, is_loss } = metric;
            let labels = label.map(|(label, value)| (label, value.to_owned()));
            let labels = stream_labels(stream).into_iter().chain(labels).collect();
            let sample = Sample { labels, value: *value as f64 * scale };
            match families.iter_mut().find(|family| family.name == name) {
                Some(family) => family.samples.push(sample),
                None => families.push(Family { samples: vec![sample], unit, is_loss, ..Family::new(name, help, kind) }),
            }
        }
    }
}

/// Returns the metrics of a run's progress and end. The end has a value for each cause, so that an alert finds it at 0
/// before.
pub(super) fn of_progress(live: &Live, phase: Phase, progress: Option<f64>, seconds: f64) -> Vec<Family> {
    let end = live.end().and_then(|end| end.as_ref().ok());
    let cause = |name: &'static str, is_it: bool| Sample::count(vec![("cause", name.to_owned())], is_it.into());
    let failed = live.end().is_some_and(Result::is_err);
    let causes = Cause::ALL.into_iter().map(|each| cause(each.name(), end.is_some_and(|end| end.cause == each)));
    let duration = end.map_or(seconds, |end| end.after_s);
    let mut families = progress::families(phase, progress, duration);
    families.extend([
        Family {
            samples: causes.collect(),
            ..Family::new("run_end", "1 for the cause for which the run has ended, 0 for the others", FamilyKind::Gauge)
        },
        Family::gauge(
            "run_ended_early",
            "1 if the run was cut off before its requested end",
            u8::from(failed || end.is_some_and(|end| end.early)).into(),
        ),
        Family::counter("triggers", "Triggers of a pre-trigger capture", live.triggers()),
    ]);
    families
}

/// Returns the metrics of the stages. Their time is a counter, whose rate is the load of the last minutes.
pub(super) fn of_stages(readings: &[Reading]) -> Vec<Family> {
    let states = |reading: &Reading| {
        let Reading { stage, busy, starved, stalled, seconds, .. } = *reading;
        [("busy", busy), ("starved", starved), ("stalled", stalled)].map(|(state, part)| Sample {
            labels: vec![("stage", stage.to_owned()), ("state", state.to_owned())],
            value: part * seconds,
        })
    };
    let bytes = |reading: &Reading| {
        let labels = vec![("stage", reading.stage.to_owned())];
        Sample { labels, value: (reading.gbps * reading.seconds / 8e-9).round() }
    };
    vec![
        Family {
            unit: Some("seconds"),
            samples: readings.iter().flat_map(states).collect(),
            ..Family::new(
                "stage",
                "Time of each stage: busy, starved (without input) or stalled (without space for output)",
                FamilyKind::Counter,
            )
        },
        Family {
            unit: Some("bytes"),
            samples: readings.iter().map(bytes).collect(),
            ..Family::new("stage_passed", "Bytes that have passed each stage", FamilyKind::Counter)
        },
    ]
}

/// Returns the metrics of the links' clocks, and whether packets arrive from them.
pub(super) fn of_links(links: &[LinkStatus]) -> Vec<Family> {
    let each = |value: fn(&LinkStatus) -> Option<f64>| {
        let sample = |(index, value)| Sample { labels: vec![("link", format!("{index}"))], value };
        let values = links.iter().enumerate().filter_map(|(index, link)| Some((index, value(link)?)));
        values.map(sample).collect::<Vec<_>>()
    };
    let families = [
        Family::new("link_stopped", "1 if nothing arrives from the link any more", FamilyKind::Gauge),
        Family::new("link_clock_locked", "1 if the offset of the link's clock is known and stable", FamilyKind::Gauge),
        Family {
            unit: Some("seconds"),
            ..Family::new(
                "link_clock_offset",
                "Lead of the link's clock over the reference; of the first link over the receiver's clock",
                FamilyKind::Gauge,
            )
        },
    ];
    // Clocks of links are compared only if there are several.
    let values = [
        each(|link| Some(u8::from(link.stopped).into())),
        each(|link| (link.clock.at_ns > 0).then(|| u8::from(link.clock.locked).into())),
        each(|link| (link.clock.at_ns > 0).then(|| link.clock.offset_ns as f64 / 1e9)),
    ];
    let families = families.into_iter().zip(values).map(|(family, samples)| Family { samples, ..family });
    families.filter(|family| !family.samples.is_empty()).collect()
}

/// Returns the metrics of the drives, each with its folder.
pub(super) fn of_drives(drives: &[(String, Level)]) -> Vec<Family> {
    let each = |value: fn(&Level) -> f64| {
        let sample = |(folder, level): &(String, Level)| Sample {
            labels: vec![("folder", folder.clone())],
            value: value(level),
        };
        drives.iter().map(sample).collect::<Vec<_>>()
    };
    let bytes =
        |name, help, samples| Family { unit: Some("bytes"), samples, ..Family::new(name, help, FamilyKind::Gauge) };
    if drives.is_empty() {
        return Vec::new();
    }
    vec![
        bytes("drive_size", "Size of the file system that is recorded to", each(|level| level.capacity)),
        bytes("drive_free", "Free space of the file system that is recorded to", each(|l| l.capacity - l.used)),
    ]
}

/// Returns the counters of every cause: an alert must find them at 0 before the first loss. Causes by which nothing is
/// lost are apart, in a second family of the same name.
fn dropped(
    name: &'static str,
    help: &'static str,
    streams: &[StreamRunCounters],
    drops: fn(&StreamRunCounters) -> &DropCounters,
) -> [Family; 2] {
    [true, false].map(|is_loss| {
        let causes = || DropCause::ALL.into_iter().filter(|cause| cause.is_loss() == is_loss);
        let samples = streams.iter().flat_map(|stream| {
            causes().map(move |cause| {
                let mut labels = stream_labels(stream);
                labels.push(("cause", cause.name().to_owned()));
                Sample::count(labels, drops(stream).get(cause))
            })
        });
        Family { samples: samples.collect(), is_loss, ..Family::new(name, help, FamilyKind::Counter) }
    })
}

/// Packets that belong to no stream have the stream `none`.
fn stream_labels(stream: &StreamRunCounters) -> Vec<(&'static str, String)> {
    let name = if stream.stream == WHOLE_RUN { "none".to_owned() } else { stream.stream.to_string() };
    vec![("stream", name)]
}
