//! Pacing of frames.

/// A dual token bucket. It has no clock: each call passes the time in ns of one steady clock. Bytes pass at the steady
/// rate; a late sender catches up, but never above the peak rate, so that a receiver's buffers see at most one burst.
#[derive(Debug)]
pub struct TokenBucket {
    steady: Level,
    peak: Level,
    /// Time of the last call, in ns.
    last_ns: u64,
}

/// Maximum burst, as time at the bucket's rate, in ns.
const BURST_NS: f64 = 500_000.0;
/// Maximum lateness that is made up for, in ns.
const MAX_LATE_NS: f64 = 100_000_000.0;

#[derive(Debug)]
struct Level {
    bytes_per_ns: f64,
    capacity: f64,
    tokens: f64,
}

impl Level {
    /// Creates a level that holds one burst and can accumulate up to `capacity_ns` of its rate.
    fn new(bits_per_s: f64, capacity_ns: f64, max_frame_bytes: u32) -> Self {
        let bytes_per_ns = bits_per_s / 8e9;
        let burst = (bytes_per_ns * BURST_NS).max(f64::from(max_frame_bytes));
        Self { bytes_per_ns, capacity: (bytes_per_ns * capacity_ns).max(burst), tokens: burst }
    }

    /// Returns the time until `bytes` may be sent, in ns.
    fn wait_ns(&self, bytes: f64) -> f64 {
        (bytes - self.tokens) / self.bytes_per_ns
    }
}

impl TokenBucket {
    /// Creates a bucket. `max_frame_bytes` is the maximum frame length in bytes.
    pub fn new(steady_bits_per_s: f64, peak_bits_per_s: f64, max_frame_bytes: u32, now: u64) -> Self {
        let steady = Level::new(steady_bits_per_s, MAX_LATE_NS, max_frame_bytes);
        Self { steady, peak: Level::new(peak_bits_per_s, BURST_NS, max_frame_bytes), last_ns: now }
    }

    /// Returns how many of `count` frames of `frame` bytes may be sent now, and takes their tokens. If none may,
    /// returns as an error the time in ns until all of them, or half a burst, may be sent.
    pub fn take(&mut self, frame: u32, count: u32, now: u64) -> Result<u32, u64> {
        let since = now.saturating_sub(self.last_ns) as f64;
        self.last_ns = self.last_ns.max(now);
        let levels = [&mut self.steady, &mut self.peak];
        let mut available = f64::INFINITY;
        for level in levels {
            level.tokens = (level.tokens + since * level.bytes_per_ns).min(level.capacity);
            available = available.min(level.tokens);
        }
        let frame = f64::from(frame);
        let frames = ((available / frame) as u32).min(count);
        if frames == 0 {
            let enough = (self.steady.bytes_per_ns * BURST_NS / 2.0).min(frame * f64::from(count)).max(frame);
            let wait = self.steady.wait_ns(enough).max(self.peak.wait_ns(enough.min(self.peak.capacity)));
            return Err(wait.ceil().max(1.0) as u64);
        }
        self.steady.tokens -= f64::from(frames) * frame;
        self.peak.tokens -= f64::from(frames) * frame;
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn steady_and_peak_rates_are_exceeded_by_one_burst_at_most(
            gbit in 0.001_f64..100.0, times in 1.0_f64..3.0, frame in 64_u32..9000,
            late in prop::collection::vec(0_u64..300_000, 300),
        ) {
            let rate = gbit * 1e9;
            let mut bucket = TokenBucket::new(rate, rate * times, frame, 0);
            let burst = (rate * times / 8e9 * BURST_NS).max(f64::from(frame));
            let (mut now, mut sent) = (0, 0_u64);
            let (mut from, mut before) = (0, 0);
            for (index, late) in late.into_iter().enumerate() {
                match bucket.take(frame, 1000, now) {
                    Ok(frames) => sent += u64::from(frames) * u64::from(frame),
                    Err(wait) => now += wait + late,
                }
                // The peak limit holds over any interval.
                if index % 50 == 0 {
                    (from, before) = (now, sent);
                }
                let max = (now - from) as f64 * rate * times / 8e9 + burst;
                prop_assert!((sent - before) as f64 <= max + 1.0, "{} bytes of {max}", sent - before);
                let max = now as f64 * rate / 8e9 + (rate / 8e9 * BURST_NS).max(f64::from(frame));
                prop_assert!(sent as f64 <= max + 1.0, "{sent} bytes of {max} after {now} ns");
            }
            // A sender that is never late again reaches the steady rate if the peak rate allows it to catch up.
            while let Ok(frames) = bucket.take(frame, 1000, now) {
                sent += u64::from(frames) * u64::from(frame);
            }
            if times > 1.5 {
                for _ in 0..2000 {
                    match bucket.take(frame, 1000, now) {
                        Ok(frames) => sent += u64::from(frames) * u64::from(frame),
                        Err(wait) => now += wait,
                    }
                }
                let slack = 2.0 * f64::from(frame) + rate / 8e9 * BURST_NS;
                let expected = now as f64 * rate / 8e9;
                prop_assert!(sent as f64 + slack >= expected || now < 200_000_000, "{sent} of {expected} bytes after {now} ns");
            }
        }
    }

    #[test]
    fn a_late_sender_catches_up_at_the_peak_rate() {
        // 8 Gbit/s is a byte per ns.
        let mut bucket = TokenBucket::new(8e9, 16e9, 1000, 0);
        let mut drain = |now: u64| {
            let mut frames = 0;
            while let Ok(more) = bucket.take(1000, 64, now) {
                frames += more;
            }
            frames
        };
        assert_eq!(drain(0), 500);
        // 10 ms late: the backlog is 10000 frames; a burst of 1000 may be sent, then two per us.
        assert_eq!(drain(10_000_000), 1000);
        assert_eq!((drain(10_100_000), drain(10_200_000)), (200, 200));
        let rest: u32 = (1..100).map(|step| drain(10_200_000 + step * 100_000)).sum();
        assert_eq!(500 + 1000 + 400 + rest, 20_100 + 500, "the steady rate over 20.1 ms plus the first burst");
    }
}
