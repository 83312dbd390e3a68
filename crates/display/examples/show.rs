//! Shows frames on a display, or runs the conformance suite on it.
//!
//! `show DISPLAY MODE FRAMES [--every REFRESHES] [--until FILE]` shows so many frames, each as long as the given number of
//! refreshes (1), and then keeps the last one until the file exists. It prints a line of JSON when the display is open, for
//! each frame that is shown, when all are, and at the end. The pixel at column x and row y of frame n is
//! blue `x + 3n`, green `y + 5n`, red `16 (x / 256) + y / 256 + 11n`, each modulo 256.
//!
//! `show DISPLAY MODE conformance` prints the report of the suite.

use rustix::event::{PollFd, PollFlags, Timespec};
use shotline_display::conformance::{Fixture, run};
use shotline_display::{Display, DisplayError, DisplayKind, Event, FrameBuffer, FrameCounters, Mode, Request};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Number of frame buffers.
const BUFFERS: u32 = 3;
/// Longest wait before the file that ends the display is looked for.
const LOOK: Duration = Duration::from_millis(50);

struct Arguments {
    kind: DisplayKind,
    mode: Mode,
    what: String,
    every: u64,
    until: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Result<Self, String> {
        let usage = "expected DISPLAY MODE FRAMES [--every REFRESHES] [--until FILE]";
        let mut words = std::env::args().skip(1);
        let mut next = || words.next().ok_or(usage);
        let (kind, mode, what) = (next()?.parse()?, next()?.parse()?, next()?);
        let (mut every, mut until) = (1, None);
        while let Some(flag) = words.next() {
            let value = words.next().ok_or(usage)?;
            match flag.as_str() {
                "--every" => every = value.parse().map_err(|_| usage)?,
                "--until" => until = Some(value.into()),
                _ => return Err(format!("{usage}, found {flag}")),
            }
        }
        Ok(Self { kind, mode, what, every, until })
    }
}

struct Opened(DisplayKind);

impl Fixture for Opened {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn open(&self, request: &Request) -> Result<Box<dyn Display>, DisplayError> {
        self.0.open(request)
    }
}

/// Fills a buffer with the pattern of a frame.
fn fill(FrameBuffer { region, offset, stride }: &FrameBuffer, mode: Mode, frame: u64) {
    let mut bytes = vec![0; stride * mode.height as usize];
    for (y, row) in bytes.chunks_exact_mut(*stride).enumerate() {
        let green = y as u64 + 5 * frame;
        for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().take(mode.width as usize).enumerate() {
            let red = 16 * (x as u64 / 256) + y as u64 / 256 + 11 * frame;
            *pixel = [(x as u64 + 3 * frame) as u8, green as u8, red as u8, 0];
        }
    }
    region.write(*offset, &bytes);
}

/// A display with the frames that it has.
struct Shower {
    display: Box<dyn Display>,
    free: Vec<usize>,
    /// Frames in buffers that were presented and are not shown yet, with the refreshes at which they are due.
    frames: BTreeMap<usize, (u64, u64)>,
    counters: FrameCounters,
    released: u64,
    last_due: u64,
}

impl Shower {
    /// Shows frames until all are visible.
    fn show(&mut self, count: u64, every: u64) -> Result<(), DisplayError> {
        let mode = self.display.mode();
        while self.counters.shown + self.counters.skipped < count {
            // The first one is shown alone, because the others are due at refreshes after its own.
            let may_present = self.counters.presented == 0 || self.counters.shown > 0;
            if self.counters.presented < count
                && may_present
                && let Some(buffer) = self.free.pop()
            {
                let frame = self.counters.presented;
                fill(&self.display.buffers()[buffer], mode, frame);
                self.last_due += if frame == 0 { 0 } else { every };
                self.frames.insert(buffer, (frame, self.last_due));
                self.display.present(buffer, self.last_due)?;
                self.counters.presented += 1;
            } else {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Waits until something has happened, but not long, and handles it.
    fn wait(&mut self) -> Result<(), DisplayError> {
        let mut events = Vec::new();
        self.display.poll(&mut events)?;
        if events.is_empty() {
            let timeout = Timespec::try_from(self.display.timeout().unwrap_or(LOOK).min(LOOK)).ok();
            let mut fds: Vec<_> =
                self.display.fd().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            // A signal ends the wait early, and the caller continues it.
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        }
        for event in events {
            match event {
                Event::Shown(shown) => {
                    let (frame, due) = self.frames.remove(&shown.buffer).unwrap_or_default();
                    self.counters.add_shown(due, &shown);
                    self.last_due = self.last_due.max(shown.refresh);
                    let (buffer, refresh, micros) = (shown.buffer, shown.refresh, shown.at.as_micros());
                    println!(
                        r#"{{"kind":"shown","frame":{frame},"buffer":{buffer},"due":{due},"refresh":{refresh},"at_us":{micros}}}"#
                    );
                }
                Event::Skipped(buffer) => {
                    self.frames.remove(&buffer);
                    self.counters.skipped += 1;
                }
                Event::Released(buffer) => {
                    self.released += 1;
                    self.free.insert(0, buffer);
                }
                Event::Resized(..) | Event::Closed => {}
            }
        }
        Ok(())
    }

    fn print(&self, kind: &str) {
        let FrameCounters { presented, shown, skipped, late, repeated, .. } = self.counters;
        let (refreshes, released) = (self.counters.refreshes(), self.released);
        println!(
            r#"{{"kind":"{kind}","presented":{presented},"shown":{shown},"skipped":{skipped},"released":{released},"late":{late},"repeated":{repeated},"refreshes":{refreshes}}}"#
        );
    }
}

fn show(arguments: &Arguments, count: u64) -> Result<(), DisplayError> {
    let Arguments { kind, mode, every, until, .. } = arguments;
    let title = "shotline show".into();
    let request =
        Request { mode: *mode, buffers: BUFFERS, title, fullscreen: false, replace: false, unchecked_rows: 0 };
    let display = kind.open(&request)?;
    let modes: Vec<_> = display.modes().iter().map(|mode| format!("\"{mode}\"")).collect();
    let FrameBuffer { region, stride, .. } = &display.buffers()[0];
    println!(
        r#"{{"kind":"open","mode":"{}","modes":[{}],"stride":{stride},"memory":"{:?}","region_bytes":{}}}"#,
        display.mode(),
        modes.join(","),
        region.pages(),
        region.len()
    );
    let (free, counters) = ((0..BUFFERS as usize).rev().collect(), FrameCounters::default());
    let mut shower = Shower { display, free, frames: BTreeMap::new(), counters, released: 0, last_due: 0 };
    shower.show(count, *every)?;
    shower.print("stays");
    while until.as_ref().is_some_and(|file| !file.exists()) {
        shower.wait()?;
    }
    shower.print("end");
    Ok(())
}

fn run_command() -> Result<(), String> {
    let arguments = Arguments::parse()?;
    if arguments.what == "conformance" {
        let report = run(&Opened(arguments.kind), arguments.mode);
        println!(
            "{} of {} checks: {}",
            report.outcomes.len() - report.failed().count(),
            report.outcomes.len(),
            report.failures()
        );
        return if report.failed().next().is_none() { Ok(()) } else { Err("the display does not conform".into()) };
    }
    let count = arguments.what.parse().map_err(|_| format!("expected a number of frames, found {}", arguments.what))?;
    show(&arguments, count).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run_command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("show: {error}");
            ExitCode::FAILURE
        }
    }
}
