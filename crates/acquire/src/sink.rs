//! Handing events to a sink that may be slower than the wire.

use crate::event::Joined;
use crossbeam_queue::ArrayQueue;
use shotline_store::shot::{Event, Loss};
use shotline_wire::shot::DropCause;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What to do with a shot when the sink has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Discard the new shot and reuse its buffer at once (paper 0).
    #[default]
    DropNewest,
    /// Discard the oldest shot that the sink has not begun.
    DropOldest,
    /// Stop receiving until there is room; only for transports with credits, which lose nothing meanwhile.
    Block,
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "drop-newest" => Ok(Self::DropNewest),
            "drop-oldest" => Ok(Self::DropOldest),
            "block" => Ok(Self::Block),
            _ => Err(format!("expected drop-newest, drop-oldest or block, found {name}")),
        }
    }
}

/// The queue between the receive thread and a sink's thread.
///
/// Events pass without a lock. Losses go beside them, through a mutex that is held for a few instructions and only
/// when something was lost: they need no room, so none is ever held back, and runs grow while they wait.
#[derive(Debug)]
pub struct Queue {
    events: ArrayQueue<Box<Event>>,
    losses: Mutex<Vec<Loss>>,
    closed: AtomicBool,
}

impl Queue {
    /// Room for `capacity` events.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            events: ArrayQueue::new(capacity.max(1)),
            losses: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        })
    }
    /// The next event for the sink. Take the losses after it, and enter them before it: whoever reads the recording
    /// in the middle of a run then finds every number below the newest row.
    pub fn pop(&self) -> Option<Box<Event>> {
        self.events.pop()
    }
    /// All losses that wait.
    pub fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.lock())
    }
    /// Whether no event waits.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
    /// How full it is, 0 to 1.
    pub fn filled(&self) -> f64 {
        self.events.len() as f64 / self.events.capacity() as f64
    }
    /// Nothing more will be put in.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
    /// Closed, and every event taken.
    pub fn is_finished(&self) -> bool {
        // Closed first: whatever was put in before it is then visible.
        self.closed.load(Ordering::Acquire) && self.events.is_empty()
    }

    /// Enters a loss; a run that goes on grows.
    fn lose(&self, loss: Loss) {
        let mut losses = self.lock();
        // The newest runs are at the end, one for each stream and cause that is being lost just now.
        let run =
            losses.iter_mut().rev().take(16).find(|run| {
                run.stream == loss.stream && run.cause == loss.cause && run.first + run.count == loss.first
            });
        match run {
            Some(run) => run.count += loss.count,
            None => losses.push(loss),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Loss>> {
        // A list of plain numbers is whole whatever happened to the thread that held it.
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receive thread's side of a [`Queue`]: applies the policy.
#[derive(Debug)]
pub struct Gate {
    queue: Arc<Queue>,
    policy: Policy,
}

impl Gate {
    /// Puts into `queue` under `policy`.
    pub fn new(queue: Arc<Queue>, policy: Policy) -> Self {
        Self { queue, policy }
    }

    /// Enters shots that no event has.
    pub fn lose(&self, loss: Loss) {
        self.queue.lose(loss);
    }

    /// Hands one item on. `given_up` gets every event that is discarded: because the sink has no `room` for it
    /// at all, or by the policy. Under [`Policy::Block`] a full queue gives the event back instead.
    pub fn put(
        &self,
        item: Joined,
        room: bool,
        given_up: &mut impl FnMut(&Event, DropCause),
    ) -> Result<(), Box<Event>> {
        let event = match item {
            Joined::Loss(loss) => {
                self.queue.lose(loss);
                return Ok(());
            }
            Joined::Event(event) => event,
        };
        if !room {
            self.give_up(&event, DropCause::SinkFull, given_up);
            return Ok(());
        }
        match self.policy {
            Policy::Block => return self.queue.events.push(event),
            Policy::DropNewest => {
                if let Err(event) = self.queue.events.push(event) {
                    self.give_up(&event, DropCause::SinkBusy, given_up);
                }
            }
            Policy::DropOldest => {
                if let Some(oldest) = self.queue.events.force_push(event) {
                    self.give_up(&oldest, DropCause::SinkBusy, given_up);
                }
            }
        }
        Ok(())
    }

    fn give_up(&self, event: &Event, cause: DropCause, given_up: &mut impl FnMut(&Event, DropCause)) {
        given_up(event, cause);
        for shot in event.shots.iter().flatten() {
            self.queue.lose(Loss { stream: shot.meta.stream, cause, first: shot.meta.number, count: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::{Shot, ShotMeta};
    use shotline_wire::shot::{Drops, Presence};

    struct Bench {
        pool: Arc<Pool>,
        queue: Arc<Queue>,
        gate: Gate,
        given_up: Vec<(u64, DropCause)>,
    }

    impl Bench {
        fn new(policy: Policy) -> Self {
            let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
            let queue = Queue::new(4);
            Self { pool, gate: Gate::new(Arc::clone(&queue), policy), queue, given_up: Vec::new() }
        }

        /// Puts the event of one shot; whether it was taken.
        fn put(&mut self, number: u64, room: bool) -> bool {
            let meta = ShotMeta {
                stream: 3,
                number,
                stamp_tai_ns: 0,
                arrived_tai_ns: 0,
                completed_tai_ns: 0,
                flags: 0,
                record_good: true,
                valid_bytes: 0,
                presence: Arc::new(Presence::empty(1)),
                drops: Drops::default(),
            };
            let shot = Shot { meta, buffer: self.pool.take().unwrap() };
            let event = Event { number, shots: [Some(shot)].into_iter().collect() };
            let given_up = &mut self.given_up;
            let mut note = |event: &Event, cause| given_up.push((event.number, cause));
            self.gate.put(Joined::Event(Box::new(event)), room, &mut note).is_ok()
        }

        /// Everything that the sink gets: events, and losses as (cause, first, count).
        fn drain(self) -> (Vec<u64>, Vec<(DropCause, u64, u64)>) {
            let mut events = Vec::new();
            self.queue.close();
            while let Some(event) = self.queue.pop() {
                events.push(event.number);
            }
            let losses = self.queue.take_losses().iter().map(|loss| (loss.cause, loss.first, loss.count)).collect();
            assert!(self.queue.is_finished());
            assert_eq!(self.pool.available(), 16, "every buffer is back");
            (events, losses)
        }
    }

    #[test]
    fn drop_newest_keeps_what_waits_and_names_the_new_ones_as_one_run() {
        let mut bench = Bench::new(Policy::DropNewest);
        assert!((0..7).all(|number| bench.put(number, true)));
        assert_eq!(bench.given_up, [4, 5, 6].map(|number| (number, DropCause::SinkBusy)));
        assert_eq!(bench.drain(), (vec![0, 1, 2, 3], vec![(DropCause::SinkBusy, 4, 3)]));
    }

    #[test]
    fn drop_oldest_keeps_the_newest_and_names_the_old_ones() {
        let mut bench = Bench::new(Policy::DropOldest);
        assert!((0..7).all(|number| bench.put(number, true)));
        assert_eq!(bench.given_up, [0, 1, 2].map(|number| (number, DropCause::SinkBusy)));
        assert_eq!(bench.drain(), (vec![3, 4, 5, 6], vec![(DropCause::SinkBusy, 0, 3)]));
    }

    #[test]
    fn block_gives_the_event_back_and_loses_nothing() {
        let mut bench = Bench::new(Policy::Block);
        assert_eq!(
            (0..6).map(|number| bench.put(number, true)).collect::<Vec<_>>(),
            [true, true, true, true, false, false]
        );
        assert!(bench.given_up.is_empty());
        assert_eq!(bench.drain(), (vec![0, 1, 2, 3], vec![]));
    }

    #[test]
    fn a_sink_without_room_is_full_under_every_policy() {
        for policy in [Policy::DropNewest, Policy::DropOldest, Policy::Block] {
            let mut bench = Bench::new(policy);
            assert!(bench.put(0, true) && bench.put(1, false) && bench.put(2, false));
            assert_eq!(bench.drain(), (vec![0], vec![(DropCause::SinkFull, 1, 2)]), "{policy:?}");
        }
    }
}
