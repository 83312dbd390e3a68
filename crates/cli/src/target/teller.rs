//! Live reports, written in a thread of their own: a terminal or a pipe that takes nothing must not stop the target.

use std::io::Write as _;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Reports that may wait to be written. One that finds no room is left out: the next one has all of its counts.
const WAITING: usize = 4;
/// How long the end waits for the last of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes lines to standard output (JSON) or standard error.
pub struct Teller {
    lines: Option<SyncSender<String>>,
    done: Receiver<()>,
}

impl Teller {
    /// Starts the thread.
    pub fn new(json: bool) -> Self {
        let (lines, to_write) = sync_channel::<String>(WAITING);
        let (ended, done) = channel();
        std::thread::spawn(move || {
            for line in to_write {
                // Nobody listens any more: the target serves on.
                let _ =
                    if json { writeln!(std::io::stdout(), "{line}") } else { writeln!(std::io::stderr(), "{line}") };
            }
            let _ = ended.send(());
        });
        Self { lines: Some(lines), done }
    }

    /// Has a line written, if there is room.
    pub fn tell(&self, line: String) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(line);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.done.recv_timeout(PATIENCE);
    }
}
