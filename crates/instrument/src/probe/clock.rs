//! The two clocks of a running probe.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI is ahead of UTC by so much since 2017, for kernels that were not told.
pub(super) const TAI_MINUS_UTC_NS: u64 = 37_000_000_000;

/// Nanoseconds of the steady clock.
pub(crate) fn steady_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The present time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// TAI nanoseconds.
    pub tai_ns: u64,
    /// The clock is locked to a reference.
    pub locked: bool,
}

/// How an emulated clock differs from this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// It is ahead by so much at first, in ns.
    pub offset_ns: i64,
    /// It runs faster by so much, in parts per 10^9.
    pub drift_ppb: i64,
}

impl Skew {
    /// What it shows at a true time, if it was set at another.
    pub(super) fn show(self, tai_ns: u64, set_tai_ns: u64) -> u64 {
        let elapsed = i128::from(tai_ns) - i128::from(set_tai_ns);
        let ahead = i128::from(self.offset_ns) + elapsed * i128::from(self.drift_ppb) / 1_000_000_000;
        (i128::from(tai_ns) + ahead).clamp(1, i128::from(u64::MAX)) as u64
    }
}

/// The time of a shot. The clock counts as locked if the kernel was told the offset of TAI, as time daemons
/// do when they are in step with a reference.
pub(crate) fn stamp() -> Stamp {
    let utc = nanoseconds(clock_gettime(ClockId::Realtime));
    // Without an offset the two differ by the time between the calls only.
    match clock_gettime_dynamic(DynamicClockId::Tai).map(nanoseconds) {
        Ok(tai_ns) if tai_ns > utc + 1_000_000_000 => Stamp { tai_ns, locked: true },
        _ => Stamp { tai_ns: utc + TAI_MINUS_UTC_NS, locked: false },
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_clock_is_ahead_and_gets_further_ahead() {
        let skew = Skew { offset_ns: -1_000, drift_ppb: 50_000 };
        let set = 1_700_000_000_000_000_000;
        assert_eq!(skew.show(set, set), set - 1_000);
        assert_eq!(skew.show(set + 2_000_000_000, set), set + 2_000_000_000 - 1_000 + 100_000);
        assert_eq!(Skew::default().show(set, 7), set);
        assert_eq!(Skew { offset_ns: i64::MIN, drift_ppb: i64::MIN }.show(5, 0), 1, "a stamp of 0 would be none");
    }
}
