//! 8b/10b lines of all lanes of a link.

use super::WordLink;
use crate::multilane::MAX_LANES;
use arrayvec::ArrayVec;
use shotline_wire::spacefibre::Word;
use shotline_wire::spacefibre::line::{Decoder, Encoder};

/// Encoder and decoder of a lane.
#[derive(Clone, Debug)]
struct Line {
    encoder: Encoder,
    decoder: Decoder,
    is_inverted: bool,
}

/// 8b/10b encoders and decoders of a link's lanes. Line bits are those of [`line`](shotline_wire::spacefibre::line).
#[derive(Clone, Debug)]
pub struct Lines(ArrayVec<Line, MAX_LANES>);

impl Lines {
    /// Creates the lines of a link.
    ///
    /// # Panics
    /// If there are more than 16 lanes.
    pub fn new(lanes: usize) -> Self {
        let line = Line { encoder: Encoder::new(), decoder: Decoder::new(), is_inverted: false };
        Self(std::iter::repeat_n(line, lanes).collect())
    }

    /// Takes the next 40 line bits of a lane, or `None` without signal: [`WordLink::receive`] after the decoder, which is
    /// off or inverts the bits as the lane requires.
    ///
    /// # Panics
    /// If the link does not have this lane.
    #[inline(always)]
    pub fn receive(&mut self, link: &mut WordLink, lane: usize, bits: Option<u64>) {
        let Line { decoder, is_inverted, .. } = &mut self.0[lane];
        let state = link.lanes().lane(lane);
        // The receiver of a lane that stays active is not changed.
        if !state.is_steady() {
            if !state.receives() {
                decoder.reset();
            }
            if state.invert_rx() != *is_inverted {
                *is_inverted = !*is_inverted;
                decoder.set_inverted(*is_inverted);
            }
        }
        link.receive(lane, bits.map(|bits| decoder.decode(bits)));
    }

    /// Returns the line bits of the words that [`WordLink::step`] has returned, or `None` for a lane whose driver is off.
    #[inline]
    pub fn encode(&mut self, words: &[Option<Word>; MAX_LANES], bits: &mut [Option<u64>; MAX_LANES]) {
        for ((line, word), bits) in self.0.iter_mut().zip(words).zip(bits) {
            *bits = word.map(|word| line.encoder.encode(word));
        }
    }
}
