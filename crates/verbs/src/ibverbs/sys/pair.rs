//! Queue pairs and shared receive queues.

use super::abi::*;
use super::completion::Cq;
use super::memory::Pd;
use super::requests::{RecvList, SendList};
use super::{check, check_pointer};
use shotline_transport::IoError;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A shared receive queue.
pub struct Srq {
    pd: Arc<Pd>,
    srq: NonNull<ibv_srq>,
    post: unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
}

// SAFETY: the driver locks its mutable state.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    /// Creates a queue for at least `depth` receives of up to `max_sge` elements, whose events carry this cookie.
    ///
    /// # Errors
    /// If the device does not support such a queue.
    pub fn new(pd: &Arc<Pd>, depth: u32, max_sge: u32, cookie: u64) -> Result<Arc<Self>, IoError> {
        // SAFETY: the context is open.
        let Some(post) = (unsafe { (*pd.context.context.as_ptr()).ops.post_srq_recv }) else {
            return Err(IoError::Config(format!("{} does not support shared receive queues", pd.context.name())));
        };
        let attr = ibv_srq_attr { max_wr: depth, max_sge, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: cookie as *mut _, attr };
        // SAFETY: the domain lives; the cookie is only returned, never dereferenced.
        let srq = unsafe { (pd.context.library.create_srq)(pd.pd.as_ptr(), &raw mut init) };
        let what = || format!("creating a shared receive queue of {depth} requests on {}", pd.context.name());
        let srq = check_pointer(srq, what, "; ibv_devinfo -v shows its max_srq_wr and max_srq_sge")?;
        Ok(Arc::new(Self { pd: Arc::clone(pd), srq, post }))
    }

    /// Requests one event when fewer receives than `limit` are left.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn arm(&self, limit: u32) -> Result<(), IoError> {
        let mut attr = ibv_srq_attr { srq_limit: limit, ..Default::default() };
        let library = self.pd.context.library;
        // SAFETY: the queue lives.
        let rc = unsafe { (library.modify_srq)(self.srq.as_ptr(), &raw mut attr, IBV_SRQ_LIMIT as i32) };
        check(rc, || format!("setting the limit of a shared receive queue of {}", self.pd.context.name()), "")
    }

    /// Posts the receives of a list and empties it.
    ///
    /// # Errors
    /// The number of requests posted before the first failed one, and its error. The list is empty in this case as well.
    pub fn post_recv(&self, list: &mut RecvList) -> Result<(), (usize, io::Error)> {
        list.post(|first, bad| {
            // SAFETY: the queue lives; the list chains requests whose elements live through the call.
            unsafe { (self.post)(self.srq.as_ptr(), first, bad) }
        })
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their shared queue, so none exists any more.
        unsafe { (self.pd.context.library.destroy_srq)(self.srq.as_ptr()) };
    }
}

/// Configuration of a queue pair.
pub struct QpConfig<'a> {
    /// `IBV_QPT_RC`, `IBV_QPT_UC` or `IBV_QPT_UD`.
    pub kind: u32,
    /// Completion queue of send requests.
    pub send_cq: &'a Arc<Cq>,
    /// Completion queue of receives.
    pub recv_cq: &'a Arc<Cq>,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<&'a Arc<Srq>>,
    /// Capacities of its queues.
    pub cap: ibv_qp_cap,
    /// Every send request generates a completion.
    pub signal_all: bool,
}

/// A queue pair.
pub struct Qp {
    pd: Arc<Pd>,
    qp: NonNull<ibv_qp>,
    cap: ibv_qp_cap,
    _send_cq: Arc<Cq>,
    _recv_cq: Arc<Cq>,
    _srq: Option<Arc<Srq>>,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
}

// SAFETY: the driver locks its mutable state.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// Creates a queue pair in the state `RESET`. The device chooses its number.
    ///
    /// # Errors
    /// If the device does not support such a queue pair.
    pub fn new(pd: &Arc<Pd>, config: &QpConfig<'_>) -> Result<Self, IoError> {
        // SAFETY: the context is open.
        let ops = unsafe { &(*pd.context.context.as_ptr()).ops };
        let (Some(post_send), Some(post_recv)) = (ops.post_send, ops.post_recv) else {
            return Err(IoError::Config(format!("the driver of {} does not support queue pairs", pd.context.name())));
        };
        let mut init = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: config.send_cq.cq.as_ptr(),
            recv_cq: config.recv_cq.cq.as_ptr(),
            srq: config.srq.map_or(std::ptr::null_mut(), |srq| srq.srq.as_ptr()),
            cap: config.cap,
            qp_type: config.kind,
            sq_sig_all: i32::from(config.signal_all),
        };
        // SAFETY: domain and queues live, and this object keeps them alive.
        let qp = unsafe { (pd.context.library.create_qp)(pd.pd.as_ptr(), &raw mut init) };
        let what = || {
            let ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = config.cap;
            format!(
                "creating a queue pair on {} (sends {max_send_wr}, receives {max_recv_wr}, elements {max_send_sge} and \
                 {max_recv_sge}, inline bytes {max_inline_data})",
                pd.context.name()
            )
        };
        let qp = check_pointer(qp, what, "; ibv_devinfo -v shows its max_qp_wr and max_sge")?;
        Ok(Self {
            pd: Arc::clone(pd),
            qp,
            cap: init.cap,
            _send_cq: Arc::clone(config.send_cq),
            _recv_cq: Arc::clone(config.recv_cq),
            _srq: config.srq.cloned(),
            post_send,
            post_recv,
        })
    }

    /// Returns the 24-bit number.
    pub fn number(&self) -> u32 {
        // SAFETY: the pair lives, and its number is constant.
        unsafe { self.qp.as_ref() }.qp_num
    }

    /// Returns the granted capacities, which are at least the requested ones.
    pub fn cap(&self) -> ibv_qp_cap {
        self.cap
    }

    /// Changes the attributes in the mask (`IBV_QP_*`).
    ///
    /// # Errors
    /// If the device does not allow the transition.
    pub fn modify(&self, attributes: &ibv_qp_attr, mask: u32) -> Result<(), IoError> {
        let mut attributes = *attributes;
        // SAFETY: the pair lives; the attributes are read.
        let rc = unsafe { (self.pd.context.library.modify_qp)(self.qp.as_ptr(), &raw mut attributes, mask as i32) };
        let what = || {
            let (number, state) = (self.number(), attributes.qp_state);
            format!("modifying queue pair {number} of {} (state {state}, mask {mask:#x})", self.pd.context.name())
        };
        check(rc, what, "")
    }

    /// Queries the attributes in the mask; the state is always included.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn query(&self, mask: u32) -> Result<ibv_qp_attr, IoError> {
        let mut attributes = ibv_qp_attr::default();
        // SAFETY: all zeros (null pointers, integers) is a value of this structure.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let query = self.pd.context.library.query_qp;
        // SAFETY: the pair lives; the call fills both structures.
        let rc = unsafe { query(self.qp.as_ptr(), &raw mut attributes, (mask | IBV_QP_STATE) as i32, &raw mut init) };
        check(rc, || format!("querying queue pair {} of {}", self.number(), self.pd.context.name()), "")?;
        Ok(attributes)
    }

    /// Posts the receives of a list and empties it.
    ///
    /// # Errors
    /// The number of requests posted before the first failed one, and its error. The list is empty in this case as well.
    #[inline]
    pub fn post_recv(&self, list: &mut RecvList) -> Result<(), (usize, io::Error)> {
        list.post(|first, bad| {
            // SAFETY: the pair lives; the list chains requests whose elements live through the call.
            unsafe { (self.post_recv)(self.qp.as_ptr(), first, bad) }
        })
    }

    /// Posts the requests of a list and empties it.
    ///
    /// # Errors
    /// The number of requests posted before the first failed one, and its error. The list is empty in this case as well.
    #[inline]
    pub fn post_send(&self, list: &mut SendList) -> Result<(), (usize, io::Error)> {
        // SAFETY: the pair lives, and its type is constant.
        let datagrams = unsafe { self.qp.as_ref() }.qp_type == IBV_QPT_UD;
        if let (true, Some(index)) = (datagrams, list.unaddressed()) {
            list.clear();
            return Err((index, io::Error::from_raw_os_error(libc::EINVAL)));
        }
        list.post(|first, bad| {
            // SAFETY: the pair lives; the list chains requests whose elements, inline bytes and address handles live
            // through the call.
            unsafe { (self.post_send)(self.qp.as_ptr(), first, bad) }
        })
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: no other object depends on a queue pair. Its requests end with it.
        unsafe { (self.pd.context.library.destroy_qp)(self.qp.as_ptr()) };
    }
}
