//! Acknowledge Extended Transport Header (IBTA volume 1, clause 9.3.5): syndrome u8, message sequence
//! number u24.

use crate::{ParseError, bytes};

/// An Acknowledge Extended Transport Header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Aeth {
    /// Type and value of the acknowledgement.
    pub syndrome: Syndrome,
    /// Message sequence number: messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

impl Aeth {
    /// Length of the header, in bytes.
    pub const LEN: usize = 4;

    /// Parses a header and returns it with the remaining bytes.
    ///
    /// # Errors
    /// If the packet is shorter than [`Self::LEN`] or the syndrome is reserved.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut fields = bytes::Fields::new("AETH", packet);
        let syndrome = fields.u8()?;
        let msn = fields.u24()?;
        let syndrome = Syndrome::from_u8(syndrome)
            .ok_or(ParseError::Unknown { what: "AETH syndrome", found: u64::from(syndrome) })?;
        Ok((Self { syndrome, msn }, fields.rest()))
    }

    /// Encodes the header.
    pub fn emit(&self) -> [u8; Self::LEN] {
        bytes::Header::new().u8(self.syndrome.to_u8()).u24(self.msn).done()
    }
}

/// Syndrome of an acknowledgement (IBTA volume 1, clause 9.7.5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// All packets up to this PSN have arrived.
    Ack(Credits),
    /// Receiver not ready: no receive was posted. The requester retries after this time.
    RnrNak(RnrTimer),
    /// Negative acknowledgement.
    Nak(NakCode),
}

impl Syndrome {
    /// Positive acknowledgement without flow control, as Linux sends it.
    pub const ACK: Self = Self::Ack(Credits(Credits::UNLIMITED));

    /// Decodes a syndrome byte. Returns `None` for a reserved one.
    pub const fn from_u8(value: u8) -> Option<Self> {
        let code = value & 0x1F;
        match value >> 5 {
            0 => Some(Self::Ack(Credits(code))),
            1 => Some(Self::RnrNak(RnrTimer(code))),
            3 => match NakCode::from_u8(code) {
                Some(code) => Some(Self::Nak(code)),
                None => None,
            },
            _ => None,
        }
    }

    /// Encodes the syndrome byte.
    pub const fn to_u8(self) -> u8 {
        match self {
            Self::Ack(Credits(code)) => code,
            Self::RnrNak(RnrTimer(code)) => 0x20 | code,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }
}

/// End-to-end flow control credits: receives that the responder has posted, as a 5-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    const UNLIMITED: u8 = 0x1F;
    /// Number of messages by code (Linux `drivers/infiniband/sw/rdmavt/rc.c`).
    const COUNTS: [u16; 31] = [
        0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
        6144, 8192, 12288, 16384, 24576, 32768,
    ];

    /// Returns the largest code that grants at most `count` messages; `None` is unlimited.
    pub fn new(count: Option<u16>) -> Self {
        // COUNTS is ascending from 0, so at least its first entry is <= count and the partition point is 1 to 31.
        count.map_or(Self(Self::UNLIMITED), |count| Self(Self::COUNTS.partition_point(|c| *c <= count) as u8 - 1))
    }

    /// Returns the number of messages that may be sent after the acknowledged one; `None` is unlimited.
    pub fn count(self) -> Option<u16> {
        Self::COUNTS.get(usize::from(self.0)).copied()
    }
}

/// RNR NAK timer: how long a requester waits before it retries a request that found no posted receive, as a 5-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Time by code (IBTA volume 1, table 46; Linux `drivers/infiniband/sw/rxe/rxe_comp.c`).
    const MICROSECONDS: [u32; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10_240,
        15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
    ];

    /// Returns the timer with this code, or `None` if it is above 31.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Returns the 5-bit code.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Returns the time in microseconds.
    pub fn microseconds(self) -> u32 {
        Self::MICROSECONDS[usize::from(self.0 & 0x1F)]
    }
}

/// Reason of a negative acknowledgement (IBTA volume 1, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing: retransmit from the expected PSN.
    PsnSequenceError = 0,
    /// The request is unsupported, not allowed on this queue pair, or has the wrong length.
    InvalidRequest = 1,
    /// The remote key, bounds or access rights do not match.
    RemoteAccessError = 2,
    /// The responder cannot complete the request.
    RemoteOperationalError = 3,
    /// The request is invalid for a reliable datagram.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// Returns the code with this value, if it is defined.
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::PsnSequenceError),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccessError),
            3 => Some(Self::RemoteOperationalError),
            4 => Some(Self::InvalidRdRequest),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defined_syndromes_round_trip() {
        let known = (0..=u8::MAX).filter(|value| {
            Syndrome::from_u8(*value).is_some_and(|syndrome| {
                assert_eq!(syndrome.to_u8(), *value);
                true
            })
        });
        assert_eq!(known.count(), 32 + 32 + 5);
        assert_eq!(Syndrome::ACK.to_u8(), 0x1F);
    }

    #[test]
    fn credits_never_exceed_the_count() {
        for count in 0..=u16::MAX {
            let credits = Credits::new(Some(count));
            assert!(credits.count().is_some_and(|granted| granted <= count));
        }
        assert_eq!(Credits::new(Some(95)).count(), Some(64));
        assert_eq!(Credits::new(None).count(), None);
    }

    #[test]
    fn rnr_timers_match_the_specification() {
        let time = |code| RnrTimer::from_code(code).map(RnrTimer::microseconds);
        assert_eq!((time(0), time(1), time(31), time(32)), (Some(655_360), Some(10), Some(491_520), None));
    }
}
