//! UDP sockets, without privileges: the kernel copies payloads directly into their destinations.
//!
//! Receiving: a peek at the first header of a GRO batch, the steer's choice of destinations, then one `recvmsg` whose
//! pieces put headers and trailers into scratch and payloads into their destinations. Runs of small packets are
//! received whole, several per call (`small`). Sending: one `sendmsg` per batch with generic segmentation offload;
//! headers and ICRCs are built here.
//!
//! A socket does not expose the IPv4 identification that the ICRC covers (`seal`); over IPv6 every input is known.

mod config;
mod posted;
mod predicted;
mod receive;
mod send;
mod small;
pub(crate) mod sys;

use crate::prebuilt::{FrameRun, PrebuiltIo};
use crate::seal::Sealer;
use crate::{Capabilities, DeviceCounters, IoError, MAX_BATCH, PacketIo, Recv, SCRATCH_BYTES, Steer, TxPacket};
pub use config::UdpConfig;
use receive::Receiver;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use send::Sender;
use shotline_memory::{Region, Regions, Sge};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The UDP backend.
pub struct UdpIo {
    fd: OwnedFd,
    local: SocketAddr,
    granted: usize,
    sealer: Sealer,
    receiver: Receiver,
    sender: Sender,
}

impl UdpIo {
    /// Binds the address and requests socket buffers. `regions` is the table that every [`Sge`] refers to.
    ///
    /// # Errors
    /// [`IoError::Config`] if the address is unspecified or the scratch memory is too small, [`IoError::System`] if the
    /// socket cannot be bound or configured.
    ///
    /// # Panics
    /// If the scratch memory is not in `regions`.
    pub fn open(config: &UdpConfig, regions: &Regions) -> Result<Self, IoError> {
        if sys::specified_ip(config.bind).is_none() {
            return Err(IoError::Config(format!(
                "cannot receive on {}: the ICRC covers the address, so name one, such as [::1] or the link's own",
                config.bind
            )));
        }
        if config.scratch.len != 0 && config.scratch.len < SCRATCH_BYTES {
            return Err(IoError::Config(format!(
                "scratch memory of {} bytes cannot hold a batch: provide {SCRATCH_BYTES}",
                config.scratch.len
            )));
        }
        let failed = |what: String, hint| move |source| IoError::System { what, source, hint };
        let fd = sys::open(config.bind).map_err(failed(
            format!("cannot bind UDP {}", config.bind),
            "; another process may own this port (ss -ulpn), or the address is not on this machine (ip addr)",
        ))?;
        let granted = sys::set_buffer(&fd, true, config.receive_buffer)
            .map_err(failed("cannot set the receive buffer".into(), ""))?;
        sys::set_buffer(&fd, false, 8 << 20).map_err(failed("cannot set the send buffer".into(), ""))?;
        if config.stamps {
            sys::enable_timestamps(&fd).map_err(failed("cannot enable receive timestamps".into(), ""))?;
        }
        if config.ecn {
            sys::enable_ecn(&fd, config.bind.is_ipv4()).map_err(failed("cannot enable ECN".into(), ""))?;
        }
        let local =
            rustix::net::getsockname(&fd).ok().and_then(|any| SocketAddr::try_from(any).ok()).unwrap_or(config.bind);
        Ok(Self {
            fd,
            local,
            granted,
            sealer: Sealer::new(),
            receiver: Receiver::new(config, regions),
            sender: Sender::new(config, regions),
        })
    }

    /// Returns the bound address, with the port that the kernel chose if none was given.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
    /// Returns the receive buffer that the kernel granted, in bytes of its accounting: payload fills about half of it.
    pub fn receive_buffer(&self) -> usize {
        self.granted
    }
}

impl PacketIo for UdpIo {
    fn device_counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }

    fn counters(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    fn queue_pair(&self) -> Option<(u32, u32)> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { steers: true, credits: false }
    }

    fn register(&mut self, regions: &Regions) {
        self.receiver.posted.regions = regions.clone();
        self.sender.regions = regions.clone();
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        self.receiver.posted.post(receives)
    }

    fn withdraw(&mut self, ids: &[u32]) {
        self.receiver.posted.withdraw(ids);
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let (mut batches, mut packets) = (0, 0);
        while batches < max {
            let progress = self
                .receiver
                .receive(&self.fd, self.local, &mut self.sealer, steer, max - batches)
                .map_err(|source| IoError::System { what: format!("receiving on {}", self.local), source, hint: "" })?;
            batches += progress.batches;
            packets += progress.packets;
            if progress.is_drained {
                break;
            }
        }
        Ok(packets)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        crate::sys::wait(&self.fd, timeout).map_err(|source| IoError::System {
            what: format!("waiting on {}", self.local),
            source,
            hint: "",
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        let mut taken = 0;
        while taken < packets.len() {
            let rest = &packets[taken..packets.len().min(taken + MAX_BATCH)];
            taken += self.sender.batch(&self.fd, self.local, &mut self.sealer, to, rest)?;
        }
        Ok(taken)
    }
}

impl PrebuiltIo for UdpIo {
    fn headroom(&self) -> usize {
        0
    }

    /// Writes nothing: the kernel builds the headers.
    fn prebuild(&mut self, _to: SocketAddr, frame: Sge) -> Result<(), IoError> {
        self.sender.accepts_prebuilt(frame.len)
    }

    /// Returns `None`: the kernel copies frames from any memory.
    fn frame_memory(&mut self, _bytes: usize) -> Result<Option<Arc<Region>>, IoError> {
        Ok(None)
    }

    fn in_flight(&mut self) -> usize {
        0
    }

    fn send_prebuilt(&mut self, to: SocketAddr, frames: FrameRun) -> Result<usize, IoError> {
        self.sender.accepts_prebuilt(frames.len)?;
        let mut taken = 0;
        while taken < frames.count as usize {
            taken += self.sender.run(&self.fd, to, frames.after(taken))?;
        }
        Ok(taken)
    }
}
