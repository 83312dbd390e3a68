//! Lists of work requests, posted with one call.
//!
//! A list owns the memory that its requests point to, and allocates only when it is created.

use super::abi::*;
use super::ah::Ah;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A work request in a linked list.
pub trait Request: Clone + Default {
    /// Sets the pointers to its elements, with their number, and to the next request.
    fn link(&mut self, elements: (*mut ibv_sge, usize), next: *mut Self);
    /// Makes this request the last one of the list.
    fn terminate(&mut self);
}

/// Implements [`Request`] for two structures that have the same fields but no common type.
macro_rules! request {
    ($($name:ty),*) => {$(
        impl Request for $name {
            #[inline]
            fn link(&mut self, (elements, count): (*mut ibv_sge, usize), next: *mut Self) {
                (self.sg_list, self.num_sge, self.next) = (elements, count as i32, next);
            }
            #[inline]
            fn terminate(&mut self) {
                self.next = std::ptr::null_mut();
            }
        }
    )*};
}
request!(ibv_recv_wr, ibv_send_wr);

/// A list of requests with their elements.
pub struct List<R> {
    requests: Vec<R>,
    elements: Vec<ibv_sge>,
    max_sge: usize,
    /// Number of requests in the list.
    filled: usize,
}

/// A list of receives.
pub type RecvList = List<ibv_recv_wr>;

// SAFETY: its pointers are into its own memory, which does not move during the life of the list, and to address handles
// that the list of sends keeps.
unsafe impl<R> Send for List<R> {}

impl<R: Request> List<R> {
    /// Creates a list for `capacity` requests of up to `max_sge` elements.
    pub fn new(capacity: usize, max_sge: usize) -> Self {
        let elements = vec![ibv_sge::default(); capacity * max_sge];
        Self { requests: vec![R::default(); capacity], elements, max_sge, filled: 0 }
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.filled
    }
    /// Returns `true` if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
    /// Returns `true` if the list is full.
    pub fn is_full(&self) -> bool {
        self.filled == self.requests.len()
    }

    /// Appends a request with the elements that `fill` writes, and whose number it returns.
    #[inline]
    fn append(&mut self, mut request: R, fill: impl FnOnce(&mut [ibv_sge]) -> usize) {
        let elements = &mut self.elements[self.filled * self.max_sge..][..self.max_sge];
        let count = fill(elements);
        let next = self.requests.as_mut_ptr().wrapping_add(self.filled + 1);
        request.link((elements.as_mut_ptr(), count), next);
        self.requests[self.filled] = request;
        self.filled += 1;
    }

    /// Posts the requests through `call`, which gets the first request and where to store the first one that failed,
    /// and empties the list. An error has the number of requests that were posted.
    #[inline]
    pub(super) fn post(&mut self, call: impl FnOnce(*mut R, *mut *mut R) -> i32) -> Result<(), (usize, io::Error)> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        self.requests[filled - 1].terminate();
        let (first, mut bad) = (self.requests.as_mut_ptr(), std::ptr::null_mut());
        let rc = call(first, &raw mut bad);
        if rc == 0 {
            return Ok(());
        }
        let posted = (bad as usize).saturating_sub(first as usize) / size_of::<R>();
        Err((posted, io::Error::from_raw_os_error(rc.abs())))
    }
}

/// Copies elements and returns their number.
#[inline]
fn copy(elements: &[ibv_sge], slots: &mut [ibv_sge]) -> usize {
    slots[..elements.len()].copy_from_slice(elements);
    elements.len()
}

impl RecvList {
    /// Appends a receive into these elements, in order.
    ///
    /// # Panics
    /// If the list is full or was created for fewer elements: an error of the caller.
    #[inline]
    pub fn push(&mut self, wr_id: u64, elements: &[ibv_sge]) {
        self.push_with(wr_id, |slots| copy(elements, slots));
    }

    /// Like [`Self::push`], with the elements that `fill` writes, and whose number it returns.
    #[inline]
    pub fn push_with(&mut self, wr_id: u64, fill: impl FnOnce(&mut [ibv_sge]) -> usize) {
        self.append(ibv_recv_wr { wr_id, ..Default::default() }, fill);
    }
}

/// A list of send requests, with the memory that they point to.
pub struct SendList {
    list: List<ibv_send_wr>,
    inline: Vec<u8>,
    ahs: Vec<Option<Arc<Ah>>>,
    max_inline: usize,
}

impl Deref for SendList {
    type Target = List<ibv_send_wr>;
    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl SendList {
    /// Creates a list for `capacity` requests of up to `max_sge` elements, or `max_inline` inline bytes.
    pub fn new(capacity: usize, max_sge: usize, max_inline: usize) -> Self {
        Self {
            // Inline data is one element.
            list: List::new(capacity, max_sge.max(1)),
            inline: vec![0; capacity * max_inline],
            ahs: vec![None; capacity],
            max_inline,
        }
    }

    /// Appends a request with these elements, in order. Its pointers are set here, including a datagram's address
    /// handle `ah`; the flag `IBV_SEND_INLINE` is cleared.
    ///
    /// # Panics
    /// If the list is full or was created for fewer elements, or for an opcode that needs a window: errors of the
    /// caller.
    #[inline]
    pub fn push(&mut self, request: ibv_send_wr, elements: &[ibv_sge], ah: Option<&Arc<Ah>>) {
        self.append(request, request.send_flags & !IBV_SEND_INLINE, elements, ah);
    }

    /// Appends a request with inline data: the bytes need not be registered, and are copied here.
    ///
    /// # Panics
    /// If the list is full or was created for fewer bytes: an error of the caller.
    pub fn push_inline(&mut self, request: ibv_send_wr, bytes: &[u8], ah: Option<&Arc<Ah>>) {
        assert!(bytes.len() <= self.max_inline, "{} inline bytes in a list for {}", bytes.len(), self.max_inline);
        let offset = self.list.filled * self.max_inline;
        self.inline[offset..offset + bytes.len()].copy_from_slice(bytes);
        let addr = self.inline.as_ptr().wrapping_add(offset) as u64;
        let element = ibv_sge { addr, length: bytes.len() as u32, lkey: 0 };
        self.append(request, request.send_flags | IBV_SEND_INLINE, &[element], ah);
    }

    #[inline]
    fn append(&mut self, mut request: ibv_send_wr, flags: u32, elements: &[ibv_sge], ah: Option<&Arc<Ah>>) {
        assert!(
            request.opcode != IBV_WR_BIND_MW && request.opcode <= IBV_WR_SEND_WITH_INV,
            "opcode {}",
            request.opcode
        );
        request.send_flags = flags;
        if let Some(ah) = ah {
            // SAFETY: the three members of the union are plain integers and pointers, for which every bit pattern is
            // valid; the handle is set before it is read.
            let peer = unsafe { request.wr.ud };
            request.wr.ud = RemotePair { ah: ah.ah.as_ptr(), ..peer };
        }
        self.ahs[self.list.filled] = ah.cloned();
        self.list.append(request, |slots| copy(elements, slots));
    }

    /// Returns the index of the first request without an address handle.
    pub(super) fn unaddressed(&self) -> Option<usize> {
        self.ahs[..self.list.filled].iter().position(Option::is_none)
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.list.filled = 0;
    }

    /// Posts the requests through `call`, and empties the list.
    #[inline]
    pub(super) fn post(
        &mut self,
        call: impl FnOnce(*mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    ) -> Result<(), (usize, io::Error)> {
        self.list.post(call)
    }
}
