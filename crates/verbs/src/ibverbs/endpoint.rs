//! The endpoint: a device's port and address, with everything created on it.

use super::convert::{self, GRH_BYTES};
use super::memory::Memory;
use super::pair::{Pair, Port};
use super::queues::{MAX_RECEIVES, QueueKind, ReceiveQueue, parse_wr_id};
use super::selector::{DeviceSelector, OpenPort};
use super::sys::abi::*;
use super::sys::{self, AsyncEvent as DeviceEvent, Channel, Context, Gid, RecvList, SendList};
use crate::api::{AsyncEvent, Completion, CompletionKind, Cq, Mtu, PostError, Qp, QpState, Srq, Status, VerbsError};
use crate::slab::Slab;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use shotline_memory::KeyMap;
use shotline_transport::IoError;
use shotline_wire::udp::ROCE_PORT;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Maximum number of requests posted with one doorbell, and of completions polled at once.
pub(super) const BATCH: usize = 64;

/// A completion queue.
pub(super) struct CompletionQueue {
    pub(super) cq: Arc<sys::Cq>,
    /// The overrun was reported.
    pub(super) overrun: bool,
    /// Completions that were polled from the device but not returned to the application.
    pub(super) stash: VecDeque<Completion>,
}

/// A shared receive queue.
pub(super) struct SharedQueue {
    pub(super) srq: Arc<sys::Srq>,
    pub(super) receives: ReceiveQueue,
}

/// Lists in which requests are passed to the device. All queue pairs use the same ones, which are reallocated when
/// larger requests are needed.
pub(super) struct WrLists {
    pub(super) sends: SendList,
    pub(super) receives: RecvList,
    pub(super) elements: Vec<ibv_sge>,
    /// Numbers of the receives in the list.
    pub(super) numbers: Vec<u32>,
    max_sge: usize,
    max_inline: usize,
}

impl WrLists {
    fn new(max_sge: usize, max_inline: usize) -> Self {
        Self {
            sends: SendList::new(BATCH, max_sge, max_inline),
            receives: RecvList::new(BATCH, max_sge),
            elements: Vec::with_capacity(max_sge),
            numbers: Vec::with_capacity(BATCH),
            max_sge,
            max_inline,
        }
    }
    /// Reallocates the lists if requests of up to `max_sge` elements or `max_inline` inline bytes do not fit.
    pub(super) fn reserve(&mut self, max_sge: u32, max_inline: u32) {
        let (max_sge, max_inline) = (self.max_sge.max(max_sge as usize), self.max_inline.max(max_inline as usize));
        if (max_sge, max_inline) != (self.max_sge, self.max_inline) {
            *self = Self::new(max_sge, max_inline);
        }
    }
}

/// Queue pairs of an RDMA device.
///
/// Where the device supports it, work requests and completions bypass the kernel, and nothing is copied. Local errors
/// that would fail a queue pair are detected before a request reaches the device.
pub struct IbverbsEndpoint {
    // Dropped first: queue pairs refer to the other objects.
    pub(super) pairs: Slab<Box<Pair>>,
    /// Slab handles of queue pairs by queue pair number.
    pub(super) numbers: KeyMap<u32>,
    pub(super) srqs: Slab<SharedQueue>,
    pub(super) cqs: Slab<CompletionQueue>,
    pub(super) memory: Memory,
    pub(super) lists: WrLists,
    pub(super) wcs: Box<[ibv_wc]>,
    pub(super) async_events: VecDeque<AsyncEvent>,
    pub(super) epoll: OwnedFd,
    pub(super) channel: Arc<Channel>,
    pub(super) context: Arc<Context>,
    pub(super) limits: ibv_device_attr,
    pub(super) port: Port,
    /// Maximum length of an operation in bytes.
    pub(super) max_operation: u64,
    gid: Gid,
    mtu: Mtu,
}

impl std::fmt::Debug for IbverbsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IbverbsEndpoint({} at {})", self.context.name(), self.gid.ip())
    }
}

impl IbverbsEndpoint {
    /// Opens a device.
    ///
    /// # Errors
    /// If the library, the device or an address is missing; the error lists what exists and says what to do.
    pub fn open(selector: &DeviceSelector) -> Result<Self, VerbsError> {
        Self::from_open_port(selector.open()?)
    }

    /// Creates an endpoint on an open device. The endpoint reads the device's asynchronous events, so nothing else may.
    ///
    /// # Errors
    /// If the device or the kernel refuses.
    pub fn from_open_port(opened: OpenPort) -> Result<Self, VerbsError> {
        let OpenPort { context, port, attributes, gid } = opened;
        let limits = context.attributes()?;
        let channel = Channel::new(&context)?;
        let failed = |source: rustix::io::Errno| IoError::System {
            what: "cannot create an epoll file descriptor".into(),
            source: source.into(),
            hint: "; raise the limit (ulimit -n)",
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        for fd in [channel.fd(), context.async_fd()] {
            epoll::add(&epoll, fd, EventData::new_u64(0), EventFlags::IN).map_err(failed)?;
        }
        let max_rd_atomic = u8::try_from(limits.max_qp_init_rd_atom).unwrap_or(u8::MAX);
        Ok(Self {
            pairs: Slab::new(),
            numbers: KeyMap::default(),
            srqs: Slab::new(),
            cqs: Slab::new(),
            memory: Memory::new(),
            lists: WrLists::new(4, 64),
            wcs: vec![ibv_wc::default(); BATCH].into(),
            async_events: VecDeque::new(),
            epoll,
            channel,
            context,
            limits,
            port: Port { number: port, gid_index: gid.index, max_rd_atomic },
            max_operation: u64::from(attributes.max_msg_sz).min(1 << 31),
            gid,
            // The code of 256 bytes is 1, and each next code doubles.
            mtu: Mtu::from_bytes(128 << attributes.active_mtu.min(5)).unwrap_or(Mtu::B256),
        })
    }

    /// Returns the source address of its packets.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.gid.ip(), ROCE_PORT)
    }
    /// Returns the active MTU of its port, the maximum path MTU.
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }
    /// Returns the sysfs directory of the port's hardware counters, which count all users of the device.
    pub fn sysfs(&self) -> PathBuf {
        self.context.sysfs(self.port.number)
    }

    /// Returns the slab handle of a queue pair.
    pub(super) fn handle(&self, qp: Qp) -> Result<u32, VerbsError> {
        self.numbers.get(&qp.0).copied().ok_or(VerbsError::NoSuch("queue pair"))
    }
    pub(super) fn pair(&mut self, qp: Qp) -> Result<&mut Pair, VerbsError> {
        let handle = self.handle(qp)?;
        self.pairs.get_mut(handle).map(|pair| &mut **pair).ok_or(VerbsError::NoSuch("queue pair"))
    }
    pub(super) fn cq(&self, cq: Cq) -> Result<&Arc<sys::Cq>, VerbsError> {
        self.cqs.get(cq.0).map(|queue| &queue.cq).ok_or(VerbsError::NoSuch("completion queue"))
    }

    /// Polls completions. Completions of discarded requests are not returned.
    #[inline]
    pub(super) fn poll(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        let mut count = 0;
        if let Some(queue) = self.cqs.get_mut(cq.0)
            && !queue.stash.is_empty()
        {
            count = queue.stash.len().min(out.len());
            out[..count].iter_mut().zip(queue.stash.drain(..count)).for_each(|(to, from)| *to = from);
        }
        while count < out.len() {
            let limit = (out.len() - count).min(BATCH);
            let queue = self.cqs.get(cq.0).ok_or(VerbsError::NoSuch("completion queue"))?;
            let found = queue.cq.poll(&mut self.wcs[..limit])?;
            for index in 0..found {
                let wc = self.wcs[index];
                if let Some(completion) = self.process_completion(&wc) {
                    out[count] = completion;
                    count += 1;
                }
            }
            if found < limit {
                break;
            }
        }
        Ok(count)
    }

    /// Reclaims the shared receives of a queue pair before it is reset or destroyed: the device returns them by
    /// completions that some drivers (mlx5) discard with the queue pair. Completions of other queue pairs are stashed,
    /// its own are dropped. (If a device returns a receive later than this, its slot stays in use until the shared
    /// queue is destroyed.)
    pub(super) fn reclaim_shared_receives(&mut self, qp: Qp) -> Result<(), VerbsError> {
        let pair = self.pair(qp)?;
        let cq = pair.config.recv_cq;
        if pair.config.srq.is_none() || pair.state == QpState::Reset {
            return Ok(());
        }
        pair.flush()?;
        (pair.state, pair.failed) = (QpState::Error, true);
        let mut stash = VecDeque::new();
        let mut batch = [Completion::default(); BATCH];
        loop {
            let count = self.poll(cq, &mut batch)?;
            stash.extend(batch[..count].iter().filter(|completion| completion.qp != qp.0));
            if count < BATCH {
                break;
            }
        }
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.stash = stash;
        }
        Ok(())
    }

    #[inline]
    fn process_completion(&mut self, wc: &ibv_wc) -> Option<Completion> {
        let (handle, kind, number) = parse_wr_id(wc.wr_id);
        let status = convert::status(wc.status, kind != QueueKind::Send);
        let mut completion =
            Completion { status, qp: wc.qp_num, solicited: status != Status::Success, ..Completion::default() };
        match kind {
            QueueKind::Send => {
                let sent = self.pairs.get_mut(handle)?.sends.complete(&mut self.memory, number)?;
                (completion.id, completion.kind) = (sent.id, sent.kind);
                if status == Status::Success {
                    completion.bytes = sent.bytes;
                }
            }
            QueueKind::Receive => {
                let pair = self.pairs.get_mut(handle)?;
                let (id, slot) = pair.receives.complete(&mut self.memory, number)?;
                completion.id = id;
                fill_receive(&mut completion, wc);
                if let (Some(grh), Status::Success) = (&pair.grh, status) {
                    completion.bytes = wc.byte_len.saturating_sub(GRH_BYTES);
                    let sender = grh.sender(slot).filter(|_| wc.wc_flags & IBV_WC_GRH != 0);
                    completion.source = sender.map(|ip| (SocketAddr::new(ip, ROCE_PORT), wc.src_qp));
                }
            }
            QueueKind::SharedReceive => {
                let shared = self.srqs.get_mut(handle)?;
                completion.id = shared.receives.complete(&mut self.memory, number)?.0;
                fill_receive(&mut completion, wc);
            }
        }
        if status != Status::Success {
            self.update_failed(Qp(wc.qp_num));
        }
        Some(completion)
    }

    /// Updates the state of a queue pair after a failed request: the device may have moved it to the error state.
    #[cold]
    fn update_failed(&mut self, qp: Qp) {
        let Ok(pair) = self.pair(qp) else { return };
        let Ok(state) = pair.query_state() else { return };
        pair.state = state;
        if state == QpState::Error && !std::mem::replace(&mut pair.failed, true) {
            self.async_events.push_back(AsyncEvent::QpError(qp));
        }
    }

    /// Reads the device's asynchronous events. Returns `true` if there were any.
    pub(super) fn read_async_events(&mut self) -> Result<bool, VerbsError> {
        let mut any = false;
        while let Some(event) = self.context.next_event()? {
            any = true;
            match event {
                DeviceEvent::Cq(cookie) => self.overrun(Cq(cookie as u32))?,
                DeviceEvent::Srq { cookie, limit: true } if self.srqs.get(cookie as u32).is_some() => {
                    self.async_events.push_back(AsyncEvent::SrqLimit(Srq(cookie as u32)));
                }
                DeviceEvent::Qp { number, kind: IBV_EVENT_QP_FATAL..=IBV_EVENT_QP_ACCESS_ERR } => {
                    self.update_failed(Qp(number))
                }
                DeviceEvent::Device(IBV_EVENT_DEVICE_FATAL) => {
                    let message = format!("the device {} has failed: its driver must reset it", self.context.name());
                    return Err(IoError::Config(message).into());
                }
                DeviceEvent::Srq { .. } | DeviceEvent::Qp { .. } | DeviceEvent::Device(_) => {}
            }
        }
        Ok(any)
    }

    /// Handles an overrun: a completion was lost, so the queue pairs of the completion queue must fail. Not every
    /// device moves them to the error state (rxe does not).
    fn overrun(&mut self, cq: Cq) -> Result<(), VerbsError> {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return Ok(()) };
        if std::mem::replace(&mut queue.overrun, true) {
            return Ok(());
        }
        self.async_events.push_back(AsyncEvent::CqOverrun(cq));
        let is_affected = |pair: &Pair| pair.config.send_cq == cq || pair.config.recv_cq == cq;
        let all: Vec<u32> = self.pairs.iter().filter(|(_, pair)| is_affected(pair)).map(|(handle, _)| handle).collect();
        for handle in all {
            let Some(pair) = self.pairs.get_mut(handle) else { continue };
            pair.flush()?;
            (pair.state, pair.failed) = (QpState::Error, true);
        }
        Ok(())
    }
}

/// Fills the fields of a receive completion.
#[inline]
fn fill_receive(completion: &mut Completion, wc: &ibv_wc) {
    completion.kind = CompletionKind::Recv;
    if wc.status != IBV_WC_SUCCESS {
        return;
    }
    if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
        completion.kind = CompletionKind::RecvWriteImm;
    }
    completion.bytes = wc.byte_len;
    completion.imm = (wc.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data));
    completion.invalidated = (wc.wc_flags & IBV_WC_WITH_INV != 0).then_some(wc.imm_data);
}

/// Checks a queue depth against the limit of the device.
pub(super) fn check_depth(what: &str, depth: u32, limit: i32) -> Result<(), VerbsError> {
    let limit = u32::try_from(limit).unwrap_or(0).min(MAX_RECEIVES - 1);
    if (1..=limit).contains(&depth) {
        return Ok(());
    }
    Err(VerbsError::Invalid(format!("expected a depth of 1 to {limit} for a {what} of this device, found {depth}")))
}

/// Converts an error of posting a validated request.
pub(super) fn post_error(error: &std::io::Error, state: QpState) -> PostError {
    if error.kind() == std::io::ErrorKind::OutOfMemory { PostError::Full } else { PostError::State(state) }
}
