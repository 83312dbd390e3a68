//! Status codes, and the message of the last error of each thread.

use shotline_library::ErrorKind;
use shotline_store::StoreError;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Outcome of a function. Later versions may add codes at the end: treat an unknown one as an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum shotline_status {
    /// Success.
    SHOTLINE_OK = 0,
    /// An argument is NULL, misaligned, out of range or contradicts another one: a defect of the calling program.
    SHOTLINE_ERROR_INVALID_ARGUMENT = 1,
    /// The kernel refused an operation: shotline_last_errno() has its number.
    SHOTLINE_ERROR_IO = 2,
    /// There is no such file, counter, name or peer.
    SHOTLINE_ERROR_NOT_FOUND = 3,
    /// The peer or the policy of the library refuses the request.
    SHOTLINE_ERROR_REFUSED = 4,
    /// The time limit of the call has passed.
    SHOTLINE_ERROR_TIMEOUT = 5,
    /// The handle is closed, possibly by another thread during the call.
    SHOTLINE_ERROR_CLOSED = 6,
    /// The run, the stream or the connection has ended: nothing more follows.
    SHOTLINE_ERROR_ENDED = 7,
    /// Another user or process has the resource.
    SHOTLINE_ERROR_BUSY = 8,
    /// This build, machine or peer cannot do it.
    SHOTLINE_ERROR_UNSUPPORTED = 9,
    /// The buffer of the caller is too small. What the function stores in addition says which size is needed.
    SHOTLINE_ERROR_BUFFER_TOO_SMALL = 10,
    /// The file is not a recording that this version reads, or it is damaged.
    SHOTLINE_ERROR_FORMAT = 11,
    /// A defect of the library: a panic was caught. Its handles stay usable; please report it.
    SHOTLINE_ERROR_INTERNAL = 12,
    /// The handle belongs to the process that has forked this one: open it after the fork.
    SHOTLINE_ERROR_FORKED = 13,
    /// A run ended before its settings say so: its sender vanished, or the transport or the file failed. Or a completion
    /// queue has lost completions.
    SHOTLINE_ERROR_CUT_OFF = 14,
    /// The queue of requests is full: poll its completion queue.
    SHOTLINE_ERROR_QUEUE_FULL = 15,
}

use shotline_status::*;

impl shotline_status {
    /// All codes, in the order of their numbers.
    const ALL: [Self; 16] = [
        SHOTLINE_OK,
        SHOTLINE_ERROR_INVALID_ARGUMENT,
        SHOTLINE_ERROR_IO,
        SHOTLINE_ERROR_NOT_FOUND,
        SHOTLINE_ERROR_REFUSED,
        SHOTLINE_ERROR_TIMEOUT,
        SHOTLINE_ERROR_CLOSED,
        SHOTLINE_ERROR_ENDED,
        SHOTLINE_ERROR_BUSY,
        SHOTLINE_ERROR_UNSUPPORTED,
        SHOTLINE_ERROR_BUFFER_TOO_SMALL,
        SHOTLINE_ERROR_FORMAT,
        SHOTLINE_ERROR_INTERNAL,
        SHOTLINE_ERROR_FORKED,
        SHOTLINE_ERROR_CUT_OFF,
        SHOTLINE_ERROR_QUEUE_FULL,
    ];

    fn name(self) -> &'static CStr {
        match self {
            SHOTLINE_OK => c"SHOTLINE_OK",
            SHOTLINE_ERROR_INVALID_ARGUMENT => c"SHOTLINE_ERROR_INVALID_ARGUMENT",
            SHOTLINE_ERROR_IO => c"SHOTLINE_ERROR_IO",
            SHOTLINE_ERROR_NOT_FOUND => c"SHOTLINE_ERROR_NOT_FOUND",
            SHOTLINE_ERROR_REFUSED => c"SHOTLINE_ERROR_REFUSED",
            SHOTLINE_ERROR_TIMEOUT => c"SHOTLINE_ERROR_TIMEOUT",
            SHOTLINE_ERROR_CLOSED => c"SHOTLINE_ERROR_CLOSED",
            SHOTLINE_ERROR_ENDED => c"SHOTLINE_ERROR_ENDED",
            SHOTLINE_ERROR_BUSY => c"SHOTLINE_ERROR_BUSY",
            SHOTLINE_ERROR_UNSUPPORTED => c"SHOTLINE_ERROR_UNSUPPORTED",
            SHOTLINE_ERROR_BUFFER_TOO_SMALL => c"SHOTLINE_ERROR_BUFFER_TOO_SMALL",
            SHOTLINE_ERROR_FORMAT => c"SHOTLINE_ERROR_FORMAT",
            SHOTLINE_ERROR_INTERNAL => c"SHOTLINE_ERROR_INTERNAL",
            SHOTLINE_ERROR_FORKED => c"SHOTLINE_ERROR_FORKED",
            SHOTLINE_ERROR_CUT_OFF => c"SHOTLINE_ERROR_CUT_OFF",
            SHOTLINE_ERROR_QUEUE_FULL => c"SHOTLINE_ERROR_QUEUE_FULL",
        }
    }
}

/// Error of a call: what the caller receives.
#[derive(Debug)]
pub(crate) struct Failure {
    status: shotline_status,
    /// Number of the kernel's error, or 0.
    errno: i32,
    words: String,
}

impl Failure {
    pub(crate) fn new(status: shotline_status, words: impl Into<String>) -> Self {
        Self { status, errno: 0, words: words.into() }
    }
    pub(crate) fn argument(words: impl Into<String>) -> Self {
        Self::new(SHOTLINE_ERROR_INVALID_ARGUMENT, words)
    }
    /// Error with a number of the kernel.
    pub(crate) fn kernel(errno: i32, words: impl Into<String>) -> Self {
        let status = if errno == libc::ENOENT { SHOTLINE_ERROR_NOT_FOUND } else { SHOTLINE_ERROR_IO };
        Self { status, errno, words: words.into() }
    }
}

/// The checks that all bindings share describe a wrong argument.
impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::argument(words)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        use StoreError as E;
        let kernel = |source: &std::io::Error| source.raw_os_error().unwrap_or(libc::EIO);
        let words = error.to_string();
        match &error {
            E::Io { source, .. } | E::EveryWriteFails { source, .. } => Self::kernel(source.raw_os_error(), words),
            E::Create { source, .. } | E::Ring { source } | E::Identify { source, .. } | E::Thread { source } => {
                Self::kernel(kernel(source), words)
            }
            E::InUse { .. } | E::DeviceBusy { .. } => Self::new(SHOTLINE_ERROR_BUSY, words),
            E::Hdf5 { .. } | E::Format { .. } | E::Chunk { .. } => Self::new(SHOTLINE_ERROR_FORMAT, words),
            E::NoSpace { .. } | E::KeepNoSpace { .. } | E::DeviceFull { .. } => Self::kernel(libc::ENOSPC, words),
            E::Memory { .. } | E::Staging { .. } => Self::kernel(libc::ENOMEM, words),
            _ => Self::new(SHOTLINE_ERROR_REFUSED, words),
        }
    }
}

impl From<shotline_library::Error> for Failure {
    fn from(error: shotline_library::Error) -> Self {
        let words = error.to_string();
        let status = match error.kind {
            ErrorKind::Io(Some(errno)) => return Self::kernel(errno, words),
            ErrorKind::Io(None) => SHOTLINE_ERROR_IO,
            ErrorKind::Invalid => SHOTLINE_ERROR_INVALID_ARGUMENT,
            ErrorKind::Refused => SHOTLINE_ERROR_REFUSED,
            ErrorKind::TimedOut => SHOTLINE_ERROR_TIMEOUT,
            ErrorKind::Closed => SHOTLINE_ERROR_CLOSED,
            ErrorKind::Forked => SHOTLINE_ERROR_FORKED,
            ErrorKind::CutOff => SHOTLINE_ERROR_CUT_OFF,
            ErrorKind::Defect => SHOTLINE_ERROR_INTERNAL,
        };
        Self::new(status, words)
    }
}

struct LastError {
    words: CString,
    errno: i32,
}

thread_local! {
    static LAST: RefCell<LastError> = RefCell::new(LastError { words: CString::default(), errno: 0 });
}

/// Calls `body`, and converts its outcome to a status. A panic ends here: unwinding into C is undefined behaviour.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> shotline_status {
    // A handle whose call has panicked stays usable: the code behind it leaves no state half changed that memory safety
    // or a later call depends on (crates `store` and `library`).
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return SHOTLINE_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let words = format!("a defect of libshotline: {}; please report it", reason(&*panic));
            // Dropping the payload could panic again.
            std::mem::forget(panic);
            Failure::new(SHOTLINE_ERROR_INTERNAL, words)
        }
    };
    let Failure { status, errno, words } = failure;
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // While a thread ends, its message is already gone: the status alone remains.
    let _ = LAST.try_with(|last| *last.borrow_mut() = LastError { words, errno });
    status
}

fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

/// Returns what the last function of this thread that failed expected, what it found, and what to do; "" if none has failed.
/// Functions that succeed do not change it.
///
/// Lifetime: the string is valid until the next function that fails on this thread, or until the thread ends. Copy it to
/// keep it. Threads: each has its own message.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().words.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the error number of the kernel (errno) of the last function of this thread that failed, or 0 if the kernel was
/// not the cause.
///
/// Threads: each has its own number.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_last_errno() -> i32 {
    LAST.try_with(|last| last.borrow().errno).unwrap_or(0)
}

/// Returns the name of a status, for example "SHOTLINE_ERROR_IO"; "unknown status" for any other number. The string is
/// static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_status_name(status: i32) -> *const c_char {
    let known = usize::try_from(status).ok().and_then(|status| shotline_status::ALL.get(status));
    known.map_or(c"unknown status", |status| status.name()).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_error() -> String {
        // SAFETY: the string is valid until the next failure on this thread.
        unsafe { CStr::from_ptr(shotline_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_message() {
        assert_eq!(call(|| panic!("row {}", 7)), SHOTLINE_ERROR_INTERNAL);
        assert_eq!(last_error(), "a defect of libshotline: row 7; please report it");
        assert_eq!(call(|| std::panic::panic_any(7)), SHOTLINE_ERROR_INTERNAL);
        assert!(last_error().contains("unknown"));
    }

    #[test]
    fn each_thread_has_its_own_message() {
        assert_eq!(call(|| Err(Failure::kernel(libc::ENOENT, "no\0file"))), SHOTLINE_ERROR_NOT_FOUND);
        std::thread::spawn(|| assert_eq!((last_error(), shotline_last_errno()), (String::new(), 0))).join().unwrap();
        assert_eq!(call(|| Ok(())), SHOTLINE_OK);
        assert_eq!((last_error(), shotline_last_errno()), ("no file".to_owned(), libc::ENOENT));
    }

    #[test]
    fn every_status_has_its_number_and_its_name() {
        for (number, status) in shotline_status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number);
            assert_eq!(status.name().to_str().unwrap(), format!("{status:?}"));
        }
    }
}
