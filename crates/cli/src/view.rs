//! The live view on the terminal: a few lines that are redrawn in place and stay in the scrollback. Alternatively, JSON
//! objects, one per line.
//!
//! ratatui lays the lines out into a buffer of cells, which are then written relative to the cursor. So the terminal is
//! not queried, it stays in its ordinary mode, and Ctrl-C stays a signal.

use crate::output::{STDERR, escape_controls};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Sparkline, Widget};
use serde::Serialize;
use shotline_acquire::align::{AlignmentStatus, LinkStatus};
use shotline_acquire::config::Settings;
use shotline_acquire::live::{Live, LiveCounters};
use shotline_acquire::stages;
use shotline_acquire::summary::busy;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Lines of the view, without those of aligned links.
const HEIGHT: u16 = 4;
/// Maximum number of columns.
const WIDTH: u16 = 80;
/// Time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time between two lines of JSON.
const MIN_LINE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of readings that rates are computed over.
const RATE_READINGS: usize = 4;

/// The end of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Target {
    /// Number of rows.
    pub shots: Option<u64>,
    /// Time in seconds.
    pub seconds: Option<f64>,
}

impl Target {
    /// Returns the end that the settings define.
    pub fn of(settings: &Settings) -> Self {
        Self { shots: settings.shots, seconds: settings.seconds }
    }
}

/// Display of a run's progress on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// No display.
    Nothing,
    /// Lines that are redrawn in place.
    Screen,
    /// Lines of JSON.
    Lines,
}

/// Calls `work` while the progress of its run is shown on standard error.
pub fn with_view<T>(show: Show, target: Target, live: &Live, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        match show {
            Show::Nothing => {}
            Show::Screen => drop(scope.spawn(move || draw(live, &ended, target))),
            Show::Lines => drop(scope.spawn(move || write_json_lines(live, &ended))),
        }
        let result = work();
        drop(done);
        result
    })
}

/// Writes a text on standard error. Waits only for the last one. Returns `false` if the text was discarded.
fn write_text(text: String, last: bool) -> bool {
    if !last {
        return STDERR.try_queue(text);
    }
    STDERR.write_and_flush(text);
    true
}

/// Redraws the view until the run has ended.
fn draw(live: &Live, ended: &Receiver<()>, target: Target) {
    let mut history = History::new(target);
    let mut screen = Screen::default();
    loop {
        let last = ended.recv_timeout(FRAME_INTERVAL) != Err(RecvTimeoutError::Timeout);
        history.add(Instant::now(), live.read());
        history.alignment = live.alignment();
        history.stages = live.stages();
        screen.draw(history.height(), last, |buffer| layout(&history, buffer));
        if last {
            break;
        }
    }
}

/// A line of progress. Counts cover the whole run so far.
#[derive(Serialize)]
struct Progress {
    /// Time since the program began, in seconds.
    seconds: f64,
    /// The receiver is ready: packets that arrive from now on are received.
    listening: bool,
    /// Rows that are visible to readers of the file; with `--durable` they survive a power cut.
    rows: u64,
    shots_complete: u64,
    shots_partial: u64,
    shots_dropped: u64,
    packets: u64,
    packets_dropped: u64,
}

/// Writes a line whenever a counter has changed, and one at the end of the run.
fn write_json_lines(live: &Live, ended: &Receiver<()>) {
    let start = Instant::now();
    let mut last_written = None;
    loop {
        let last = ended.recv_timeout(MIN_LINE_INTERVAL) != Err(RecvTimeoutError::Timeout);
        let (reading, listening) = (live.read(), live.is_listening());
        if last || last_written != Some((reading, listening)) {
            let line = Progress {
                seconds: start.elapsed().as_secs_f64(),
                listening,
                rows: reading.rows,
                shots_complete: reading.complete,
                shots_partial: reading.partial,
                shots_dropped: reading.shots_dropped,
                packets: reading.packets,
                packets_dropped: reading.packets_dropped,
            };
            let line = serde_json::to_string(&line).unwrap_or_default() + "\n";
            if write_text(line, last) {
                last_written = Some((reading, listening));
            }
        }
        if last {
            break;
        }
    }
}

/// Readings over time, and the rates derived from them.
struct History {
    target: Target,
    start: Instant,
    readings: VecDeque<(Instant, LiveCounters)>,
    /// Rates in Mbit/s, one per frame.
    rates: VecDeque<u64>,
    /// Alignment of several links.
    alignment: AlignmentStatus,
    /// Load of each stage.
    stages: [stages::Reading; 2],
}

impl History {
    fn new(target: Target) -> Self {
        let start = Instant::now();
        Self {
            target,
            start,
            readings: [(start, LiveCounters::default())].into(),
            rates: VecDeque::new(),
            alignment: AlignmentStatus::default(),
            stages: Live::default().stages(),
        }
    }

    fn add(&mut self, now: Instant, reading: LiveCounters) {
        if let Some((before, last)) = self.readings.back() {
            let seconds = now.saturating_duration_since(*before).as_secs_f64();
            self.rates.push_back(per_second(last.bytes, reading.bytes, seconds, 8.0 / 1e6) as u64);
        }
        self.readings.push_back((now, reading));
        self.readings.truncate_front_to(RATE_READINGS + 1);
        self.rates.truncate_front_to(usize::from(WIDTH));
    }

    /// Returns the latest reading, and Gbit/s and shots/s over the last second.
    fn now(&self) -> (LiveCounters, f64, f64) {
        let (Some((then, first)), Some((now, last))) = (self.readings.front(), self.readings.back()) else {
            return (LiveCounters::default(), 0.0, 0.0);
        };
        let seconds = now.saturating_duration_since(*then).as_secs_f64();
        let shots = |reading: &LiveCounters| reading.complete + reading.partial;
        (
            *last,
            per_second(first.bytes, last.bytes, seconds, 8.0 / 1e9),
            per_second(shots(first), shots(last), seconds, 1.0),
        )
    }

    /// Returns the number of lines of the view: several links have one line each, and one for all.
    fn height(&self) -> u16 {
        let links = self.alignment.links.len() as u16;
        HEIGHT + if links > 1 { links + 1 } else { 0 }
    }

    fn elapsed(&self) -> f64 {
        self.readings.back().map_or(0.0, |(now, _)| now.saturating_duration_since(self.start).as_secs_f64())
    }
}

fn per_second(from: u64, to: u64, seconds: f64, unit: f64) -> f64 {
    if seconds > 0.0 { to.saturating_sub(from) as f64 * unit / seconds } else { 0.0 }
}

trait TruncateFront {
    fn truncate_front_to(&mut self, max_len: usize);
}

impl<T> TruncateFront for VecDeque<T> {
    fn truncate_front_to(&mut self, max_len: usize) {
        self.drain(..self.len().saturating_sub(max_len));
    }
}

/// Lays the view out.
fn layout(history: &History, buffer: &mut Buffer) {
    let [title, numbers, drops, graph, links] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(buffer.area);
    let (reading, gbps, shots) = history.now();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let alarm = |count: u64| if count > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };

    let [left, right] = Layout::horizontal([Constraint::Length(46), Constraint::Min(0)]).areas(title);
    Line::from(vec![
        Span::styled(format!("{gbps:7.2} Gbit/s"), bold),
        Span::raw(format!("   {shots:8.0} shots/s   {:6.1} s", history.elapsed())),
    ])
    .render(left, buffer);
    progress(history, &reading, right, buffer);

    Line::from(vec![
        Span::raw("  complete "),
        Span::styled(reading.complete.to_string(), Style::new().fg(Color::Green)),
        Span::raw("   partial "),
        Span::styled(reading.partial.to_string(), alarm(reading.partial)),
        Span::raw("   dropped "),
        Span::styled(reading.shots_dropped.to_string(), alarm(reading.shots_dropped)),
        Span::raw(format!("   rows in file {}", reading.rows)),
    ])
    .render(numbers, buffer);
    Line::from(vec![
        Span::raw(format!("  packets {}   dropped ", reading.packets)),
        Span::styled(reading.packets_dropped.to_string(), alarm(reading.packets_dropped)),
        Span::raw(format!("   busy: {}", busy(&history.stages))),
    ])
    .render(drops, buffer);

    let [left, right] = Layout::horizontal([Constraint::Length(2), Constraint::Min(0)]).areas(graph);
    Line::raw("").render(left, buffer);
    let from = history.rates.len().saturating_sub(usize::from(right.width));
    let rates = history.rates.iter().skip(from).copied().collect::<Vec<_>>();
    Sparkline::default().data(rates).style(Style::new().fg(Color::Cyan)).render(right, buffer);
    if links.height > 0 {
        render_links(&history.alignment, links, buffer);
    }
}

/// Draws the event counters, and the alignment of each link.
fn render_links(alignment: &AlignmentStatus, area: Rect, buffer: &mut Buffer) {
    let events = &alignment.events;
    let words = format!(
        "  events complete {}   incomplete {}   below the quorum {}",
        events.complete, events.partial, events.dropped
    );
    let lines =
        std::iter::once(words).chain(alignment.links.iter().enumerate().map(|(index, link)| link_line(index, link)));
    for (line, y) in lines.zip(area.y..area.bottom()) {
        Line::raw(line).render(Rect { y, height: 1, ..area }, buffer);
    }
}

fn link_line(index: usize, link: &LinkStatus) -> String {
    let LinkStatus { clock, counters: counts, stopped } = link;
    let state = match (stopped, clock.at_ns, clock.locked) {
        (true, ..) => "stopped".into(),
        (_, 0, _) => "no clock".into(),
        (_, _, locked) => {
            let (offset_us, drift_ppm) = (clock.offset_ns as f64 / 1e3, clock.drift_ppb as f64 / 1e3);
            format!("{} {offset_us:+.1} us {drift_ppm:+.2} ppm", if locked { "locked" } else { "unlocked" })
        }
    };
    format!("  link {index}  {state:<40} in {}   missed {}   late {}", counts.joined, counts.missing, counts.late)
}

/// Draws the progress of the run, if it has an end.
fn progress(history: &History, reading: &LiveCounters, area: Rect, buffer: &mut Buffer) {
    let (done, label) = match history.target {
        Target { shots: Some(shots), .. } => {
            let done = reading.rows.max(if reading.rows == 0 { reading.complete + reading.partial } else { 0 });
            (done as f64 / shots as f64, format!("{} of {shots} rows", done.min(shots)))
        }
        Target { seconds: Some(seconds), .. } => (history.elapsed() / seconds.max(1e-3), format!("of {seconds:.0} s")),
        _ => {
            Line::raw("Ctrl-C ends the run").style(Style::new().add_modifier(Modifier::DIM)).render(area, buffer);
            return;
        }
    };
    Gauge::default()
        .ratio(done.clamp(0.0, 1.0))
        .label(label)
        .gauge_style(Style::new().fg(Color::Cyan))
        .render(area, buffer);
}

/// Lines on standard error that are redrawn in place.
#[derive(Default)]
pub struct Screen {
    /// Number of lines of the previous frame.
    drawn: u16,
}

impl Screen {
    /// Draws a frame of `height` lines over the previous one. Waits for the terminal only if it is the last one.
    pub fn draw(&mut self, height: u16, last: bool, layout: impl FnOnce(&mut Buffer)) {
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_col);
        // Some terminals do not know their size.
        let columns = if columns == 0 { WIDTH } else { columns };
        // The last column stays free, because some terminals wrap as soon as it is written.
        let width = columns.saturating_sub(1).clamp(20, WIDTH - 1);
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        layout(&mut buffer);
        let mut out = String::new();
        if self.drawn > 0 {
            let _ = write!(out, "\r\x1b[{}A", self.drawn);
        }
        for y in 0..height {
            out.push('\r');
            write_row(&buffer, y, &mut out);
            out.push_str("\x1b[K\n");
        }
        if last {
            out.push_str("\x1b[J");
        }
        if write_text(out, last) {
            self.drawn = height;
        }
    }
}

/// Writes one row of cells, with the control sequences for their style.
fn write_row(buffer: &Buffer, y: u16, out: &mut String) {
    let mut style = Style::reset();
    for x in 0..buffer.area.width {
        let Some(cell) = buffer.cell((x, y)) else { continue };
        if cell.style() != style {
            style = cell.style();
            out.push_str("\x1b[0");
            for (modifier, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
                if style.add_modifier.contains(modifier) {
                    let _ = write!(out, ";{code}");
                }
            }
            for (color, base) in [(style.fg, 30), (style.bg, 40)] {
                if let Some(index) = color.and_then(ansi) {
                    let _ = write!(out, ";{}", base + index);
                }
            }
            out.push('m');
        }
        out.push_str(&escape_controls(cell.symbol()));
    }
    out.push_str("\x1b[0m");
}

/// Returns the ANSI number of a colour that this view uses.
fn ansi(color: Color) -> Option<u8> {
    match color {
        Color::Black => Some(0),
        Color::Green => Some(2),
        Color::Yellow => Some(3),
        Color::Cyan => Some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(target: Target, width: u16) -> String {
        let mut history = History::new(target);
        for step in 1..=8_u64 {
            let now = history.start + FRAME_INTERVAL * step as u32;
            let bytes = step * 250_000_000;
            history.add(now, LiveCounters { bytes, complete: step * 100, rows: step * 50, ..LiveCounters::default() });
        }
        text(&history, width)
    }

    fn text(history: &History, width: u16) -> String {
        let height = history.height();
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        layout(history, &mut buffer);
        let row = |y| (0..width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect::<String>();
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_link_shows_clock_and_missed_events() {
        let mut history = History::new(Target::default());
        history.alignment.events.partial = 7;
        for index in 0..3 {
            let mut link = LinkStatus::default();
            link.counters.missing = 40 + index;
            link.clock.at_ns = index;
            (link.clock.offset_ns, link.clock.drift_ppb) = (-1_234_500, 12_340);
            (link.clock.locked, link.stopped) = (index == 1, index == 2);
            history.alignment.links.push(link);
        }
        let text = text(&history, 79);
        let shown = [
            "incomplete 7",
            "link 0  no clock",
            "link 1  locked -1234.5 us +12.34 ppm",
            "missed 41",
            "link 2  stopped",
        ];
        for shown in shown {
            assert!(text.contains(shown), "{shown} is missing in\n{text}");
        }
        assert_eq!(text.lines().count(), 8);
        history.alignment.links.truncate(1);
        assert_eq!(history.height(), HEIGHT, "one link needs no alignment lines");
    }

    #[test]
    fn rates_counts_and_progress_are_shown_in_80_columns() {
        let text = drawn(Target { shots: Some(800), seconds: None }, 79);
        for shown in ["8.00 Gbit/s", "400 shots/s", "2.0 s", "400 of 800 rows", "complete 800", "rows in file 400", "█"]
        {
            assert!(text.contains(shown), "{shown} is missing in\n{text}");
        }
        assert!(drawn(Target::default(), 79).contains("Ctrl-C"));
    }

    #[test]
    fn every_width_can_be_drawn() {
        for width in 1..90 {
            let _ = drawn(Target { shots: None, seconds: Some(10.0) }, width);
        }
    }
}
