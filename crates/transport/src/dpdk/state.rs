//! What a port keeps from one call to the next for each way of moving frames: in a burst, unseen, and out.

use super::sys::{BURST, Piece};
use crate::MAX_HEADER;
use crate::frame::MAX_HEADERS;
use crate::seal::ICRC_BYTES;
use std::ops::Range;

/// Bytes of a frame that are made here, at most: every header, and the ICRC.
pub(super) const HEAD: usize = MAX_HEADERS + MAX_HEADER + ICRC_BYTES;

/// Frames that the port holds and that are not parsed yet.
#[derive(Default)]
pub struct Burst {
    pub(super) rest: Range<usize>,
    pub(super) queue: u16,
}

impl Burst {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// The next of them.
    pub fn next(&mut self) -> Option<usize> {
        self.rest.next()
    }
}

/// What taking frames unseen needs.
pub struct Ahead {
    /// The port can.
    pub(super) able: bool,
    /// Frames that are still looked at first.
    pub(super) doubts: u32,
    pub(super) before: [u8; MAX_HEADERS + MAX_HEADER],
    pub(super) behind: [u8; ICRC_BYTES],
}

impl Ahead {
    /// For a port that can receive into places, or cannot.
    pub fn new(able: bool) -> Self {
        Self { able, doubts: 0, before: [0; MAX_HEADERS + MAX_HEADER], behind: [0; ICRC_BYTES] }
    }

    /// So many frames were looked at.
    pub fn note(&mut self, frames: usize) {
        self.doubts = self.doubts.saturating_sub(frames as u32);
    }
}

/// Frames to be sent at once, each a list of pieces.
pub struct Outgoing {
    pub(super) heads: Box<[[u8; HEAD]; BURST]>,
    pub(super) pieces: Vec<Piece>,
    pub(super) ends: Vec<u32>,
}

// SAFETY: the addresses in `pieces` are made and used within one call.
unsafe impl std::marker::Send for Outgoing {}

impl Outgoing {
    /// No frames.
    pub fn new() -> Self {
        let (pieces, ends) = (Vec::with_capacity(4 * BURST), Vec::with_capacity(BURST));
        Self { heads: Box::new([[0; HEAD]; BURST]), pieces, ends }
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.ends.clear();
    }
}
