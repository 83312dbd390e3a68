//! Runs one after another, which the page starts.

use super::RunSubject;
use crate::pictures::Gallery;
use crate::status::{About, Control, Input, Phase, Status};
use crate::{Action, Subject};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most samples that Start takes; a sender has its own limit.
const MAX_SAMPLES: u32 = 1 << 24;

/// What Start requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartRequest {
    /// Number of samples per channel and shot; none: as in the settings.
    pub samples: Option<u32>,
}

/// A series of runs: shows the present or the last one, and hands the page's Start to the thread that runs.
pub struct Series {
    shown: Mutex<Arc<RunSubject>>,
    /// Number of the shown run.
    generation: AtomicU64,
    state: Mutex<State>,
    requested: Condvar,
    /// Number of samples that Start offers; none if the settings have none.
    samples: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Requested(StartRequest),
    /// The request is taken.
    Starting,
    Running,
}

impl Series {
    /// Stands by. `first` is shown until the first run begins.
    pub fn new(first: RunSubject, samples: Option<u32>) -> Self {
        let (shown, state) = (Mutex::new(Arc::new(first.standing_by())), Mutex::new(State::Idle));
        Self { shown, generation: AtomicU64::new(0), state, requested: Condvar::new(), samples }
    }

    /// Takes a request, for which it waits up to `timeout`. Others are refused until [`finish`](Self::finish).
    pub fn take(&self, timeout: Duration) -> Option<StartRequest> {
        let is_missing = |state: &mut State| !matches!(state, State::Requested(_));
        let waited = self.requested.wait_timeout_while(self.state(), timeout, is_missing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let State::Requested(request) = *state else { return None };
        *state = State::Starting;
        Some(request)
    }

    /// Shows the run that begins.
    pub fn show(&self, run: Arc<RunSubject>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = run;
        self.generation.fetch_add(1, Relaxed);
        *self.state() = State::Running;
    }

    /// Notes that the run is over.
    pub fn finish(&self) {
        // In this order, a page that shows the end can start the next run.
        *self.state() = State::Idle;
        self.shown().end();
    }

    fn start(&self, samples: Option<u32>) -> Result<String, String> {
        if samples.is_some_and(|samples| !(1..=MAX_SAMPLES).contains(&samples)) {
            return Err(format!("expected 1 to {MAX_SAMPLES} samples per channel and shot"));
        }
        let mut state = self.state();
        if *state != State::Idle {
            return Err("a run is in progress: stop it first".into());
        }
        *state = State::Requested(StartRequest { samples });
        self.requested.notify_all();
        Ok("The run starts.".into())
    }

    fn shown(&self) -> Arc<RunSubject> {
        Arc::clone(&self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays valid if a thread panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for Series {
    fn about(&self) -> About {
        let input = Input {
            field: "samples",
            label: "Samples per channel and shot",
            value: self.samples,
            range: [1, MAX_SAMPLES],
        };
        let start = Control {
            action: "start",
            label: "Start",
            about: "Starts a run, which is written to a new file.".into(),
            phases: vec![Phase::Standby, Phase::Ended],
            input: Some(input),
        };
        let mut about = self.shown().about();
        about.controls.insert(0, start);
        about
    }

    fn status(&self) -> Status {
        self.shown().status()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn control(&self, action: &Action) -> Result<String, String> {
        match action {
            Action::Start { samples } => self.start(*samples),
            _ if *self.state() == State::Running => self.shown().control(action),
            _ => Err("no run is in progress".into()),
        }
    }

    fn end(&self) {
        self.shown().end();
    }

    fn gallery(&self) -> Arc<Gallery> {
        self.shown().gallery()
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunInfo;
    use super::*;
    use crate::pictures::Studio;
    use shotline_acquire::live::Live;
    use std::sync::atomic::AtomicBool;

    fn subject(title: &str, stop: &Arc<AtomicBool>) -> RunSubject {
        let info = RunInfo { title: title.into(), takes_triggers: true, ..RunInfo::default() };
        RunSubject::new(info, Arc::new(Live::default()), Arc::clone(stop), Studio::open(Vec::new()).unwrap())
    }

    #[test]
    fn a_start_is_refused_until_the_run_before_is_over() {
        let series = Series::new(subject("", &Arc::default()), None);
        let start = |samples| series.control(&Action::Start { samples });
        assert!(start(Some(0)).is_err() && start(Some(MAX_SAMPLES + 1)).is_err());
        assert_eq!(series.take(Duration::ZERO), None);
        for samples in [Some(500), None] {
            assert!(start(samples).is_ok());
            assert!(start(samples).unwrap_err().contains("in progress"), "it is requested already");
            assert_eq!(series.take(Duration::ZERO), Some(StartRequest { samples }));
            assert!(start(samples).unwrap_err().contains("in progress"), "it is about to begin");
            assert_eq!(series.take(Duration::ZERO), None);
            series.finish();
        }
    }

    #[test]
    fn a_request_wakes_the_thread_that_waits() {
        let series = Series::new(subject("", &Arc::default()), None);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| series.take(Duration::from_secs(600)));
            series.control(&Action::Start { samples: None }).unwrap();
            assert_eq!(waits.join().unwrap(), Some(StartRequest::default()));
        });
    }

    #[test]
    fn controls_of_a_run_have_an_effect_only_during_one() {
        let stop = Arc::new(AtomicBool::new(false));
        let series = Series::new(subject("standing by", &stop), Some(400));
        let others = [Action::Stop {}, Action::Trigger {}];
        let refuses = || others.iter().all(|action| series.control(action).is_err());
        assert_eq!(series.status().phase, Phase::Standby);
        assert!(refuses() && !stop.load(Relaxed));
        series.control(&Action::Start { samples: None }).unwrap();
        series.take(Duration::ZERO).unwrap();
        let before = series.generation();
        series.show(Arc::new(subject("running", &stop)));
        assert_ne!(series.generation(), before);
        assert_eq!((series.about().title.as_str(), series.status().phase), ("running", Phase::Starting));
        assert!(series.control(&Action::Trigger {}).is_ok() && series.control(&Action::Stop {}).is_ok());
        assert!(stop.load(Relaxed));
        series.finish();
        assert_eq!(series.status().phase, Phase::Ended);
        assert!(refuses());
    }
}
