//! Processors that threads run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Runs this thread, and those that it starts, on one processor.
pub fn pin(cpu: u32) -> Result<(), String> {
    let refused = |why: &dyn std::fmt::Display| format!("cannot run on processor {cpu}: {why}");
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(refused(&"there is none"));
    }
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|error| match error {
        rustix::io::Errno::INVAL => refused(&"there is none of that number, or it is not for this program to use"),
        error => refused(&error),
    })
}

/// Whether [`pin`] would do, without a change.
pub fn check(cpu: u32) -> Result<(), String> {
    let before = sched_getaffinity(None).map_err(|error| format!("cannot tell the processors: {error}"))?;
    pin(cpu)?;
    sched_setaffinity(None, &before).map_err(|error| format!("cannot go back to the processors before: {error}"))
}
