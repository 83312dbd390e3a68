//! The trait that every provider implements.

use super::notice::Notices;
use super::window::Windows;
use super::{AsyncEvent, Completion, Cq, Modify, PostError, Qp, QpConfig, QpState, RecvWr, SendWr, Srq, VerbsError};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use std::sync::Arc;
use std::time::Duration;

/// Capabilities of a provider, verified by the conformance suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the provider.
    pub name: &'static str,
    /// Supports unreliable datagrams.
    pub ud: bool,
    /// Supports unreliable connections.
    pub uc: bool,
    /// Supports reliable connections.
    pub rc: bool,
    /// Supports atomic operations over reliable connections.
    pub atomics: bool,
    /// One-sided operations use no CPU time of the target.
    pub target_cpu_is_idle: bool,
    /// Part of a region can be registered (otherwise remote access is to whole regions).
    pub partial_registration: bool,
    /// Write and atomic rights can be granted separately (otherwise a peer that may modify memory may also read and
    /// write it).
    pub separate_rights: bool,
    /// A deregistered key is rejected immediately, regardless of what the peer does.
    pub revokes: bool,
    /// Supports memory windows.
    pub windows: bool,
    /// A registration can allow a peer to invalidate its key with a SEND with invalidate
    /// ([`Access::REMOTE_INVALIDATE`]); otherwise only windows can.
    pub invalidates: bool,
    /// Invalid packets can be dropped without effect (it honours [`QpConfig::strict`]); otherwise every queue pair is
    /// strict.
    pub lenient: bool,
    /// The number of a queue pair cannot be guessed from that of another.
    pub random_numbers: bool,
    /// A completion reports whether the peer requested a solicited event ([`Completion::solicited`]).
    pub reports_solicited: bool,
    /// Maximum length of an operation, in bytes.
    pub max_operation: u64,
}

/// An endpoint with its memory, queues and connections, used from one thread.
///
/// Only [`Self::wait`] blocks. The provider does its background work (acknowledgements, responses, retransmissions) in
/// [`Self::progress`], which [`Self::poll_cq`] and [`Self::wait`] call, too.
///
/// No method has a default, so that a provider states for each verb whether it supports it, and a wrapper cannot omit
/// one. Verbs that a provider does not support return [`VerbsError::Unsupported`]; one without memory windows or
/// without notices implements [`NoWindows`](super::NoWindows) or [`NoNotices`](super::NoNotices).
pub trait Provider: Windows + Notices {
    /// Returns the capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Allocates a protection domain.
    fn alloc_pd(&mut self) -> Result<Pd, VerbsError>;
    /// Deallocates a protection domain that is not in use.
    fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbsError>;
    /// Registers `len` bytes of a region from `offset`.
    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError>;
    /// Deregisters memory: its keys are rejected from now on. Requests that were posted before still complete; if a
    /// device accesses the memory itself, [`VerbsError::InUse`] means to call again when they are done.
    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError>;

    /// Creates a completion queue for at least `depth` completions.
    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError>;
    /// Destroys a completion queue that no queue pair uses.
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError>;
    /// Removes completions. Returns their number.
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError>;
    /// Arms the queue for one event when the next completion (or the next solicited one) is added.
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError>;
    /// Returns a file descriptor to wait on (poll, epoll) together with others: it is readable when there may be work.
    /// Call [`Self::progress`] then, and [`Self::next_event`].
    fn fd(&self) -> BorrowedFd<'_>;
    /// Returns an armed completion queue whose event has occurred. The queue is no longer armed.
    fn next_event(&mut self) -> Option<Cq>;
    /// Blocks until an event occurs, or for `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError>;

    /// Creates a shared receive queue for `depth` receives of up to `max_sge` elements.
    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError>;
    /// Destroys a shared receive queue that no queue pair uses.
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError>;
    /// Posts receives to a shared queue. On an error, those before it are posted.
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Arms the queue for one [`AsyncEvent::SrqLimit`] when fewer than `limit` receives are left.
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError>;
    /// Returns the next asynchronous event.
    fn next_async(&mut self) -> Option<AsyncEvent>;

    /// Creates a queue pair in state `Reset`, with a random number if [`Capabilities::random_numbers`].
    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError>;
    /// Changes the state of a queue pair.
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError>;
    /// Returns the state of a queue pair.
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError>;
    /// Destroys a queue pair. Posted requests do not complete.
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError>;
    /// Posts requests with one doorbell. On an error, those before it are posted.
    ///
    /// Local memory belongs to the provider until its request completes: no thread may write to it, not even with
    /// [`Region::write`], because a provider may compute CRCs over a slice of it. Regions that other processes write
    /// ([`Region::is_shared`]) are exempt, since no slices of them exist.
    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)>;
    /// Posts receives. On an error, those before it are posted.
    ///
    /// Memory belongs to the provider until its receive completes, as in [`Self::post_send`].
    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Receives and processes packets, sends responses, and transmits or retransmits requests. Returns `true` if
    /// anything was done.
    fn progress(&mut self) -> Result<bool, VerbsError>;
}
