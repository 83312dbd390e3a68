//! Causes for rejecting a request packet.

use super::counters::QpDropCounters;
use shotline_memory::AccessError;
use shotline_wire::aeth::NakCode;

/// Cause for rejecting a packet. A rejected packet changes no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The opcode, or the part of the operation, does not follow that of the packet before; or the operation is not
    /// supported.
    Opcode,
    /// Impossible PSN.
    Sequence,
    /// Impossible length.
    Length,
    /// SEND longer than the receive.
    TooLong,
    /// No receive is posted.
    NoReceive,
    /// More outstanding READs and atomic operations than negotiated.
    TooMany,
    /// The access rights of the queue pair do not allow it.
    Access,
    /// The memory registration does not allow it.
    Memory(AccessError),
}

impl Refusal {
    /// Counts the rejected packet.
    pub fn count(self, counters: &mut QpDropCounters) {
        match self {
            Self::Opcode => counters.bad_opcode += 1,
            Self::Sequence => counters.bad_psn += 1,
            Self::Length | Self::TooLong => counters.bad_length += 1,
            Self::NoReceive => counters.no_receive += 1,
            Self::TooMany => counters.too_many += 1,
            Self::Access => counters.bad_rights += 1,
            Self::Memory(error) => counters.count(error),
        }
    }
    /// Returns the NAK code that IBTA prescribes. (A missing receive is answered with an RNR NAK instead.)
    pub fn nak(self) -> NakCode {
        match self {
            Self::Memory(AccessError::Misaligned) => NakCode::InvalidRequest,
            Self::Memory(_) => NakCode::RemoteAccessError,
            _ => NakCode::InvalidRequest,
        }
    }
}
