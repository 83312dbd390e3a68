//! State and event indicators, in the trailer (5.1.6) and in a context field (9.10.8).

/// A state or event that the sender can report as true or false.
///
/// The discriminant is the enable bit; the indicator itself is 12 bits below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Indicator {
    /// Timestamps are calibrated.
    CalibratedTime = 31,
    /// The samples are valid.
    ValidData = 30,
    /// All relevant oscillators are locked to their reference.
    ReferenceLock = 29,
    /// The gain is controlled automatically.
    AutomaticGain = 28,
    /// A signal is detected.
    DetectedSignal = 27,
    /// The spectrum is inverted.
    SpectralInversion = 26,
    /// A converter was driven beyond its range.
    OverRange = 25,
    /// Samples are missing.
    SampleLoss = 24,
}

impl Indicator {
    /// All indicators.
    pub const ALL: [Self; 8] = [
        Self::CalibratedTime,
        Self::ValidData,
        Self::ReferenceLock,
        Self::AutomaticGain,
        Self::DetectedSignal,
        Self::SpectralInversion,
        Self::OverRange,
        Self::SampleLoss,
    ];

    fn get(self, word: u32) -> Option<bool> {
        (word & 1 << self as u32 != 0).then_some(word & 1 << (self as u32 - 12) != 0)
    }

    fn set(self, word: u32, value: bool) -> u32 {
        let (enable, indicator) = (1 << self as u32, 1 << (self as u32 - 12));
        word & !indicator | enable | if value { indicator } else { 0 }
    }
}

/// The trailer: last word of a data packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trailer(pub u32);

impl Trailer {
    /// Parses the word.
    pub fn parse(bytes: &[u8; 4]) -> Self {
        Self(u32::from_be_bytes(*bytes))
    }

    /// Encodes the word.
    pub fn emit(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// Returns the value of an indicator, or `None` if it is not enabled.
    pub fn get(self, indicator: Indicator) -> Option<bool> {
        indicator.get(self.0)
    }

    /// Returns a copy with an indicator enabled and set to `value`.
    #[must_use]
    pub fn with(self, indicator: Indicator, value: bool) -> Self {
        Self(indicator.set(self.0, value))
    }

    /// Returns the number of context packets that are associated with this data packet.
    pub fn contexts(self) -> Option<u8> {
        (self.0 & 1 << 7 != 0).then_some((self.0 & 0x7f) as u8)
    }

    /// Returns a copy with this number of associated context packets, modulo 128.
    #[must_use]
    pub fn with_contexts(self, count: u8) -> Self {
        Self(self.0 & !0xff | 1 << 7 | u32::from(count & 0x7f))
    }
}

/// State and event indicators in a context packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(pub u32);

impl State {
    /// Returns the value of an indicator, or `None` if it is not enabled.
    pub fn get(self, indicator: Indicator) -> Option<bool> {
        indicator.get(self.0)
    }

    /// Returns a copy with an indicator enabled and set to `value`.
    #[must_use]
    pub fn with(self, indicator: Indicator, value: bool) -> Self {
        Self(indicator.set(self.0, value))
    }

    /// Returns the eight user-defined bits.
    pub fn user(self) -> u8 {
        self.0 as u8
    }
}
