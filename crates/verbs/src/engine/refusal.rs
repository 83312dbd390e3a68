//! Causes for which a packet is refused.

use super::books::Refusals;
use shotline_memory::Refused;
use shotline_wire::aeth::NakCode;

/// Why a packet is refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It does not follow the packet before it, or there is no such operation here.
    Opcode,
    /// A sequence number that cannot be.
    Sequence,
    /// A length that cannot be.
    Length,
    /// A SEND that is longer than the receive.
    TooLong,
    /// No receive is posted.
    NoReceive,
    /// More READs and atomic operations at once than were agreed.
    TooMany,
    /// The queue pair does not allow it.
    Access,
    /// The memory does not.
    Memory(Refused),
}

impl Refusal {
    /// Counts it.
    pub fn count(self, refused: &mut Refusals) {
        match self {
            Self::Opcode => refused.bad_opcode += 1,
            Self::Sequence => refused.bad_psn += 1,
            Self::Length | Self::TooLong => refused.bad_length += 1,
            Self::NoReceive => refused.no_receive += 1,
            Self::TooMany => refused.too_many += 1,
            Self::Access => refused.bad_rights += 1,
            Self::Memory(why) => refused.count(why),
        }
    }
    /// What the InfiniBand rules answer. (A missing receive has a negative acknowledgement of its own.)
    pub fn nak(self) -> NakCode {
        match self {
            Self::Memory(Refused::Misaligned) => NakCode::InvalidRequest,
            Self::Memory(_) => NakCode::RemoteAccessError,
            _ => NakCode::InvalidRequest,
        }
    }
}
