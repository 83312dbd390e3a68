//! Link reset state machine (ECSS 5.7.9).

/// Word times with active lanes after which an end no longer waits for the far end's reset: two initialisation
/// time-outs, so that other lanes can still report it.
const TIME_OUT_WORDS: u32 = 10_000;

/// State after Configuration Reset and Near-End Reset, which last no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Check Far-End Reset: this end is reset.
    CheckFarEnd,
    /// Link Initialised, and nothing has been received from the far end yet.
    Initialised,
    /// Link Initialised, and the far end is, too: it has sent a row.
    Running,
}

/// Link reset state machine of one end.
///
/// The standard has one state Link Initialised, in which INIT3 has no reset flag. Several lanes then report the same
/// reset of the far end, and the second report would begin another one; and a far end that has not received this end's
/// last INIT3 would wait for the flag. So reports are ignored, and the flag stays, until the far end sends a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkReset {
    state: State,
    /// Word times with active lanes in Check Far-End Reset since the last reset.
    waited: u32,
}

impl LinkReset {
    /// Creates the machine after a cold reset.
    pub(super) fn new() -> Self {
        Self { state: State::CheckFarEnd, waited: 0 }
    }

    /// Enters Near-End Reset, and leaves it.
    pub(super) fn begin(&mut self) {
        *self = Self::new();
    }

    /// Returns `true` if frames are sent and received.
    #[inline]
    pub(super) fn is_initialised(&self) -> bool {
        self.state != State::CheckFarEnd
    }

    /// Takes the reset flag of a capability that a lane has received. Returns `true` if this end must be reset, too.
    pub(super) fn on_far_capability(&mut self, is_reset: bool, no_lane_active: bool) -> bool {
        match self.state {
            State::CheckFarEnd if is_reset => {
                self.state = State::Initialised;
                false
            }
            State::Running => is_reset && no_lane_active,
            State::CheckFarEnd | State::Initialised => false,
        }
    }

    /// Takes a row without error: the far end has received this end's reset flag. Returns `true` if INIT3 must have no
    /// such flag any more.
    #[inline]
    pub(super) fn on_row(&mut self) -> bool {
        let is_first = self.state == State::Initialised;
        if is_first {
            self.state = State::Running;
        }
        is_first
    }

    /// Counts a word time. Returns `true` if this end has waited too long, and must be reset (Near-End Reset).
    #[inline]
    pub(super) fn tick(&mut self, is_lane_active: bool) -> bool {
        // The far end was reset and does not know of this end's reset: a bit error can lose the flag.
        self.waited += u32::from(self.state == State::CheckFarEnd && is_lane_active);
        self.waited > TIME_OUT_WORDS
    }
}
