//! Waits for other threads, processes and the kernel: for an event, never for a time.

use std::time::{Duration, Instant};

/// Limit of every wait. Only a test that fails reaches it; nothing is measured with it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);

/// Waits until `is_so`.
///
/// # Panics
/// If it is not so within [`PATIENCE`].
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(what, || is_so().then_some(()));
}

/// Waits until `found` has something, and returns it.
///
/// # Panics
/// If it has nothing within [`PATIENCE`].
pub fn until_some<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(PAUSE);
    }
}
