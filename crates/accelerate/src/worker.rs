//! The thread of an accelerator, which executes commands in their order.

use crate::command::{Completion, Kernel, Outcome, ReplyTo};
use crate::executor::Executor;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::Region;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// A command that is to be executed.
pub(crate) struct Job {
    pub(crate) to: ReplyTo,
    pub(crate) slot: u32,
    pub(crate) kernel: Kernel,
    pub(crate) rung_at: Instant,
    /// Where the completion goes.
    pub(crate) done: Sender<Done>,
    /// The queue is closed: the command is not to be executed any more.
    pub(crate) is_closed: Arc<AtomicBool>,
}

/// A completion, whose sequence number its queue sets.
pub(crate) struct Done {
    pub(crate) to: ReplyTo,
    pub(crate) completion: Completion,
    /// The slot is free again. Not so if its command was refused because an earlier one is in progress.
    pub(crate) frees_slot: bool,
}

/// A thread that executes commands. It ends when this value is dropped, after the command in progress.
pub(crate) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Readable if there are completions.
    wakeup: Arc<OwnedFd>,
    /// Number of commands that are not finished.
    unfinished: Arc<AtomicUsize>,
}

impl Worker {
    /// Starts the thread for commands on `memory`.
    pub(crate) fn start(memory: Arc<Region>, mut executor: Box<dyn Executor>) -> io::Result<Self> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (jobs, receiver) = channel();
        let (signal, unfinished) = (Arc::clone(&wakeup), Arc::<AtomicUsize>::default());
        let left = Arc::clone(&unfinished);
        let thread = std::thread::Builder::new()
            .name("accelerator".into())
            .spawn(move || execute_all(&receiver, &memory, &mut *executor, &signal, &left))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), wakeup, unfinished })
    }

    /// Queues a command. It is lost if the thread has panicked: then the program is about to end.
    pub(crate) fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            self.unfinished.fetch_add(1, Relaxed);
            let _ = jobs.send(job);
        }
    }

    /// Returns `true` if a command may still change memory.
    pub(crate) fn is_busy(&self) -> bool {
        self.unfinished.load(Acquire) > 0
    }

    /// Returns the descriptor that is readable if there are completions.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    /// Makes the descriptor unreadable until there is another completion.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn execute_all(
    jobs: &Receiver<Job>,
    memory: &Region,
    executor: &mut dyn Executor,
    wakeup: &OwnedFd,
    unfinished: &AtomicUsize,
) {
    for Job { to, slot, kernel, rung_at, done, is_closed } in jobs {
        if is_closed.load(Relaxed) {
            unfinished.fetch_sub(1, Release);
            continue;
        }
        let begun = Instant::now();
        let (outcome, max) = match kernel {
            Kernel::Nop => (Outcome::Done, 0.0),
            // A panic, of a thread that cannot be started for example, must not leave a node that never answers.
            Kernel::Stencil(work) => {
                catch_unwind(AssertUnwindSafe(|| executor.execute(&work))).unwrap_or((Outcome::Failed, 0.0))
            }
        };
        let (waited, worked) = (begun - rung_at, begun.elapsed());
        let completion = Completion {
            id: to.id,
            outcome: if memory.failure().is_some() { Outcome::Failed } else { outcome },
            slot,
            waited_ns: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            worked_ns: u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX),
            max,
            sequence: 0,
        };
        // Release: a thread that sees that it is finished also sees its results.
        unfinished.fetch_sub(1, Release);
        // Its queue pair may have been closed meanwhile.
        let _ = done.send(Done { to, completion, frees_slot: true });
        let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
    }
}
