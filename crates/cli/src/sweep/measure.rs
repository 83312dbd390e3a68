//! One run of a sweep: a probe is triggered at some frequency and received for a while.

use super::common::Common;
use super::files::Scratch;
use super::point::{Point, ShotTiming};
use crate::child::Probe;
use crate::record::over_udp;
use crate::{Result, signals};
use serde::Serialize;
use shotline_acquire::config::Settings;
use shotline_acquire::control::Control;
use shotline_acquire::counters::StreamCounters;
use shotline_acquire::live::Live;
use shotline_acquire::run::{Cause, Outcome};
use shotline_acquire::summary::{ByCause, by_cause};
use shotline_wire::setup::{Describe, Report};
use shotline_wire::shot::{DropCause, Geometry};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes runs with one emulated probe after the other, or with a real probe.
pub struct Bench {
    common: Common,
    timing: ShotTiming,
    seconds: f64,
    stop: Arc<AtomicBool>,
}

/// A probe that can be started any number of times. An emulated one ends when this value is dropped.
pub struct ReadyProbe<'a> {
    bench: &'a Bench,
    address: SocketAddr,
    _child: Option<Probe>,
}

impl Bench {
    /// Creates a bench whose runs Ctrl-C ends cleanly. `seconds` is the default length of a run.
    pub fn new(common: &Common, timing: ShotTiming, seconds: f64) -> Result<Self> {
        let seconds = common.seconds.unwrap_or(seconds);
        common.check()?;
        Ok(Self { common: common.clone(), timing, seconds, stop: signals::stop_flag()? })
    }

    /// Returns the flag that ends the sweep.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Returns what starts the shots.
    pub fn timing(&self) -> ShotTiming {
        self.timing
    }

    /// Returns the length of a run, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Returns `true` if a signal has ended the sweep.
    pub fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Queries the probe's description.
    pub fn describe(&self, max_samples: u32) -> Result<Describe> {
        let ready = self.ready(max_samples, None)?;
        let describe = Control::open(ready.address, false)?.query()?;
        if max_samples > describe.max_samples {
            let supported = describe.max_samples;
            return Err(format!(
                "expected at most {supported} samples, as the probe supports, found {max_samples}: use a lower --samples"
            )
            .into());
        }
        Ok(describe)
    }

    /// Returns the number of links that the probe sends on.
    pub fn links(&self, describe: &Describe) -> u8 {
        self.common.links.unwrap_or(describe.links)
    }

    /// Returns the geometry of the probe's shots with `samples` samples.
    pub fn geometry(&self, probe: &Describe, samples: u32) -> Result<Geometry> {
        Ok(Geometry::new(probe.channels, samples, probe.bits, probe.packing, probe.sample_rate_hz)?)
    }

    /// Starts an emulated probe with a trigger of `trigger_hz`, unless there is a real probe.
    pub fn ready(&self, samples: u32, trigger_hz: Option<f64>) -> Result<ReadyProbe<'_>> {
        if let Some(address) = self.common.probe {
            return Ok(ReadyProbe { bench: self, address, _child: None });
        }
        let mut args = vec![format!("--links={}", self.common.links.unwrap_or(1)), format!("--samples={samples}")];
        args.extend(trigger_hz.map(|hz| format!("--trigger-hz={hz}")));
        args.extend(self.common.probe_cpu.map(|cpu| format!("--cpu={cpu}")));
        let (child, address) = Probe::start(&args)?;
        Ok(ReadyProbe { bench: self, address, _child: Some(child) })
    }
}

impl ReadyProbe<'_> {
    /// Receives for the length of a run, into a file if one is given. Returns `None` if the run was interrupted,
    /// because its counters cover less than requested.
    pub fn run(&self, point: &Point, file: Option<&Scratch>) -> Result<Option<Run>> {
        let Bench { common, timing, seconds, stop } = self.bench;
        if self.bench.interrupted() {
            return Ok(None);
        }
        let settings = Settings {
            probe: Some(self.address),
            // The port of an emulated probe is chosen by the kernel, so that the usual ports stay free.
            bind: common.bind.or(common.probe.is_none().then(|| SocketAddr::new(self.address.ip(), 0))),
            framing: Some(point.framing),
            links: common.links,
            samples: Some(point.samples),
            external_trigger: (*timing == ShotTiming::Trigger).then_some(true),
            rate_hz: (*timing == ShotTiming::Rate).then_some(point.hz),
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
        // Runs in its own thread, so that pinning it to a processor does not affect processes that are started later.
        let received = std::thread::scope(|scope| scope.spawn(|| over_udp(&settings, stop, &Live::default())).join());
        let outcome = received.map_err(|_| "the receive thread panicked: this is a bug, please report it")??;
        // A point that did not last its time, or whose recorder or network failed, is not a measurement.
        if outcome.end.error.is_some() || outcome.end.after_s < *seconds {
            outcome.end.check().map_err(|end| match outcome.end.cause {
                Cause::Full => {
                    format!("a run at {} Hz {end}: use shorter --seconds, or a --dir with more free space", point.hz)
                }
                _ => end,
            })?;
        }
        Ok((!self.bench.interrupted()).then(|| Run::of(&outcome, *timing, point)))
    }
}

/// Result of one run at a point.
#[derive(Debug)]
pub struct Run {
    /// Geometry of a shot.
    pub geometry: Geometry,
    /// Counters of each link.
    pub links: Vec<LinkCounters>,
    /// Rate into the file in Gbit/s, flushing included, or `None` without a file.
    pub write_gbps: Option<f64>,
    /// Number of shots that could not be written to the file.
    pub sink_errors: u64,
    /// Warnings of the run.
    pub warnings: Vec<String>,
}

/// Counters of the triggers, shots and packets of a run. Two sums hold:
///
/// - triggers = shots sent + triggers missed
/// - packets expected = packets placed + missing + unplaced
#[derive(Clone, Debug, Serialize)]
pub struct LinkCounters {
    /// Time from the first packet to the last, plus one period.
    pub seconds: f64,
    /// Number of triggers, or `None` if they are not counted.
    pub triggers: Option<u64>,
    /// Number of triggers that the probe missed because it was busy.
    pub triggers_missed: Option<u64>,
    /// Number of shots that the probe sent, or `None` if it did not answer at the end.
    pub shots_sent: Option<u64>,
    /// Number of shots received completely and verified.
    pub shots_complete: u64,
    /// Number of shots with packets missing.
    pub shots_partial: u64,
    /// Number of dropped shots, by cause.
    pub shots_dropped: ByCause,
    /// Number of packets of the shots that the probe sent.
    pub packets_expected: Option<u64>,
    /// Number of packets placed.
    pub packets_placed: u64,
    /// Number of packets that did not arrive, or arrived damaged or late.
    pub packets_missing: u64,
    /// Number of packets of shots for which there was no buffer.
    pub packets_unplaced: u64,
    /// Number of packets that arrived and were dropped, by cause.
    pub packets_dropped: ByCause,
    /// Complete shots per second.
    pub frame_rate_hz: f64,
    /// Payload placed, in Gbit/s.
    pub bandwidth_gbps: f64,
}

impl Run {
    fn of(outcome: &Outcome, timing: ShotTiming, point: &Point) -> Self {
        let packets = u64::from(outcome.geometry.packets());
        let links = outcome.streams.iter().enumerate().map(|(link, counters)| {
            LinkCounters::of(
                counters,
                outcome.probe_reports.get(link),
                packets,
                timing,
                duration(outcome.seconds, counters.shots, point.hz),
            )
        });
        Self {
            geometry: outcome.geometry,
            links: links.collect(),
            write_gbps: outcome.report.as_ref().map(|_| outcome.write_gbps()),
            sink_errors: outcome.report.as_ref().map_or(0, |report| report.sink_error),
            warnings: outcome.warnings.iter().cloned().chain(outcome.end.check().err()).collect(),
        }
    }

    /// Returns `true` if every shot that the probe sent was received completely and, if there is a file, written to it.
    pub fn lossless(&self) -> bool {
        let whole = |link: &LinkCounters| link.shots_sent.is_some_and(|sent| sent > 0 && sent == link.shots_complete);
        self.sink_errors == 0 && self.links.iter().all(whole)
    }
}

impl LinkCounters {
    fn of(counters: &StreamCounters, report: Option<&Report>, packets: u64, timing: ShotTiming, seconds: f64) -> Self {
        let per_second = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let triggered = report.filter(|_| timing == ShotTiming::Trigger);
        Self {
            seconds,
            triggers: triggered.map(|report| report.shots_sent + report.triggers_missed),
            triggers_missed: triggered.map(|report| report.triggers_missed),
            shots_sent: report.map(|report| report.shots_sent),
            shots_complete: counters.complete,
            shots_partial: counters.partial,
            shots_dropped: by_cause(&counters.shot_drops),
            packets_expected: report.map(|report| report.shots_sent * packets),
            packets_placed: counters.placed,
            packets_missing: counters.packets_missing,
            packets_unplaced: counters.shot_drops.get(DropCause::NoBuffer) * packets,
            packets_dropped: by_cause(&counters.packet_drops),
            frame_rate_hz: per_second(counters.complete as f64),
            bandwidth_gbps: per_second(counters.placed_bytes as f64 * 8e-9),
        }
    }

    /// Returns the number of shots that were sent and are not complete.
    pub fn shots_lost(&self) -> u64 {
        self.shots_partial + self.shots_dropped.values().sum::<u64>()
    }

    /// Returns the number of shots per second that the probe sent.
    pub fn sent_hz(&self) -> f64 {
        if self.seconds > 0.0 { self.shots_sent.unwrap_or(0) as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the number of packets that were not placed.
    pub fn packets_lost(&self) -> u64 {
        self.packets_missing + self.packets_unplaced
    }
}

/// Returns the time in seconds that `shots` shots cover: there are `n - 1` periods between the first and the last of
/// `n`.
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
    fn duration_counts_one_period_per_shot() {
        // Five shots at 100 Hz: the last packet arrives 40 ms after the first.
        assert!((duration(0.04, 5, 100.0) - 0.05).abs() < 1e-12);
        assert_eq!(duration(1e-4, 1, 100.0), 0.01);
        assert_eq!(duration(0.0, 0, 100.0), 0.0);
    }
}
