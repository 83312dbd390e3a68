//! Transfers between local memory and that of a node.

use crate::error::NodeError;
use shotline_memory::{MemoryError, Mr, Region};
use shotline_verbs::api::{self, Cq, Data, Element, Operation, PostError, Qp, Remote, SendWr, Status};
use shotline_verbs::cm::Endpoint;
use shotline_verbs::cm::message::RegionKey;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of an operation, so that those of others are not delayed for long. Longer transfers are several operations.
const PIECE: u64 = 4 << 20;
/// Maximum bytes of an operation.
const MAX_PIECE: u64 = 1 << 30;
/// Operations in flight.
pub(crate) const SENDS: u32 = 512;
/// Time in which an operation during the set-up must be done.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A queue pair and its key of the node's memory.
pub(crate) struct Channel {
    pub(crate) qp: Qp,
    memory: RegionKey,
    /// Bytes of an operation.
    piece: u64,
}

impl Channel {
    /// Returns the channel of a queue pair to the memory that has this name among the keys.
    ///
    /// # Errors
    /// If there is none, or its addresses exceed 64 bits.
    pub(crate) fn new(qp: Qp, keys: &[RegionKey], name: &str) -> Result<Self, String> {
        let memory = keys.iter().find(|key| key.region.name.as_str() == name).cloned();
        let memory = memory.ok_or_else(|| format!("it does not export its memory, {name}"))?;
        if memory.address.checked_add(memory.region.bytes).is_none() {
            return Err("the addresses of its memory exceed 64 bits".into());
        }
        Ok(Self { qp, memory, piece: PIECE })
    }

    /// Returns the bytes of the memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.region.bytes
    }

    /// Returns where an offset of the memory is, for an operation.
    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.memory.address + offset, rkey: self.memory.rkey }
    }

    /// Divides transfers into operations so that those of `bytes` bytes, in a few hundred transfers, fit into the send queue
    /// at once.
    pub(crate) fn divide(&mut self, bytes: u64) {
        self.piece = piece(bytes);
    }

    /// Returns the id of a transfer from that of the completion of its last operation.
    pub(crate) fn transferred(id: u64) -> Option<u64> {
        (id & 1 == 1).then_some(id >> 1)
    }

    /// Posts the operations of a transfer between local memory from `here` on and the node's memory from `there` on.
    pub(crate) fn transfer<P: Endpoint>(
        &mut self,
        provider: &mut P,
        operation: fn(Remote) -> Operation,
        local: &Mr,
        (here, there, bytes): (u64, u64, u64),
        id: u64,
    ) -> Result<(), PostError> {
        let mut at = 0;
        while at < bytes {
            let len = self.piece.min(bytes - at);
            let elements = [Element { address: local.address + here + at, len: len as u32, lkey: local.lkey }];
            let remote = self.remote(there + at);
            at += len;
            // Each is signalled, so that the room is known; only the last one is an event.
            let id = if at == bytes { id << 1 | 1 } else { id << 1 };
            let request = SendWr::new(id, operation(remote), Data::Elements(&elements));
            provider.post_send(self.qp, &[request]).map_err(|(_, error)| error)?;
        }
        Ok(())
    }
}

/// Returns the bytes of an operation for transfers of `bytes` bytes in all.
fn piece(bytes: u64) -> u64 {
    bytes.div_ceil(u64::from(SENDS) / 2).clamp(PIECE, MAX_PIECE).next_multiple_of(4096)
}

/// Allocates local memory that the target can reach.
pub(crate) fn local<P: Endpoint>(provider: &P, bytes: usize) -> Result<Arc<Region>, MemoryError> {
    // Over shared memory the target can access only memory that it can map.
    if provider.address().is_none() { Region::memfd("shotline-node", bytes) } else { Region::heap(bytes) }
}

/// Reads from a node to the beginning of local memory, and waits for it. Nothing else may be in flight.
pub(crate) fn read_now<P: Endpoint>(
    provider: &mut P,
    (qp, cq): (Qp, Cq),
    remote: Remote,
    mr: &Mr,
    bytes: usize,
) -> Result<(), NodeError> {
    let elements = [Element { address: mr.address, len: bytes as u32, lkey: mr.lkey }];
    let request = SendWr::new(0, Operation::Read(remote), Data::Elements(&elements));
    provider.post_send(qp, &[request]).map_err(|(_, error)| error)?;
    let end = Instant::now() + SETUP_TIMEOUT;
    let mut done = [api::Completion::default()];
    while Instant::now() < end {
        provider.progress()?;
        if provider.poll_cq(cq, &mut done)? == 1 {
            return match done[0].status {
                Status::Success => Ok(()),
                status => Err(NodeError::Operation(format!("its memory cannot be read: {status:?}"))),
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
                // A tile is two halos, its rows and a mark, then a command; a result is its rows, their sums and the mark.
                let written = (memory / buffers).div_ceil(piece) + 4;
                assert!(buffers * written <= SENDS.into(), "{memory} bytes in {buffers} buffers: {piece}");
                assert!(piece <= MAX_PIECE && piece.is_multiple_of(4096));
            }
        }
    }
}
