//! Evaluation of a plan by the formulas: the load and the limit of every stage.

use crate::formula::{queue, shot};
use crate::plan::{Burst, Plan, Stage, Start};
use crate::units::{Bytes, Hertz};
use serde::Serialize;
use std::collections::BTreeSet;

/// Evaluation of a plan. Rates are payload rates: bytes of bursts with padding and record, without headers.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Title of the plan.
    pub title: String,
    /// Output of the instruments.
    pub source: SourceReport,
    /// Stages, starting with the instrument.
    pub stages: Vec<StageReport>,
    /// Name of the stage with the highest utilisation.
    pub bottleneck: String,
    /// Factor by which the load may grow until the bottleneck is saturated; below 1 if it is overloaded.
    pub headroom_factor: f64,
    /// Long-run share of sent data that is dropped.
    pub dropped_share: f64,
    /// Long-run rate of dropped bursts of all streams, per second.
    pub dropped_hz: f64,
    /// Service time of a burst summed over all stages in seconds: the period without pipelining.
    pub sequential_s: f64,
    /// Service time of the slowest stage in seconds: the period with pipelining.
    pub pipelined_s: f64,
    /// Required memory for shot buffers per receiver in bytes.
    pub pool_bytes: f64,
    /// Required number of shot buffers per receiver.
    pub pool_slots: u64,
    /// Required socket receive buffer in bytes; `None` for transfers without a receive thread.
    pub receive_buffer_bytes: Option<f64>,
    /// Evaluation at each trigger rate of the plan's sweep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<SweepRow>,
    /// Evaluation at each packet length of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lengths: Vec<LengthRow>,
    /// Warnings, as text.
    pub warnings: Vec<String>,
}

/// Output of the instruments.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// Number of streams of all instruments.
    pub streams: u32,
    /// Length of a burst on the wire in bytes.
    pub burst_bytes: u64,
    /// Packets per burst.
    pub burst_packets: u32,
    /// Triggers per second; `None` if free running.
    pub trigger_hz: Option<f64>,
    /// Maximum bursts per second of an instrument; `None` if unlimited.
    pub max_burst_hz: Option<f64>,
    /// Bursts per second of each stream.
    pub burst_hz: f64,
    /// Triggers per second that an instrument misses.
    pub missed_hz: f64,
    /// Data rate of the converters of all instruments while sampling continuously; `None` for transfers.
    pub raw_bits_per_s: Option<f64>,
    /// Data rate of the samples of all streams in bits per second, without padding and record.
    pub sample_bits_per_s: f64,
    /// Payload rate of all streams in bits per second.
    pub payload_bits_per_s: f64,
}

/// Load and limit of one stage. The load is that of its busiest unit, assuming no drops in earlier stages.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: &'static str,
    /// Number of units in the whole plan.
    pub units: u32,
    /// Load of the busiest unit.
    pub load_bits_per_s: f64,
    /// Limit of a unit.
    pub limit_bits_per_s: f64,
    /// Limit of a unit by the formula alone.
    pub formula_bits_per_s: f64,
    /// Utilisation: load divided by limit.
    pub used: f64,
    /// Limit minus load.
    pub headroom_bits_per_s: f64,
    /// Long-run share of arriving data that it drops.
    pub dropped_share: f64,
    /// Long-run rate of dropped bursts in the whole plan, per second.
    pub dropped_hz: f64,
    /// Service time of a unit for one burst in seconds.
    pub burst_s: f64,
    /// Backlog at the busiest unit in bytes when all its streams send at once.
    pub backlog_bytes: f64,
    /// Queue capacity in bytes; `None` if the plan does not set it.
    pub buffer_bytes: Option<f64>,
    /// Derivation of the limit.
    pub derivation: String,
}

/// Evaluation at one trigger rate.
#[derive(Clone, Debug, Serialize)]
pub struct SweepRow {
    /// Triggers per second.
    pub trigger_hz: f64,
    /// Bursts per second of each stream.
    pub burst_hz: f64,
    /// Triggers per second that an instrument misses.
    pub missed_hz: f64,
    /// Data rate of the samples of all streams in bits per second, without padding and record.
    pub sample_bits_per_s: f64,
    /// Payload rate of all streams in bits per second.
    pub payload_bits_per_s: f64,
    /// Name of the stage with the highest utilisation.
    pub bottleneck: String,
    /// Its utilisation.
    pub used: f64,
    /// Rate of dropped bursts of all streams, per second.
    pub dropped_hz: f64,
    /// Share of sent data that is dropped.
    pub dropped_share: f64,
}

/// Evaluation at one packet length.
#[derive(Clone, Debug, Serialize)]
pub struct LengthRow {
    /// Length of each packet in bytes.
    pub packet_bytes: u32,
    /// Offered payload rate of all streams.
    pub payload_bits_per_s: f64,
    /// Delivered payload rate of all streams.
    pub delivered_bits_per_s: f64,
    /// Name of the stage with the highest utilisation.
    pub bottleneck: String,
    /// Its utilisation.
    pub used: f64,
}

impl Plan {
    /// Evaluates the plan.
    pub fn report(&self) -> Report {
        let source = self.source_report();
        let stages = self.stage_reports(&source);
        // The first of several equal stages, because the later ones wait for it.
        let bottleneck = stages.iter().fold(&stages[0], |max, stage| if stage.used > max.used { stage } else { max });
        let arriving: f64 = stages.iter().map(|stage| 1.0 - stage.dropped_share).product();
        let (pool_slots, pool_bytes) = self.pool(&source);
        let times = || self.stages.iter().map(|stage| stage.burst_s(&self.source.burst));
        Report {
            title: self.title.clone(),
            bottleneck: bottleneck.name.clone(),
            headroom_factor: 1.0 / bottleneck.used,
            dropped_share: 1.0 - arriving,
            dropped_hz: (1.0 - arriving) * source.burst_hz * f64::from(source.streams),
            sequential_s: times().sum(),
            pipelined_s: times().fold(0.0, f64::max),
            pool_bytes,
            pool_slots,
            receive_buffer_bytes: self.receive_buffer(&source, &stages),
            sweep: self.sweep_hz.iter().map(|hz| self.sweep_row(*hz)).collect(),
            lengths: self.lengths.iter().map(|bytes| self.length_row(*bytes)).collect(),
            warnings: self.warnings(&source, &stages, pool_bytes),
            source,
            stages,
        }
    }

    fn sweep_row(&self, trigger_hz: f64) -> SweepRow {
        let plan = Self { sweep_hz: Vec::new(), ..self.with_start(Start::Periodic(trigger_hz)) };
        let report = plan.report();
        SweepRow {
            trigger_hz,
            burst_hz: report.source.burst_hz,
            missed_hz: report.source.missed_hz,
            sample_bits_per_s: report.source.sample_bits_per_s,
            payload_bits_per_s: report.source.payload_bits_per_s,
            used: 1.0 / report.headroom_factor,
            bottleneck: report.bottleneck,
            dropped_hz: report.dropped_hz,
            dropped_share: report.dropped_share,
        }
    }

    fn length_row(&self, packet_bytes: u32) -> LengthRow {
        let report = self.with_packets_of(packet_bytes).report();
        LengthRow {
            packet_bytes,
            payload_bits_per_s: report.source.payload_bits_per_s,
            delivered_bits_per_s: report.source.payload_bits_per_s * (1.0 - report.dropped_share),
            used: 1.0 / report.headroom_factor,
            bottleneck: report.bottleneck,
        }
    }

    fn source_report(&self) -> SourceReport {
        let source = &self.source;
        let busy_s = source.busy_s();
        let max_burst_hz = (busy_s > 0.0).then(|| 1.0 / busy_s);
        let (trigger_hz, burst_hz) = match source.start {
            Start::Periodic(hz) if source.random => (Some(hz), shot::randomly_triggered_hz(hz, busy_s)),
            Start::Periodic(hz) => (Some(hz), shot::triggered_hz(hz, busy_s)),
            Start::Free => (None, max_burst_hz.unwrap_or_else(|| self.saturated_hz())),
        };
        let streams = f64::from(source.streams());
        let raw_bits_per_s = match &source.burst {
            Burst::Shot { geometry: g, .. } => {
                Some(streams * shot::raw_bits_per_s(g.channels().into(), g.bits().into(), g.sample_rate_hz().into()))
            }
            Burst::Transfer { .. } => None,
        };
        SourceReport {
            streams: source.streams(),
            burst_bytes: source.burst.bytes(),
            burst_packets: source.burst.packets(),
            trigger_hz,
            max_burst_hz,
            burst_hz,
            missed_hz: trigger_hz.map_or(0.0, |hz| hz - burst_hz),
            raw_bits_per_s,
            sample_bits_per_s: streams * burst_hz * source.burst.sample_bits(),
            payload_bits_per_s: streams * burst_hz * source.burst.bytes() as f64 * 8.0,
        }
    }

    /// Returns the bursts per second of each stream that the slowest stage serves.
    fn saturated_hz(&self) -> f64 {
        let burst = &self.source.burst;
        let bits = burst.bytes() as f64 * 8.0;
        let stages = self.stages.iter().map(|stage| {
            let share = self.busiest(stage);
            stage.limit_bits_per_s(burst) / bits / share
        });
        let sequence = if self.pipelined { f64::INFINITY } else { self.sequential_bits_per_s() / bits };
        stages.fold(sequence, f64::min)
    }

    /// Returns the busiest unit of a stage and its number of streams.
    fn busiest_unit(&self, stage: &Stage) -> (u32, u32) {
        let mut streams = vec![0; self.units(stage) as usize];
        for stream in 0..self.source.streams() {
            streams[self.unit(stage, stream) as usize] += 1;
        }
        (0..).zip(streams).max_by_key(|(_, streams)| *streams).unwrap_or((0, 0))
    }

    /// Returns the number of streams of a stage's busiest unit, divided by the units per group for stages of bursts.
    fn busiest(&self, stage: &Stage) -> f64 {
        let streams = f64::from(self.busiest_unit(stage).1);
        if stage.kind.takes_bursts() { streams / f64::from(stage.count) } else { streams }
    }

    /// Returns the number of units of `before` that feed the busiest unit of `stage`.
    fn feeders(&self, before: &Stage, stage: &Stage) -> f64 {
        let (busiest, _) = self.busiest_unit(stage);
        let streams = (0..self.source.streams()).filter(|stream| self.unit(stage, *stream) == busiest);
        streams.map(|stream| self.unit(before, stream)).collect::<BTreeSet<_>>().len() as f64
    }

    /// Returns the payload rate of a stream in bits per second if its bursts pass the stages without pipelining.
    pub(crate) fn sequential_bits_per_s(&self) -> f64 {
        let burst = &self.source.burst;
        burst.bytes() as f64 * 8.0 / self.stages.iter().map(|stage| stage.burst_s(burst)).sum::<f64>()
    }

    fn stage_reports(&self, source: &SourceReport) -> Vec<StageReport> {
        let burst = &self.source.burst;
        let bits = burst.bytes() as f64 * 8.0;
        let stream_bits_per_s = source.burst_hz * bits;
        let mut rows = Vec::with_capacity(self.stages.len() + 2);
        if let Some(max_hz) = source.max_burst_hz {
            let streams = f64::from(self.source.links);
            let (load, limit) = (source.trigger_hz.unwrap_or(max_hz) * bits * streams, max_hz * bits * streams);
            rows.push(StageReport {
                name: "probe".into(),
                kind: "probe",
                units: self.source.probes,
                derivation: format!("at most {}: a shot takes {:.2} us", Hertz(max_hz), 1e6 / max_hz),
                burst_s: 1.0 / max_hz,
                ..StageReport::of(load, limit)
            });
        }
        let mut arriving = 1.0; // share of sent data that reaches this stage
        let mut before: Option<(&Stage, f64)> = None; // previous stage and the peak output rate of one of its units
        let total_hz = source.burst_hz * f64::from(source.streams);
        for stage in &self.stages {
            let streams = self.busiest(stage);
            let limit = stage.limit_bits_per_s(burst);
            let dropped_share = queue::dropped_share(streams * stream_bits_per_s * arriving, limit * (1.0 + 1e-9));
            let peak = stage.peak_bits_per_s(burst);
            // An instrument feeds its line packet by packet; at any other first stage the entire burst arrives at once.
            let arrival_bits_per_s = match before {
                Some((before, output)) => self.feeders(before, stage) * output,
                None if stage.kind.is_line() => peak,
                None => f64::INFINITY,
            };
            rows.push(StageReport {
                name: stage.name.clone(),
                kind: stage.kind.name(),
                units: self.units(stage),
                formula_bits_per_s: stage.formula_bits_per_s(burst),
                dropped_share,
                dropped_hz: total_hz * arriving * dropped_share,
                burst_s: stage.burst_s(burst),
                backlog_bytes: match stage.kind.takes_bursts() {
                    false => {
                        queue::burst_backlog_bytes(streams, burst.bytes() as f64, arrival_bits_per_s / streams, peak)
                    }
                    true => 0.0,
                },
                buffer_bytes: stage.buffer_bytes,
                derivation: stage.derivation(burst),
                ..StageReport::of(streams * stream_bits_per_s, limit)
            });
            arriving *= 1.0 - dropped_share;
            before = Some((stage, arrival_bits_per_s.min(peak)));
        }
        if !self.pipelined {
            let (load, limit) = (stream_bits_per_s, self.sequential_bits_per_s());
            let dropped_share = queue::dropped_share(load * arriving, limit * (1.0 + 1e-9));
            rows.push(StageReport {
                name: "all stages in sequence".into(),
                kind: "sequential",
                units: self.source.streams(),
                derivation: "one burst at a time through all stages".into(),
                burst_s: bits / limit,
                dropped_share,
                dropped_hz: total_hz * arriving * dropped_share,
                ..StageReport::of(load, limit)
            });
        }
        rows
    }

    /// Returns the buffers and bytes that a receiver needs: shots in assembly, shots in flight to the file, and shots
    /// that arrive while the stages after assembly stall.
    fn pool(&self, source: &SourceReport) -> (u64, f64) {
        let streams = f64::from(self.streams_per_receiver());
        let assembly = streams * f64::from(self.receiver.window + 1);
        let stalled = (streams * source.burst_hz * self.longest_stall_s()).ceil();
        let slots = assembly + f64::from(self.receiver.in_flight) + stalled;
        (slots as u64, slots * self.source.burst.slot_bytes() as f64)
    }

    /// Returns the longest stall of the consumer and of the stages after assembly, in seconds.
    fn longest_stall_s(&self) -> f64 {
        let stalls = self.stages.iter().filter(|stage| stage.kind.takes_bursts()).filter_map(|stage| stage.stall);
        stalls.map(|stall| stall.seconds).fold(self.receiver.consumer_stall_s, f64::max)
    }

    /// Returns the bytes that arrive at a receiver while its thread is preempted, plus the backlog of a burst.
    fn receive_buffer(&self, source: &SourceReport, stages: &[StageReport]) -> Option<f64> {
        let receive = stages.iter().find(|stage| stage.kind == "receive");
        if receive.is_none() && source.raw_bits_per_s.is_none() {
            return None;
        }
        let streams = f64::from(self.streams_per_receiver());
        let bytes_per_s = streams * source.burst_hz * self.source.burst.bytes() as f64;
        let stalls = self.stages.iter().filter(|stage| !stage.kind.takes_bursts()).filter_map(|stage| stage.stall);
        let preempted_s = stalls.map(|stall| stall.seconds).fold(self.receiver.preempted_s, f64::max);
        let backlog = receive.map_or(0.0, |stage| stage.backlog_bytes);
        Some(bytes_per_s * preempted_s + backlog.max(self.source.burst.bytes() as f64))
    }

    fn warnings(&self, source: &SourceReport, stages: &[StageReport], pool_bytes: f64) -> Vec<String> {
        let mut warnings = Vec::new();
        if source.missed_hz > 0.0 {
            let (missed, highest) = (Hertz(source.missed_hz), Hertz(source.max_burst_hz.unwrap_or(0.0)));
            warnings
                .push(format!("triggers are missed at a rate of {missed}: the instrument accepts at most {highest}"));
        }
        for stage in stages.iter().filter(|stage| stage.dropped_share > 0.0) {
            warnings.push(format!(
                "{} is at {:.1} % of its limit: it drops {:.1} % of its input",
                stage.name,
                stage.used * 100.0,
                stage.dropped_share * 100.0
            ));
        }
        for stage in stages.iter().filter(|stage| stage.used <= 1.0) {
            if let Some(buffer) = stage.buffer_bytes.filter(|buffer| *buffer < stage.backlog_bytes) {
                warnings.push(format!(
                    "{}: when all streams send at once, the backlog of {} exceeds the buffer of {}: packets are dropped although the mean load is {:.0} %",
                    stage.name,
                    Bytes(stage.backlog_bytes),
                    Bytes(buffer),
                    stage.used * 100.0
                ));
            }
        }
        if let Some(given) = self.receiver.pool_bytes.filter(|given| *given < pool_bytes) {
            warnings.push(format!(
                "the pool has {}, but the longest stall of {2:.0} ms after assembly requires {1}",
                Bytes(given),
                Bytes(pool_bytes),
                self.longest_stall_s() * 1e3
            ));
        }
        warnings
    }
}

impl StageReport {
    fn of(load: f64, limit: f64) -> Self {
        Self {
            name: String::new(),
            kind: "",
            units: 1,
            load_bits_per_s: load,
            limit_bits_per_s: limit,
            formula_bits_per_s: limit,
            used: load / limit,
            headroom_bits_per_s: limit - load,
            dropped_share: 0.0,
            dropped_hz: 0.0,
            burst_s: 0.0,
            backlog_bytes: 0.0,
            buffer_bytes: None,
            derivation: String::new(),
        }
    }
}
