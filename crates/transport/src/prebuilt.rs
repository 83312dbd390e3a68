//! Frames with headers written once: [`PrebuiltIo`], for senders whose DMA writes payloads into them.
//!
//! A sender lays out frames of one length in registered memory and has the backend write its headers into each frame's
//! headroom once ([`PrebuiltIo::prebuild`]). From then on only payloads change: a device writes them in place, and
//! [`PrebuiltIo::send_prebuilt`] sends whole [`FrameRun`]s. The processor does not touch payload bytes here; a driver or
//! a socket that copies still does, once. A backend that does not copy ([`PrebuiltIo::frame_memory`]) reads frames
//! later, and reports how many are still in use ([`PrebuiltIo::in_flight`]).
//!
//! An ICRC covers the payload and cannot be computed without reading it, so a backend that seals refuses prebuilt
//! frames.

use crate::{IoError, PacketIo};
use shotline_memory::{Region, RegionId, Sge};
use std::net::SocketAddr;
use std::sync::Arc;

/// Frames at a constant stride in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The region that holds them.
    pub region: RegionId,
    /// Offset of the first frame, in bytes.
    pub offset: u64,
    /// Bytes from the start of one frame to the start of the next, at least [`Self::len`].
    pub stride: u32,
    /// Bytes of each frame: headroom and UDP payload.
    pub len: u32,
    /// Number of frames.
    pub count: u32,
}

impl FrameRun {
    /// Returns one frame of the run.
    pub fn frame(&self, index: u32) -> Sge {
        let offset = self.offset + u64::from(index) * u64::from(self.stride);
        Sge { region: self.region, offset, len: self.len }
    }

    /// Returns the rest of the run after its first `taken` frames.
    pub fn after(&self, taken: usize) -> Self {
        let taken = (taken as u64).min(u64::from(self.count));
        let offset = self.offset + taken * u64::from(self.stride);
        Self { offset, count: self.count - taken as u32, ..*self }
    }
}

/// A backend that sends frames from memory unchanged. An implementation that wraps another one delegates by
/// [`delegate_prebuilt_io`](crate::delegate_prebuilt_io).
pub trait PrebuiltIo: PacketIo {
    /// Returns the bytes before the UDP payload in a frame of this backend: 0 for sockets, for which the kernel writes
    /// the headers; 42 for Ethernet, IPv4 and UDP; 62 for Ethernet, IPv6 and UDP.
    fn headroom(&self) -> usize;
    /// Writes the headers of a packet to this destination into the frame's first [`Self::headroom`] bytes. This fixes
    /// the frame's length; its payload is not read.
    ///
    /// # Errors
    /// If the length is not valid for a packet, the host cannot be reached, or the backend seals packets.
    fn prebuild(&mut self, to: SocketAddr, frame: Sge) -> Result<(), IoError>;
    /// Allocates zeroed memory from which frames are sent without a copy; `None` if this backend copies frames from any
    /// memory. The memory must be registered like any other ([`PacketIo::register`]).
    ///
    /// # Errors
    /// If there is not enough of such memory.
    fn frame_memory(&mut self, bytes: usize) -> Result<Option<Arc<Region>>, IoError>;
    /// Returns the number of accepted frames that may still be read: the most recent ones, because frames are read in
    /// order. Frames lost with a link are not included. 0 for backends that copy.
    fn in_flight(&mut self) -> usize;
    /// Sends frames that were prebuilt for this destination, in order. Returns how many were accepted: fewer than given
    /// if the path is full. These may be overwritten when it returns, except the most recent [`Self::in_flight`] ones.
    ///
    /// # Panics
    /// If a frame is outside its region.
    fn send_prebuilt(&mut self, to: SocketAddr, frames: FrameRun) -> Result<usize, IoError>;
}
