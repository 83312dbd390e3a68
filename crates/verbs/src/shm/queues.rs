//! Completion queues and receive queues.

use crate::api::{Completion, CompletionKind, PostError, RecvWr, Status};
use shotline_memory::{Access, AccessError, Pd, Pin, Protection, Sge};
use std::collections::VecDeque;

/// A queued completion: compact, because it is written and read once per request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) qp: u32,
    /// Slot of the queue pair, and for a send request its number: polling the completion frees the send queue up to it.
    pub(super) slot: u32,
    pub(super) number: u32,
    pub(super) bytes: u32,
    /// Immediate data, or an invalidated key.
    pub(super) word: u32,
    pub(super) status: Status,
    pub(super) kind: CompletionKind,
    pub(super) flags: u8,
}

impl Entry {
    pub(super) const IMM: u8 = 1;
    pub(super) const INVALIDATED: u8 = 2;
    pub(super) const SOLICITED: u8 = 4;

    /// Creates a successful completion without bytes.
    #[inline]
    pub(super) fn new(id: u64, kind: CompletionKind, qp: u32, slot: usize) -> Self {
        let status = Status::Success;
        Self { id, qp, slot: slot as u32, number: 0, bytes: 0, word: 0, status, kind, flags: 0 }
    }
    /// Changes the status to an error. Errors count as solicited events.
    pub(super) fn failed(self, status: Status) -> Self {
        Self { status, flags: Self::SOLICITED, ..self }
    }
    /// Sets the number of the send request, up to which polling frees the send queue.
    #[inline]
    pub(super) fn freeing(self, number: u32) -> Self {
        Self { number, ..self }
    }
    /// Returns `true` for completions of the send queue.
    #[inline]
    pub(super) fn is_send(&self) -> bool {
        !matches!(self.kind, CompletionKind::Recv | CompletionKind::RecvWriteImm)
    }
    #[inline]
    pub(super) fn completion(&self) -> Completion {
        Completion {
            id: self.id,
            status: self.status,
            kind: self.kind,
            qp: self.qp,
            bytes: self.bytes,
            imm: (self.flags & Self::IMM != 0).then_some(self.word),
            invalidated: (self.flags & Self::INVALIDATED != 0).then_some(self.word),
            source: None,
            solicited: self.flags & Self::SOLICITED != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
pub(super) struct CompletionQueue {
    /// A ring whose size is a power of two, of which at most `depth` entries are used. (With a `VecDeque`, entries are
    /// constructed elsewhere and copied in, and the copy stalls on their construction.)
    ring: Box<[Entry]>,
    head: usize,
    len: usize,
    depth: usize,
    armed: Armed,
    /// A completion was lost: by the standard, the queue pairs of this completion queue fail.
    pub(super) overrun: bool,
}

impl CompletionQueue {
    pub(super) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        let ring = vec![Entry::new(0, CompletionKind::Send, 0, 0); depth.next_power_of_two()].into();
        Self { ring, head: 0, len: 0, depth, armed: Armed::No, overrun: false }
    }
    pub(super) fn arm(&mut self, solicited_only: bool) {
        // A request for all completions is not narrowed by one for solicited ones (IBTA 11.4.2.2).
        if self.armed != Armed::Any {
            self.armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        }
    }
    pub(super) fn is_armed(&self) -> bool {
        self.armed != Armed::No
    }
    /// Adds a completion. Returns `true` if it raises an event.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if self.len == self.depth {
            self.overrun = true;
            return false;
        }
        let event = self.armed == Armed::Any || self.armed == Armed::Solicited && entry.flags & Entry::SOLICITED != 0;
        let index = (self.head + self.len) & (self.ring.len() - 1);
        self.ring[index] = entry;
        self.len += 1;
        if event {
            self.armed = Armed::No;
        }
        event
    }
    /// Removes and returns the oldest completion.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<&Entry> {
        self.len = self.len.checked_sub(1)?;
        let index = self.head;
        self.head = (index + 1) & (self.ring.len() - 1);
        Some(&self.ring[index])
    }
}

/// Elements of a posted request, with pins on their memory.
#[derive(Debug, Default)]
pub(super) struct PinnedElements {
    pub(super) elements: Vec<Sge>,
    pins: Vec<Pin>,
}

impl PinnedElements {
    /// Adds an element and pins its memory.
    pub(super) fn pin(&mut self, protection: &mut Protection, sge: Sge, lkey: u32) -> Result<(), AccessError> {
        self.pins.push(protection.pin(lkey).ok_or(AccessError::UnknownKey)?);
        self.elements.push(sge);
        Ok(())
    }
    /// Unpins and removes all elements.
    pub(super) fn unpin_all(&mut self, protection: &mut Protection) {
        self.elements.clear();
        self.pins.drain(..).for_each(|pin| protection.unpin(pin));
    }
}

/// A posted receive.
#[derive(Debug, Default)]
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) pinned: PinnedElements,
    pub(super) len: u64,
}

#[derive(Debug)]
pub(super) struct ReceiveQueue {
    pub(super) pd: Pd,
    pub(super) shared: bool,
    depth: usize,
    max_sge: u32,
    pub(super) posted: VecDeque<Receive>,
    /// Armed limit: an event is raised once fewer receives are posted.
    pub(super) limit: Option<u32>,
    /// Completed receives, whose allocations are reused.
    spare: Vec<Receive>,
}

impl ReceiveQueue {
    pub(super) fn new(pd: Pd, depth: u32, max_sge: u32, shared: bool) -> Self {
        let posted = VecDeque::with_capacity(depth as usize);
        Self { pd, shared, depth: depth as usize, max_sge, posted, limit: None, spare: Vec::new() }
    }
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }
    pub(super) fn post(&mut self, protection: &mut Protection, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.posted.len() == self.depth {
            return Err(PostError::Full);
        }
        if wr.elements.len() > self.max_sge as usize {
            return Err(PostError::TooManyElements { max: self.max_sge, found: wr.elements.len() });
        }
        let mut receive = self.spare.pop().unwrap_or_default();
        for (index, element) in wr.elements.iter().enumerate() {
            let found = protection.local(self.pd, element.lkey, element.address, element.len, Access::LOCAL_WRITE);
            if let Err(refused) = found.and_then(|sge| receive.pinned.pin(protection, sge, element.lkey)) {
                self.recycle(protection, receive);
                return Err(PostError::Element { index, refused });
            }
        }
        receive.id = wr.id;
        receive.len = wr.elements.iter().map(|element| u64::from(element.len)).sum();
        self.posted.push_back(receive);
        Ok(())
    }
    pub(super) fn take(&mut self) -> Option<Receive> {
        self.posted.pop_front()
    }
    /// Returns an unused receive to the front of the queue.
    pub(super) fn put_back(&mut self, receive: Receive) {
        self.posted.push_front(receive);
    }
    /// Unpins a completed receive and keeps it for reuse.
    pub(super) fn recycle(&mut self, protection: &mut Protection, mut receive: Receive) {
        receive.pinned.unpin_all(protection);
        self.spare.push(receive);
    }
}
