//! An in-process link with credits: a full queue stops the sender, so no packet is ever lost.
//!
//! For tests, and for pipelines inside one program. Packets are sealed and verified exactly as on a wire, and arrive in
//! GRO-like batches: runs of packets of equal length, of which the last may be shorter.

use crate::payload::PostedReceives;
use crate::seal::{ICRC_BYTES, Sealer};
use crate::{
    BatchInfo, Capabilities, DeviceCounters, Icrc, IoError, MAX_BATCH, MAX_HEADER, PacketIo, PayloadLocation, Pick,
    Recv, RxPacket, Seal, Steer, TxPacket,
};
use rustix::event::{EventfdFlags, eventfd};
use shotline_memory::{Regions, Sge};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
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
    config: InprocConfig,
    credits: usize,
    inbox: Arc<Queue>,
    outbox: Arc<Queue>,
    posted: PostedReceives,
    sealer: Sealer,
}

/// Creates two connected ends; each queue holds `credits` packets.
pub fn pair(credits: usize, a: (InprocConfig, &Regions), b: (InprocConfig, &Regions)) -> (InprocIo, InprocIo) {
    let (to_a, to_b) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let end = |(config, regions): (InprocConfig, &Regions), inbox: &Arc<Queue>, outbox: &Arc<Queue>| InprocIo {
        config,
        credits,
        inbox: Arc::clone(inbox),
        outbox: Arc::clone(outbox),
        posted: PostedReceives::new(config.capacity, regions),
        sealer: Sealer::new(),
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
        self.posted.regions = regions.clone();
    }

    fn post(&mut self, receives: &[Recv]) -> usize {
        self.posted.post(receives)
    }

    fn withdraw(&mut self, ids: &[u32]) {
        self.posted.withdraw(ids);
    }

    fn poll<S: Steer>(&mut self, steer: &mut S, max: usize) -> Result<usize, IoError> {
        let mut landed = 0;
        for _ in 0..max {
            let batch = self.take_batch();
            let (Some(first), Some(last)) = (batch.first(), batch.last()) else { break };
            let seen = BatchInfo {
                first: &first.bytes[..first.bytes.len().min(MAX_HEADER)],
                packets: batch.len(),
                segment: first.bytes.len() as u32,
                last: last.bytes.len() as u32,
                source: first.source,
            };
            let header = steer.header_len(&seen).min(MAX_HEADER);
            let trailer = if self.config.sealed { ICRC_BYTES } else { 0 };
            let mut picks = vec![Pick::default(); batch.len()];
            if first.bytes.len() >= header + trailer {
                steer.pick(&seen, &mut picks);
            }
            let mut done = Vec::with_capacity(batch.len());
            let mut scratch = self.config.scratch;
            for (index, packet) in batch.iter().enumerate() {
                let max_header = packet.bytes.len().saturating_sub(trailer).min(MAX_HEADER);
                let header = picks[index].header_len.map_or(header, |chosen| usize::from(chosen).min(max_header));
                let mut entry = RxPacket {
                    landed: PayloadLocation::Scratch(Sge::EMPTY),
                    header: &packet.bytes,
                    len: 0,
                    source: packet.source,
                    stamp_ns: 0,
                    icrc: Icrc::Absent,
                    payload_crc: 0,
                    congested: false,
                    fault: Some(DropCause::Malformed),
                };
                if packet.bytes.len() >= header + trailer {
                    let (front, sealed) = packet.bytes.split_at(packet.bytes.len() - trailer);
                    let (head, payload) = front.split_at(header);
                    entry.header = head;
                    entry.len = payload.len() as u32;
                    entry.fault = None;
                    entry.payload_crc = crc::remainder(payload);
                    entry.landed = self.posted.land(picks[index].destination, payload, scratch);
                    if let PayloadLocation::Scratch(used) = entry.landed {
                        scratch.offset += u64::from(used.len);
                    }
                    if let Ok(received) = sealed.try_into().map(u32::from_le_bytes) {
                        entry.icrc = self.sealer.check(
                            packet.source,
                            self.config.address,
                            index,
                            head,
                            payload.len(),
                            entry.payload_crc,
                            received,
                        );
                        if entry.icrc == Icrc::Bad {
                            entry.fault = Some(DropCause::BadIcrc);
                        }
                    }
                }
                done.push(entry);
            }
            steer.landed(&done);
            landed += done.len();
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
            let mut bytes = packet.header.to_vec();
            for sge in packet.gather.iter().filter(|sge| sge.len > 0) {
                let at = bytes.len();
                bytes.resize(at + sge.len as usize, 0);
                self.posted.regions.get(sge.region).read(sge.offset as usize, &mut bytes[at..]);
            }
            if self.config.sealed {
                let payload = &bytes[packet.header.len()..];
                let icrc = match packet.seal {
                    Seal::Forced(value) => value,
                    Seal::Remainder(remainder) => self.sealer.seal(
                        self.config.address,
                        to,
                        index % MAX_BATCH,
                        packet.header,
                        payload.len(),
                        remainder,
                    ),
                    Seal::Compute | Seal::None => self.sealer.seal(
                        self.config.address,
                        to,
                        index % MAX_BATCH,
                        packet.header,
                        payload.len(),
                        crc::remainder(payload),
                    ),
                };
                bytes.extend_from_slice(&icrc.to_le_bytes());
            }
            outbox.push_back(Packet { source: self.config.address, bytes });
        }
        if free > 0 {
            self.outbox.notify();
        }
        Ok(free)
    }
}
