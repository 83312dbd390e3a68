//! Link reset state machine (ECSS 5.7.9).

/// Word times with active lanes after which an end no longer waits for the far end's reset: two initialisation
/// time-outs, so that other lanes can still report it.
const TIME_OUT_WORDS: u32 = 10_000;

/// State after Configuration Reset and Near-End Reset, which last no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Check Far-End Reset: this end is reset.
    CheckFarEnd,
    /// Link Initialised, and no lane has been active yet.
    Initialised,
    /// Link Initialised, and a lane has been active.
    Running,
}

/// What a caller must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing.
    None,
    /// Near-End Reset: reset the link and all lanes.
    Reset,
    /// Announce no reset in INIT3 any more.
    Announce,
}

/// Link reset state machine of one end.
///
/// The standard has one state Link Initialised, in which INIT3 has no reset flag. Several lanes then report the same
/// reset of the far end, and the second report would begin another one. So reports are ignored, and the flag stays,
/// until a lane is active.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkReset {
    state: State,
    /// Word times with active lanes in Check Far-End Reset.
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

    /// Counts a word time.
    #[inline]
    pub(super) fn tick(&mut self, is_lane_active: bool) -> Action {
        if self.state == State::Running || !is_lane_active { Action::None } else { self.tick_active() }
    }

    /// Counts a word time with an active lane before [`State::Running`].
    fn tick_active(&mut self) -> Action {
        if self.state == State::Initialised {
            self.state = State::Running;
            return Action::Announce;
        }
        // The far end was reset and does not know of this end's reset: a bit error can lose the flag.
        self.waited += 1;
        if self.waited > TIME_OUT_WORDS { Action::Reset } else { Action::None }
    }
}
