//! Readings as lines on a terminal, redrawn in place, as tables, or as JSON.

use super::reading::{LinkReading, Reading};
use crate::Result;
use crate::view::Screen;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Widget as _;
use shotline_verbs::spacefibre::{ChannelRates, ChannelStatus};
use std::io::IsTerminal as _;

/// Cells of a bar.
const BAR_CELLS: usize = 8;

/// How readings are shown.
pub enum Show {
    /// Lines on standard error, redrawn in place.
    Screen(Screen),
    /// A table on standard output for each reading.
    Tables,
    /// A JSON object on standard output for each reading.
    Json,
}

impl Show {
    /// Chooses lines that are redrawn if both outputs are a terminal.
    pub fn new(json: bool) -> Self {
        match json {
            true => Self::Json,
            false if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() => {
                Self::Screen(Screen::default())
            }
            false => Self::Tables,
        }
    }

    /// Shows a reading.
    pub fn show(&mut self, reading: &Reading, is_last: bool) -> Result {
        match self {
            Self::Json => outln!("{}", serde_json::to_string(reading)?),
            Self::Tables => {
                lines(reading).iter().for_each(|line| outln!("{}", line.to_string().trim_end()));
                if !is_last {
                    outln!();
                }
            }
            Self::Screen(screen) => {
                let rows = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| size.ws_row);
                // Some terminals do not know their size.
                let rows = if rows == 0 { 24 } else { rows };
                let lines = cut(lines(reading), usize::from(rows.saturating_sub(1).max(2)));
                screen.draw(lines.len() as u16, is_last, |buffer| {
                    for (line, y) in lines.iter().zip(buffer.area.y..buffer.area.bottom()) {
                        line.render(Rect { y, height: 1, ..buffer.area }, buffer);
                    }
                });
            }
        }
        Ok(())
    }
}

/// Reduces lines to those that can be redrawn in place; the last one says how many are missing.
fn cut(mut lines: Vec<Line<'static>>, max: usize) -> Vec<Line<'static>> {
    if lines.len() > max {
        let missing = lines.len() - (max - 1);
        lines.truncate(max - 1);
        lines.push(Line::from(format!("  {missing} more lines do not fit the window")));
    }
    lines
}

/// Returns the lines of a reading.
fn lines(reading: &Reading) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for link in &reading.links {
        lines.extend(link_lines(link));
    }
    let hidden = reading.open as usize - reading.links.len().min(reading.open as usize);
    let hidden = if hidden > 0 { format!(" ({hidden} not shown)") } else { String::new() };
    let packets = &reading.packets;
    lines.push(Line::from(format!(
        "{:.1} s   links {}{hidden}, {} ended   packets out {}   in {}   discarded {}",
        reading.seconds,
        reading.open,
        reading.ended.count,
        packets.packets_out,
        packets.packets_in,
        packets.packets_discarded
    )));
    lines
}

fn link_lines(LinkReading { status, rates }: &LinkReading) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let alarm = Style::new().fg(Color::Yellow);
    let far_end = status.far_end.map_or("on this machine".into(), |address| address.to_string());
    let state = if status.is_up { "up" } else { "not up" };
    let scrambled = if status.scrambled { "scrambled" } else { "not scrambled" };
    let head = format!("link {}   {far_end}   {} lanes   {state}   {scrambled}", status.number, status.lanes);
    let mut lines = vec![Line::styled(head, if status.is_up { bold } else { alarm })];
    lines.extend(status.mismatch().map(|words| Line::styled(format!("  {words}"), alarm)));
    let [gbps_out, gbps_in] = rates.as_ref().map_or([0.0; 2], |rates| [rates.out_gbps, rates.in_gbps]);
    let counters = &status.counters;
    lines.push(Line::from(format!(
        "  Gbit/s out {gbps_out:.3}   in {gbps_in:.3}   not acknowledged {}   link resets {}",
        status.unacknowledged, counters.link_resets
    )));
    let repairs = format!(
        "  retries {}   sent again {}   dropped {}   CRC-16 {}   CRC-8 {}   lost {}",
        counters.retries,
        counters.items_resent,
        counters.frames_dropped,
        counters.crc16_errors,
        counters.crc8_errors,
        status.datagrams.lost
    );
    let is_clean = counters.retries + counters.frames_dropped + status.datagrams.lost == 0;
    lines.push(Line::styled(repairs, if is_clean { Style::new() } else { alarm }));
    let header = format!(
        "  {:>2} {:>5} {:>8} {:>6} {:BAR_CELLS$} {:>6} {:BAR_CELLS$} {:>7} {:>7}",
        "vc", "prio", "reserved", "used", "", "credit", "", "out", "in"
    );
    lines.push(Line::styled(header, Style::new().add_modifier(Modifier::DIM)));
    for (vc, channel) in status.channels.iter().enumerate() {
        let rates = rates.as_ref().and_then(|rates| rates.channels.get(vc).copied());
        lines.push(Line::from(channel_line(vc, channel, rates)));
    }
    lines
}

fn channel_line(vc: usize, channel: &ChannelStatus, rates: Option<ChannelRates>) -> String {
    let ChannelRates { out_gbps, in_gbps, used } =
        rates.unwrap_or(ChannelRates { out_gbps: 0.0, in_gbps: 0.0, used: 0.0 });
    let credit = f64::from(channel.credit) / f64::from(channel.input_words.max(1));
    let bandwidth = match (channel.over_use, channel.under_use) {
        (true, _) => "over",
        (_, true) => "under",
        _ => "",
    };
    format!(
        "  {vc:>2} {:>5} {:>6.1} % {:>4.1} % {} {:>6} {} {out_gbps:>7.3} {in_gbps:>7.3} {bandwidth}",
        channel.priority,
        100.0 * channel.share,
        100.0 * used,
        bar(used),
        channel.credit,
        bar(credit)
    )
}

/// Returns a bar for a part from 0 to 1.
fn bar(part: f64) -> String {
    let full = (part.clamp(0.0, 1.0) * BAR_CELLS as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(BAR_CELLS - full)
}

#[cfg(test)]
mod tests {
    use super::super::demo::Demo;
    use super::*;
    use std::time::Duration;

    fn reading() -> Reading {
        let selector = "lanes=2,vc=75%/1,vc=25%/15/0-31".parse().unwrap();
        let status = Demo::new(&selector, &[], 1.0).unwrap().links();
        let mut now = status.clone();
        let link = &mut now.links[0];
        (link.is_up, link.counters.retries) = (true, 12);
        link.counters.words_out = 31_250_000;
        (link.channels[0].counters.words_out, link.channels[1].counters.words_out) = (23_437_500, 7_812_500);
        link.channels[0].credit = link.channels[0].input_words / 2;
        link.channels[1].over_use = true;
        Reading::new(Duration::from_secs(7), Duration::from_secs(1), &status, &now)
    }

    fn text(reading: &Reading) -> Vec<String> {
        lines(reading).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rates_shares_credit_and_repairs_are_shown_in_79_columns() {
        let lines = text(&reading());
        let all = lines.join("\n");
        for shown in
            ["2 lanes   up   scrambled", "Gbit/s out 1.000   in 0.000", "retries 12", "7.0 s   links 1, 0 ended"]
        {
            assert!(all.contains(shown), "{shown} is missing in\n{all}");
        }
        assert_eq!(lines[4].trim_end(), "   0     1   75.0 % 75.0 % ██████░░   8192 ████░░░░   0.750   0.000");
        assert_eq!(lines[5].trim_end(), "   1    15   25.0 % 25.0 % ██░░░░░░      0 ░░░░░░░░   0.250   0.000 over");
        assert!(lines.iter().all(|line| line.chars().count() <= 79), "{all}");
    }

    #[test]
    fn other_lanes_at_the_far_end_are_named_with_the_remedy() {
        let mut reading = reading();
        (reading.links[0].status.is_up, reading.links[0].status.far_end_lanes) = (false, Some(4));
        let words = "expected 2 lanes, found 4 at the far end: use the same lanes=N at both ends";
        assert!(text(&reading)[1].contains(words), "{}", text(&reading)[1]);
    }

    #[test]
    fn lines_that_do_not_fit_the_window_are_counted() {
        let lines = cut((0..10).map(|line| Line::from(line.to_string())).collect(), 4);
        let text: Vec<_> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["0", "1", "2", "  7 more lines do not fit the window"]);
    }
}
