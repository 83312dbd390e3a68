//! Output that does not block its writer: a terminal that was stopped, or a full pipe that nobody reads.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of texts that wait to be written.
const WAITING: usize = 4;
/// Time without room after which the output counts as stalled.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// An output that a thread of its own writes to, in order.
pub struct Teller<W> {
    output: fn() -> W,
    /// None if no thread could be started: then callers write themselves.
    queue: Option<Arc<Queue>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<String>,
    /// Number of texts that were ever queued, and of those that were written.
    queued: u64,
    written: u64,
    /// The output had no room for [`WAIT_TIMEOUT`], and nothing was written since.
    stalled: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is waiting, until the program ends.
    fn run(&self, mut output: impl Write) {
        let mut state = self.lock();
        loop {
            let Some(text) = state.waiting.pop_front() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            write(&mut output, &text);
            state = self.lock();
            state.written += 1;
            state.stalled = false;
            self.changed.notify_all();
        }
    }
}

/// In one write, so that readers of a pipe never see half a line. An output that is gone has no reader to miss anything.
fn write(output: &mut impl Write, text: &str) {
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

impl<W: Write + AsFd + 'static> Teller<W> {
    /// Starts the thread.
    pub fn new(output: fn() -> W) -> Self {
        let queue = Arc::<Queue>::default();
        let theirs = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("tell".into()).spawn(move || theirs.run(output()));
        Self { output, queue: thread.is_ok().then_some(queue) }
    }

    /// Queues a text without waiting. Returns false, and leaves it out, if the queue is full.
    pub fn tell(&self, text: String) -> bool {
        let Some(queue) = &self.queue else {
            write(&mut (self.output)(), &text);
            return true;
        };
        let mut state = queue.lock();
        let has_room = state.waiting.len() < WAITING;
        if has_room {
            state.waiting.push_back(text);
            state.queued += 1;
            queue.changed.notify_all();
        }
        has_room
    }

    /// Writes a text behind all others and waits for it as [`flush`](Self::flush) does.
    pub fn say(&self, text: String) {
        self.flush();
        self.tell(text);
        self.flush();
    }

    /// Waits until all is written or the output stalls. While it is stalled, further calls return at once.
    pub fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let mut state = queue.lock();
        let end = state.queued;
        while state.written < end && !state.stalled {
            let before = state.written;
            let (after, wait) = queue.changed.wait_timeout(state, WAIT_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            state = after;
            // An output with room is not stalled: the thread has not had its turn.
            state.stalled = wait.timed_out() && state.written == before && !has_room((self.output)());
        }
    }

    /// Waits until all is written, without a limit.
    pub fn drain(&self) {
        let Some(queue) = &self.queue else { return };
        let end = |state: &mut State| state.written < state.queued;
        drop(queue.changed.wait_while(queue.lock(), end).unwrap_or_else(PoisonError::into_inner));
    }
}

fn has_room(output: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&output, PollFlags::OUT)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}
