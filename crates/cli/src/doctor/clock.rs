//! Checks of the clocks that timestamp shots.

use super::check::Check;
use super::check::State::{Ok as Good, Warn};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use shotline_acquire::clock::{Clock, Health, Source};

pub fn checks() -> Vec<Check> {
    vec![tai(), discipline(), ptp()]
}

fn tai() -> Check {
    const NAME: &str = "TAI clock";
    const EXPECTED: &str = "TAI ahead of UTC by 37 s (since 2017), so that timestamps of this machine are in TAI";
    let nanoseconds = |time: Timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let utc = nanoseconds(clock_gettime(ClockId::Realtime));
    let Ok(tai) = clock_gettime_dynamic(DynamicClockId::Tai) else {
        return Check::new(NAME, Warn, "not supported by this kernel", EXPECTED)
            .fix("uname -r   (3.10 or newer has one)");
    };
    // The offset is whole seconds; rounding removes the time between the two readings.
    let offset = (nanoseconds(tai) - utc + 500_000_000).div_euclid(1_000_000_000) as i64;
    let (state, found) = match offset {
        0 => (Warn, "equals UTC: the leap seconds are not configured in the kernel".to_owned()),
        offset => (Good, format!("{offset} s ahead of UTC")),
    };
    Check::new(NAME, state, found, EXPECTED)
        .fix("echo 'leapsectz right/UTC' | sudo tee /etc/chrony/conf.d/tai.conf && sudo systemctl restart chrony   (ptp4l with phc2sys sets it too)")
        .measured("tai_minus_utc_s", offset)
}

fn discipline() -> Check {
    const NAME: &str = "clock discipline";
    const EXPECTED: &str = "disciplined by NTP or PTP, so that timestamps of several machines can be compared";
    match Clock::open(&Source::System).map(|clock| clock.refresh()) {
        Ok(Health { max_error_ns, .. }) if max_error_ns > 0 => {
            Check::new(NAME, Good, format!("disciplined, within {} us", max_error_ns / 1000), EXPECTED)
                .measured("max_error_ns", max_error_ns)
        }
        _ => Check::new(NAME, Warn, "not disciplined: it drifts by about 10 us per second", EXPECTED)
            .fix("sudo apt install chrony   (or ptp4l with phc2sys where the network has PTP)"),
    }
}

fn ptp() -> Check {
    let mut clocks: Vec<_> = std::fs::read_dir("/dev")
        .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    clocks.retain(|name| name.strip_prefix("ptp").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    clocks.sort();
    let found = if clocks.is_empty() { "none".into() } else { clocks.join(", ") };
    Check::new("PTP clocks", Good, found, "optional").measured("clocks", clocks)
}
