//! Counters of a run that other threads can read at any time.

use crate::align::AlignmentStatus;
use crate::clock::Health;
use crate::consumer::Consumer;
use crate::counters::StreamCounters;
use crate::latency::ShotLatencies;
use crate::run::{Cause, End};
use crate::stages::{self, Stage};
use crate::tap::Tap;
use arrayvec::ArrayVec;
use serde::Serialize;
use shotline_store::set::UnrecordedShots;
use shotline_store::shot::{MAX_LINKS, RunCounters};
use shotline_wire::setup::ArrayDescription;
use shotline_wire::shot::Geometry;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Counters since the start of the run; each is exact, together they may be some milliseconds apart.
#[derive(Debug, Default)]
pub struct Live {
    packets: AtomicU64,
    bytes: AtomicU64,
    packets_dropped: AtomicU64,
    complete: AtomicU64,
    partial: AtomicU64,
    shots_dropped: AtomicU64,
    rows: AtomicU64,
    stored: AtomicU64,
    full: AtomicBool,
    trigger: Arc<AtomicBool>,
    /// Stage from the network into shot buffers.
    pub(crate) receive: Stage,
    /// Stage from shot buffers into the file.
    pub(crate) store: Stage,
    alignment: Mutex<AlignmentStatus>,
    /// Events for an observer.
    tap: Tap,
    /// Program that takes all events.
    consumer: Option<Arc<Consumer>>,
    details: Mutex<Option<Arc<Details>>>,
    /// Shots that the recorder has lost or discarded, which the receive thread has counted as handed on.
    unrecorded: Mutex<Vec<UnrecordedShots>>,
    /// Set if all counters are wanted, also without an observer of the tap.
    wants_details: AtomicBool,
    about: OnceLock<About>,
    listening: OnceLock<SocketAddr>,
    on_notice: OnNotice,
    refused: [OnceLock<Refused>; MAX_REFUSED],
    triggers: AtomicU64,
    probe_lost: OnceLock<Cause>,
    end: OnceLock<Result<End, String>>,
}

/// Number of refused senders that are kept; a network scanner must not fill the memory.
const MAX_REFUSED: usize = 16;

/// A message of a run before its first shot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Packets to this address are received from now on.
    Listening(SocketAddr),
    /// A sender that cannot be received; learning continues with others.
    Refused(Refused),
}

/// A sender that cannot be received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Address of the sender.
    pub from: SocketAddr,
    /// Expected framing.
    pub framing: String,
    /// Reason.
    pub reason: String,
}

/// What a run receives: known before its first shot.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Name of the sender.
    pub instrument: String,
    /// Name of the framing.
    pub framing: &'static str,
    /// Shape of a link's shots.
    pub geometry: Geometry,
    /// Number of links.
    pub links: usize,
    /// Number of each link's queue pair; empty if the framing has none.
    pub queue_pairs: Vec<u32>,
    /// Local address of the packets.
    pub local: SocketAddr,
    /// Period of the sender's test patterns; 0 for real samples.
    pub pattern_period: u32,
    /// The ultrasound array, if the sender has described one.
    pub array: Option<ArrayDescription>,
    /// Rows that the file has space for; none without a file, or if it grows.
    pub capacity_rows: Option<u64>,
    /// TAI - UTC of the receiver's clock, in seconds.
    pub tai_minus_utc_s: i64,
}

/// All counters of a run at one time. They are read only if they are requested ([`Live::want_details`]).
#[derive(Clone, Debug)]
pub struct Details {
    /// Counters of each stream, as a recording stores them at its end.
    pub counters: RunCounters,
    /// Latencies of each link's shots.
    pub latencies: ArrayVec<ShotLatencies, MAX_LINKS>,
    /// Free slots of the pool, and all.
    pub pool: (usize, usize),
    /// State of the receiver's clock.
    pub clock: Health,
}

/// Callback for notices.
#[derive(Default)]
struct OnNotice(OnceLock<Box<dyn Fn(Notice) + Send + Sync>>);

impl fmt::Debug for OnNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnNotice")
    }
}

/// Values of [`Live`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounters {
    /// Packets that arrived.
    pub packets: u64,
    /// Payload bytes in their destinations.
    pub bytes: u64,
    /// Packets that were dropped, here or by the device.
    pub packets_dropped: u64,
    /// Complete shots.
    pub complete: u64,
    /// Partial shots.
    pub partial: u64,
    /// Dropped shots.
    pub shots_dropped: u64,
    /// Rows that readers of the file see.
    pub rows: u64,
}

impl Live {
    /// Returns the current counters.
    pub fn read(&self) -> LiveCounters {
        LiveCounters {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            packets_dropped: self.packets_dropped.load(Relaxed),
            complete: self.complete.load(Relaxed),
            partial: self.partial.load(Relaxed),
            shots_dropped: self.shots_dropped.load(Relaxed),
            rows: self.rows.load(Relaxed),
        }
    }

    /// Returns the utilisation of the stages, in the order in which a shot passes them.
    pub fn stages(&self) -> [stages::Reading; 2] {
        [self.receive.read("receive"), self.store.read("store")]
    }

    /// Returns the current alignment status.
    pub fn alignment(&self) -> AlignmentStatus {
        // Plain numbers stay valid if a thread panics while it holds the lock.
        self.alignment.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the place where an observer gets events.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }
    /// Requests all counters ([`Self::details`]) until the end of the run.
    pub fn want_details(&self) {
        self.wants_details.store(true, Relaxed);
    }
    /// Returns `true` if all counters were requested, or there is an observer.
    pub(crate) fn wants_details(&self) -> bool {
        self.wants_details.load(Relaxed) || self.tap.is_observed()
    }
    /// Returns all counters, some times a second; none unless they were requested.
    pub fn details(&self) -> Option<Arc<Details>> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Returns what the run receives; none before it is known.
    pub fn about(&self) -> Option<&About> {
        self.about.get()
    }
    pub(crate) fn set_about(&self, about: About) {
        let _ = self.about.set(about);
    }
    /// Publishes all counters. Skipped if an observer is reading, so that it never delays the receive thread.
    pub(crate) fn set_details(&self, details: Details) {
        if let Ok(mut shown) = self.details.try_lock() {
            *shown = Some(Arc::new(details));
        }
    }
    /// Publishes the shots that the recorder has lost or discarded, if all counters are wanted.
    pub(crate) fn set_unrecorded(&self, shots: &[UnrecordedShots]) {
        if !shots.is_empty() && self.wants_details() {
            shots.clone_into(&mut self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
    /// Returns the shots that the recorder has lost or discarded; none while it publishes others, because the receive thread
    /// must not wait for it.
    pub(crate) fn try_unrecorded(&self) -> Option<Vec<UnrecordedShots>> {
        self.unrecorded.try_lock().ok().map(|shots| shots.clone())
    }
    /// As [`try_unrecorded`](Self::try_unrecorded), for the end.
    pub(crate) fn unrecorded(&self) -> Vec<UnrecordedShots> {
        self.unrecorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Publishes the final counters, which must not be skipped: nothing is received any more.
    pub(crate) fn set_last_details(&self, details: Details) {
        *self.details.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(details));
    }

    /// Replaces the counts of each link's shots by those of the whole run, with the shots that the sink has lost or
    /// discarded, which the receive thread does not know.
    pub(crate) fn set_final_shots(&self, links: &[StreamCounters]) {
        let Some(details) = self.details() else { return };
        let mut details = (*details).clone();
        for (stored, counters) in details.counters.streams.iter_mut().zip(links) {
            stored.shots_complete = counters.complete;
            stored.shots_partial = counters.partial;
            stored.shot_drops = counters.shot_drops;
        }
        self.set_last_details(details);
        let mut total = StreamCounters::default();
        links.iter().for_each(|link| total.merge(link));
        self.complete.store(total.complete, Relaxed);
        self.partial.store(total.partial, Relaxed);
        self.shots_dropped.store(total.shot_drops.total(), Relaxed);
    }

    /// Creates the counters of a run that `trigger` triggers: the flag of a signal handler that outlives the run.
    pub fn with_trigger(trigger: Arc<AtomicBool>) -> Self {
        Self { trigger, ..Self::default() }
    }
    /// Hands the events of the run to a program ([`crate::consumer`]).
    #[must_use]
    pub fn with_consumer(self, consumer: Arc<Consumer>) -> Self {
        Self { consumer: Some(consumer), ..self }
    }
    /// Returns the program that takes the events.
    pub(crate) fn consumer(&self) -> Option<&Arc<Consumer>> {
        self.consumer.as_ref()
    }
    /// Returns a flag that a signal handler sets to trigger ([`crate::pretrigger`]).
    pub fn trigger(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.trigger)
    }
    /// Returns `true` if a trigger occurred since the last call.
    pub(crate) fn take_trigger(&self) -> bool {
        self.trigger.swap(false, Relaxed)
    }
    pub(crate) fn set_triggers(&self, triggers: u64) {
        self.triggers.store(triggers, Relaxed);
    }
    /// Returns the number of triggers so far.
    pub fn triggers(&self) -> u64 {
        self.triggers.load(Relaxed)
    }

    /// Sets the callback for notices. The receive thread calls it, so it must not block.
    pub fn on_notice(&self, callback: impl Fn(Notice) + Send + Sync + 'static) {
        let _ = self.on_notice.0.set(Box::new(callback));
    }
    pub(crate) fn notice(&self, notice: Notice) {
        if let Notice::Refused(refused) = &notice {
            // Beyond the limit they are in no journal.
            let _ = self.refused.iter().try_for_each(|place| match place.set(refused.clone()) {
                Ok(()) => Err(()),
                Err(_) => Ok(()),
            });
        }
        if let Some(callback) = self.on_notice.0.get() {
            callback(notice);
        }
    }
    /// Returns `true` once the run receives packets.
    pub fn is_listening(&self) -> bool {
        self.listening.get().is_some()
    }
    /// Returns the address whose packets are received, once they are.
    pub fn listening(&self) -> Option<SocketAddr> {
        self.listening.get().copied()
    }
    /// Returns the first senders that were refused.
    pub fn refused(&self) -> impl Iterator<Item = &Refused> {
        self.refused.iter().map_while(OnceLock::get)
    }
    /// Notes that the probe no longer serves this run.
    pub(crate) fn set_probe_lost(&self, cause: Cause) {
        let _ = self.probe_lost.set(cause);
    }
    /// Returns the cause if the probe no longer serves this run, which ends soon.
    pub fn probe_lost(&self) -> Option<Cause> {
        self.probe_lost.get().copied()
    }
    /// Notes the end of the run, or its error.
    pub(crate) fn set_end(&self, end: Result<End, String>) {
        let _ = self.end.set(end);
    }
    /// Returns the end of the run, or its error; none before it is over.
    pub fn end(&self) -> Option<&Result<End, String>> {
        self.end.get()
    }
    /// Notes that packets to this address are received from now on; reports it at the first call.
    pub(crate) fn set_listening(&self, local: SocketAddr) {
        if self.listening.set(local).is_ok() {
            self.notice(Notice::Listening(local));
        }
    }

    /// Updates the counters. `lost`: packets that the device lost below the transport.
    pub(crate) fn update(&self, counters: &StreamCounters, lost: u64) {
        self.packets.store(counters.packets, Relaxed);
        self.bytes.store(counters.placed_bytes, Relaxed);
        self.receive.set_bytes(counters.placed_bytes);
        self.packets_dropped.store(counters.packet_drops.total() + lost, Relaxed);
        self.complete.store(counters.complete, Relaxed);
        self.partial.store(counters.partial, Relaxed);
        self.shots_dropped.store(counters.shot_drops.total(), Relaxed);
    }

    /// Updates the alignment status, unless another thread is reading it: the receive thread never waits.
    pub(crate) fn try_set_alignment(&self, status: AlignmentStatus) {
        if let Ok(mut shown) = self.alignment.try_lock() {
            *shown = status;
        }
    }
    /// Sets the alignment status at the end.
    pub(crate) fn set_alignment(&self, status: AlignmentStatus) {
        *self.alignment.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    pub(crate) fn set_written(&self, rows: u64) {
        self.rows.store(rows, Relaxed);
    }
    /// Sets the number of events that the recorder has finished, successfully or not.
    pub(crate) fn set_stored(&self, events: u64) {
        self.stored.store(events, Relaxed);
    }
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Relaxed)
    }
    /// Notes that the file has no space for more rows.
    pub(crate) fn set_full(&self) {
        self.full.store(true, Relaxed);
    }
    /// Returns `true` if the file has no space for more rows.
    pub fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }
}
