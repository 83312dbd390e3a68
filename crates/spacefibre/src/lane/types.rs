//! States, configuration, events and counters of a lane.

use shotline_wire::spacefibre::{Capability, LostSignalCause};

/// State of the lane initialisation and standby state machine (5.5.2, figure 5-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Driver and receiver are off for 2 us.
    ClearLine,
    /// Neither lane start nor automatic start is set.
    Disabled,
    /// Waits for a signal, unless lane start is set.
    Wait,
    /// Sends INIT1, and looks for INIT1 or INIT2.
    Started,
    /// As [`State::Started`], with the received bits inverted.
    InvertRxPolarity,
    /// Sends INIT2.
    Connecting,
    /// Sends INIT3 with the near end's capability.
    Connected,
    /// Carries the words of the layers above.
    Active,
    /// Sends STANDBY before the line is cleared.
    PrepareStandby,
    /// Sends LOST_SIGNAL before the line is cleared.
    LossOfSignal,
}

impl State {
    /// Returns `true` if the receiver recovers words in this state (5.5.2.4c to 5.5.2.13d).
    pub(super) const fn receives(self) -> bool {
        !matches!(self, Self::ClearLine | Self::Disabled | Self::Wait)
    }

    /// Returns `true` if the driver is on in this state.
    pub(super) const fn drives(self) -> bool {
        self.receives()
    }

    /// Returns `true` if the initialisation time-out runs in this state (5.5.2.7b.1, 5.5.2.11b.1).
    pub(super) const fn is_initialising(self) -> bool {
        matches!(self, Self::Started | Self::InvertRxPolarity | Self::Connecting | Self::Connected)
    }
}

/// Condition on which a lane left a state for another one than the next of its initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The lane was reset.
    Reset,
    /// The receiver has no signal.
    NoSignal,
    /// The RXERR counter reached 255.
    RxErrOverflow,
    /// INIT1 was received in [`State::Active`]: the far end initialises the lane.
    Init1,
    /// Lane start and automatic start are both off.
    Stopped,
    /// Three LOST_SIGNAL words with this cause were received.
    FarLostSignal(LostSignalCause),
    /// Three STANDBY words with this reason were received.
    FarStandby(u8),
    /// Initialisation took longer than its time-out.
    TimeOut,
    /// The comma K28.7 was received in [`State::Connected`]: the far end is no longer initialising.
    Comma,
}

/// Line bits of a word: four characters in 8b/10b.
const LINE_BITS: u64 = 40;

/// Configuration of a lane. Numbers of words are times: that in which so many words are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneConfig {
    /// Initialises the lane without waiting for a signal (LaneStart).
    pub start: bool,
    /// Initialises the lane when a signal arrives (AutoStart).
    pub auto_start: bool,
    /// Words in the 2 us for which the line is cleared (5.5.2.4b.1).
    pub clear_line_words: u32,
    /// Words of the initialisation time-out (5.5.2.7b.1).
    pub init_timeout_words: u32,
    /// Random data words after each INIT1 and INIT2, at most 64, which help the far end's receiver to find the clock.
    pub init_random_words: u8,
    /// Received words after which the RXERR counter is decremented, 15000 to 16384 (5.5.2.2).
    pub rxerr_leak_words: u16,
    /// Reason sent in STANDBY.
    pub standby_reason: u8,
}

impl LaneConfig {
    /// Creates the default configuration for a lane with this data signalling rate, in line bits per second.
    pub const fn at_rate(bits_per_second: u64) -> Self {
        Self {
            start: false,
            auto_start: false,
            clear_line_words: words_in_us(2, bits_per_second),
            init_timeout_words: 5000,
            init_random_words: 64,
            rxerr_leak_words: 16384,
            standby_reason: 0,
        }
    }
}

/// A lane of 6.25 Gbit/s that is not started.
impl Default for LaneConfig {
    fn default() -> Self {
        Self::at_rate(6_250_000_000)
    }
}

/// Returns the number of words that a lane sends in this time, rounded up.
pub const fn words_in_us(us: u32, bits_per_second: u64) -> u32 {
    let words = (us as u128 * bits_per_second as u128).div_ceil(LINE_BITS as u128 * 1_000_000);
    if words > u32::MAX as u128 { u32::MAX } else { words as u32 }
}

/// Something that happened on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Three INIT3 words with this capability were received while the lane initialises (5.5.2.10b.6).
    FarCapability(Capability),
    /// The lane entered [`State::Active`].
    Active,
    /// The lane left [`State::Active`].
    Inactive(Cause),
    /// The lane went back from another state to [`State::ClearLine`].
    Cleared(Cause),
}

/// Counts of what happened on a lane since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounters {
    /// RXERR words received in [`State::Active`].
    pub rxerr_words: u64,
    /// Times that the lane entered [`State::Active`].
    pub active: u64,
    /// Times that the received bits were inverted.
    pub inverted: u64,
    /// Initialisations that took longer than the time-out.
    pub time_outs: u64,
    /// Resets of the lane that were not in [`State::ClearLine`].
    pub resets: u64,
    /// Losses of the signal.
    pub no_signal: u64,
    /// Overflows of the RXERR counter.
    pub rxerr_overflows: u64,
    /// INIT1 words received in [`State::Active`].
    pub init1: u64,
    /// Stops by lane start and automatic start.
    pub stopped: u64,
    /// Stops by LOST_SIGNAL words of the far end.
    pub far_lost_signal: u64,
    /// Stops by STANDBY words of the far end.
    pub far_standby: u64,
    /// Stops by a comma K28.7 in [`State::Connected`].
    pub commas: u64,
    /// Events that were replaced before [`Lane::next_event`](super::Lane::next_event) returned them.
    pub events_lost: u64,
}
