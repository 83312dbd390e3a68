//! Joins a stream whose first shot was not announced.
//!
//! A stream is joined at the beginning of a shot. The first packets may be out of order, so all packets are placed from
//! the first one on, and nothing leaves until some have arrived. Then the shots that were in flight before are
//! discarded: those that lack packets that may have been sent before the first one that arrived.

use super::config::StreamConfig;
use shotline_wire::shot::DropCause;

/// Maximum distance by which packets may be out of order while a stream is joined, in packets.
const MAX_REORDER: u64 = 8;
/// Maximum time to wait for packets that were sent before the first one that arrived, in ns.
const MAX_JOIN_NS: u64 = 20_000_000;

/// Start of a stream: at the announced shot, or at one that is found by joining live traffic.
#[derive(Debug)]
pub(super) struct Joining {
    packets: u32,
    window: u64,
    timeout_ns: u64,
    /// The first shot of the stream, as far as it is known: packets of older ones were in flight before.
    first_shot: u64,
    /// After a restart of the sender: the number at which the stream continues.
    resume_at: Option<u64>,
    /// Packets that have arrived, until the start of the stream is decided.
    arrivals: Option<Arrivals>,
}

/// Packets that have arrived while a stream is joined, by their positions from the stream's start.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    first: u64,
    since_ns: u64,
    count: u64,
    newest: u64,
    /// Set if some arrived after newer ones: others may then have been sent before the first.
    reordered: bool,
}

impl Joining {
    pub(super) fn new(config: &StreamConfig) -> Self {
        Self {
            packets: config.geometry.packets(),
            window: config.window,
            timeout_ns: config.timeout_ns.min(MAX_JOIN_NS),
            first_shot: config.first_shot.unwrap_or(0),
            resume_at: None,
            arrivals: None,
        }
    }

    /// Returns `true` if packets have arrived, and the start of the stream is undecided.
    pub(super) fn has_packets(&self) -> bool {
        self.arrivals.is_some()
    }

    /// Notes a packet. Returns the lowest shot that may begin the stream.
    pub(super) fn note_packet(&mut self, number: u64, index: u32, now_ns: u64) -> u64 {
        let at = self.position(number, index);
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
        self.first_shot = self.resume_at.unwrap_or(lowest.saturating_sub(MAX_REORDER));
        self.first_shot
    }

    /// Returns the drop cause of a packet whose shot precedes the stream's start, or has left.
    pub(super) fn cause(&self, number: u64) -> DropCause {
        if number < self.first_shot { DropCause::BeforeStart } else { DropCause::Late }
    }

    /// Returns the start of the stream, once enough packets have arrived or time has passed; without a time, now.
    /// Packets before the returned position may have been sent before all that arrived. `open` is the number of shots
    /// under assembly.
    #[inline]
    pub(super) fn start_position(&self, now_ns: Option<u64>, open: usize) -> Option<u64> {
        let arrivals = self.arrivals?;
        let is_stale = now_ns.is_none_or(|now| now.saturating_sub(arrivals.since_ns) > self.timeout_ns);
        let is_ready = is_stale || arrivals.count >= 2 * MAX_REORDER || open as u64 > self.window;
        is_ready.then(|| arrivals.first.saturating_add(if arrivals.reordered { MAX_REORDER } else { 0 }))
    }

    /// Returns `true` if a shot lacks a packet before this position.
    pub(super) fn lacks(&self, number: u64, mut missing: impl Iterator<Item = u32>, before: u64) -> bool {
        missing.any(|index| self.position(number, index) < before)
    }

    /// Returns the drop cause of packets of shots before the first one.
    pub(super) fn discard_cause(&self) -> DropCause {
        if self.resume_at.is_some() { DropCause::SenderRestart } else { DropCause::BeforeStart }
    }

    /// Ends joining: the stream begins with this shot. Returns the number at which it should continue after a restart.
    pub(super) fn begin(&mut self, first_shot: u64) -> Option<u64> {
        self.arrivals = None;
        self.first_shot = first_shot;
        self.resume_at.take()
    }

    /// Makes the stream join again, with this number for its next shot.
    pub(super) fn resume_from(&mut self, from: u64) {
        self.resume_at = Some(from);
    }

    /// Stops waiting for a restarted sender. Returns the number at which the stream should have continued.
    pub(super) fn abandon(&mut self) -> Option<u64> {
        self.resume_at.take()
    }

    /// Raises the number of the first shot by a correction.
    pub(super) fn raise(&mut self, ahead: u64) {
        self.first_shot += ahead;
    }

    /// Returns the position of a packet from the stream's start, saturating: a sender may choose numbers whose
    /// positions exceed 64 bits, and such a stream is joined at a whole shot nevertheless.
    fn position(&self, number: u64, index: u32) -> u64 {
        number.saturating_mul(self.packets.into()).saturating_add(index.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the state for shots of three packets.
    fn joining() -> Joining {
        Joining::new(&StreamConfig { timeout_ns: u64::MAX, ..StreamConfig::of_three_packets() })
    }

    #[test]
    fn packets_in_order_begin_at_the_first() {
        let mut joining = joining();
        assert!(!joining.has_packets() && joining.start_position(None, 0).is_none());
        assert_eq!(joining.note_packet(100, 1, 5), 100 - MAX_REORDER);
        assert_eq!(joining.start_position(Some(5 + MAX_JOIN_NS), 1), None);
        assert_eq!(joining.start_position(Some(6 + MAX_JOIN_NS), 1), Some(301), "time has passed");
        assert_eq!(joining.start_position(Some(5), 5), Some(301), "the window is full");
        assert_eq!(joining.start_position(None, 1), Some(301));
        assert!(joining.lacks(100, [0].into_iter(), 301) && !joining.lacks(100, [1, 2].into_iter(), 301));
        for index in 0..2 * MAX_REORDER - 1 {
            assert_eq!(joining.start_position(Some(5), 1), None);
            joining.note_packet(101 + index, 0, 5);
        }
        assert_eq!(joining.start_position(Some(5), 1), Some(301), "enough packets have arrived");
        assert_eq!(joining.begin(101), None);
        assert_eq!([100, 101].map(|number| joining.cause(number)), [DropCause::BeforeStart, DropCause::Late]);
    }

    #[test]
    fn reordered_packets_extend_the_discarded_range() {
        let mut joining = joining();
        joining.note_packet(100, 1, 5);
        joining.note_packet(100, 0, 5);
        assert_eq!(joining.start_position(None, 1), Some(301 + MAX_REORDER));
    }

    #[test]
    fn a_restarted_sender_continues_with_the_next_number() {
        let mut joining = joining();
        joining.note_packet(100, 0, 5);
        assert_eq!(joining.discard_cause(), DropCause::BeforeStart);
        joining.begin(100);
        joining.resume_from(150);
        assert_eq!((joining.discard_cause(), joining.note_packet(152, 0, 9)), (DropCause::SenderRestart, 150));
        assert_eq!(joining.begin(152), Some(150));
        joining.resume_from(160);
        assert_eq!((joining.abandon(), joining.abandon()), (Some(160), None));
    }

    #[test]
    fn numbers_of_64_bits_do_not_overflow() {
        let mut joining = joining();
        joining.note_packet(u64::MAX, 2, 0);
        joining.note_packet(u64::MAX - 1, 0, 0);
        assert_eq!(joining.start_position(None, 2), Some(u64::MAX));
    }
}
