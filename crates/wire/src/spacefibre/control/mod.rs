//! Control words of the lane, multi-lane and data link layers (5.3.3 to 5.3.5).

use super::character::{self, COMMA, INIT_COMMA, LANE_CONTROL};
use super::crc::crc8;
use super::word::Word;
use core::fmt;

#[cfg(test)]
mod tests;

/// Control word of any layer.
///
/// Reserved bits are sent as 0 and ignored when received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlWord {
    /// Lane: a word that an elastic buffer may remove or double (5.3.3.2).
    Skip,
    /// Lane: sent when there is nothing else to send (5.3.3.3).
    Idle,
    /// Lane: begins initialisation (5.3.3.4).
    Init1,
    /// Lane: [`ControlWord::Init1`] received with inverted polarity. It is never sent (5.3.3.5).
    InvertedInit1,
    /// Lane: continues initialisation (5.3.3.6).
    Init2,
    /// Lane: [`ControlWord::Init2`] received with inverted polarity. It is never sent (5.3.3.7).
    InvertedInit2,
    /// Lane: completes initialisation (5.3.3.8).
    Init3(Capability),
    /// Lane: the sender stops its transmitter (5.3.3.9).
    Standby {
        /// Reason, with a meaning that the system defines.
        reason: u8,
    },
    /// Lane: the sender has lost its receiver's signal and initialises the lane again (5.3.3.10).
    LostSignal(LostSignalCause),
    /// Multi-lane: the sender's lanes that are active (5.3.4.2).
    Active {
        /// Bit i is set if lane i is active.
        lanes: u16,
    },
    /// Multi-lane: marks the same instant on all lanes that send data (5.3.4.3).
    Align {
        /// Number of the lane that sends the word, 0 to 15.
        lane: u8,
        /// Number of the lanes that are active and send, 1 to 16.
        lanes: u8,
    },
    /// Multi-lane: the ALIGN of a hot redundant lane, which sends no data (5.6.10).
    AlignRedundant,
    /// Multi-lane: fills the last row of a data frame (5.3.4.4).
    Pad,
    /// Data link, SDF: begins a data frame (5.3.5.1.3).
    StartDataFrame {
        /// Virtual channel, 0 to 31.
        vc: u8,
    },
    /// Data link, EDF: ends a data frame (5.3.5.1.4).
    EndDataFrame {
        /// Sequence number of the frame.
        seq: SequenceNumber,
        /// CRC-16 of the frame's words on this lane. Neither computed nor checked here.
        crc: u16,
    },
    /// Data link, SBF: begins a broadcast frame (5.3.5.1.5).
    StartBroadcastFrame {
        /// Broadcast channel.
        channel: u8,
        /// Type of the message (B_TYPE).
        kind: u8,
    },
    /// Data link, EBF: ends a broadcast frame (5.3.5.1.6).
    EndBroadcastFrame {
        /// How late the message is.
        status: BroadcastStatus,
        /// Sequence number of the frame.
        seq: SequenceNumber,
        /// CRC-8 of the frame. Neither computed nor checked here.
        crc: u8,
    },
    /// Data link, SIF: begins an idle frame (5.3.5.1.7).
    StartIdleFrame {
        /// Sequence number of the last frame or token sent.
        seq: SequenceNumber,
    },
    /// Data link, FCT: space in the sender's input buffer (5.3.5.2).
    FlowControlToken {
        /// Virtual channel, 0 to 31.
        vc: u8,
        /// Space in units of 64 words, 1 to 8.
        multiplier: u8,
        /// Sequence number of the token.
        seq: SequenceNumber,
    },
    /// Data link: everything up to this sequence number has been received (5.3.5.3.2).
    Ack {
        /// Sequence number of the last frame or token received.
        seq: SequenceNumber,
    },
    /// Data link: something after this sequence number was received with an error (5.3.5.3.3).
    Nack {
        /// Sequence number of the last frame or token received, with the inverse polarity.
        seq: SequenceNumber,
    },
    /// Data link: the sender's error recovery buffer is full (5.3.5.3.4).
    Full {
        /// Sequence number of the last frame or token sent.
        seq: SequenceNumber,
    },
    /// Data link: what was not acknowledged is sent again after this word (5.3.5.3.5).
    Retry,
}

impl ControlWord {
    /// Parses a received word.
    ///
    /// Returns `None` for a data word, for [`Word::RXERR`], and for words that are not control words, which a receiver
    /// ignores. The last are those with a K-code that is not in the first position (other than PAD), with an unknown
    /// symbol, and an ALIGN whose fourth character is not the inverse of the third (5.6.6.3).
    ///
    /// # Errors
    /// Returns [`BadCrc8`] for an SIF, FCT, ACK, NACK or FULL with a wrong CRC.
    #[inline]
    pub fn parse(word: Word) -> Result<Option<Self>, BadCrc8> {
        if word.is_data() {
            return Ok(None);
        }
        let Word { characters: [first, second, third, fourth], control } = word;
        if control != 1 {
            return Ok((word == PAD).then_some(Self::Pad));
        }
        let seq = SequenceNumber::from_bits(third);
        let checked = match first {
            COMMA => match second {
                character::START_IDLE_FRAME => CheckedWord::StartIdleFrame,
                character::ACK => CheckedWord::Ack,
                character::NACK => CheckedWord::Nack,
                character::FULL => CheckedWord::Full,
                _ => return Ok(Self::parse_comma(word.characters)),
            },
            character::FLOW_CONTROL_TOKEN => CheckedWord::FlowControlToken,
            INIT_COMMA => return Ok(Self::parse_init(word.characters)),
            character::END_DATA_FRAME => {
                let seq = SequenceNumber::from_bits(second);
                return Ok(Some(Self::EndDataFrame { seq, crc: u16::from_le_bytes([third, fourth]) }));
            }
            character::END_BROADCAST_FRAME => {
                let status = BroadcastStatus::from_bits(second);
                return Ok(Some(Self::EndBroadcastFrame { status, seq, crc: fourth }));
            }
            _ => return Ok(None),
        };
        let expected = crc8(&[first, second, third]);
        if fourth != expected {
            return Err(BadCrc8 { word: checked, expected, found: fourth });
        }
        Ok(Some(match checked {
            CheckedWord::StartIdleFrame => Self::StartIdleFrame { seq },
            CheckedWord::FlowControlToken => {
                Self::FlowControlToken { vc: second & 0x1F, multiplier: (second >> 5) + 1, seq }
            }
            CheckedWord::Ack => Self::Ack { seq },
            CheckedWord::Nack => Self::Nack { seq },
            CheckedWord::Full => Self::Full { seq },
        }))
    }

    /// Parses a word of one comma K28.7 and three D-codes without a CRC.
    fn parse_comma([_, second, third, fourth]: [u8; 4]) -> Option<Self> {
        Some(match (second, third) {
            (LANE_CONTROL, character::SKIP) if fourth == character::SKIP => Self::Skip,
            (LANE_CONTROL, character::IDLE) if fourth == character::IDLE => Self::Idle,
            (LANE_CONTROL, character::STANDBY) => Self::Standby { reason: fourth },
            (LANE_CONTROL, character::LOST_SIGNAL) => Self::LostSignal(LostSignalCause::from_bits(fourth)),
            (character::ACTIVE, _) => Self::Active { lanes: u16::from_le_bytes([third, fourth]) },
            (character::ALIGN, 0) if fourth == 0 => Self::AlignRedundant,
            (character::ALIGN, _) if fourth == !third => {
                // 0 stands for 16 lanes.
                Self::Align { lane: third >> 4, lanes: (third & 0xF).wrapping_sub(1) % 16 + 1 }
            }
            (character::START_DATA_FRAME, _) => Self::StartDataFrame { vc: third & 0x1F },
            (character::START_BROADCAST_FRAME, _) => Self::StartBroadcastFrame { channel: third, kind: fourth },
            (character::RETRY, _) => Self::Retry,
            _ => return None,
        })
    }

    /// Parses a word of one comma K28.5 and three D-codes.
    fn parse_init([_, second, third, fourth]: [u8; 4]) -> Option<Self> {
        Some(match (second, third) {
            (LANE_CONTROL, character::INIT1) if fourth == character::INIT1 => Self::Init1,
            (LANE_CONTROL, character::INIT2) if fourth == character::INIT2 => Self::Init2,
            (LANE_CONTROL, character::INIT3) => Self::Init3(Capability::from_bits(fourth)),
            (character::INVERTED_LANE_CONTROL, character::INVERTED_INIT1) if fourth == character::INVERTED_INIT1 => {
                Self::InvertedInit1
            }
            (character::INVERTED_LANE_CONTROL, character::INVERTED_INIT2) if fourth == character::INVERTED_INIT2 => {
                Self::InvertedInit2
            }
            _ => return None,
        })
    }

    /// Returns the word. A value that has more bits than its field is truncated.
    #[inline]
    pub fn emit(self) -> Word {
        let lane = |symbol, last| Word::comma([COMMA, LANE_CONTROL, symbol, last]);
        let init = |symbol, last| Word::comma([INIT_COMMA, LANE_CONTROL, symbol, last]);
        let inverted = |symbol| Word::comma([INIT_COMMA, character::INVERTED_LANE_CONTROL, symbol, symbol]);
        let checked = |first, second, seq: SequenceNumber| {
            let covered = [first, second, seq.bits()];
            Word::comma([first, second, seq.bits(), crc8(&covered)])
        };
        match self {
            Self::Skip => lane(character::SKIP, character::SKIP),
            Self::Idle => lane(character::IDLE, character::IDLE),
            Self::Init1 => init(character::INIT1, character::INIT1),
            Self::InvertedInit1 => inverted(character::INVERTED_INIT1),
            Self::Init2 => init(character::INIT2, character::INIT2),
            Self::InvertedInit2 => inverted(character::INVERTED_INIT2),
            Self::Init3(capability) => init(character::INIT3, capability.bits()),
            Self::Standby { reason } => lane(character::STANDBY, reason),
            Self::LostSignal(cause) => lane(character::LOST_SIGNAL, cause as u8),
            Self::Active { lanes } => {
                let [low, high] = lanes.to_le_bytes();
                Word::comma([COMMA, character::ACTIVE, low, high])
            }
            Self::Align { lane, lanes } => {
                let field = lane << 4 | lanes & 0xF;
                Word::comma([COMMA, character::ALIGN, field, !field])
            }
            Self::AlignRedundant => Word::comma([COMMA, character::ALIGN, 0, 0]),
            Self::Pad => PAD,
            Self::StartDataFrame { vc } => Word::comma([COMMA, character::START_DATA_FRAME, vc & 0x1F, 0]),
            Self::EndDataFrame { seq, crc } => {
                let [low, high] = crc.to_le_bytes();
                Word::comma([character::END_DATA_FRAME, seq.bits(), low, high])
            }
            Self::StartBroadcastFrame { channel, kind } => {
                Word::comma([COMMA, character::START_BROADCAST_FRAME, channel, kind])
            }
            Self::EndBroadcastFrame { status, seq, crc } => {
                Word::comma([character::END_BROADCAST_FRAME, status.bits(), seq.bits(), crc])
            }
            Self::StartIdleFrame { seq } => checked(COMMA, character::START_IDLE_FRAME, seq),
            Self::FlowControlToken { vc, multiplier, seq } => {
                checked(character::FLOW_CONTROL_TOKEN, multiplier.wrapping_sub(1) << 5 | vc & 0x1F, seq)
            }
            Self::Ack { seq } => checked(COMMA, character::ACK, seq),
            Self::Nack { seq } => checked(COMMA, character::NACK, seq),
            Self::Full { seq } => checked(COMMA, character::FULL, seq),
            Self::Retry => Word::comma([COMMA, character::RETRY, 0, 0]),
        }
    }
}

/// The only control word of four K-codes.
const PAD: Word = Word { characters: [COMMA, character::FILL, character::FILL, character::FILL], control: 0xF };

/// Sequence number of a frame or flow control token (5.3.5.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SequenceNumber {
    /// Count modulo 128.
    pub count: u8,
    /// Polarity, which each retry inverts. It is positive after a link reset.
    pub negative: bool,
}

impl SequenceNumber {
    /// Creates a sequence number from its character: polarity in bit 7, count in the others.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self { count: bits & 0x7F, negative: bits >> 7 == 1 }
    }

    /// Returns the character.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.count & 0x7F | (self.negative as u8) << 7
    }

    /// Returns the number with the next count and the same polarity.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self { count: self.count.wrapping_add(1) & 0x7F, ..self }
    }
}

/// What the sender of an INIT3 supports and requests (5.3.3.8): a set of flags. Reserved bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capability(u8);

impl Capability {
    /// The sender resets the link.
    pub const LINK_RESET: Self = Self(1 << 0);
    /// The sender's lane was started by its own LaneStart, not by the far end.
    pub const LANE_START: Self = Self(1 << 1);
    /// The sender scrambles data frames.
    pub const DATA_SCRAMBLED: Self = Self(1 << 2);
    /// The sender supports several lanes.
    pub const MULTI_LANE: Self = Self(1 << 3);
    /// The sender is a routing switch.
    pub const ROUTING_SWITCH: Self = Self(1 << 4);

    /// Creates a set from the character.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the character.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether all flags of `flags` are in the set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the set with these flags added if `present`, else with them removed.
    #[inline]
    #[must_use]
    pub const fn with(self, flags: Self, present: bool) -> Self {
        if present { Self(self.0 | flags.0) } else { Self(self.0 & !flags.0) }
    }
}

/// Why a lane lost its signal (5.3.3.10): the low two bits of the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LostSignalCause {
    /// The receiver has no signal.
    NoSignal = 0,
    /// Too many words were received with errors.
    ReceiveErrors = 1,
    /// INIT1 was received on an active lane.
    Init1 = 2,
    /// Reserved.
    Reserved = 3,
}

impl LostSignalCause {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NoSignal,
            1 => Self::ReceiveErrors,
            2 => Self::Init1,
            _ => Self::Reserved,
        }
    }
}

/// How late a broadcast message is (5.3.5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BroadcastStatus {
    /// The message was sent again after an error, or waited for a lane.
    pub late: bool,
    /// The network layer delayed the message.
    pub delayed: bool,
}

impl BroadcastStatus {
    const fn from_bits(bits: u8) -> Self {
        Self { late: bits & 1 != 0, delayed: bits & 2 != 0 }
    }

    const fn bits(self) -> u8 {
        self.late as u8 | (self.delayed as u8) << 1
    }
}

/// Control word that ends with a CRC-8 of its first three characters (5.7.6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckedWord {
    /// [`ControlWord::StartIdleFrame`].
    StartIdleFrame,
    /// [`ControlWord::FlowControlToken`].
    FlowControlToken,
    /// [`ControlWord::Ack`].
    Ack,
    /// [`ControlWord::Nack`].
    Nack,
    /// [`ControlWord::Full`].
    Full,
}

impl fmt::Display for CheckedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartIdleFrame => "SIF",
            Self::FlowControlToken => "FCT",
            Self::Ack => "ACK",
            Self::Nack => "NACK",
            Self::Full => "FULL",
        })
    }
}

/// A control word with a wrong CRC-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("CRC-8 of {word} must be {expected:#04x}, found {found:#04x}")]
pub struct BadCrc8 {
    /// Which word.
    pub word: CheckedWord,
    /// CRC as computed.
    pub expected: u8,
    /// CRC as received.
    pub found: u8,
}
