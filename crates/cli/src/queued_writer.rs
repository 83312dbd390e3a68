//! Output that does not block its callers while the terminal is stopped or a pipe is full.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of pending texts.
const MAX_PENDING: usize = 4;
/// Time without space after which the output counts as stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// An output that a background thread writes to, in order.
pub struct QueuedWriter<W> {
    output: fn() -> W,
    /// `None` if the thread could not be started; callers write directly then.
    queue: Option<Arc<Queue>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: VecDeque<String>,
    /// Number of texts that were ever queued, and of those that were written.
    queued: u64,
    written: u64,
    /// The output had no space for [`STALL_TIMEOUT`], and nothing was written since.
    stalled: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes pending texts until the process ends.
    fn run(&self, mut output: impl Write) {
        let mut state = self.lock();
        loop {
            let Some(text) = state.pending.pop_front() else {
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

/// Writes a text at once, so that readers of a pipe never see a partial line. Errors are ignored, because a closed
/// output has no reader.
fn write(output: &mut impl Write, text: &str) {
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

impl<W: Write + AsFd + 'static> QueuedWriter<W> {
    /// Starts the thread.
    pub fn new(output: fn() -> W) -> Self {
        let queue = Arc::<Queue>::default();
        let writer = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("output".into()).spawn(move || writer.run(output()));
        Self { output, queue: thread.is_ok().then_some(queue) }
    }

    /// Queues a text without waiting. Returns `false` and discards it if the queue is full.
    pub fn try_queue(&self, text: String) -> bool {
        let Some(queue) = &self.queue else {
            write(&mut (self.output)(), &text);
            return true;
        };
        let mut state = queue.lock();
        let has_space = state.pending.len() < MAX_PENDING;
        if has_space {
            state.pending.push_back(text);
            state.queued += 1;
            queue.changed.notify_all();
        }
        has_space
    }

    /// Writes a text after all others, and waits for it as [`flush`](Self::flush) does.
    pub fn write_and_flush(&self, text: String) {
        self.flush();
        self.try_queue(text);
        self.flush();
    }

    /// Waits until everything is written or the output stalls. While it is stalled, further calls return at once.
    pub fn flush(&self) {
        let Some(queue) = &self.queue else { return };
        let mut state = queue.lock();
        let end = state.queued;
        while state.written < end && !state.stalled {
            let before = state.written;
            let (after, wait) =
                queue.changed.wait_timeout(state, STALL_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            state = after;
            // An output with space is not stalled: the thread was not scheduled yet.
            state.stalled = wait.timed_out() && state.written == before && !is_writable((self.output)());
        }
    }

    /// Waits until everything is written, without a timeout.
    pub fn drain(&self) {
        let Some(queue) = &self.queue else { return };
        let is_pending = |state: &mut State| state.written < state.queued;
        drop(queue.changed.wait_while(queue.lock(), is_pending).unwrap_or_else(PoisonError::into_inner));
    }
}

fn is_writable(output: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&output, PollFlags::OUT)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
}
