//! What became of requests for connections, counted.

use super::message::reason;

/// Requests for connections and what became of them: `asked` is the sum of all up to `half_open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// REQs, repeated ones not counted.
    pub asked: u64,
    /// Connections whose RTU came.
    pub established: u64,
    /// Refused: no program at this service ID.
    pub no_service: u64,
    /// Refused: no room for one more connection.
    pub no_resources: u64,
    /// Refused for another [`reason`].
    pub rejected: u64,
    /// Not answered, because too many waited for a decision.
    pub unanswered: u64,
    /// Half-open connections that gave way to newer ones.
    pub displaced: u64,
    /// REPs that no RTU has followed, however often they were repeated.
    pub unconfirmed: u64,
    /// Ended by one side before the RTU.
    pub withdrawn: u64,
    /// Not decided yet, or replied to and not confirmed yet.
    pub half_open: u64,
    /// Datagrams that are no message of connection managers.
    pub malformed: u64,
    /// Messages of connections that are not there, or of another address.
    pub stray: u64,
    /// Answers that found the queue of datagrams full.
    pub unsent: u64,
}

impl Counts {
    pub(super) fn refused(&mut self, reason: u16) -> &mut u64 {
        match reason {
            reason::NO_SERVICE => &mut self.no_service,
            reason::NO_RESOURCES => &mut self.no_resources,
            _ => &mut self.rejected,
        }
    }

    /// Whether each request was counted once.
    pub fn is_balanced(&self) -> bool {
        let refused = self.no_service + self.no_resources + self.rejected + self.unanswered;
        let lost = self.displaced + self.unconfirmed + self.withdrawn;
        self.asked == self.established + refused + lost + self.half_open
    }
}
