//! A node: memory, queue pairs and completion queues, and the receive path of a batch of packets.

use super::{Datagram, packet};
use crate::api::{Completion, Cq, Modify, PostError, QpConfig, RecvWr, SendWr, Srq, VerbsError};
use crate::engine::{
    BatchHead, Burst, Completions, Context, Engine, IncomingPacket, Nanos, Payload, QpCounters, RecvQueue,
};
use shotline_memory::{Access, Addressing, Mr, Pd, Protection, Region, RegionId, RegisterError, Registrar, Sge};
use shotline_transport::{MAX_BATCH, PayloadDestination, PayloadLocation, Pick, SCRATCH_BYTES};
use shotline_wire::roce::{ICRC_LEN, Packet};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes reserved for engine buffers: enough for a few dozen queue pairs.
const BUFFER_BYTES: u32 = 1 << 18;
/// Space for a whole batch, twice: payloads that were split at the wrong header length are copied again.
const SCRATCH_SPACE: u32 = 2 * SCRATCH_BYTES;
const NODE_BYTES: u32 = BUFFER_BYTES + SCRATCH_SPACE;

/// Counters of a node. `arrived` is the sum of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Packets received.
    pub arrived: u64,
    /// Passed to a queue pair, which counts them in its own [`QpCounters`].
    pub delivered: u64,
    /// Dropped: the ICRC does not match.
    pub bad_icrc: u64,
    /// Dropped: not a RoCEv2 packet.
    pub malformed: u64,
    /// Dropped: no queue pair of this number.
    pub unknown_qp: u64,
}

/// Node of a simulated network.
///
/// Received packets are processed as in a provider: destinations for a batch are chosen from the header of its first
/// packet alone ([`Engine::pick`]), all payloads are copied, and only then is each packet checked and received.
pub struct Node {
    address: SocketAddr,
    memory: Arc<Region>,
    scratch: Sge,
    /// Start of the engine buffers, which are allocated downwards, and its lower bound: the end of the memory that
    /// applications may use.
    buffers: u64,
    min_buffers: u64,
    pd: Pd,
    /// Keys and registrations.
    pub protection: Protection,
    /// Payloads are copied to the destinations that engines pick; otherwise all go to scratch memory, as with a
    /// transport that does not steer.
    pub steers: bool,
    /// Packet counters.
    pub counters: NodeCounters,
    pairs: Vec<Option<QueuePair>>,
    receives: Vec<RecvQueue>,
    completions: Queues,
    burst: Burst,
}

struct QueuePair {
    engine: Engine,
    receives: usize,
    counters: QpCounters,
}

#[derive(Default)]
struct Queues(Vec<VecDeque<Completion>>);

impl Completions for Queues {
    fn push(&mut self, cq: Cq, completion: Completion) {
        self.0[cq.0 as usize].push_back(completion);
    }
}

impl Node {
    /// Number of a node's first queue pair; the others follow.
    pub const FIRST_QP: u32 = 0x100;

    /// Creates a node with at least `bytes` bytes of memory, all zero.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn new(address: SocketAddr, bytes: usize) -> Result<Self, VerbsError> {
        Self::with_memory(address, Region::host(bytes + NODE_BYTES as usize)?)
    }

    /// Creates a node over existing memory: all but its last 384 KiB, which the node uses itself, is left unchanged.
    ///
    /// # Errors
    /// If the memory cannot be registered.
    ///
    /// # Panics
    /// If it is shorter than that.
    pub fn with_memory(address: SocketAddr, memory: Arc<Region>) -> Result<Self, VerbsError> {
        let mut registrar = Registrar::new();
        let region: RegionId = registrar.add(Arc::clone(&memory));
        let scratch = Sge { region, offset: (memory.len() - SCRATCH_SPACE as usize) as u64, len: SCRATCH_SPACE };
        let mut protection = Protection::new(registrar.finish());
        let pd = protection.allocate();
        // Keeps the region in the table while other registrations of it come and go.
        let own = protection.allocate();
        protection.register(own, &memory, 0, 0, Access::NONE, Addressing::ZeroBased)?;
        let min_buffers = (memory.len() - NODE_BYTES as usize) as u64;
        Ok(Self {
            address,
            memory,
            scratch,
            buffers: scratch.offset,
            min_buffers,
            pd,
            protection,
            steers: true,
            counters: NodeCounters::default(),
            pairs: Vec::new(),
            receives: Vec::new(),
            completions: Queues::default(),
            burst: Burst::default(),
        })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// Returns the memory. The last 384 KiB are used by the node: scratch memory and engine buffers.
    pub fn memory(&self) -> &Arc<Region> {
        &self.memory
    }
    /// Returns the protection domain.
    pub fn pd(&self) -> Pd {
        self.pd
    }
    /// Reads bytes of the memory.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset as usize, &mut bytes);
        bytes
    }
    /// Registers bytes of the memory, addressed by their offset in it.
    ///
    /// # Errors
    /// If the range lies outside the memory or the rights cannot be granted.
    pub fn register(&mut self, offset: u64, len: u64, access: Access) -> Result<Mr, RegisterError> {
        self.protection.register(self.pd, &self.memory, offset, len, access, Addressing::Virtual(offset))
    }

    /// Creates a completion queue of unlimited depth.
    pub fn create_cq(&mut self) -> Cq {
        self.completions.0.push(VecDeque::new());
        Cq(self.completions.0.len() as u32 - 1)
    }
    /// Removes the oldest completion.
    pub fn poll(&mut self, cq: Cq) -> Option<Completion> {
        self.completions.0.get_mut(cq.0 as usize)?.pop_front()
    }
    /// Creates a receive queue that several queue pairs may share.
    pub fn create_srq(&mut self, depth: u32, max_sge: u32) -> Srq {
        self.receives.push(RecvQueue::new(self.pd, depth, max_sge));
        Srq(self.receives.len() as u32 - 1)
    }
    /// Creates a queue pair and returns its number.
    ///
    /// # Panics
    /// If the space for engine buffers is used up.
    pub fn create_qp(&mut self, config: &QpConfig) -> u32 {
        let number = Self::FIRST_QP + self.pairs.len() as u32;
        let Srq(receives) = config.srq.unwrap_or_else(|| self.create_srq(config.max_recv_wr, config.max_sge));
        self.buffers -= u64::from(Engine::buffer_bytes(config));
        assert!(self.buffers >= self.min_buffers, "no memory left for another queue pair");
        let buffer = Sge { region: self.scratch.region, offset: self.buffers, len: Engine::buffer_bytes(config) };
        self.memory.zero(buffer.offset as usize, buffer.len as usize);
        let engine = Engine::new(number, config, buffer);
        self.pairs.push(Some(QueuePair { engine, receives: receives as usize, counters: QpCounters::default() }));
        number
    }
    /// Destroys a queue pair: its requests release their memory and do not complete, and packets to it are dropped.
    ///
    /// # Errors
    /// [`VerbsError::NoSuch`] if there is no such queue pair.
    pub fn destroy_qp(&mut self, now: Nanos, qp: u32) -> Result<(), VerbsError> {
        self.modify(now, qp, &Modify::Reset)?;
        index(qp)
            .and_then(|index| self.pairs.get_mut(index)?.take())
            .map(|_| ())
            .ok_or(VerbsError::NoSuch("queue pair"))
    }

    /// Changes a queue pair's state.
    ///
    /// # Errors
    /// [`VerbsError::NoSuch`] if there is no such queue pair, and those of [`Engine::modify`].
    pub fn modify(&mut self, now: Nanos, qp: u32, change: &Modify) -> Result<(), VerbsError> {
        self.with(now, qp, |engine, ctx| engine.modify(ctx, change)).unwrap_or(Err(VerbsError::NoSuch("queue pair")))
    }
    /// Posts a send work request.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue pair, and those of [`Engine::post_send`].
    pub fn post_send(&mut self, now: Nanos, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.with(now, qp, |engine, ctx| engine.post_send(ctx, wr)).unwrap_or(Err(PostError::NoQueue))
    }
    /// Posts a receive to a queue pair's own queue.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue pair, and those of [`Engine::post_recv`].
    pub fn post_recv(&mut self, now: Nanos, qp: u32, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.with(now, qp, |engine, ctx| engine.post_recv(ctx, wr)).unwrap_or(Err(PostError::NoQueue))
    }
    /// Posts a receive to a shared queue.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue, and those of [`RecvQueue::post`].
    pub fn post_srq_recv(&mut self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let queue = self.receives.get_mut(srq.0 as usize).ok_or(PostError::NoQueue)?;
        queue.post(&mut self.protection, wr)
    }

    /// Returns the engine of a queue pair.
    pub fn engine(&self, qp: u32) -> Option<&Engine> {
        self.pairs.get(index(qp)?)?.as_ref().map(|pair| &pair.engine)
    }
    /// Returns the counters of a queue pair.
    pub fn qp_counters(&self, qp: u32) -> Option<&QpCounters> {
        self.pairs.get(index(qp)?)?.as_ref().map(|pair| &pair.counters)
    }
    /// Returns the numbers of all queue pairs, destroyed ones included.
    pub fn queue_pairs(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.pairs.len() as u32).map(|index| Self::FIRST_QP + index)
    }

    fn with<T>(&mut self, now: Nanos, qp: u32, act: impl FnOnce(&mut Engine, &mut Context<'_>) -> T) -> Option<T> {
        let pair = self.pairs.get_mut(index(qp)?)?.as_mut()?;
        let mut ctx = Context {
            now,
            protection: &mut self.protection,
            receives: &mut self.receives[pair.receives],
            completions: &mut self.completions,
            counters: &mut pair.counters,
        };
        Some(act(&mut pair.engine, &mut ctx))
    }

    /// Returns the earliest deadline of a queue pair.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.pairs.iter().flatten().filter_map(|pair| pair.engine.deadline()).min()
    }

    /// Handles the expired timers of all queue pairs.
    pub(super) fn expire(&mut self, now: Nanos) {
        for qp in self.queue_pairs() {
            self.with(now, qp, |engine, ctx| {
                if engine.deadline().is_some_and(|deadline| deadline <= now) {
                    engine.expire(ctx);
                }
            });
        }
    }

    /// Transmits up to `max` packets of each queue pair that has packets to send. Returns `true` if one did.
    pub(super) fn transmit(&mut self, now: Nanos, max: usize, out: &mut Vec<Datagram>) -> bool {
        let before = out.len();
        let mut burst = std::mem::take(&mut self.burst);
        for qp in self.queue_pairs() {
            self.with(now, qp, |engine, ctx| {
                if engine.has_packets_to_send(now) {
                    engine.transmit(ctx, &mut burst, max);
                    assert!(burst.len() <= max, "requested at most {max} packets, found {}", burst.len());
                    let is_idle = !engine.has_packets_to_send(now);
                    assert!(!burst.is_empty() || is_idle, "has packets to send at {now} and sends none: {engine:?}");
                }
            });
            for outgoing in &burst.packets {
                let mut payload = Vec::new();
                for sge in burst.elements(outgoing) {
                    let start = payload.len();
                    payload.resize(start + sge.len as usize, 0);
                    let region = self.protection.regions().get(sge.region);
                    region.read(sge.offset as usize, &mut payload[start..]);
                }
                out.push(packet::seal(self.address, outgoing.to, &outgoing.header, &payload));
            }
            burst.clear();
        }
        self.burst = burst;
        out.len() > before
    }

    /// Receives a batch: packets of one sender, of equal length except for a shorter last one, at most [`MAX_BATCH`].
    pub(super) fn receive(&mut self, now: Nanos, batch: &[Datagram]) {
        let mut picks = [Pick::default(); MAX_BATCH];
        let header = self.pick(batch, &mut picks[..batch.len()]);
        let mut scratch = self.scratch;
        let landed: Vec<(usize, PayloadLocation)> = batch
            .iter()
            .zip(&picks)
            .map(|(packet, pick)| {
                let end = packet.bytes.len().saturating_sub(ICRC_LEN);
                let split = pick.header_len.map_or(header, usize::from).min(end);
                (split, self.land(pick.destination, &packet.bytes[split..end], &mut scratch))
            })
            .collect();
        for (packet, (split, landed)) in batch.iter().zip(landed) {
            self.receive_one(now, packet, split, landed, &mut scratch);
        }
    }

    /// Picks destinations through the engine of the first packet's queue pair. Returns the length of the first packet's
    /// header.
    fn pick(&self, batch: &[Datagram], picks: &mut [Pick]) -> usize {
        let [first, ..] = batch else { return 0 };
        let Ok(packet) = Packet::parse(&first.bytes) else { return 0 };
        let header = packet.bth.opcode.header_len();
        if let Some(pair) =
            index(packet.bth.dest_qp).and_then(|index| self.pairs.get(index)?.as_ref()).filter(|_| self.steers)
        {
            let covered = |packet: &Datagram| (packet.bytes.len() - ICRC_LEN) as u32;
            let head = BatchHead {
                bth: packet.bth,
                extensions: &packet.extensions,
                first_payload_len: covered(first) - header as u32,
                segment_len: covered(first),
                last_len: batch.last().map_or(0, covered),
                source: first.source,
            };
            pair.engine.pick(&self.protection, &self.receives[pair.receives], &head, picks);
        }
        header
    }

    /// Copies a payload to its picked destination, or to scratch memory.
    fn land(&self, to: PayloadDestination, payload: &[u8], scratch: &mut Sge) -> PayloadLocation {
        if let PayloadDestination::Memory(pieces) = to
            && payload.len() as u64 <= u64::from(pieces[0].len) + u64::from(pieces[1].len)
        {
            let (first, second) = payload.split_at(payload.len().min(pieces[0].len as usize));
            for (piece, bytes) in pieces.iter().zip([first, second]).filter(|(_, bytes)| !bytes.is_empty()) {
                self.protection.regions().get(piece.region).write(piece.offset as usize, bytes);
            }
            return PayloadLocation::Memory(pieces);
        }
        let piece = Sge { len: payload.len() as u32, ..*scratch };
        self.memory.write(piece.offset as usize, payload);
        scratch.offset += u64::from(piece.len);
        scratch.len -= piece.len;
        PayloadLocation::Scratch(piece)
    }

    /// Checks a packet whose payload is in memory and passes it to its queue pair.
    fn receive_one(
        &mut self,
        now: Nanos,
        datagram: &Datagram,
        split: usize,
        landed: PayloadLocation,
        scratch: &mut Sge,
    ) {
        self.counters.arrived += 1;
        if !packet::is_intact(datagram) {
            self.counters.bad_icrc += 1;
            return;
        }
        let Ok(packet) = Packet::parse(&datagram.bytes) else {
            self.counters.malformed += 1;
            return;
        };
        let header = packet.bth.opcode.header_len();
        let payload = &datagram.bytes[header..datagram.bytes.len() - ICRC_LEN];
        // The batch was split at the header length of its first packet; if that was wrong, the payload is extracted
        // again.
        let landed = if split == header { landed } else { self.land(PayloadDestination::Scratch, payload, scratch) };
        let incoming = IncomingPacket {
            bth: packet.bth,
            extensions: &packet.extensions,
            part: None,
            payload: Payload::Landed(landed),
            len: payload.len() as u32,
            congested: datagram.marked,
            source: datagram.source,
        };
        match self.with(now, packet.bth.dest_qp, |engine, ctx| engine.receive(ctx, &incoming)) {
            Some(()) => self.counters.delivered += 1,
            None => self.counters.unknown_qp += 1,
        }
    }
}

fn index(qp: u32) -> Option<usize> {
    Some(qp.checked_sub(Node::FIRST_QP)? as usize)
}
