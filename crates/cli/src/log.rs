//! `--log`: what happens in a run as lines on standard error.

use crate::output::{STDERR, escape_controls};
use serde::Serialize;
use shotline_acquire::journal::{Event, Journal, Level};
use shotline_acquire::live::Live;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(200);
/// Maximum length of lines that wait for an output that is not read, in bytes.
const MAX_PENDING: usize = 64 << 10;

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Time, level and a sentence
    Text,
    /// A JSON object: time, level, name of the event, its fields, and the sentence
    Json,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: Level,
    #[serde(flatten)]
    event: &'a Event,
    message: String,
}

impl LogFormat {
    /// Returns the line of an event.
    fn line(self, event: &Event, at: SystemTime) -> String {
        let (time, level, message) =
            (humantime::format_rfc3339_millis(at).to_string(), event.level(), event.to_string());
        match self {
            Self::Text => {
                let level = match level {
                    Level::Info => "info",
                    Level::Warning => "warning",
                    Level::Error => "error",
                };
                // Names of senders come from the network.
                format!("{time} {level:7} {}\n", escape_controls(&message))
            }
            // The fields have string keys only, so that they can be written. JSON escapes control characters.
            Self::Json => serde_json::to_string(&Line { time, level, event, message }).unwrap_or_default() + "\n",
        }
    }

    /// Prints an event at once.
    pub fn print(self, event: &Event) {
        STDERR.write_and_flush(self.line(event, SystemTime::now()));
    }
}

/// Calls `work` while what happens in its run is printed, if a form is given.
pub fn with_log<T>(format: Option<LogFormat>, live: &Live, work: impl FnOnce() -> T) -> T {
    let Some(format) = format else { return work() };
    live.want_details();
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        scope.spawn(move || write_lines(format, live, &ended));
        let result = work();
        drop(done);
        result
    })
}

/// Prints events until the run has ended.
fn write_lines(format: LogFormat, live: &Live, ended: &Receiver<()>) {
    let (mut journal, mut pending) = (Journal::default(), String::new());
    let mut last = false;
    loop {
        for event in journal.read(live, Instant::now()) {
            let line = format.line(&event, SystemTime::now());
            // An output that is not read loses lines, but never delays the run.
            if pending.len() + line.len() <= MAX_PENDING {
                pending.push_str(&line);
            }
        }
        if last {
            STDERR.write_and_flush(pending);
            return;
        }
        if !pending.is_empty() && STDERR.try_queue(pending.clone()) {
            pending.clear();
        }
        last = ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_line_has_time_level_event_fields_and_a_sentence() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let event = Event::LinkSilent { link: 2 };
        let line = LogFormat::Json.line(&event, at);
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({"time": "2023-11-14T22:13:20.123Z", "level": "warning", "event": "link_silent", "link": 2,
                   "message": "Link 2: nothing arrives any more."})
        );
        let text = LogFormat::Text.line(&event, at);
        assert_eq!(text, "2023-11-14T22:13:20.123Z warning Link 2: nothing arrives any more.\n");
    }

    #[test]
    fn control_characters_of_a_sender_stay_escaped() {
        let event = Event::RunFailed { error: "\x1b]0;owned\x07\nerror".into() };
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = format.line(&event, SystemTime::UNIX_EPOCH);
            assert!(!line.trim_end().contains(char::is_control), "{line:?}");
        }
    }
}
