//! Congestion control (DCQCN): a receiver reports marked packets, and the sender reduces its rate.
//!
//! The rules are DCQCN's (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, figure 7 and
//! table 2), the messages RoCEv2's (IBTA annex A17, clause 17.9.3): packets that a switch marked (ECN, RFC 3168) are
//! answered with congestion notification packets (CNP), at most one per queue pair every 50 µs. The sender then has two
//! rates: the *current* rate, which paces it, and the *target* rate, towards which it recovers.
//!
//! | event | alpha (how congested) | current rate | target rate |
//! |---|---|---|---|
//! | notification | `(1-g)·alpha + g` | cut by `alpha/2` | previous current rate |
//! | 55 µs without one | `(1-g)·alpha` | | |
//! | *fast recovery*: at most 5 increases by each of timer and bytes | | half-way to target | |
//! | *additive* increase: more than 5 by one of them | | half-way to target | + 40 Mbit/s |
//! | *hyper* increase: more than 5 by both | | half-way to target | + 400 Mbit/s |
//!
//! An increase happens every 55 µs and every 10 MB. Until the first notification, and again once the rate is back at
//! line rate, nothing is limited and nothing is computed.
//!
//! Notifications carry no sequence number: an attacker that has a queue pair's number and can send from its peer's
//! address can slow it down. Therefore the rate is cut at most every 50 µs and never below [`Congestion::MIN_RATE`].
//!
//! ```
//! use shotline_verbs::engine::congestion::Congestion;
//!
//! let mut congestion = Congestion::default();
//! assert_eq!(congestion.rate(), None); // unlimited
//! congestion.on_cnp(1_000);
//! assert_eq!(congestion.rate(), Some(Congestion::LINE_RATE / 2));
//!
//! // Before each packet:
//! let now = 2_000;
//! if congestion.may_send(now) {
//!     congestion.on_sent(now, 4096);
//! }
//! congestion.may_send(now + 50 * 55_000); // 50 periods without a notification
//! assert_eq!(congestion.rate(), None);
//! ```

use super::Nanos;
use arrayvec::ArrayVec;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::roce::MAX_HEADER_LEN;

/// Minimum time between two notifications of one queue pair (DCQCN's N).
const CNP_INTERVAL: Nanos = 50_000;
/// Period of the alpha decay and of the timer's rate increase (DCQCN's K and T).
const PERIOD: Nanos = 55_000;
/// Bytes between two rate increases of the byte counter (DCQCN's B).
const BYTE_PERIOD: u64 = 10_000_000;
/// Number of fast-recovery steps (DCQCN's F).
const FAST_RECOVERY_STEPS: u32 = 5;
/// Weight of the latest notification in alpha (DCQCN's g).
const GAIN: f64 = 1.0 / 256.0;
/// Additive increase (DCQCN's R_AI), in bytes per nanosecond: 40 Mbit/s.
const ADDITIVE: f64 = 0.005;
/// Hyper increase (R_HAI), in bytes per nanosecond: 400 Mbit/s, ten times the additive one as in QCN (IEEE 802.1Qau).
const HYPER: f64 = 0.05;
/// Burst allowed after a pause, as a time: the wake-up accuracy of a thread that waits for a timer.
const BURST: Nanos = 20_000;
/// Time without a notification after which the limit is removed: by then additive increases alone have raised the rate
/// from the minimum to line rate.
const LIMIT_EXPIRY: Nanos = 150_000_000;

/// Limits notifications of marked packets to one every 50 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Notifier {
    /// Earliest time of the next notification.
    next: Nanos,
}

impl Notifier {
    /// Records a marked packet. Returns `true` if a notification must be sent now.
    pub fn on_marked(&mut self, now: Nanos) -> bool {
        let may_notify = now >= self.next;
        if may_notify {
            self.next = now.saturating_add(CNP_INTERVAL);
        }
        may_notify
    }
}

/// Returns a congestion notification packet for a peer's queue pair: PSN 0, BECN, and 16 reserved bytes, which are part
/// of the header here because they are not application payload.
pub fn notification(dest_qp: u32) -> ArrayVec<u8, MAX_HEADER_LEN> {
    const RESERVED: [u8; 16] = [0; 16];
    let bth = Bth { becn: true, ..Bth::new(Opcode::CongestionNotification, dest_qp, 0) };
    bth.emit().into_iter().chain(RESERVED).collect()
}

/// Rate limiter of a sender that was notified.
#[derive(Clone, Debug, Default)]
pub struct Congestion {
    limit: Option<Box<Limit>>,
}

/// DCQCN state while the rate is below line rate.
#[derive(Clone, Debug)]
struct Limit {
    /// Current rate, in bytes per nanosecond.
    current: f64,
    /// Rate to recover to, in bytes per nanosecond.
    target: f64,
    /// Estimated congestion, 0 to 1.
    alpha: f64,
    /// Time at which the packets sent so far have left at the current rate, in nanoseconds. The next packet may be sent
    /// [`BURST`] earlier.
    idle_at: f64,
    last_cut: Nanos,
    /// Time of the next alpha decay and timer increase.
    timer: Nanos,
    /// Bytes since the last increase of the byte counter.
    bytes: u64,
    /// Increases since the last cut, by the timer and by the byte counter.
    by_timer: u32,
    by_bytes: u32,
}

impl Congestion {
    /// Rate before the first cut, in bytes per second: 100 Gbit/s. The rate of a slower line is reached after a few
    /// cuts, because alpha starts at 1.
    pub const LINE_RATE: u64 = 12_500_000_000;
    /// Minimum rate, in bytes per second: 80 Mbit/s.
    pub const MIN_RATE: u64 = 10_000_000;
    const LINE: f64 = Self::LINE_RATE as f64 / 1e9;
    const MIN: f64 = Self::MIN_RATE as f64 / 1e9;

    /// Handles a received notification.
    pub fn on_cnp(&mut self, now: Nanos) {
        self.advance(now);
        // The peer sends at most one notification in this time; more of them are forged.
        if self.limit.as_ref().is_some_and(|limit| now.saturating_sub(limit.last_cut) < CNP_INTERVAL) {
            return;
        }
        self.limit.get_or_insert_with(|| Box::new(Limit::at_line_rate(now))).cut(now);
    }

    /// Returns `true` if a packet of any length may be sent now: the packets before it have been charged.
    #[inline]
    pub fn may_send(&mut self, now: Nanos) -> bool {
        if self.limit.is_none() {
            return true;
        }
        self.advance(now);
        self.limit.as_ref().is_none_or(|limit| limit.next_send() <= now)
    }

    /// Returns the time at which the next packet may be sent, or `None` if that is at or before `now`.
    #[inline]
    pub fn next_send_time(&self, now: Nanos) -> Option<Nanos> {
        self.limit.as_ref().map(|limit| limit.next_send()).filter(|next| *next > now)
    }

    /// Charges a sent packet to the current rate.
    #[inline]
    pub fn on_sent(&mut self, now: Nanos, bytes: u32) {
        let Some(limit) = &mut self.limit else { return };
        limit.idle_at = limit.idle_at.max(now as f64) + f64::from(bytes) / limit.current;
        limit.bytes += u64::from(bytes);
        while limit.bytes >= BYTE_PERIOD {
            limit.bytes -= BYTE_PERIOD;
            limit.by_bytes += 1;
            limit.increase();
        }
    }

    /// Returns the pacing rate in bytes per second, or `None` if unlimited.
    pub fn rate(&self) -> Option<u64> {
        self.limit.as_ref().map(|limit| (limit.current * 1e9) as u64)
    }

    /// Applies the timer's decays and increases since the last call.
    fn advance(&mut self, now: Nanos) {
        let Some(limit) = &mut self.limit else { return };
        if now.saturating_sub(limit.last_cut) > LIMIT_EXPIRY {
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
        let (idle_at, last_cut, timer) = (now as f64, now, now);
        Self { current: line, target: line, alpha: 1.0, idle_at, last_cut, timer, bytes: 0, by_timer: 0, by_bytes: 0 }
    }

    fn cut(&mut self, now: Nanos) {
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(Congestion::MIN);
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        (self.last_cut, self.timer) = (now, now.saturating_add(PERIOD));
        (self.bytes, self.by_timer, self.by_bytes) = (0, 0, 0);
    }

    fn increase(&mut self) {
        if self.by_timer.min(self.by_bytes) > FAST_RECOVERY_STEPS {
            self.target += HYPER;
        } else if self.by_timer.max(self.by_bytes) > FAST_RECOVERY_STEPS {
            self.target += ADDITIVE;
        }
        self.target = self.target.min(Congestion::LINE);
        self.current = (self.current + self.target) / 2.0;
        // Halving the distance alone never reaches the target.
        if self.target - self.current < ADDITIVE {
            self.current = self.target;
        }
    }

    fn next_send(&self) -> Nanos {
        (self.idle_at as Nanos).saturating_sub(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 4096;

    /// Sends as fast as allowed for a time and returns the number of bytes.
    fn drive(congestion: &mut Congestion, from: Nanos, until: Nanos) -> u64 {
        let (mut now, mut bytes) = (from, 0);
        while now < until {
            if congestion.may_send(now) {
                congestion.on_sent(now, PACKET);
                bytes += u64::from(PACKET);
                now += 300; // transmission time of the line
            } else {
                now = congestion.next_send_time(now).expect("a time to send at");
            }
        }
        bytes
    }

    #[test]
    fn notification_packet_has_the_specified_bytes() {
        let packet = notification(0x118);
        assert_eq!(packet[..12], [0x81, 0x40, 0xFF, 0xFF, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
        assert_eq!(packet[12..], [0; 16]);
    }

    #[test]
    fn marked_packets_are_notified_once_in_50_us() {
        let mut notifier = Notifier::default();
        let answered = (0..1000).filter(|us| notifier.on_marked(us * 1000)).count();
        assert_eq!(answered, 20);
    }

    #[test]
    fn rate_is_unlimited_before_the_first_notification() {
        let mut congestion = Congestion::default();
        congestion.on_sent(0, u32::MAX);
        assert!(congestion.may_send(0) && congestion.next_send_time(0).is_none() && congestion.rate().is_none());
    }

    #[test]
    fn first_notification_halves_the_rate_and_pacing_obeys_it() {
        let mut congestion = Congestion::default();
        congestion.on_cnp(1000);
        assert_eq!(congestion.rate(), Some(Congestion::LINE_RATE / 2));
        // Cut to the minimum rate, where the timer's increases are small compared with the rate itself.
        let mut now = 1000;
        for _ in 0..200 {
            now += CNP_INTERVAL;
            congestion.on_cnp(now);
        }
        assert_eq!(congestion.rate(), Some(Congestion::MIN_RATE));
        let bytes = drive(&mut congestion, now, now + PERIOD);
        let max = Congestion::MIN_RATE * (PERIOD + BURST) / 1_000_000_000 + 2 * u64::from(PACKET);
        assert!(bytes > 0 && bytes <= max, "{bytes} bytes in a period at the minimum rate, at most {max}");
    }

    #[test]
    fn notifications_within_50_us_cut_once() {
        let mut congestion = Congestion::default();
        (1000..1000 + CNP_INTERVAL).step_by(500).for_each(|now| congestion.on_cnp(now));
        assert_eq!(congestion.rate(), Some(Congestion::LINE_RATE / 2));
    }

    #[test]
    fn fast_recovery_halves_the_gap_then_raises_the_target() {
        let mut congestion = Congestion::default();
        for cut in 0..4 {
            congestion.on_cnp(1000 + cut * CNP_INTERVAL);
        }
        let cut = 1000 + 3 * CNP_INTERVAL;
        let before = congestion.limit.as_ref().unwrap().target;
        for step in 1..=u64::from(FAST_RECOVERY_STEPS) {
            let gap = before - congestion.limit.as_ref().unwrap().current;
            assert!(congestion.may_send(cut + step * PERIOD));
            let limit = congestion.limit.as_ref().unwrap();
            assert_eq!(limit.target, before);
            assert!(before - limit.current <= gap / 2.0 + 1e-9);
        }
        congestion.may_send(cut + 6 * PERIOD);
        assert_eq!(congestion.limit.as_ref().unwrap().target, before + ADDITIVE);
        // With the byte counter as far advanced, it is the hyper increase.
        congestion.limit.as_mut().unwrap().by_bytes = 9;
        congestion.may_send(cut + 7 * PERIOD);
        assert_eq!(congestion.limit.as_ref().unwrap().target, before + ADDITIVE + HYPER);
    }

    #[test]
    fn byte_counter_increases_the_rate() {
        let mut congestion = Congestion::default();
        congestion.on_cnp(1000);
        let before = congestion.rate();
        congestion.on_sent(1000, BYTE_PERIOD as u32);
        assert!(congestion.rate() > before);
        assert_eq!(congestion.limit.as_ref().unwrap().by_bytes, 1);
    }

    #[test]
    fn alpha_decays_so_a_rare_notification_cuts_less() {
        let mut congestion = Congestion::default();
        for cut in 0..8 {
            congestion.on_cnp(1000 + cut * CNP_INTERVAL);
        }
        let later = 1000 + 100 * PERIOD;
        congestion.may_send(later);
        let before = congestion.rate().unwrap();
        congestion.on_cnp(later);
        let after = congestion.rate().unwrap();
        assert!(after > before / 2 && after < before, "{before} to {after}");
    }

    #[test]
    fn idle_or_recovered_sender_becomes_unlimited() {
        let mut idle = Congestion::default();
        (1..100).for_each(|cut| idle.on_cnp(cut * CNP_INTERVAL));
        assert!(idle.may_send(100 * CNP_INTERVAL + LIMIT_EXPIRY) && idle.rate().is_none());
        let mut once = Congestion::default();
        once.on_cnp(1000);
        assert!(once.may_send(1000 + 50 * PERIOD) && once.rate().is_none());
    }

    #[test]
    fn no_clock_value_panics() {
        let mut congestion = Congestion::default();
        for now in [u64::MAX, 0, u64::MAX - 1, 1, u64::MAX] {
            congestion.on_cnp(now);
            congestion.may_send(now);
            congestion.on_sent(now, u32::MAX);
            congestion.next_send_time(now);
        }
    }
}
