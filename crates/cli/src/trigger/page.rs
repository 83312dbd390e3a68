//! What the page shows of triggers.

use super::row::{Column, Row, labels, lost_columns, step_columns, time_columns};
use crate::serve::metrics::{Metrics, counter, gauge, loss, with_unit};
use shotline_dashboard::status::{LatencyReading, Phase, Status, Table};

/// Returns the state after some settings. `current` is the setting that is being measured.
pub(super) fn status(rows: &[Row], current: Option<String>, all: usize) -> Status {
    let mut metrics = Metrics::default();
    rows.iter().for_each(|row| add(&mut metrics, row));
    let mut latencies: Vec<LatencyReading> = Vec::new();
    for reading in rows.iter().flat_map(|row| &row.latencies) {
        // A setting that was measured again replaces the one before.
        latencies.retain(|known| (&known.name, &known.labels) != (&reading.name, &reading.labels));
        latencies.push(reading.clone());
    }
    let mut tables = vec![
        table("Times from the command to the complete shot, in us", time_columns(), rows),
        table("Times of the steps, medians in us", step_columns(), rows),
        table("Triggers", lost_columns(), rows),
    ];
    if let Some(current) = current {
        let rows = vec![vec![current]];
        tables.insert(0, Table { title: "Now".into(), columns: vec!["setting".into()], rows });
    }
    Status {
        phase: Phase::Running,
        progress: Some(rows.len() as f64 / all.max(1) as f64),
        families: metrics.families(),
        latencies,
        tables,
        ..Status::default()
    }
}

fn table(title: &'static str, columns: Vec<Column>, rows: &[Row]) -> Table {
    let cells = |row: &Row| columns.iter().map(|(_, cell)| cell(row)).collect();
    let names = columns.iter().map(|(name, _)| (*name).into()).collect();
    Table { title: title.into(), columns: names, rows: rows.iter().map(cells).collect() }
}

fn add(metrics: &mut Metrics, row: &Row) {
    let of_row = || labels(&row.names());
    let counts = [
        (counter("trigger_commands", "Triggers that were sent"), row.triggers),
        (gauge("trigger_shots_complete", "Shots with every packet and a valid trailer"), row.complete),
        (loss(gauge("trigger_shots_partial", "Shots with packets missing or a wrong trailer")), row.partial),
        (
            loss(counter("trigger_shots_lost", "Shots of accepted triggers of which nothing was received")),
            row.shots_lost,
        ),
        (counter("triggers_missed", "Triggers that the probe missed because it was busy"), row.busy),
        (counter("triggers_refused", "Triggers that the probe refused"), row.refused),
        (counter("triggers_unanswered", "Triggers with neither a reply nor a shot"), row.unanswered),
        (counter("trigger_answers_lost", "Replies that were lost, of triggers whose shots arrived"), row.answers_lost),
        (counter("commands_lost", "Commands without a shot that were not answered"), row.commands_lost),
        (counter("trigger_packets_received", "Packets that arrived"), row.packets),
        (
            loss(counter("trigger_packets_missing", "Packets that closed shots lack, for any reason")),
            row.packets_missing,
        ),
    ];
    for (family, count) in counts {
        metrics.add(family, of_row(), count);
    }
    let sampling = "Time that the device needs before it can send a shot";
    metrics.set(with_unit("seconds", gauge("trigger_sampling", sampling)), of_row(), row.sampling_us / 1e6);
}
