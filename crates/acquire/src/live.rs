//! The run's counts as others may read them at any time.

use crate::align::{Aligner, ClockState, Counts, SourceCounts};
use crate::books::Books;
use crate::stages::{self, Stage};
use arrayvec::ArrayVec;
use shotline_store::shot::MAX_LINKS;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Counts since the run began; each is exact, together they may be some milliseconds apart.
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
    /// From the wire into shot buffers.
    pub(crate) receive: Stage,
    /// From shot buffers into the file.
    pub(crate) store: Stage,
    step: Mutex<Step>,
    hears: OnceLock<()>,
    on_notice: OnNotice,
}

/// What a run has to say before its first shot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Whatever comes to this address from now on is received.
    Listening(SocketAddr),
    /// This sender cannot be received; others are waited for.
    Refused {
        /// Its address.
        from: SocketAddr,
        /// The framing that was expected.
        framing: String,
        /// What it does.
        why: String,
    },
}

/// What is done with notices.
#[derive(Default)]
struct OnNotice(OnceLock<Box<dyn Fn(Notice) + Send + Sync>>);

impl fmt::Debug for OnNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnNotice")
    }
}

/// How links keep in step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Events so far.
    pub events: Counts,
    /// How far stamps of one event may be apart, in ns; 0 by number.
    pub window_ns: u64,
    /// The links, in their order.
    pub links: ArrayVec<LinkStep, MAX_LINKS>,
}

/// How one link keeps in step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStep {
    /// What became of its shots.
    pub counts: SourceCounts,
    /// Its clock.
    pub clock: ClockState,
    /// Nothing is heard of it.
    pub stopped: bool,
}

impl Step {
    pub(crate) fn of<T>(aligner: &Aligner<T>, links: usize) -> Self {
        let link = |link| LinkStep {
            counts: *aligner.source(link),
            clock: aligner.clock(link),
            stopped: aligner.is_stopped(link),
        };
        Self {
            events: *aligner.counts(),
            window_ns: aligner.window_ns(),
            links: (0..links.min(MAX_LINKS)).map(link).collect(),
        }
    }
}

/// One reading of [`Live`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Packets that arrived.
    pub packets: u64,
    /// Payload bytes in their places.
    pub bytes: u64,
    /// Packets that were dropped, here or by the device below.
    pub packets_dropped: u64,
    /// Shots complete.
    pub complete: u64,
    /// Shots partial.
    pub partial: u64,
    /// Shots dropped.
    pub shots_dropped: u64,
    /// Rows that readers of the file see.
    pub rows: u64,
}

impl Live {
    /// All counts now.
    pub fn read(&self) -> Reading {
        Reading {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            packets_dropped: self.packets_dropped.load(Relaxed),
            complete: self.complete.load(Relaxed),
            partial: self.partial.load(Relaxed),
            shots_dropped: self.shots_dropped.load(Relaxed),
            rows: self.rows.load(Relaxed),
        }
    }

    /// How busy the stages are, in the order in which a shot passes them.
    pub fn stages(&self) -> [stages::Reading; 2] {
        [self.receive.read("receive"), self.store.read("store")]
    }

    /// How links keep in step now.
    pub fn step(&self) -> Step {
        // Plain numbers are whole whatever happened to the thread that held them.
        self.step.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Setting it is a trigger ([`crate::pretrigger`]): for signals.
    pub fn trigger(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.trigger)
    }
    /// Whether one came since the last call.
    pub(crate) fn take_trigger(&self) -> bool {
        self.trigger.swap(false, Relaxed)
    }

    /// What to do with notices. It is called by the receive thread, and must not block.
    pub fn on_notice(&self, act: impl Fn(Notice) + Send + Sync + 'static) {
        let _ = self.on_notice.0.set(Box::new(act));
    }
    pub(crate) fn notice(&self, notice: Notice) {
        if let Some(act) = self.on_notice.0.get() {
            act(notice);
        }
    }
    /// Whether whatever comes is received.
    pub fn is_listening(&self) -> bool {
        self.hears.get().is_some()
    }
    /// The run hears what comes to this address.
    pub(crate) fn listens(&self, at: SocketAddr) {
        if self.hears.set(()).is_ok() {
            self.notice(Notice::Listening(at));
        }
    }

    /// `lost`: what the device lost below the transport.
    pub(crate) fn update(&self, books: &Books, lost: u64) {
        self.packets.store(books.packets, Relaxed);
        self.bytes.store(books.placed_bytes, Relaxed);
        self.receive.passed(books.placed_bytes);
        self.packets_dropped.store(books.packet_drops.total() + lost, Relaxed);
        self.complete.store(books.complete, Relaxed);
        self.partial.store(books.partial, Relaxed);
        self.shots_dropped.store(books.shot_drops.total(), Relaxed);
    }

    /// Some times a second.
    pub(crate) fn set_step(&self, step: Step) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    pub(crate) fn set_written(&self, rows: u64) {
        self.rows.store(rows, Relaxed);
    }
    /// Events that the recorder has done with, one way or the other.
    pub(crate) fn set_stored(&self, events: u64) {
        self.stored.store(events, Relaxed);
    }
    pub(crate) fn stored(&self) -> u64 {
        self.stored.load(Relaxed)
    }
    /// The file has no room for more rows.
    pub(crate) fn set_full(&self) {
        self.full.store(true, Relaxed);
    }
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }
}
