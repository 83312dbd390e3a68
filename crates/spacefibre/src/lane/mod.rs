//! Lane layer (5.5): initialisation, standby, loss of signal and receive errors of one lane.
//!
//! A lane is called twice in each word time: [`Lane::receive`] takes the word that the line decoder returned, if any,
//! and returns the word for the multi-lane layer; [`Lane::transmit`] returns the word for the line encoder. All
//! durations are counted in calls of `transmit`.
//!
//! The line decoder is the caller's: it inverts the received bits while [`Lane::invert_rx`] is `true`, and loses its
//! synchronisation while [`Lane::receives`] is `false`.
//!
//! ```
//! use shotline_spacefibre::lane::{Event, Lane, LaneConfig};
//! let config = LaneConfig { start: true, ..LaneConfig::default() };
//! let (mut near, mut far) = (Lane::new(config), Lane::new(config));
//! while !(near.is_active() && far.is_active()) {
//!     let word = near.transmit(None);
//!     far.receive(word);
//!     let word = far.transmit(None);
//!     near.receive(word);
//! }
//! assert!(matches!(near.next_event(), Some(Event::FarCapability(_))));
//! assert_eq!(near.next_event(), Some(Event::Active));
//! ```

mod exits;
mod receiver;
#[cfg(test)]
mod tests;
mod types;

pub use types::{Cause, Event, LaneConfig, LaneCounters, State, words_in_us};

use crate::events::Events;
use receiver::{EQUAL_WORDS, Errorless, Received, Runs};
use shotline_wire::spacefibre::{Capability, ControlWord, KEYSTREAM, LostSignalCause, Word, character};

/// Value of the RXERR counter at which a lane loses its signal (5.5.2.2).
const RXERR_OVERFLOW: u8 = 255;

/// Lane layer of one lane.
#[derive(Clone, Debug)]
pub struct Lane {
    config: LaneConfig,
    state: State,
    /// The state is Active and no condition to leave it holds, unless a control word is received.
    is_steady: bool,
    /// Receive path off (5.6.9.3).
    tx_only: bool,
    /// Transmit path off (5.6.9.4).
    rx_only: bool,
    /// The far end has reported that this lane is active at its end (5.6.9.2).
    far_end_active: bool,
    /// Reset as a level.
    held: bool,
    /// The last call of `receive` had a signal.
    signal: bool,
    /// The received bits are inverted.
    inverted: bool,
    /// An RXERR must still be passed up, because the lane left Active.
    rxerr_pending: bool,
    /// The far end's capability was reported in this Connected state.
    capability_reported: bool,
    /// Words of the line's clearing.
    clear_words: u32,
    /// Words since Started was entered.
    init_words: u32,
    /// INIT3, STANDBY or LOST_SIGNAL words sent in this state; with INIT1 and INIT2, position in their sequence.
    sent: u8,
    runs: Runs,
    rxerr: u8,
    rxerr_overflow: bool,
    /// Received words until the RXERR counter is decremented.
    leak_words: u16,
    lost_signal_cause: LostSignalCause,
    near_capability: Capability,
    sent_capability: Capability,
    far_capability: Capability,
    events: Events<Event, 8>,
    counters: LaneCounters,
}

impl Lane {
    /// Creates a lane in [`State::ClearLine`].
    pub fn new(config: LaneConfig) -> Self {
        Self {
            config,
            state: State::ClearLine,
            is_steady: false,
            tx_only: false,
            rx_only: false,
            far_end_active: false,
            held: false,
            signal: false,
            inverted: false,
            rxerr_pending: false,
            capability_reported: false,
            clear_words: 0,
            init_words: 0,
            sent: 0,
            runs: Runs::default(),
            rxerr: 0,
            rxerr_overflow: false,
            leak_words: config.rxerr_leak_words,
            lost_signal_cause: LostSignalCause::NoSignal,
            near_capability: Capability::default(),
            sent_capability: Capability::default(),
            far_capability: Capability::default(),
            events: Events::new(),
            counters: LaneCounters::default(),
        }
    }

    /// Takes the word that the line decoder returned, or `None` if the receiver has no signal, and returns the word for
    /// the multi-lane layer.
    ///
    /// Call it once for each word of the decoder: none or two in a word time if bits were lost or doubled. Words are
    /// passed up in [`State::Active`]: all but those of the lane layer; INIT1, STANDBY and LOST_SIGNAL become
    /// [`Word::RXERR`] (5.5.2.11b.8). One RXERR follows when the lane has left that state (5.5.2.11e.7).
    #[inline]
    pub fn receive(&mut self, word: Option<Word>) -> Option<Word> {
        match word {
            Some(word) if self.passes(word) => Some(word),
            _ => self.receive_any(word),
        }
    }

    /// Takes a word and returns `true` if it only needs to be passed up; returns `false` if it was not taken.
    #[inline]
    pub(crate) fn passes(&mut self, word: Word) -> bool {
        let passes = self.is_steady && (word.control & 1 == 0 || is_of_data_link(word));
        if passes {
            self.count_passed();
        }
        passes
    }

    /// [`Self::passes`] for a word of four D-codes.
    #[inline]
    pub(crate) fn passes_data(&mut self) -> bool {
        if self.is_steady {
            self.count_passed();
        }
        self.is_steady
    }

    /// Counts a word that is only passed up.
    #[inline]
    fn count_passed(&mut self) {
        self.runs.restart_far_end_stops();
        self.leak();
    }

    /// [`Self::receive`] in any state.
    pub(crate) fn receive_any(&mut self, word: Option<Word>) -> Option<Word> {
        self.signal = word.is_some();
        let word = word.filter(|_| self.receives());
        let received = word.map_or(Received::Nothing, Received::new);
        let was_active = self.state == State::Active;
        if word.is_some() {
            self.runs.count(received);
            if was_active {
                self.count_rxerr(received);
            }
        }
        self.step(received);
        if std::mem::take(&mut self.rxerr_pending) {
            return Some(Word::RXERR);
        }
        word.filter(|_| was_active).and_then(|word| match received {
            Received::Skip | Received::Idle | Received::Nothing => None,
            Received::Init1 | Received::Standby(_) | Received::LostSignal(_) => Some(Word::RXERR),
            // INIT2 and INIT3 are lane control words too, but no exit condition of Active.
            Received::Init2 | Received::InvertedInit1 | Received::InvertedInit2 | Received::Init3(_) => None,
            Received::RxErr | Received::Comma | Received::Other => Some(word),
        })
    }

    /// Returns the word to be sent, or `None` if the driver is off.
    ///
    /// In [`State::Active`] this is `next`, or IDLE if that is `None` (5.5.4a). Otherwise `next` is ignored.
    #[inline]
    pub fn transmit(&mut self, next: Option<Word>) -> Option<Word> {
        if self.is_steady { Some(next.unwrap_or_else(idle)) } else { self.transmit_any(next) }
    }

    /// [`Self::transmit`] in any state.
    fn transmit_any(&mut self, next: Option<Word>) -> Option<Word> {
        let word = self.word(next).filter(|_| self.state.drives() && !self.rx_only);
        if self.state == State::ClearLine {
            self.clear_words = self.clear_words.saturating_add(1);
        }
        if self.state.is_initialising() {
            self.init_words = self.init_words.saturating_add(1);
        }
        self.step(Received::Nothing);
        word
    }

    /// Returns the word that is sent in this state, and counts it.
    fn word(&mut self, next: Option<Word>) -> Option<Word> {
        let sent = self.sent;
        self.sent = sent.saturating_add(1);
        match self.state {
            State::ClearLine | State::Disabled | State::Wait => None,
            State::Started | State::InvertRxPolarity => Some(self.init_word(sent, ControlWord::Init1)),
            State::Connecting => Some(self.init_word(sent, ControlWord::Init2)),
            State::Connected => Some(ControlWord::Init3(self.sent_capability).emit()),
            State::Active => Some(next.unwrap_or_else(idle)),
            State::PrepareStandby => Some(ControlWord::Standby { reason: self.config.standby_reason }.emit()),
            State::LossOfSignal => Some(ControlWord::LostSignal(self.lost_signal_cause).emit()),
        }
    }

    /// Returns INIT1 or INIT2, or one of the random words that follow it.
    fn init_word(&mut self, sent: u8, first: ControlWord) -> Word {
        let random_words = KEYSTREAM.len().min(usize::from(self.config.init_random_words));
        if usize::from(sent) >= random_words {
            self.sent = 0;
        }
        match sent.checked_sub(1) {
            Some(index) => Word::data(KEYSTREAM[usize::from(index) % KEYSTREAM.len()]),
            None => first.emit(),
        }
    }

    /// Counts a received word in Active, and the RXERR words among them (5.5.2.2).
    fn count_rxerr(&mut self, received: Received) {
        if received == Received::RxErr {
            self.counters.rxerr_words += 1;
            self.rxerr = self.rxerr.saturating_add(1);
            if self.rxerr == RXERR_OVERFLOW {
                self.rxerr_overflow = true;
            }
        }
        self.leak();
    }

    /// Decrements the RXERR counter after each `rxerr_leak_words` words.
    #[inline]
    fn leak(&mut self) {
        if self.leak_words > 1 {
            self.leak_words -= 1;
        } else {
            self.leak_words = self.config.rxerr_leak_words;
            self.rxerr = self.rxerr.saturating_sub(1);
        }
    }

    /// Clears the RXERR counter.
    fn clear_rxerr(&mut self) {
        (self.rxerr, self.rxerr_overflow) = (0, false);
        self.leak_words = self.config.rxerr_leak_words;
    }

    /// Reports the far end's capability once in each Connected state, then leaves the state if a condition holds.
    fn step(&mut self, received: Received) {
        let Errorless { init3, capability, .. } = self.runs.errorless;
        if self.state == State::Connected && init3 >= EQUAL_WORDS && !self.capability_reported {
            self.capability_reported = true;
            self.far_capability = capability;
            self.events.push(Event::FarCapability(capability));
        }
        if let Some((state, cause)) = self.exit(received) {
            self.enter(state, cause);
        }
        self.update_steady();
    }

    /// Enters a state.
    fn enter(&mut self, state: State, cause: Option<Cause>) {
        self.leave(state, cause);
        if state != State::Connected {
            // INIT3 words counted in Connecting stay valid in Connected.
            self.runs.errorless.init3 = 0;
        }
        self.state = state;
        self.sent = 0;
        match state {
            State::ClearLine => {
                self.clear_words = 0;
                self.inverted = false;
                self.runs = Runs::default();
            }
            State::Started => {
                self.init_words = 0;
                self.runs.errorless = Errorless::default();
            }
            State::InvertRxPolarity => {
                self.inverted = true;
                self.counters.inverted += 1;
                self.runs.errorless = Errorless::default();
            }
            State::Connecting => self.runs.errorless.init2 = 0,
            State::Connected => {
                // All INIT3 words of one initialisation have the same capability, or the far end would start to count
                // them again (5.3.3.8).
                self.sent_capability = self.near_capability.with(Capability::LANE_START, self.config.start);
                self.capability_reported = false;
                self.clear_rxerr();
            }
            State::Active => {
                self.counters.active += 1;
                self.events.push(Event::Active);
            }
            State::Disabled | State::Wait | State::PrepareStandby | State::LossOfSignal => {}
        }
    }

    /// Counts and reports that the present state is left.
    fn leave(&mut self, next: State, cause: Option<Cause>) {
        let Some(cause) = cause else { return };
        let counters = &mut self.counters;
        match cause {
            Cause::Reset => counters.resets += 1,
            Cause::NoSignal => counters.no_signal += 1,
            Cause::RxErrOverflow => counters.rxerr_overflows += 1,
            Cause::Init1 => counters.init1 += 1,
            Cause::Stopped => counters.stopped += 1,
            Cause::FarLostSignal(_) => counters.far_lost_signal += 1,
            Cause::FarStandby(_) => counters.far_standby += 1,
            Cause::TimeOut => counters.time_outs += 1,
            Cause::Comma => counters.commas += 1,
        }
        if next == State::LossOfSignal {
            self.lost_signal_cause = match cause {
                Cause::RxErrOverflow => LostSignalCause::ReceiveErrors,
                Cause::Init1 => LostSignalCause::Init1,
                _ => LostSignalCause::NoSignal,
            };
        }
        if self.state == State::Active {
            self.rxerr_pending = !self.tx_only;
            self.events.push(Event::Inactive(cause));
        } else {
            self.events.push(Event::Cleared(cause));
        }
    }

    /// Recomputes [`Self::is_steady`].
    fn update_steady(&mut self) {
        let is_restricted = self.tx_only || self.rx_only || self.held;
        self.is_steady = self.state == State::Active && self.may_start() && !is_restricted;
    }
}

/// Control and status.
impl Lane {
    /// Resets the lane: it enters [`State::ClearLine`], from any state (LaneReset, 5.5.2.4).
    pub fn reset(&mut self) {
        if self.state == State::ClearLine {
            self.clear_words = 0;
        } else {
            self.enter(State::ClearLine, Some(Cause::Reset));
        }
        self.clear_rxerr();
        self.update_steady();
    }

    /// Keeps the lane in [`State::ClearLine`] while `held` is `true`.
    pub fn hold_reset(&mut self, held: bool) {
        if held {
            self.reset();
        }
        self.held = held;
        self.update_steady();
    }

    /// Returns `true` if [`Self::hold_reset`] keeps the lane in reset.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Sets or clears LaneStart.
    pub fn set_start(&mut self, start: bool) {
        self.config.start = start;
        self.update_steady();
    }

    /// Sets or clears AutoStart.
    pub fn set_auto_start(&mut self, auto_start: bool) {
        self.config.auto_start = auto_start;
        self.update_steady();
    }

    /// Sets the capability that INIT3 words announce. The flag LANE_START is the lane's own.
    ///
    /// It takes effect when the lane next enters [`State::Connected`].
    pub fn set_capability(&mut self, capability: Capability) {
        self.near_capability = capability;
    }

    /// Turns the receive path off or on (TxOnly, 5.6.9.3).
    pub fn set_tx_only(&mut self, tx_only: bool) {
        self.tx_only = tx_only;
        self.update_steady();
    }

    /// Turns the transmit path off or on (RxOnly, 5.6.9.4).
    pub fn set_rx_only(&mut self, rx_only: bool) {
        self.rx_only = rx_only;
        self.update_steady();
    }

    /// Sets or clears the report of the far end that this lane is active there (FarEndActive, 5.6.9.2).
    pub fn set_far_end_active(&mut self, active: bool) {
        self.far_end_active = active;
    }

    /// Returns the state.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns `true` if the lane is in [`State::Active`].
    #[inline]
    pub fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// Returns `true` if the lane stays in [`State::Active`] unless it receives a control word or loses its signal.
    #[inline]
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// Returns `true` if the line decoder must be on. It loses its synchronisation while this is `false` (5.5.8).
    #[inline]
    pub fn receives(&self) -> bool {
        self.state.receives() && !self.tx_only
    }

    /// Returns `true` if the line decoder must invert the received bits (5.5.2.8).
    #[inline]
    pub fn invert_rx(&self) -> bool {
        self.inverted
    }

    /// Returns the RXERR counter: 255 is its overflow (5.5.2.2).
    pub fn rxerr_counter(&self) -> u8 {
        self.rxerr
    }

    /// Returns the capability that the lane announced when it was last in [`State::Connected`].
    pub fn sent_capability(&self) -> Capability {
        self.sent_capability
    }

    /// Returns the capability of the last [`Event::FarCapability`].
    pub fn far_capability(&self) -> Capability {
        self.far_capability
    }

    /// Removes and returns the oldest event. Take them all after each call that may create some: up to 8 are kept.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Returns `true` if [`Self::next_event`] returns an event.
    #[inline]
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the counters.
    pub fn counters(&self) -> LaneCounters {
        LaneCounters { events_lost: self.events.lost(), ..self.counters }
    }
}

/// Returns `true` for the most frequent control words of the data link layer, which need nothing of the lane.
fn is_of_data_link(Word { characters: [first, second, ..], control }: Word) -> bool {
    let is_comma = first == character::COMMA && matches!(second, character::START_DATA_FRAME | character::ACK);
    control == 1 && (is_comma || matches!(first, character::END_DATA_FRAME | character::FLOW_CONTROL_TOKEN))
}

/// Returns an IDLE word.
#[inline]
fn idle() -> Word {
    ControlWord::Idle.emit()
}
