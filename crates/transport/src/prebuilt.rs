//! Frames whose headers were made once: [`PrebuiltIo`], for senders whose DMA writes payloads into them.
//!
//! A sender lays frames of one length one after another in registered memory, has the backend write its headers
//! into each frame's headroom once ([`PrebuiltIo::prebuild`]), and from then on only payloads change: a device
//! writes them in place, and [`PrebuiltIo::send_prebuilt`] hands whole [`Run`]s over. The processor touches no
//! payload byte here; a driver or a socket that copies still does, once. One that does not ([`PrebuiltIo::frame_memory`])
//! reads frames later, and says which it still may ([`PrebuiltIo::lent`]).
//!
//! Such frames carry what they carry. A seal that covers the payload (ICRC) cannot be made without reading it, so a
//! backend that seals refuses them.

use crate::{IoError, PacketIo};
use shotline_memory::{Region, RegionId, Sge};
use std::net::SocketAddr;
use std::sync::Arc;

/// Frames laid one after another in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they are.
    pub region: RegionId,
    /// Where the first begins, in bytes.
    pub offset: u64,
    /// Bytes from one frame's beginning to the next one's, at least [`Self::len`].
    pub stride: u32,
    /// Bytes of each frame: headroom and UDP payload.
    pub len: u32,
    /// How many.
    pub count: u32,
}

impl Run {
    /// One frame of the run.
    pub fn frame(&self, index: u32) -> Sge {
        let offset = self.offset + u64::from(index) * u64::from(self.stride);
        Sge { region: self.region, offset, len: self.len }
    }

    /// What is left when so many are gone from its front.
    pub fn after(&self, taken: usize) -> Self {
        let taken = (taken as u64).min(u64::from(self.count));
        let offset = self.offset + taken * u64::from(self.stride);
        Self { offset, count: self.count - taken as u32, ..*self }
    }
}

/// A backend that sends frames as they lie in memory. An implementation that wraps another delegates by
/// [`delegate_prebuilt_io`](crate::delegate_prebuilt_io).
pub trait PrebuiltIo: PacketIo {
    /// Bytes before the UDP payload in a frame of this backend: 0 for sockets, whose kernel makes the headers; 42 for
    /// Ethernet, IPv4 and UDP; 62 for Ethernet, IPv6 and UDP.
    fn headroom(&self) -> usize;
    /// Writes the headers of a packet to this destination into the frame's first [`Self::headroom`] bytes. The frame's
    /// length is fixed by it; its payload is not read.
    ///
    /// # Errors
    /// For a length that no packet has, a host that cannot be reached, and a backend that seals.
    fn prebuild(&mut self, to: SocketAddr, frame: Sge) -> Result<(), IoError>;
    /// Memory that frames are sent from without a copy, all zeros; none if this backend copies them wherever they lie.
    /// It has to be registered as any other ([`PacketIo::register`]).
    ///
    /// # Errors
    /// If there is such memory and not enough of it.
    fn frame_memory(&mut self, bytes: usize) -> Result<Option<Arc<Region>>, IoError>;
    /// Frames that were taken and may still be read where they lie: the ones that were taken last, because they are
    /// read in order. What has gone with a link does not count. 0 for backends that copy.
    fn lent(&mut self) -> usize;
    /// Sends frames that were prebuilt for this destination, in order. Returns how many were taken, fewer than given
    /// when the path is full. Those may be written again when it returns, but for the newest [`Self::lent`] ones.
    ///
    /// # Panics
    /// For frames outside their region: they are the caller's own.
    fn send_prebuilt(&mut self, to: SocketAddr, frames: Run) -> Result<usize, IoError>;
}
