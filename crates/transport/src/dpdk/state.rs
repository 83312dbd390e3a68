//! Per-port state between calls: of the current burst, of predicted receives, and of sending.

use super::sys::{BURST, Piece};
use crate::MAX_HEADER;
use crate::frame::MAX_HEADERS;
use crate::seal::ICRC_BYTES;
use std::ops::Range;

/// Maximum bytes of a frame's headers and ICRC, which are built here.
pub(super) const HEAD_BYTES: usize = MAX_HEADERS + MAX_HEADER + ICRC_BYTES;

/// Frames of the last burst that are not parsed yet.
#[derive(Default)]
pub struct Burst {
    pub(super) rest: Range<usize>,
    pub(super) queue: u16,
}

impl Burst {
    /// Returns `true` if all frames are parsed.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// Returns the index of the next frame.
    pub fn next(&mut self) -> Option<usize> {
        self.rest.next()
    }
}

/// State of receiving frames into predicted destinations.
pub struct PredictedState {
    /// The port supports it.
    pub(super) enabled: bool,
    /// Remaining frames to receive in the usual way.
    pub(super) backoff: u32,
    pub(super) before: [u8; MAX_HEADERS + MAX_HEADER],
    pub(super) after: [u8; ICRC_BYTES],
}

impl PredictedState {
    /// Creates the state; `enabled` is set for a port that supports it.
    pub fn new(enabled: bool) -> Self {
        Self { enabled, backoff: 0, before: [0; MAX_HEADERS + MAX_HEADER], after: [0; ICRC_BYTES] }
    }

    /// Records frames received in the usual way.
    pub fn record(&mut self, frames: usize) {
        self.backoff = self.backoff.saturating_sub(frames as u32);
    }
}

/// Frames to send in one burst, each a list of pieces.
pub struct TxBatch {
    pub(super) heads: Box<[[u8; HEAD_BYTES]; BURST]>,
    pub(super) pieces: Vec<Piece>,
    pub(super) ends: Vec<u32>,
}

// SAFETY: the addresses in `pieces` are created and used within one call.
unsafe impl std::marker::Send for TxBatch {}

impl TxBatch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        let (pieces, ends) = (Vec::with_capacity(4 * BURST), Vec::with_capacity(BURST));
        Self { heads: Box::new([[0; HEAD_BYTES]; BURST]), pieces, ends }
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.ends.clear();
    }
}
