//! When a receive thread with an empty queue rests instead of looking again at once.
//!
//! Going to sleep and waking cost some 10 us, as much as 20 packets of 8 KiB; spinning costs a whole processor. So
//! while packets keep coming the thread rests for a while and then takes many at once: as long as what comes
//! meanwhile still fits the processor's cache, and the receive buffer many times over.

use std::time::{Duration, Instant};

/// Shortest rest: the kernel's timers add some 50 us to any.
const SHORTEST: Duration = Duration::from_micros(50);
/// Longest rest, which is the latency that it adds to a shot.
const LONGEST: Duration = Duration::from_micros(500);
/// Payload that may arrive during a rest, in bytes: it fits the second-level cache, where it is copied from.
const BACKLOG_BYTES: f64 = 512.0 * 1024.0;
/// Silence after which the thread sleeps until the next packet instead of resting.
const LULL: Duration = Duration::from_millis(5);
/// Silence during which an empty queue is polled again at once, where there is no rest.
const SPIN: Duration = Duration::from_micros(50);
/// Upper bound of the arrival rate during a rest, in bytes per second: 200 Gbit/s.
const FASTEST_LINK: f64 = 25e9;

/// What to do when nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Look again.
    Look,
    /// Sleep for this time, whatever comes.
    Rest(Duration),
    /// Sleep until something comes.
    Sleep,
}

/// Measures how fast packets come.
#[derive(Debug)]
pub(super) struct Rest {
    /// Longest rest that the receive buffer outlasts.
    most: Duration,
    packet_bytes: f64,
    packets: u64,
    since: Instant,
}

impl Rest {
    /// Without packets yet. `receive_buffer`: bytes as the kernel accounts for them; `packet_bytes`: payload of a packet.
    pub(super) fn new(receive_buffer: usize, packet_bytes: u32, now: Instant) -> Self {
        // Payload fits about half of the accounting; of that, an eighth.
        let most = Duration::from_secs_f64(receive_buffer as f64 / 16.0 / FASTEST_LINK).min(LONGEST);
        Self { most, packet_bytes: packet_bytes.into(), packets: 0, since: now }
    }

    /// Counts packets that were received.
    pub(super) fn took(&mut self, packets: usize) {
        self.packets += packets as u64;
    }

    /// Decides what to do about an empty queue. `silence`: time since the last packet.
    pub(super) fn idle(&mut self, now: Instant, silence: Duration) -> Idle {
        if silence > LULL {
            return Idle::Sleep;
        }
        let bytes_per_s = self.packets as f64 * self.packet_bytes / (now - self.since).as_secs_f64().max(1e-6);
        let rest = Duration::from_secs_f64(BACKLOG_BYTES / bytes_per_s.max(1.0)).min(self.most);
        if rest >= SHORTEST && self.packets > 0 {
            (self.packets, self.since) = (0, now);
            Idle::Rest(rest)
        } else if silence > SPIN {
            Idle::Sleep
        } else {
            Idle::Look
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What is done about an empty queue after a millisecond in which this number of packets of 8 KiB came.
    fn after(packets: usize, receive_buffer: usize) -> Idle {
        let begun = Instant::now();
        let mut rest = Rest::new(receive_buffer, 8192, begun);
        rest.took(packets);
        rest.idle(begun + MS, Duration::ZERO)
    }

    #[test]
    fn the_faster_packets_come_the_shorter_the_rest() {
        assert_eq!(after(1, 256 << 20), Idle::Rest(LONGEST));
        let Idle::Rest(rest) = after(200, 256 << 20) else { panic!("13 Gbit/s leave time for a rest") };
        assert!(SHORTEST < rest && rest < LONGEST, "{rest:?}");
        assert_eq!(after(1500, 256 << 20), Idle::Look, "100 Gbit/s leave none");
        assert_eq!(after(200, 4 << 20), Idle::Look, "a small receive buffer bears none");
    }

    #[test]
    fn a_pause_is_slept_through_and_a_rest_is_not_taken_twice_for_the_same_packets() {
        let begun = Instant::now();
        let mut rest = Rest::new(256 << 20, 8192, begun);
        rest.took(10);
        assert!(matches!(rest.idle(begun + MS, Duration::ZERO), Idle::Rest(_)));
        assert_eq!(rest.idle(begun + 2 * MS, Duration::ZERO), Idle::Look);
        assert_eq!(rest.idle(begun + 2 * MS, MS), Idle::Sleep);
        rest.took(10);
        assert_eq!(rest.idle(begun + 9 * MS, 6 * MS), Idle::Sleep);
    }
}
