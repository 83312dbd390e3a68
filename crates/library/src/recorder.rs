//! A run whose shots a program takes.

use crate::error::{Error, ErrorKind};
use crate::process::Owner;
use crate::reading::geometry;
use serde_json::{Value, json};
use shotline_acquire::config::{ChosenTransport, Settings};
use shotline_acquire::consumer::{self, Consumer};
use shotline_acquire::live::{About, Live, Notice};
use shotline_acquire::run::{Outcome, RunError, run};
use shotline_acquire::sink::Lent;
use shotline_store::shot::Loss;
use shotline_wire::shot::DropCause;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of the handle in messages.
const WHAT: &str = "recorder";
/// Maximum time of a wait: the clock must not overflow.
const MAX_WAIT: Duration = Duration::from_secs(86_400);
/// Maximum number of ranges of lost shots that are kept. Beyond them only their counts are.
const MAX_LOSSES: usize = 1 << 16;

/// Result of [`Recorder::next`].
#[derive(Debug)]
pub enum Next {
    /// The next shots, one for each link. Their buffers return to the pool when the value is dropped.
    Shots(Box<Lent>),
    /// The run is over, and all shots were taken.
    Ended,
    /// The time is over.
    TimedOut,
}

/// Shots that the program did not get.
#[derive(Clone, Debug, Default)]
pub struct ShotLosses {
    /// Ranges of shot numbers of one stream, with the cause, in the order in which they were noticed.
    pub ranges: Vec<Loss>,
    /// Number of shots in ranges that are not in the list, because it is full.
    pub unlisted: u64,
}

impl ShotLosses {
    /// Adds a range, extending the last one of its stream and cause where it continues it.
    fn add(&mut self, loss: Loss) {
        let is_full = self.ranges.len() >= MAX_LOSSES;
        let continued = self.ranges.iter_mut().rev().take(16).find(|range| {
            range.stream == loss.stream && range.cause == loss.cause && range.first + range.count == loss.first
        });
        match continued {
            Some(range) => range.count += loss.count,
            None if is_full => self.unlisted += loss.count,
            None => self.ranges.push(loss),
        }
    }

    /// Returns the number of lost shots.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|range| range.count).sum::<u64>() + self.unlisted
    }
}

/// Progress of the run's thread.
#[derive(Debug, Default)]
struct Progress {
    /// Set when packets are received.
    listening: bool,
    /// Result of the run.
    result: Option<Result<Arc<Outcome>, Error>>,
}

/// A run on a thread of its own. Every thread of the program may call it.
///
/// Without [`Settings::out`] the program is the sink of the run: if it takes shots too slowly, or keeps them, later ones
/// are dropped by [`Settings::policy`] and are in [`Self::losses`]. With a file every shot is recorded as without the
/// program, which gets as many as it can take.
#[derive(Debug)]
pub struct Recorder {
    owner: Owner,
    consumer: Arc<Consumer>,
    live: Arc<Live>,
    stop: Arc<AtomicBool>,
    progress: Arc<(Mutex<Progress>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
    losses: Mutex<ShotLosses>,
    /// Number of events that the program has taken, and that were left when it closed the recorder.
    taken: AtomicU64,
    untaken: AtomicU64,
    closed: AtomicBool,
    has_file: bool,
}

impl Recorder {
    /// Starts a run. It returns at once: [`Self::wait_started`] tells when packets are received.
    ///
    /// # Errors
    /// If the settings contradict each other, or the process lacks a descriptor or a thread.
    pub fn start(mut settings: Settings) -> Result<Self, Error> {
        let has_file = settings.out.is_some();
        if !has_file {
            settings.discard = Some(true);
        }
        settings.check().map_err(RunError::from)?;
        let chosen = settings.choose_transport().map_err(RunError::Settings)?;
        let consumer = Consumer::new().map_err(|error| io_error("create a file descriptor", &error))?;
        let live = Arc::new(Live::default().with_consumer(Arc::clone(&consumer)));
        let progress = Arc::new((Mutex::new(Progress::default()), Condvar::new()));
        let noted = Arc::clone(&progress);
        live.on_notice(move |notice| {
            if let Notice::Listening(_) = notice {
                lock(&noted.0).listening = true;
                noted.1.notify_all();
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let run = {
            let (live, stop, progress) = (Arc::clone(&live), Arc::clone(&stop), Arc::clone(&progress));
            move || {
                let result = catch_unwind(AssertUnwindSafe(|| receive(&settings, &chosen, &stop, &live)));
                let result = result.unwrap_or_else(|_| Err(RunError::Panicked("receive").into()));
                lock(&progress.0).result = Some(result);
                progress.1.notify_all();
            }
        };
        let thread = std::thread::Builder::new().name("shotline-receive".into()).spawn(run);
        let thread = thread.map_err(|error| io_error("start a thread", &error))?;
        Ok(Self {
            owner: Owner::this(),
            consumer,
            live,
            stop,
            progress,
            thread: Mutex::new(Some(thread)),
            losses: Mutex::default(),
            taken: AtomicU64::new(0),
            untaken: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            has_file,
        })
    }

    /// Waits until packets are received, or the run has ended before. Returns `false` if `timeout` passes first.
    ///
    /// # Errors
    /// If the run could not begin.
    pub fn wait_started(&self, timeout: Duration) -> Result<bool, Error> {
        self.owner.check(WHAT)?;
        self.wait(timeout, |progress| match &progress.result {
            Some(Err(error)) => Some(Err(error.clone())),
            Some(Ok(_)) => Some(Ok(true)),
            None => progress.listening.then_some(Ok(true)),
        })
        .unwrap_or(Ok(false))
    }

    /// Takes the next shots; waits for them for at most `timeout`. Shots of several links with one number come together.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Self::close`].
    pub fn next(&self, timeout: Duration) -> Result<Next, Error> {
        self.check()?;
        Ok(match self.consumer.next(timeout) {
            consumer::Next::Event(lent) => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                // A program that never asks for them must not make their list grow.
                self.collect_losses();
                Next::Shots(Box::new(lent))
            }
            consumer::Next::Ended => Next::Ended,
            consumer::Next::TimedOut => Next::TimedOut,
        })
    }

    /// Returns a descriptor for event loops, which is readable while there may be shots, between
    /// [`Self::start_waiting`] and [`Self::stop_waiting`].
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Self::close`].
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.check()?;
        Ok(self.consumer.fd())
    }

    /// Begins to wait on the descriptor. Returns `true` if there is something to take already.
    pub fn start_waiting(&self) -> bool {
        // The descriptor is the parent's, too.
        if self.owner.is_this() {
            self.consumer.start_waiting();
        }
        self.consumer.is_ready() || self.closed.load(Ordering::Relaxed)
    }

    /// Ends what [`Self::start_waiting`] began.
    pub fn stop_waiting(&self) {
        if self.owner.is_this() {
            self.consumer.stop_waiting();
        }
    }

    /// Returns `true` if the run is over and all shots were taken.
    pub fn is_ended(&self) -> bool {
        self.consumer.is_ended()
    }

    /// Returns the shots that the program did not get.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`] in a child process.
    pub fn losses(&self) -> Result<ShotLosses, Error> {
        self.owner.check(WHAT)?;
        self.collect_losses();
        Ok(lock(&self.losses).clone())
    }

    /// Returns the number of shots that the program did not get, and of those in ranges that are not listed.
    ///
    /// # Errors
    /// As of [`Self::losses`].
    pub fn lost(&self) -> Result<(u64, u64), Error> {
        self.owner.check(WHAT)?;
        self.collect_losses();
        let losses = lock(&self.losses);
        Ok((losses.total(), losses.unlisted))
    }

    fn collect_losses(&self) {
        let new = self.consumer.take_losses();
        if !new.is_empty() {
            let mut losses = lock(&self.losses);
            new.into_iter().for_each(|loss| losses.add(loss));
        }
    }

    /// Returns the numbers of events that the program has taken, that it holds, and that it may hold.
    pub fn held(&self) -> (u64, usize, usize) {
        let (held, max) = self.consumer.held();
        (self.taken.load(Ordering::Relaxed), held, max)
    }

    /// Returns the number of events that were received for the program and not taken when it closed the recorder.
    pub fn untaken(&self) -> u64 {
        self.untaken.load(Ordering::Relaxed)
    }

    /// Returns `true` if shots are also recorded to a file: then their buffers are the recorder's, too.
    pub fn has_file(&self) -> bool {
        self.has_file
    }

    /// Returns the counters of the run, which any thread may read at any time.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Returns what the run receives; none before it has begun.
    pub fn about(&self) -> Option<&About> {
        self.live.about()
    }

    /// Returns the outcome of the run; none before it is over.
    ///
    /// # Errors
    /// If the run could not begin.
    pub fn outcome(&self) -> Result<Option<Arc<Outcome>>, Error> {
        self.owner.check(WHAT)?;
        lock(&self.progress.0).result.clone().transpose()
    }

    /// Triggers, if the settings have a time before triggers.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Self::close`].
    pub fn trigger(&self) -> Result<(), Error> {
        self.check()?;
        self.live.trigger().store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks the run to end. Shots that have arrived are still handed over.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until the run is over: files are closed and counters final. None if `timeout` passes first.
    ///
    /// # Errors
    /// If the run could not begin.
    pub fn wait_ended(&self, timeout: Duration) -> Result<Option<Arc<Outcome>>, Error> {
        self.owner.check(WHAT)?;
        self.wait(timeout, |progress| progress.result.clone()).transpose()
    }

    /// Ends the run, discards the shots that were not taken, and waits until everything is in the file. Shots that the
    /// program holds stay valid. A second call, and one in a child process, does nothing.
    pub fn close(&self) {
        if !self.owner.is_this() {
            return;
        }
        self.closed.store(true, Ordering::Relaxed);
        self.stop();
        // A consumer that is closed must not keep the receive thread waiting.
        while self.wait(Duration::from_millis(1), |progress| progress.result.as_ref().map(drop)).is_none() {
            self.untaken.fetch_add(self.consumer.abandon(), Ordering::Relaxed);
        }
        self.untaken.fetch_add(self.consumer.abandon(), Ordering::Relaxed);
        if let Some(thread) = lock(&self.thread).take() {
            // It catches its panics.
            let _ = thread.join();
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.owner.check(WHAT)?;
        if self.closed.load(Ordering::Relaxed) { Err(Error::closed(WHAT)) } else { Ok(()) }
    }

    /// Waits until `done` returns something.
    fn wait<T>(&self, timeout: Duration, done: impl Fn(&Progress) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout.min(MAX_WAIT);
        let mut progress = lock(&self.progress.0);
        loop {
            if let Some(value) = done(&progress) {
                return Some(value);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.progress.1.wait_timeout(progress, left);
            (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// Runs on the transport of the settings.
fn receive(
    settings: &Settings,
    chosen: &ChosenTransport,
    stop: &AtomicBool,
    live: &Live,
) -> Result<Arc<Outcome>, Error> {
    let ChosenTransport { transport, options, .. } = chosen;
    let outcome = run(settings, stop, live, |parameters, regions| transport.open(parameters, options, regions))?;
    Ok(Arc::new(outcome))
}

/// Returns what a run receives, as an object of JSON.
pub fn describe(about: &About) -> Value {
    json!({
        "instrument": about.instrument,
        "framing": about.framing,
        "links": about.links,
        "address": about.local.to_string(),
        "geometry": geometry(&about.geometry),
    })
}

/// Returns an error if a run was cut off.
///
/// # Errors
/// Describes the end.
pub fn check_end(outcome: &Outcome) -> Result<(), Error> {
    outcome.end.check().map_err(|end| Error::new(ErrorKind::CutOff, end))
}

/// Returns the causes for which shots can be lost, by number.
pub fn causes() -> [&'static str; DropCause::ALL.len()] {
    DropCause::ALL.map(DropCause::name)
}

fn io_error(what: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io(error.raw_os_error()), format!("cannot {what}: {error}"))
}

/// Locks plain values, which stay valid if a thread panics while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
