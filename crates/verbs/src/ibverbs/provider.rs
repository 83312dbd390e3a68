//! The verbs.

use super::endpoint::{BATCH, CompletionQueue, IbverbsEndpoint, Lists, SharedQueue, check_depth, refused};
use super::memory::Memory;
use super::pair::{Headers, Pair, reachable};
use super::queues::{Origin, Receives, Sends, identifier};
use super::sys::abi::*;
use super::sys::{self, Ah, RecvList, way_to};
use super::words;
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
        target_sleeps: true,
        partial_registration: true,
        separate_rights: true,
        revokes: true,
        // A device binds them by a request in the send queue, and ends none by itself when its time is over.
        windows: false,
        invalidates: false,
        lenient: false,
        random_numbers: false,
        tells_solicited: false,
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

/// What endpoints of a device can do, by its `ibv_atomic_cap` and its longest operation.
fn capabilities(atomic_cap: u32, max_operation: u64) -> Capabilities {
    Capabilities { atomics: atomic_cap != IBV_ATOMIC_NONE, max_operation, ..DESCRIPTION.capabilities }
}

impl NoWindows for IbverbsEndpoint {}

impl NoNotices for IbverbsEndpoint {}

impl Provider for IbverbsEndpoint {
    fn capabilities(&self) -> Capabilities {
        capabilities(self.limits.atomic_cap, self.most)
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
        let handle = self.cqs.next().ok_or(VerbsError::Unsupported("more than 65,536 completion queues"))?;
        let cq = sys::Cq::new(context, depth, Some(channel), handle.into())?;
        self.cqs.put(handle, CompletionQueue { cq, overrun: false, stash: VecDeque::new() });
        Ok(Cq(handle))
    }
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError> {
        self.cq(cq)?;
        if self.pairs.iter().any(|(_, pair)| pair.config.send_cq == cq || pair.config.recv_cq == cq) {
            return Err(VerbsError::InUse { what: "completion queue", by: "a queue pair" });
        }
        // Shared receives that complete here get their room back.
        let mut rest = [Completion::default(); BATCH];
        while self.take(cq, &mut rest)? == BATCH {}
        self.cqs.remove(cq.0);
        Ok(())
    }
    #[inline]
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        self.take(cq, out)
    }
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError> {
        Ok(self.cq(cq)?.arm(solicited_only)?)
    }
    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
    fn next_event(&mut self) -> Option<Cq> {
        // An error is the device's end, and `progress` tells it.
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
            self.hear()?;
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
        let handle = self.srqs.next().ok_or(VerbsError::Unsupported("more than 65,536 shared receive queues"))?;
        let srq = sys::Srq::new(&device, depth, max_sge.max(1), handle.into())?;
        self.memory.protection.join(pd)?;
        self.srqs.put(handle, SharedQueue { srq, receives: Receives::new(pd, depth, max_sge) });
        self.lists.hold(max_sge, 0);
        Ok(Srq(handle))
    }
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError> {
        if self.pairs.iter().any(|(_, pair)| pair.config.srq == Some(srq)) {
            return Err(VerbsError::InUse { what: "shared receive queue", by: "a queue pair" });
        }
        let mut shared = self.srqs.remove(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        shared.receives.forget(&mut self.memory);
        self.memory.protection.leave(shared.receives.pd);
        Ok(())
    }
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)> {
        let shared = self.srqs.get_mut(srq.0).ok_or((0, PostError::NoQueue))?;
        let SharedQueue { srq: device, receives } = shared;
        let post = |list: &mut RecvList| device.post_recv(list);
        let origin = (srq.0, Origin::Shared);
        post_receives(receives, &mut self.memory, &mut self.lists, origin, requests, |_| None, post, QpState::Error)
    }
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError> {
        let shared = self.srqs.get(srq.0).ok_or(VerbsError::NoSuch("shared receive queue"))?;
        Ok(shared.srq.arm(limit)?)
    }
    fn next_async(&mut self) -> Option<AsyncEvent> {
        if self.told.is_empty() {
            // An error is the device's end, and `progress` tells it.
            let _ = self.hear();
        }
        self.told.pop_front()
    }

    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError> {
        let pd = Arc::clone(&self.memory.domain(config.pd)?.pd);
        check_depth("send queue", config.max_send_wr, self.limits.max_qp_wr)?;
        self.check_elements(config.max_sge, self.limits.max_sge)?;
        let datagrams = config.kind == QpType::Ud;
        let srq = match config.srq {
            Some(_) if datagrams => {
                let why = "a device puts 40 bytes before each datagram: receives that are shared have no room for them";
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
        let asked = sys::QpConfig {
            kind: words::kind(config.kind),
            send_cq: self.cq(config.send_cq)?,
            recv_cq: self.cq(config.recv_cq)?,
            srq,
            cap,
            signal_all: false,
        };
        let headers = datagrams.then(|| Headers::new(&pd, depth)).transpose()?;
        let pair = Pair {
            qp: sys::Qp::new(&pd, &asked)?,
            config: *config,
            state: QpState::Reset,
            failed: false,
            sends: Sends::new(config, self.most),
            receives: Receives::new(config.pd, depth, config.max_sge),
            headers,
        };
        let number = pair.qp.number();
        self.memory.protection.join(config.pd)?;
        let Some(handle) = self.pairs.insert(Box::new(pair)) else {
            self.memory.protection.leave(config.pd);
            return Err(VerbsError::Unsupported("more than 65,536 queue pairs"));
        };
        self.numbers.insert(number, handle);
        self.lists.hold(cap.max_recv_sge, config.max_inline);
        Ok(Qp(number))
    }
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError> {
        let handle = self.handle(qp)?;
        if let Modify::Reset = change {
            self.give_back(qp)?;
        }
        let pair = self.pairs.get_mut(handle).ok_or(VerbsError::NoSuch("queue pair"))?;
        pair.modify(&change, &self.port, self.most)?;
        if let Modify::Reset = change {
            pair.sends.forget(&mut self.memory);
            pair.receives.forget(&mut self.memory);
        }
        Ok(())
    }
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError> {
        self.pairs.get(self.handle(qp)?).ok_or(VerbsError::NoSuch("queue pair"))?.found()
    }
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError> {
        self.handle(qp)?;
        // A device that is gone gives nothing back, and the queue pair goes all the same.
        let _ = self.give_back(qp);
        let handle = self.numbers.remove(&qp.0).ok_or(VerbsError::NoSuch("queue pair"))?;
        if let Some(mut pair) = self.pairs.remove(handle) {
            pair.sends.forget(&mut self.memory);
            pair.receives.forget(&mut self.memory);
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
                let entered = enter(pair, handle, memory, lists, port, wr);
                if let Err(error) = entered {
                    result = Err((posted + index, error));
                    break;
                }
            }
            let listed = lists.sends.len();
            if let Err((taken, error)) = pair.qp.post_send(&mut lists.sends) {
                pair.sends.retract(memory, (listed - taken) as u32);
                result = Err((posted + taken, refused(&error, pair.state)));
            }
            if result.is_err() {
                break;
            }
            posted += listed;
        }
        if pair.state == QpState::Error {
            // If the device is gone, `progress` tells it.
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
        let Pair { qp: device, receives, headers, state, .. } = &mut **pair;
        let before = |slot| headers.as_ref().map(|headers| headers.element(slot));
        let post = |list: &mut RecvList| device.post_recv(list);
        let origin = (handle, Origin::Receives);
        let result = post_receives(receives, &mut self.memory, &mut self.lists, origin, requests, before, post, *state);
        if pair.state == QpState::Error {
            let _ = pair.flush();
        }
        result
    }

    fn progress(&mut self) -> Result<bool, VerbsError> {
        self.hear()
    }
}

impl IbverbsEndpoint {
    fn check_elements(&self, max_sge: u32, most: i32) -> Result<(), VerbsError> {
        let most = u32::try_from(most).unwrap_or(0);
        if max_sge <= most {
            return Ok(());
        }
        Err(VerbsError::Invalid(format!("requests of this device have up to {most} elements, not {max_sge}")))
    }

    fn sleep(&self, most: Duration) -> Result<(), VerbsError> {
        let time = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
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

/// Enters a send request and appends it to the list.
#[inline]
fn enter(
    pair: &mut Pair,
    handle: u32,
    memory: &mut Memory,
    lists: &mut Lists,
    port: &super::pair::Port,
    wr: &SendWr<'_>,
) -> Result<(), PostError> {
    let kind = pair.config.kind;
    if !words::can(kind, &wr.operation) {
        return Err(PostError::Unsupported(kind));
    }
    let way = match wr.destination {
        Some(destination) if kind == QpType::Ud => Some(way(memory, pair.config.pd, port, destination.address)?),
        _ => None,
    };
    let number = pair.sends.post(memory, wr, way.as_ref(), &mut lists.elements)?;
    let mut request = words::request(&wr.operation, wr.destination.map(|to| (to.qp, to.q_key)));
    request.wr_id = identifier(handle, Origin::Sends, number);
    request.send_flags =
        [(wr.signalled, IBV_SEND_SIGNALED), (wr.solicited, IBV_SEND_SOLICITED), (wr.fence, IBV_SEND_FENCE)]
            .iter()
            .fold(0, |flags, (is_set, flag)| if *is_set { flags | flag } else { flags });
    match wr.data {
        Data::Elements(_) => lists.sends.push(request, &lists.elements, way.as_ref()),
        Data::Inline(bytes) => lists.sends.push_inline(request, bytes, way.as_ref()),
    }
    Ok(())
}

/// Most ways that a domain keeps; then it begins anew.
const MOST_WAYS: usize = 4096;

/// The way to a peer. The first time, the kernel looks for it.
fn way(memory: &mut Memory, pd: Pd, port: &super::pair::Port, to: SocketAddr) -> Result<Arc<Ah>, PostError> {
    let domain = memory.domain(pd).map_err(|_| PostError::Destination)?;
    let ip = reachable(to).map_err(|_| PostError::Destination)?;
    if let Some(way) = domain.ways.get(&ip) {
        return Ok(Arc::clone(way));
    }
    let made = Ah::new(&domain.pd, &way_to(ip, port.number, port.gid_index)).map_err(|_| PostError::Destination)?;
    if domain.ways.len() >= MOST_WAYS {
        domain.ways.clear(); // requests that are posted keep theirs
    }
    domain.ways.insert(ip, Arc::clone(&made));
    Ok(made)
}

/// Posts receives to a queue pair's or a shared queue.
#[allow(clippy::too_many_arguments)] // All of them differ between the two.
#[inline]
fn post_receives(
    receives: &mut Receives,
    memory: &mut Memory,
    lists: &mut Lists,
    origin: (u32, Origin),
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
            match receives.post(memory, wr, origin, &before, (&mut lists.receives, &mut lists.elements)) {
                Ok(number) => lists.numbers.push(number),
                Err(error) => {
                    result = Err((posted + index, error));
                    break;
                }
            }
        }
        if let Err((taken, error)) = post(&mut lists.receives) {
            lists.numbers[taken..].iter().for_each(|number| _ = receives.complete(memory, *number));
            result = Err((posted + taken, refused(&error, state)));
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
    fn a_device_without_atomic_operations_claims_none() {
        for (atomic_cap, atomics) in [(IBV_ATOMIC_NONE, false), (IBV_ATOMIC_NONE + 1, true)] {
            let expected = Capabilities { atomics, max_operation: 64, ..DESCRIPTION.capabilities };
            assert_eq!(capabilities(atomic_cap, 64), expected);
        }
    }
}
