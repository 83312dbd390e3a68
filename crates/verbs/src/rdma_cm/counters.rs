//! Counters of connection requests.

use super::message::reason;

/// Counters of connection requests and their outcomes: `requests` is the sum of the fields from `established` to
/// `half_open`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CmCounters {
    /// REQs received, without retransmissions.
    pub requests: u64,
    /// Connections whose RTU was received.
    pub established: u64,
    /// Rejected: no listener at this service ID.
    pub no_service: u64,
    /// Rejected: no resources for another connection.
    pub no_resources: u64,
    /// Rejected for another [`reason`].
    pub rejected: u64,
    /// Not answered: too many requests were waiting for the application, or every half-open connection was too young to
    /// be displaced.
    pub unanswered: u64,
    /// Half-open connections displaced by newer ones.
    pub displaced: u64,
    /// Connections without an RTU after all retransmissions of the REP.
    pub unconfirmed: u64,
    /// Ended by either side before the RTU was received.
    pub withdrawn: u64,
    /// Waiting for the application's decision or for the RTU.
    pub half_open: u64,
    /// Datagrams that are not valid connection manager messages.
    pub malformed: u64,
    /// Messages of unknown connections, or from another address than the peer's.
    pub stray: u64,
    /// Messages dropped because the output queue was full.
    pub unsent: u64,
}

impl CmCounters {
    /// Returns the counter of requests rejected for this [`reason`].
    pub(super) fn rejections(&mut self, reason: u16) -> &mut u64 {
        match reason {
            reason::NO_SERVICE => &mut self.no_service,
            reason::NO_RESOURCES => &mut self.no_resources,
            _ => &mut self.rejected,
        }
    }

    /// Returns `true` if each request was counted exactly once.
    pub fn is_balanced(&self) -> bool {
        let rejected = self.no_service + self.no_resources + self.rejected + self.unanswered;
        let ended = self.displaced + self.unconfirmed + self.withdrawn;
        self.requests == self.established + rejected + ended + self.half_open
    }
}
