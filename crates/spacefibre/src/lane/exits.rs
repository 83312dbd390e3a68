//! Conditions on which a lane leaves its states.

use super::Lane;
use super::receiver::{EQUAL_WORDS, Received};
use super::types::{Cause, State};

/// Words without RXERR, with at least one INIT1 or INIT2, that end [`State::Started`] (5.5.2.7f).
const STARTED_WORDS: u16 = 1023;
/// STANDBY or LOST_SIGNAL words that a lane sends before it clears the line (5.5.2.12, 5.5.2.13).
const LAST_WORDS: u8 = 32;

/// Next state, and why if it is not the next one of the initialisation.
type Exit = Option<(State, Option<Cause>)>;

/// A step of the initialisation.
const fn next(state: State) -> Exit {
    Some((state, None))
}

/// A way back to [`State::ClearLine`].
const fn clear(cause: Cause) -> Exit {
    Some((State::ClearLine, Some(cause)))
}

impl Lane {
    /// Returns the state that follows, if an exit condition of the present one holds. Conditions are evaluated in the
    /// order of the standard.
    pub(super) fn exit(&self, received: Received) -> Exit {
        if self.held && self.state != State::ClearLine {
            return clear(Cause::Reset);
        }
        match self.state {
            State::ClearLine => {
                if self.held || self.clear_words < self.config.clear_line_words {
                    None
                } else {
                    next(State::Disabled)
                }
            }
            State::Disabled => {
                if self.may_start() {
                    next(State::Wait)
                } else {
                    None
                }
            }
            State::Wait => self.exit_wait(),
            State::Started | State::InvertRxPolarity => self.exit_started(),
            State::Connecting => self.exit_connecting(),
            State::Connected => self.exit_connected(received),
            State::Active => self.exit_active(received),
            State::PrepareStandby | State::LossOfSignal => {
                if self.sent >= LAST_WORDS {
                    next(State::ClearLine)
                } else {
                    self.far_end_stopped()
                }
            }
        }
    }

    /// Returns `true` if lane start or automatic start is set.
    pub(super) fn may_start(&self) -> bool {
        self.config.start || self.config.auto_start
    }

    /// Exits of [`State::Wait`] (5.5.2.6).
    fn exit_wait(&self) -> Exit {
        if !self.may_start() {
            next(State::Disabled)
        } else if self.config.start || self.signal {
            next(State::Started)
        } else {
            None
        }
    }

    /// Exits of [`State::Started`] and [`State::InvertRxPolarity`] (5.5.2.7, 5.5.2.8).
    fn exit_started(&self) -> Exit {
        let inverted = self.state == State::InvertRxPolarity;
        if inverted && self.has_no_signal() {
            clear(Cause::NoSignal)
        } else if self.far_end_active || (self.runs.errorless.words >= STARTED_WORDS && self.runs.errorless.init) {
            next(State::Connecting)
        } else if !inverted && self.runs.errorless.inverted_init1.max(self.runs.errorless.inverted_init2) >= EQUAL_WORDS
        {
            next(State::InvertRxPolarity)
        } else {
            self.exit_initialisation()
        }
    }

    /// Exits of [`State::Connecting`] (5.5.2.9).
    fn exit_connecting(&self) -> Exit {
        if self.has_no_signal() {
            clear(Cause::NoSignal)
        } else if self.rx_only
            || self.far_end_active
            || self.runs.errorless.init2 >= EQUAL_WORDS
            || self.runs.errorless.init3 >= EQUAL_WORDS
        {
            next(State::Connected)
        } else {
            self.exit_initialisation()
        }
    }

    /// Exits of [`State::Connected`] (5.5.2.10).
    fn exit_connected(&self, received: Received) -> Exit {
        if self.has_no_signal() {
            clear(Cause::NoSignal)
        } else if self.rx_only
            || (self.far_end_active && self.sent > 0)
            || (self.runs.errorless.init3 >= EQUAL_WORDS && self.sent >= EQUAL_WORDS)
        {
            next(State::Active)
        } else if let exit @ Some(_) = self.exit_initialisation() {
            exit
        } else if received.is_comma() {
            clear(Cause::Comma)
        } else {
            None
        }
    }

    /// Exits of [`State::Active`] (5.5.2.11e).
    fn exit_active(&self, received: Received) -> Exit {
        let lost = |cause| Some((State::LossOfSignal, Some(cause)));
        if self.has_no_signal() {
            lost(Cause::NoSignal)
        } else if self.rxerr_overflow && !self.tx_only {
            lost(Cause::RxErrOverflow)
        } else if received == Received::Init1 && !self.rx_only {
            lost(Cause::Init1)
        } else if !self.may_start() {
            Some((State::PrepareStandby, Some(Cause::Stopped)))
        } else {
            self.far_end_stopped()
        }
    }

    /// Exits that all states of the initialisation have: the time-out, and a far end that has stopped.
    fn exit_initialisation(&self) -> Exit {
        if self.init_words >= self.config.init_timeout_words { clear(Cause::TimeOut) } else { self.far_end_stopped() }
    }

    /// Exit on three consecutive LOST_SIGNAL or STANDBY words (5.5.2.4a.7, 5.5.2.4a.8).
    fn far_end_stopped(&self) -> Exit {
        match (self.runs.lost_signal(), self.runs.standby()) {
            (Some(cause), _) => clear(Cause::FarLostSignal(cause)),
            (None, Some(reason)) => clear(Cause::FarStandby(reason)),
            (None, None) => None,
        }
    }

    /// Returns `true` if the receiver is in use and has no signal.
    fn has_no_signal(&self) -> bool {
        !self.signal && !self.tx_only
    }
}
