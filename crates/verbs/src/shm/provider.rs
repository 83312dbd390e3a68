//! [`Provider`] for [`ShmEndpoint`].

use super::board::{MAX_QUEUES, Word};
use super::endpoint::ShmEndpoint;
use super::failed;
use super::keys::check_shareable;
use super::pair::QueuePair;
use super::path::Turn;
use super::queues::{CompletionQueue, ReceiveQueue};
use super::send::MAX_OPERATION_BYTES;
use crate::api::{
    AsyncEvent, Capabilities, Completion, ControlSocket, Cq, Description, Modify, NoNotices, NoWindows, PostError,
    Provider, Qp, QpConfig, QpState, QpType, Reach, ReadyToReceive, ReadyToSend, RecvWr, SendWr, Srq, VerbsError,
};
use crate::random::fresh_number;
use crate::slab::slot_of;
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum depth of a completion queue: each entry takes memory at once.
const MAX_COMPLETIONS: u32 = 1 << 22;

impl ShmEndpoint {
    fn slot(&self, qp: Qp) -> Option<usize> {
        self.numbers.get(&qp.0).map(|slot| *slot as usize)
    }
    fn pair_mut(&mut self, qp: Qp) -> Result<(usize, &mut QueuePair), VerbsError> {
        let slot = self.slot(qp).ok_or(VerbsError::NoSuch("queue pair"))?;
        let pair = self.pairs[slot].as_deref_mut().ok_or(VerbsError::NoSuch("queue pair"))?;
        Ok((slot, pair))
    }
    fn cq(&mut self, cq: Cq) -> Result<&mut CompletionQueue, VerbsError> {
        self.cqs.get_mut(cq.0).ok_or(VerbsError::NoSuch("completion queue"))
    }

    /// Publishes the posted records, and wakes the peer if it has requested that.
    #[inline]
    fn doorbell(&mut self) {
        if self.writer.publish(self.mine.tail()) {
            self.must_notify = true;
        }
        if self.must_notify {
            self.notify_peer();
        }
    }

    fn create_receives(&mut self, queue: ReceiveQueue) -> Result<u32, VerbsError> {
        let pd = queue.pd;
        self.protection.join(pd)?;
        let handle = self.receives.insert(queue).filter(|handle| {
            let fits = slot_of(*handle) < MAX_QUEUES;
            if !fits {
                self.receives.remove(*handle);
            }
            fits
        });
        let Some(handle) = handle else {
            self.protection.leave(pd);
            return Err(VerbsError::Invalid(format!("all {MAX_QUEUES} receive queues are in use: destroy some")));
        };
        self.publish_receives(handle);
        Ok(handle)
    }
    fn destroy_receives(&mut self, handle: u32) {
        if let Some(mut queue) = self.receives.remove(handle) {
            while let Some(receive) = queue.take() {
                queue.recycle(&mut self.protection, receive);
            }
            self.protection.leave(queue.pd);
            self.publish_receives(handle);
        }
    }
    fn shared(&mut self, srq: Srq) -> Result<&mut ReceiveQueue, VerbsError> {
        let queue = self.receives.get_mut(srq.0).filter(|queue| queue.shared);
        queue.ok_or(VerbsError::NoSuch("shared receive queue"))
    }

    fn ready_to_receive(&mut self, slot: usize, ready: &ReadyToReceive) -> Result<(), VerbsError> {
        if self.is_disconnected {
            return Err(VerbsError::Invalid("the peer's process has ended".into()));
        }
        let Some((_, peer)) = ready.peer else {
            return Err(VerbsError::Invalid("a connection needs the number of the peer's queue pair".into()));
        };
        let timer = ready.min_rnr_timer.microseconds() * 1000;
        self.mine.pair(slot, Word::RnrTimer).store(timer, Ordering::Release);
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return Ok(()) };
        (pair.peer, pair.peer_slot, pair.searched_at) = (peer, None, None);
        pair.expected = ready.psn;
        pair.state = QpState::ReadyToReceive;
        self.publish_pair(slot);
        Ok(())
    }

    fn ready_to_send(&mut self, slot: usize, ready: &ReadyToSend) {
        let Some(pair) = self.pairs[slot].as_deref_mut() else { return };
        pair.next_message = ready.psn;
        let attempts = u32::from(ready.retry_cnt) + 1;
        pair.timeout = (!ready.timeout.is_zero()).then(|| ready.timeout.saturating_mul(attempts));
        pair.rnr_retry = ready.rnr_retry;
        pair.state = QpState::ReadyToSend;
    }

    /// Returns the earliest deadline of a waiting request.
    fn deadline(&self) -> Option<Instant> {
        let pairs = self.active.iter().filter_map(|slot| self.pairs[*slot as usize].as_deref());
        pairs.filter_map(|pair| pair.deadline.map(|(_, end)| end)).min()
    }

    /// Requests wake-ups from the peer, so that the descriptor of [`Provider::fd`] becomes readable when there is work.
    /// Returns `true` if there is work already.
    fn prepare_sleep(&mut self) -> bool {
        self.request_wake();
        self.wakeups.set_deadline(self.deadline());
        self.poll_peer() || self.poll_socket()
    }
}

/// The provider's entry in the registry.
pub const DESCRIPTION: Description = Description {
    capabilities: Capabilities {
        name: "shm",
        ud: false,
        uc: false,
        rc: true,
        atomics: true,
        target_cpu_is_idle: true,
        partial_registration: false,
        separate_rights: false,
        revokes: false,
        windows: false,
        invalidates: true,
        lenient: true,
        random_numbers: true,
        reports_solicited: true,
        max_operation: MAX_OPERATION_BYTES,
    },
    form: "shm",
    summary: "shared memory of this machine",
    reach: Reach::Machine,
    needs_device: false,
    flags: &[],
    mtu: None,
    control: ControlSocket::Unix,
};

impl NoWindows for ShmEndpoint {}

impl NoNotices for ShmEndpoint {}

impl Provider for ShmEndpoint {
    fn capabilities(&self) -> Capabilities {
        DESCRIPTION.capabilities
    }

    fn alloc_pd(&mut self) -> Result<Pd, VerbsError> {
        let pd = self.protection.allocate();
        self.domains.push(pd);
        Ok(pd)
    }
    fn dealloc_pd(&mut self, _: Pd) -> Result<(), VerbsError> {
        Err(VerbsError::Unsupported("this provider cannot deallocate protection domains"))
    }
    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError> {
        if access.is_remote() {
            check_shareable(region, offset, len, access)?;
        }
        let mr = self.protection.register(pd, region, offset, len, access, addressing)?;
        if access.is_remote()
            && let Err(error) = self.share(pd, region, &mr, access)
        {
            self.protection.deregister(mr.lkey);
            return Err(error);
        }
        Ok(mr)
    }
    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        if !self.protection.deregister(mr.lkey) {
            return Err(VerbsError::NoSuch("memory registration"));
        }
        self.unshare_local(mr.lkey);
        Ok(())
    }

    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        if !(1..=MAX_COMPLETIONS).contains(&depth) {
            return Err(VerbsError::Invalid(format!(
                "expected a depth of 1 to {MAX_COMPLETIONS} for a completion queue, found {depth}"
            )));
        }
        let full = || VerbsError::Invalid("all 65,536 completion queues are in use: destroy some".into());
        self.cqs.insert(CompletionQueue::new(depth)).map(Cq).ok_or_else(full)
    }
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cq(cq)?;
        let uses = |pair: &QueuePair| pair.config.send_cq == cq || pair.config.recv_cq == cq;
        if self.pairs.iter().flatten().any(|pair| uses(pair)) {
            return Err(VerbsError::InUse { what: "completion queue", by: "a queue pair" });
        }
        self.cqs.remove(cq.0);
        self.events.retain(|event| *event != cq);
        Ok(())
    }
    #[inline]
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        self.poll_peer();
        let queue = self.cqs.get_mut(cq.0).ok_or(VerbsError::NoSuch("completion queue"))?;
        let mut count = 0;
        while count < out.len()
            && let Some(entry) = queue.pop()
        {
            out[count] = entry.completion();
            count += 1;
            if entry.is_send()
                && let Some(pair) = self.pairs[entry.slot as usize].as_deref_mut()
                && pair.number == entry.qp
            {
                pair.freed = entry.number;
            }
        }
        Ok(count)
    }
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        self.cq(cq)?.arm(solicited_only);
        self.request_wake();
        Ok(())
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.wakeups.fd()
    }
    fn next_event(&mut self) -> Option<Cq> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.wakeups.lower();
        }
        event
    }
    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let busy = self.prepare_sleep();
            if let Some(event) = self.next_event() {
                self.cancel_wake();
                return Ok(Some(event));
            }
            if busy {
                continue;
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                self.cancel_wake();
                return Ok(None);
            }
            self.wakeups.sleep(left).map_err(failed)?;
        }
    }

    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError> {
        self.create_receives(ReceiveQueue::new(pd, depth, max_sge, true)).map(Srq)
    }
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        self.shared(srq)?;
        if self.pairs.iter().flatten().any(|pair| pair.config.srq == Some(srq)) {
            return Err(VerbsError::InUse { what: "shared receive queue", by: "a queue pair" });
        }
        self.destroy_receives(srq.0);
        Ok(())
    }
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let queue = self.receives.get_mut(srq.0).filter(|queue| queue.shared);
        let queue = queue.ok_or((0, PostError::NoQueue))?;
        let mut requests = requests.iter().enumerate();
        let posted =
            requests.try_for_each(|(index, wr)| queue.post(&mut self.protection, wr).map_err(|error| (index, error)));
        self.publish_receives(srq.0);
        self.doorbell();
        posted
    }
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        self.shared(srq)?.limit = Some(limit);
        self.check_limit(srq.0);
        Ok(())
    }
    fn next_async(&mut self) -> Option<AsyncEvent> {
        self.async_events.pop_front()
    }

    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError> {
        if config.kind != QpType::Rc {
            return Err(VerbsError::Unsupported("this provider supports only reliable connections (RC)"));
        }
        self.cq(config.send_cq)?;
        self.cq(config.recv_cq)?;
        let slot = self.pairs.iter().position(Option::is_none).unwrap_or(self.pairs.len());
        if slot == MAX_QUEUES {
            return Err(VerbsError::Invalid(format!("all {MAX_QUEUES} queue pairs are in use: destroy some")));
        }
        let number = fresh_number(|number| self.numbers.contains_key(&number))?;
        let receives = match config.srq {
            Some(srq) => {
                self.shared(srq)?;
                srq.0
            }
            None => self.create_receives(ReceiveQueue::new(config.pd, config.max_recv_wr, config.max_sge, false))?,
        };
        if let Err(error) = self.protection.join(config.pd) {
            if config.srq.is_none() {
                self.destroy_receives(receives);
            }
            return Err(error.into());
        }
        if slot == self.pairs.len() {
            self.pairs.push(None);
        }
        self.pairs[slot] = Some(Box::new(QueuePair::new(number, *config, receives)));
        self.numbers.insert(number, slot as u32);
        self.publish_pair(slot);
        Ok(Qp(number))
    }
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError> {
        let (slot, pair) = self.pair_mut(qp)?;
        match (change, pair.state) {
            (Modify::Init { access, .. }, QpState::Reset | QpState::Init) => {
                (pair.access, pair.state) = (access, QpState::Init);
                self.publish_pair(slot);
            }
            (Modify::ReadyToReceive(ready), QpState::Init) => self.ready_to_receive(slot, &ready)?,
            (Modify::ReadyToSend(ready), QpState::ReadyToReceive | QpState::ReadyToSend) => {
                self.ready_to_send(slot, &ready);
            }
            (Modify::Error, _) => {
                // Requested by the application, so no event.
                pair.state = QpState::Error;
                self.fail(slot);
            }
            (Modify::Reset, _) => {
                pair.state = QpState::Reset;
                (pair.peer, pair.peer_slot) = (0, None);
                self.publish_pair(slot);
                self.discard(slot);
            }
            (change, from) => {
                let to = change.state();
                return Err(VerbsError::Invalid(format!("a queue pair cannot change from state {from} to {to}")));
            }
        }
        self.doorbell();
        Ok(())
    }
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError> {
        let pair = self.slot(qp).and_then(|slot| self.pairs[slot].as_deref());
        pair.map(|pair| pair.state).ok_or(VerbsError::NoSuch("queue pair"))
    }
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError> {
        let (slot, pair) = self.pair_mut(qp)?;
        let (pd, receives, own) = (pair.config.pd, pair.receives, pair.config.srq.is_none());
        self.mine.pair(slot, Word::State).store(0, Ordering::Release);
        self.mine.pair(slot, Word::Number).store(0, Ordering::Release);
        self.publish_change();
        self.discard(slot);
        self.pairs[slot] = None;
        self.numbers.remove(&qp.0);
        if own {
            self.destroy_receives(receives);
        }
        self.protection.leave(pd);
        self.doorbell();
        Ok(())
    }
    #[inline]
    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        let slot = self.slot(qp).ok_or((0, PostError::NoQueue))?;
        self.turn = Turn::new();
        let mut requests = requests.iter().enumerate();
        let posted = requests.try_for_each(|(index, wr)| self.post_one(slot, wr).map_err(|error| (index, error)));
        self.doorbell();
        posted
    }
    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let slot = self.slot(qp).ok_or((0, PostError::NoQueue))?;
        let Some(pair) = self.pairs[slot].as_deref() else { return Err((0, PostError::NoQueue)) };
        let (state, receives) = (pair.state, pair.receives);
        if state == QpState::Reset {
            return Err((0, PostError::State(state)));
        }
        let queue = self.receives.get_mut(receives).filter(|queue| !queue.shared);
        let queue = queue.ok_or((0, PostError::NoQueue))?;
        let mut requests = requests.iter().enumerate();
        let posted =
            requests.try_for_each(|(index, wr)| queue.post(&mut self.protection, wr).map_err(|error| (index, error)));
        if state == QpState::Error {
            self.flush(slot);
        }
        self.publish_receives(receives);
        self.doorbell();
        posted
    }

    fn progress(&mut self) -> Result<bool, VerbsError> {
        if self.poll_peer() {
            self.cancel_wake();
            return Ok(true);
        }
        // The caller may sleep on the descriptor next.
        Ok(self.prepare_sleep())
    }
}
