//! [`Provider`] for [`IbverbsEndpoint`].

use super::convert;
use super::endpoint::{BATCH, CompletionQueue, IbverbsEndpoint, SharedQueue, WrLists, check_depth, post_error};
use super::memory::Memory;
use super::pair::{GrhBuffers, Pair, check_port};
use super::queues::{QueueKind, ReceiveQueue, SendQueue, wr_id};
use super::sys::abi::*;
use super::sys::{self, Ah, RecvList, ah_attr};
use crate::api::{
    AsyncEvent, Capabilities, Completion, ControlSocket, Cq, Data, Description, Flag, Modify, NoNotices, NoWindows,
    PostError, Provider, Qp, QpConfig, QpState, QpType, Reach, RecvWr, SendWr, Srq, VerbsError,
};
use rustix::event::epoll;
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::time::Timespec;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use shotline_transport::IoError;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The provider's entry in the registry.
pub const DESCRIPTION: Description = Description {
    capabilities: Capabilities {
        name: "ibverbs",
        ud: true,
        uc: true,
        rc: true,
        atomics: true,
        target_cpu_is_idle: true,
        partial_registration: true,
        separate_rights: true,
        revokes: true,
        // A device binds windows by a work request, and has no expiry for them.
        windows: false,
        invalidates: false,
        lenient: false,
        random_numbers: false,
        reports_solicited: false,
        max_operation: 1 << 31,
    },
    form: "ibverbs[:DEVICE[,port=N][,gid=INDEX]]",
    summary: "an RDMA device",
    reach: Reach::Network,
    needs_device: true,
    flags: &[Flag::Mtu],
    mtu: None,
    control: ControlSocket::Tcp,
};

/// Returns the capabilities of a device, from its `ibv_atomic_cap` and its longest operation.
fn capabilities(atomic_cap: u32, max_operation: u64) -> Capabilities {
    Capabilities { atomics: atomic_cap != IBV_ATOMIC_NONE, max_operation, ..DESCRIPTION.capabilities }
}

impl NoWindows for IbverbsEndpoint {}

impl NoNotices for IbverbsEndpoint {}

impl Provider for IbverbsEndpoint {
    fn capabilities(&self) -> Capabilities {
        capabilities(self.limits.atomic_cap, self.max_operation)
    }

    fn alloc_pd(&mut self) -> Result<Pd, VerbsError> {
        self.memory.allocate(&self.context)
    }
    fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbsError> {
        self.memory.deallocate(pd)
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
        self.memory.register(pd, region, offset, len, access, addressing)
    }
    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError> {
        self.memory.deregister(mr)
    }

    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError> {
        check_depth("completion queue", depth, self.limits.max_cqe)?;
        let (context, channel) = (&self.context, &self.channel);
        let handle =
            self.cqs.next().ok_or(VerbsError::Unsupported("an endpoint supports at most 65,536 completion queues"))?;
        let cq = sys::Cq::new(context, depth, Some(channel), handle.into())?;
        self.cqs.put(handle, CompletionQueue { cq, overrun: false, stash: VecDeque::new() });
        Ok(Cq(handle))
    }
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cq(cq)?;
        if self.pairs.iter().any(|(_, pair)| pair.config.send_cq == cq || pair.config.recv_cq == cq) {
            return Err(VerbsError::InUse { what: "completion queue", by: "a queue pair" });
        }
        // Polls the remaining completions, so that their shared receives are returned.
        let mut discarded = [Completion::default(); BATCH];
        while self.poll(cq, &mut discarded)? == BATCH {}
        self.cqs.remove(cq.0);
        Ok(())
    }
    #[inline]
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        self.poll(cq, out)
    }
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        Ok(self.cq(cq)?.arm(solicited_only)?)
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
    fn next_event(&mut self) -> Option<Cq> {
        // A fatal device error is reported by `progress`.
        while let Some(cookie) = self.channel.next_event().ok().flatten() {
            let cq = Cq(cookie as u32);
            if self.cq(cq).is_ok() {
                return Some(cq);
            }
        }
        None
    }
    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError> {
        let end = Instant::now().checked_add(timeout);
        loop {
            self.read_async_events()?;
            if let Some(cq) = self.next_event() {
                return Ok(Some(cq));
            }
            let left = end.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError> {
        check_depth("shared receive queue", depth, self.limits.max_srq_wr)?;
        self.check_elements(max_sge, self.limits.max_srq_sge)?;
        let device = Arc::clone(&self.memory.domain(pd)?.pd);
        let handle = self
            .srqs
            .next()
            .ok_or(VerbsError::Unsupported("an endpoint supports at most 65,536 shared receive queues"))?;
        let srq = sys::Srq::new(&device, depth, max_sge.max(1), handle.into())?;
        self.memory.protection.join(pd)?;
        self.srqs.put(handle, SharedQueue { srq, receives: ReceiveQueue::new(pd, depth, max_sge) });
        self.lists.reserve(max_sge, 0);
        Ok(Srq(handle))
    }
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        if self.pairs.iter().any(|(_, pair)| pair.config.srq == Some(srq)) {
            return Err(VerbsError::InUse { what: "shared receive queue", by: "a queue pair" });
        }
        let mut shared = self.srqs.remove(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        shared.receives.discard(&mut self.memory);
        self.memory.protection.leave(shared.receives.pd);
        Ok(())
    }
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let shared = self.srqs.get_mut(srq.0).ok_or((0, PostError::NoQueue))?;
        let SharedQueue { srq: device, receives } = shared;
        let post = |list: &mut RecvList| device.post_recv(list);
        let queue = (srq.0, QueueKind::SharedReceive);
        post_receives(receives, &mut self.memory, &mut self.lists, queue, requests, |_| None, post, QpState::Error)
    }
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        let shared = self.srqs.get(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        Ok(shared.srq.arm(limit)?)
    }
    fn next_async(&mut self) -> Option<AsyncEvent> {
        if self.async_events.is_empty() {
            // A fatal device error is reported by `progress`.
            let _ = self.read_async_events();
        }
        self.async_events.pop_front()
    }

    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError> {
        let pd = Arc::clone(&self.memory.domain(config.pd)?.pd);
        check_depth("send queue", config.max_send_wr, self.limits.max_qp_wr)?;
        self.check_elements(config.max_sge, self.limits.max_sge)?;
        let datagrams = config.kind == QpType::Ud;
        let srq = match config.srq {
            Some(_) if datagrams => {
                let why =
                    "a device writes a GRH of 40 bytes before each datagram: shared receives have no space for it";
                return Err(VerbsError::Unsupported(why));
            }
            Some(srq) => Some(&self.srqs.get(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?.srq),
            None => {
                check_depth("receive queue", config.max_recv_wr, self.limits.max_qp_wr)?;
                None
            }
        };
        let depth = if srq.is_some() { 0 } else { config.max_recv_wr };
        let elements = config.max_sge.max(1);
        let cap = ibv_qp_cap {
            max_send_wr: config.max_send_wr,
            max_recv_wr: depth,
            max_send_sge: elements,
            max_recv_sge: elements + u32::from(datagrams),
            max_inline_data: config.max_inline,
        };
        let requested = sys::QpConfig {
            kind: convert::kind(config.kind),
            send_cq: self.cq(config.send_cq)?,
            recv_cq: self.cq(config.recv_cq)?,
            srq,
            cap,
            signal_all: false,
        };
        let grh = datagrams.then(|| GrhBuffers::new(&pd, depth)).transpose()?;
        let pair = Pair {
            qp: sys::Qp::new(&pd, &requested)?,
            config: *config,
            state: QpState::Reset,
            failed: false,
            sends: SendQueue::new(config, self.max_operation),
            receives: ReceiveQueue::new(config.pd, depth, config.max_sge),
            grh,
        };
        let number = pair.qp.number();
        self.memory.protection.join(config.pd)?;
        let Some(handle) = self.pairs.insert(Box::new(pair)) else {
            self.memory.protection.leave(config.pd);
            return Err(VerbsError::Unsupported("an endpoint supports at most 65,536 queue pairs"));
        };
        self.numbers.insert(number, handle);
        self.lists.reserve(cap.max_recv_sge, config.max_inline);
        Ok(Qp(number))
    }
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError> {
        let handle = self.handle(qp)?;
        if let Modify::Reset = change {
            self.reclaim_shared_receives(qp)?;
        }
        let pair = self.pairs.get_mut(handle).ok_or(VerbsError::NoSuch("queue pair"))?;
        pair.modify(&change, &self.port, self.max_operation)?;
        if let Modify::Reset = change {
            pair.sends.discard(&mut self.memory);
            pair.receives.discard(&mut self.memory);
        }
        Ok(())
    }
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError> {
        self.pairs.get(self.handle(qp)?).ok_or(VerbsError::NoSuch("queue pair"))?.query_state()
    }
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError> {
        self.handle(qp)?;
        // A removed device returns no receives, and the queue pair is destroyed anyway.
        let _ = self.reclaim_shared_receives(qp);
        let handle = self.numbers.remove(&qp.0).ok_or(VerbsError::NoSuch("queue pair"))?;
        if let Some(mut pair) = self.pairs.remove(handle) {
            pair.sends.discard(&mut self.memory);
            pair.receives.discard(&mut self.memory);
            self.memory.protection.leave(pair.config.pd);
        }
        Ok(())
    }

    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        let handle = self.handle(qp).map_err(|_| (0, PostError::NoQueue))?;
        let pair = self.pairs.get_mut(handle).ok_or((0, PostError::NoQueue))?;
        if !matches!(pair.state, QpState::ReadyToSend | QpState::SendError | QpState::Error) {
            return Err((0, PostError::State(pair.state)));
        }
        let Self { memory, lists, port, .. } = self;
        let mut result = Ok(());
        let mut posted = 0;
        for batch in requests.chunks(BATCH) {
            for (index, wr) in batch.iter().enumerate() {
                let pushed = push_send(pair, handle, memory, lists, port, wr);
                if let Err(error) = pushed {
                    result = Err((posted + index, error));
                    break;
                }
            }
            let count = lists.sends.len();
            if let Err((accepted, error)) = pair.qp.post_send(&mut lists.sends) {
                pair.sends.retract(memory, (count - accepted) as u32);
                result = Err((posted + accepted, post_error(&error, pair.state)));
            }
            if result.is_err() {
                break;
            }
            posted += count;
        }
        if pair.state == QpState::Error {
            // If the device was removed, `progress` reports it.
            let _ = pair.flush();
        }
        result
    }
    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let handle = self.handle(qp).map_err(|_| (0, PostError::NoQueue))?;
        let pair = self.pairs.get_mut(handle).ok_or((0, PostError::NoQueue))?;
        if pair.config.srq.is_some() {
            return Err((0, PostError::NoQueue));
        }
        if pair.state == QpState::Reset {
            return Err((0, PostError::State(pair.state)));
        }
        let Pair { qp: device, receives, grh, state, .. } = &mut **pair;
        let before = |slot| grh.as_ref().map(|grh| grh.element(slot));
        let post = |list: &mut RecvList| device.post_recv(list);
        let queue = (handle, QueueKind::Receive);
        let result = post_receives(receives, &mut self.memory, &mut self.lists, queue, requests, before, post, *state);
        if pair.state == QpState::Error {
            let _ = pair.flush();
        }
        result
    }

    fn progress(&mut self) -> Result<bool, VerbsError> {
        self.read_async_events()
    }
}

impl IbverbsEndpoint {
    fn check_elements(&self, max_sge: u32, limit: i32) -> Result<(), VerbsError> {
        let limit = u32::try_from(limit).unwrap_or(0);
        if max_sge <= limit {
            return Ok(());
        }
        Err(VerbsError::Invalid(format!(
            "expected requests of at most {limit} elements on this device, found {max_sge}"
        )))
    }

    fn sleep(&self, timeout: Duration) -> Result<(), VerbsError> {
        let time = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut found = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        match epoll::wait(&self.epoll, &mut found[..], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(source) => {
                Err(IoError::System { what: "cannot wait for the device".into(), source: source.into(), hint: "" }
                    .into())
            }
        }
    }
}

/// Adds a send work request to the queue, and appends it to the list.
#[inline]
fn push_send(
    pair: &mut Pair,
    handle: u32,
    memory: &mut Memory,
    lists: &mut WrLists,
    port: &super::pair::Port,
    wr: &SendWr<'_>,
) -> Result<(), PostError> {
    let kind = pair.config.kind;
    if !convert::supports(kind, &wr.operation) {
        return Err(PostError::Unsupported(kind));
    }
    let ah = match wr.destination {
        Some(destination) if kind == QpType::Ud => {
            Some(address_handle(memory, pair.config.pd, port, destination.address)?)
        }
        _ => None,
    };
    let number = pair.sends.post(memory, wr, ah.as_ref(), &mut lists.elements)?;
    let mut request = convert::request(&wr.operation, wr.destination.map(|to| (to.qp, to.q_key)));
    request.wr_id = wr_id(handle, QueueKind::Send, number);
    request.send_flags =
        [(wr.signalled, IBV_SEND_SIGNALED), (wr.solicited, IBV_SEND_SOLICITED), (wr.fence, IBV_SEND_FENCE)]
            .iter()
            .fold(0, |flags, (is_set, flag)| if *is_set { flags | flag } else { flags });
    match wr.data {
        Data::Elements(_) => lists.sends.push(request, &lists.elements, ah.as_ref()),
        Data::Inline(bytes) => lists.sends.push_inline(request, bytes, ah.as_ref()),
    }
    Ok(())
}

/// Maximum number of address handles that a domain caches; then the cache is cleared.
const MAX_CACHED_AHS: usize = 4096;

/// Returns the address handle of a peer. The first time, the kernel resolves the address.
fn address_handle(memory: &mut Memory, pd: Pd, port: &super::pair::Port, to: SocketAddr) -> Result<Arc<Ah>, PostError> {
    let domain = memory.domain(pd).map_err(|_| PostError::Destination)?;
    let ip = check_port(to).map_err(|_| PostError::Destination)?;
    if let Some(ah) = domain.ahs.get(&ip) {
        return Ok(Arc::clone(ah));
    }
    let ah = Ah::new(&domain.pd, &ah_attr(ip, port.number, port.gid_index, 0)).map_err(|_| PostError::Destination)?;
    if domain.ahs.len() >= MAX_CACHED_AHS {
        domain.ahs.clear(); // posted requests hold theirs
    }
    domain.ahs.insert(ip, Arc::clone(&ah));
    Ok(ah)
}

/// Posts receives to the receive queue of a queue pair, or to a shared one. `before` returns the element to put before
/// those of a receive, by its slot; `post` passes a list to the device.
#[allow(clippy::too_many_arguments)] // all differ between the two callers
#[inline]
fn post_receives(
    receives: &mut ReceiveQueue,
    memory: &mut Memory,
    lists: &mut WrLists,
    queue: (u32, QueueKind),
    requests: &[RecvWr<'_>],
    before: impl Fn(u32) -> Option<ibv_sge>,
    post: impl Fn(&mut RecvList) -> Result<(), (usize, io::Error)>,
    state: QpState,
) -> Result<(), (usize, PostError)> {
    let mut result = Ok(());
    let mut posted = 0;
    for batch in requests.chunks(BATCH) {
        lists.numbers.clear();
        for (index, wr) in batch.iter().enumerate() {
            match receives.post(memory, wr, queue, &before, (&mut lists.receives, &mut lists.elements)) {
                Ok(number) => lists.numbers.push(number),
                Err(error) => {
                    result = Err((posted + index, error));
                    break;
                }
            }
        }
        if let Err((accepted, error)) = post(&mut lists.receives) {
            lists.numbers[accepted..].iter().for_each(|number| _ = receives.complete(memory, *number));
            result = Err((posted + accepted, post_error(&error, state)));
        }
        if result.is_err() {
            break;
        }
        posted += lists.numbers.len();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_without_atomics_reports_none() {
        for (atomic_cap, atomics) in [(IBV_ATOMIC_NONE, false), (IBV_ATOMIC_NONE + 1, true)] {
            let expected = Capabilities { atomics, max_operation: 64, ..DESCRIPTION.capabilities };
            assert_eq!(capabilities(atomic_cap, 64), expected);
        }
    }
}
