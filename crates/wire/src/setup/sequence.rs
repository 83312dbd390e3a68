//! Transmit sequence.

use super::body::LEN;
use crate::{ParseError, bytes};
use core::fmt;

/// Transmit events that a probe cycles through: shot `k` of a run, counted from 0, is acquired for transmission
/// `events[k mod count]`, and its end-of-shot record has that event. The request, and its echo in the reply.
///
/// | byte | field | type |
/// |---|---|---|
/// | 16 | count, 0 to 55; 0 clears the sequence | u16 |
/// | 18 | the events, each 0 to 65535 | u16 each |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sequence {
    count: u16,
    /// Entries after the last event are zero, so that derived equality holds.
    events: [u16; Self::MAX_EVENTS],
}

impl Sequence {
    /// Maximum number of events in a sequence: as many as fit in a message.
    pub const MAX_EVENTS: usize = 55;
    /// Empty sequence: the event in a shot's record is then chosen by the probe.
    pub const NONE: Self = Self { count: 0, events: [0; Self::MAX_EVENTS] };

    /// Creates a sequence of these events.
    ///
    /// # Errors
    /// If there are more than [`Self::MAX_EVENTS`].
    pub fn new(events: &[u16]) -> Result<Self, ParseError> {
        let mut sequence = Self { count: Self::count(events.len() as u64)?, ..Self::NONE };
        sequence.events.iter_mut().zip(events).for_each(|(to, from)| *to = *from);
        Ok(sequence)
    }

    /// Returns the events in order.
    pub fn events(&self) -> &[u16] {
        self.events.get(..self.count.into()).unwrap_or_default()
    }

    /// Returns the event of shot `k` of a run, counted from 0, or `None` if the sequence is empty.
    pub fn event(&self, k: u64) -> Option<u16> {
        let at = k.checked_rem(self.count.into())?;
        self.events.get(at as usize).copied()
    }

    fn count(found: u64) -> Result<u16, ParseError> {
        let max = Self::MAX_EVENTS as u64;
        match u16::try_from(found) {
            Ok(count) if found <= max => Ok(count),
            _ => Err(ParseError::Range { what: "count of transmit events", min: 0, max, found }),
        }
    }

    pub(super) fn parse(body: &mut bytes::Fields<'_>) -> Result<Self, ParseError> {
        let mut sequence = Self { count: Self::count(body.u16()?.into())?, ..Self::NONE };
        for event in sequence.events.iter_mut().take(sequence.count.into()) {
            *event = body.u16()?;
        }
        Ok(sequence)
    }

    pub(super) fn emit(&self, out: bytes::Header<LEN>) -> bytes::Header<LEN> {
        self.events().iter().fold(out.u16(self.count), |out, event| out.u16(*event))
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sequence").field(&self.events()).finish()
    }
}
