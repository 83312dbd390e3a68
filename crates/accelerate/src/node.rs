//! Initiator side of an accelerator node.

use crate::channel::{Channel, SENDS, local, read_now};
use crate::command::{COMMAND_BYTES, COMPLETION_BYTES, Command, Completion, Kernel, ReplyTo};
use crate::control::{CONTROL_BYTES, CONTROL_REGION, FIRST_QUEUE, Header, SLOTS, owner_offset, slot_offset};
use crate::error::{NodeError, reason};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_verbs::api::{
    self, CompletionKind, Cq, Data, Element, Modify, Operation, QpConfig, QpType, RecvWr, Remote, SendWr, Status,
};
use shotline_verbs::cm::message::{Receives, RegionKey, TargetRole};
use shotline_verbs::cm::{Client, Endpoint, QpRequest};
use std::sync::Arc;

/// Completions that their queue holds.
const COMPLETIONS: u32 = SENDS + 1024;
/// Offset of the commands in local memory, which begins with the completions; each slot has its own.
const COMMANDS: usize = FIRST_QUEUE;
const LOCAL_BYTES: usize = COMMANDS + SLOTS * COMMAND_BYTES;
/// Completions polled at once.
const BATCH: usize = 32;

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

impl<P: Endpoint> Node<P> {
    /// Connects to the accelerator of a target.
    ///
    /// # Errors
    /// If the target is no accelerator node, has no free command queue, or does not answer.
    pub fn connect(mut provider: P, mut client: Client) -> Result<Self, NodeError> {
        let pd = provider.alloc_pd()?;
        let cq = provider.create_cq(COMPLETIONS)?;
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
        let control = control_key(&accept.keys)?;
        client.start_role(accept.qp, TargetRole::Commands)?;
        let mut bytes = [0; FIRST_QUEUE];
        let head = Remote { address: control.address, rkey: control.rkey };
        read_now(&mut provider, (qp, cq), head, &scratch_mr, FIRST_QUEUE)?;
        scratch.read(0, &mut bytes);
        scratch.zero(0, FIRST_QUEUE);
        let head = bytes.first_chunk().expect("the header is shorter");
        let header = Header::parse(head).map_err(NodeError::NoAccelerator)?;
        let owner = |queue: usize| bytes[owner_offset(queue)..][..4] == accept.qp.get().to_le_bytes();
        let queue = (0..header.queues as usize).find(|queue| owner(*queue));
        let queue =
            queue.ok_or_else(|| NodeError::NoAccelerator("no queue has the number of the queue pair".into()))?;
        let config = QpConfig { max_recv_wr: 1, ..config };
        let (read_qp, read_accept) = client.open(&mut provider, &QpRequest::new(config))?;
        let channel = |qp, keys: &[RegionKey]| Channel::new(qp, keys, &header.memory).map_err(NodeError::NoAccelerator);
        let (writes, reads) = (channel(qp, &accept.keys)?, channel(read_qp, &read_accept.keys)?);
        for slot in 0..slots {
            provider.post_recv(qp, &[RecvWr { id: slot.into(), elements: &[] }]).map_err(|(_, error)| error)?;
        }
        Ok(Self { provider, client, pd, cq, writes, reads, control, header, queue, scratch, scratch_mr })
    }

    /// Returns the bytes of the node's memory.
    pub fn memory_bytes(&self) -> u64 {
        self.writes.bytes().min(self.header.memory_bytes)
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
        self.writes.divide(bytes);
        self.reads.divide(bytes);
    }

    /// Writes local bytes to the node's memory; [`Event::Written`] reports it.
    ///
    /// # Errors
    /// If the send queue is full ([`Self::divide`]), or the queue pair has failed.
    pub fn write(&mut self, local: &Mr, from: u64, to: u64, bytes: u64, id: u64) -> Result<(), NodeError> {
        let Self { provider, writes, .. } = self;
        Ok(writes.transfer(provider, Operation::Write, local, (from, to, bytes), id)?)
    }

    /// Reads from the node's memory into local bytes; [`Event::Read`] reports it.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&mut self, local: &Mr, to: u64, from: u64, bytes: u64, id: u64) -> Result<(), NodeError> {
        let Self { provider, reads, .. } = self;
        Ok(reads.transfer(provider, Operation::Read, local, (to, from, bytes), id)?)
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

    /// Makes progress, and appends what has happened, also before an error. Returns `true` if there was any progress.
    ///
    /// # Errors
    /// If an operation failed, or the target has closed the connection.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> Result<bool, NodeError> {
        let mut any = self.provider.progress()?;
        let mut done = [api::Completion::default(); BATCH];
        // All that there is, so that a failure is known before anything is posted; a node may add more all the time.
        for _ in 0..COMPLETIONS as usize / BATCH {
            let count = self.provider.poll_cq(self.cq, &mut done)?;
            any |= count > 0;
            let mut failure = None;
            for completion in &done[..count] {
                match (completion.status, completion.kind) {
                    (Status::Success, CompletionKind::RecvWriteImm) => {
                        self.provider
                            .post_recv(self.writes.qp, &[RecvWr { id: completion.id, elements: &[] }])
                            .map_err(|(_, e)| e)?;
                        let slot = completion.imm.unwrap_or(u32::MAX) as usize;
                        events.push(Event::Completed(self.completion(slot)?));
                    }
                    (Status::Success, _) => events.extend(transferred(completion)),
                    (status, _) => {
                        failure.get_or_insert(status);
                    }
                }
            }
            if let Some(status) = failure {
                return Err(reason(status, &self.client));
            }
            if count < BATCH {
                break;
            }
        }
        Ok(any)
    }

    /// Appends the transfers that are complete although the node has failed.
    ///
    /// # Errors
    /// If the provider fails.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> Result<(), NodeError> {
        let mut done = [api::Completion::default(); BATCH];
        loop {
            let count = self.provider.poll_cq(self.cq, &mut done)?;
            let succeeded = done[..count].iter().filter(|completion| completion.status == Status::Success);
            events.extend(succeeded.filter_map(transferred));
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Abandons a node that may still answer, or never. Afterwards nothing that it does can change local memory: its
    /// queue pairs do not exist any more, nor do the registrations for it.
    ///
    /// # Errors
    /// If the provider cannot end the queue pairs.
    pub fn abandon(mut self) -> Result<(), NodeError> {
        for qp in [self.reads.qp, self.writes.qp] {
            // A device that fails to destroy a queue pair does not say so, but it reports this.
            self.provider.modify_qp(qp, Modify::Error)?;
            self.provider.destroy_qp(qp)?;
        }
        // The provider is the node's own, with all that is registered.
        Ok(())
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

    /// Asks the target for an answer, and waits for it, up to 10 s. Returns `false` if there is none.
    pub fn answers(&mut self) -> bool {
        self.client.statistics().is_ok()
    }

    /// Returns `true` if the target has not closed the control connection.
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }
}

/// Returns the event of a successful operation, if it was the last one of a transfer.
fn transferred(completion: &api::Completion) -> Option<Event> {
    match (completion.kind, Channel::transferred(completion.id)?) {
        (CompletionKind::Write, id) => Some(Event::Written(id)),
        (CompletionKind::Read, id) => Some(Event::Read(id)),
        _ => None,
    }
}

/// Returns the key of the control region.
pub(crate) fn control_key(keys: &[RegionKey]) -> Result<RegionKey, NodeError> {
    let missing =
        || NodeError::NoAccelerator(format!("it has no region {CONTROL_REGION} (start it with --accelerate)"));
    let found = keys.iter().find(|key| key.region.name.as_str() == CONTROL_REGION).cloned();
    let control = found.ok_or_else(missing)?;
    if control.region.bytes < CONTROL_BYTES as u64 || control.address.checked_add(control.region.bytes).is_none() {
        return Err(NodeError::NoAccelerator("its control region is too short".into()));
    }
    Ok(control)
}
