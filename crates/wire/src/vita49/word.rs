//! The word, the unit of every length in a packet.

/// Bytes of a word.
pub const WORD: usize = 4;
