//! Sleep policy of the receive thread while its queue is empty.
//!
//! Going to sleep and waking costs some 10 us, as much as 20 packets of 8 KiB; spinning costs a whole processor. While
//! packets keep arriving, the thread therefore sleeps for a short time and then takes many packets at once: as long as
//! the packets arriving meanwhile fit the processor's cache, and the receive buffer many times over.

use std::time::{Duration, Instant};

/// Minimum sleep: the kernel's timers add some 50 us to any.
const MIN_SLEEP: Duration = Duration::from_micros(50);
/// Maximum sleep, which is the latency that it adds to a shot.
const MAX_SLEEP: Duration = Duration::from_micros(500);
/// Maximum payload that may arrive during a sleep, in bytes: it fits the second-level cache, where it is copied from.
const MAX_BACKLOG_BYTES: f64 = 512.0 * 1024.0;
/// Silence after which the thread sleeps until the next packet instead of for a fixed time.
const SLEEP_AFTER: Duration = Duration::from_millis(5);
/// Silence during which an empty queue is polled again at once, if packets arrive too fast for a pause.
const SPIN_TIME: Duration = Duration::from_micros(50);
/// Upper bound of the arrival rate during a sleep, in bytes per second: 200 Gbit/s.
const MAX_BYTES_PER_S: f64 = 25e9;

/// Action for an empty queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idle {
    /// Poll again.
    Poll,
    /// Sleep for this time, even if packets arrive.
    Pause(Duration),
    /// Sleep until a packet arrives.
    Sleep,
}

/// Sleep policy, based on the arrival rate of packets.
#[derive(Debug)]
pub(super) struct IdlePolicy {
    /// Maximum sleep that the receive buffer tolerates.
    max: Duration,
    packet_bytes: f64,
    packets: u64,
    since: Instant,
}

impl IdlePolicy {
    /// Creates a policy without packets yet. `receive_buffer`: bytes as the kernel accounts for them; `packet_bytes`:
    /// payload of a packet.
    pub(super) fn new(receive_buffer: usize, packet_bytes: u32, now: Instant) -> Self {
        // Payload takes about half of the accounted bytes; a sleep may fill an eighth of that.
        let max = Duration::from_secs_f64(receive_buffer as f64 / 16.0 / MAX_BYTES_PER_S).min(MAX_SLEEP);
        Self { max, packet_bytes: packet_bytes.into(), packets: 0, since: now }
    }

    /// Counts received packets.
    pub(super) fn count_packets(&mut self, packets: usize) {
        self.packets += packets as u64;
    }

    /// Returns the action for an empty queue. `silence`: time since the last packet.
    pub(super) fn idle(&mut self, now: Instant, silence: Duration) -> Idle {
        if silence > SLEEP_AFTER {
            return Idle::Sleep;
        }
        let bytes_per_s = self.packets as f64 * self.packet_bytes / (now - self.since).as_secs_f64().max(1e-6);
        let pause = Duration::from_secs_f64(MAX_BACKLOG_BYTES / bytes_per_s.max(1.0)).min(self.max);
        if pause >= MIN_SLEEP && self.packets > 0 {
            (self.packets, self.since) = (0, now);
            Idle::Pause(pause)
        } else if silence > SPIN_TIME {
            Idle::Sleep
        } else {
            Idle::Poll
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the action for an empty queue after a millisecond with this number of packets of 8 KiB.
    fn after(packets: usize, receive_buffer: usize) -> Idle {
        let started = Instant::now();
        let mut policy = IdlePolicy::new(receive_buffer, 8192, started);
        policy.count_packets(packets);
        policy.idle(started + MS, Duration::ZERO)
    }

    #[test]
    fn faster_packets_shorten_the_pause() {
        assert_eq!(after(1, 256 << 20), Idle::Pause(MAX_SLEEP));
        let Idle::Pause(pause) = after(200, 256 << 20) else { panic!("13 Gbit/s leave time for a pause") };
        assert!(MIN_SLEEP < pause && pause < MAX_SLEEP, "{pause:?}");
        assert_eq!(after(1500, 256 << 20), Idle::Poll, "100 Gbit/s leave no time");
        assert_eq!(after(200, 4 << 20), Idle::Poll, "a small receive buffer allows no pause");
    }

    #[test]
    fn one_pause_per_batch_of_packets_and_sleep_in_silence() {
        let started = Instant::now();
        let mut policy = IdlePolicy::new(256 << 20, 8192, started);
        policy.count_packets(10);
        assert!(matches!(policy.idle(started + MS, Duration::ZERO), Idle::Pause(_)));
        assert_eq!(policy.idle(started + 2 * MS, Duration::ZERO), Idle::Poll);
        assert_eq!(policy.idle(started + 2 * MS, MS), Idle::Sleep);
        policy.count_packets(10);
        assert_eq!(policy.idle(started + 9 * MS, 6 * MS), Idle::Sleep);
    }
}
