//! Blocking transfers of any length, through registered memory.

use super::error::EndpointError;
use super::failure::CompletionFailure;
use super::memory::{LocalRegion, Memory};
use super::queues::{CompletionQueue, QueuePair};
use super::remote::RemoteRegion;
use super::shared::Shared;
use shotline_memory::Access;
use shotline_verbs::api::{Completion, Data, Operation, Remote, SendWr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of an operation.
const CHUNK: usize = 256 << 10;
/// Time between two calls of `interrupted`.
const INTERVAL: Duration = Duration::from_millis(100);

/// A queue pair with staging memory of [`Bulk::DEPTH`] chunks.
pub(super) struct Bulk {
    shared: Arc<Shared>,
    qp: QueuePair,
    cq: CompletionQueue,
    /// Allocated by the first transfer.
    staging: Option<LocalRegion>,
}

impl Bulk {
    /// Operations in flight.
    pub(super) const DEPTH: u32 = 16;

    pub(super) fn new(shared: &Arc<Shared>, qp: QueuePair, cq: CompletionQueue) -> Self {
        Self { shared: Arc::clone(shared), qp, cq, staging: None }
    }

    pub(super) fn write(
        &mut self,
        to: &RemoteRegion,
        offset: u64,
        from: &[u8],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), EndpointError> {
        let fill = |staging: &LocalRegion, slot: usize, at: usize, len: usize| {
            staging.memory().region().write(slot, &from[at..at + len]);
        };
        self.transfer(Operation::Write, (to, offset, from.len()), interrupted, fill, |_, _, _, _| ())
    }

    pub(super) fn read(
        &mut self,
        from: &RemoteRegion,
        offset: u64,
        to: &mut [u8],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), EndpointError> {
        let len = to.len();
        let drain = |staging: &LocalRegion, slot: usize, at: usize, len: usize| {
            staging.memory().region().read(slot, &mut to[at..at + len]);
        };
        self.transfer(Operation::Read, (from, offset, len), interrupted, |_, _, _, _| (), drain)
    }

    /// Transfers chunk by chunk. `before` and `after` get the staging memory, the offset of a chunk in it, and the offset and
    /// the length of the chunk in the caller's bytes.
    fn transfer(
        &mut self,
        operation: impl Fn(Remote) -> Operation,
        (region, offset, total): (&RemoteRegion, u64, usize),
        interrupted: &mut dyn FnMut() -> bool,
        mut before: impl FnMut(&LocalRegion, usize, usize, usize),
        mut after: impl FnMut(&LocalRegion, usize, usize, usize),
    ) -> Result<(), EndpointError> {
        if self.staging.is_none() && total > 0 {
            let memory = Memory::allocate(CHUNK * Self::DEPTH as usize, "heap")?;
            self.staging = Some(LocalRegion::register(&self.shared, memory, Access::NONE)?);
        }
        let Some(staging) = &self.staging else { return Ok(()) };
        let depth = Self::DEPTH as usize;
        let place = |index: usize| (index % depth * CHUNK, index * CHUNK, CHUNK.min(total - index * CHUNK));
        let chunks = total.div_ceil(CHUNK);
        let (mut posted, mut done, mut checked) = (0, 0, Instant::now());
        let mut completions = [Completion::default(); Self::DEPTH as usize];
        while done < chunks {
            let end = chunks.min(done + depth);
            let mut elements = Vec::with_capacity(end - posted);
            for index in posted..end {
                let (slot, at, len) = place(index);
                before(staging, slot, at, len);
                elements.push(staging.element(slot as u64, len as u64)?);
            }
            let request = |(index, element)| {
                let remote = region.at(offset + (index * CHUNK) as u64);
                SendWr::new(index as u64, operation(remote), Data::Elements(std::slice::from_ref(element)))
            };
            let requests: Vec<_> = (posted..end).zip(&elements).map(request).collect();
            self.qp.post_send(&requests)?;
            posted = end;
            let count = self.cq.wait(&mut completions, INTERVAL)?;
            if checked.elapsed() >= INTERVAL {
                checked = Instant::now();
                if interrupted() {
                    return Err(EndpointError::Interrupted);
                }
            }
            for completion in &completions[..count] {
                if let Some(failure) = CompletionFailure::of(completion.status) {
                    return Err(failure.into());
                }
                // In order: a reliable connection completes requests as they were posted.
                let (slot, at, len) = place(done);
                after(staging, slot, at, len);
                done += 1;
            }
        }
        Ok(())
    }
}
