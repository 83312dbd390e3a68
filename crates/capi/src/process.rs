//! The process that uses the library: forks, and its end.
//!
//! A child process has the memory of its parent but none of its threads: an object that relies on threads is useless
//! there, and closing it would wait for them forever.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of forks between the process that has loaded the library and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

// The C library has it; the crate `libc` does not declare it for Linux.
unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of forks since the first call, which tells a process from its parent without a system call.
pub(crate) fn forks() -> u64 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function is static, and an atomic addition is all that it does in the child. If there is no memory to
        // register it, crate `library` refuses calls in a child by its process number.
        unsafe { pthread_atfork(None, None, Some(count_fork)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Calls `close` when the process ends by `exit` or by the end of `main`, once for all calls.
pub(crate) fn at_exit(close: extern "C" fn()) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function is static. Without memory to register it, open runs are not closed, as after a kill.
        unsafe { libc::atexit(close) };
    });
}
