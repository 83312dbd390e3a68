//! One point of a sweep: a probe, triggered at some frequency, received for a while.

use super::common::Common;
use super::files::Scratch;
use super::point::{By, Point};
use crate::child::Probe;
use crate::output::ByCause;
use crate::record::over_udp;
use crate::{Result, signals};
use serde::Serialize;
use shotline_acquire::books::Books;
use shotline_acquire::config::Settings;
use shotline_acquire::control::Control;
use shotline_acquire::live::Live;
use shotline_acquire::run::{Cause, Outcome};
use shotline_wire::setup::{Describe, Report};
use shotline_wire::shot::{DropCause, DropCounters, Geometry};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes runs, of one probe after the other or of a real one.
pub struct Bench {
    common: Common,
    by: By,
    seconds: f64,
    stop: Arc<AtomicBool>,
}

/// A probe that waits to be started, as often as wanted. An emulated one ends with this.
pub struct Ready<'a> {
    bench: &'a Bench,
    address: SocketAddr,
    _child: Option<Probe>,
}

impl Bench {
    /// Takes Ctrl-C as the wish to end in order. `seconds` is the length of a run, unless the flags say one.
    pub fn new(common: &Common, by: By, seconds: f64) -> Result<Self> {
        let seconds = common.seconds.unwrap_or(seconds);
        common.check()?;
        Ok(Self { common: common.clone(), by, seconds, stop: signals::stop_flag()? })
    }

    /// What starts the shots.
    pub fn by(&self) -> By {
        self.by
    }

    /// Length of a run.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The sweep is to end.
    pub fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What the probe says of itself.
    pub fn describe(&self, most_samples: u32) -> Result<Describe> {
        let ready = self.ready(most_samples, None)?;
        let describe = Control::open(ready.address, false)?.query()?;
        if most_samples > describe.max_samples {
            let most = describe.max_samples;
            return Err(format!("the probe takes up to {most} samples, asked for are {most_samples}: --samples").into());
        }
        Ok(describe)
    }

    /// Links that this probe will send on.
    pub fn links(&self, describe: &Describe) -> u8 {
        self.common.links.unwrap_or(describe.links)
    }

    /// The shape of this probe's shots with so many samples.
    pub fn geometry(&self, probe: &Describe, samples: u32) -> Result<Geometry> {
        Ok(Geometry::new(probe.channels, samples, probe.bits, probe.packing, probe.sample_rate_hz)?)
    }

    /// Starts an emulated probe with a trigger of so many hertz, unless there is a real one.
    pub fn ready(&self, samples: u32, trigger_hz: Option<f64>) -> Result<Ready<'_>> {
        if let Some(address) = self.common.probe {
            return Ok(Ready { bench: self, address, _child: None });
        }
        let mut args = vec![format!("--links={}", self.common.links.unwrap_or(1)), format!("--samples={samples}")];
        args.extend(trigger_hz.map(|hz| format!("--trigger-hz={hz}")));
        args.extend(self.common.probe_cpu.map(|cpu| format!("--cpu={cpu}")));
        let (child, address) = Probe::start(&args)?;
        Ok(Ready { bench: self, address, _child: Some(child) })
    }
}

impl Ready<'_> {
    /// Receives for the time of a run, into a file if one is named. None if the run was interrupted: it is not
    /// what was asked for.
    pub fn run(&self, point: &Point, file: Option<&Scratch>) -> Result<Option<Run>> {
        let Bench { common, by, seconds, stop } = self.bench;
        if self.bench.interrupted() {
            return Ok(None);
        }
        let settings = Settings {
            probe: Some(self.address),
            // A probe of our own is told where to send, so that the usual ports stay free for others.
            bind: common.bind.or(common.probe.is_none().then(|| SocketAddr::new(self.address.ip(), 0))),
            framing: Some(point.framing),
            links: common.links,
            samples: Some(point.samples),
            external_trigger: (*by == By::Trigger).then_some(true),
            rate_hz: (*by == By::Rate).then_some(point.hz),
            seconds: Some(*seconds),
            discard: file.is_none().then_some(true),
            out: file.map(|file| vec![file.path.clone()]),
            capacity: file.and_then(|file| file.rows),
            notes: Some("sweep".into()),
            pool: common.pool,
            receive_buffer: common.receive_buffer,
            cpu: common.cpu,
            ..Settings::default()
        };
        // In a thread of its own: if that is to run on one processor, then it alone, and not what is started here
        // afterwards.
        let received = std::thread::scope(|scope| scope.spawn(|| over_udp(&settings, stop, &Live::default())).join());
        let outcome = received.map_err(|_| "the receive thread panicked: this is a defect, please report it")??;
        // A point that did not last its time, or whose recorder or network failed, is no measurement.
        if outcome.end.error.is_some() || outcome.end.after_s < *seconds {
            outcome.end.check().map_err(|end| match outcome.end.cause {
                Cause::Full => {
                    format!("a run at {} Hz {end}: give --seconds of less, or a --dir with more room", point.hz)
                }
                _ => end,
            })?;
        }
        Ok((!self.bench.interrupted()).then(|| Run::of(&outcome, *by, point)))
    }
}

/// One run at a point.
#[derive(Debug)]
pub struct Run {
    /// The shape of a shot.
    pub geometry: Geometry,
    /// Each link.
    pub links: Vec<Counts>,
    /// Into the file, flushing included, in Gbit/s; none without a file.
    pub write_gbps: Option<f64>,
    /// Shots that could not be written to the file.
    pub sink_errors: u64,
    /// What did not go as it should, in words.
    pub warnings: Vec<String>,
}

/// What became of the triggers, shots and packets of a run. Two sums hold:
///
/// - triggers = shots taken + triggers missed
/// - packets of the shots taken = packets placed + missing + unplaced
#[derive(Clone, Debug, Serialize)]
pub struct Counts {
    /// From the first packet to the last, and one period more.
    pub seconds: f64,
    /// Triggers that came; none if nothing counts them.
    pub triggers: Option<u64>,
    /// Triggers that came while the probe was busy.
    pub triggers_missed: Option<u64>,
    /// Shots that the probe took; none if it did not answer in the end.
    pub shots_taken: Option<u64>,
    /// Shots received whole and proven.
    pub shots_complete: u64,
    /// Shots with packets missing.
    pub shots_partial: u64,
    /// Shots not handed on, by cause.
    pub shots_dropped: ByCause,
    /// Packets of the shots that the probe took.
    pub packets_taken: Option<u64>,
    /// Packets in their places.
    pub packets_placed: u64,
    /// Packets that never came, or came damaged or late.
    pub packets_missing: u64,
    /// Packets of shots for which there was no buffer.
    pub packets_unplaced: u64,
    /// Packets that arrived and were dropped, by cause.
    pub packets_dropped: ByCause,
    /// Complete shots a second.
    pub frame_rate_hz: f64,
    /// Payload in its place, in Gbit/s.
    pub bandwidth_gbps: f64,
}

impl Run {
    fn of(outcome: &Outcome, by: By, point: &Point) -> Self {
        let packets = u64::from(outcome.geometry.packets());
        let links = outcome.streams.iter().enumerate().map(|(link, books)| {
            Counts::of(books, outcome.sent.get(link), packets, by, duration(outcome.seconds, books.shots, point.hz))
        });
        Self {
            geometry: outcome.geometry,
            links: links.collect(),
            write_gbps: outcome.report.as_ref().map(|_| outcome.write_gbps()),
            sink_errors: outcome.report.as_ref().map_or(0, |report| report.sink_error),
            warnings: outcome.warnings.iter().cloned().chain(outcome.end.check().err()).collect(),
        }
    }

    /// Every shot that the probe took has arrived whole, and is in the file if there is one.
    pub fn lossless(&self) -> bool {
        let whole = |link: &Counts| link.shots_taken.is_some_and(|taken| taken > 0 && taken == link.shots_complete);
        self.sink_errors == 0 && self.links.iter().all(whole)
    }
}

impl Counts {
    fn of(books: &Books, report: Option<&Report>, packets: u64, by: By, seconds: f64) -> Self {
        let by_cause = |drops: &DropCounters| drops.iter().map(|(cause, count)| (cause.name(), count)).collect();
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let triggered = report.filter(|_| by == By::Trigger);
        Self {
            seconds,
            triggers: triggered.map(|report| report.shots_sent + report.triggers_missed),
            triggers_missed: triggered.map(|report| report.triggers_missed),
            shots_taken: report.map(|report| report.shots_sent),
            shots_complete: books.complete,
            shots_partial: books.partial,
            shots_dropped: by_cause(&books.shot_drops),
            packets_taken: report.map(|report| report.shots_sent * packets),
            packets_placed: books.placed,
            packets_missing: books.packets_missing,
            packets_unplaced: books.shot_drops.get(DropCause::NoBuffer) * packets,
            packets_dropped: by_cause(&books.packet_drops),
            frame_rate_hz: per_second(books.complete as f64),
            bandwidth_gbps: per_second(books.placed_bytes as f64 * 8e-9),
        }
    }

    /// Shots that were taken and are not complete.
    pub fn shots_lost(&self) -> u64 {
        self.shots_partial + self.shots_dropped.values().sum::<u64>()
    }

    /// Shots that the probe took, a second.
    pub fn sent_hz(&self) -> f64 {
        if self.seconds > 0.0 { self.shots_taken.unwrap_or(0) as f64 / self.seconds } else { 0.0 }
    }

    /// Packets that are in no place.
    pub fn packets_lost(&self) -> u64 {
        self.packets_missing + self.packets_unplaced
    }
}

/// The time that `shots` stand for: between the first and the last of `n` lie `n - 1` periods.
fn duration(first_to_last: f64, shots: u64, hz: f64) -> f64 {
    match shots {
        0 => first_to_last,
        1 => first_to_last.max(1.0 / hz),
        shots => first_to_last * shots as f64 / (shots - 1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_lasts_as_many_periods_as_it_has_shots() {
        // Five shots at 100 Hz: the last packet comes 40 ms after the first.
        assert!((duration(0.04, 5, 100.0) - 0.05).abs() < 1e-12);
        assert_eq!(duration(1e-4, 1, 100.0), 0.01);
        assert_eq!(duration(0.0, 0, 100.0), 0.0);
    }
}
