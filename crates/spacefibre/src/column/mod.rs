//! Scrambling and CRC-16 of the data words of one frame that is sent over 1 to 16 lanes.
//!
//! The words of a frame fill rows of one word for each lane, so every lane sends a column of words. Each lane scrambles
//! its column with the random bits of a new generator and has a CRC of its own (5.7.6.2, 5.7.6.4). [`Columns`] does
//! both for all lanes in one pass over the words, in the order in which they are in memory.
//!
//! ```
//! use shotline_spacefibre::column::Columns;
//! use shotline_wire::spacefibre::SequenceNumber;
//!
//! // The data of a frame of virtual channel 1, sent over one lane, and the CRC in the word that ends it.
//! let mut sent = [0; 8];
//! let mut columns = Columns::new(1, 1);
//! columns.scramble(&[0, 1, 2, 3, 4, 5, 6, 7], &mut sent);
//! assert_eq!(sent, [0xFF, 0x16, 0xC2, 0x17, 0xB6, 0xE2, 0x04, 0x85]);
//! assert_eq!(columns.crc(0, SequenceNumber::from_bits(1)), 0x6131);
//! ```

mod form;
mod plain;
#[cfg(target_arch = "x86_64")]
mod sys;
mod tables;

pub use form::{Form, MAX_LANES, MAX_ROWS};

use form::{Rows, States};
use shotline_wire::spacefibre::character::END_DATA_FRAME;
use shotline_wire::spacefibre::crc::crc16_update;
use shotline_wire::spacefibre::{SequenceNumber, Word};
use tables::{KEYS, PADDING, STARTS};

/// Scrambler and CRC-16 of each lane, during the data words of one frame.
///
/// Words are passed in the order of the frame, in any number of calls: to [`scramble`](Self::scramble) or
/// [`descramble`](Self::descramble), or to [`checksum`](Self::checksum) on links that do not scramble. Words with EOP,
/// EEP or Fill, which are not scrambled, are passed one by one to [`scramble_word`](Self::scramble_word) or
/// [`descramble_word`](Self::descramble_word). PAD is not passed, because no CRC covers it.
///
/// A frame that is sent again with another sequence number has other CRCs, but the data words do not change: a copy of
/// this gives the new CRCs.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    form: &'static Form,
    lanes: usize,
    /// Row of the next word.
    row: usize,
    /// Lane of the next word.
    lane: usize,
    states: States,
}

impl Columns {
    /// Starts a frame of a virtual channel over a number of lanes.
    ///
    /// # Panics
    /// If `vc` is above 31, or `lanes` is not 1 to 16.
    #[inline]
    pub fn new(vc: u8, lanes: usize) -> Self {
        Self::with_form(Form::fastest(), vc, lanes)
    }

    /// Starts a frame as [`new`](Self::new) does, with the given form of the kernels, for tests and measurements.
    ///
    /// # Panics
    /// If `vc` is above 31, or `lanes` is not 1 to 16.
    #[inline]
    pub fn with_form(form: &'static Form, vc: u8, lanes: usize) -> Self {
        assert!(usize::from(vc) < STARTS.len(), "virtual channels are 0 to 31, found {vc}");
        assert!((1..=MAX_LANES).contains(&lanes), "a link has 1 to 16 lanes, found {lanes}");
        Self { form, lanes, row: 0, lane: 0, states: [STARTS[usize::from(vc)]; MAX_LANES] }
    }

    /// Writes data words scrambled to `to`. The CRCs cover the scrambled words, as they are sent.
    ///
    /// # Panics
    /// If `data` is not whole words, `to` has another length, or the frame would have more than 64 rows.
    #[inline]
    pub fn scramble(&mut self, data: &[u8], to: &mut [u8]) {
        assert_eq!(data.len(), to.len(), "scrambled words have the same length");
        let (words, rest) = data.as_chunks();
        assert!(rest.is_empty(), "data words have 4 bytes, found {} more", rest.len());
        let scramble = self.form.scramble;
        self.pass((words, to.as_chunks_mut().0), plain::scramble, |(words, to), rows, states: &mut States| {
            scramble(words, to, rows, states)
        });
    }

    /// Descrambles data words. The CRCs cover the scrambled words, as they were received.
    ///
    /// # Panics
    /// If `data` is not whole words, or the frame would have more than 64 rows.
    #[inline]
    pub fn descramble(&mut self, data: &mut [u8]) {
        let (words, rest) = data.as_chunks_mut();
        assert!(rest.is_empty(), "data words have 4 bytes, found {} more", rest.len());
        self.pass(words, plain::descramble, self.form.descramble);
    }

    /// Advances the CRCs over data words of a link that does not scramble, with the value of each character.
    ///
    /// # Panics
    /// If `data` is not whole words, or the frame would have more than 64 rows.
    #[inline]
    pub fn checksum(&mut self, data: &[u8]) {
        let (words, rest) = data.as_chunks();
        assert!(rest.is_empty(), "data words have 4 bytes, found {} more", rest.len());
        self.pass(words, plain::checksum, self.form.checksum);
    }

    /// Scrambles the D-codes of one word.
    ///
    /// # Panics
    /// If the frame would have more than 64 rows.
    #[inline]
    pub fn scramble_word(&mut self, word: Word) -> Word {
        let sent = self.change(word);
        self.checksum(&sent.characters);
        sent
    }

    /// Descrambles the D-codes of one word.
    ///
    /// # Panics
    /// If the frame would have more than 64 rows.
    #[inline]
    pub fn descramble_word(&mut self, word: Word) -> Word {
        let data = self.change(word);
        self.checksum(&word.characters);
        data
    }

    /// Returns the CRC that ends the frame on a lane: that of the SDF, the words passed so far, and the first two
    /// characters of an EDF with this sequence number.
    ///
    /// # Panics
    /// If `lane` is not below the number of lanes.
    #[inline]
    pub fn crc(&self, lane: usize, seq: SequenceNumber) -> u16 {
        crc16_update(self.states[..self.lanes][lane], &[END_DATA_FRAME, seq.bits()])
    }

    /// Returns the next word scrambled or descrambled. After the last row, the key is padding.
    fn change(&self, word: Word) -> Word {
        let key = KEYS[PADDING + self.row].to_le_bytes();
        let mut characters = word.characters;
        for (index, (character, key)) in characters.iter_mut().zip(key).enumerate() {
            if word.control >> index & 1 == 0 {
                *character ^= key;
            }
        }
        Word { characters, ..word }
    }

    /// Passes words to the plain kernel up to the end of a row that was begun, then whole rows to the other kernel, and
    /// the rest to the plain kernel.
    #[inline]
    fn pass<W: Words>(
        &mut self,
        words: W,
        plain: impl Fn(W, usize, usize, &mut [u16]),
        whole: impl Fn(W, Rows, &mut States),
    ) {
        let Self { lanes, row, lane, .. } = *self;
        let end = row * lanes + lane + words.len();
        assert!(end <= MAX_ROWS * lanes, "a frame has at most {MAX_ROWS} rows of {lanes} words, found {end} words");
        let mut rest = words;
        if lane > 0 {
            let places = rest.len().min(lanes - lane);
            let (begun, after) = rest.split(places);
            self.lane += begun.len();
            plain(begun, lanes, row, &mut self.states[lane..]);
            if self.lane < lanes {
                return;
            }
            (self.row, self.lane, rest) = (row + 1, 0, after);
        }
        // Both are small: a division of 32 bits is faster than one of 64.
        let count = (rest.len() as u32 / lanes as u32) as usize;
        let (rows, rest) = rest.split(count * lanes);
        if count > 0 {
            whole(rows, Rows { first: self.row as u8, count: count as u8, lanes: lanes as u8 }, &mut self.states);
            self.row += count;
        }
        if rest.len() > 0 {
            self.lane = rest.len();
            plain(rest, lanes, self.row, &mut self.states);
        }
    }
}

impl Form {
    /// Returns the forms that this processor supports, fastest first. The last is plain Rust.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        #[cfg(target_arch = "x86_64")]
        let others = sys::available();
        #[cfg(not(target_arch = "x86_64"))]
        let others = [];
        others.into_iter().chain([&plain::FORM])
    }

    /// Returns the fastest form that this processor supports.
    #[inline]
    pub fn fastest() -> &'static Self {
        Self::available().next().unwrap_or(&plain::FORM)
    }
}

/// A slice of words, shared or exclusive.
trait Words: Sized {
    fn len(&self) -> usize;
    fn split(self, at: usize) -> (Self, Self);
}

impl Words for &[[u8; 4]] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }
    fn split(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

/// Words, and where as many are written.
impl Words for (&[[u8; 4]], &mut [[u8; 4]]) {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn split(self, at: usize) -> (Self, Self) {
        let ((words, rest), (to, to_rest)) = (self.0.split_at(at), self.1.split_at_mut(at));
        ((words, to), (rest, to_rest))
    }
}

impl Words for &mut [[u8; 4]] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }
    fn split(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

#[cfg(test)]
mod tests;
