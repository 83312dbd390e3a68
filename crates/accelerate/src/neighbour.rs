//! Other accelerator nodes, whose memory an accelerator writes.

use crate::channel::{Channel, SENDS, local, read_now};
use crate::command::Exchange;
use crate::control::{Header, OWNERS};
use crate::error::{NodeError, reason};
use crate::node::control_key;
use shotline_memory::{Access, Addressing, Mr, Region};
use shotline_verbs::api::{Completion, Cq, Data, Operation, QpConfig, QpType, Remote, SendWr, Status};
use shotline_verbs::cm::{Client, Endpoint, QpRequest, Token};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep between two looks at the clock.
const NAP: Duration = Duration::from_millis(10);
/// Completions polled at once.
const BATCH: usize = 32;

/// Connects an accelerator to others.
pub trait Dial: Send {
    /// Connects to the node at an address, to write from `memory` into the node's memory.
    ///
    /// # Errors
    /// The reason, for the initiator.
    fn dial(&self, address: &str, token: Token, memory: &Arc<Region>) -> Result<Box<dyn Neighbour>, String>;
}

/// Another accelerator node, whose memory can be written.
pub trait Neighbour {
    /// Returns the 8 bytes (little-endian) at an offset of its memory.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&mut self, offset: u64) -> Result<u64, NodeError>;
    /// Writes bytes to its memory, then the signal.
    ///
    /// # Errors
    /// If they do not fit, or the queue pair has failed.
    fn put(&mut self, exchange: &Exchange) -> Result<(), NodeError>;
    /// Makes progress, or sleeps for a while. Returns `true` if all that was put is there.
    ///
    /// # Errors
    /// If a write failed, or the node has closed the connection.
    fn is_done(&mut self) -> Result<bool, NodeError>;
}

/// A neighbour that is reached by a provider.
pub struct Peer<P> {
    provider: P,
    client: Client,
    cq: Cq,
    channel: Channel,
    /// The accelerator's memory.
    memory: Mr,
    scratch: Arc<Region>,
    scratch_mr: Mr,
    /// Signals that are not acknowledged.
    unacknowledged: u32,
}

impl<P: Endpoint> Peer<P> {
    /// Connects to the memory of a target with an accelerator.
    ///
    /// # Errors
    /// If the target is no accelerator node, or does not answer, or the memory cannot be registered.
    pub fn connect(mut provider: P, mut client: Client, memory: &Arc<Region>) -> Result<Self, NodeError> {
        let pd = provider.alloc_pd()?;
        let cq = provider.create_cq(SENDS)?;
        let scratch = local(&provider, OWNERS)?;
        let register = |provider: &mut P, region: &Arc<Region>| {
            provider.reg_mr(pd, region, 0, region.len() as u64, Access::LOCAL_WRITE, Addressing::ZeroBased)
        };
        let (scratch_mr, memory) = (register(&mut provider, &scratch)?, register(&mut provider, memory)?);
        let config =
            QpConfig { max_send_wr: SENDS, max_recv_wr: 1, max_sge: 1, ..QpConfig::new(QpType::Rc, pd, cq, cq) };
        let (qp, accept) = client.open(&mut provider, &QpRequest::new(config))?;
        let control = control_key(&accept.keys)?;
        let head = Remote { address: control.address, rkey: control.rkey };
        read_now(&mut provider, (qp, cq), head, &scratch_mr, OWNERS)?;
        let mut bytes = [0; OWNERS];
        scratch.read(0, &mut bytes);
        let header = Header::parse(&bytes).map_err(NodeError::NoAccelerator)?;
        let channel = Channel::new(qp, &accept.keys, &header.memory).map_err(NodeError::NoAccelerator)?;
        Ok(Self { provider, client, cq, channel, memory, scratch, scratch_mr, unacknowledged: 0 })
    }

    /// Refuses bytes outside the memory of the neighbour.
    fn check(&self, offset: u64, bytes: u64) -> Result<(), NodeError> {
        let all = self.channel.bytes();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= all);
        let words =
            || format!("expected offsets below {all}, the bytes of its memory, found {offset} and {bytes} bytes");
        if inside { Ok(()) } else { Err(NodeError::Operation(words())) }
    }
}

impl<P: Endpoint> Neighbour for Peer<P> {
    fn read(&mut self, offset: u64) -> Result<u64, NodeError> {
        self.check(offset, 8)?;
        let remote = self.channel.remote(offset);
        read_now(&mut self.provider, (self.channel.qp, self.cq), remote, &self.scratch_mr, 8)?;
        let mut bytes = [0; 8];
        self.scratch.read(0, &mut bytes);
        Ok(u64::from_le_bytes(bytes))
    }

    fn put(&mut self, exchange: &Exchange) -> Result<(), NodeError> {
        let Exchange { from, to, bytes, signal, value, .. } = *exchange;
        self.check(to, bytes)?;
        self.check(signal, 8)?;
        let Self { provider, channel, memory, .. } = self;
        channel.divide(bytes);
        channel.transfer(provider, Operation::Write, memory, (from, to, bytes), 0)?;
        // A queue pair executes its WRITEs in order.
        let value = value.to_le_bytes();
        let request = SendWr::new(SIGNAL, Operation::Write(channel.remote(signal)), Data::Inline(&value));
        provider.post_send(channel.qp, &[request]).map_err(|(_, error)| error)?;
        self.unacknowledged += 1;
        Ok(())
    }

    fn is_done(&mut self) -> Result<bool, NodeError> {
        let busy = self.poll()?;
        if self.unacknowledged == 0 || busy {
            return Ok(self.unacknowledged == 0);
        }
        while self.provider.next_event().is_some() {}
        self.provider.arm_cq(self.cq, false)?;
        // What came before wakes no thread.
        if !self.poll()? {
            self.provider.wait(NAP)?;
            if !self.client.is_connected() {
                return Err(NodeError::Closed);
            }
        }
        Ok(self.unacknowledged == 0)
    }
}

/// Id of the WRITE of a signal: no id of a transfer.
const SIGNAL: u64 = u64::MAX;

impl<P: Endpoint> Peer<P> {
    /// Handles completions. Returns `true` if there was any progress.
    fn poll(&mut self) -> Result<bool, NodeError> {
        let any = self.provider.progress()?;
        let mut done = [Completion::default(); BATCH];
        let count = self.provider.poll_cq(self.cq, &mut done)?;
        for completion in &done[..count] {
            if completion.status != Status::Success {
                return Err(reason(completion.status, &self.client));
            }
            self.unacknowledged -= u32::from(completion.id == SIGNAL);
        }
        Ok(any || count > 0)
    }
}
