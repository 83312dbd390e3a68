//! Kinds of words that the multi-lane layer handles differently.

use shotline_wire::spacefibre::Word;
use shotline_wire::spacefibre::character::{
    ACTIVE, ALIGN, COMMA, EEP, END_BROADCAST_FRAME, END_DATA_FRAME, EOP, FILL, RECEIVE_ERROR, RETRY,
    START_BROADCAST_FRAME, START_DATA_FRAME, START_IDLE_FRAME,
};

/// Kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Data word of any frame.
    Data,
    /// SDF.
    StartData,
    /// EDF.
    EndData,
    /// SBF.
    StartBroadcast,
    /// EBF.
    EndBroadcast,
    /// SIF.
    StartIdle,
    /// RETRY.
    Retry,
    /// PAD, which fills the last row of a data frame.
    Pad,
    /// ACTIVE, with any lanes.
    Active,
    /// ALIGN, correct or not.
    Align,
    /// RXERR.
    RxErr,
    /// Any other control word: FCT, ACK, NACK, FULL and unknown ones.
    Other,
}

impl Kind {
    /// Returns the kind of a word.
    #[inline]
    pub(super) fn of(word: Word) -> Self {
        if word.control & 1 == 0 { Self::Data } else { Self::of_control(word) }
    }

    /// Returns the kind of a word that begins with a K-code.
    fn of_control(Word { characters: [first, second, ..], control }: Word) -> Self {
        match (first, second) {
            (EOP | EEP | FILL, _) => Self::Data,
            (RECEIVE_ERROR, _) => Self::RxErr,
            (COMMA, FILL) if control == 0xF => Self::Pad,
            // All others have no further K-code.
            _ if control != 1 => Self::Other,
            (END_DATA_FRAME, _) => Self::EndData,
            (END_BROADCAST_FRAME, _) => Self::EndBroadcast,
            (COMMA, START_DATA_FRAME) => Self::StartData,
            (COMMA, START_BROADCAST_FRAME) => Self::StartBroadcast,
            (COMMA, START_IDLE_FRAME) => Self::StartIdle,
            (COMMA, RETRY) => Self::Retry,
            (COMMA, ACTIVE) => Self::Active,
            (COMMA, ALIGN) => Self::Align,
            _ => Self::Other,
        }
    }
}
