//! Waits for other threads, processes and the kernel. They wait for a condition, not for a fixed time.

use std::time::{Duration, Instant};

/// Timeout of every wait. Only a failing test reaches it; it is not a measurement.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Waits until `condition` returns `true`.
///
/// # Panics
/// If it does not within [`WAIT_TIMEOUT`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_until_some(what, || condition().then_some(()));
}

/// Waits until `poll` returns a value, and returns it.
///
/// # Panics
/// If it returns none within [`WAIT_TIMEOUT`].
pub fn wait_until_some<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {} s: {what}", WAIT_TIMEOUT.as_secs());
        std::thread::sleep(POLL_INTERVAL);
    }
}
