//! The word: four characters with a K flag each.

use super::character::{EEP, EOP, FILL, RECEIVE_ERROR};
use core::fmt;

/// Four characters in sending order, with a K flag each.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    /// Values of the characters. The first is sent first.
    pub characters: [u8; 4],
    /// K flags: bit i is set if character i is a K-code. Bits 4 to 7 are 0.
    pub control: u8,
}

impl Word {
    /// A word that was received with an error (5.3.6). It is never sent.
    pub const RXERR: Self = Self::comma([RECEIVE_ERROR, 0, 0, 0]);

    /// Creates a word of four D-codes.
    #[inline]
    pub const fn data(characters: [u8; 4]) -> Self {
        Self { characters, control: 0 }
    }

    /// Creates a word that begins with a K-code.
    #[inline]
    pub const fn comma(characters: [u8; 4]) -> Self {
        Self { characters, control: 1 }
    }

    /// Returns whether this is [`Word::RXERR`].
    #[inline]
    pub fn is_rxerr(self) -> bool {
        self == Self::RXERR
    }

    /// Returns whether this is a word of a frame's data: its first character is a D-code, EOP, EEP or Fill (5.7.8).
    #[inline]
    pub fn is_data(self) -> bool {
        self.control & 1 == 0 || matches!(self.characters[0], FILL | EOP | EEP)
    }

    /// Returns whether character `index` is the K-code `code`; `false` if `index` is above 3.
    #[inline]
    pub fn is_code(self, index: usize, code: u8) -> bool {
        index < 4 && self.control >> index & 1 == 1 && self.characters[index] == code
    }
}

/// `K:FC CE 7F 7F`: the characters in hexadecimal, K-codes marked with `K:`.
impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, character) in self.characters.iter().enumerate() {
            let mark = if self.control >> index & 1 == 1 { "K:" } else { "" };
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{mark}{character:02X}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn first_character_decides_whether_a_word_is_data() {
        for control in 0..16 {
            for first in 0..=255 {
                let word = Word { characters: [first, EOP, FILL, FILL], control };
                assert_eq!(word.is_data(), control & 1 == 0 || [0xFB, 0xFD, 0xFE].contains(&first), "{word:?}");
            }
        }
        assert!(!Word::RXERR.is_data() && Word::RXERR.is_rxerr());
        assert!(Word::data([0; 4]).is_data() && !Word::data([0; 4]).is_rxerr());
    }

    #[test]
    fn codes_are_found_by_position_and_flag() {
        let word = Word { characters: [1, 2, EOP, EOP], control: 0b100 };
        assert_eq!(
            [0, 1, 2, 3, 4, usize::MAX].map(|index| word.is_code(index, EOP)),
            [false, false, true, false, false, false]
        );
        assert_eq!(format!("{word:?} {:?}", Word::RXERR), "01 02 K:FD FD K:00 00 00 00");
    }
}
