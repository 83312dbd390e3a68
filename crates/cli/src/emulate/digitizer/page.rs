//! What the page of emulated digitizers shows.

use shotline_dashboard::status::{Family, FamilyKind, Phase, Rate, Sample, StageReading, Status, Table, Text};
use shotline_instrument::digitizer::{Config, DigitizerCounters, StageCounters};
use shotline_memory::format_bytes;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time over which the load of the stages is measured: a block may take tens of milliseconds.
const WINDOW: Duration = Duration::from_secs(1);

/// Returns the settings to show.
pub(super) fn settings(configs: &[Config]) -> Vec<(Text, String)> {
    let Some(config) = configs.first() else { return Vec::new() };
    vec![
        ("streams".into(), configs.len().to_string()),
        ("sample rate".into(), format!("{} MS/s", config.sample_rate_hz / 1e6)),
        ("centre frequency".into(), format!("{} MHz", config.centre_hz / 1e6)),
        ("block".into(), format_bytes(config.block_bytes.into())),
        ("blocks of on-board memory".into(), config.ring.to_string()),
        ("stages".into(), if config.sequential { "one after the other" } else { "concurrent" }.into()),
    ]
}

/// Readings of the stages in the last second.
#[derive(Default)]
pub(super) struct Window(VecDeque<(Instant, Vec<[StageCounters; 3]>)>);

impl Window {
    /// Adds the readings of all streams; returns the load since the oldest reading.
    pub(super) fn add(&mut self, now: Instant, all: &[DigitizerCounters]) -> Vec<StageReading> {
        while self.0.get(1).is_some_and(|(time, _)| now.saturating_duration_since(*time) >= WINDOW) {
            self.0.pop_front();
        }
        self.0.push_back((now, all.iter().map(|counters| counters.stages).collect()));
        let Some((since, before)) = self.0.front() else { return Vec::new() };
        let seconds = now.saturating_duration_since(*since).as_secs_f64();
        let each = all.iter().zip(before).flat_map(|(counters, before)| {
            let stages = counters.stages.iter().zip(before).map(|(stage, before)| stage.since(before));
            stages.map(|stage| (counters.stream, stage))
        });
        each.map(|(stream, stage)| reading(stream, &stage, seconds, all.len() > 1)).collect()
    }
}

/// Returns the load of the stages of all streams in the whole run.
pub(super) fn whole_run(all: &[DigitizerCounters], seconds: f64) -> Vec<StageReading> {
    let each = all.iter().flat_map(|counters| counters.stages.iter().map(|stage| (counters.stream, stage)));
    each.map(|(stream, stage)| reading(stream, stage, seconds, all.len() > 1)).collect()
}

/// Returns the load of a stage that did this in `seconds`.
fn reading(stream: u32, stage: &StageCounters, seconds: f64, is_one_of_many: bool) -> StageReading {
    // Times are counted at the end of a block, which may have begun earlier.
    let part = |time: f64| if seconds > 0.0 { (time / seconds).min(1.0) } else { 0.0 };
    StageReading {
        name: if is_one_of_many { format!("{} {stream}", stage.name).into() } else { stage.name.into() },
        busy: part(stage.busy_s),
        starved: part(stage.starved_s),
        stalled: part(stage.stalled_s),
        gbps: if seconds > 0.0 { stage.bytes as f64 * 8e-9 / seconds } else { 0.0 },
    }
}

/// Returns the state of all digitizers.
pub(super) fn status(
    all: &[DigitizerCounters],
    block_bytes: u32,
    stages: Vec<StageReading>,
    progress: Option<f64>,
) -> Status {
    Status {
        phase: Phase::Running,
        progress,
        families: families(all, block_bytes),
        stages,
        tables: vec![streams(all)],
        ..Status::default()
    }
}

fn families(all: &[DigitizerCounters], block_bytes: u32) -> Vec<Family> {
    let each = |value: fn(&DigitizerCounters) -> u64| {
        all.iter().map(|counters| Sample::count(label(counters), value(counters))).collect::<Vec<_>>()
    };
    let payload =
        all.iter().map(|counters| Sample::count(label(counters), counters.blocks_sent * u64::from(block_bytes)));
    let list_s = all.iter().map(|counters| Sample { labels: label(counters), value: counters.dma_list_s });
    let mut families = vec![
        Family {
            unit: Some("bytes"),
            samples: payload.collect(),
            rate: Some(Rate { label: "Samples", unit: "Gbit/s", factor: 8e-9 }),
            ..Family::new("payload_sent", "Bytes of samples in blocks that were sent completely", FamilyKind::Counter)
        },
        Family {
            samples: each(|counters| counters.packets_sent),
            rate: Some(Rate { label: "Packets", unit: "packets/s", factor: 1.0 }),
            ..Family::new("packets_sent", "Packets that were sent", FamilyKind::Counter)
        },
        Family {
            samples: each(|counters| counters.blocks_sent),
            rate: Some(Rate { label: "Blocks", unit: "blocks/s", factor: 1.0 }),
            ..Family::new("blocks_sent", "Blocks that were sent completely", FamilyKind::Counter)
        },
        Family {
            samples: each(|counters| counters.board.blocks_produced),
            ..Family::new("blocks_produced", "Blocks that the board has made, with lost ones", FamilyKind::Counter)
        },
        Family {
            samples: each(|counters| counters.board.overruns),
            is_loss: true,
            ..Family::new(
                "blocks_overrun",
                "Blocks that were lost because the board's memory was full",
                FamilyKind::Counter,
            )
        },
        Family {
            samples: each(|counters| counters.packets_discarded),
            is_loss: true,
            ..Family::new(
                "packets_discarded",
                "Packets that were not sent because there was no link",
                FamilyKind::Counter,
            )
        },
        Family {
            samples: each(|counters| counters.blocks_abandoned),
            ..Family::new(
                "blocks_abandoned",
                "Blocks that were not sent completely: without a link, or because the digitizer was stopped",
                FamilyKind::Counter,
            )
        },
        Family {
            samples: each(|counters| counters.tx_full),
            ..Family::new("sends_refused", "Send calls that accepted no packet", FamilyKind::Counter)
        },
        Family {
            unit: Some("seconds"),
            samples: list_s.collect(),
            ..Family::new("dma_list", "Time that the DMA stage has spent building lists", FamilyKind::Counter)
        },
        Family {
            samples: each(|counters| counters.dma_entries),
            ..Family::new("dma_list_entries", "Entries of the lists of the DMA engine", FamilyKind::Counter)
        },
    ];
    families.extend(of_stages(all));
    families
}

fn label(counters: &DigitizerCounters) -> Vec<(&'static str, String)> {
    vec![("stream", counters.stream.to_string())]
}

fn of_stages(all: &[DigitizerCounters]) -> [Family; 4] {
    let stages = || {
        all.iter().flat_map(|counters| {
            let named =
                |stage: &StageCounters| ([label(counters), vec![("stage", stage.name.to_owned())]].concat(), *stage);
            counters.stages.iter().map(named)
        })
    };
    let each = |value: fn(&StageCounters) -> u64| {
        stages().map(|(labels, stage)| Sample::count(labels, value(&stage))).collect::<Vec<_>>()
    };
    // The board is a clock that is always busy: it would look like a stage that limits the others.
    let times = stages().filter(|(_, stage)| stage.name != "board").flat_map(|(labels, stage)| {
        let StageCounters { busy_s, starved_s, stalled_s, paced_s, .. } = stage;
        [("busy", busy_s), ("starved", starved_s), ("stalled", stalled_s), ("paced", paced_s)].map(|(state, value)| {
            Sample { labels: [labels.clone(), vec![("state", state.to_owned())]].concat(), value }
        })
    });
    [
        Family {
            unit: Some("seconds"),
            samples: times.collect(),
            ..Family::new(
                "stage",
                "Time of each stage but the board: busy, starved (without input), stalled (without space for output) or paced",
                FamilyKind::Counter,
            )
        },
        Family {
            unit: Some("bytes"),
            samples: each(|stage| stage.bytes),
            ..Family::new("stage_passed", "Bytes that have passed each stage", FamilyKind::Counter)
        },
        Family {
            samples: each(|stage| stage.blocks),
            ..Family::new("stage_blocks", "Blocks that have passed each stage", FamilyKind::Counter)
        },
        Family {
            samples: each(|stage| stage.queue_length_sum),
            ..Family::new(
                "stage_queued_blocks",
                "Blocks that waited before the stage when it took one, summed over all that it took",
                FamilyKind::Counter,
            )
        },
    ]
}

fn streams(all: &[DigitizerCounters]) -> Table {
    let columns = ["stream", "destination", "made", "sent", "overruns", "abandoned", "packets", "discarded"];
    let rows = all.iter().map(|counters| {
        vec![
            counters.stream.to_string(),
            counters.to.to_string(),
            counters.board.blocks_produced.to_string(),
            counters.blocks_sent.to_string(),
            counters.board.overruns.to_string(),
            counters.blocks_abandoned.to_string(),
            counters.packets_sent.to_string(),
            counters.packets_discarded.to_string(),
        ]
    });
    Table { title: "Streams, in blocks".into(), columns: columns.map(Into::into).to_vec(), rows: rows.collect() }
}
