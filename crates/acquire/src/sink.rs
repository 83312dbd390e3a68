//! Hands events to a sink that may be slower than the network: the recorder, or a program ([`crate::consumer`]).

use crate::event::JoinedItem;
use crossbeam_queue::ArrayQueue;
use shotline_store::shot::{Event, Loss};
use shotline_wire::shot::DropCause;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Policy for shots while the sink has no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Discard the new shot and reuse its buffer at once, as the receiver of Cossettini et al. (`docs/plan.md`) does.
    #[default]
    DropNewest,
    /// Discard the oldest shot that the sink has not started.
    DropOldest,
    /// Stop receiving until there is space; only for transports with credits, which lose nothing meanwhile.
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

/// Queue between the receive thread and a sink's thread.
///
/// Events pass without a lock. Losses pass separately, through a mutex that is held for a few instructions and only
/// when something was lost: they need no queue slots, so a full queue never delays a loss, and consecutive losses
/// merge.
///
/// An event occupies a place until it is taken; one that is lent ([`Self::lend`]), until the sink has dropped it. So a sink
/// that keeps events never takes the buffers that assembly needs.
#[derive(Debug)]
pub struct Queue {
    events: ArrayQueue<Box<Event>>,
    /// Number of places in use: events in the queue or lent. Only the producer adds to it.
    occupied: AtomicUsize,
    losses: Mutex<Vec<Loss>>,
    closed: AtomicBool,
    abandoned: AtomicBool,
}

/// An event that the sink keeps for some time. Its place in the queue is free when this value is dropped.
#[derive(Debug)]
pub struct Lent {
    // Dropped before the place, which is free only when the buffers are back.
    event: Box<Event>,
    _place: Place,
}

impl Lent {
    /// Returns the event.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

/// A place of the queue in use by an event outside of it.
#[derive(Debug)]
struct Place(Arc<Queue>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free_place();
    }
}

impl Queue {
    /// Creates a queue of `capacity` events.
    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            events: ArrayQueue::new(capacity.max(1)),
            occupied: AtomicUsize::new(0),
            losses: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        })
    }
    /// Removes the next event. The sink must take the losses after this call, and record them before the event: a
    /// reader in the middle of a run then finds every number below the newest row.
    pub fn pop(&self) -> Option<Box<Event>> {
        let event = self.events.pop();
        if event.is_some() {
            self.free_place();
        }
        event
    }
    /// Removes the next event, which keeps its place. Otherwise as [`Self::pop`].
    pub fn lend(self: &Arc<Self>) -> Option<Lent> {
        let event = self.events.pop()?;
        Some(Lent { event, _place: Place(Arc::clone(self)) })
    }
    /// Removes all pending losses.
    pub fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.lock())
    }
    /// Returns `true` if no event is pending.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
    /// Returns the number of events in the queue.
    pub fn len(&self) -> usize {
        self.events.len()
    }
    /// Returns the capacity, in events.
    pub fn capacity(&self) -> usize {
        self.events.capacity()
    }
    /// Returns the number of events that are lent.
    pub fn lent(&self) -> usize {
        self.occupied.load(Ordering::Relaxed).saturating_sub(self.events.len())
    }
    /// Returns the fill level, 0 to 1.
    pub fn filled(&self) -> f64 {
        self.events.len() as f64 / self.events.capacity() as f64
    }
    /// Notes that the sink takes no more events: further ones are dropped as [`DropCause::SinkBusy`] when the queue is
    /// full, under every policy.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
    /// Closes the queue: nothing more will be added.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
    /// Returns `true` if the queue is closed and empty.
    pub fn is_finished(&self) -> bool {
        // Load `closed` first: events added before closing are then visible.
        self.closed.load(Ordering::Acquire) && self.events.is_empty()
    }

    /// Returns `true` if there is no place for another event. Called by the producer.
    fn is_full(&self) -> bool {
        // Acquire: the buffers of a place that became free are back in the pool.
        self.occupied.load(Ordering::Acquire) >= self.events.capacity()
    }

    /// Adds an event, for which there is a place.
    fn push(&self, event: Box<Event>) {
        self.occupied.fetch_add(1, Ordering::Relaxed);
        // There are no more events in the queue than places in use.
        let _ = self.events.push(event);
    }

    fn free_place(&self) {
        self.occupied.fetch_sub(1, Ordering::Release);
    }

    /// Adds a loss, extending a pending run where it continues one.
    fn push_loss(&self, loss: Loss) {
        let mut losses = self.lock();
        // The newest runs are at the end, one for each stream and cause with current losses.
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
        // A list of plain numbers stays valid if a thread panics while it holds the lock.
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Producer of a [`Queue`], on the receive thread: applies the policy.
#[derive(Debug)]
pub struct Producer {
    queue: Arc<Queue>,
    policy: Policy,
}

impl Producer {
    /// Creates a producer of `queue` with `policy`.
    pub fn new(queue: Arc<Queue>, policy: Policy) -> Self {
        Self { queue, policy }
    }

    /// Adds a loss of shots that are in no event.
    pub fn push_loss(&self, loss: Loss) {
        self.queue.push_loss(loss);
    }

    /// Hands on one item. `on_drop` is called for every event that is discarded, by the policy or because the sink has
    /// no space for any event (`has_space` is `false`).
    ///
    /// # Errors
    /// Under [`Policy::Block`] returns the event if the queue is full.
    pub fn put(
        &self,
        item: JoinedItem,
        has_space: bool,
        on_drop: &mut impl FnMut(&Event, DropCause),
    ) -> Result<(), Box<Event>> {
        let event = match item {
            JoinedItem::Loss(loss) => {
                self.queue.push_loss(loss);
                return Ok(());
            }
            JoinedItem::Event(event) => event,
        };
        if !has_space {
            self.drop_event(&event, DropCause::SinkFull, on_drop);
            return Ok(());
        }
        if self.queue.is_full() {
            match self.policy {
                Policy::Block if !self.queue.abandoned.load(Ordering::Relaxed) => return Err(event),
                Policy::DropOldest => match self.queue.pop() {
                    Some(oldest) => self.drop_event(&oldest, DropCause::SinkBusy, on_drop),
                    // All places are lent.
                    None => {
                        self.drop_event(&event, DropCause::SinkBusy, on_drop);
                        return Ok(());
                    }
                },
                Policy::DropNewest | Policy::Block => {
                    self.drop_event(&event, DropCause::SinkBusy, on_drop);
                    return Ok(());
                }
            }
        }
        self.queue.push(event);
        Ok(())
    }

    fn drop_event(&self, event: &Event, cause: DropCause, on_drop: &mut impl FnMut(&Event, DropCause)) {
        on_drop(event, cause);
        for shot in event.shots.iter().flatten() {
            self.queue.push_loss(Loss { stream: shot.meta.stream, cause, first: shot.meta.number, count: 1 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_memory::{Pool, Registrar};
    use shotline_store::shot::{Shot, ShotMeta};
    use shotline_wire::shot::{DropCounters, Presence};

    struct Bench {
        pool: Arc<Pool>,
        queue: Arc<Queue>,
        producer: Producer,
        dropped: Vec<(u64, DropCause)>,
    }

    impl Bench {
        fn new(policy: Policy) -> Self {
            let pool = Pool::new(&mut Registrar::new(), 16, 64).unwrap();
            let queue = Queue::new(4);
            Self { pool, producer: Producer::new(Arc::clone(&queue), policy), queue, dropped: Vec::new() }
        }

        /// Puts an event of one shot. Returns `true` if it was accepted.
        fn put(&mut self, number: u64, has_space: bool) -> bool {
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
                drops: DropCounters::default(),
            };
            let shot = Shot { meta, buffer: self.pool.take().unwrap() };
            let event = Event { number, shots: [Some(shot)].into_iter().collect() };
            let dropped = &mut self.dropped;
            let mut on_drop = |event: &Event, cause| dropped.push((event.number, cause));
            self.producer.put(JoinedItem::Event(Box::new(event)), has_space, &mut on_drop).is_ok()
        }

        /// Returns everything that the sink gets: events, and losses as (cause, first, count).
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
    fn drop_newest_keeps_queued_events_and_reports_one_loss_run() {
        let mut bench = Bench::new(Policy::DropNewest);
        assert!((0..7).all(|number| bench.put(number, true)));
        assert_eq!(bench.dropped, [4, 5, 6].map(|number| (number, DropCause::SinkBusy)));
        assert_eq!(bench.drain(), (vec![0, 1, 2, 3], vec![(DropCause::SinkBusy, 4, 3)]));
    }

    #[test]
    fn drop_oldest_keeps_new_events_and_reports_the_old_ones() {
        let mut bench = Bench::new(Policy::DropOldest);
        assert!((0..7).all(|number| bench.put(number, true)));
        assert_eq!(bench.dropped, [0, 1, 2].map(|number| (number, DropCause::SinkBusy)));
        assert_eq!(bench.drain(), (vec![3, 4, 5, 6], vec![(DropCause::SinkBusy, 0, 3)]));
    }

    #[test]
    fn block_returns_the_event_and_loses_nothing() {
        let mut bench = Bench::new(Policy::Block);
        assert_eq!(
            (0..6).map(|number| bench.put(number, true)).collect::<Vec<_>>(),
            [true, true, true, true, false, false]
        );
        assert!(bench.dropped.is_empty());
        assert_eq!(bench.drain(), (vec![0, 1, 2, 3], vec![]));
    }

    #[test]
    fn a_sink_without_space_drops_under_every_policy() {
        for policy in [Policy::DropNewest, Policy::DropOldest, Policy::Block] {
            let mut bench = Bench::new(policy);
            assert!(bench.put(0, true) && bench.put(1, false) && bench.put(2, false));
            assert_eq!(bench.drain(), (vec![0], vec![(DropCause::SinkFull, 1, 2)]), "{policy:?}");
        }
    }
}
