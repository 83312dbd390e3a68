//! How fast frames leave.

/// Two token buckets without a clock: every call brings the time, in ns of one steady clock. Bytes go through at a steady
/// rate; who comes late catches up, but never faster than the peak rate, so that a receiver's buffers do not see more
/// than a burst at once.
#[derive(Debug)]
pub struct Bucket {
    steady: Level,
    peak: Level,
    at_ns: u64,
}

/// Longest burst, in ns of its rate.
const BURST_NS: f64 = 500_000.0;
/// Lateness that is caught up with.
const LATE_NS: f64 = 100_000_000.0;

#[derive(Debug)]
struct Level {
    bytes_per_ns: f64,
    most: f64,
    now: f64,
}

impl Level {
    /// Full, for a burst; it can hold more, for who comes late.
    fn new(bits_per_s: f64, most_ns: f64, largest: u32) -> Self {
        let bytes_per_ns = bits_per_s / 8e9;
        let burst = (bytes_per_ns * BURST_NS).max(f64::from(largest));
        Self { bytes_per_ns, most: (bytes_per_ns * most_ns).max(burst), now: burst }
    }

    /// In how many ns so many bytes may go.
    fn wait_ns(&self, bytes: f64) -> f64 {
        (bytes - self.now) / self.bytes_per_ns
    }
}

impl Bucket {
    /// `largest` is the most bytes that are taken in one piece.
    pub fn new(steady_bits_per_s: f64, peak_bits_per_s: f64, largest: u32, now: u64) -> Self {
        let steady = Level::new(steady_bits_per_s, LATE_NS, largest);
        Self { steady, peak: Level::new(peak_bits_per_s, BURST_NS, largest), at_ns: now }
    }

    /// How many of `count` frames of so many bytes may go now; if none may, in how many ns all or half a burst of
    /// them may.
    pub fn take(&mut self, frame: u32, count: u32, now: u64) -> Result<u32, u64> {
        let since = now.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now);
        let levels = [&mut self.steady, &mut self.peak];
        let mut least = f64::INFINITY;
        for level in levels {
            level.now = (level.now + since * level.bytes_per_ns).min(level.most);
            least = least.min(level.now);
        }
        let frame = f64::from(frame);
        let frames = ((least / frame) as u32).min(count);
        if frames == 0 {
            let enough = (self.steady.bytes_per_ns * BURST_NS / 2.0).min(frame * f64::from(count)).max(frame);
            let wait = self.steady.wait_ns(enough).max(self.peak.wait_ns(enough.min(self.peak.most)));
            return Err(wait.ceil().max(1.0) as u64);
        }
        self.steady.now -= f64::from(frames) * frame;
        self.peak.now -= f64::from(frames) * frame;
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_more_than_a_burst_above_the_peak_rate_and_the_steady_rate_for_who_is_late(
            gbit in 0.001_f64..100.0, times in 1.0_f64..3.0, frame in 64_u32..9000,
            late in prop::collection::vec(0_u64..300_000, 300),
        ) {
            let rate = gbit * 1e9;
            let mut bucket = Bucket::new(rate, rate * times, frame, 0);
            let burst = (rate * times / 8e9 * BURST_NS).max(f64::from(frame));
            let (mut now, mut sent) = (0, 0_u64);
            let (mut from, mut before) = (0, 0);
            for (index, late) in late.into_iter().enumerate() {
                match bucket.take(frame, 1000, now) {
                    Ok(frames) => sent += u64::from(frames) * u64::from(frame),
                    Err(wait) => now += wait + late,
                }
                // From any moment on.
                if index % 50 == 0 {
                    (from, before) = (now, sent);
                }
                let most = (now - from) as f64 * rate * times / 8e9 + burst;
                prop_assert!((sent - before) as f64 <= most + 1.0, "{} bytes of {most}", sent - before);
                let most = now as f64 * rate / 8e9 + (rate / 8e9 * BURST_NS).max(f64::from(frame));
                prop_assert!(sent as f64 <= most + 1.0, "{sent} bytes of {most} after {now} ns");
            }
            // Who is in time from now on has the steady rate in the end, if the peak allows to catch up.
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
                let due = now as f64 * rate / 8e9;
                prop_assert!(sent as f64 + slack >= due || now < 200_000_000, "{sent} bytes of {due} after {now} ns");
            }
        }
    }

    #[test]
    fn who_came_late_catches_up_at_the_peak_rate() {
        // 8 Gbit/s are a byte a ns.
        let mut bucket = Bucket::new(8e9, 16e9, 1000, 0);
        let mut drain = |now: u64| {
            let mut frames = 0;
            while let Ok(more) = bucket.take(1000, 64, now) {
                frames += more;
            }
            frames
        };
        assert_eq!(drain(0), 500);
        // Ten milliseconds late: 10000 frames are due, a burst of 1000 may go, then two each us.
        assert_eq!(drain(10_000_000), 1000);
        assert_eq!((drain(10_100_000), drain(10_200_000)), (200, 200));
        let rest: u32 = (1..100).map(|step| drain(10_200_000 + step * 100_000)).sum();
        assert_eq!(500 + 1000 + 400 + rest, 20_100 + 500, "all that was due after 20.1 ms, and the first burst");
    }
}
