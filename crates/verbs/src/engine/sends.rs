//! Send queue: work requests that are waiting, in flight or unacknowledged.

use crate::api::{CompletionKind, Data, Destination, Element, Operation, PostError, QpConfig, QpType, SendWr};
use shotline_memory::{Access, Pd, Pin, Protection, Sge};

/// Zero bytes at the start of the engine's buffer, for padding. (Eight, so that inline data is aligned.)
const PADDING_BYTES: u32 = 8;

/// Send work request in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub id: u64,
    pub operation: Operation,
    /// Message length in bytes.
    pub len: u32,
    /// Number of elements.
    count: u32,
    /// PSN of its first packet, not truncated to 24 bits. Set by the engine.
    pub psn: u64,
    /// Number of PSNs that it uses.
    pub packets: u32,
    pub signalled: bool,
    pub solicited: bool,
    pub fence: bool,
}

impl Request {
    const NONE: Self = Self {
        id: 0,
        operation: Operation::Send,
        len: 0,
        count: 0,
        psn: 0,
        packets: 0,
        signalled: false,
        solicited: false,
        fence: false,
    };

    /// Returns the kind of its completion.
    pub fn completion_kind(&self) -> CompletionKind {
        match self.operation {
            Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => CompletionKind::Send,
            Operation::Write(_) | Operation::WriteImm(..) => CompletionKind::Write,
            Operation::Read(_) => CompletionKind::Read,
            Operation::CompareSwap { .. } => CompletionKind::CompareSwap,
            Operation::FetchAdd { .. } => CompletionKind::FetchAdd,
        }
    }
    /// Returns the PSN after its last.
    pub fn end(&self) -> u64 {
        self.psn + u64::from(self.packets)
    }
    /// Returns `true` if it completes with a response rather than an acknowledgement.
    pub fn has_response(&self) -> bool {
        self.operation.has_response()
    }
    /// Returns `true` for atomic operations.
    pub fn is_atomic(&self) -> bool {
        self.operation.is_atomic()
    }
}

impl Operation {
    /// Returns `true` for operations with a response: READs and atomic operations.
    pub(super) fn has_response(&self) -> bool {
        self.is_atomic() || matches!(self, Self::Read(_))
    }
    /// Returns `true` for compare and swap, and fetch and add.
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// Ring of send work requests with their elements resolved and pinned. All memory is allocated at construction.
///
/// Requests have numbers that never wrap: those in `first..end` are in the queue. A request leaves the queue and frees
/// its slot when it is done, signalled or not.
#[derive(Debug)]
pub(super) struct SendQueue {
    kind: QpType,
    pd: Pd,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// Elements per request; inline data uses one.
    stride: usize,
    requests: Box<[Request]>,
    elements: Box<[Sge]>,
    pins: Box<[Option<Pin>]>,
    /// Used for UD only, otherwise empty.
    destinations: Box<[Option<Destination>]>,
    buffer: Sge,
    first: u64,
    end: u64,
}

impl SendQueue {
    /// Returns the bytes of registered memory needed for zeros and inline data.
    pub fn buffer_bytes(config: &QpConfig) -> u32 {
        PADDING_BYTES + inline_stride(config.max_inline) * config.max_send_wr.max(1).next_power_of_two()
    }

    /// Creates an empty queue. `buffer` is zeroed memory of [`Self::buffer_bytes`] bytes.
    pub fn new(config: &QpConfig, buffer: Sge) -> Self {
        let slots = config.max_send_wr.max(1).next_power_of_two() as usize;
        let stride = config.max_sge.max(1) as usize;
        let destinations = if config.kind == QpType::Ud { slots } else { 0 };
        Self {
            kind: config.kind,
            pd: config.pd,
            depth: config.max_send_wr,
            max_sge: config.max_sge,
            max_inline: if buffer.len >= Self::buffer_bytes(config) { config.max_inline } else { 0 },
            stride,
            requests: vec![Request::NONE; slots].into(),
            elements: vec![Sge::EMPTY; slots * stride].into(),
            pins: std::iter::repeat_with(|| None).take(slots * stride).collect(),
            destinations: vec![None; destinations].into(),
            buffer,
            first: 0,
            end: 0,
        }
    }

    /// Returns the number of the oldest request.
    pub fn first(&self) -> u64 {
        self.first
    }
    /// Returns the number that the next request will have.
    pub fn end(&self) -> u64 {
        self.end
    }
    /// Returns a request in the queue.
    pub fn get(&self, number: u64) -> &Request {
        &self.requests[self.slot(number)]
    }
    /// Returns the elements of a request.
    pub fn elements(&self, number: u64) -> &[Sge] {
        let slot = self.slot(number);
        &self.elements[slot * self.stride..][..self.requests[slot].count as usize]
    }
    /// Returns the destination of a request (UD).
    pub fn destination(&self, number: u64) -> Option<&Destination> {
        self.destinations.get(self.slot(number))?.as_ref()
    }
    /// Returns the zeros that pad a payload of `len` bytes to a multiple of 4.
    pub fn padding(&self, len: u32) -> Sge {
        Sge { len: (len.wrapping_neg() & 3).min(self.buffer.len), ..self.buffer }
    }

    /// Adds a request of at most `max` bytes: checks its elements, and pins their memory until it leaves. The engine
    /// has checked its own state before, and assigns the PSNs of the request.
    pub fn post(&mut self, protection: &mut Protection, wr: &SendWr<'_>, max: u64) -> Result<&mut Request, PostError> {
        if self.end - self.first >= u64::from(self.depth) {
            return Err(PostError::Full);
        }
        if wr.destination.is_some() != (self.kind == QpType::Ud) {
            return Err(PostError::Destination);
        }
        let total = match wr.data {
            Data::Elements(elements) => elements.iter().map(|element| u64::from(element.len)).sum(),
            Data::Inline(bytes) => bytes.len() as u64,
        };
        let (min, max) = if wr.operation.is_atomic() { (8, 8) } else { (0, max) };
        if total < min || total > max {
            return Err(PostError::Length { max, found: total });
        }
        let slot = self.slot(self.end);
        let writes_local = wr.operation.has_response();
        let count = match wr.data {
            Data::Elements(elements) => self.resolve(protection, slot, elements, writes_local)?,
            Data::Inline(bytes) => self.copy_inline(protection, slot, bytes, writes_local)?,
        };
        if let Some(destination) = self.destinations.get_mut(slot) {
            *destination = wr.destination;
        }
        self.end += 1;
        let entry = &mut self.requests[slot];
        *entry = Request {
            id: wr.id,
            operation: wr.operation,
            len: total as u32,
            count,
            psn: 0,
            packets: 1,
            signalled: wr.signalled,
            solicited: wr.solicited,
            fence: wr.fence,
        };
        Ok(entry)
    }

    /// Resolves and pins elements. Returns their number.
    fn resolve(
        &mut self,
        protection: &mut Protection,
        slot: usize,
        elements: &[Element],
        writes_local: bool,
    ) -> Result<u32, PostError> {
        let found = elements.len();
        if found > self.max_sge as usize {
            return Err(PostError::TooManyElements { max: self.max_sge, found });
        }
        let needed = if writes_local { Access::LOCAL_WRITE } else { Access::NONE };
        let slots = slot * self.stride..slot * self.stride + found;
        let (resolved, pins) = (&mut self.elements[slots.clone()], &mut self.pins[slots]);
        for (index, (element, sge)) in elements.iter().zip(resolved).enumerate() {
            match protection.local(self.pd, element.lkey, element.address, element.len, needed) {
                Ok(found) => (*sge, pins[index]) = (found, protection.pin(element.lkey)),
                Err(refused) => {
                    pins.iter_mut().filter_map(Option::take).for_each(|pin| protection.unpin(pin));
                    return Err(PostError::Element { index, refused });
                }
            }
        }
        Ok(found as u32)
    }

    /// Copies inline bytes to the buffer. Returns the number of elements used.
    fn copy_inline(
        &mut self,
        protection: &Protection,
        slot: usize,
        bytes: &[u8],
        writes_local: bool,
    ) -> Result<u32, PostError> {
        let (max, found) = (if writes_local { 0 } else { self.max_inline }, bytes.len());
        if found > max as usize {
            return Err(PostError::Inline { max, found });
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let offset =
            self.buffer.offset + u64::from(PADDING_BYTES) + slot as u64 * u64::from(inline_stride(self.max_inline));
        protection.regions().get(self.buffer.region).write(offset as usize, bytes);
        self.elements[slot * self.stride] = Sge { region: self.buffer.region, offset, len: found as u32 };
        Ok(1)
    }

    /// Removes the oldest request and unpins its memory.
    pub fn retire(&mut self, protection: &mut Protection) -> Option<Request> {
        if self.first == self.end {
            return None;
        }
        let slot = self.slot(self.first);
        let request = self.requests[slot];
        for pin in &mut self.pins[slot * self.stride..][..request.count as usize] {
            if let Some(pin) = pin.take() {
                protection.unpin(pin);
            }
        }
        self.first += 1;
        Some(request)
    }

    fn slot(&self, number: u64) -> usize {
        number as usize & (self.requests.len() - 1)
    }
}

/// Returns the distance in bytes between the inline data of two requests.
fn inline_stride(max_inline: u32) -> u32 {
    max_inline.next_multiple_of(8)
}
