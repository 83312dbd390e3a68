//! Where a stream is joined whose first shot was not announced.
//!
//! It is joined where a shot begins. The first packets may be out of order, so they are placed from the first one on, and
//! nothing leaves until some have come. Then the shots that were under way before are given up: those that lack packets
//! that may have been sent before the first one that came.

use super::config::StreamConfig;
use shotline_wire::shot::DropCause;

/// Places by which packets may be out of order where a stream is joined.
const PLACES: u64 = 8;
/// What was sent before the first packet that came has come after so long at the latest.
const JOIN_NS: u64 = 20_000_000;

/// Where a stream begins: at the shot that was announced, or at one that is found by joining live traffic.
#[derive(Debug)]
pub(super) struct Joining {
    packets: u32,
    window: u64,
    timeout_ns: u64,
    /// The first shot of the stream, as far as it is known: packets of older ones were under way before.
    first_shot: u64,
    /// After a restart of the sender: the number with which the stream goes on.
    goes_on: Option<u64>,
    /// What has come, until it is decided where the stream begins.
    arrivals: Option<Arrivals>,
}

/// The packets that have come while a stream is joined, by their positions from the stream's beginning.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    first: u64,
    since_ns: u64,
    count: u64,
    newest: u64,
    /// Some came behind newer ones: then others may have come before the first.
    reordered: bool,
}

impl Joining {
    pub(super) fn new(config: &StreamConfig) -> Self {
        Self {
            packets: config.geometry.packets(),
            window: config.window,
            timeout_ns: config.timeout_ns.min(JOIN_NS),
            first_shot: config.first_shot.unwrap_or(0),
            goes_on: None,
            arrivals: None,
        }
    }

    /// Whether packets have come, and where the stream begins is still open.
    pub(super) fn is_under_way(&self) -> bool {
        self.arrivals.is_some()
    }

    /// Takes note of a packet. Returns the lowest shot that may begin the stream.
    pub(super) fn note(&mut self, number: u64, index: u32, now_ns: u64) -> u64 {
        let at = self.nth(number, index);
        let arrivals = self.arrivals.get_or_insert(Arrivals {
            first: at,
            since_ns: now_ns,
            count: 0,
            newest: at,
            reordered: false,
        });
        arrivals.count += 1;
        arrivals.reordered |= at < arrivals.newest;
        arrivals.newest = arrivals.newest.max(at);
        let lowest = arrivals.first / u64::from(self.packets);
        // Shots of one packet each may be out of order, too.
        self.first_shot = self.goes_on.unwrap_or(lowest.saturating_sub(PLACES));
        self.first_shot
    }

    /// Why a packet of a shot that is older than all that may leave is dropped.
    pub(super) fn cause(&self, number: u64) -> DropCause {
        if number < self.first_shot { DropCause::BeforeStart } else { DropCause::Late }
    }

    /// Where the stream begins, once enough packets have come or time has passed; with no time, now. What was sent
    /// before the position that is returned may have come before all that did. `open` counts the shots under assembly.
    #[inline]
    pub(super) fn is_due(&self, now_ns: Option<u64>, open: usize) -> Option<u64> {
        let arrivals = self.arrivals?;
        let is_stale = now_ns.is_none_or(|now| now.saturating_sub(arrivals.since_ns) > self.timeout_ns);
        let is_due = is_stale || arrivals.count >= 2 * PLACES || open as u64 > self.window;
        is_due.then(|| arrivals.first.saturating_add(if arrivals.reordered { PLACES } else { 0 }))
    }

    /// Whether a shot lacks a packet before this position.
    pub(super) fn lacks(&self, number: u64, mut missing: impl Iterator<Item = u32>, before: u64) -> bool {
        missing.any(|index| self.nth(number, index) < before)
    }

    /// Why packets of shots before the first one are dropped.
    pub(super) fn given_up(&self) -> DropCause {
        if self.goes_on.is_some() { DropCause::SenderRestart } else { DropCause::BeforeStart }
    }

    /// Ends the joining: the stream begins with this shot. Returns the number with which it was to go on after a restart.
    pub(super) fn begin(&mut self, first_shot: u64) -> Option<u64> {
        self.arrivals = None;
        self.first_shot = first_shot;
        self.goes_on.take()
    }

    /// Has the stream joined anew, with this number for its next shot.
    pub(super) fn go_on(&mut self, from: u64) {
        self.goes_on = Some(from);
    }

    /// Ends the waiting for a sender that has restarted. Returns the number with which the stream was to go on.
    pub(super) fn give_up(&mut self) -> Option<u64> {
        self.goes_on.take()
    }

    /// Corrects the number of the first shot: it was this much too low.
    pub(super) fn raise(&mut self, ahead: u64) {
        self.first_shot += ahead;
    }

    /// Position of a packet from the stream's beginning, saturating: a sender may choose numbers that make it more than
    /// 64 bits hold, and such a stream is joined at a whole shot all the same.
    fn nth(&self, number: u64, index: u32) -> u64 {
        number.saturating_mul(self.packets.into()).saturating_add(index.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a stream of shots of three packets.
    fn joining() -> Joining {
        Joining::new(&StreamConfig { timeout_ns: u64::MAX, ..StreamConfig::of_three_packets() })
    }

    #[test]
    fn packets_in_order_begin_at_the_first_of_them() {
        let mut joining = joining();
        assert!(!joining.is_under_way() && joining.is_due(None, 0).is_none());
        assert_eq!(joining.note(100, 1, 5), 100 - PLACES);
        assert_eq!(joining.is_due(Some(5 + JOIN_NS), 1), None);
        assert_eq!(joining.is_due(Some(6 + JOIN_NS), 1), Some(301), "time has passed");
        assert_eq!(joining.is_due(Some(5), 5), Some(301), "the window is full");
        assert_eq!(joining.is_due(None, 1), Some(301));
        assert!(joining.lacks(100, [0].into_iter(), 301) && !joining.lacks(100, [1, 2].into_iter(), 301));
        for index in 0..2 * PLACES - 1 {
            assert_eq!(joining.is_due(Some(5), 1), None);
            joining.note(101 + index, 0, 5);
        }
        assert_eq!(joining.is_due(Some(5), 1), Some(301), "enough have come");
        assert_eq!(joining.begin(101), None);
        assert_eq!([100, 101].map(|number| joining.cause(number)), [DropCause::BeforeStart, DropCause::Late]);
    }

    #[test]
    fn packets_out_of_order_may_have_come_before_the_first() {
        let mut joining = joining();
        joining.note(100, 1, 5);
        joining.note(100, 0, 5);
        assert_eq!(joining.is_due(None, 1), Some(301 + PLACES));
    }

    #[test]
    fn a_restarted_sender_goes_on_with_the_next_number() {
        let mut joining = joining();
        joining.note(100, 0, 5);
        assert_eq!(joining.given_up(), DropCause::BeforeStart);
        joining.begin(100);
        joining.go_on(150);
        assert_eq!((joining.given_up(), joining.note(152, 0, 9)), (DropCause::SenderRestart, 150));
        assert_eq!(joining.begin(152), Some(150));
        joining.go_on(160);
        assert_eq!((joining.give_up(), joining.give_up()), (Some(160), None));
    }

    #[test]
    fn numbers_that_fill_64_bits_do_not_overflow() {
        let mut joining = joining();
        joining.note(u64::MAX, 2, 0);
        joining.note(u64::MAX - 1, 0, 0);
        assert_eq!(joining.is_due(None, 2), Some(u64::MAX));
    }
}
