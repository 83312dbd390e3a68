//! Received datagrams.

use super::icmp::without_icmp;
use crate::udp::sys::RecvBuffers;
use rustix::fd::OwnedFd;
use std::io;
use std::net::SocketAddr;

/// Maximum datagrams, or batches of them, received by one call.
const DEPTH: usize = 8;

/// Received batches, and the position in them.
pub(super) struct Incoming {
    peer: SocketAddr,
    buffers: RecvBuffers<DEPTH>,
    /// Number of batches, and of those that were looked at.
    count: usize,
    looked_at: usize,
    /// Offset of the next datagram in the batch that was looked at last.
    at: usize,
    /// Bytes of that batch, and of each of its datagrams except the last.
    len: usize,
    segment: usize,
}

impl Incoming {
    pub(super) fn new(peer: SocketAddr) -> Self {
        Self { peer, buffers: RecvBuffers::new(), count: 0, looked_at: 0, at: 0, len: 0, segment: 0 }
    }

    /// Returns the next datagram; `None` if there is none at present.
    pub(super) fn next(&mut self, fd: &OwnedFd) -> io::Result<Option<&mut [u8]>> {
        while self.at == self.len {
            if self.looked_at == self.count {
                // Twice as many as the last call returned: a single datagram stays cheap.
                let requested = (2 * self.count).clamp(2, DEPTH);
                (self.count, self.looked_at) = (0, 0);
                self.count = without_icmp(|| self.buffers.receive(fd, requested))?;
                if self.count == 0 {
                    return Ok(None);
                }
            }
            self.look()?;
        }
        let start = self.at;
        self.at = self.len.min(start + self.segment);
        Ok(Some(&mut self.buffers.bytes(self.looked_at - 1)[start..self.at]))
    }

    /// Looks at the next batch.
    fn look(&mut self) -> io::Result<()> {
        let index = self.looked_at;
        self.looked_at += 1;
        let meta = self.buffers.meta(index)?;
        // Datagrams of others may have arrived before the socket was connected.
        let is_of_peer = meta.source.ip() == self.peer.ip() && meta.source.port() == self.peer.port();
        self.at = 0;
        self.len = if is_of_peer { self.buffers.bytes(index).len() } else { 0 };
        self.segment = meta.segment;
        Ok(())
    }

    /// Returns `true` if datagrams may have been received that were not returned.
    pub(super) fn has_more(&self) -> bool {
        self.at < self.len || self.looked_at < self.count
    }
}
