//! Data segments that wait for their acknowledgement, as words before they are scrambled.

use crate::link::{DATA_SLOTS, Segment};
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::{Word, character};
use std::ops::Range;

/// The contents of all slots of the error recovery buffer. Each lane scrambles its own words, when they are sent.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    /// Maximum length of a segment, in words.
    max_words: usize,
    words: Box<[Word]>,
}

impl Segments {
    /// Creates slots for segments of up to `max_words` words.
    pub(super) fn new(max_words: usize) -> Self {
        Self { max_words, words: vec![Word::data([0; 4]); max_words * DATA_SLOTS].into() }
    }

    /// Stores the next characters of a packet, and its end if it follows, as a segment. Returns the length in words.
    pub(super) fn store(&mut self, slot: usize, characters: &[u8], end: Option<PacketEnd>) -> u32 {
        let slot = &mut self.words[slot * self.max_words..][..self.max_words];
        let (whole, rest) = characters.as_chunks::<4>();
        for (word, characters) in slot.iter_mut().zip(whole) {
            *word = Word::data(*characters);
        }
        if let Some(end) = end {
            slot[whole.len()] = last_word(rest, end);
        }
        debug_assert!(
            end.is_some() || rest.is_empty(),
            "without an end a source has whole words, found {} bytes",
            characters.len()
        );
        (whole.len() + usize::from(end.is_some())) as u32
    }

    /// Returns the positions of a segment's words.
    pub(super) fn range(&self, Segment { slot, words, .. }: Segment) -> Range<usize> {
        let first = slot * self.max_words;
        first..first + words as usize
    }

    /// Returns the words at these positions.
    #[inline]
    pub(super) fn words(&self, positions: Range<usize>) -> &[Word] {
        &self.words[positions]
    }
}

/// Returns the last word of a packet: up to 3 characters, its end, and Fills.
fn last_word(rest: &[u8], end: PacketEnd) -> Word {
    let mut characters = [character::FILL; 4];
    let used = rest.len().min(3);
    characters[..used].copy_from_slice(&rest[..used]);
    characters[used] = end.character();
    Word { characters, control: 0xF << used & 0xF }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::spacefibre::character::{EEP, EOP, FILL};

    #[test]
    fn segments_are_words_with_the_end_of_the_packet_and_fills() {
        let mut segments = Segments::new(4);
        for (bytes, end, expected) in [
            (&[][..], PacketEnd::Eop, Word { characters: [EOP, FILL, FILL, FILL], control: 0b1111 }),
            (&[1], PacketEnd::Eep, Word { characters: [1, EEP, FILL, FILL], control: 0b1110 }),
            (&[1, 2], PacketEnd::Eop, Word { characters: [1, 2, EOP, FILL], control: 0b1100 }),
            (&[1, 2, 3], PacketEnd::Eop, Word { characters: [1, 2, 3, EOP], control: 0b1000 }),
        ] {
            let bytes = [&[9; 4][..], bytes].concat();
            assert_eq!(segments.store(3, &bytes, Some(end)), 2);
            let positions = segments.range(Segment { slot: 3, vc: 0, words: 2 });
            assert_eq!(positions, 12..14);
            assert_eq!(segments.words(positions), [Word::data([9; 4]), expected]);
        }
        assert_eq!(segments.store(3, &[0; 8], None), 2);
    }
}
