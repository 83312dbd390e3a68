//! States and events, as a trailer (5.1.6) and a field of context (9.10.8) carry them.

/// Something that is so or is not, if the sender says anything about it at all.
///
/// Its number is the enabling bit; the indicator itself stands 12 bits below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Indicator {
    /// Time stamps are right to what the sender claims.
    CalibratedTime = 31,
    /// The samples are samples.
    ValidData = 30,
    /// Every oscillator that matters is locked to its reference.
    ReferenceLock = 29,
    /// The gain is set automatically.
    AutomaticGain = 28,
    /// There is a signal.
    DetectedSignal = 27,
    /// The spectrum is upside down.
    SpectralInversion = 26,
    /// A converter was driven beyond its range.
    OverRange = 25,
    /// Samples are missing.
    SampleLoss = 24,
}

impl Indicator {
    /// Every indicator.
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

    fn of(self, word: u32) -> Option<bool> {
        (word & 1 << self as u32 != 0).then_some(word & 1 << (self as u32 - 12) != 0)
    }

    fn put(self, word: u32, value: bool) -> u32 {
        let (enable, indicator) = (1 << self as u32, 1 << (self as u32 - 12));
        word & !indicator | enable | if value { indicator } else { 0 }
    }
}

/// The last word of a packet of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trailer(pub u32);

impl Trailer {
    /// The word as it is.
    pub fn parse(bytes: &[u8; 4]) -> Self {
        Self(u32::from_be_bytes(*bytes))
    }

    /// The word's bytes.
    pub fn emit(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    /// What it says of an indicator.
    pub fn get(self, indicator: Indicator) -> Option<bool> {
        indicator.of(self.0)
    }

    /// The same that says this of an indicator.
    #[must_use]
    pub fn with(self, indicator: Indicator, value: bool) -> Self {
        Self(indicator.put(self.0, value))
    }

    /// Packets of context that belong to this one of data.
    pub fn contexts(self) -> Option<u8> {
        (self.0 & 1 << 7 != 0).then_some((self.0 & 0x7f) as u8)
    }

    /// The same with so many packets of context, at most 127.
    #[must_use]
    pub fn with_contexts(self, count: u8) -> Self {
        Self(self.0 & !0xff | 1 << 7 | u32::from(count & 0x7f))
    }
}

/// States and events in a packet of context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(pub u32);

impl State {
    /// What it says of an indicator.
    pub fn get(self, indicator: Indicator) -> Option<bool> {
        indicator.of(self.0)
    }

    /// The same that says this of an indicator.
    #[must_use]
    pub fn with(self, indicator: Indicator, value: bool) -> Self {
        Self(indicator.put(self.0, value))
    }

    /// Eight bits whose meaning is the sender's.
    pub fn user(self) -> u8 {
        self.0 as u8
    }
}
