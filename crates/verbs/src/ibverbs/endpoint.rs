//! One endpoint: a device's port and address, and everything made there.

use super::choice::{Choice, Opened};
use super::memory::Memory;
use super::pair::{Pair, Port};
use super::queues::{MOST_RECEIVES, Origin, Receives, parts};
use super::sys::abi::*;
use super::sys::{self, AsyncEvent as Happened, Channel, Context, Gid, RecvList, SendList};
use super::words::{self, GRH};
use crate::api::{AsyncEvent, Completed, Completion, Cq, Mtu, PostError, Qp, QpState, Srq, Status, VerbsError};
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

/// Requests that are posted with one doorbell, and completions that are taken at once.
pub(super) const BATCH: usize = 64;

/// A completion queue.
pub(super) struct CompletionQueue {
    pub(super) cq: Arc<sys::Cq>,
    /// That it ran over was told.
    pub(super) overrun: bool,
    /// Completions that were taken of the device and not asked for yet.
    pub(super) stash: VecDeque<Completion>,
}

/// A shared receive queue.
pub(super) struct SharedQueue {
    pub(super) srq: Arc<sys::Srq>,
    pub(super) receives: Receives,
}

/// Room for the lists of requests that are posted, made larger with the queue pairs and used by all.
pub(super) struct Lists {
    pub(super) sends: SendList,
    pub(super) receives: RecvList,
    pub(super) elements: Vec<ibv_sge>,
    /// Numbers of the requests in a list.
    pub(super) numbers: Vec<u32>,
    max_sge: usize,
    max_inline: usize,
}

impl Lists {
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
    /// Sees to it that requests of this size fit.
    pub(super) fn hold(&mut self, max_sge: u32, max_inline: u32) {
        let (max_sge, max_inline) = (self.max_sge.max(max_sge as usize), self.max_inline.max(max_inline as usize));
        if (max_sge, max_inline) != (self.max_sge, self.max_inline) {
            *self = Self::new(max_sge, max_inline);
        }
    }
}

/// Queue pairs of an RDMA device.
///
/// Work requests go from here to the device and completions back without the kernel, where the device can do that, and
/// nothing is copied. What a mistake of its own side would break is checked before the device sees it.
pub struct IbverbsEndpoint {
    // Dropped first: queue pairs hold what they use.
    pub(super) pairs: Slab<Box<Pair>>,
    /// Handles of queue pairs by their numbers.
    pub(super) numbers: KeyMap<u32>,
    pub(super) srqs: Slab<SharedQueue>,
    pub(super) cqs: Slab<CompletionQueue>,
    pub(super) memory: Memory,
    pub(super) lists: Lists,
    pub(super) taken: Box<[ibv_wc]>,
    pub(super) told: VecDeque<AsyncEvent>,
    pub(super) epoll: OwnedFd,
    pub(super) channel: Arc<Channel>,
    pub(super) context: Arc<Context>,
    pub(super) limits: ibv_device_attr,
    pub(super) port: Port,
    /// The longest operation.
    pub(super) most: u64,
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
    /// Without the library, the device, or an address; the error says what there is and what to do.
    pub fn open(choice: &Choice) -> Result<Self, VerbsError> {
        Self::over(choice.open()?)
    }

    /// Over a device that is open. Its events are this endpoint's: nobody else reads them.
    ///
    /// # Errors
    /// If the device or the kernel refuses.
    pub fn over(opened: Opened) -> Result<Self, VerbsError> {
        let Opened { context, port, attributes, gid } = opened;
        let limits = context.attributes()?;
        let channel = Channel::new(&context)?;
        let failed = |source: rustix::io::Errno| IoError::System {
            what: "cannot make a file descriptor to wait on".into(),
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
            lists: Lists::new(4, 64),
            taken: vec![ibv_wc::default(); BATCH].into(),
            told: VecDeque::new(),
            epoll,
            channel,
            context,
            limits,
            port: Port { number: port, gid_index: gid.index, max_rd_atomic },
            most: u64::from(attributes.max_msg_sz).min(1 << 31),
            gid,
            // The codes begin with 1 for 256 bytes.
            mtu: Mtu::from_bytes(128 << attributes.active_mtu.min(5)).unwrap_or(Mtu::B256),
        })
    }

    /// Where its packets come from.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.gid.ip(), ROCE_PORT)
    }
    /// The longest payload of a packet that its port carries.
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }
    /// Where the kernel shows what the device counts, for all of its users together.
    pub fn sysfs(&self) -> PathBuf {
        self.context.sysfs(self.port.number)
    }

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

    /// Takes completions of the device's. Those of requests that are forgotten, and of unsignalled ones, are not told.
    #[inline]
    pub(super) fn take(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError> {
        let mut count = 0;
        if let Some(queue) = self.cqs.get_mut(cq.0)
            && !queue.stash.is_empty()
        {
            count = queue.stash.len().min(out.len());
            out[..count].iter_mut().zip(queue.stash.drain(..count)).for_each(|(to, from)| *to = from);
        }
        while count < out.len() {
            let most = (out.len() - count).min(BATCH);
            let queue = self.cqs.get(cq.0).ok_or(VerbsError::NoSuch("completion queue"))?;
            let found = queue.cq.poll(&mut self.taken[..most])?;
            for index in 0..found {
                let wc = self.taken[index];
                if let Some(completion) = self.completed(&wc) {
                    out[count] = completion;
                    count += 1;
                }
            }
            if found < most {
                break;
            }
        }
        Ok(count)
    }

    /// Before a queue pair goes that shares its receives: what it has of them comes back, by completions that some drivers
    /// forget with the queue pair (mlx5). Those of others are kept until they are asked for, its own go with it. (A
    /// receive that a device gives back later than that has its room again only when the shared queue is destroyed.)
    pub(super) fn give_back(&mut self, qp: Qp) -> Result<(), VerbsError> {
        let pair = self.pair(qp)?;
        let cq = pair.config.recv_cq;
        if pair.config.srq.is_none() || pair.state == QpState::Reset {
            return Ok(());
        }
        pair.flush()?;
        (pair.state, pair.failed) = (QpState::Error, true);
        let mut kept = VecDeque::new();
        let mut taken = [Completion::default(); BATCH];
        loop {
            let count = self.take(cq, &mut taken)?;
            kept.extend(taken[..count].iter().filter(|completion| completion.qp != qp.0));
            if count < BATCH {
                break;
            }
        }
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.stash = kept;
        }
        Ok(())
    }

    #[inline]
    fn completed(&mut self, wc: &ibv_wc) -> Option<Completion> {
        let (handle, origin, number) = parts(wc.wr_id);
        let status = words::status(wc.status, origin != Origin::Sends);
        let mut completion =
            Completion { status, qp: wc.qp_num, solicited: status != Status::Success, ..Completion::default() };
        match origin {
            Origin::Sends => {
                let sent = self.pairs.get_mut(handle)?.sends.complete(&mut self.memory, number)?;
                (completion.id, completion.completed) = (sent.id, sent.completed);
                if status == Status::Success {
                    completion.bytes = sent.bytes;
                }
            }
            Origin::Receives => {
                let pair = self.pairs.get_mut(handle)?;
                let (id, slot) = pair.receives.complete(&mut self.memory, number)?;
                completion.id = id;
                arrived(&mut completion, wc);
                if let (Some(headers), Status::Success) = (&pair.headers, status) {
                    completion.bytes = wc.byte_len.saturating_sub(GRH);
                    let sender = headers.sender(slot).filter(|_| wc.wc_flags & IBV_WC_GRH != 0);
                    completion.source = sender.map(|ip| (SocketAddr::new(ip, ROCE_PORT), wc.src_qp));
                }
            }
            Origin::Shared => {
                let shared = self.srqs.get_mut(handle)?;
                completion.id = shared.receives.complete(&mut self.memory, number)?.0;
                arrived(&mut completion, wc);
            }
        }
        if status != Status::Success {
            self.failed(Qp(wc.qp_num));
        }
        Some(completion)
    }

    /// A request of a queue pair failed: the device may have put it into its error state.
    #[cold]
    fn failed(&mut self, qp: Qp) {
        let Ok(pair) = self.pair(qp) else { return };
        let Ok(state) = pair.found() else { return };
        pair.state = state;
        if state == QpState::Error && !std::mem::replace(&mut pair.failed, true) {
            self.told.push_back(AsyncEvent::QpError(qp));
        }
    }

    /// Hears what happened beside the completions. Returns whether anything did.
    pub(super) fn hear(&mut self) -> Result<bool, VerbsError> {
        let mut any = false;
        while let Some(happened) = self.context.next_event()? {
            any = true;
            match happened {
                Happened::Cq(cookie) => self.overrun(Cq(cookie as u32))?,
                Happened::Srq { cookie, limit: true } if self.srqs.get(cookie as u32).is_some() => {
                    self.told.push_back(AsyncEvent::SrqLimit(Srq(cookie as u32)));
                }
                Happened::Qp { number, kind: IBV_EVENT_QP_FATAL..=IBV_EVENT_QP_ACCESS_ERR } => self.failed(Qp(number)),
                Happened::Device(IBV_EVENT_DEVICE_FATAL) => {
                    let words = format!("the device {} has failed: its driver must reset it", self.context.name());
                    return Err(IoError::Config(words).into());
                }
                Happened::Srq { .. } | Happened::Qp { .. } | Happened::Device(_) => {}
            }
        }
        Ok(any)
    }

    /// A completion was lost: the queue pairs that complete there are of no use any more, and not every device says so
    /// to them (rxe does not).
    fn overrun(&mut self, cq: Cq) -> Result<(), VerbsError> {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return Ok(()) };
        if std::mem::replace(&mut queue.overrun, true) {
            return Ok(());
        }
        self.told.push_back(AsyncEvent::CqOverrun(cq));
        let uses = |pair: &Pair| pair.config.send_cq == cq || pair.config.recv_cq == cq;
        let all: Vec<u32> = self.pairs.iter().filter(|(_, pair)| uses(pair)).map(|(handle, _)| handle).collect();
        for handle in all {
            let Some(pair) = self.pairs.get_mut(handle) else { continue };
            pair.flush()?;
            (pair.state, pair.failed) = (QpState::Error, true);
        }
        Ok(())
    }
}

/// What a receive's completion says.
#[inline]
fn arrived(completion: &mut Completion, wc: &ibv_wc) {
    completion.completed = Completed::Recv;
    if wc.status != IBV_WC_SUCCESS {
        return;
    }
    if wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM {
        completion.completed = Completed::RecvWriteImm;
    }
    completion.bytes = wc.byte_len;
    completion.imm = (wc.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data));
    completion.invalidated = (wc.wc_flags & IBV_WC_WITH_INV != 0).then_some(wc.imm_data);
}

/// A depth that can be.
pub(super) fn check_depth(what: &str, depth: u32, most: i32) -> Result<(), VerbsError> {
    let most = u32::try_from(most).unwrap_or(0).min(MOST_RECEIVES - 1);
    if (1..=most).contains(&depth) {
        return Ok(());
    }
    Err(VerbsError::Invalid(format!("a {what} of this device holds 1 to {most}, not {depth}")))
}

/// What the device's refusal of a request means, which was checked before.
pub(super) fn refused(error: &std::io::Error, state: QpState) -> PostError {
    if error.kind() == std::io::ErrorKind::OutOfMemory { PostError::Full } else { PostError::State(state) }
}
