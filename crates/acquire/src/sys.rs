//! System calls that rustix does not offer: `adjtimex(2)`, `sched_setscheduler(2)`.

use std::io;
use std::mem::zeroed;

/// Returns whether the kernel's clock is disciplined, and the kernel's bound on its error in microseconds.
///
/// # Errors
/// If the call fails, for example because a sandbox forbids it.
pub fn adjtimex() -> io::Result<(bool, u64)> {
    // SAFETY: all-zero is a valid timex, and with no mode set the call only reads the clock's state.
    let mut state: libc::timex = unsafe { zeroed() };
    // SAFETY: the pointer is to a live exclusive struct of the type that the call fills.
    let clock = unsafe { libc::adjtimex(&raw mut state) };
    if clock < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((state.status & libc::STA_UNSYNC == 0 && clock != libc::TIME_ERROR, u64::try_from(state.maxerror).unwrap_or(0)))
}

/// Gives this thread the scheduling policy `SCHED_IDLE`.
///
/// # Errors
/// If the call fails.
pub fn make_idle() -> io::Result<()> {
    // SAFETY: all-zero is a valid sched_param; this policy requires priority 0.
    let param: libc::sched_param = unsafe { zeroed() };
    // SAFETY: the pointer is to a live struct that the call reads; process 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
