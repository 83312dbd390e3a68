//! Line of one lane in one direction: 8b/10b, a delay, an elastic buffer, and faults.

use shotline_random::SplitMix64;
use shotline_wire::spacefibre::line::{Encoder, LINE_BITS};
use shotline_wire::spacefibre::{ControlWord, Word};
use std::collections::VecDeque;

/// All line bits of a word.
pub const WORD: u64 = (1 << LINE_BITS) - 1;

#[derive(Clone)]
pub struct Line {
    encoder: Encoder,
    /// Delay in words that the elastic buffer keeps, plus or minus nothing or one word more.
    delay: usize,
    /// Line bits of words on the way.
    words: VecDeque<Option<u64>>,
    /// Bits that have arrived and are no whole word yet.
    bits: u128,
    len: u32,
    /// Whether the two wires are swapped.
    is_inverted: bool,
    /// Whether nothing arrives.
    pub is_cut: bool,
    /// Bits to be inverted in the next word.
    pub flips: u64,
}

impl Line {
    pub fn new(delay: usize, is_inverted: bool) -> Self {
        Self {
            encoder: Encoder::new(),
            delay,
            words: vec![None; delay].into(),
            bits: 0,
            len: LINE_BITS / 2,
            is_inverted,
            is_cut: false,
            flips: 0,
        }
    }

    /// Sends a word. The elastic buffer removes or doubles SKIPs.
    pub fn send(&mut self, word: Option<Word>, random: &mut SplitMix64) {
        let mut copies = 1;
        if word == Some(ControlWord::Skip.emit()) {
            let wanted = self.delay + random.below(2) as usize;
            copies = match self.words.len().cmp(&wanted) {
                std::cmp::Ordering::Less => 2,
                std::cmp::Ordering::Equal => 1,
                std::cmp::Ordering::Greater => 0,
            };
        }
        for _ in 0..copies {
            self.words.push_back(word.map(|word| self.encoder.encode(word)));
        }
    }

    /// Returns the whole words that arrive in a word time, or `None` without signal.
    pub fn receive(&mut self) -> Option<impl Iterator<Item = u64>> {
        let arrived = self.words.pop_front().flatten().filter(|_| !self.is_cut)?;
        let flips = std::mem::take(&mut self.flips) ^ if self.is_inverted { WORD } else { 0 };
        self.bits |= u128::from(arrived ^ flips) << self.len;
        self.len += LINE_BITS;
        let bits = self.bits;
        let count = self.len / LINE_BITS;
        self.bits >>= count * LINE_BITS;
        self.len %= LINE_BITS;
        Some((0..count).map(move |word| (bits >> (word * LINE_BITS)) as u64))
    }

    /// Loses or repeats a bit.
    pub fn slip_bit(&mut self, random: &mut SplitMix64) {
        if random.chance(0.5) {
            self.bits >>= 1;
            self.len = self.len.saturating_sub(1);
        } else {
            self.bits <<= 1;
            self.len += 1;
        }
    }

    pub fn repeat_word(&mut self) {
        self.words.extend(self.words.front().copied());
        self.words.rotate_right(1);
    }

    pub fn lose_word(&mut self) {
        if self.words.len() > 1 {
            self.words.pop_front();
        }
    }
}
