//! Scrambling and CRC-16 of the words that one lane carries of a data frame: a column of its rows (5.6.4.2c to h).
//!
//! Both cover the words from the SDF to the EDF. Broadcast frames, PAD and other control words between them are left
//! out (5.7.6.2.1e, 5.7.6.4b).

use super::kind::Kind;
use shotline_wire::spacefibre::crc::{CRC16_INIT, crc16_update};
use shotline_wire::spacefibre::{Scrambler, Word};

/// Frame that a column's words belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// No data frame.
    None,
    /// A data frame.
    Data,
    /// A broadcast frame within a data frame.
    Broadcast,
}

/// State that encoder and decoder have in common.
#[derive(Clone, Debug)]
struct Column {
    frame: Frame,
    crc: u16,
    scrambler: Scrambler,
    is_scrambled: bool,
}

impl Column {
    const fn new() -> Self {
        Self { frame: Frame::None, crc: CRC16_INIT, scrambler: Scrambler::new(), is_scrambled: false }
    }

    /// Ends the frame, and sets whether further data frames are scrambled.
    fn reset(&mut self, is_scrambled: bool) {
        self.frame = Frame::None;
        self.is_scrambled = is_scrambled;
    }

    /// Scrambles or restores a data word of a data frame.
    #[inline]
    fn scramble(&mut self, word: Word) -> Word {
        if self.is_scrambled { self.scrambler.scramble(word) } else { word }
    }

    /// [`Self::scramble`] for a word of four D-codes.
    #[inline]
    fn scramble_data(&mut self, characters: [u8; 4]) -> [u8; 4] {
        if !self.is_scrambled {
            return characters;
        }
        let key = u32::from_le_bytes(self.scrambler.next_word());
        (u32::from_le_bytes(characters) ^ key).to_le_bytes()
    }

    /// Follows the frames through a control word. Returns the CRC of a data frame that the word ends.
    fn control(&mut self, kind: Kind, word: Word) -> Option<u16> {
        match (kind, self.frame) {
            (Kind::StartData, _) => {
                self.frame = Frame::Data;
                self.crc = crc16_update(CRC16_INIT, &word.characters);
                self.scrambler = Scrambler::new();
            }
            (Kind::EndData, Frame::Data) => {
                self.frame = Frame::None;
                return Some(crc16_update(self.crc, &word.characters[..2]));
            }
            (Kind::StartBroadcast, Frame::Data) => self.frame = Frame::Broadcast,
            (Kind::EndBroadcast, Frame::Broadcast) => self.frame = Frame::Data,
            (Kind::StartIdle | Kind::Retry | Kind::RxErr, _) => self.frame = Frame::None,
            _ => {}
        }
        None
    }
}

/// Scrambles the data words of one lane, and computes the CRC-16 of its EDF words.
#[derive(Clone, Debug)]
pub(super) struct Encoder(Column);

impl Encoder {
    pub(super) const fn new() -> Self {
        Self(Column::new())
    }

    /// Ends the frame, and sets whether further data frames are scrambled.
    pub(super) fn reset(&mut self, is_scrambled: bool) {
        self.0.reset(is_scrambled);
    }

    /// Returns the word as it is sent.
    #[inline(always)]
    pub(super) fn encode(&mut self, word: Word) -> Word {
        if word.control != 0 {
            return self.encode_codes(word);
        }
        let column = &mut self.0;
        if column.frame != Frame::Data {
            return word;
        }
        let characters = column.scramble_data(word.characters);
        column.crc = crc16_update(column.crc, &characters);
        Word::data(characters)
    }

    /// [`Self::encode`] for a word with K-codes.
    fn encode_codes(&mut self, word: Word) -> Word {
        let kind = Kind::of(word);
        let column = &mut self.0;
        if kind != Kind::Data {
            return self.encode_control(kind, word);
        }
        if column.frame != Frame::Data {
            return word;
        }
        let word = column.scramble(word);
        column.crc = crc16_update(column.crc, &word.characters);
        word
    }

    /// [`Self::encode`] for a control word.
    fn encode_control(&mut self, kind: Kind, word: Word) -> Word {
        match self.0.control(kind, word) {
            Some(crc) => {
                let [code, seq, ..] = word.characters;
                let [low, high] = crc.to_le_bytes();
                Word { characters: [code, seq, low, high], ..word }
            }
            None => word,
        }
    }
}

/// Restores the data words of one lane, and checks the CRC-16 of its EDF words.
#[derive(Clone, Debug)]
pub(super) struct Decoder(Column);

impl Decoder {
    pub(super) const fn new() -> Self {
        Self(Column::new())
    }

    /// Ends the frame, and sets whether further data frames are scrambled.
    pub(super) fn reset(&mut self, is_scrambled: bool) {
        self.0.reset(is_scrambled);
    }

    /// [`Self::decode`] for the characters of a word of four D-codes.
    #[inline]
    pub(super) fn decode_data(&mut self, characters: [u8; 4]) -> [u8; 4] {
        let column = &mut self.0;
        if column.frame != Frame::Data {
            return characters;
        }
        column.crc = crc16_update(column.crc, &characters);
        column.scramble_data(characters)
    }

    /// Returns the word as it was before it was sent, and whether it is an EDF with an error: one with a wrong CRC, or
    /// without a data frame that it ends.
    #[inline]
    pub(super) fn decode(&mut self, kind: Kind, word: Word) -> (Word, bool) {
        let column = &mut self.0;
        if kind == Kind::Data {
            if column.frame != Frame::Data {
                return (word, false);
            }
            column.crc = crc16_update(column.crc, &word.characters);
            return (column.scramble(word), false);
        }
        let crc = column.control(kind, word);
        let [.., low, high] = word.characters;
        (word, kind == Kind::EndData && crc != Some(u16::from_le_bytes([low, high])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::spacefibre::character::{EOP, FILL};
    use shotline_wire::spacefibre::{ControlWord, SequenceNumber};

    const SDF1: Word = Word::comma([0xFC, 0x50, 0x01, 0x00]);

    fn encode(is_scrambled: bool, words: &[Word]) -> Vec<Word> {
        let mut encoder = Encoder::new();
        encoder.reset(is_scrambled);
        words.iter().map(|word| encoder.encode(*word)).collect()
    }

    fn decode(is_scrambled: bool, words: &[Word]) -> Vec<(Word, bool)> {
        let mut decoder = Decoder::new();
        decoder.reset(is_scrambled);
        words.iter().map(|word| decoder.decode(Kind::of(*word), *word)).collect()
    }

    #[test]
    fn crcs_of_figure_5_44_are_sent() {
        let end = Word { characters: [EOP, FILL, FILL, FILL], control: 0xF };
        let frame = |vc, words: &[Word], seq| {
            let edf = Word::comma([0x1C, seq, 0, 0]);
            let words = [&[Word::comma([0xFC, 0x50, vc, 0])], words, &[edf]].concat();
            encode(false, &words).last().map(|word| word.characters)
        };
        let part = |characters, control| Word { characters, control };
        assert_eq!(frame(2, &[Word::data([0; 4]), end], 0x41), Some([0x1C, 0x41, 0x8A, 0x97]));
        assert_eq!(frame(1, &[part([0x00, EOP, FILL, FILL], 0xE)], 0x7D), Some([0x1C, 0x7D, 0x3D, 0x35]));
        assert_eq!(frame(1, &[part([0x00, 0x01, 0x02, EOP], 0x8)], 0x7E), Some([0x1C, 0x7E, 0xA1, 0xB7]));
    }

    #[test]
    fn scrambled_frames_match_the_vector() {
        let words = [SDF1, Word::data([0, 1, 2, 3]), Word::data([4, 5, 6, 7]), Word::comma([0x1C, 0x01, 0, 0])];
        let sent = encode(true, &words);
        let characters: Vec<_> = sent.iter().map(|word| word.characters).collect();
        assert_eq!(
            characters,
            [[0xFC, 0x50, 0x01, 0x00], [0xFF, 0x16, 0xC2, 0x17], [0xB6, 0xE2, 0x04, 0x85], [0x1C, 0x01, 0x31, 0x61]]
        );
        assert_eq!(decode(true, &sent)[..3], words.map(|word| (word, false))[..3]);
        assert_eq!(decode(true, &sent)[3], (sent[3], false));
    }

    #[test]
    fn other_words_within_a_frame_are_left_out() {
        let seq = SequenceNumber::from_bits(7);
        let inserted = [
            ControlWord::FlowControlToken { vc: 1, multiplier: 1, seq }.emit(),
            ControlWord::StartBroadcastFrame { channel: 1, kind: 2 }.emit(),
            Word::data([9; 4]),
            Word::data([8; 4]),
            ControlWord::EndBroadcastFrame { status: Default::default(), seq, crc: 0 }.emit(),
            ControlWord::Pad.emit(),
            ControlWord::Ack { seq }.emit(),
            ControlWord::Align { lane: 1, lanes: 4 }.emit(),
        ];
        let (data, edf) = (Word::data([1, 2, 3, 4]), Word::comma([0x1C, 0x01, 0, 0]));
        for is_scrambled in [false, true] {
            let plain = encode(is_scrambled, &[SDF1, data, data, edf]);
            let sent = encode(is_scrambled, &[&[SDF1, data][..], &inserted, &[data, edf]].concat());
            assert_eq!(sent[2..10], inserted);
            assert_eq!([&sent[..2], &sent[10..]].concat(), plain);
            let received = decode(is_scrambled, &sent);
            assert_eq!((received[1], received[10]), ((data, false), (data, false)));
            assert_eq!(received[11], (plain[3], false));
        }
    }

    #[test]
    fn errors_are_reported_with_the_edf() {
        let sent = encode(true, &[SDF1, Word::data([1; 4]), Word::comma([0x1C, 0x01, 0, 0])]);
        for word in 0..3 {
            for bit in 0..32 {
                let mut words = sent.clone();
                words[word].characters[bit / 8] ^= 1 << (bit % 8);
                let received = decode(true, &words);
                assert!(!received[0].1 && !received[1].1);
                // A bit of a code makes another word of SDF and EDF.
                assert_eq!(received[2].1, Kind::of(received[2].0) == Kind::EndData, "{:?}", words[word]);
            }
        }
        assert!(decode(false, &[sent[2]])[0].1, "EDF without SDF");
        for word in [Word::RXERR, ControlWord::Retry.emit(), Word::comma([0xFC, 0x44, 0x00, 0x44])] {
            assert!(decode(true, &[sent[0], sent[1], word, sent[2]])[3].1, "{word:?} ends the frame");
        }
    }

    #[test]
    fn frames_may_be_longer_than_the_keystream_table() {
        let words: Vec<_> = (0..200_u8).map(|index| Word::data([index; 4])).collect();
        let sent = encode(true, &[&[SDF1], &words[..], &[Word::comma([0x1C, 0x01, 0, 0])]].concat());
        let received = decode(true, &sent);
        assert!(received[1..=200].iter().map(|(word, _)| word).eq(&words) && !received[201].1);
    }
}
