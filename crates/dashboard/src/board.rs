//! The subject of a command that publishes its state itself.

use crate::log::Log;
use crate::pictures::{Gallery, Studio};
use crate::progress;
use crate::status::{About, Control, LogLevel, Phase, Status, Text};
use crate::{Action, Subject};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a state should be followed by the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// What the page says about a command.
#[derive(Clone, Debug, Default)]
pub struct BoardInfo {
    /// Name and version of the program.
    pub program: Text,
    /// Name of the command.
    pub command: Text,
    /// What it works on.
    pub title: String,
    /// Settings in the order to show.
    pub settings: Vec<(Text, String)>,
    /// What happens when it is stopped, in one sentence.
    pub stopping: &'static str,
}

/// A command that publishes its state: the counters of others' threads cannot be read from the page's.
pub struct Board {
    info: BoardInfo,
    stop: Arc<AtomicBool>,
    studio: Studio,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    status: Status,
    published: Option<Instant>,
    log: Log,
    /// Time at the end.
    ended_s: Option<f64>,
}

impl Board {
    /// Begins with an empty state. `stop` ends the command.
    pub fn new(info: BoardInfo, stop: Arc<AtomicBool>, studio: Studio) -> Self {
        Self { info, stop, studio, started: Instant::now(), state: Mutex::default() }
    }

    /// Returns `true` if the state is old enough for the next one.
    pub fn is_due(&self, now: Instant) -> bool {
        self.state().published.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL)
    }

    /// Publishes the state: the phase, the progress and what is measured. The board adds the time and the log.
    pub fn publish(&self, status: Status) {
        let mut state = self.state();
        (state.status, state.published) = (status, Some(Instant::now()));
    }

    /// Adds a message to the log.
    pub fn log(&self, level: LogLevel, text: impl Into<String>) {
        self.state().log.add(level, text.into());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for Board {
    fn about(&self) -> About {
        let BoardInfo { program, command, title, settings, stopping } = self.info.clone();
        let phases = vec![Phase::Starting, Phase::Waiting, Phase::Running];
        let stop = Control { action: "stop", label: "Stop", about: stopping.into(), phases, input: None };
        let pictures = self.studio.gallery().kinds().to_vec();
        About { program, command, title, settings, controls: vec![stop], pictures }
    }

    fn status(&self) -> Status {
        let state = self.state();
        let mut status = state.status.clone();
        status.seconds = state.ended_s.unwrap_or_else(|| self.started.elapsed().as_secs_f64());
        if state.ended_s.is_some() {
            status.phase = Phase::Ended;
        }
        status.families.extend(progress::families(status.phase, status.progress, status.seconds));
        status.log = state.log.entries();
        status
    }

    fn control(&self, action: &Action) -> Result<String, String> {
        match action {
            Action::Stop {} => {
                self.stop.store(true, Relaxed);
                Ok(self.info.stopping.into())
            }
            Action::Trigger {} => Err(format!("{} has no triggers", self.info.command)),
            Action::Start { .. } => Err(format!("{} runs since it was started", self.info.command)),
        }
    }

    fn end(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.state().ended_s.get_or_insert(seconds);
    }

    fn gallery(&self) -> Arc<Gallery> {
        Arc::clone(self.studio.gallery())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Board {
        let info = BoardInfo { command: "count".into(), stopping: "Ends.", ..BoardInfo::default() };
        Board::new(info, Arc::default(), Studio::open(Vec::new()).unwrap())
    }

    #[test]
    fn the_state_is_the_published_one_until_the_end() {
        let board = board();
        let now = Instant::now();
        assert!(board.is_due(now), "there is none yet");
        assert_eq!(board.status().phase, Phase::Starting);
        board.publish(Status { phase: Phase::Running, progress: Some(0.5), ..Status::default() });
        assert!(!board.is_due(now) && board.is_due(Instant::now() + INTERVAL));
        let status = board.status();
        assert_eq!((status.phase, status.progress), (Phase::Running, Some(0.5)));
        assert!(status.families.iter().any(|family| family.name == "run_progress"));
        board.end();
        let (first, second) = (board.status(), board.status());
        assert_eq!((first.phase, first.seconds), (Phase::Ended, second.seconds));
    }

    #[test]
    fn only_stop_is_a_control() {
        let board = board();
        assert_eq!(board.about().controls.len(), 1);
        for action in [Action::Trigger {}, Action::Start { samples: None }] {
            assert!(board.control(&action).unwrap_err().starts_with("count "), "{action:?}");
        }
        assert!(!board.stop.load(Relaxed));
        assert_eq!(board.control(&Action::Stop {}), Ok("Ends.".into()));
        assert!(board.stop.load(Relaxed));
    }
}
