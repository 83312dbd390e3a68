//! Congestion: a receiver tells of marked packets, a sender that is told slows down.
//!
//! The rules are DCQCN's (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, figure 7 and
//! table 2), the messages RoCEv2's (IBTA annex A17, clause 17.9.3): packets that a switch marked (ECN, RFC 3168) are
//! answered with congestion notification packets, at most one per queue pair and 50 µs. The sender then has two rates:
//! the *current* one, which paces it, and the *target*, to which it wants to return.
//!
//! | event | alpha (how congested) | current rate | target rate |
//! |---|---|---|---|
//! | notification | `(1-g)·alpha + g` | cut by `alpha/2` | where current was |
//! | 55 µs without one | `(1-g)·alpha` | | |
//! | increase 1 to 5 of timer or bytes | | half-way to target | |
//! | later ones, *additive* | | half-way to target | + 40 Mbit/s |
//! | later than 5 of both, *hyper* | | half-way to target | + 400 Mbit/s |
//!
//! An increase comes every 55 µs and every 10 MB. Until the first notification, and again when the rate has come back
//! to that of the line, nothing is limited and nothing is computed.
//!
//! Notifications carry no sequence number: whoever knows a queue pair's number and can send from its peer's address
//! can slow it down. So a cut comes at most every 50 µs and never below [`Congestion::MIN_RATE`].

use super::Nanos;
use arrayvec::ArrayVec;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::roce::MAX_HEADER_LEN;

/// Least time between two notifications of one queue pair (DCQCN's N).
const NOTIFY_EVERY: Nanos = 50_000;
/// Time after which alpha decays and the timer brings an increase (DCQCN's K and T).
const PERIOD: Nanos = 55_000;
/// Bytes after which the byte counter brings an increase (DCQCN's B).
const BYTE_PERIOD: u64 = 10_000_000;
/// Increases of fast recovery (DCQCN's F).
const RECOVERY: u32 = 5;
/// Weight of the newest notification in alpha (DCQCN's g).
const GAIN: f64 = 1.0 / 256.0;
/// Additive increase, in bytes a nanosecond: 40 Mbit/s.
const ADDITIVE: f64 = 0.005;
/// Hyper increase, in bytes a nanosecond: 400 Mbit/s, ten times as much, which is QCN's proportion (IEEE 802.1Qau).
const HYPER: f64 = 0.05;
/// What may be sent at once after a pause, in time: a thread that waits for a timer wakes no more exactly than this.
const BURST: Nanos = 20_000;
/// After so long without a notification nothing is limited: additive increases alone lead from the least rate to the
/// line's by then.
const FORGET: Nanos = 150_000_000;

/// Answers marks, at most one every 50 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notifier {
    next: Nanos,
}

impl Notifier {
    /// A marked packet has come: whether a notification must be sent now.
    pub fn marked(&mut self, now: Nanos) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now.saturating_add(NOTIFY_EVERY);
        }
        due
    }
}

/// A congestion notification packet for a peer's queue pair: PSN 0, BECN, and 16 reserved bytes, which stand in the
/// header here because they are no payload of anyone.
pub fn notification(dest_qp: u32) -> ArrayVec<u8, MAX_HEADER_LEN> {
    const RESERVED: [u8; 16] = [0; 16];
    let bth = Bth { becn: true, ..Bth::new(Opcode::CongestionNotification, dest_qp, 0) };
    bth.emit().into_iter().chain(RESERVED).collect()
}

/// Paces a sender that has been notified.
#[derive(Clone, Debug, Default)]
pub struct Congestion {
    limit: Option<Box<Limit>>,
}

/// A rate below the line's, and what DCQCN remembers of how it came to be.
#[derive(Clone, Debug)]
struct Limit {
    /// Bytes a nanosecond.
    current: f64,
    target: f64,
    alpha: f64,
    /// The next packet may go [`BURST`] before this.
    clock: f64,
    /// The last cut.
    cut: Nanos,
    /// When alpha decays next and the timer brings its next increase.
    timer: Nanos,
    /// Bytes since the byte counter's last increase.
    bytes: u64,
    /// Increases since the last cut.
    by_timer: u32,
    by_bytes: u32,
}

impl Congestion {
    /// The rate from which the first cut starts, in bytes a second: 100 Gbit/s. A slower line is found after a few
    /// cuts, because alpha begins at 1.
    pub const LINE_RATE: u64 = 12_500_000_000;
    /// No cut goes below this, in bytes a second: 80 Mbit/s.
    pub const MIN_RATE: u64 = 10_000_000;
    const LINE: f64 = Self::LINE_RATE as f64 / 1e9;
    const MIN: f64 = Self::MIN_RATE as f64 / 1e9;

    /// A notification has come.
    pub fn on_cnp(&mut self, now: Nanos) {
        self.advance(now);
        // The peer sends no more than one in this time; more are not its.
        if self.limit.as_ref().is_some_and(|limit| now.saturating_sub(limit.cut) < NOTIFY_EVERY) {
            return;
        }
        self.limit.get_or_insert_with(|| Box::new(Limit::at_line_rate(now))).cut(now);
    }

    /// Whether a packet of so many bytes may go now. (Its length does not matter: the one before it has paid.)
    #[inline]
    pub fn allow(&mut self, now: Nanos, bytes: u32) -> bool {
        let _ = bytes;
        if self.limit.is_none() {
            return true;
        }
        self.advance(now);
        self.limit.as_ref().is_none_or(|limit| limit.due() <= now)
    }

    /// When the next packet may go, if that is not now.
    #[inline]
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        self.limit.as_ref().map(|limit| limit.due()).filter(|due| *due > now)
    }

    /// A packet has gone.
    #[inline]
    pub fn sent(&mut self, now: Nanos, bytes: u32) {
        let Some(limit) = &mut self.limit else { return };
        limit.clock = limit.clock.max(now as f64) + f64::from(bytes) / limit.current;
        limit.bytes += u64::from(bytes);
        while limit.bytes >= BYTE_PERIOD {
            limit.bytes -= BYTE_PERIOD;
            limit.by_bytes += 1;
            limit.increase();
        }
    }

    /// The rate that it is paced to, in bytes a second; none: it is not.
    pub fn rate(&self) -> Option<u64> {
        self.limit.as_ref().map(|limit| (limit.current * 1e9) as u64)
    }

    /// Does what the timer has brought since the last call.
    fn advance(&mut self, now: Nanos) {
        let Some(limit) = &mut self.limit else { return };
        if now.saturating_sub(limit.cut) > FORGET {
            self.limit = None;
            return;
        }
        while limit.timer <= now && limit.current < Self::LINE {
            limit.timer = limit.timer.saturating_add(PERIOD);
            limit.alpha *= 1.0 - GAIN;
            limit.by_timer += 1;
            limit.increase();
        }
        if limit.current >= Self::LINE {
            self.limit = None;
        }
    }
}

impl Limit {
    fn at_line_rate(now: Nanos) -> Self {
        let line = Congestion::LINE;
        let (clock, cut, timer) = (now as f64, now, now);
        Self { current: line, target: line, alpha: 1.0, clock, cut, timer, bytes: 0, by_timer: 0, by_bytes: 0 }
    }

    fn cut(&mut self, now: Nanos) {
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(Congestion::MIN);
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        (self.cut, self.timer) = (now, now.saturating_add(PERIOD));
        (self.bytes, self.by_timer, self.by_bytes) = (0, 0, 0);
    }

    fn increase(&mut self) {
        if self.by_timer.min(self.by_bytes) > RECOVERY {
            self.target += HYPER;
        } else if self.by_timer.max(self.by_bytes) > RECOVERY {
            self.target += ADDITIVE;
        }
        self.target = self.target.min(Congestion::LINE);
        self.current = (self.current + self.target) / 2.0;
        // Halving a distance never ends it.
        if self.target - self.current < ADDITIVE {
            self.current = self.target;
        }
    }

    fn due(&self) -> Nanos {
        (self.clock as Nanos).saturating_sub(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 4096;

    /// Sends as fast as it may for a time and returns the bytes.
    fn drive(congestion: &mut Congestion, from: Nanos, until: Nanos) -> u64 {
        let (mut now, mut bytes) = (from, 0);
        while now < until {
            if congestion.allow(now, PACKET) {
                congestion.sent(now, PACKET);
                bytes += u64::from(PACKET);
                now += 300; // the line itself takes time
            } else {
                now = congestion.next(now).expect("what may not go now may go at some time");
            }
        }
        bytes
    }

    #[test]
    fn a_notification_is_the_packet_of_the_specification() {
        let packet = notification(0x118);
        assert_eq!(packet[..12], [0x81, 0x40, 0xFF, 0xFF, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
        assert_eq!(packet[12..], [0; 16]);
    }

    #[test]
    fn marks_are_answered_once_in_50_microseconds() {
        let mut notifier = Notifier::default();
        let answered = (0..1000).filter(|us| notifier.marked(us * 1000)).count();
        assert_eq!(answered, 20);
    }

    #[test]
    fn nothing_is_limited_before_the_first_notification() {
        let mut congestion = Congestion::default();
        congestion.sent(0, u32::MAX);
        assert!(congestion.allow(0, u32::MAX) && congestion.next(0).is_none() && congestion.rate().is_none());
    }

    #[test]
    fn the_first_notification_halves_the_rate_and_the_pace_keeps_to_it() {
        let mut congestion = Congestion::default();
        congestion.on_cnp(1000);
        assert_eq!(congestion.rate(), Some(Congestion::LINE_RATE / 2));
        // Cut down to the minimum, where the timer's increases are small beside the rate's own steps.
        let mut now = 1000;
        for _ in 0..200 {
            now += NOTIFY_EVERY;
            congestion.on_cnp(now);
        }
        assert_eq!(congestion.rate(), Some(Congestion::MIN_RATE));
        let bytes = drive(&mut congestion, now, now + PERIOD);
        let most = Congestion::MIN_RATE * (PERIOD + BURST) / 1_000_000_000 + 2 * u64::from(PACKET);
        assert!(bytes > 0 && bytes <= most, "{bytes} bytes in a period at the least rate, at most {most}");
    }

    #[test]
    fn notifications_that_come_too_often_cut_once() {
        let mut congestion = Congestion::default();
        (1000..1000 + NOTIFY_EVERY).step_by(500).for_each(|now| congestion.on_cnp(now));
        assert_eq!(congestion.rate(), Some(Congestion::LINE_RATE / 2));
    }

    #[test]
    fn fast_recovery_goes_half_way_to_the_target_and_then_the_target_rises() {
        let mut congestion = Congestion::default();
        for cut in 0..4 {
            congestion.on_cnp(1000 + cut * NOTIFY_EVERY);
        }
        let cut = 1000 + 3 * NOTIFY_EVERY;
        let before = congestion.limit.as_ref().unwrap().target;
        for step in 1..=u64::from(RECOVERY) {
            let gap = before - congestion.limit.as_ref().unwrap().current;
            assert!(congestion.allow(cut + step * PERIOD, PACKET));
            let limit = congestion.limit.as_ref().unwrap();
            assert_eq!(limit.target, before);
            assert!(before - limit.current <= gap / 2.0 + 1e-9);
        }
        congestion.allow(cut + 6 * PERIOD, PACKET);
        assert_eq!(congestion.limit.as_ref().unwrap().target, before + ADDITIVE);
        // With the byte counter as far, it is the hyper increase.
        congestion.limit.as_mut().unwrap().by_bytes = 9;
        congestion.allow(cut + 7 * PERIOD, PACKET);
        assert_eq!(congestion.limit.as_ref().unwrap().target, before + ADDITIVE + HYPER);
    }

    #[test]
    fn bytes_bring_increases_as_well() {
        let mut congestion = Congestion::default();
        congestion.on_cnp(1000);
        let before = congestion.rate();
        congestion.sent(1000, BYTE_PERIOD as u32);
        assert!(congestion.rate() > before);
        assert_eq!(congestion.limit.as_ref().unwrap().by_bytes, 1);
    }

    #[test]
    fn alpha_falls_without_notifications_so_a_rare_one_cuts_less() {
        let mut congestion = Congestion::default();
        for cut in 0..8 {
            congestion.on_cnp(1000 + cut * NOTIFY_EVERY);
        }
        let later = 1000 + 100 * PERIOD;
        congestion.allow(later, PACKET);
        let before = congestion.rate().unwrap();
        congestion.on_cnp(later);
        let after = congestion.rate().unwrap();
        assert!(after > before / 2 && after < before, "{before} to {after}");
    }

    #[test]
    fn an_idle_or_recovered_sender_is_unlimited_again() {
        let mut idle = Congestion::default();
        (1..100).for_each(|cut| idle.on_cnp(cut * NOTIFY_EVERY));
        assert!(idle.allow(100 * NOTIFY_EVERY + FORGET, PACKET) && idle.rate().is_none());
        let mut once = Congestion::default();
        once.on_cnp(1000);
        assert!(once.allow(1000 + 50 * PERIOD, PACKET) && once.rate().is_none());
    }

    #[test]
    fn no_clock_value_makes_it_panic() {
        let mut congestion = Congestion::default();
        for now in [u64::MAX, 0, u64::MAX - 1, 1, u64::MAX] {
            congestion.on_cnp(now);
            congestion.allow(now, PACKET);
            congestion.sent(now, u32::MAX);
            congestion.next(now);
        }
    }
}
