//! What a lane makes of a received word.

use shotline_wire::spacefibre::{Capability, ControlWord, LostSignalCause, Word, character};

/// Equal control words that are acted upon.
pub(super) const EQUAL_WORDS: u8 = 3;

/// A received word as the lane layer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// No word was received.
    Nothing,
    /// A word with an error.
    RxErr,
    /// SKIP, which compensates different clocks.
    Skip,
    /// IDLE.
    Idle,
    Init1,
    Init2,
    /// INIT1 with inverted bits.
    InvertedInit1,
    /// INIT2 with inverted bits.
    InvertedInit2,
    /// INIT3 with the far end's capability.
    Init3(Capability),
    /// STANDBY with its reason.
    Standby(u8),
    /// LOST_SIGNAL with its cause.
    LostSignal(LostSignalCause),
    /// Another word that begins with the comma K28.7.
    Comma,
    /// Any other word.
    Other,
}

impl Received {
    /// Returns the meaning of a word.
    pub(super) fn new(word: Word) -> Self {
        match ControlWord::parse(word) {
            Ok(Some(ControlWord::Skip)) => Self::Skip,
            Ok(Some(ControlWord::Idle)) => Self::Idle,
            Ok(Some(ControlWord::Init1)) => Self::Init1,
            Ok(Some(ControlWord::Init2)) => Self::Init2,
            Ok(Some(ControlWord::InvertedInit1)) => Self::InvertedInit1,
            Ok(Some(ControlWord::InvertedInit2)) => Self::InvertedInit2,
            Ok(Some(ControlWord::Init3(capability))) => Self::Init3(capability),
            Ok(Some(ControlWord::Standby { reason })) => Self::Standby(reason),
            Ok(Some(ControlWord::LostSignal(cause))) => Self::LostSignal(cause),
            _ if word.is_rxerr() => Self::RxErr,
            _ if word.is_code(0, character::COMMA) => Self::Comma,
            _ => Self::Other,
        }
    }

    /// Returns `true` if the word begins with the comma K28.7.
    pub(super) const fn is_comma(self) -> bool {
        matches!(self, Self::Skip | Self::Idle | Self::Standby(_) | Self::LostSignal(_) | Self::Comma)
    }
}

/// Counts of received words, as far as exit conditions need them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    /// Counts that an RXERR restarts.
    pub(super) errorless: Errorless,
    /// Consecutive LOST_SIGNAL words, and the cause in the last one.
    lost_signal: Option<(u8, LostSignalCause)>,
    /// Consecutive STANDBY words, and the reason in the last one.
    standby: Option<(u8, u8)>,
}

/// Counts of words without an RXERR between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Errorless {
    /// All words.
    pub(super) words: u16,
    /// Whether INIT1 or INIT2 is among them.
    pub(super) init: bool,
    /// INIT1 with inverted bits.
    pub(super) inverted_init1: u8,
    /// INIT2 with inverted bits.
    pub(super) inverted_init2: u8,
    /// INIT2.
    pub(super) init2: u8,
    /// INIT3 with equal capabilities.
    pub(super) init3: u8,
    /// Capability of the last INIT3.
    pub(super) capability: Capability,
}

impl Runs {
    /// Counts a word.
    pub(super) fn count(&mut self, received: Received) {
        self.count_far_end_stops(received);
        if received == Received::RxErr {
            self.errorless = Errorless::default();
        } else {
            self.errorless.count(received);
        }
    }

    /// Counts consecutive LOST_SIGNAL and STANDBY words. A SKIP does not interrupt them.
    fn count_far_end_stops(&mut self, received: Received) {
        match received {
            Received::LostSignal(cause) => {
                let count = self.lost_signal.map_or(0, |(count, _)| count);
                (self.lost_signal, self.standby) = (Some((count.saturating_add(1), cause)), None);
            }
            Received::Standby(reason) => {
                let count = self.standby.map_or(0, |(count, _)| count);
                (self.lost_signal, self.standby) = (None, Some((count.saturating_add(1), reason)));
            }
            Received::Skip | Received::Nothing => {}
            _ => self.restart_far_end_stops(),
        }
    }

    /// Restarts the counts of LOST_SIGNAL and STANDBY words.
    #[inline]
    pub(super) fn restart_far_end_stops(&mut self) {
        (self.lost_signal, self.standby) = (None, None);
    }

    /// Returns the cause if three LOST_SIGNAL words were received in sequence.
    pub(super) fn lost_signal(&self) -> Option<LostSignalCause> {
        self.lost_signal.filter(|(count, _)| *count >= EQUAL_WORDS).map(|(_, cause)| cause)
    }

    /// Returns the reason if three STANDBY words were received in sequence.
    pub(super) fn standby(&self) -> Option<u8> {
        self.standby.filter(|(count, _)| *count >= EQUAL_WORDS).map(|(_, reason)| reason)
    }
}

impl Errorless {
    /// Counts a word that is not an RXERR.
    fn count(&mut self, received: Received) {
        self.words = self.words.saturating_add(1);
        match received {
            Received::Init1 => self.init = true,
            Received::Init2 => {
                self.init = true;
                self.init2 = self.init2.saturating_add(1);
            }
            Received::InvertedInit1 => self.inverted_init1 = self.inverted_init1.saturating_add(1),
            Received::InvertedInit2 => self.inverted_init2 = self.inverted_init2.saturating_add(1),
            Received::Init3(capability) => {
                let is_equal = self.init3 > 0 && capability == self.capability;
                self.init3 = if is_equal { self.init3.saturating_add(1) } else { 1 };
                self.capability = capability;
            }
            _ => {}
        }
    }
}
