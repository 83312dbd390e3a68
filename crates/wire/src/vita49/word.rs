//! The 32-bit word, the unit of every length in a packet.

/// Length of a word in bytes.
pub const WORD: usize = 4;
