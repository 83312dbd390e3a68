//! Completion queues and queue pairs of an initiator.

use super::error::EndpointError;
use super::shared::Shared;
use shotline_verbs::api::{Completion, Cq, PostError, Qp, QpState, RecvWr, SendWr};
use shotline_verbs::cm::message::Bits24;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A completion queue. Clones are the same queue, which is destroyed with the last one and the last of its queue pairs.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Queue>);

struct Queue {
    shared: Arc<Shared>,
    cq: Cq,
    depth: u32,
    is_closed: AtomicBool,
}

impl CompletionQueue {
    pub(super) fn create(shared: &Arc<Shared>, depth: u32) -> Result<Self, EndpointError> {
        let cq = shared.lock()?.provider.create_cq(depth)?;
        let queue = Queue { shared: Arc::clone(shared), cq, depth, is_closed: AtomicBool::new(false) };
        Ok(Self(Arc::new(queue)))
    }

    pub(super) fn handle(&self) -> Cq {
        self.0.cq
    }

    /// Returns the number of completions that it has space for.
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    fn check(&self) -> Result<(), EndpointError> {
        if self.0.is_closed.load(Ordering::Acquire) && !self.0.shared.is_closed() {
            return Err(EndpointError::Closed("completion queue"));
        }
        Ok(())
    }

    /// Moves completions to the start of `out`, oldest first, and returns their number. Does not block.
    ///
    /// # Errors
    /// [`EndpointError::Disconnected`] if the target has ended and all completions have been returned;
    /// [`EndpointError::Overrun`] if completions were lost.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize, EndpointError> {
        self.check()?;
        self.0.shared.poll((self.0.cq, self.0.depth), out)
    }

    /// Like [`Self::poll`], but waits until there is a completion; returns 0 if the time is over.
    ///
    /// # Errors
    /// As for [`Self::poll`], and [`EndpointError::Closed`] if another thread closes the endpoint.
    pub fn wait(&self, out: &mut [Completion], timeout: Duration) -> Result<usize, EndpointError> {
        self.check()?;
        self.0.shared.wait((self.0.cq, self.0.depth), out, timeout)
    }

    /// Makes the descriptor of the endpoint readable at the next completion that is added. Returns `true` if there is work to
    /// do at once. Completions that are in the queue already do not count: poll once more.
    ///
    /// # Errors
    /// If the endpoint is closed.
    pub fn arm(&self) -> Result<bool, EndpointError> {
        self.check()?;
        self.0.shared.arm(self.0.cq)
    }

    /// Destroys the queue.
    ///
    /// # Errors
    /// [`EndpointError::Verbs`] if a queue pair uses it.
    pub fn close(&self) -> Result<(), EndpointError> {
        self.0.close()
    }

    /// Returns `true` if it is a queue of this endpoint.
    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.0.shared, shared)
    }
}

impl Queue {
    fn close(&self) -> Result<(), EndpointError> {
        self.shared.check_owner()?;
        // Read under the lock: two threads may close it.
        if let Ok(mut open) = self.shared.lock()
            && !self.is_closed.load(Ordering::Acquire)
        {
            open.provider.destroy_cq(self.cq)?;
            self.is_closed.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// A queue pair that is connected to one of the target.
pub struct QueuePair {
    shared: Arc<Shared>,
    qp: Qp,
    peer: Bits24,
    is_closed: AtomicBool,
    // Destroyed after the queue pair, which uses them.
    queues: [CompletionQueue; 2],
}

impl QueuePair {
    pub(super) fn new(shared: &Arc<Shared>, qp: Qp, peer: Bits24, queues: [CompletionQueue; 2]) -> Self {
        Self { shared: Arc::clone(shared), qp, peer, is_closed: AtomicBool::new(false), queues }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the number.
    pub fn number(&self) -> u32 {
        self.qp.0
    }
    /// Returns the number of the target's queue pair.
    pub fn peer(&self) -> u32 {
        self.peer.get()
    }
    /// Returns the completion queues of sends and of receives.
    pub fn queues(&self) -> &[CompletionQueue; 2] {
        &self.queues
    }

    fn check(&self) -> Result<(), EndpointError> {
        if self.is_closed.load(Ordering::Acquire) && !self.shared.is_closed() {
            return Err(EndpointError::Closed("queue pair"));
        }
        Ok(())
    }

    /// Returns the state.
    ///
    /// # Errors
    /// If the queue pair or the endpoint is closed.
    pub fn state(&self) -> Result<QpState, EndpointError> {
        self.check()?;
        Ok(self.shared.lock()?.provider.qp_state(self.qp)?)
    }

    /// Posts requests, in order, with one doorbell.
    ///
    /// # Errors
    /// [`EndpointError::Post`] if not all are posted.
    pub fn post_send(&self, requests: &[SendWr<'_>]) -> Result<(), EndpointError> {
        self.check()?;
        self.shared.lock()?.provider.post_send(self.qp, requests).map_err(refused)
    }

    /// Posts receives, in order.
    ///
    /// # Errors
    /// [`EndpointError::Post`] if not all are posted.
    pub fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), EndpointError> {
        self.check()?;
        self.shared.lock()?.provider.post_recv(self.qp, requests).map_err(refused)
    }

    /// Destroys the queue pair at both ends. Outstanding requests do not complete.
    ///
    /// # Errors
    /// [`EndpointError::Forked`] in a child process.
    pub fn close(&self) -> Result<(), EndpointError> {
        if self.destroy()? && !self.shared.is_closed() {
            let peer = self.peer;
            // Without a connection the target has destroyed its queue pair.
            let _ = self.shared.call(|client| client.disconnect(peer));
        }
        Ok(())
    }

    /// Destroys the local end. Returns `true` if it existed.
    fn destroy(&self) -> Result<bool, EndpointError> {
        self.shared.check_owner()?;
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let Ok(mut open) = self.shared.lock() else { return Ok(false) };
        open.pairs.remove(&self.qp.0);
        // It exists, and nothing else uses it.
        let _ = open.provider.destroy_qp(self.qp);
        Ok(true)
    }
}

fn refused((posted, source): (usize, PostError)) -> EndpointError {
    EndpointError::Post { posted, source }
}

impl Drop for QueuePair {
    /// Does not wait for the target, which destroys its end at the next call or at the end of the connection.
    fn drop(&mut self) {
        if let Ok(true) = self.destroy()
            && let Ok(mut open) = self.shared.lock()
        {
            open.ended_peers.push(self.peer);
        }
    }
}
