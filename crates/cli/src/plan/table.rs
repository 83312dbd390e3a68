//! Tables of a plan.

use super::output::{PlanOutput, Simulation};
use crate::Result;
use crate::output::{columns, print_table};
use shotline_plan::Report;
use shotline_plan::papers::Check;
use shotline_plan::sim::Percentiles;
use shotline_plan::units::{Bytes, Hertz, Rate, Seconds};

impl crate::output::Report for PlanOutput {
    fn print(&self) -> Result {
        print(self);
        Ok(())
    }
}

fn print(plan_output: &PlanOutput) {
    let report = &plan_output.report;
    outln!("{}\n", report.title);
    print_table(&source(report));
    outln!();
    stages(report);
    outln!();
    print_table(&sums(report));
    if !report.sweep.is_empty() {
        outln!();
        sweep(report);
    }
    if !report.lengths.is_empty() {
        outln!();
        lengths(report);
    }
    if !plan_output.checks.is_empty() {
        outln!();
        checks(&plan_output.checks, plan_output.paper);
    }
    if let Some(simulation) = &plan_output.simulation {
        outln!();
        simulated(simulation, report);
    }
    for warning in &report.warnings {
        crate::output::warn(warning);
    }
}

/// Returns the name of the unit that instruments send.
fn word(report: &Report) -> &'static str {
    if report.source.raw_bits_per_s.is_some() { "shot" } else { "transfer" }
}

/// Formats a share as per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn source(report: &Report) -> Vec<(String, String)> {
    let source = &report.source;
    let mut rows = vec![
        ("streams".to_owned(), source.streams.to_string()),
        (format!("one {}", word(report)), format!("{} bytes in {} packets", source.burst_bytes, source.burst_packets)),
        (format!("{}s of each stream", word(report)), Hertz(source.burst_hz).to_string()),
    ];
    if let (Some(hz), "shot") = (source.trigger_hz, word(report)) {
        rows.insert(2, ("triggers".into(), Hertz(hz).to_string()));
    }
    if source.missed_hz > 0.0 {
        rows.push(("triggers missed".into(), Hertz(source.missed_hz).to_string()));
    }
    if let Some(raw) = source.raw_bits_per_s {
        rows.push(("continuous sampling".into(), Rate(raw).to_string()));
        rows.push(("samples".into(), Rate(source.sample_bits_per_s).to_string()));
    }
    rows.push(("payload".into(), Rate(source.payload_bits_per_s).to_string()));
    rows
}

fn stages(report: &Report) {
    let rows: Vec<_> = report
        .stages
        .iter()
        .map(|stage| {
            let mark = if stage.name == report.bottleneck { "* " } else { "  " };
            [
                format!("{mark}{}", stage.name),
                stage.units.to_string(),
                Rate(stage.load_bits_per_s).to_string(),
                Rate(stage.limit_bits_per_s).to_string(),
                percent(stage.used),
                match stage.headroom_bits_per_s {
                    over if over < 0.0 => format!("-{}", Rate(-over)),
                    headroom => Rate(headroom).to_string(),
                },
                percent(stage.dropped_share),
                stage.derivation.clone(),
            ]
        })
        .collect();
    columns(&["  stage", ">units", ">load", ">limit", ">used", ">headroom", ">drops", "limit is"], &rows);
}

fn sums(report: &Report) -> Vec<(String, String)> {
    let mut rows = vec![
        ("bottleneck".to_owned(), report.bottleneck.clone()),
        ("headroom factor".into(), format!("x {:.3}", report.headroom_factor)),
        ("dropped in steady state".into(), format!("{}, {}", percent(report.dropped_share), Hertz(report.dropped_hz))),
        (format!("one {}, stages in sequence", word(report)), Seconds(report.sequential_s).to_string()),
        ("slowest stage".into(), Seconds(report.pipelined_s).to_string()),
        ("pool per receiver".into(), format!("{} ({} buffers)", Bytes(report.pool_bytes), report.pool_slots)),
    ];
    if let Some(bytes) = report.receive_buffer_bytes {
        rows.push(("receive buffer on sockets".into(), Bytes(bytes).to_string()));
    }
    for stage in report.stages.iter().filter(|stage| stage.backlog_bytes > 0.0) {
        let buffer = stage.buffer_bytes.map_or(String::new(), |buffer| format!(" of {}", Bytes(buffer)));
        rows.push((format!("{}: all streams at once", stage.name), format!("{}{buffer}", Bytes(stage.backlog_bytes))));
    }
    rows
}

fn sweep(report: &Report) {
    let rows: Vec<_> = report
        .sweep
        .iter()
        .map(|row| {
            [
                Hertz(row.trigger_hz).to_string(),
                Hertz(row.burst_hz).to_string(),
                Hertz(row.missed_hz).to_string(),
                Rate(row.payload_bits_per_s).to_string(),
                row.bottleneck.clone(),
                percent(row.used),
                Hertz(row.dropped_hz).to_string(),
                percent(row.dropped_share),
            ]
        })
        .collect();
    let sent = format!(">{}s", word(report));
    columns(&["triggers", &sent, ">missed", ">payload", "bottleneck", ">used", ">dropped", ">share"], &rows);
}

fn lengths(report: &Report) {
    let rows: Vec<_> = report
        .lengths
        .iter()
        .map(|row| {
            [
                format!("{} B", row.packet_bytes),
                Rate(row.payload_bits_per_s).to_string(),
                Rate(row.delivered_bits_per_s).to_string(),
                row.bottleneck.clone(),
                percent(row.used),
            ]
        })
        .collect();
    columns(&[">packets of", ">payload", ">delivered", "bottleneck", ">used"], &rows);
}

fn checks(checks: &[Check], paper: Option<u8>) {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            [
                check.quantity.clone(),
                check.location.to_owned(),
                figure(check.published),
                figure(check.computed),
                check.unit.to_owned(),
                format!("{:+.2} %", check.difference * 100.0),
                check.note.to_owned(),
            ]
        })
        .collect();
    let title = paper.map_or("paper".to_owned(), |paper| format!("paper {paper}"));
    columns(&[&title, "where", ">published", ">computed", "unit", ">difference", ""], &rows);
}

/// Formats five significant digits, without trailing zeros.
fn figure(value: f64) -> String {
    let digits = (4 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn simulated(simulation: &Simulation, report: &Report) {
    let outcome = &simulation.outcome;
    let (bursts, packets) = (outcome.bursts, outcome.packets);
    outln!(
        "  simulated {} with seed {} in {:.2} s: {:.2} million packets a second\n",
        Seconds(outcome.simulated_s),
        outcome.seed,
        simulation.wall_s,
        simulation.packets_per_wall_s / 1e6
    );
    let word = word(report);
    let mut rows = vec![
        ("triggers, missed".to_owned(), format!("{}, {}", outcome.triggers, outcome.triggers_missed)),
        (format!("{word}s complete"), bursts.complete.to_string()),
        (format!("{word}s partial"), bursts.partial.to_string()),
        (format!("{word}s dropped"), bursts.dropped.to_string()),
        (format!("{word}s lost"), bursts.lost.to_string()),
        (format!("{word}s in flight at the end"), bursts.in_flight.to_string()),
        ("packets delivered".into(), packets.delivered.to_string()),
    ];
    for drop in &outcome.drops {
        rows.push((format!("packets dropped: {}, {}", drop.stage, drop.cause), drop.packets.to_string()));
    }
    rows.push(("packets in flight at the end".into(), packets.in_flight.to_string()));
    rows.push(("packets generated".into(), packets.generated.to_string()));
    rows.push(("delivered".into(), Rate(outcome.rate.mean_bits_per_s).to_string()));
    let (low, high) = (Rate(outcome.rate.p1_bits_per_s), Rate(outcome.rate.p99_bits_per_s));
    rows.push((
        format!("delivered in {}, 1 % to 99 %", Seconds(outcome.simulated_s / 1000.0)),
        format!("{low} to {high}"),
    ));
    print_table(&rows);
    outln!();
    let rows: Vec<_> = outcome
        .stages
        .iter()
        .map(|stage| {
            let formula = report.stages.iter().find(|of| of.name == stage.name);
            let is_pool = stage.name == "pool";
            [
                stage.name.clone(),
                stage.packets.to_string(),
                stage.dropped.to_string(),
                if is_pool { String::new() } else { percent(stage.busy_share) },
                formula.map_or(String::new(), |stage| percent(stage.used)),
                Bytes(stage.high_water_bytes as f64).to_string(),
            ]
        })
        .collect();
    columns(&["stage", ">packets", ">dropped", ">busy", ">by formula", ">peak backlog"], &rows);
    outln!();
    let row = |name: &str, p: &Percentiles| {
        let times = [p.mean_s, p.p50_s, p.p90_s, p.p99_s, p.p999_s, p.max_s].map(|time| Seconds(time).to_string());
        let [mean, p50, p90, p99, p999, max] = times;
        [name.to_owned(), mean, p50, p90, p99, p999, max]
    };
    let rows = [
        row("packets, until placed", &outcome.packet_latency),
        row(&format!("{word}s, until complete"), &outcome.burst_latency),
    ];
    columns(&["latency", ">mean", ">50 %", ">90 %", ">99 %", ">99.9 %", ">max"], &rows);
}
