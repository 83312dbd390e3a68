//! Lists of work requests, posted with one call.
//!
//! A list keeps what its requests point to, and allocates when it is made and never again.

use super::abi::*;
use super::way::Ah;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A work request that is chained to others.
pub trait Request: Clone + Default {
    /// Points it to its elements, and to the request behind it.
    fn point(&mut self, elements: (*mut ibv_sge, usize), next: *mut Self);
    /// Makes it the last one.
    fn end(&mut self);
}

/// The two have these fields in common, by name only.
macro_rules! request {
    ($($name:ty),*) => {$(
        impl Request for $name {
            #[inline]
            fn point(&mut self, (elements, count): (*mut ibv_sge, usize), next: *mut Self) {
                (self.sg_list, self.num_sge, self.next) = (elements, count as i32, next);
            }
            #[inline]
            fn end(&mut self) {
                self.next = std::ptr::null_mut();
            }
        }
    )*};
}
request!(ibv_recv_wr, ibv_send_wr);

/// Requests to be posted together, with their elements.
pub struct List<R> {
    requests: Vec<R>,
    elements: Vec<ibv_sge>,
    max_sge: usize,
    filled: usize,
}

/// Receives to be posted together.
pub type RecvList = List<ibv_recv_wr>;

// SAFETY: its pointers are into its own memory, which stays where it is as long as the list, and to address handles that
// the list of sends keeps.
unsafe impl<R> Send for List<R> {}

impl<R: Request> List<R> {
    /// Room for so many requests of up to so many elements.
    pub fn new(capacity: usize, max_sge: usize) -> Self {
        let elements = vec![ibv_sge::default(); capacity * max_sge];
        Self { requests: vec![R::default(); capacity], elements, max_sge, filled: 0 }
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.filled
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.filled == self.requests.len()
    }

    /// Appends a request with the elements that `fill` puts into their place, of which it returns how many there are.
    #[inline]
    fn append(&mut self, mut request: R, fill: impl FnOnce(&mut [ibv_sge]) -> usize) {
        let room = &mut self.elements[self.filled * self.max_sge..][..self.max_sge];
        let count = fill(room);
        let next = self.requests.as_mut_ptr().wrapping_add(self.filled + 1);
        request.point((room.as_mut_ptr(), count), next);
        self.requests[self.filled] = request;
        self.filled += 1;
    }

    /// Has the requests posted, and empties the list.
    #[inline]
    pub(super) fn post(&mut self, call: impl FnOnce(*mut R, *mut *mut R) -> i32) -> Result<(), (usize, io::Error)> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        self.requests[filled - 1].end();
        let (first, mut bad) = (self.requests.as_mut_ptr(), std::ptr::null_mut());
        let rc = call(first, &raw mut bad);
        if rc == 0 {
            return Ok(());
        }
        let posted = (bad as usize).saturating_sub(first as usize) / size_of::<R>();
        Err((posted, io::Error::from_raw_os_error(rc.abs())))
    }
}

/// Puts elements into their place.
#[inline]
fn copy(elements: &[ibv_sge], room: &mut [ibv_sge]) -> usize {
    room[..elements.len()].copy_from_slice(elements);
    elements.len()
}

impl RecvList {
    /// Appends a receive into these elements, in order.
    ///
    /// # Panics
    /// If the list is full or was made for fewer elements: both are the caller's own.
    #[inline]
    pub fn push(&mut self, wr_id: u64, elements: &[ibv_sge]) {
        self.push_with(wr_id, |room| copy(elements, room));
    }

    /// The same, with the elements that `fill` puts into their place, of which it returns how many there are.
    #[inline]
    pub fn push_with(&mut self, wr_id: u64, fill: impl FnOnce(&mut [ibv_sge]) -> usize) {
        self.append(ibv_recv_wr { wr_id, ..Default::default() }, fill);
    }
}

/// Sends to be posted together, with what they point to.
pub struct SendList {
    list: List<ibv_send_wr>,
    inline: Vec<u8>,
    handles: Vec<Option<Arc<Ah>>>,
    max_inline: usize,
}

impl Deref for SendList {
    type Target = List<ibv_send_wr>;
    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl SendList {
    /// Room for so many requests of up to so many elements, or of so many inline bytes.
    pub fn new(capacity: usize, max_sge: usize, max_inline: usize) -> Self {
        Self {
            // Inline bytes are one element.
            list: List::new(capacity, max_sge.max(1)),
            inline: vec![0; capacity * max_inline],
            handles: vec![None; capacity],
            max_inline,
        }
    }

    /// Appends a request from these elements, in order. Its pointers are set here: a datagram's address handle is
    /// `to`, and the flag `IBV_SEND_INLINE` is not for it.
    ///
    /// # Panics
    /// If the list is full or was made for fewer elements, or for an opcode that needs a window: all are the caller's
    /// own.
    #[inline]
    pub fn push(&mut self, request: ibv_send_wr, elements: &[ibv_sge], to: Option<&Arc<Ah>>) {
        self.append(request, request.send_flags & !IBV_SEND_INLINE, elements, to);
    }

    /// Appends a request that carries these bytes itself: they need not be registered, and are copied here.
    ///
    /// # Panics
    /// If the list is full or was made for fewer bytes: both are the caller's own.
    pub fn push_inline(&mut self, request: ibv_send_wr, bytes: &[u8], to: Option<&Arc<Ah>>) {
        assert!(bytes.len() <= self.max_inline, "{} inline bytes in a list for {}", bytes.len(), self.max_inline);
        let at = self.list.filled * self.max_inline;
        self.inline[at..at + bytes.len()].copy_from_slice(bytes);
        let addr = self.inline.as_ptr().wrapping_add(at) as u64;
        let element = ibv_sge { addr, length: bytes.len() as u32, lkey: 0 };
        self.append(request, request.send_flags | IBV_SEND_INLINE, &[element], to);
    }

    #[inline]
    fn append(&mut self, mut request: ibv_send_wr, flags: u32, elements: &[ibv_sge], to: Option<&Arc<Ah>>) {
        assert!(
            request.opcode != IBV_WR_BIND_MW && request.opcode <= IBV_WR_SEND_WITH_INV,
            "opcode {}",
            request.opcode
        );
        request.send_flags = flags;
        if let Some(to) = to {
            // SAFETY: the three members of the union are plain integers and pointers, of which every bit pattern is a
            // value; the handle is set before anybody reads it.
            let peer = unsafe { request.wr.ud };
            request.wr.ud = RemotePair { ah: to.ah.as_ptr(), ..peer };
        }
        self.handles[self.list.filled] = to.cloned();
        self.list.append(request, |room| copy(elements, room));
    }

    /// How many requests stand before the first one without an address handle, if there is such a one.
    pub(super) fn unaddressed(&self) -> Option<usize> {
        self.handles[..self.list.filled].iter().position(Option::is_none)
    }

    /// Forgets its requests.
    pub fn clear(&mut self) {
        self.list.filled = 0;
    }

    /// Has the requests posted, and empties the list.
    #[inline]
    pub(super) fn post(
        &mut self,
        call: impl FnOnce(*mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    ) -> Result<(), (usize, io::Error)> {
        self.list.post(call)
    }
}
