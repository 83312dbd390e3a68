//! The send queue: work requests that wait, are under way, or wait for their acknowledgement.

use crate::api::{Completed, Data, Destination, Element, Operation, PostError, QpConfig, QpType, SendWr};
use shotline_memory::{Access, Pd, Pin, Protection, Sge};

/// Zero bytes at the beginning of the memory that an engine is lent, for padding. (Eight, so that inline data is
/// aligned.)
const ZEROS: u32 = 8;

/// A send work request in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub id: u64,
    pub operation: Operation,
    /// Bytes of the message.
    pub len: u32,
    /// Its elements.
    count: u32,
    /// The sequence number of its first packet, not cut to 24 bits. The engine's own.
    pub psn: u64,
    /// Sequence numbers that it takes.
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

    /// What it completes as.
    pub fn completed(&self) -> Completed {
        match self.operation {
            Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => Completed::Send,
            Operation::Write(_) | Operation::WriteImm(..) => Completed::Write,
            Operation::Read(_) => Completed::Read,
            Operation::CompareSwap { .. } => Completed::CompareSwap,
            Operation::FetchAdd { .. } => Completed::FetchAdd,
        }
    }
    /// The sequence number after its last.
    pub fn end(&self) -> u64 {
        self.psn + u64::from(self.packets)
    }
    /// Whether an acknowledgement is not enough: it ends with a response of its own.
    pub fn is_answered(&self) -> bool {
        self.operation.is_answered()
    }
    /// Whether it is an atomic operation.
    pub fn is_atomic(&self) -> bool {
        self.operation.is_atomic()
    }
}

impl Operation {
    /// Whether bytes come in for it: READs and atomic operations.
    pub(super) fn is_answered(&self) -> bool {
        self.is_atomic() || matches!(self, Self::Read(_))
    }
    /// Whether it is a compare and swap or a fetch and add.
    pub(super) fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareSwap { .. } | Self::FetchAdd { .. })
    }
}

/// A ring of send work requests with their elements resolved and pinned. All memory is had at the beginning.
///
/// Requests have numbers that never wrap: those from [`Self::first`] to before [`Self::end`] are in the queue. A
/// request leaves, and gives its room back, when it is done, signalled or not.
#[derive(Debug)]
pub(super) struct SendQueue {
    kind: QpType,
    pd: Pd,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    /// Elements between one request's first and the next one's: inline data take one.
    stride: usize,
    requests: Box<[Request]>,
    elements: Box<[Sge]>,
    pins: Box<[Option<Pin>]>,
    /// Datagrams only, else empty.
    destinations: Box<[Option<Destination>]>,
    lent: Sge,
    first: u64,
    end: u64,
}

impl SendQueue {
    /// Bytes of registered memory that a queue needs for zeros and inline data.
    pub fn memory(config: &QpConfig) -> u32 {
        ZEROS + inline_stride(config.max_inline) * config.max_send_wr.max(1).next_power_of_two()
    }

    /// An empty queue. `lent` is zeroed memory of [`Self::memory`] bytes.
    pub fn new(config: &QpConfig, lent: Sge) -> Self {
        let places = config.max_send_wr.max(1).next_power_of_two() as usize;
        let stride = config.max_sge.max(1) as usize;
        let destinations = if config.kind == QpType::Ud { places } else { 0 };
        Self {
            kind: config.kind,
            pd: config.pd,
            depth: config.max_send_wr,
            max_sge: config.max_sge,
            max_inline: if lent.len >= Self::memory(config) { config.max_inline } else { 0 },
            stride,
            requests: vec![Request::NONE; places].into(),
            elements: vec![Sge::EMPTY; places * stride].into(),
            pins: std::iter::repeat_with(|| None).take(places * stride).collect(),
            destinations: vec![None; destinations].into(),
            lent,
            first: 0,
            end: 0,
        }
    }

    /// The oldest request's number.
    pub fn first(&self) -> u64 {
        self.first
    }
    /// The number that the next request will have.
    pub fn end(&self) -> u64 {
        self.end
    }
    /// A request in the queue.
    pub fn get(&self, number: u64) -> &Request {
        &self.requests[self.place(number)]
    }
    /// Its elements.
    pub fn elements(&self, number: u64) -> &[Sge] {
        let place = self.place(number);
        &self.elements[place * self.stride..][..self.requests[place].count as usize]
    }
    /// Its destination (datagrams).
    pub fn destination(&self, number: u64) -> Option<&Destination> {
        self.destinations.get(self.place(number))?.as_ref()
    }
    /// The zeros that a payload of `len` bytes is padded with to a multiple of 4.
    pub fn padding(&self, len: u32) -> Sge {
        Sge { len: (len.wrapping_neg() & 3).min(self.lent.len), ..self.lent }
    }

    /// Enters a request of at most `most` bytes: checks its elements, and keeps their memory until it leaves. The
    /// engine has checked its own state before, and gives the entry its sequence numbers.
    pub fn post(&mut self, protection: &mut Protection, wr: &SendWr<'_>, most: u64) -> Result<&mut Request, PostError> {
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
        let (least, most) = if wr.operation.is_atomic() { (8, 8) } else { (0, most) };
        if total < least || total > most {
            return Err(PostError::Length { most, found: total });
        }
        let place = self.place(self.end);
        let comes_in = wr.operation.is_answered();
        let count = match wr.data {
            Data::Elements(elements) => self.resolve(protection, place, elements, comes_in)?,
            Data::Inline(bytes) => self.copy(protection, place, bytes, comes_in)?,
        };
        if let Some(destination) = self.destinations.get_mut(place) {
            *destination = wr.destination;
        }
        self.end += 1;
        let entry = &mut self.requests[place];
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

    /// Enters elements, and keeps their memory. Returns how many.
    fn resolve(
        &mut self,
        protection: &mut Protection,
        place: usize,
        elements: &[Element],
        comes_in: bool,
    ) -> Result<u32, PostError> {
        let found = elements.len();
        if found > self.max_sge as usize {
            return Err(PostError::TooManyElements { most: self.max_sge, found });
        }
        let needed = if comes_in { Access::LOCAL_WRITE } else { Access::NONE };
        let places = place * self.stride..place * self.stride + found;
        let (resolved, pins) = (&mut self.elements[places.clone()], &mut self.pins[places]);
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

    /// Copies inline bytes to where they are sent from. Returns how many elements that takes.
    fn copy(&mut self, protection: &Protection, place: usize, bytes: &[u8], comes_in: bool) -> Result<u32, PostError> {
        let (most, found) = (if comes_in { 0 } else { self.max_inline }, bytes.len());
        if found > most as usize {
            return Err(PostError::Inline { most, found });
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let offset = self.lent.offset + u64::from(ZEROS) + place as u64 * u64::from(inline_stride(self.max_inline));
        protection.regions().get(self.lent.region).write(offset as usize, bytes);
        self.elements[place * self.stride] = Sge { region: self.lent.region, offset, len: found as u32 };
        Ok(1)
    }

    /// Takes the oldest request out and lets go of its memory.
    pub fn retire(&mut self, protection: &mut Protection) -> Option<Request> {
        if self.first == self.end {
            return None;
        }
        let place = self.place(self.first);
        let request = self.requests[place];
        for pin in &mut self.pins[place * self.stride..][..request.count as usize] {
            if let Some(pin) = pin.take() {
                protection.unpin(pin);
            }
        }
        self.first += 1;
        Some(request)
    }

    fn place(&self, number: u64) -> usize {
        number as usize & (self.requests.len() - 1)
    }
}

/// Bytes from one request's inline data to the next one's.
fn inline_stride(max_inline: u32) -> u32 {
    max_inline.next_multiple_of(8)
}
