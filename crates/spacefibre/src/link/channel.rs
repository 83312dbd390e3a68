//! Flow control of one virtual channel (ECSS 5.7.3).

use super::counters::ChannelCounters;
use crate::qos::{VcQos, VcStatus};

/// Upper bound of the credit counter, in words. At least four FCTs of the largest multiplier (ECSS 5.7.3.1a).
pub const MAX_CREDIT_WORDS: u32 = 1 << 16;

/// Words of an FCT with multiplier 1 (ECSS 5.7.3.1e).
pub const FCT_WORDS: u32 = 64;

/// Status of a virtual channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelStatus {
    /// Quality of service.
    pub qos: VcQos,
    /// Bandwidth credit and use.
    pub bandwidth: VcStatus,
    /// Words that the far end has space for.
    pub credit: u32,
    /// Words that the far end may still send.
    pub granted: u32,
    /// Capacity of the input buffer, in words.
    pub input_words: u32,
    /// Counters.
    pub counters: ChannelCounters,
}

/// Credit of both directions of one virtual channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    /// Words that the far end has space for.
    credit: u32,
    /// Words of space at this end for which no FCT was requested.
    free: u32,
    /// Words for which FCTs were requested, and which have not arrived.
    granted: u32,
    /// Capacity of the input buffer, in words.
    input_words: u32,
    counters: ChannelCounters,
}

impl Channel {
    pub(super) fn new(input_words: u32) -> Self {
        Self { credit: 0, free: input_words, granted: 0, input_words, counters: ChannelCounters::default() }
    }

    /// Returns to the state after a link reset: no credit, an empty input buffer.
    pub(super) fn reset(&mut self) {
        *self = Self { counters: self.counters, ..Self::new(self.input_words) };
    }

    pub(super) fn status(&self, qos: VcQos, bandwidth: VcStatus) -> ChannelStatus {
        let Self { credit, granted, input_words, counters, .. } = *self;
        ChannelStatus { qos, bandwidth, credit, granted, input_words, counters }
    }

    pub(super) fn credit(&self) -> u32 {
        self.credit
    }
    /// Returns the words that the far end may still send.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }
    /// Adds the credit of a received FCT. Returns `false` if it exceeds the maximum; the credit is the maximum then.
    pub(super) fn add_credit(&mut self, words: u32) -> bool {
        let sum = self.credit + words;
        self.credit = sum.min(MAX_CREDIT_WORDS);
        sum <= MAX_CREDIT_WORDS
    }
    /// Spends the credit for the words of a new frame.
    pub(super) fn spend(&mut self, words: u32) {
        self.credit = self.credit.saturating_sub(words);
        self.counters.frames_out += 1;
        self.counters.words_out += u64::from(words);
    }

    /// Returns the words of space for which no FCT was requested.
    pub(super) fn free(&self) -> u32 {
        self.free
    }
    /// Requests an FCT of this many words, at most [`Self::free`].
    pub(super) fn grant(&mut self, words: u32) {
        self.free -= words;
        self.granted += words;
    }
    /// Takes the words of a frame that has arrived. Returns `false` if no credit was granted for them.
    pub(super) fn accept(&mut self, words: u32) -> bool {
        match self.granted.checked_sub(words) {
            Some(rest) => {
                self.granted = rest;
                self.counters.frames_in += 1;
                self.counters.words_in += u64::from(words);
                true
            }
            None => false,
        }
    }
    /// Frees the space of words that were read from the input buffer.
    pub(super) fn release(&mut self, words: u32) {
        let used = self.input_words - self.free - self.granted;
        debug_assert!(words <= used, "{words} words released, {used} are in the input buffer");
        self.free += words.min(used);
    }
}
