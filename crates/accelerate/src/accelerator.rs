//! An accelerator: memory, a control region with command queues, and a thread that executes the commands.

use crate::command::{COMMAND_BYTES, Command, Completion, Kernel, Outcome, ReplyTo};
use crate::control::{self, QUEUES, SLOTS, owner_offset, slot_offset};
use crate::executor::{self, Notice};
use crate::neighbour::Dial;
use crate::worker::{Done, Job, Worker};
use rustix::fd::BorrowedFd;
use shotline_memory::{MemoryError, Region};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// An accelerator cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum AcceleratorError {
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The thread or its event cannot be created.
    #[error("the thread of the accelerator cannot be started: {0}")]
    Thread(#[from] io::Error),
}

/// A queue pair gets no command queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRefused {
    /// The memory is one for all commands, so that only one initiator can use it.
    #[error("the accelerator is in use by another initiator")]
    InUse,
    /// An initiator has gone, and the command in progress would overwrite the memory of the next one.
    #[error("the accelerator is still executing a command of an initiator that has gone: try again later")]
    Finishing,
    /// There is no free queue.
    #[error("all {QUEUES} command queues are in use")]
    Full,
}

/// Initiator and queue pair that have a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    initiator: u64,
    qp: u32,
}

/// An accelerator node. Peers write commands into the slots of their queues in the control region.
pub struct Accelerator {
    name: String,
    memory: Arc<Region>,
    control: Arc<Region>,
    worker: Worker,
    threads: usize,
    notice: Arc<Notice>,
    owners: Mutex<[Option<Owner>; QUEUES]>,
}

impl Accelerator {
    /// Creates an accelerator for memory that peers know by `name`. If a GPU has the memory, it computes, by kernels that
    /// are compiled now; else the processor, with this many threads for a command. `dial` connects it to other accelerators.
    ///
    /// # Errors
    /// If there is not enough memory, or the thread cannot be started.
    pub fn new(
        name: &str,
        memory: Arc<Region>,
        threads: usize,
        dial: Option<Box<dyn Dial>>,
    ) -> Result<Arc<Self>, AcceleratorError> {
        let control = control::make(name, memory.len() as u64, threads)?;
        // The path of an emulated accelerator is that of its peers: its own accesses do not take it.
        let local = memory.emulated_memory().map_or(&memory, |emulated| emulated.region());
        let notice = Arc::default();
        let executor = executor::choose(local, threads, &notice);
        let worker = Worker::start([&memory, local].map(Arc::clone), executor, dial)?;
        let (name, owners) = (name.to_owned(), Mutex::new([None; QUEUES]));
        Ok(Arc::new(Self { name, memory, control, worker, threads, notice, owners }))
    }

    /// Returns the control region, to be exported with rights to read and write it.
    pub fn control(&self) -> &Arc<Region> {
        &self.control
    }

    /// Returns, once, the reason why the processor computes although a GPU has the memory, or why the GPU has failed.
    pub fn take_notice(&self) -> Option<String> {
        self.notice.take()
    }

    /// Returns a descriptor that is readable if a queue has completions.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.worker.fd()
    }

    /// Makes the descriptor unreadable until there is another completion. Call it before the queues are polled.
    pub fn clear_event(&self) {
        self.worker.clear();
    }

    /// Returns `true` if no initiator has a queue.
    pub fn is_free(&self) -> bool {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_none)
    }

    /// Gives a free queue to a queue pair of an initiator. The number of the queue pair is then in the control region.
    ///
    /// # Errors
    /// If another initiator has a queue, or commands in progress, or all queues are in use.
    pub fn open_queue(self: &Arc<Self>, initiator: u64, qp: u32) -> Result<CommandQueue, QueueRefused> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = owners.iter().flatten().map(|owner| owner.initiator == initiator).peekable();
        match others.peek() {
            None if self.worker.is_busy() => return Err(QueueRefused::Finishing),
            Some(false) => return Err(QueueRefused::InUse),
            _ => {}
        }
        let index = owners.iter().position(Option::is_none).ok_or(QueueRefused::Full)?;
        if owners.iter().all(Option::is_none) {
            // The initiator before could write all of it.
            control::reset(&self.control, &self.name, self.memory.len() as u64, self.threads);
        }
        owners[index] = Some(Owner { initiator, qp });
        self.control.write(owner_offset(index), &qp.to_le_bytes());
        let (sender, done) = channel();
        let (accelerator, is_closed) = (Arc::clone(self), Arc::default());
        Ok(CommandQueue { accelerator, index, sender, done, is_closed, busy: [false; SLOTS], sequence: 0, invalid: 0 })
    }
}

/// The command queue of a queue pair.
pub struct CommandQueue {
    accelerator: Arc<Accelerator>,
    index: usize,
    sender: Sender<Done>,
    done: Receiver<Done>,
    /// Its commands are not executed any more.
    is_closed: Arc<AtomicBool>,
    /// Slots whose commands are not completed.
    busy: [bool; SLOTS],
    sequence: u64,
    invalid: u64,
}

impl CommandQueue {
    /// Takes the command of a slot: the immediate data of a WRITE. What is not a valid command is completed with the
    /// reason.
    pub fn ring(&mut self, slot: u32) {
        let Some(busy) = self.busy.get_mut(slot as usize) else {
            // No completion: there is no command that says where it goes.
            self.invalid += 1;
            return;
        };
        let mut bytes = [0; COMMAND_BYTES];
        // A private copy: the peer may change the slot at any time.
        let offset = slot_offset(self.index, slot as usize);
        self.accelerator.control.read(offset, &mut bytes);
        if Command::has_token(&bytes) {
            // Other initiators can read the control region: the token stays in it no longer than necessary.
            self.accelerator.control.zero(offset, COMMAND_BYTES);
        }
        let (to, checked) = match Command::parse(&bytes) {
            Err(malformed) => (malformed.to, Err(Outcome::Malformed)),
            Ok(command) if *busy => (command.to, Err(Outcome::Busy)),
            Ok(Command { to, kernel }) => (to, self.accelerator.check(kernel)),
        };
        match checked {
            Ok(kernel) => {
                *busy = true;
                let (rung_at, done) = (Instant::now(), self.sender.clone());
                let is_closed = Arc::clone(&self.is_closed);
                let queue = self.index;
                self.accelerator.worker.submit(Job { to, queue, slot, kernel, rung_at, done, is_closed });
            }
            Err(outcome) => {
                let completion =
                    Completion { id: to.id, outcome, slot, waited_ns: 0, worked_ns: 0, max: 0.0, sequence: 0 };
                // The queue has the receiver, so this cannot fail.
                let _ = self.sender.send(Done { to, completion, frees_slot: false });
            }
        }
    }

    /// Returns the next completion, to be written to the peer's memory.
    pub fn next_completion(&mut self) -> Option<(ReplyTo, Completion)> {
        let Done { to, mut completion, frees_slot } = self.done.try_recv().ok()?;
        if frees_slot {
            self.busy[completion.slot as usize] = false;
        }
        self.sequence += 1;
        completion.sequence = self.sequence;
        Some((to, completion))
    }

    /// Returns the number of doorbells for slots that do not exist.
    pub fn invalid_doorbells(&self) -> u64 {
        self.invalid
    }
}

impl Drop for CommandQueue {
    fn drop(&mut self) {
        self.is_closed.store(true, Relaxed);
        self.accelerator.worker.close(self.index);
        let mut owners = self.accelerator.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners[self.index] = None;
        self.accelerator.control.write(owner_offset(self.index), &[0; 4]);
    }
}

impl Accelerator {
    fn check(&self, kernel: Kernel) -> Result<Kernel, Outcome> {
        kernel.check(self.memory.len() as u64, self.threads).map(|()| kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{TileSteps, Values};
    use shotline_compute::stencil::{Boundary, Edge, Tile, Weights};
    use std::time::Duration;

    const TO: ReplyTo = ReplyTo { id: 7, address: 0x1000, rkey: 9, notify: true };

    fn accelerator() -> Arc<Accelerator> {
        Accelerator::new("hbm", Region::heap(1 << 20).unwrap(), 1, None).unwrap()
    }

    /// Writes a command into a slot as a peer does, and rings.
    fn ring(queue: &mut CommandQueue, slot: u32, bytes: [u8; COMMAND_BYTES]) {
        queue.accelerator.control.write(slot_offset(queue.index, slot as usize), &bytes);
        queue.ring(slot);
    }

    fn next(queue: &mut CommandQueue) -> Completion {
        loop {
            if let Some((to, completion)) = queue.next_completion() {
                assert_eq!((to, completion.id), (TO, TO.id));
                return completion;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Steps on a tile of 64 x 64 values, whose lowest half is 1.
    fn work() -> TileSteps {
        TileSteps {
            values: Values::F32,
            tile: Tile { rows: 64, columns: 64, above: Edge::Border, below: Edge::Border },
            boundary: Boundary::Fixed,
            weights: Weights::heat(0.25),
            steps: 2,
            source: 0,
            result: 0,
            stride: 256,
            squares: Some(1 << 16),
        }
    }

    #[test]
    fn commands_change_memory_and_are_completed_in_order() {
        let accelerator = accelerator();
        let mut queue = accelerator.open_queue(1, 0x42).unwrap();
        let mut owner = [0; 4];
        accelerator.control().read(owner_offset(0), &mut owner);
        assert_eq!(owner, [0x42, 0, 0, 0]);
        accelerator.memory.write(32 * 256, &[1.0_f32.to_le_bytes(); 32 * 64].concat());
        ring(&mut queue, 3, Command { to: TO, kernel: Kernel::Stencil(work()) }.emit());
        ring(&mut queue, 31, Command { to: TO, kernel: Kernel::Nop }.emit());
        let (first, second) = (next(&mut queue), next(&mut queue));
        assert_eq!((first.outcome, first.slot, first.sequence), (Outcome::Done, 3, 1));
        assert_eq!((second.outcome, second.slot, second.sequence), (Outcome::Done, 31, 2));
        let mut value = [0; 4];
        accelerator.memory.read(31 * 256 + 4 * 8, &mut value);
        // After one step 0.25; after two, a quarter of 0.25 + 0.25 + 0.75 + 0, with a = 0.25.
        assert_eq!((f32::from_le_bytes(value), first.max), (0.3125, 0.0625));
    }

    #[test]
    fn invalid_commands_are_completed_with_the_reason() {
        let accelerator = accelerator();
        let mut queue = accelerator.open_queue(1, 5).unwrap();
        let outcome = |queue: &mut CommandQueue, bytes| {
            ring(queue, 0, bytes);
            next(queue).outcome
        };
        let command = |work| Command { to: TO, kernel: Kernel::Stencil(work) }.emit();
        let mut malformed = command(work());
        malformed[0] = 200;
        assert_eq!(outcome(&mut queue, malformed), Outcome::Malformed);
        assert_eq!(outcome(&mut queue, command(TileSteps { source: 1 << 20, ..work() })), Outcome::OutOfRange);
        assert_eq!(outcome(&mut queue, command(TileSteps { steps: 65, ..work() })), Outcome::NoResult);
        assert_eq!(outcome(&mut queue, command(work())), Outcome::Done);
        queue.ring(32);
        queue.ring(u32::MAX);
        assert_eq!((queue.invalid_doorbells(), queue.next_completion()), (2, None));
    }

    #[test]
    fn slot_in_use_is_refused_until_its_completion() {
        let accelerator = accelerator();
        let mut queue = accelerator.open_queue(1, 5).unwrap();
        let nop = Command { to: TO, kernel: Kernel::Nop }.emit();
        ring(&mut queue, 0, nop);
        // The slot is free only when its completion has been taken.
        ring(&mut queue, 0, nop);
        let mut outcomes = [next(&mut queue).outcome, next(&mut queue).outcome];
        outcomes.sort_by_key(|outcome| *outcome as u32);
        assert_eq!(outcomes, [Outcome::Done, Outcome::Busy]);
        ring(&mut queue, 0, nop);
        assert_eq!(next(&mut queue).outcome, Outcome::Done);
    }

    #[test]
    fn queues_belong_to_one_initiator_at_a_time() {
        let accelerator = accelerator();
        let queues: Vec<_> = (1..=QUEUES as u32).map(|qp| accelerator.open_queue(1, qp).unwrap()).collect();
        assert_eq!(accelerator.open_queue(1, 99).err(), Some(QueueRefused::Full));
        assert_eq!(accelerator.open_queue(2, 99).err(), Some(QueueRefused::InUse));
        drop(queues);
        accelerator.control().zero(0, 200);
        let mut queue = accelerator.open_queue(2, 99).unwrap();
        let mut header = [0; 128];
        accelerator.control().read(0, &mut header);
        assert_eq!(control::Header::parse(&header).unwrap().memory, "hbm");
        ring(&mut queue, 0, Command { to: TO, kernel: Kernel::Stencil(work()) }.emit());
        drop(queue);
        let next = loop {
            match accelerator.open_queue(3, 1) {
                Err(QueueRefused::Finishing) => std::thread::yield_now(),
                opened => break opened,
            }
        };
        assert_eq!(next.unwrap().next_completion(), None);
    }
}
