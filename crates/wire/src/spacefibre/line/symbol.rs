//! 8b/10b symbols: the code of A. X. Widmer and P. A. Franaszek, "A DC-balanced, partitioned-block, 8B/10B transmission
//! code", IBM J. Res. Develop. 27 (1983), which 5.3.2 requires.
//!
//! A character Dx.y or Kx.y has the bits `HGFEDCBA`, where EDCBA is x and HGF is y. It is sent as the bits `abcdei`, the
//! code of x, and `fghj`, the code of y. Symbols here have bit `a`, which is sent first, as their least significant bit.
//!
//! The *running disparity* is negative or positive. A block with more ones than zeros makes it positive, one with more
//! zeros than ones makes it negative, and it selects between two codes of a value, so that ones and zeros balance.

use crate::spacefibre::word::Word;

/// Bits of a symbol.
pub(super) const SYMBOL_BITS: u32 = 10;
const SYMBOL: u16 = (1 << SYMBOL_BITS) - 1;

/// Codes `abcdei` of x = 0 to 31 at negative running disparity, written with `a` first.
const CODES6: [u8; 32] = [
    0b100111, 0b011101, 0b101101, 0b110001, 0b110101, 0b101001, 0b011001, 0b111000, // 0 to 7
    0b111001, 0b100101, 0b010101, 0b110100, 0b001101, 0b101100, 0b011100, 0b010111, // 8 to 15
    0b011011, 0b100011, 0b010011, 0b110010, 0b001011, 0b101010, 0b011010, 0b111010, // 16 to 23
    0b110011, 0b100110, 0b010110, 0b110110, 0b001110, 0b101110, 0b011110, 0b101011, // 24 to 31
];
/// Code `abcdei` of x = 28 in a K-code.
const CODE6_K28: u8 = 0b001111;
/// Codes `fghj` of y = 0 to 7 at negative running disparity, written with `f` first.
const CODES4: [u8; 8] = [0b1011, 0b1001, 0b0101, 0b1100, 0b1101, 0b1010, 0b0110, 0b1110];
/// Code of y = 7 in K-codes, and in D-codes where the usual one would continue a run of equal bits.
const CODE4_A7: u8 = 0b0111;
/// A symbol that is not a code at negative running disparity. Sent instead of K-codes that do not exist. It is
/// balanced, has no long run and forms no comma with the symbols beside it.
const INVALID: u16 = 0b10_0011_1100;

/// Symbols by character, plus [`Symbol::CONTROL`] for a K-code, plus the running disparity as in [`Symbol`].
pub(super) static ENCODE: [Symbol; 1024] = {
    let mut table = [Symbol(0); 1024];
    let mut index = 0;
    while index < 1024 {
        let positive = index as u32 & Symbol::POSITIVE != 0;
        let symbol = encode(index & 511, positive);
        let after = if disparity_after(symbol, positive) { Symbol::POSITIVE } else { Symbol::NEGATIVE };
        table[index] = Symbol(symbol as u32 | after << Symbol::AFTER);
        index += 1;
    }
    table
};

/// Characters by symbol.
pub(super) static DECODE: [Character; 1 << SYMBOL_BITS] = {
    let mut table = [Character(0); 1 << SYMBOL_BITS];
    let mut symbol = 0;
    while symbol <= SYMBOL {
        table[symbol as usize] = Character::new(0, symbol, false, false);
        symbol += 1;
    }
    let mut index = 0;
    while index < 512 {
        if is_code(index) {
            let (negative, positive) = (encode(index, false), encode(index, true));
            let same = negative == positive;
            table[negative as usize] = Character::new(index, negative, true, same);
            table[positive as usize] = Character::new(index, positive, same, true);
        }
        index += 1;
    }
    table
};

/// A symbol, and the running disparity after it, which is represented by what it adds to the index of the next symbol.
#[derive(Clone, Copy)]
pub(super) struct Symbol(u32);

impl Symbol {
    /// What a K-code adds to an index.
    pub(super) const CONTROL: u32 = 256;
    pub(super) const NEGATIVE: u32 = 0;
    pub(super) const POSITIVE: u32 = 512;
    /// Position of the running disparity: a shift by so many bits leaves a valid index.
    const AFTER: u32 = 22;

    /// Returns the bits of the symbol.
    #[inline]
    pub(super) const fn bits(self) -> u64 {
        self.0 as u16 as u64
    }

    /// Returns the running disparity after the symbol.
    #[inline]
    pub(super) const fn after(self) -> u32 {
        self.0 >> Self::AFTER
    }
}

/// The character of a symbol: its value in byte 0, and flags in byte 4. A running disparity is 0 if it is negative, 1 if
/// it is positive.
///
/// Four of these, each shifted by one byte more, are the [`Characters`] of a word.
#[derive(Clone, Copy)]
pub(super) struct Character(u64);

/// Positions of flags.
impl Character {
    /// The symbol changes the running disparity.
    const CHANGE: u32 = 1;
    /// Error at negative running disparity.
    const ERROR: u32 = 0;
    /// Whether that is different at positive running disparity.
    const DIFFERENT: u32 = 2;
    /// K flag.
    const CONTROL: u32 = 3;
    /// Running disparities after the symbol, even if it is an error, from negative and from positive.
    const AFTER: [u32; 2] = [4, 5];
}

impl Character {
    /// Creates an entry: a character (plus 256 for a K-code), its symbol, and whether that is valid at negative and at
    /// positive running disparity.
    const fn new(index: usize, symbol: u16, at_negative: bool, at_positive: bool) -> Self {
        let after = [disparity_after(symbol, false), disparity_after(symbol, true)];
        // A symbol that is valid at both does not change the running disparity.
        let change = at_negative && after[0] || at_positive && !after[1];
        let flags = (change as u64) << Self::CHANGE
            | (!at_negative as u64) << Self::ERROR
            | ((at_negative != at_positive) as u64) << Self::DIFFERENT
            | (index as u64 >> 8) << Self::CONTROL
            | (after[0] as u64) << Self::AFTER[0]
            | (after[1] as u64) << Self::AFTER[1];
        Self(index as u64 & 0xFF | flags << 32)
    }

    /// Returns the running disparity after the symbol, even if the symbol is an error.
    pub(super) const fn after(self, disparity: u32) -> u32 {
        (self.0 >> 32 >> Self::AFTER[disparity as usize & 1]) as u32 & 1
    }
}

/// The characters of a word's four symbols.
#[derive(Clone, Copy)]
pub(super) struct Characters {
    values: u32,
    /// The flags of [`Character`], one byte for each symbol.
    flags: u32,
}

impl Characters {
    /// Bit 0 of each byte.
    const ONES: u32 = 0x0101_0101;

    /// Combines the characters of four symbols.
    #[inline]
    pub(super) const fn new([a, b, c, d]: [Character; 4]) -> Self {
        let all = a.0 | b.0 << 8 | c.0 << 16 | d.0 << 24;
        Self { values: all as u32, flags: (all >> 32) as u32 }
    }

    /// Returns the word.
    #[inline]
    pub(super) const fn word(self) -> Word {
        // The product has bit 0 of byte i at 24 + i.
        let control = (self.flags >> Character::CONTROL & Self::ONES).wrapping_mul(0x0102_0408) >> 24;
        Word { characters: self.values.to_le_bytes(), control: control as u8 }
    }

    /// Returns the running disparity after the word, or `None` if a symbol is an error of the code or of the disparity.
    #[inline]
    pub(super) const fn after(self, disparity: u32) -> Option<u32> {
        let flags = self.flags;
        let change = flags >> Character::CHANGE & Self::ONES;
        // Bit 0 of each byte is the running disparity before the symbol: the sum of all changes before it.
        let before = (change << 8 | disparity).wrapping_mul(Self::ONES);
        let errors = flags >> Character::ERROR ^ flags >> Character::DIFFERENT & before;
        if errors & Self::ONES == 0 { Some((before ^ change) >> 24 & 1) } else { None }
    }
}

/// Returns whether a character (plus 256 for a K-code) has a symbol.
pub(super) const fn is_code(index: usize) -> bool {
    let (x, y) = (index & 31, index >> 5 & 7);
    index < 256 || x == 28 || y == 7 && matches!(x, 23 | 27 | 29 | 30)
}

/// Returns the symbol of a character (plus 256 for a K-code), or an invalid symbol for a K-code that does not exist.
const fn encode(index: usize, positive: bool) -> u16 {
    if !is_code(index) {
        return if positive { !INVALID & SYMBOL } else { INVALID };
    }
    let (x, y, control) = (index & 31, index >> 5 & 7, index >= 256);
    if control && positive {
        // The symbols of a K-code are inverse to each other, also in blocks that are balanced.
        return !encode(index, false) & SYMBOL;
    }
    let code6 = if control && x == 28 { CODE6_K28 } else { CODES6[x] };
    let six = at_disparity(code6, 6, x == 7, positive);
    let between = positive ^ (six.count_ones() != 3);
    let alternate = if between { matches!(x, 11 | 13 | 14) } else { matches!(x, 17 | 18 | 20) };
    let code4 = if y == 7 && (control || alternate) { CODE4_A7 } else { CODES4[y] };
    let four = at_disparity(code4, 4, y == 3, between);
    first_is_lowest(six, 6) | first_is_lowest(four, 4) << 6
}

/// Returns a block's code at this running disparity. Codes that are not balanced, and `has_inverse`, have an inverse.
const fn at_disparity(code: u8, bits: u32, has_inverse: bool, positive: bool) -> u8 {
    let balanced = code.count_ones() * 2 == bits;
    if positive && (has_inverse || !balanced) { !code & ((1 << bits) - 1) } else { code }
}

/// Converts a block that is written with its first bit first.
const fn first_is_lowest(code: u8, bits: u32) -> u16 {
    (code.reverse_bits() >> (8 - bits)) as u16
}

/// Returns the running disparity after any symbol, by the rules for the two blocks: 000111 and 0011 count as positive,
/// 111000 and 1100 as negative.
const fn disparity_after(symbol: u16, positive: bool) -> bool {
    let (six, four) = (symbol & 0x3F, symbol >> 6);
    let positive = match six.count_ones() {
        3 => six == 0b111000 || six != 0b000111 && positive,
        ones => ones > 3,
    };
    match four.count_ones() {
        2 => four == 0b1100 || four != 0b0011 && positive,
        ones => ones > 2,
    }
}
