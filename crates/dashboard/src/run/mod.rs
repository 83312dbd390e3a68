//! The subject of a run of `acquire`.

mod catalogue;
#[cfg(test)]
mod documented;
mod families;
pub mod paint;
mod series;

use crate::log::Log;
use crate::pictures::{Gallery, Studio};
use crate::status::{
    About, Control, LatencyReading, Level, LogLevel, Phase, ShotPresence, StageReading, Status, Table, Text,
};
use crate::{Action, Subject};
pub use series::{Series, StartRequest};
use shotline_acquire::ShotLatencies;
use shotline_acquire::align::LinkStatus;
use shotline_acquire::journal::{self, Journal};
use shotline_acquire::latency::Latency;
use shotline_acquire::live::{Details, Live};
use shotline_acquire::stages::{Bottleneck, Reading};
use shotline_acquire::tap::ShotMark;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Number of shots in the presence map.
const PRESENCE: usize = 256;
/// Smallest and largest duration of the histograms' bins, as powers of two nanoseconds: 1 us to 17 s.
const BINS: std::ops::RangeInclusive<u32> = 10..=34;

/// What the page says about a run.
#[derive(Clone, Debug, Default)]
pub struct RunInfo {
    /// Name and version of the program.
    pub program: Text,
    /// Name of the command.
    pub command: Text,
    /// What it works on.
    pub title: String,
    /// Settings in the order to show.
    pub settings: Vec<(Text, String)>,
    /// Number of rows at which it ends.
    pub shots: Option<u64>,
    /// Time in seconds after which it ends.
    pub seconds: Option<f64>,
    /// Folders of its files, whose drives are shown.
    pub folders: Vec<PathBuf>,
    /// Triggers have an effect.
    pub takes_triggers: bool,
}

/// A run that is watched.
pub struct RunSubject {
    info: RunInfo,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    studio: Studio,
    /// Time of its beginning; none: it stands by.
    started: Option<Instant>,
    /// Its duration in seconds, once it is over.
    ended_s: OnceLock<f64>,
    memory: Mutex<Memory>,
}

/// What is remembered between two states.
#[derive(Default)]
struct Memory {
    marks: VecDeque<ShotMark>,
    journal: Journal,
    log: Log,
}

impl Memory {
    /// Notes what has happened since the last state.
    fn note(&mut self, live: &Live) {
        while let Some(mark) = live.tap().pop_mark() {
            self.marks.push_back(mark);
        }
        self.marks.drain(..self.marks.len().saturating_sub(PRESENCE));
        for event in self.journal.read(live, Instant::now()) {
            let level = match event.level() {
                journal::Level::Info => LogLevel::Info,
                journal::Level::Warning => LogLevel::Warning,
                journal::Level::Error => LogLevel::Error,
            };
            self.log.add(level, event.to_string());
        }
    }
}

impl RunSubject {
    /// Begins to watch a run. `stop` ends it.
    pub fn new(info: RunInfo, live: Arc<Live>, stop: Arc<AtomicBool>, studio: Studio) -> Self {
        live.tap().observe(true);
        let (started, ended_s) = (Some(Instant::now()), OnceLock::new());
        Self { info, live, stop, studio, started, ended_s, memory: Mutex::default() }
    }

    /// Never begins: it is shown until another run does.
    pub(super) fn standing_by(self) -> Self {
        Self { started: None, ..self }
    }

    /// Adds a message to the log.
    pub fn log(&self, level: LogLevel, text: String) {
        self.memory().log.add(level, text);
    }

    fn phase(&self) -> Phase {
        match (self.ended_s.get().is_some(), self.live.is_listening(), self.live.read().packets) {
            (true, ..) => Phase::Ended,
            _ if self.started.is_none() => Phase::Standby,
            (_, false, _) => Phase::Starting,
            (_, true, 0) => Phase::Waiting,
            _ => Phase::Running,
        }
    }

    /// Returns its duration up to now, or up to its end.
    fn seconds(&self) -> f64 {
        let elapsed = || self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        self.ended_s.get().copied().unwrap_or_else(elapsed)
    }

    fn controls(&self) -> Vec<Control> {
        let phases = vec![Phase::Starting, Phase::Waiting, Phase::Running];
        let control = |action, label, about: &'static str| Control {
            action,
            label,
            about: about.into(),
            phases: phases.clone(),
            input: None,
        };
        let stop = control("stop", "Stop", "Ends the run cleanly: all that was received is in the file.");
        let trigger = self.info.takes_triggers.then(|| control("trigger", "Trigger", "Records the time around now."));
        [stop].into_iter().chain(trigger).collect()
    }

    fn progress(&self, rows: u64, seconds: f64) -> Option<f64> {
        let by_shots = self.info.shots.map(|shots| rows as f64 / shots.max(1) as f64);
        let by_time = self.info.seconds.map(|end| seconds / end.max(1e-3));
        by_shots.or(by_time).map(|progress| progress.clamp(0.0, 1.0))
    }

    /// Returns the fill level of the file, if it does not grow.
    fn file_level(&self, rows: u64) -> Option<Level> {
        let capacity = self.live.about()?.capacity_rows? as f64;
        let (label, unit) = ("Rows of the file".into(), "rows".into());
        // A run that ends by itself at that number is not in danger.
        Some(Level { label, used: rows as f64, capacity, unit, high_is_bad: self.info.shots.is_none() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Marks and messages stay valid if a thread panics while it holds the lock.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for RunSubject {
    fn about(&self) -> About {
        let mut settings = self.info.settings.clone();
        if let Some(about) = self.live.about() {
            let geometry = &about.geometry;
            settings.extend([
                ("instrument".into(), about.instrument.clone()),
                ("receives at".into(), about.local.to_string()),
                (
                    "shape of a shot".into(),
                    format!(
                        "{} samples x {} channels, {} bit",
                        geometry.samples(),
                        geometry.channels(),
                        geometry.bits()
                    ),
                ),
            ]);
        }
        About {
            program: self.info.program.clone(),
            command: self.info.command.clone(),
            title: self.info.title.clone(),
            settings,
            controls: self.controls(),
            pictures: self.studio.gallery().kinds().to_vec(),
        }
    }

    fn status(&self) -> Status {
        let (reading, details, alignment) = (self.live.read(), self.live.details(), self.live.alignment());
        let phase = self.phase();
        let seconds = self.seconds();
        let readings = self.live.stages();
        let progress = self.progress(reading.rows, seconds);
        let drives = drives(&self.info.folders);
        let queue_pairs = self.live.about().map_or(&[][..], |about| &about.queue_pairs);
        let mut memory = self.memory();
        if phase != Phase::Standby {
            memory.note(&self.live);
        }
        let families = [
            families::of_run(&reading, details.as_deref()),
            families::of_links(&alignment.links),
            families::of_stages(&readings),
            families::of_drives(&drives),
            families::of_progress(&self.live, phase, progress, seconds),
        ];
        Status {
            seconds,
            phase,
            progress,
            families: families.into_iter().flatten().collect(),
            latencies: details.iter().flat_map(|details| latencies(details)).collect(),
            limit: (phase == Phase::Running).then(|| Bottleneck::of(&readings).to_string()),
            stages: readings.iter().map(stage).collect(),
            levels: pool(details.as_deref())
                .into_iter()
                .chain(self.file_level(reading.rows))
                .chain(drives.into_iter().map(|(_, level)| level))
                .collect(),
            presence: memory.marks.iter().map(presence).collect(),
            tables: details.iter().map(|details| links(details, &alignment.links, queue_pairs)).collect(),
            log: memory.log.entries(),
        }
    }

    fn control(&self, action: &Action) -> Result<String, String> {
        match action {
            Action::Start { .. } => Err("this run begins by itself: runs that a page starts need --standby".into()),
            Action::Stop {} => {
                self.stop.store(true, Relaxed);
                Ok("The run ends; all that was received is written to the file.".into())
            }
            Action::Trigger {} if self.info.takes_triggers => {
                self.live.trigger().store(true, Relaxed);
                Ok("Triggered.".into())
            }
            Action::Trigger {} => Err("this run records everything: triggers need --pre-trigger".into()),
        }
    }

    fn end(&self) {
        self.ended_s.get_or_init(|| self.seconds());
        self.live.tap().observe(false);
    }

    fn gallery(&self) -> Arc<Gallery> {
        Arc::clone(self.studio.gallery())
    }
}

fn stage(reading: &Reading) -> StageReading {
    let Reading { stage, gbps, busy, starved, stalled, .. } = *reading;
    StageReading { name: stage.into(), busy, starved, stalled, gbps }
}

fn presence(mark: &ShotMark) -> ShotPresence {
    let ShotMark { link, number, complete, parts } = *mark;
    ShotPresence { link, shot: number, complete, parts: format!("{parts:016x}") }
}

fn latencies(details: &Details) -> Vec<LatencyReading> {
    let links = details.latencies.iter().enumerate();
    links
        .flat_map(|(link, ShotLatencies { from_sender, from_kernel })| {
            [
                ("shot_latency_from_sender", "Time from the sender's stamp to the complete shot", from_sender),
                (
                    "shot_latency_from_kernel",
                    "Time from the first packet in the kernel to the complete shot",
                    from_kernel,
                ),
            ]
            .map(|(name, help, latency)| latency_reading(name, help, link, latency))
        })
        .collect()
}

fn latency_reading(name: &'static str, help: &'static str, link: usize, latency: &Latency) -> LatencyReading {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let quantile = |fraction| seconds(latency.percentile_ns(fraction));
    let bins = latency.octaves().filter(|(end, _)| BINS.contains(&end.saturating_add(1).ilog2()));
    LatencyReading {
        name: name.into(),
        help: help.into(),
        labels: vec![("link", link.to_string())],
        count: latency.count(),
        sum_s: seconds(latency.sum_ns()),
        quantiles_s: [
            seconds(latency.min_ns()),
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            seconds(latency.max_ns()),
        ],
        bins: bins.map(|(end, count)| (seconds(end.saturating_add(1)), count)).collect(),
    }
}

fn pool(details: Option<&Details>) -> Option<Level> {
    let (free, slots) = details?.pool;
    Some(Level {
        label: "Shot buffers in use".into(),
        used: (slots - free) as f64,
        capacity: slots as f64,
        unit: "shots".into(),
        high_is_bad: true,
    })
}

/// Returns the fill levels of the drives with these folders.
fn drives(folders: &[PathBuf]) -> Vec<(String, Level)> {
    let level = |folder: &PathBuf| {
        let drive = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks as f64 * drive.f_frsize as f64;
        let name = folder.display().to_string();
        let label = if folders.len() > 1 {
            format!("Drive of {name}, with space that is allocated to files").into()
        } else {
            "Drive, with space that is allocated to files".into()
        };
        let used = bytes(drive.f_blocks.saturating_sub(drive.f_bavail));
        let (capacity, unit) = (bytes(drive.f_blocks), "bytes".into());
        Some((name, Level { label, used, capacity, unit, high_is_bad: true }))
    };
    folders.iter().filter_map(level).collect()
}

fn links(details: &Details, alignment: &[LinkStatus], queue_pairs: &[u32]) -> Table {
    let counted = ["packets", "shots", "complete", "partial", "dropped", "clock", "offset", "drift"];
    let named = if queue_pairs.is_empty() { vec!["link"] } else { vec!["link", "queue pair"] };
    let rows = details.counters.streams.iter().zip(alignment).enumerate().map(|(index, (stream, link))| {
        let clock = &link.clock;
        let state = match (link.stopped, clock.at_ns, clock.locked) {
            (true, ..) => "stopped",
            (_, 0, _) => "none",
            (_, _, true) => "locked",
            _ => "unlocked",
        };
        let counts = [
            stream.packets_in,
            stream.shots_seen,
            stream.shots_complete,
            stream.shots_partial,
            stream.shot_drops.total(),
        ];
        let mut row = vec![index.to_string()];
        row.extend(queue_pairs.get(index).map(|number| format!("{number:#08x}")));
        row.extend(counts.map(|count| count.to_string()));
        row.push(state.into());
        row.push(format!("{:+.1} us", clock.offset_ns as f64 / 1e3));
        row.push(format!("{:+.2} ppm", clock.drift_ppb as f64 / 1e3));
        row
    });
    let columns = named.into_iter().chain(counted).map(Into::into);
    Table { title: "Links".into(), columns: columns.collect(), rows: rows.collect() }
}
