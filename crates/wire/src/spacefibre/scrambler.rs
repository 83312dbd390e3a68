//! The random bits that scramble data frames and fill idle frames (5.7.6.2).

use super::word::Word;

/// x^16 + x^5 + x^4 + x^3 + 1 without its highest power: bit i is x^i.
const POLYNOMIAL: u16 = 0x0039;
/// State at the beginning of each data frame, and of idle frames after a link reset.
const SEED: u16 = 0xFFFF;
/// Bits of a word.
const WORD_BITS: u32 = 32;

/// Generator of the random bits, whose least significant bit is used first.
///
/// Each data frame starts with a new generator. Idle frames continue one generator from link reset to link reset. The
/// words repeat after 65,535.
///
/// ```
/// use shotline_wire::spacefibre::{Scrambler, Word};
/// let data = Word { characters: [8, 0xFD, 0xFB, 0xFB], control: 0b1110 };
/// let mut scrambler = Scrambler::new();
/// let sent = scrambler.scramble(data);
/// // Only D-codes are scrambled. Scrambling again restores them.
/// assert_eq!(sent, Word { characters: [8 ^ 0xFF, 0xFD, 0xFB, 0xFB], control: 0b1110 });
/// assert_eq!(Scrambler::new().scramble(sent), data);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrambler {
    state: u16,
}

/// First words of a new [`Scrambler`]: those of a data frame of one lane.
pub const KEYSTREAM: [[u8; 4]; 64] = {
    let mut words = [[0; 4]; 64];
    let mut scrambler = Scrambler::new();
    let mut index = 0;
    while index < 64 {
        words[index] = scrambler.next_word();
        index += 1;
    }
    words
};

/// `STEPS[k][b]` is the contribution of byte `k` of the state with the value `b` to the next word (bits 0 to 31) and to
/// the state after it (bits 32 to 47). The generator is linear, so contributions are added with XOR.
static STEPS: [[u64; 256]; 2] = {
    let mut steps = [[0; 256]; 2];
    let mut byte = 0;
    while byte < 256 {
        steps[0][byte] = step(byte as u16);
        steps[1][byte] = step((byte as u16) << 8);
        byte += 1;
    }
    steps
};

/// Returns the next word and the state after it, from the shift register of figure 5-41.
const fn step(mut state: u16) -> u64 {
    let mut word = 0;
    let mut bit = 0;
    while bit < WORD_BITS {
        let out = state >> 15;
        word |= (out as u64) << bit;
        state = state << 1 ^ POLYNOMIAL & out.wrapping_neg();
        bit += 1;
    }
    word | (state as u64) << WORD_BITS
}

impl Scrambler {
    /// Creates the generator of a new data frame, or of idle frames after a link reset.
    #[inline]
    pub const fn new() -> Self {
        Self { state: SEED }
    }

    /// Returns the next 32 random bits as the characters of a data word.
    #[inline]
    pub const fn next_word(&mut self) -> [u8; 4] {
        let [low, high] = self.state.to_le_bytes();
        let step = STEPS[0][low as usize] ^ STEPS[1][high as usize];
        self.state = (step >> WORD_BITS) as u16;
        (step as u32).to_le_bytes()
    }

    /// Scrambles a word of a data frame, or restores a scrambled one. K-codes stay as they are, but use random bits.
    #[inline]
    pub const fn scramble(&mut self, word: Word) -> Word {
        let key = u32::from_le_bytes(self.next_word());
        // Bit i of the flags to byte i, as a mask of ones where the flag is 0.
        let flags = word.control as u32 & 0xF;
        let ones = (flags.wrapping_mul(0x0020_4081) & 0x0101_0101).wrapping_mul(0xFF);
        let characters = (u32::from_le_bytes(word.characters) ^ key & !ones).to_le_bytes();
        Word { characters, control: word.control }
    }
}

impl Default for Scrambler {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn first_words_match_the_standard() {
        let first: [u32; 10] = [
            0x14C0_17FF,
            0x8202_E7B2,
            0xA628_6E72,
            0x8DBF_6DBE,
            0xE6A7_40BE,
            0xB2E2_D32C,
            0x2A77_0207,
            0xE0BE_34CD,
            0xB124_5DA7,
            0x22BD_A19B,
        ];
        let mut scrambler = Scrambler::new();
        assert_eq!(first.map(|_| u32::from_le_bytes(scrambler.next_word())), first);
        assert_eq!(KEYSTREAM[..10], first.map(u32::to_le_bytes));
        let mut scrambler = Scrambler::new();
        assert_eq!(KEYSTREAM.map(|_| scrambler.next_word()), KEYSTREAM);
    }

    #[test]
    fn data_of_figure_5_42_is_scrambled() {
        let mut scrambler = Scrambler::new();
        assert_eq!(scrambler.scramble(Word::data([0, 1, 2, 3])), Word::data([0xFF, 0x16, 0xC2, 0x17]));
        assert_eq!(scrambler.scramble(Word::data([4, 5, 6, 7])), Word::data([0xB6, 0xE2, 0x04, 0x85]));
        let end = Word { characters: [8, 0xFD, 0xFB, 0xFB], control: 0b1110 };
        assert_eq!(scrambler.scramble(end), Word { characters: [0x7A, 0xFD, 0xFB, 0xFB], control: 0b1110 });
    }

    #[test]
    fn words_repeat_after_65535() {
        let mut scrambler = Scrambler::new();
        let mut seen = HashSet::new();
        while seen.insert(scrambler.state) {
            scrambler.next_word();
        }
        assert_eq!((scrambler.state, seen.len()), (SEED, 65_535));
    }

    proptest! {
        #[test]
        fn only_d_codes_are_scrambled_and_all_are_restored(words: [([u8; 4], u8); 64]) {
            let (mut there, mut back) = (Scrambler::new(), Scrambler::new());
            for ((characters, control), key) in words.into_iter().zip(KEYSTREAM) {
                let word = Word { characters, control: control & 0xF };
                let sent = there.scramble(word);
                for index in 0..4 {
                    let mask = if control >> index & 1 == 1 { 0 } else { key[index] };
                    prop_assert_eq!(sent.characters[index], characters[index] ^ mask);
                }
                prop_assert_eq!(back.scramble(sent), word);
            }
        }
    }
}
