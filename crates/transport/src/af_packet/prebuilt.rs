//! Sending prebuilt frames, which are in memory from their Ethernet header on.

use super::{FrameIo, sys};
use crate::IoError;
use crate::frame;
use crate::prebuilt::{FrameRun, PrebuiltIo};
use shotline_memory::{Region, Sge};
use shotline_wire::{ethernet, ipv4, ipv6, udp};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time for the kernel to resolve a host's Ethernet address.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two lookups while the kernel resolves an address.
const RESOLVE_INTERVAL: Duration = Duration::from_millis(10);

impl PrebuiltIo for FrameIo {
    fn headroom(&self) -> usize {
        let ip = if self.local.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
        ethernet::Header::LEN + ip + udp::Header::LEN
    }

    /// Blocks until the host's Ethernet address is resolved if it is unknown.
    fn prebuild(&mut self, to: SocketAddr, frame: Sge) -> Result<(), IoError> {
        if self.config.sealed {
            return Err(IoError::Config("a prebuilt packet cannot be sealed: its payload is not read".into()));
        }
        let started = Instant::now();
        let mac = loop {
            match self.neighbours.find(to.ip()) {
                Some(mac) => break mac,
                None if started.elapsed() > RESOLVE_TIMEOUT => {
                    let (host, interface) = (to.ip(), &self.config.interface);
                    let what = format!("{host} does not answer address resolution on {interface} (ip neighbour)");
                    return Err(IoError::Config(what));
                }
                None => std::thread::sleep(RESOLVE_INTERVAL),
            }
        };
        let headers = (frame.len as usize)
            .checked_sub(self.headroom())
            .and_then(|len| frame::headers([self.mac, mac], self.local, to, len, self.config.ecn))
            .ok_or_else(|| {
                IoError::Config(format!("a frame from {} to {to} cannot have {} bytes", self.local, frame.len))
            })?;
        self.posted.regions.get(frame.region).write(frame.offset as usize, &headers);
        Ok(())
    }

    /// Returns `None`: the kernel copies frames from any memory.
    fn frame_memory(&mut self, _bytes: usize) -> Result<Option<Arc<Region>>, IoError> {
        Ok(None)
    }

    fn in_flight(&mut self) -> usize {
        0
    }

    /// The destination is in the frames' headers; `to` is used in error messages only.
    fn send_prebuilt(&mut self, to: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        let mut taken = 0;
        while taken < frames.count as usize {
            let rest = frames.after(taken);
            let batch = rest.count.min(sys::DEPTH as u32);
            self.tx_batch.clear();
            for index in 0..batch {
                let frame = rest.frame(index);
                self.tx_batch.push(std::iter::once((self.posted.regions.address(frame), frame.len as usize)));
            }
            // SAFETY: the pieces are elements of registered regions, which stay readable.
            let sent = unsafe { self.transmit(to) }?;
            taken += sent;
            if sent < batch as usize {
                break;
            }
        }
        Ok(taken)
    }
}
