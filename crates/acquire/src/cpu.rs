//! Processors that threads run on.

use rustix::thread::{CpuSet, sched_setaffinity};

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

/// Whether [`pin`] would do, tried on a thread of its own: that of the caller stays where it is.
pub fn check(cpu: u32) -> Result<(), String> {
    let tried = std::thread::Builder::new().spawn(move || pin(cpu));
    let tried = tried.map_err(|error| format!("cannot try processor {cpu}: {error}"))?;
    tried.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn a_check_leaves_a_thread_on_the_processors_that_it_had() {
        let allowed = || sched_getaffinity(None).unwrap();
        let before = allowed();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap() as u32;
        assert_eq!(check(cpu), Ok(()));
        assert!(check(u32::MAX).is_err_and(|error| error.contains("there is none")));
        assert_eq!(allowed(), before);
    }
}
