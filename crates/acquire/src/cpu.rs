//! CPU affinity and priority of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// Processors of the program before a thread was pinned.
static ALLOWED: OnceLock<CpuSet> = OnceLock::new();

/// Pins this thread, and those that it starts, to one processor.
///
/// # Errors
/// If there is no such processor, or this program may not use it.
pub fn pin(cpu: u32) -> Result<(), String> {
    let refused = |why: &dyn std::fmt::Display| format!("cannot run on processor {cpu}: {why}");
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(refused(&"it does not exist; lscpu -e lists the processors"));
    }
    set.set(cpu as usize);
    if let Ok(allowed) = sched_getaffinity(None) {
        ALLOWED.get_or_init(|| allowed);
    }
    sched_setaffinity(None, &set).map_err(|error| match error {
        rustix::io::Errno::INVAL => {
            refused(&"it does not exist, or this program may not use it; taskset -pc $$ lists those that it may")
        }
        error => refused(&error),
    })
}

/// Lets this thread run on the processors that the program had before a thread was pinned: it was started by a pinned
/// one, and must not take its processor. Without an effect if the kernel refuses it.
pub fn unpin() {
    if let Some(allowed) = ALLOWED.get() {
        let _ = sched_setaffinity(None, allowed);
    }
}

/// Checks that [`pin`] would succeed, on a separate thread: the caller's affinity does not change.
///
/// # Errors
/// Those of [`pin`].
pub fn check(cpu: u32) -> Result<(), String> {
    let tried = std::thread::Builder::new().spawn(move || pin(cpu));
    let tried = tried.map_err(|error| format!("cannot check processor {cpu}: {error}"))?;
    tried.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Gives this thread the idle priority (`SCHED_IDLE`): it runs when no other thread wants its processor.
///
/// # Errors
/// If the kernel refuses it.
pub fn make_idle() -> std::io::Result<()> {
    crate::sys::make_idle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn a_check_does_not_change_the_affinity() {
        let allowed = || sched_getaffinity(None).unwrap();
        let before = allowed();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap() as u32;
        assert_eq!(check(cpu), Ok(()));
        assert!(check(u32::MAX).is_err_and(|error| error.contains("does not exist")));
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_thread_of_a_pinned_one_can_leave_its_processor() {
        let before = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap() as u32;
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            let pinned = sched_getaffinity(None).unwrap();
            let unpinned = std::thread::spawn(|| (unpin(), sched_getaffinity(None).unwrap()).1).join().unwrap();
            assert_eq!((pinned.count(), unpinned), (1, before));
        })
        .join()
        .unwrap();
    }
}
