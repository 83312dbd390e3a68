//! The newest picture of each kind.

use super::picture::Picture;
use crate::status::PictureInfo;
use axum::body::Bytes;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// A picture that was painted, encoded once for all clients.
#[derive(Clone, Debug)]
pub struct Hung {
    /// Number of the picture.
    pub sequence: u64,
    /// The message.
    pub message: Bytes,
}

/// The newest picture of each kind, between one painting thread and all clients.
#[derive(Debug)]
pub struct Gallery {
    kinds: Vec<PictureInfo>,
    walls: Vec<Wall>,
    /// Counts pictures of all kinds, to wake the clients.
    painted: watch::Sender<u64>,
}

#[derive(Debug)]
struct Wall {
    newest: Mutex<Option<Hung>>,
    /// Number of viewers; none once the gallery is closed.
    viewers: Mutex<Option<usize>>,
    /// Set while no viewer watches.
    unwatched: AtomicBool,
}

impl Wall {
    fn new() -> Self {
        Self { newest: Mutex::default(), viewers: Mutex::new(Some(0)), unwatched: AtomicBool::new(true) }
    }

    /// Changes the number of viewers. The lock keeps the flag in step with it.
    fn change(&self, change: impl FnOnce(usize) -> Option<usize>) {
        let mut viewers = self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
        *viewers = viewers.and_then(change);
        self.unwatched.store(viewers.is_none_or(|viewers| viewers == 0), Relaxed);
    }
}

impl Gallery {
    /// Creates a gallery of these kinds.
    pub fn new(kinds: Vec<PictureInfo>) -> Arc<Self> {
        let walls = kinds.iter().map(|_| Wall::new()).collect();
        Arc::new(Self { kinds, walls, painted: watch::Sender::new(0) })
    }

    /// Returns the kinds.
    pub fn kinds(&self) -> &[PictureInfo] {
        &self.kinds
    }
    /// Returns the index of a kind.
    pub fn index(&self, kind: &str) -> Option<usize> {
        self.kinds.iter().position(|info| info.kind == kind)
    }
    /// Returns `true` if a page shows this kind.
    pub fn is_watched(&self, index: usize) -> bool {
        self.walls.get(index).is_some_and(|wall| !wall.unwatched.load(Relaxed))
    }
    /// Returns the flag that is set while no viewer watches a kind.
    pub(super) fn unwatched(&self, index: usize) -> Option<&AtomicBool> {
        self.walls.get(index).map(|wall| &wall.unwatched)
    }
    /// Ends the painting: nothing is watched from now on.
    pub(super) fn close(&self) {
        self.walls.iter().for_each(|wall| wall.change(|_| None));
    }
    /// Replaces the picture of a kind and wakes the clients.
    pub fn hang(&self, index: usize, picture: &Picture) {
        if let Some(wall) = self.walls.get(index) {
            let hung = Hung { sequence: picture.header.sequence, message: picture.encode() };
            *wall.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(hung);
            self.painted.send_modify(|count| *count += 1);
        }
    }
    /// Returns the newest picture of a kind.
    pub fn newest(&self, index: usize) -> Option<Hung> {
        self.walls.get(index)?.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Returns a receiver that changes with each picture.
    pub fn painted(&self) -> watch::Receiver<u64> {
        self.painted.subscribe()
    }
}

/// A client that watches a kind of picture. It stops when dropped.
#[derive(Debug)]
pub struct Viewer {
    gallery: Arc<Gallery>,
    index: usize,
    /// Number of the last picture that was sent.
    seen: u64,
}

impl Viewer {
    /// Begins to watch a kind.
    pub fn new(gallery: &Arc<Gallery>, index: usize) -> Self {
        if let Some(wall) = gallery.walls.get(index) {
            wall.change(|viewers| Some(viewers + 1));
        }
        Self { gallery: Arc::clone(gallery), index, seen: 0 }
    }
    /// Returns the index of the kind.
    pub fn index(&self) -> usize {
        self.index
    }
    /// Returns the newest picture, if it was not returned before.
    pub fn take(&mut self) -> Option<Bytes> {
        let hung = self.gallery.newest(self.index).filter(|hung| hung.sequence != self.seen)?;
        self.seen = hung.sequence;
        Some(hung.message)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Some(wall) = self.gallery.walls.get(self.index) {
            wall.change(|viewers| Some(viewers.saturating_sub(1)));
        }
    }
}
