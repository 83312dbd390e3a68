//! Messages about a run: what changed between two of its states.

use crate::pictures::unix_ms;
use crate::status::{LogEntry, LogLevel, Phase};
use shotline_acquire::live::{AlignmentStatus, Details};
use shotline_store::recorder::WHOLE_RUN;
use shotline_wire::shot::DropCause;
use std::collections::{BTreeMap, VecDeque};

/// Number of messages that are kept.
const KEPT: usize = 100;

/// The newest messages.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<LogEntry>,
    written: u64,
    phase: Phase,
    /// Drops that were reported, by kind, stream and cause.
    drops: BTreeMap<(&'static str, u32, DropCause), u64>,
    /// Links that have stopped.
    stopped: BTreeMap<usize, bool>,
}

impl Journal {
    /// Notes what has changed.
    pub(super) fn note(&mut self, phase: Phase, details: Option<&Details>, alignment: &AlignmentStatus) {
        if phase != self.phase {
            self.phase = phase;
            self.write(
                LogLevel::Info,
                match phase {
                    Phase::Starting => "The run starts.".into(),
                    Phase::Waiting => "Ready; no packet has arrived yet.".into(),
                    Phase::Running => "Packets arrive.".into(),
                    Phase::Ended => "The run is over.".into(),
                },
            );
        }
        for stream in details.iter().flat_map(|details| &details.counters.streams) {
            for (what, drops) in [("packets", &stream.packet_drops), ("shots", &stream.shot_drops)] {
                for (cause, count) in drops.iter() {
                    self.note_drops(what, stream.stream, cause, count);
                }
            }
        }
        for (index, link) in alignment.links.iter().enumerate() {
            let before = self.stopped.insert(index, link.stopped).unwrap_or(false);
            match (before, link.stopped) {
                (false, true) => self.write(LogLevel::Warning, format!("Link {index}: nothing arrives any more.")),
                (true, false) => self.write(LogLevel::Info, format!("Link {index}: packets arrive again.")),
                _ => {}
            }
        }
    }

    fn note_drops(&mut self, what: &'static str, stream: u32, cause: DropCause, count: u64) {
        let noted = self.drops.entry((what, stream, cause)).or_default();
        let new = count.saturating_sub(*noted);
        *noted = count;
        if new > 0 {
            let stream = if stream == WHOLE_RUN { "No stream".into() } else { format!("Stream {stream}") };
            self.write(LogLevel::Warning, format!("{stream}: {new} {what} lost, {cause}: {}.", cause.meaning()));
        }
    }

    fn write(&mut self, level: LogLevel, text: String) {
        self.entries.push_back(LogEntry { number: self.written, unix_ms: unix_ms(), level, text });
        self.written += 1;
        if self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }

    /// Returns the newest messages, oldest first.
    pub(super) fn entries(&self) -> Vec<LogEntry> {
        self.entries.iter().cloned().collect()
    }
}
