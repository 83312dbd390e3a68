//! Initiator side of an accelerator node.

use crate::command::{COMMAND_BYTES, COMPLETION_BYTES, Command, Completion, Kernel, ReplyTo};
use crate::control::{CONTROL_BYTES, CONTROL_REGION, Header, SLOTS, owner_offset, slot_offset};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, MemoryError, Mr, Pd, Region};
use shotline_verbs::api::{
    self, CompletionKind, Cq, Data, Element, Operation, PostError, Qp, QpConfig, QpType, RecvWr, Remote, SendWr,
    Status, VerbsError,
};
use shotline_verbs::cm::message::{Receives, RegionKey, TargetRole};
use shotline_verbs::cm::{Client, ClientError, Endpoint, QpRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of an operation, so that those of others are not delayed for long. Longer transfers are several operations.
const PIECE: u64 = 4 << 20;
/// Maximum bytes of an operation.
const MAX_PIECE: u64 = 1 << 30;
/// Operations in flight.
const SENDS: u32 = 512;
/// Time in which the first answers must arrive.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the control region that are read: the header and the queue pairs of the queues.
const READ_BYTES: usize = 4096;
/// Offset of the commands in local memory, which begins with the completions; each slot has its own.
const COMMANDS: usize = READ_BYTES;
const LOCAL_BYTES: usize = COMMANDS + SLOTS * COMMAND_BYTES;
/// Completions polled at once.
const BATCH: usize = 32;

/// A node cannot be used any more, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The control connection failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The local provider failed.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// There is not enough local memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The target is no accelerator node.
    #[error("the target is no accelerator node: {0}")]
    NoAccelerator(String),
    /// The node has ended.
    #[error("the node has closed the connection")]
    Closed,
    /// An operation failed.
    #[error("{0}")]
    Operation(String),
}

/// What has happened at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A transfer to the node's memory is complete.
    Written(u64),
    /// A transfer from the node's memory is complete.
    Read(u64),
    /// A command is complete.
    Completed(Completion),
}

/// A connection to an accelerator node.
pub struct Node<P> {
    provider: P,
    client: Client,
    pd: Pd,
    cq: Cq,
    /// For WRITEs and commands, whose order matters.
    writes: Channel,
    /// For READs: a queue pair executes its operations in order, and results must not wait for the next tiles.
    reads: Channel,
    control: RegionKey,
    header: Header,
    /// Index of the command queue.
    queue: usize,
    /// Completions of the commands, and the commands, by slot.
    scratch: Arc<Region>,
    scratch_mr: Mr,
}

/// A queue pair and its key of the node's memory.
struct Channel {
    qp: Qp,
    memory: RegionKey,
    /// Bytes of an operation.
    piece: u64,
}

impl Channel {
    /// Posts the operations of a transfer between local memory from `here` on and the node's memory from `there` on.
    fn transfer<P: Endpoint>(
        &mut self,
        provider: &mut P,
        operation: fn(Remote) -> Operation,
        local: &Mr,
        (here, there, bytes): (u64, u64, u64),
        id: u64,
    ) -> Result<(), NodeError> {
        let mut at = 0;
        while at < bytes {
            let len = self.piece.min(bytes - at);
            let elements = [Element { address: local.address + here + at, len: len as u32, lkey: local.lkey }];
            let remote = Remote { address: self.memory.address + there + at, rkey: self.memory.rkey };
            at += len;
            // Each is signalled, so that the room is known; only the last one is an event.
            let id = if at == bytes { id << 1 | 1 } else { id << 1 };
            let request = SendWr::new(id, operation(remote), Data::Elements(&elements));
            provider.post_send(self.qp, &[request]).map_err(|(_, error)| error)?;
        }
        Ok(())
    }
}

impl<P: Endpoint> Node<P> {
    /// Connects to the accelerator of a target.
    ///
    /// # Errors
    /// If the target is no accelerator node, has no free command queue, or does not answer.
    pub fn connect(mut provider: P, mut client: Client) -> Result<Self, NodeError> {
        let pd = provider.alloc_pd()?;
        let cq = provider.create_cq(SENDS + 1024)?;
        let scratch = local(&provider, LOCAL_BYTES)?;
        let (len, access) = (scratch.len() as u64, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ);
        let scratch_mr = provider.reg_mr(pd, &scratch, 0, len, access, Addressing::ZeroBased)?;
        let slots = SLOTS as u16;
        let config = QpConfig {
            max_send_wr: SENDS,
            max_recv_wr: slots.into(),
            max_sge: 1,
            ..QpConfig::new(QpType::Rc, pd, cq, cq)
        };
        let request = QpRequest {
            access: Access::REMOTE_WRITE,
            receives: Receives { count: slots, bytes: 0 },
            sends: slots,
            ..QpRequest::new(config)
        };
        let (qp, accept) = client.open(&mut provider, &request)?;
        let find = |name: &str| accept.keys.iter().find(|key| key.region.name.as_str() == name).cloned();
        let missing =
            || NodeError::NoAccelerator(format!("it has no region {CONTROL_REGION} (start it with --accelerate)"));
        let control = find(CONTROL_REGION).ok_or_else(missing)?;
        if control.region.bytes < CONTROL_BYTES as u64 || control.address.checked_add(control.region.bytes).is_none() {
            return Err(NodeError::NoAccelerator("its control region is too short".into()));
        }
        client.start_role(accept.qp, TargetRole::Commands)?;
        let mut bytes = [0; READ_BYTES];
        read_now(&mut provider, qp, cq, &control, &scratch_mr, &scratch)?;
        scratch.read(0, &mut bytes);
        scratch.zero(0, READ_BYTES);
        let head = bytes.first_chunk().expect("the header is shorter");
        let header = Header::parse(head).map_err(NodeError::NoAccelerator)?;
        let owner = |queue: usize| bytes[owner_offset(queue)..][..4] == accept.qp.get().to_le_bytes();
        let queue = (0..header.queues as usize).find(|queue| owner(*queue));
        let queue =
            queue.ok_or_else(|| NodeError::NoAccelerator("no queue has the number of the queue pair".into()))?;
        let config = QpConfig { max_recv_wr: 1, ..config };
        let (read_qp, read_accept) = client.open(&mut provider, &QpRequest::new(config))?;
        let channel = |qp, keys: &[RegionKey]| {
            let memory = keys.iter().find(|key| key.region.name.as_str() == header.memory).cloned();
            let missing = || NodeError::NoAccelerator(format!("it does not export its memory, {}", header.memory));
            let memory = memory.ok_or_else(missing)?;
            if memory.address.checked_add(memory.region.bytes).is_none() {
                return Err(NodeError::NoAccelerator("the addresses of its memory exceed 64 bits".into()));
            }
            Ok::<_, NodeError>(Channel { qp, memory, piece: PIECE })
        };
        let (writes, reads) = (channel(qp, &accept.keys)?, channel(read_qp, &read_accept.keys)?);
        for slot in 0..slots {
            provider.post_recv(qp, &[RecvWr { id: slot.into(), elements: &[] }]).map_err(|(_, error)| error)?;
        }
        Ok(Self { provider, client, pd, cq, writes, reads, control, header, queue, scratch, scratch_mr })
    }

    /// Returns the bytes of the node's memory.
    pub fn memory_bytes(&self) -> u64 {
        self.writes.memory.region.bytes.min(self.header.memory_bytes)
    }
    /// Returns what the node says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Ends the connection cleanly.
    ///
    /// # Errors
    /// If the target does not answer.
    pub fn end(self) -> Result<(), NodeError> {
        Ok(self.client.goodbye()?)
    }

    /// Registers local memory for transfers.
    ///
    /// # Errors
    /// As [`api::Provider::reg_mr`].
    pub fn register(&mut self, region: &Arc<Region>) -> Result<Mr, NodeError> {
        let len = region.len() as u64;
        Ok(self.provider.reg_mr(self.pd, region, 0, len, Access::LOCAL_WRITE, Addressing::ZeroBased)?)
    }

    /// Divides transfers into operations so that those of `bytes` bytes, in a few hundred transfers, fit into the send queue
    /// at once.
    pub fn divide(&mut self, bytes: u64) {
        let piece = piece(bytes);
        (self.writes.piece, self.reads.piece) = (piece, piece);
    }

    /// Writes local bytes to the node's memory; [`Event::Written`] reports it.
    ///
    /// # Errors
    /// If the send queue is full ([`Self::divide`]), or the queue pair has failed.
    pub fn write(&mut self, local: &Mr, from: u64, to: u64, bytes: u64, id: u64) -> Result<(), NodeError> {
        let Self { provider, writes, .. } = self;
        writes.transfer(provider, Operation::Write, local, (from, to, bytes), id)
    }

    /// Reads from the node's memory into local bytes; [`Event::Read`] reports it.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&mut self, local: &Mr, to: u64, from: u64, bytes: u64, id: u64) -> Result<(), NodeError> {
        let Self { provider, reads, .. } = self;
        reads.transfer(provider, Operation::Read, local, (to, from, bytes), id)
    }

    /// Writes a command into a slot and rings its doorbell. It begins after all writes before it. [`Event::Completed`]
    /// reports its end; until then the slot must not be used again.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn command(&mut self, slot: u32, kernel: Kernel, id: u64) -> Result<(), NodeError> {
        let address = self.scratch_mr.address + u64::from(slot) * COMPLETION_BYTES as u64;
        let to = ReplyTo { id, address, rkey: self.scratch_mr.rkey, notify: true };
        let bytes = Command { to, kernel }.emit();
        let offset = slot_offset(self.queue, slot as usize) as u64;
        let remote = Remote { address: self.control.address + offset, rkey: self.control.rkey };
        let here = COMMANDS + slot as usize * COMMAND_BYTES;
        self.scratch.write(here, &bytes);
        let mr = &self.scratch_mr;
        let element = Element { address: mr.address + here as u64, len: COMMAND_BYTES as u32, lkey: mr.lkey };
        let elements = [element];
        let request = SendWr::new(0, Operation::WriteImm(remote, slot), Data::Elements(&elements));
        self.provider.post_send(self.writes.qp, &[request]).map_err(|(_, error)| error)?;
        Ok(())
    }

    /// Makes progress, and appends what has happened. Returns `true` if there was any progress.
    ///
    /// # Errors
    /// If an operation failed, or the target has closed the connection.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<bool, NodeError> {
        let any = self.provider.progress()?;
        let mut done = [api::Completion::default(); BATCH];
        let count = self.provider.poll_cq(self.cq, &mut done)?;
        for completion in &done[..count] {
            if completion.status != Status::Success {
                return Err(self.reason(completion.status));
            }
            match completion.kind {
                CompletionKind::RecvWriteImm => {
                    self.provider
                        .post_recv(self.writes.qp, &[RecvWr { id: completion.id, elements: &[] }])
                        .map_err(|(_, e)| e)?;
                    let slot = completion.imm.unwrap_or(u32::MAX) as usize;
                    events.push(Event::Completed(self.completion(slot)?));
                }
                kind => match (kind, completion.id & 1 == 1) {
                    (CompletionKind::Write, true) => events.push(Event::Written(completion.id >> 1)),
                    (CompletionKind::Read, true) => events.push(Event::Read(completion.id >> 1)),
                    _ => {}
                },
            }
        }
        Ok(any || count > 0)
    }

    /// Returns the completion that the node has written for a slot.
    fn completion(&self, slot: usize) -> Result<Completion, NodeError> {
        let malformed = || NodeError::Operation(format!("the node's completion for slot {slot} is malformed"));
        if slot >= SLOTS {
            return Err(malformed());
        }
        let mut bytes = [0; COMPLETION_BYTES];
        self.scratch.read(slot * COMPLETION_BYTES, &mut bytes);
        Completion::parse(&bytes).ok_or_else(malformed)
    }

    /// Makes the descriptor readable at the next completion. [Poll](Self::poll) once more before sleeping on it.
    ///
    /// # Errors
    /// If the provider fails.
    pub fn arm(&mut self) -> Result<(), NodeError> {
        while self.provider.next_event().is_some() {}
        Ok(self.provider.arm_cq(self.cq, false)?)
    }

    /// Returns the descriptor to sleep on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.provider.fd()
    }

    /// Returns `true` if the target has not closed the control connection.
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    fn reason(&self, status: Status) -> NodeError {
        // Without a failed operation before it, a flushed one means that the other end of the queue pair is gone.
        if status == Status::Flushed || !self.client.is_connected() {
            return NodeError::Closed;
        }
        NodeError::Operation(match status {
            Status::RetryExceeded => "the node does not respond".into(),
            Status::RemoteAccess => "the node refused the access: key, range or rights".into(),
            status => format!("an operation failed: {status:?}"),
        })
    }
}

/// Returns the bytes of an operation for transfers of `bytes` bytes in all.
fn piece(bytes: u64) -> u64 {
    bytes.div_ceil(u64::from(SENDS) / 2).clamp(PIECE, MAX_PIECE).next_multiple_of(4096)
}

/// Allocates local memory that the target can reach.
fn local<P: Endpoint>(provider: &P, bytes: usize) -> Result<Arc<Region>, MemoryError> {
    // Over shared memory the target can access only memory that it can map.
    if provider.address().is_none() { Region::memfd("shotline-node", bytes) } else { Region::heap(bytes) }
}

/// Reads the beginning of a region, and waits for it.
fn read_now<P: Endpoint>(
    provider: &mut P,
    qp: Qp,
    cq: Cq,
    key: &RegionKey,
    mr: &Mr,
    to: &Region,
) -> Result<(), NodeError> {
    let elements = [Element { address: mr.address, len: to.len().min(READ_BYTES) as u32, lkey: mr.lkey }];
    let remote = Remote { address: key.address, rkey: key.rkey };
    let request = SendWr::new(0, Operation::Read(remote), Data::Elements(&elements));
    provider.post_send(qp, &[request]).map_err(|(_, error)| error)?;
    let end = Instant::now() + SETUP_TIMEOUT;
    let mut done = [api::Completion::default()];
    while Instant::now() < end {
        provider.progress()?;
        if provider.poll_cq(cq, &mut done)? == 1 {
            return match done[0].status {
                Status::Success => Ok(()),
                status => Err(NodeError::Operation(format!("the control region cannot be read: {status:?}"))),
            };
        }
        provider.wait(Duration::from_millis(1))?;
    }
    Err(NodeError::Operation("the node does not respond".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_all_buffers_fit_into_the_send_queue_at_once() {
        for memory in [1, 64 << 20, 2 << 30, 8 << 30, 255 << 30] {
            for buffers in [1, 2, 32] {
                let piece = piece(memory);
                // A tile is two halos and its rows, then a command; a result is its rows and their sums.
                let written = (memory / buffers).div_ceil(piece) + 3;
                assert!(buffers * written <= SENDS.into(), "{memory} bytes in {buffers} buffers: {piece}");
                assert!(piece <= MAX_PIECE && piece.is_multiple_of(4096));
            }
        }
    }
}
