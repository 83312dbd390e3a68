//! An in-process link with credits: a full queue stops the sender, so no packet is ever lost.
//!
//! For tests, and for pipelines inside one program. Packets are sealed and verified exactly as on a wire, and arrive in
//! GRO-like batches: runs of packets of equal length, of which the last may be shorter.

use crate::copier::{CopierConfig, PacketCopier};
use crate::{Capabilities, DeviceCounters, IoError, MAX_BATCH, PacketIo, Recv, Steer, TxPacket};
use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, eventfd};
use shotline_memory::{Regions, Sge};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Configuration of one end.
#[derive(Clone, Copy, Debug)]
pub struct InprocConfig {
    /// The nominal address of this end (the ICRC covers it).
    pub address: SocketAddr,
    /// `true` if packets end in an ICRC.
    pub sealed: bool,
    /// Maximum number of posted receives.
    pub capacity: usize,
    /// Registered memory for payloads without a destination: one batch of [`crate::SCRATCH_BYTES`].
    pub scratch: Sge,
}

struct Packet {
    source: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Queue {
    packets: Mutex<VecDeque<Packet>>,
    arrived: Condvar,
    /// Eventfd that is readable while packets are queued; created, and from then on updated, when it is first
    /// requested.
    ready_fd: OnceLock<OwnedFd>,
}

impl Queue {
    /// Returns the eventfd, created as readable if packets are queued.
    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        let packets = self.lock(); // the queue must not change until the eventfd is set
        if self.ready_fd.get().is_none() {
            let ready_fd =
                eventfd(u32::from(!packets.is_empty()), EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            let _ = self.ready_fd.set(ready_fd); // never set already: the queue is locked
        }
        self.ready_fd.get().map(AsFd::as_fd)
    }

    /// Signals that packets were queued.
    fn notify(&self) {
        self.arrived.notify_one();
        if let Some(ready_fd) = self.ready_fd.get() {
            // It can only fail if the count is 2^64 - 2 already, and then it is readable.
            let _ = rustix::io::write(ready_fd, &1_u64.to_ne_bytes());
        }
    }

    /// Clears the eventfd after the last packet was taken.
    fn clear_ready(&self) {
        if let Some(ready_fd) = self.ready_fd.get() {
            // It fails if the count is 0, and then it is not readable.
            let _ = rustix::io::read(ready_fd, &mut [0; 8]);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Packet>> {
        // A panic on the other side cannot leave partial packets in the queue.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of an in-process link.
pub struct InprocIo {
    credits: usize,
    inbox: Arc<Queue>,
    outbox: Arc<Queue>,
    copier: PacketCopier,
}

/// Creates two connected ends; each queue holds `credits` packets.
pub fn pair(credits: usize, a: (InprocConfig, &Regions), b: (InprocConfig, &Regions)) -> (InprocIo, InprocIo) {
    let (to_a, to_b) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let end = |(config, regions): (InprocConfig, &Regions), inbox: &Arc<Queue>, outbox: &Arc<Queue>| {
        let InprocConfig { address, sealed, capacity, scratch } = config;
        InprocIo {
            credits,
            inbox: Arc::clone(inbox),
            outbox: Arc::clone(outbox),
            copier: PacketCopier::new(CopierConfig { address, sealed, capacity, scratch }, regions),
        }
    };
    (end(a, &to_a, &to_b), end(b, &to_b, &to_a))
}

impl InprocIo {
    /// Takes the next run of packets that a receiver would see as one batch.
    fn take_batch(&self) -> Vec<Packet> {
        let mut inbox = self.inbox.lock();
        let mut batch: Vec<Packet> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = inbox.front() {
            let fits = batch.first().is_none_or(|first| {
                next.source == first.source
                    && next.bytes.len() <= first.bytes.len()
                    && batch.last().is_some_and(|last| last.bytes.len() == first.bytes.len())
                    && batch.len() < MAX_BATCH
                    && bytes + next.bytes.len() <= usize::from(u16::MAX)
            });
            if !fits {
                break;
            }
            bytes += next.bytes.len();
            batch.extend(inbox.pop_front());
        }
        if inbox.is_empty() && !batch.is_empty() {
            self.inbox.clear_ready();
        }
        batch
    }
}

impl PacketIo for InprocIo {
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
        Capabilities { steers: true, credits: true }
    }

    fn register(&mut self, regions: &Regions) {
        self.copier.register(regions);
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        self.copier.post(receives)
    }

    fn withdraw(&mut self, ids: &[u32]) {
        self.copier.withdraw(ids);
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let mut landed = 0;
        for _ in 0..max {
            let batch = self.take_batch();
            let [first, ..] = batch.as_slice() else { break };
            let packets: ArrayVec<&[u8], MAX_BATCH> = batch.iter().map(|packet| packet.bytes.as_slice()).collect();
            self.copier.land(first.source, &packets, steer);
            landed += batch.len();
        }
        Ok(landed)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), IoError> {
        let mut inbox = self.inbox.lock();
        if inbox.is_empty() {
            (inbox, _) = self.inbox.arrived.wait_timeout(inbox, timeout).unwrap_or_else(PoisonError::into_inner);
        }
        if inbox.is_empty() && Arc::strong_count(&self.inbox) == 1 {
            return Err(IoError::Disconnected);
        }
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inbox.ready_fd()
    }

    fn send(&mut self, to: SocketAddr, packets: &[TxPacket<'_>]) -> Result<usize, IoError> {
        if Arc::strong_count(&self.outbox) == 1 {
            return Err(IoError::Disconnected);
        }
        let mut outbox = self.outbox.lock();
        let free = self.credits.saturating_sub(outbox.len()).min(packets.len());
        for (index, packet) in packets[..free].iter().enumerate() {
            let mut bytes = Vec::new();
            self.copier.gather(to, index % MAX_BATCH, packet, &mut bytes);
            outbox.push_back(Packet { source: self.copier.config().address, bytes });
        }
        if free > 0 {
            self.outbox.notify();
        }
        Ok(free)
    }
}
