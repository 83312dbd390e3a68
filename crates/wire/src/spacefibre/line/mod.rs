//! Words as the bits of a lane's line: 8b/10b symbols, word alignment and receive errors (5.3.2, 5.5.6 to 5.5.8).
//!
//! The line bits of a word are the 40 low bits of a `u64`, of which bit 0 is sent first.
//!
//! ```
//! use shotline_wire::spacefibre::line::{Decoder, Encoder, SyncState};
//! use shotline_wire::spacefibre::{ControlWord, Word};
//! let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
//! for _ in 0..4 {
//!     decoder.decode(encoder.encode(ControlWord::Idle.emit()));
//! }
//! assert_eq!(decoder.sync(), SyncState::Ready);
//! let words = [Word::data(*b"data"), ControlWord::Retry.emit(), Word::data([0; 4]), Word::data([0; 4])];
//! let received = words.map(|word| decoder.decode(encoder.encode(word)));
//! // A word is returned two calls later.
//! assert_eq!(received[2..], words[..2]);
//! ```

use super::word::Word;
use symbol::{Character, Characters, DECODE, ENCODE, SYMBOL_BITS, Symbol};

mod symbol;

#[cfg(test)]
mod tests;

/// Line bits of a word.
pub const LINE_BITS: u32 = 4 * SYMBOL_BITS;
/// Calls of [`Decoder::decode`] from the one with a word's first bit to the one that returns the word.
pub const DECODER_LATENCY: usize = 2;

const LINE: u64 = (1 << LINE_BITS) - 1;
const SYMBOL: u64 = (1 << SYMBOL_BITS) - 1;
/// Words with errors in a row that lose the synchronisation (5.5.8).
const MAX_ERRORS: u8 = 5;

/// Encoder of words as line bits.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    /// Running disparity, as in `Symbol`.
    disparity: u32,
}

impl Encoder {
    /// Creates an encoder with negative running disparity.
    #[inline]
    pub const fn new() -> Self {
        Self { disparity: Symbol::NEGATIVE }
    }

    /// Returns the 40 line bits of a word.
    ///
    /// [`Word::RXERR`], and other words with a K-code that 8b/10b does not have, are sent with invalid symbols: the
    /// receiver returns [`Word::RXERR`].
    #[inline]
    pub fn encode(&mut self, word: Word) -> u64 {
        let characters = u32::from_le_bytes(word.characters);
        if word.control == 0 { self.send(characters, 0) } else { self.send(characters, word.control.into()) }
    }

    /// Compiled twice: without K-codes the index of a symbol is simply the character.
    #[inline(always)]
    fn send(&mut self, characters: u32, control: u32) -> u64 {
        let mut line = 0;
        for index in 0..4 {
            let value = characters >> (8 * index) & 0xFF;
            let code = (control >> index & 1) * Symbol::CONTROL;
            let symbol = ENCODE[(value | code | self.disparity) as usize % ENCODE.len()];
            line |= symbol.bits() << (index * SYMBOL_BITS);
            self.disparity = symbol.after();
        }
        line
    }
}

/// State of the receive synchronisation (figure 5-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncState {
    /// The position of words is unknown, and each is received as [`Word::RXERR`].
    LostSync,
    /// A comma was found, or a word had an error.
    CheckSync,
    /// The last word was received without errors.
    Ready,
}

/// Decoder of line bits as words.
///
/// A word with an error is returned as [`Word::RXERR`], and so is the word before it (5.5.7): an error of the running
/// disparity may be found only in the word after the one with the wrong bit. A comma in any other position than the
/// first of a word moves the position of words: the word that begins with it, and the one before, are
/// [`Word::RXERR`]. The decoder thus finds a bit that the line lost or doubled at the next comma, if not before.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// The last 40 bits received, whose word is not decoded yet.
    bits: u64,
    /// Position of words in the bits, 0 to 39.
    offset: u32,
    /// Running disparity, as in `Character`.
    disparity: u32,
    sync: SyncState,
    /// Words with errors in a row.
    errors: u8,
    /// The last word decoded. An error in the next one changes it to RXERR.
    held: Word,
    /// XORed with the bits received.
    inversion: u64,
}

impl Decoder {
    /// Creates a decoder without synchronisation.
    #[inline]
    pub const fn new() -> Self {
        Self { bits: 0, offset: 0, disparity: 0, sync: SyncState::LostSync, errors: 0, held: Word::RXERR, inversion: 0 }
    }

    /// Takes the next 40 line bits, which may begin anywhere in a word, and returns the next word. Bits 40 to 63 are
    /// ignored.
    #[inline]
    pub fn decode(&mut self, bits: u64) -> Word {
        let bits = (bits ^ self.inversion) & LINE;
        let window = self.bits | bits << LINE_BITS;
        if starts(window) & LINE & !(1 << self.offset) != 0 || self.sync != SyncState::Ready {
            // Each comma is seen once: when its first bit is in the low 40.
            return self.synchronise(bits, commas(window) & LINE);
        }
        let line = self.word_bits(bits);
        let characters = Characters::new(symbols(line));
        self.bits = bits;
        let Some(disparity) = characters.after(self.disparity) else {
            return self.receive_error(line);
        };
        self.disparity = disparity;
        core::mem::replace(&mut self.held, characters.word())
    }

    /// Returns the bits of the next word, with other bits above the low 40.
    #[inline]
    fn word_bits(&self, bits: u64) -> u64 {
        self.bits >> self.offset | bits << (LINE_BITS - self.offset)
    }

    /// Decodes a word before Ready, or with a comma that moves the position of words.
    #[cold]
    fn synchronise(&mut self, bits: u64, commas: u64) -> Word {
        if commas & !(1 << self.offset) != 0 {
            // Of several commas, each moves the position, so the last one determines it.
            self.offset = commas.ilog2();
            self.sync = SyncState::LostSync;
            self.held = Word::RXERR;
        }
        let at_comma = commas >> self.offset & 1 == 1;
        let line = self.word_bits(bits);
        if at_comma && self.sync == SyncState::LostSync {
            // The running disparity is not known before the first comma, which determines it: K28 begins with 001111 if
            // it is negative, with 110000 if it is positive.
            self.disparity = (line & 1) as u32;
        }
        let characters = Characters::new(symbols(line));
        self.bits = bits;
        let Some(disparity) = characters.after(self.disparity) else {
            return self.receive_error(line);
        };
        self.disparity = disparity;
        self.errors = 0;
        let (received, sync) = match self.sync {
            SyncState::LostSync if at_comma => (Word::RXERR, SyncState::CheckSync),
            SyncState::LostSync => (Word::RXERR, SyncState::LostSync),
            SyncState::CheckSync | SyncState::Ready => (characters.word(), SyncState::Ready),
        };
        self.sync = sync;
        core::mem::replace(&mut self.held, received)
    }

    /// Receives a word with an error: the word and the one before it become RXERR, the latter at once.
    #[cold]
    fn receive_error(&mut self, line: u64) -> Word {
        self.disparity = symbols(line).iter().fold(self.disparity, |disparity, character| character.after(disparity));
        self.held = Word::RXERR;
        self.sync = match self.sync {
            SyncState::LostSync => SyncState::LostSync,
            SyncState::CheckSync | SyncState::Ready => {
                self.errors += 1;
                if self.errors < MAX_ERRORS { SyncState::CheckSync } else { SyncState::LostSync }
            }
        };
        if self.sync == SyncState::LostSync {
            self.errors = 0;
        }
        Word::RXERR
    }

    /// Loses the synchronisation, as when the receiver or its clock recovery is switched off.
    pub fn reset(&mut self) {
        *self = Self { offset: self.offset, inversion: self.inversion, ..Self::new() };
    }

    /// Inverts the bits received from now on, or does not: the state InvertRxPolarity of a lane (5.5.2.8).
    pub fn set_inverted(&mut self, inverted: bool) {
        let inversion = if inverted { LINE } else { 0 };
        self.bits ^= self.inversion ^ inversion;
        self.inversion = inversion;
    }

    /// Returns the state of the receive synchronisation.
    #[inline]
    pub fn sync(&self) -> SyncState {
        self.sync
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns what the four symbols of a word are.
#[inline]
fn symbols(line: u64) -> [Character; 4] {
    [0, 1, 2, 3].map(|index| DECODE[(line >> (index * SYMBOL_BITS) & SYMBOL) as usize])
}

/// Returns a mask of the positions at which a comma K28.5 or K28.7 begins, of either disparity. Bits from 54 on are not
/// valid.
///
/// The whole symbol is compared, not only the seven bits that no other sequence of symbols contains, because a bit error
/// in other symbols then forms a false comma less often.
#[inline]
const fn commas(bits: u64) -> u64 {
    // After the first seven bits the first bit again, any bit, the first bit again: 0011111010, 0011111000 and their
    // inverses. `differ` has the positions of bits that differ from the next one.
    let differ = bits ^ bits >> 1;
    starts(bits) & differ >> 6 & !((differ ^ differ >> 1) >> 7)
}

/// Returns a mask of the positions at which the first seven bits of a comma begin: two bits, five inverse bits. They are
/// also those of K28.1, and may follow a K28.7.
#[inline]
const fn starts(bits: u64) -> u64 {
    let differ = bits ^ bits >> 1;
    let two = differ | differ >> 1;
    let four = two | two >> 2;
    !(differ | four >> 2) & differ >> 1
}
