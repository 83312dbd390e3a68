//! The newest messages of a command.

use crate::pictures::unix_ms;
use crate::status::{LogEntry, LogLevel};
use std::collections::VecDeque;

/// Number of messages that are kept.
const LOGGED: usize = 100;

/// Messages with their times.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<LogEntry>,
    count: u64,
}

impl Log {
    /// Adds a message; the oldest one leaves if there are too many.
    pub(crate) fn add(&mut self, level: LogLevel, text: String) {
        self.entries.push_back(LogEntry { number: self.count, unix_ms: unix_ms(), level, text });
        self.count += 1;
        if self.entries.len() > LOGGED {
            self.entries.pop_front();
        }
    }

    /// Returns the messages, oldest first.
    pub(crate) fn entries(&self) -> Vec<LogEntry> {
        self.entries.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_newest_messages() {
        let mut log = Log::default();
        for number in 0..LOGGED + 7 {
            log.add(LogLevel::Info, number.to_string());
        }
        let entries = log.entries();
        assert_eq!((entries.len(), entries[0].number, entries[LOGGED - 1].text.as_str()), (LOGGED, 7, "106"));
    }
}
