//! The trait that every provider fulfils.

use super::notice::Notices;
use super::window::Windows;
use super::{AsyncEvent, Completion, Cq, Modify, PostError, Qp, QpConfig, QpState, RecvWr, SendWr, Srq, VerbsError};
use rustix::fd::BorrowedFd;
use shotline_memory::{Access, Addressing, Mr, Pd, Region};
use std::sync::Arc;
use std::time::Duration;

/// What a provider can and cannot do; the conformance suite holds it to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Its name.
    pub name: &'static str,
    /// It has datagrams.
    pub ud: bool,
    /// It has unreliable connections.
    pub uc: bool,
    /// It has reliable connections.
    pub rc: bool,
    /// It has atomic operations over reliable connections.
    pub atomics: bool,
    /// One-sided operations need nothing of the target's CPU.
    pub target_sleeps: bool,
    /// Registered memory may be part of a region (otherwise remote access is to whole regions).
    pub partial_registration: bool,
    /// Memory may be opened for writing or for atomic operations alone (otherwise what a peer may change it may also
    /// read and write).
    pub separate_rights: bool,
    /// A deregistered key is refused at once, whatever the peer does.
    pub revokes: bool,
    /// It has memory windows.
    pub windows: bool,
    /// A registration may let a peer end its key by a SEND with invalidate ([`Access::REMOTE_INVALIDATE`]); otherwise
    /// that is for windows only.
    pub invalidates: bool,
    /// What arrives wrong can be dropped, and changes nothing ([`QpConfig::strict`] is heard); otherwise every queue
    /// pair is strict.
    pub lenient: bool,
    /// Nobody can guess the number of a queue pair from that of another.
    pub random_numbers: bool,
    /// A completion says whether the peer asked for an event ([`Completion::solicited`]).
    pub tells_solicited: bool,
    /// Longest operation in bytes.
    pub max_operation: u64,
}

/// One endpoint: its memory, queues and connections, driven by the calls of one thread.
///
/// Nothing here waits but [`Self::wait`]. Whatever the provider has to do of itself (answers, retransmissions) it does
/// within [`Self::progress`], which [`Self::poll_cq`] and [`Self::wait`] call, too.
///
/// No method has a default, so that a provider says of each verb whether it has it, and a wrapper cannot forget one. What
/// a provider does not have it refuses with [`VerbsError::Unsupported`]; one without memory windows or without notices is
/// [`NoWindows`](super::NoWindows) or [`NoNotices`](super::NoNotices).
pub trait Provider: Windows + Notices {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Makes a protection domain.
    fn alloc_pd(&mut self) -> Result<Pd, VerbsError>;
    /// Ends a protection domain that nothing uses any more.
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
    /// Ends a registration: its keys are refused from now on. Requests that were posted before still end well; where a
    /// device reaches the memory by itself, [`VerbsError::InUse`] says to call again when they are done.
    fn dereg_mr(&mut self, mr: &Mr) -> Result<(), VerbsError>;

    /// Makes a completion queue for at least `depth` completions.
    fn create_cq(&mut self, depth: u32) -> Result<Cq, VerbsError>;
    /// Destroys a completion queue that no queue pair uses.
    fn destroy_cq(&mut self, cq: Cq) -> Result<(), VerbsError>;
    /// Takes completions. Returns how many.
    fn poll_cq(&mut self, cq: Cq, out: &mut [Completion]) -> Result<usize, VerbsError>;
    /// Asks for one event when the next completion enters the queue (or the next solicited one).
    fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), VerbsError>;
    /// A file descriptor to wait on (poll, epoll) together with others: it is readable when there may be something to
    /// do. Call [`Self::progress`] then, and [`Self::next_event`].
    fn fd(&self) -> BorrowedFd<'_>;
    /// An armed completion queue whose event has come. Its arming is used up.
    fn next_event(&mut self) -> Option<Cq>;
    /// Sleeps until an event has come, or for `timeout`.
    fn wait(&mut self, timeout: Duration) -> Result<Option<Cq>, VerbsError>;

    /// Makes a shared receive queue for `depth` receives of up to `max_sge` elements.
    fn create_srq(&mut self, pd: Pd, depth: u32, max_sge: u32) -> Result<Srq, VerbsError>;
    /// Destroys a shared receive queue that no queue pair uses.
    fn destroy_srq(&mut self, srq: Srq) -> Result<(), VerbsError>;
    /// Posts receives to a shared queue. On an error, those before it are posted.
    fn post_srq_recv(&mut self, srq: Srq, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Asks for one [`AsyncEvent::SrqLimit`] when fewer than `limit` receives are left.
    fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), VerbsError>;
    /// What happened beside the completions, in order.
    fn next_async(&mut self) -> Option<AsyncEvent>;

    /// Makes a queue pair, in state `Reset`, with a random number if [`Capabilities::random_numbers`].
    fn create_qp(&mut self, config: &QpConfig) -> Result<Qp, VerbsError>;
    /// Changes its state.
    fn modify_qp(&mut self, qp: Qp, change: Modify) -> Result<(), VerbsError>;
    /// Its state.
    fn qp_state(&self, qp: Qp) -> Result<QpState, VerbsError>;
    /// Destroys it. What was posted does not complete.
    fn destroy_qp(&mut self, qp: Qp) -> Result<(), VerbsError>;
    /// Posts requests with one doorbell. On an error, those before it are posted.
    ///
    /// Local memory belongs to the provider until its request completes: no thread writes to it, also not by
    /// [`Region::write`], because a provider may compute CRCs over a slice of it. Regions that other processes write
    /// ([`Region::is_shared`]) are exempt, since there is never a slice of them.
    fn post_send(&mut self, qp: Qp, requests: &[SendWr<'_>]) -> Result<(), (usize, PostError)>;
    /// Posts receives. On an error, those before it are posted.
    ///
    /// Memory belongs to the provider until its receive completes, as in [`Self::post_send`].
    fn post_recv(&mut self, qp: Qp, requests: &[RecvWr<'_>]) -> Result<(), (usize, PostError)>;

    /// Receives, answers, sends and sends again whatever is due. Returns whether anything was done.
    fn progress(&mut self) -> Result<bool, VerbsError>;
}
