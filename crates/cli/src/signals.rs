//! Ctrl-C and termination: the first asks for a clean end, the second ends at once. SIGUSR1: a trigger.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first SIGINT or SIGTERM sets.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let (stop, twice) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A signal may come between any two of these. The flag is first, so that none is swallowed; the last is what makes
        // the next signal end the program.
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&twice))?;
        signal_hook::flag::register(signal, Arc::clone(&twice))?;
    }
    Ok(stop)
}

/// Has SIGUSR1 set a flag.
pub fn on_trigger(flag: Arc<AtomicBool>) -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, flag).map(|_| ())
}
