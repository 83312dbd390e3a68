//! Lets the threads of a program take the shots of a run while it receives, without a copy.
//!
//! With [`Live::with_consumer`](crate::live::Live::with_consumer) a run hands every event to a [`Consumer`]. Without a
//! file the consumer is the sink of the run: its queue policy and its losses are those of a recorder. With a file it gets
//! references to the same buffers, of which it may hold a part that the recorder does without, and
//! [`Consumer::missed`] counts the events for which it had no place.

use crate::sink::{Lent, Queue};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use shotline_store::shot::Loss;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time for which a thread that takes events quickly sleeps before it asks to be woken: at high rates a wake-up for each
/// event would take processor time from the receive thread.
const MODERATION: Duration = Duration::from_micros(200);
/// Maximum time between two waits of such a thread.
const QUICK: Duration = Duration::from_millis(1);

/// Result of waiting for an event.
#[derive(Debug)]
pub enum Next {
    /// The next event. Its buffers return to the pool when it is dropped.
    Event(Lent),
    /// The run is over, and all of its events were taken.
    Ended,
    /// The time is over.
    TimedOut,
}

/// Place where a program takes the events of a run, with as many threads as it likes.
#[derive(Debug)]
pub struct Consumer {
    /// Queue of the run, once its pool is known.
    queue: OnceLock<Arc<Queue>>,
    /// Set when the run is over.
    ended: AtomicBool,
    /// Number of threads and event loops that wait. Without one the receive thread makes no system call.
    waiting: AtomicU32,
    /// Readable while there may be an event, and after the end.
    wakeup: OwnedFd,
    missed: AtomicU64,
    /// Time of the last wait, in ns since `began`.
    waited_ns: AtomicU64,
    began: Instant,
}

impl Consumer {
    /// Creates a consumer of one run.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Arc<Self>> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            queue: OnceLock::new(),
            ended: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            wakeup,
            missed: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            began: Instant::now(),
        }))
    }

    /// Takes the next event, if there is one. Take the losses ([`Self::take_losses`]) after it: those before this event
    /// are then among them.
    pub fn take(&self) -> Option<Lent> {
        let queue = self.queue.get()?;
        let lent = queue.lend();
        // One wake-up may be for several events, and only one of the waiting threads may have noticed it.
        if lent.is_some() && !queue.is_empty() {
            self.wake();
        }
        lent
    }

    /// Takes the losses of shots that are in no event.
    pub fn take_losses(&self) -> Vec<Loss> {
        self.queue.get().map(|queue| queue.take_losses()).unwrap_or_default()
    }

    /// Takes the next event; waits for it for some time.
    pub fn next(&self, timeout: Duration) -> Next {
        if let Some(lent) = self.take() {
            return Next::Event(lent);
        }
        let deadline = Instant::now().checked_add(timeout);
        if timeout > MODERATION && self.waits_often() {
            std::thread::sleep(MODERATION);
        }
        loop {
            if let Some(lent) = self.take() {
                return Next::Event(lent);
            }
            if self.is_ended() {
                return Next::Ended;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::TimedOut;
            }
            let waiting = self.begin_wait();
            if !self.is_ready() {
                let timeout = left.and_then(|left| Timespec::try_from(left).ok());
                // An interrupted call is repeated.
                let _ = poll(&mut [PollFd::new(&self.wakeup, PollFlags::IN)], timeout.as_ref());
            }
            drop(waiting);
        }
    }

    /// Returns `true` if the last wait was a short time ago, and notes this one.
    fn waits_often(&self) -> bool {
        let now_ns = self.began.elapsed().as_nanos() as u64;
        let before_ns = self.waited_ns.swap(now_ns, Relaxed);
        before_ns > 0 && now_ns.saturating_sub(before_ns) < QUICK.as_nanos() as u64
    }

    /// Begins to wait: until the value is dropped, [`Self::fd`] becomes readable when there is an event or the run is
    /// over. For event loops; check [`Self::is_ready`] before waiting on the descriptor.
    pub fn begin_wait(&self) -> Waiting<'_> {
        self.start_waiting();
        Waiting(self)
    }

    /// As [`Self::begin_wait`], without a borrow: [`Self::stop_waiting`] must follow.
    pub fn start_waiting(&self) {
        self.waiting.fetch_add(1, Relaxed);
        // Either this thread sees an event that is added now, or the receive thread sees that it waits.
        fence(SeqCst);
    }

    /// Ends what [`Self::start_waiting`] began.
    pub fn stop_waiting(&self) {
        self.waiting.fetch_sub(1, Relaxed);
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        fence(SeqCst);
        // The wake-up may have been for another one that waits, and that of the end stays.
        let has_events = || self.queue.get().is_some_and(|queue| !queue.is_empty());
        if self.ended.load(Relaxed) || self.waiting.load(Relaxed) > 0 && has_events() {
            self.signal();
        }
    }

    /// Returns `true` if there is an event, or the run is over.
    pub fn is_ready(&self) -> bool {
        self.ended.load(SeqCst) || self.queue.get().is_some_and(|queue| !queue.is_empty())
    }

    /// Returns the file descriptor to wait on (poll, epoll), between [`Self::start_waiting`] and [`Self::stop_waiting`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Returns `true` if the run is over and all of its events were taken.
    pub fn is_ended(&self) -> bool {
        // Load `ended` first: events added before the end are then visible.
        self.ended.load(SeqCst) && self.queue.get().is_none_or(|queue| queue.is_empty())
    }

    /// Returns the number of events that the program holds, and the maximum.
    pub fn held(&self) -> (usize, usize) {
        self.queue.get().map_or((0, 0), |queue| (queue.lent(), queue.capacity()))
    }

    /// Returns the number of events that a run with a file did not hand to the consumer, because it had no place left.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Takes no more events: the run goes on without the consumer. Returns the number of events that were not taken.
    pub fn abandon(&self) -> u64 {
        let Some(queue) = self.queue.get() else { return 0 };
        queue.abandon();
        std::iter::from_fn(|| queue.pop()).count() as u64
    }

    /// Connects the consumer to the queue of its run.
    pub(crate) fn attach(&self, queue: &Arc<Queue>) {
        let _ = self.queue.set(Arc::clone(queue));
    }

    /// Counts events that the run did not hand over.
    pub(crate) fn miss(&self, events: u64) {
        self.missed.fetch_add(events, Relaxed);
    }

    /// Wakes threads that wait for an event. Called after events were added.
    pub(crate) fn wake(&self) {
        fence(SeqCst);
        if self.waiting.load(Relaxed) > 0 {
            self.signal();
        }
    }

    /// Notes that the run is over.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        self.signal();
    }

    fn signal(&self) {
        // Fails only at the maximum of the counter, which is readable as well.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }
}

/// A wait that ends when this value is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Consumer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}
