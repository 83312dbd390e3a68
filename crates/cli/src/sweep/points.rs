//! Measurement of a list of points, each several times.

use super::files::Files;
use super::lines::Line;
use super::measure::{Bench, LinkCounters, Run};
use super::point::{Point, ShotTiming};
use super::report::Report;
use super::stats::Spread;
use crate::Result;

/// Points to measure.
pub struct Plan {
    /// The points, in the order of their measurement.
    pub points: Vec<Point>,
    /// Number of runs of each point.
    pub repeats: u32,
    /// Files to record to; without any, shots are discarded.
    pub files: Option<Files>,
}

/// Measures everything in the plan, or until Ctrl-C.
pub fn measure(bench: &Bench, plan: &Plan, mut report: Report) -> Result {
    report.print_text(&heading(plan.files.is_some()));
    let total = plan.points.len() * plan.repeats as usize;
    for (index, point) in plan.points.iter().enumerate() {
        let mut runs = Vec::new();
        let trigger = (bench.timing() == ShotTiming::Trigger).then_some(point.hz);
        let ready = bench.ready(point.samples, trigger)?;
        for repeat in 0..plan.repeats {
            let text = format!("{} samples {} trigger {} Hz", point.framing, point.samples, point.hz);
            report.progress(&text, index * plan.repeats as usize + repeat as usize, total);
            let file = plan.files.as_ref().map(|files| files.next(point, bench.seconds(), repeat));
            match ready.run(point, file.as_ref())? {
                Some(run) => {
                    report.page().add_run(point, &run);
                    runs.push(run);
                }
                None => break,
            }
        }
        report_point(point, &runs, &mut report)?;
        if bench.interrupted() {
            break;
        }
    }
    report.end(bench.interrupted())
}

/// Reports one line for each link.
fn report_point(point: &Point, runs: &[Run], report: &mut Report) -> Result {
    for run in runs {
        report.warn(&run.warnings);
    }
    let Some(Run { geometry, links, .. }) = runs.first() else { return Ok(()) };
    for link in 0..links.len() {
        let counts: Vec<&LinkCounters> = runs.iter().filter_map(|run| run.links.get(link)).collect();
        let spread = |of: fn(&LinkCounters) -> f64| Spread::of(counts.iter().map(|counts| of(counts)));
        let rates = (spread(|counts| counts.frame_rate_hz), spread(|counts| counts.bandwidth_gbps));
        let (Some(frame_rate_hz), Some(bandwidth_gbps)) = rates else { continue };
        let line = Line {
            framing: point.framing.name(),
            samples: point.samples,
            shot_bytes: geometry.shot_bytes(),
            shot_packets: geometry.packets(),
            trigger_hz: point.hz,
            link,
            frame_rate_hz,
            bandwidth_gbps,
            write_gbps: Spread::of(runs.iter().filter_map(|run| run.write_gbps)),
            runs: counts,
        };
        report.line(&line)?;
        report.print_text(&row(&line));
        report.page().add_point(&line);
    }
    Ok(())
}

fn heading(recording: bool) -> String {
    let written = if recording { "  written      ±" } else { "" };
    format!(
        "\nframing samples link  trigger Hz   shots/s       ±     worst      best  Gbit/s      ±{written}    missed  shots lost  packets lost"
    )
}

fn row(line: &Line<'_>) -> String {
    let Line { framing, samples, trigger_hz, link, frame_rate_hz: rate, bandwidth_gbps: bandwidth, .. } = line;
    let written = line.write_gbps.map_or(String::new(), |gbps| format!("{:9.2}{:7.2}", gbps.mean, gbps.std));
    let (missed, shots, packets) = line.lost();
    let missed = missed.map_or("-".into(), |missed| missed.to_string());
    format!(
        "{framing:7}{samples:8}{link:5}{trigger_hz:12}{:10.1}{:8.1}{:10.1}{:10.1}{:8.2}{:7.2}{written}{missed:>10}{shots:12}{packets:14}",
        rate.mean, rate.std, rate.min, rate.max, bandwidth.mean, bandwidth.std
    )
}
