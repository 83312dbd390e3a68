//! The two clocks of a running probe.

use super::Stamp;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// TAI is ahead of UTC by so much since 2017, for kernels that were not told.
const TAI_MINUS_UTC_NS: u64 = 37_000_000_000;

/// Nanoseconds of the steady clock.
pub(super) fn steady_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The time of a shot. The clock counts as locked if the kernel was told the offset of TAI, as time daemons
/// do when they are in step with a reference.
pub(super) fn stamp() -> Stamp {
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
