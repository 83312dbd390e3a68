//! Completion queues and their events.

use super::abi::*;
use super::device::{Context, nonblocking};
use super::{check, check_pointer, failed};
use rustix::fd::BorrowedFd;
use shotline_transport::IoError;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A completion channel: the events of armed completion queues.
pub struct Channel {
    context: Arc<Context>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: the library locks its mutable state.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates a channel with non-blocking reads.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, IoError> {
        // SAFETY: the context is open.
        let channel = unsafe { (context.library.create_comp_channel)(context.context.as_ptr()) };
        let channel = check_pointer(channel, || format!("creating a completion channel on {}", context.name()), "")?;
        let channel = Self { context: Arc::clone(context), channel };
        nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Returns a descriptor that is readable when [`Self::next_event`] has an event.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's and stays open as long as it.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Returns the cookie of a queue that raised an event, which disarms it, or `None` if there is no event.
    ///
    /// # Errors
    /// If the device was removed.
    pub fn next_event(&self) -> Result<Option<u64>, IoError> {
        let (mut cq, mut cookie) = (std::ptr::null_mut(), std::ptr::null_mut());
        let library = self.context.library;
        // SAFETY: the channel lives, and its descriptor does not block.
        let rc = unsafe { (library.get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut cookie) };
        if rc != 0 {
            let error = io::Error::last_os_error();
            let no_event = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            let what = || format!("reading completion events of {}", self.context.name());
            return if no_event { Ok(None) } else { Err(failed(what(), error, "; was the device removed?")) };
        }
        // SAFETY: a queue whose event was read is not destroyed before the event is acknowledged.
        unsafe { (library.ack_cq_events)(cq, 1) };
        Ok(Some(cookie as u64))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: queues hold their channel, so none exists any more.
        unsafe { (self.context.library.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A completion queue.
pub struct Cq {
    pub(super) context: Arc<Context>,
    pub(super) cq: NonNull<ibv_cq>,
    _channel: Option<Arc<Channel>>,
    poll: unsafe extern "C" fn(*mut ibv_cq, i32, *mut ibv_wc) -> i32,
    arm: unsafe extern "C" fn(*mut ibv_cq, i32) -> i32,
}

// SAFETY: the driver locks its mutable state.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// Creates a queue for at least `depth` completions, whose events carry this cookie.
    ///
    /// # Errors
    /// If the device does not support this depth.
    pub fn new(
        context: &Arc<Context>,
        depth: u32,
        channel: Option<&Arc<Channel>>,
        cookie: u64,
    ) -> Result<Arc<Self>, IoError> {
        // SAFETY: the context is open.
        let ops = unsafe { &(*context.context.as_ptr()).ops };
        let (Some(poll), Some(arm)) = (ops.poll_cq, ops.req_notify_cq) else {
            return Err(IoError::Config(format!(
                "the driver of {} does not support completion queues",
                context.name()
            )));
        };
        let channel_pointer = channel.map_or(std::ptr::null_mut(), |channel| channel.channel.as_ptr());
        let entries = i32::try_from(depth).unwrap_or(i32::MAX);
        // SAFETY: context and channel live; the cookie is only returned, never dereferenced.
        let cq = unsafe {
            (context.library.create_cq)(context.context.as_ptr(), entries, cookie as *mut _, channel_pointer, 0)
        };
        let what = || format!("creating a completion queue of {depth} entries on {}", context.name());
        let cq = check_pointer(cq, what, "; ibv_devinfo -v shows its max_cqe")?;
        Ok(Arc::new(Self { context: Arc::clone(context), cq, _channel: channel.cloned(), poll, arm }))
    }

    /// Polls up to `out.len()` completions and returns their number.
    ///
    /// # Errors
    /// If the queue has failed, for example by an overrun.
    #[inline]
    pub fn poll(&self, out: &mut [ibv_wc]) -> Result<usize, IoError> {
        // SAFETY: the queue lives; the driver fills at most `out.len()` entries.
        let count = unsafe { (self.poll)(self.cq.as_ptr(), out.len() as i32, out.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| self.poll_error(count))
    }

    #[cold]
    fn poll_error(&self, rc: i32) -> IoError {
        let error = io::Error::from_raw_os_error(rc.saturating_abs());
        failed(format!("polling completions of {}", self.context.name()), error, "; did the completion queue overrun?")
    }

    /// Requests one event for the next completion, or the next solicited one.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn arm(&self, solicited_only: bool) -> Result<(), IoError> {
        // SAFETY: the queue lives.
        let rc = unsafe { (self.arm)(self.cq.as_ptr(), i32::from(solicited_only)) };
        check(rc, || format!("requesting a completion event of {}", self.context.name()), "")
    }

    /// Returns its capacity, which is at least the requested depth.
    pub fn depth(&self) -> u32 {
        // SAFETY: the queue lives, and is never resized.
        unsafe { self.cq.as_ref() }.cqe.try_into().unwrap_or(0)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold their completion queues, so none exists any more; every event that was read was
        // acknowledged.
        unsafe { (self.context.library.destroy_cq)(self.cq.as_ptr()) };
    }
}
