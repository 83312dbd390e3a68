//! Output of a sweep: JSON lines, a table, and progress on a terminal.

use super::common::Common;
use super::measure::Bench;
use super::page::SweepPage;
use super::point::ShotTiming;
use crate::Result;
use crate::demo::granted_receive_buffer;
use serde::Serialize;
use shotline_acquire::config::Bytes;
use shotline_dashboard::BoardInfo;
use shotline_plan::formula::shot::DEAD_TIME_S;
use shotline_wire::setup::Describe;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// The first line: machine, program and probe.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "header")]
pub struct Header {
    sweep: &'static str,
    shotline: &'static str,
    started: String,
    kernel: String,
    cpu: String,
    cores: usize,
    receive_buffer_bytes: usize,
    probe: String,
    emulated: bool,
    links: u8,
    sample_rate_hz: u32,
    shot_overhead_s: f64,
    timing: ShotTiming,
    seconds: f64,
}

impl Header {
    /// Creates the header of this machine, for a sweep of this probe.
    pub fn new(sweep: &'static str, common: &Common, bench: &Bench, probe: &Describe) -> Result<Self> {
        let system = rustix::system::uname();
        let requested = common.receive_buffer.unwrap_or(Bytes(256 << 20)).0 as usize;
        Ok(Self {
            sweep,
            shotline: env!("CARGO_PKG_VERSION"),
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
            cpu: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            receive_buffer_bytes: granted_receive_buffer(requested)?,
            probe: probe.model.as_str().to_owned(),
            emulated: common.probe.is_none(),
            links: bench.links(probe),
            sample_rate_hz: probe.sample_rate_hz,
            shot_overhead_s: DEAD_TIME_S,
            timing: bench.timing(),
            seconds: bench.seconds(),
        })
    }

    /// Returns what the page says about the sweep.
    fn board(&self) -> BoardInfo {
        let settings: [(&'static str, String); 8] = [
            ("probe", format!("{}{}", self.probe, if self.emulated { ", emulated" } else { "" })),
            ("links", self.links.to_string()),
            ("sample rate", format!("{} Hz", self.sample_rate_hz)),
            ("run", format!("{} s", self.seconds)),
            ("receive buffer", format!("{} bytes", self.receive_buffer_bytes)),
            ("processor", format!("{}, {} cores", self.cpu, self.cores)),
            ("kernel", self.kernel.clone()),
            ("started", self.started.clone()),
        ];
        BoardInfo {
            command: "sweep".into(),
            title: format!("{} sweep", self.sweep),
            settings: settings.into_iter().map(|(name, value)| (name.into(), value)).collect(),
            stopping: "Ends the sweep: the points measured so far are reported.",
            ..BoardInfo::default()
        }
    }

    fn words(&self) -> String {
        let Self { cpu, cores, kernel, receive_buffer_bytes, probe, seconds, .. } = self;
        let buffer = receive_buffer_bytes >> 20;
        format!("{probe}, runs of {seconds} s; {cpu}, {cores} cores, {kernel}, {buffer} MiB of receive buffer granted")
    }
}

/// Returns the processor's name, if the kernel reports it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// The last line, with `interrupted` set if points are missing.
#[derive(Serialize)]
#[serde(tag = "kind", rename = "end")]
struct End<'a> {
    interrupted: bool,
    seconds: f64,
    warnings: &'a [String],
}

/// Destinations of the output.
pub struct Report {
    json: bool,
    file: Option<(std::fs::File, PathBuf)>,
    terminal: bool,
    start: Instant,
    warnings: Vec<String>,
    page: SweepPage,
}

impl Report {
    /// Opens the file, if one is requested, writes the header, and serves the page, if it is requested.
    pub fn begin(common: &Common, header: &Header, bench: &Bench) -> Result<Self> {
        let file = common.out.clone().map(|path| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).create_new(!common.force);
            let opened = options.open(&path).map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => {
                    format!("{} exists already: use --force to replace it", path.display())
                }
                _ => format!("cannot write {}: {error}", path.display()),
            });
            opened.map(|file| (file, path))
        });
        let mut report = Self {
            json: common.json,
            file: file.transpose()?,
            terminal: std::io::stderr().is_terminal(),
            start: Instant::now(),
            warnings: Vec::new(),
            page: SweepPage::open(common, bench, header.board())?,
        };
        report.line(header)?;
        report.print_text(&header.words());
        Ok(report)
    }

    /// Writes one JSON line.
    pub fn line(&mut self, line: &impl Serialize) -> Result {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        if let Some((file, path)) = &mut self.file {
            file.write_all(text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        if self.json {
            self.clear();
            crate::output::to_stdout(format_args!("{text}"));
        }
        Ok(())
    }

    /// Prints one line of text.
    pub fn print_text(&self, text: &str) {
        if !self.json {
            self.clear();
            outln!("{text}");
        }
    }

    /// Shows the progress on a terminal and on the page: `done` of `all`.
    pub fn progress(&mut self, text: &str, done: usize, all: usize) {
        self.page.begin_run(text, done, all);
        if self.terminal {
            let left = self.start.elapsed().mul_f64((all - done) as f64 / done.max(1) as f64);
            let left = match done {
                0 => String::new(),
                _ => format!(", about {} left", humantime::format_duration(Duration::from_secs(left.as_secs() + 1))),
            };
            crate::output::to_stderr(format_args!("\r\x1b[K{done} of {all}{left}: {text}"));
        }
    }

    /// Returns the page, for the results of points.
    pub fn page(&mut self) -> &mut SweepPage {
        &mut self.page
    }

    /// Collects warnings, each only once.
    pub fn warn(&mut self, warnings: &[String]) {
        for warning in warnings {
            if !self.warnings.contains(warning) {
                self.page.warn(warning);
                self.warnings.push(warning.clone());
            }
        }
    }

    /// Writes the last line, prints the warnings, and serves the final state.
    pub fn end(mut self, interrupted: bool) -> Result {
        let warnings = std::mem::take(&mut self.warnings);
        self.line(&End { interrupted, seconds: self.start.elapsed().as_secs_f64(), warnings: &warnings })?;
        self.clear();
        for warning in &warnings {
            crate::output::warn(warning);
        }
        if interrupted {
            errln!("interrupted: these are the results so far");
        }
        self.page.end();
        Ok(())
    }

    fn clear(&self) {
        if self.terminal {
            crate::output::to_stderr(format_args!("\r\x1b[K"));
        }
    }
}
