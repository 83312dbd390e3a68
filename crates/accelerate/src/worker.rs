//! The thread of an accelerator, which executes commands in their order.

use crate::command::{Completion, Kernel, Outcome, ReplyTo};
use crate::exchange::Exchanges;
use crate::executor::Executor;
use crate::neighbour::Dial;
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
    /// Command queue and slot.
    pub(crate) queue: usize,
    pub(crate) slot: u32,
    pub(crate) kernel: Kernel,
    pub(crate) rung_at: Instant,
    /// Where the completion goes.
    pub(crate) done: Sender<Done>,
    /// The queue is closed: the command is not to be executed any more.
    pub(crate) is_closed: Arc<AtomicBool>,
}

enum Message {
    Execute(Job),
    /// A command queue is closed: its neighbours are disconnected.
    Close(usize),
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
    messages: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    /// Readable if there are completions.
    wakeup: Arc<OwnedFd>,
    /// Number of commands that are not finished.
    unfinished: Arc<AtomicUsize>,
}

impl Worker {
    /// Starts the thread for commands on memory, as peers access it and as the accelerator does.
    pub(crate) fn start(
        [memory, own]: [Arc<Region>; 2],
        executor: Box<dyn Executor>,
        dial: Option<Box<dyn Dial>>,
    ) -> io::Result<Self> {
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (messages, receiver) = channel();
        let (signal, unfinished) = (Arc::clone(&wakeup), Arc::<AtomicUsize>::default());
        let left = Arc::clone(&unfinished);
        let thread = std::thread::Builder::new().name("accelerator".into()).spawn(move || {
            let exchanges = Exchanges::new(memory, Arc::clone(&own), dial);
            Thread { memory: own, executor, exchanges, wakeup: signal, unfinished: left }.run(&receiver);
        })?;
        Ok(Self { messages: Some(messages), thread: Some(thread), wakeup, unfinished })
    }

    /// Queues a command. It is lost if the thread has panicked: then the program is about to end.
    pub(crate) fn submit(&self, job: Job) {
        if let Some(messages) = &self.messages {
            self.unfinished.fetch_add(1, Relaxed);
            let _ = messages.send(Message::Execute(job));
        }
    }

    /// Disconnects the neighbours of a command queue, after its commands.
    pub(crate) fn close(&self, queue: usize) {
        if let Some(messages) = &self.messages {
            let _ = messages.send(Message::Close(queue));
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
        drop(self.messages.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Thread {
    memory: Arc<Region>,
    executor: Box<dyn Executor>,
    exchanges: Exchanges,
    wakeup: Arc<OwnedFd>,
    unfinished: Arc<AtomicUsize>,
}

impl Thread {
    fn run(mut self, messages: &Receiver<Message>) {
        for message in messages {
            match message {
                Message::Close(queue) => self.exchanges.close(queue),
                Message::Execute(job) if job.is_closed.load(Relaxed) => _ = self.unfinished.fetch_sub(1, Release),
                Message::Execute(job) => self.complete(&job),
            }
        }
    }

    fn complete(&mut self, job: &Job) {
        let begun = Instant::now();
        // A panic, of a thread that cannot be started for example, must not leave a node that never answers.
        let executed = catch_unwind(AssertUnwindSafe(|| self.execute(job)));
        let (outcome, max) = executed.unwrap_or((Outcome::Failed, 0.0));
        let (waited, worked) = (begun - job.rung_at, begun.elapsed());
        let completion = Completion {
            id: job.to.id,
            outcome: if self.memory.failure().is_some() { Outcome::Failed } else { outcome },
            slot: job.slot,
            waited_ns: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
            worked_ns: u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX),
            max,
            sequence: 0,
        };
        // Release: a thread that sees that it is finished also sees its results.
        self.unfinished.fetch_sub(1, Release);
        // Its queue pair may have been closed meanwhile.
        let _ = job.done.send(Done { to: job.to, completion, frees_slot: true });
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    fn execute(&mut self, Job { kernel, queue, is_closed, .. }: &Job) -> (Outcome, f64) {
        let outcome = match kernel {
            Kernel::Nop => Outcome::Done,
            Kernel::Stencil(work) => return self.executor.execute(work),
            Kernel::Connect(to) => self.exchanges.connect(*queue, to),
            Kernel::Put { neighbour, exchange } => self.exchanges.put((*queue, *neighbour), exchange, is_closed),
            Kernel::Wait(exchange) => self.exchanges.wait(exchange, is_closed),
        };
        (outcome, 0.0)
    }
}
