//! Lists of work requests, posted with one call.
//!
//! A list keeps what its requests point to, and allocates when it is made and never again.

use super::abi::*;
use super::pair::Ah;
use std::io;
use std::sync::Arc;

/// Receives to be posted together.
pub struct RecvList {
    requests: Vec<ibv_recv_wr>,
    elements: Vec<ibv_sge>,
    max_sge: usize,
    filled: usize,
}

// SAFETY: its pointers are into its own memory, and are set anew before each use.
unsafe impl Send for RecvList {}

impl RecvList {
    /// Room for so many requests of up to so many elements.
    pub fn new(capacity: usize, max_sge: usize) -> Self {
        let empty = ibv_recv_wr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 };
        let elements = vec![ibv_sge::default(); capacity * max_sge];
        Self { requests: vec![empty; capacity], elements, max_sge, filled: 0 }
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

    /// Appends a receive into these elements, in order.
    ///
    /// # Panics
    /// If the list is full or was made for fewer elements: both are the caller's own.
    #[inline]
    pub fn push(&mut self, wr_id: u64, elements: impl IntoIterator<Item = ibv_sge>) {
        let room = &mut self.elements[self.filled * self.max_sge..][..self.max_sge];
        let mut count = 0;
        for element in elements {
            room[count] = element;
            count += 1;
        }
        let request = &mut self.requests[self.filled];
        (request.wr_id, request.num_sge) = (wr_id, count as i32);
        self.filled += 1;
    }

    /// Chains the requests, has them posted, and empties the list.
    #[inline]
    pub(super) fn post(
        &mut self,
        call: impl FnOnce(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    ) -> Result<(), (usize, io::Error)> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        let (first, elements) = (self.requests.as_mut_ptr(), self.elements.as_mut_ptr());
        for (index, request) in self.requests[..filled].iter_mut().enumerate() {
            request.sg_list = elements.wrapping_add(index * self.max_sge);
            request.next = if index + 1 < filled { first.wrapping_add(index + 1) } else { std::ptr::null_mut() };
        }
        let mut bad = std::ptr::null_mut();
        let rc = call(first, &raw mut bad);
        outcome(rc, first as usize, bad as usize, size_of::<ibv_recv_wr>())
    }
}

/// Requests to be posted together.
pub struct SendList {
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
    inline: Vec<u8>,
    handles: Vec<Option<Arc<Ah>>>,
    max_sge: usize,
    max_inline: usize,
    filled: usize,
}

// SAFETY: its pointers are into its own memory and to handles that it keeps, and are set anew before each use.
unsafe impl Send for SendList {}

impl SendList {
    /// Room for so many requests of up to so many elements, or of so many inline bytes.
    pub fn new(capacity: usize, max_sge: usize, max_inline: usize) -> Self {
        // Inline bytes are one element.
        let max_sge = max_sge.max(1);
        Self {
            requests: vec![ibv_send_wr::default(); capacity],
            elements: vec![ibv_sge::default(); capacity * max_sge],
            inline: vec![0; capacity * max_inline],
            handles: vec![None; capacity],
            max_sge,
            max_inline,
            filled: 0,
        }
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

    /// Appends a request from these elements, in order. Its pointers are set here: a datagram's address handle is
    /// `to`, and the flag `IBV_SEND_INLINE` is not for it.
    ///
    /// # Panics
    /// If the list is full or was made for fewer elements, or for an opcode that needs a window: all are the caller's
    /// own.
    #[inline]
    pub fn push(&mut self, request: ibv_send_wr, elements: impl IntoIterator<Item = ibv_sge>, to: Option<&Arc<Ah>>) {
        let room = &mut self.elements[self.filled * self.max_sge..][..self.max_sge];
        let mut count = 0;
        for element in elements {
            room[count] = element;
            count += 1;
        }
        self.append(request, request.send_flags & !IBV_SEND_INLINE, count, to);
    }

    /// Appends a request that carries these bytes itself: they need not be registered, and are copied here.
    ///
    /// # Panics
    /// If the list is full or was made for fewer bytes: both are the caller's own.
    pub fn push_inline(&mut self, request: ibv_send_wr, bytes: &[u8], to: Option<&Arc<Ah>>) {
        assert!(bytes.len() <= self.max_inline, "{} inline bytes in a list for {}", bytes.len(), self.max_inline);
        let at = self.filled * self.max_inline;
        self.inline[at..at + bytes.len()].copy_from_slice(bytes);
        let addr = self.inline.as_ptr().wrapping_add(at) as u64;
        self.elements[self.filled * self.max_sge] = ibv_sge { addr, length: bytes.len() as u32, lkey: 0 };
        self.append(request, request.send_flags | IBV_SEND_INLINE, 1, to);
    }

    #[inline]
    fn append(&mut self, mut request: ibv_send_wr, flags: u32, elements: usize, to: Option<&Arc<Ah>>) {
        assert!(
            request.opcode != IBV_WR_BIND_MW && request.opcode <= IBV_WR_SEND_WITH_INV,
            "opcode {}",
            request.opcode
        );
        (request.send_flags, request.num_sge) = (flags, elements as i32);
        if let Some(to) = to {
            // SAFETY: the three members of the union are plain integers and pointers, of which every bit pattern is a
            // value; the handle is set before anybody reads it.
            let peer = unsafe { request.wr.ud };
            request.wr.ud = RemotePair { ah: to.ah.as_ptr(), ..peer };
        }
        self.handles[self.filled] = to.cloned();
        self.requests[self.filled] = request;
        self.filled += 1;
    }

    /// How many requests stand before the first one without an address handle, if there is such a one.
    pub(super) fn unaddressed(&self) -> Option<usize> {
        self.handles[..self.filled].iter().position(Option::is_none)
    }

    /// Forgets its requests.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Chains the requests, has them posted, and empties the list.
    #[inline]
    pub(super) fn post(
        &mut self,
        call: impl FnOnce(*mut ibv_send_wr, *mut *mut ibv_send_wr) -> i32,
    ) -> Result<(), (usize, io::Error)> {
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 {
            return Ok(());
        }
        let (first, elements) = (self.requests.as_mut_ptr(), self.elements.as_mut_ptr());
        for (index, request) in self.requests[..filled].iter_mut().enumerate() {
            request.sg_list = elements.wrapping_add(index * self.max_sge);
            request.next = if index + 1 < filled { first.wrapping_add(index + 1) } else { std::ptr::null_mut() };
        }
        let mut bad = std::ptr::null_mut();
        let rc = call(first, &raw mut bad);
        outcome(rc, first as usize, bad as usize, size_of::<ibv_send_wr>())
    }
}

/// What a call that posts a chain, which begins at `first`, has come to.
#[inline]
fn outcome(rc: i32, first: usize, bad: usize, size: usize) -> Result<(), (usize, io::Error)> {
    if rc == 0 {
        return Ok(());
    }
    Err((bad.saturating_sub(first) / size, io::Error::from_raw_os_error(rc.abs())))
}
