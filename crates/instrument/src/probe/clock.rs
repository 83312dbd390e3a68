//! Steady clock and TAI clock of a running probe.

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI - UTC since 2017 in ns, for kernels whose TAI offset is not set.
pub(super) const TAI_MINUS_UTC_NS: u64 = 37_000_000_000;

/// Returns the time of the steady clock in ns.
pub(crate) fn steady_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// A timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// TAI in ns.
    pub tai_ns: u64,
    /// The clock is locked to a reference.
    pub locked: bool,
}

/// Offset and drift of an emulated clock relative to this machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Initial offset in ns; positive if ahead.
    pub offset_ns: i64,
    /// Drift in parts per 10^9; positive if fast.
    pub drift_ppb: i64,
}

impl Skew {
    /// Returns the skewed clock's reading at `tai_ns` if its offset applied at `set_tai_ns`.
    pub(super) fn apply(self, tai_ns: u64, set_tai_ns: u64) -> u64 {
        let elapsed = i128::from(tai_ns) - i128::from(set_tai_ns);
        let ahead = i128::from(self.offset_ns) + elapsed * i128::from(self.drift_ppb) / 1_000_000_000;
        (i128::from(tai_ns) + ahead).clamp(1, i128::from(u64::MAX)) as u64
    }
}

/// Returns the current TAI time. The clock counts as locked if the kernel's TAI offset is set, which time daemons do
/// once they are synchronised to a reference.
pub(crate) fn stamp() -> Stamp {
    let utc = nanoseconds(clock_gettime(ClockId::Realtime));
    // Without an offset the clocks differ only by the time between the two calls.
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
    fn a_skewed_clock_has_offset_and_drift() {
        let skew = Skew { offset_ns: -1_000, drift_ppb: 50_000 };
        let set = 1_700_000_000_000_000_000;
        assert_eq!(skew.apply(set, set), set - 1_000);
        assert_eq!(skew.apply(set + 2_000_000_000, set), set + 2_000_000_000 - 1_000 + 100_000);
        assert_eq!(Skew::default().apply(set, 7), set);
        assert_eq!(Skew { offset_ns: i64::MIN, drift_ppb: i64::MIN }.apply(5, 0), 1, "a stamp of 0 means no stamp");
    }
}
