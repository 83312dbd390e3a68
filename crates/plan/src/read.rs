//! Parsing of TOML plans.

use crate::error::PlanError;
use crate::formula::bus::{PCIE_GENERATIONS, PCIE_LANES, Pcie, memory_bits_per_s};
use crate::formula::link::Framing;
use crate::formula::queue::Stall;
use crate::formula::shot::DEAD_TIME_S;
use crate::plan::{Burst, Kind, Per, Plan, Policy, Receiver, Source, Stage, Start};
use crate::table::{Table, Value};
use crate::units::{Bytes, Hertz, Quantity, Rate, SampleRate, Seconds};
use shotline_wire::framing;
use shotline_wire::shot::{Geometry, PACKET_BYTES, Packing};

/// Maximum number of streams, and of units of one stage in the whole plan.
pub(crate) const MAX_UNITS: u32 = 1 << 16;

/// Table, key and value of a command-line flag: `source.samples`, `receiver.count`, or a kind of stage and its key,
/// such as `drive.count`.
pub type Flag<'a> = (&'a str, &'a str, String);

impl Plan {
    /// Example plan: one instrument, a receiver on sockets, a drive.
    pub const EXAMPLE: &str = include_str!("../../../examples/plans/laptop.toml");

    /// Parses a plan; flags override its values. A flag for a stage that the plan does not have adds the stage, in the
    /// order of [`Kind::NAMES`].
    ///
    /// # Errors
    /// Returns the first invalid key or value, with its line.
    pub fn parse(text: &str, flags: &[Flag<'_>]) -> Result<Self, PlanError> {
        let mut top = Table::read(text)?;
        let title = top.text("title")?.unwrap_or_default();
        let paper = top.whole("paper", 0..=4)?.map(|paper| paper as u8);
        let pipelined = top.boolean("pipelined")?.unwrap_or(true);
        let source_line = top.line_of("source");
        let (shots, transfers) = (top.table("source")?, top.table("transfer")?);
        let receiver = top.table("receiver")?;
        let mut stages = top.tables("stage")?;
        let mut receiver = receiver.unwrap_or_else(|| Table::empty("receiver"));
        let mut source = match (shots, transfers) {
            (Some(table), None) | (None, Some(table)) => table,
            (None, None) => {
                return Err(top.missing_table("source", "a [source] or [transfer] table"));
            }
            (Some(_), Some(_)) => {
                return Err(top.value_error(
                    source_line,
                    "source",
                    "expected either [source] or [transfer], found both",
                ));
            }
        };
        let no_stages = top.missing_table("stage", "a [[stage]] table");
        top.finish()?;
        for (table, key, value) in flags {
            match *table {
                "source" => source.set(key, Value::from_flag(value)),
                "receiver" => receiver.set(key, Value::from_flag(value)),
                kind => stage_for(&mut stages, kind, key)?.set(key, Value::from_flag(value)),
            }
        }
        let sweep_hz = source.quantities::<Hertz>("sweep")?.iter().map(|hz| hz.0).collect();
        let (source, lengths) =
            if source.name == "transfer" { transfer(source)? } else { (shots_of(source)?, Vec::new()) };
        let receiver = receiver_of(receiver, matches!(source.burst, Burst::Shot { .. }))?;
        let mut plan = Self { title, paper, pipelined, source, receiver, stages: Vec::new(), sweep_hz, lengths };
        for (index, table) in stages.into_iter().enumerate() {
            let line = table.line;
            let stage = stage_of(table, index, plan.stages.last())?;
            if plan.units(&stage) > MAX_UNITS {
                let problem = format!("expected at most {MAX_UNITS} units in total, found {}", plan.units(&stage));
                let key = format!("stage {} ({})", index + 1, stage.kind.name());
                return Err(PlanError::Value { line: line.into(), key, problem });
            }
            plan.stages.push(stage);
        }
        if plan.stages.is_empty() {
            return Err(no_stages);
        }
        Ok(plan)
    }
}

/// Returns the stage that a flag refers to: the first of its kind, or a new one.
fn stage_for<'a>(stages: &'a mut Vec<Table>, kind: &str, key: &str) -> Result<&'a mut Table, PlanError> {
    let order = |table: &Table| Kind::NAMES.iter().position(|name| table.has_text("kind", name));
    let wanted = Kind::NAMES.iter().position(|name| *name == kind);
    let wanted = wanted.ok_or_else(|| PlanError::NoStage { kind: kind.to_owned(), key: key.to_owned() })?;
    let at = match stages.iter().position(|table| order(table) == Some(wanted)) {
        Some(at) => at,
        None => {
            let at = stages.iter().position(|table| order(table) > Some(wanted)).unwrap_or(stages.len());
            let mut table = Table::empty("stage");
            table.set("kind", Value::Text(kind.to_owned()));
            stages.insert(at, table);
            at
        }
    };
    Ok(&mut stages[at])
}

fn seconds(found: Option<Seconds>, default: f64) -> f64 {
    found.map_or(default, |seconds| seconds.0)
}

fn count(table: &mut Table, key: &'static str) -> Result<u32, PlanError> {
    Ok(table.whole(key, 1..=MAX_UNITS)?.unwrap_or(1))
}

/// Parses `[source]`: instruments that take shots.
fn shots_of(mut table: Table) -> Result<Source, PlanError> {
    let (probes, links) = (count(&mut table, "probes")?, count(&mut table, "links")?);
    let channels = table.whole("channels", 1..=u16::MAX.into())?;
    let channels = table.required(channels, "channels", "96")?;
    let bits = table.whole("bits", 1..=16)?;
    let bits = table.required(bits, "bits", "12")?;
    let packing = table.choice("packing", &[("packed12", Packing::Packed12), ("int16_le", Packing::Int16Le)])?;
    let packing = packing.unwrap_or(if bits <= 12 { Packing::Packed12 } else { Packing::Int16Le });
    let rate_line = table.line_of("sample_rate");
    let rate = table.positive::<SampleRate>("sample_rate")?;
    let rate = table.required(rate, "sample_rate", "\"40 MS/s\"")?.0;
    if rate.fract() != 0.0 || rate > u32::MAX.into() {
        let problem = format!("expected whole samples per second up to 2^32, found {rate}");
        return Err(table.value_error(rate_line, "sample_rate", problem));
    }
    let samples_line = table.line_of("samples");
    let samples = table.whole("samples", 1..=u32::MAX)?;
    let samples = table.required(samples, "samples", "2000")?;
    let geometry = Geometry::new(channels as u16, samples, bits as u8, packing, rate as u32)
        .map_err(|error| table.value_error(samples_line, "samples", error))?;
    let dead_time_s = seconds(table.quantity("dead_time")?, DEAD_TIME_S);
    let trigger = table.positive::<Hertz>("trigger")?;
    let start = trigger.map_or(Start::Free, |hz| Start::Periodic(hz.0));
    let burst = Burst::Shot { geometry, dead_time_s };
    let source = source_from(&mut table, probes, links, burst, start)?;
    table.finish()?;
    Ok(source)
}

/// Parses `[transfer]`: plain transfers.
fn transfer(mut table: Table) -> Result<(Source, Vec<u32>), PlanError> {
    let (probes, links) = (count(&mut table, "sources")?, count(&mut table, "links")?);
    let line = table.line_of("bytes");
    let bytes = table.positive::<Bytes>("bytes")?;
    let bytes = table.required(bytes, "bytes", "\"64 MB\"")?.0.ceil() as u64;
    let (packet_line, lengths_line) = (table.line_of("packet"), table.line_of("lengths"));
    let whole = |table: &Table, line, key: &str, bytes: Bytes| match bytes.0.fract() == 0.0 && bytes.0 <= 1e9 {
        true => Ok(bytes.0 as u32),
        false => Err(table.value_error(line, key, format!("expected whole bytes up to 1 GB, found {}", bytes.0))),
    };
    let packet = table.positive::<Bytes>("packet")?.unwrap_or(Bytes(PACKET_BYTES.into()));
    let packet = whole(&table, packet_line, "packet", packet)?;
    let lengths = table.quantities::<Bytes>("lengths")?;
    let lengths: Result<_, _> =
        lengths.into_iter().map(|length| whole(&table, lengths_line, "lengths", length)).collect();
    let lengths = lengths?;
    if bytes.div_ceil(packet.into()) > 1 << 28 {
        let problem = format!("expected at most 2^28 packets of {packet} bytes, found {bytes} bytes");
        return Err(table.value_error(line, "bytes", problem));
    }
    let (rate_line, rate) = (table.line_of("rate"), table.positive::<Rate>("rate")?);
    let period = table.positive::<Seconds>("every")?;
    let start = match (rate, period) {
        (None, None) => Start::Free,
        (Some(rate), None) => Start::Periodic(rate.0 / (bytes as f64 * 8.0)),
        (None, Some(period)) => Start::Periodic(1.0 / period.0),
        (Some(_), Some(_)) => {
            return Err(table.value_error(rate_line, "rate", "expected either `rate` or `every`, found both"));
        }
    };
    let source = source_from(&mut table, probes, links, Burst::Transfer { bytes, packet }, start)?;
    table.finish()?;
    Ok((source, lengths))
}

fn source_from(table: &mut Table, probes: u32, links: u32, burst: Burst, start: Start) -> Result<Source, PlanError> {
    if probes.saturating_mul(links) > MAX_UNITS {
        return Err(table.table_error(format!("expected at most {MAX_UNITS} links in total, found {probes} x {links}")));
    }
    let synchronised = table.choice("phase", &[("synchronised", true), ("random", false)])?;
    let random = table.choice("spacing", &[("even", false), ("random", true)])?.unwrap_or(false);
    let buffer = table.positive::<Bytes>("buffer")?;
    Ok(Source {
        probes,
        links,
        start,
        synchronised: synchronised.unwrap_or(!random),
        random,
        buffer_bytes: buffer.map_or(2.0 * burst.bytes() as f64, |buffer| buffer.0),
        burst,
    })
}

/// Parses `[receiver]`. The defaults for shots are those of `shotline record`; transfers have two buffers.
fn receiver_of(mut table: Table, shots: bool) -> Result<Receiver, PlanError> {
    let (window, in_flight, consumer_stall_s) = if shots { (4, 16, 0.100) } else { (0, 1, 0.0) };
    let receiver = Receiver {
        count: count(&mut table, "count")?,
        window: table.whole("window", 0..=1 << 16)?.unwrap_or(window),
        in_flight: table.whole("in_flight", 1..=1 << 16)?.unwrap_or(in_flight),
        preempted_s: seconds(table.quantity("preempted")?, 0.020),
        consumer_stall_s: seconds(table.quantity("consumer_stall")?, consumer_stall_s),
        pool_bytes: table.positive::<Bytes>("pool")?.map(|pool| pool.0),
    };
    table.finish()?;
    Ok(receiver)
}

/// Parses a `[[stage]]`.
fn stage_of(mut table: Table, index: usize, before: Option<&Stage>) -> Result<Stage, PlanError> {
    table.name = format!("stage {}", index + 1);
    let kinds: Vec<_> = Kind::NAMES.iter().map(|name| (*name, *name)).collect();
    let kind_line = table.line_of("kind");
    let kind = table.choice("kind", &kinds)?;
    let kind = table.required(kind, "kind", "\"link\"")?;
    table.name = format!("stage {} ({kind})", index + 1);
    let name = table.text("name")?.unwrap_or_else(|| kind.to_owned());
    let kind = kind_of(&mut table, kind)?;
    if before.is_some_and(|before| before.kind.takes_bursts() && !kind.takes_bursts()) {
        let problem = "expected a stage of complete bursts after another one, found a stage of packets: move it to an earlier position";
        return Err(table.value_error(kind_line, "kind", problem));
    }
    let per = table.choice("per", Per::NAMES)?;
    let default = match kind {
        Kind::Link { .. } | Kind::Spacefibre { .. } => Per::Link,
        _ => Per::Receiver,
    };
    let measured = table.positive::<Rate>("measured")?;
    let policy_line = table.line_of("policy");
    let policy = table.choice("policy", Policy::NAMES)?.unwrap_or(Policy::DropNewest);
    if policy == Policy::DropOldest && !kind.takes_bursts() {
        let problem = "expected \"drop-newest\" or \"block\" for a stage of packets, found \"drop-oldest\"";
        return Err(table.value_error(policy_line, "policy", problem));
    }
    let buffer = table.positive::<Bytes>("buffer")?;
    let per = per.unwrap_or(default);
    if per != Per::Receiver && kind.takes_bursts() {
        return Err(table.table_error("a stage of complete bursts belongs to a receiver: use per = \"receiver\""));
    }
    let stall_line = table.line_of("stall");
    let stall = match (table.positive::<Seconds>("stall")?, table.positive::<Seconds>("stall_every")?) {
        (None, None) => None,
        (Some(stall), Some(every)) if stall.0 < every.0 => Some(Stall { seconds: stall.0, every_s: every.0 }),
        (Some(stall), Some(every)) => {
            let problem = format!("expected `stall` shorter than `stall_every`, found {} s and {} s", stall.0, every.0);
            return Err(table.value_error(stall_line, "stall", problem));
        }
        _ => {
            return Err(table.value_error(
                stall_line,
                "stall",
                "expected both `stall` and `stall_every`, found one of them",
            ));
        }
    };
    let spread_line = table.line_of("spread");
    let spread = table.number("spread", 0.0..=3.0)?.unwrap_or(0.0);
    if spread > 0.0 && !kind.takes_bursts() {
        return Err(table.value_error(
            spread_line,
            "spread",
            "expected 0 for a stage of packets: only stages of complete bursts have varying service times",
        ));
    }
    let stage = Stage {
        name,
        kind,
        per,
        count: count(&mut table, "count")?,
        measured_bits_per_s: measured.map(|rate| rate.0),
        buffer_bytes: buffer.map(|buffer| buffer.0),
        policy,
        stall,
        spread,
    };
    table.finish()?;
    Ok(stage)
}

fn kind_of(table: &mut Table, kind: &str) -> Result<Kind, PlanError> {
    match kind {
        "link" => {
            let (bits_per_s, framing, ipv6) = link_parameters(table)?;
            Ok(Kind::Link { bits_per_s, framing, ipv6 })
        }
        "switch" => {
            let (bits_per_s, framing, ipv6) = link_parameters(table)?;
            let ports = table.whole("ports", 1..=MAX_UNITS)?.unwrap_or(MAX_UNITS);
            Ok(Kind::Switch { bits_per_s, framing, ipv6, ports })
        }
        "spacefibre" => {
            let lanes = table.whole("lanes", 1..=16)?;
            let lanes = table.required(lanes, "lanes", "4")?;
            let lane_rate = table.positive::<Rate>("lane_rate")?;
            let lane_bits_per_s = table.required(lane_rate, "lane_rate", "\"7.8125 Gbit/s\"")?.0;
            let both_ways = table.boolean("both_ways")?.unwrap_or(false);
            Ok(Kind::Spacefibre { lanes, lane_bits_per_s, both_ways })
        }
        "dma" => {
            let width_line = table.line_of("width");
            let width = table.whole("width", 8..=8192)?;
            let width = table.required(width, "width", "512")?;
            if width % 8 != 0 {
                return Err(table.value_error(
                    width_line,
                    "width",
                    format!("expected a multiple of 8 bits, found {width}"),
                ));
            }
            let clock = table.positive::<Hertz>("clock")?;
            Ok(Kind::Dma { word_bytes: width / 8, clock_hz: table.required(clock, "clock", "\"200 MHz\"")?.0 })
        }
        "pcie" => pcie(table),
        "receive" => {
            let packet = table.positive::<Seconds>("packet_time")?;
            Ok(Kind::Receive { packet_s: table.required(packet, "packet_time", "\"700 ns\"")?.0 })
        }
        "memory" => memory(table),
        "accelerator" => Ok(Kind::Accelerator { bits_per_s: rate_of(table, "\"7.2 GB/s\"")? }),
        _ => Ok(Kind::Drive { bits_per_s: rate_of(table, "\"5100 MB/s\"")? }),
    }
}

fn rate_of(table: &mut Table, example: &str) -> Result<f64, PlanError> {
    let rate = table.positive::<Rate>("rate")?;
    Ok(table.required(rate, "rate", example)?.0)
}

fn link_parameters(table: &mut Table) -> Result<(f64, Framing, bool), PlanError> {
    let rate = rate_of(table, "\"100 Gbit/s\"")?;
    let framing = table.choice("framing", Framing::NAMES)?.unwrap_or(Framing::Shots(framing::Kind::Ud));
    let ipv6 = table.choice("ip", &[("v4", false), ("v6", true)])?.unwrap_or(false);
    Ok((rate, framing, ipv6))
}

fn pcie(table: &mut Table) -> Result<Kind, PlanError> {
    let generation =
        table.whole("generation", u32::from(*PCIE_GENERATIONS.start())..=u32::from(*PCIE_GENERATIONS.end()))?;
    let generation = table.required(generation, "generation", "3")? as u8;
    let lanes_line = table.line_of("lanes");
    let lanes = table.whole("lanes", 1..=32)?;
    let lanes = table.required(lanes, "lanes", "16")? as u8;
    if !PCIE_LANES.contains(&lanes) {
        let known = PCIE_LANES.map(|lanes| lanes.to_string()).join(", ");
        return Err(table.value_error(lanes_line, "lanes", format!("expected {known} lanes, found {lanes}")));
    }
    let payload_line = table.line_of("max_payload");
    let max_payload = table.positive::<Bytes>("max_payload")?.map_or(256.0, |bytes| bytes.value());
    if max_payload.fract() != 0.0 || !(64.0..=4096.0).contains(&max_payload) || !(max_payload as u32).is_power_of_two()
    {
        let problem = format!("expected a power of two from 64 to 4096 bytes, found {max_payload}");
        return Err(table.value_error(payload_line, "max_payload", problem));
    }
    Ok(Kind::Pcie(Pcie { generation, lanes, max_payload: max_payload as u32 }))
}

fn memory(table: &mut Table) -> Result<Kind, PlanError> {
    let rate_line = table.line_of("rate");
    let rate = table.positive::<Rate>("rate")?;
    let clock = table.positive::<Hertz>("clock")?;
    let bits_per_s = match (rate, clock) {
        (Some(rate), None) => rate.0,
        (None, Some(clock)) => {
            let width = table.whole("width", 1..=65536)?;
            let width = table.required(width, "width", "256")?;
            memory_bits_per_s(width, table.whole("banks", 1..=1024)?.unwrap_or(1), clock.0)
        }
        (None, None) => return Err(table.required(None::<()>, "rate", "\"12.8 GB/s\"").unwrap_err()),
        (Some(_), Some(_)) => {
            return Err(table.value_error(rate_line, "rate", "expected either `rate` or `clock`, found both"));
        }
    };
    Ok(Kind::Memory { bits_per_s, passes: table.number("passes", 1.0..=16.0)?.unwrap_or(2.0) })
}
