//! The run's counts as others may read them at any time.

use crate::books::Books;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

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
    full: AtomicBool,
    trigger: Arc<AtomicBool>,
}

/// One reading of [`Live`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Packets that arrived.
    pub packets: u64,
    /// Payload bytes in their places.
    pub bytes: u64,
    /// Packets that were dropped.
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

    /// Setting it is a trigger ([`crate::pretrigger`]): for signals.
    pub fn trigger(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.trigger)
    }
    /// Whether one came since the last call.
    pub(crate) fn take_trigger(&self) -> bool {
        self.trigger.swap(false, Relaxed)
    }

    pub(crate) fn update(&self, books: &Books) {
        self.packets.store(books.packets, Relaxed);
        self.bytes.store(books.placed_bytes, Relaxed);
        self.packets_dropped.store(books.packet_drops.total(), Relaxed);
        self.complete.store(books.complete, Relaxed);
        self.partial.store(books.partial, Relaxed);
        self.shots_dropped.store(books.shot_drops.total(), Relaxed);
    }

    pub(crate) fn set_written(&self, rows: u64) {
        self.rows.store(rows, Relaxed);
    }
    /// The file has no room for more rows.
    pub(crate) fn set_full(&self) {
        self.full.store(true, Relaxed);
    }
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }
}
