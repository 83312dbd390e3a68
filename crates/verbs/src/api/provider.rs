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
/// [`Self::progress`]; [`Self::wait`], and a [`Self::poll_cq`] that finds no completion, do it as well.
///
/// No method has a default, so that a provider states for each verb whether it supports it, and a wrapper cannot omit
/// one. A provider without memory windows or without notices implements [`NoWindows`](super::NoWindows) or
/// [`NoNotices`](super::NoNotices).
///
/// # Errors
/// Any method may return:
///
/// - [`VerbsError::NoSuch`]: a handle is of another endpoint, or its object was destroyed;
/// - [`VerbsError::Unsupported`]: the provider does not support the verb or one of its parameters;
/// - [`VerbsError::Io`]: the transport failed, or the device or the kernel refuses.
///
/// Errors that only some methods return are described there.
pub trait Provider: Windows + Notices {
    /// Returns the capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Allocates a protection domain: queue pairs can access only memory that is registered in their own domain.
    fn alloc_pd(&mut self) -> Result<Pd, VerbsError>;
    /// Deallocates a protection domain.
    ///
    /// # Errors
    /// [`VerbsError::Register`] if there is no such domain, or if it still has registered memory or queues. `shm` does
    /// not support this verb.
    fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbsError>;
    /// Registers `len` bytes of a region from `offset` ([`guide::memory`](super::guide::memory)). Returns the local and
    /// the remote key, and the address of the first byte, which depends on `addressing`.
    ///
    /// # Errors
    /// [`VerbsError::Register`] if domain, range, address or rights are invalid, [`VerbsError::Unsupported`] if the
    /// provider cannot register such memory or enforce the rights, [`VerbsError::Io`] if a device refuses, most often
    /// because of the limit of locked memory (`ulimit -l`).
    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: u64,
        len: u64,
        access: Access,
        addressing: Addressing,
    ) -> Result<Mr, VerbsError>;
    /// Deregisters memory and unbinds its windows: their keys are rejected from now on. Requests that were posted
    /// before still complete.
    ///
    /// # Errors
    /// [`VerbsError::InUse`] if a device uses the memory for outstanding requests: call again when they are complete.
    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError>;

    /// Creates a completion queue for at least `depth` completions ([`guide::completions`](super::guide::completions)).
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if `depth` is 0 or the provider does not support it.
    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError>;
    /// Destroys a completion queue with the completions in it.
    ///
    /// # Errors
    /// [`VerbsError::InUse`] if a queue pair uses it.
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError>;
    /// Moves up to `out.len()` completions, oldest first, to the start of `out` and returns their number; 0 if there
    /// are none. Does not block.
    ///
    /// A completion for which the queue has no space is lost ([`AsyncEvent::CqOverrun`]). After an error status, only
    /// [`Completion::id`], [`Completion::status`] and [`Completion::qp`] are valid.
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError>;
    /// Arms the queue for one event, when the next completion is added; with `solicited_only`, the next solicited one
    /// or the next error. Arming a queue for solicited completions that is armed for all changes nothing.
    ///
    /// Completions that are already in the queue raise no event: after arming, poll once more, and then wait.
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError>;
    /// Returns a file descriptor to wait on (poll, epoll) together with others: it is readable when there may be work.
    ///
    /// Before waiting, call [`Self::progress`] until it returns `false`. When the descriptor is readable, do so again,
    /// then call [`Self::next_event`].
    fn fd(&self) -> BorrowedFd<'_>;
    /// Returns an armed completion queue whose event has occurred, or `None`. The queue is no longer armed.
    fn next_event(&mut self) -> Option<Cq>;
    /// Blocks until an armed completion queue has its event, and returns that queue, which is no longer armed; `None`
    /// if `timeout` passes first.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError>;

    /// Creates a shared receive queue for `depth` receives of up to `max_sge` elements
    /// ([`guide::recv`](super::guide::recv)).
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the provider does not support this depth or number of elements,
    /// [`VerbsError::Register`] or [`VerbsError::NoSuch`] if there is no such domain.
    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError>;
    /// Destroys a shared receive queue. Its receives do not complete.
    ///
    /// # Errors
    /// [`VerbsError::InUse`] if a queue pair uses it.
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError>;
    /// Posts receives to a shared receive queue, in order.
    ///
    /// # Errors
    /// The index of the first request that is not posted, and the reason. Those before it are posted, those after it
    /// are not.
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Arms the queue for one [`AsyncEvent::SrqLimit`], when fewer than `limit` receives are left; 0 disarms it.
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError>;
    /// Returns the next asynchronous event, or `None` ([`guide::notices`](super::guide::notices)).
    fn next_async(&mut self) -> Option<AsyncEvent>;

    /// Creates a queue pair in state `Reset` ([`guide::queue_pairs`](super::guide::queue_pairs)). Its number is random
    /// if [`Capabilities::random_numbers`].
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the provider does not support a depth or the number of elements,
    /// [`VerbsError::Unsupported`] for the type or a shared receive queue with it, [`VerbsError::Register`] or
    /// [`VerbsError::NoSuch`] if there is no such domain or queue.
    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError>;
    /// Changes the state of a queue pair. [`Modify::Error`] completes all requests as
    /// [`Status::Flushed`](super::Status::Flushed); [`Modify::Reset`] discards them.
    ///
    /// # Errors
    /// [`VerbsError::Invalid`] if the transition is not allowed from the present state, or an attribute is invalid or
    /// missing.
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError>;
    /// Returns the state of a queue pair.
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError>;
    /// Destroys a queue pair. Its posted requests do not complete. Poll its completions first: some devices discard
    /// them with the queue pair.
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError>;
    /// Posts requests, in order, with one doorbell ([`guide::post`](super::guide::post)).
    ///
    /// Local memory belongs to the provider until its request completes: no thread may write to it, not even with
    /// [`Region::write`], because a provider may compute CRCs over a slice of it. Regions that other processes write
    /// ([`Region::is_shared`]) are exempt, since no slices of them exist. [`Data::Inline`](super::Data::Inline) is
    /// copied and may be reused at once, as may the requests themselves.
    ///
    /// # Errors
    /// The index of the first request that is not posted, and the reason. Those before it are posted, those after it
    /// are not.
    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)>;
    /// Posts receives, in order ([`guide::recv`](super::guide::recv)).
    ///
    /// Their memory belongs to the provider until they complete, as in [`Self::post_send`].
    ///
    /// # Errors
    /// The index of the first request that is not posted, and the reason. Those before it are posted, those after it
    /// are not. [`PostError::NoQueue`] if the queue pair uses a shared receive queue.
    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Receives and processes packets, sends responses, and transmits or retransmits requests. Returns `true` if
    /// anything was done, or can be done at once by another call.
    fn progress(&mut self) -> Result<bool, VerbsError>;
}
