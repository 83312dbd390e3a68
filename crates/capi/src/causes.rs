//! Drop causes.

use shotline_wire::shot::DropCause;
use std::ffi::{CStr, CString, c_char};
use std::sync::LazyLock;

/// Length of arrays with one count for each drop cause. Later versions may use more of their elements.
pub const SHOTLINE_MAX_CAUSES: usize = 32;
const _: () = assert!(DropCause::ALL.len() <= SHOTLINE_MAX_CAUSES, "more causes need a new ABI version");

static TEXTS: LazyLock<Vec<[CString; 2]>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    DropCause::ALL.iter().map(|cause| [text(cause.name()), text(cause.meaning())]).collect()
});

fn texts(cause: u32, at: usize) -> *const c_char {
    TEXTS.get(cause as usize).map_or(std::ptr::null(), |texts| CStr::as_ptr(&texts[at]))
}

/// Returns the number of drop causes that this version knows. They are numbered from 0.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_cause_count() -> u32 {
    DropCause::ALL.len() as u32
}

/// Returns the name of a drop cause, for example "wire_gap", or NULL if there is none with this number. The string is static.
/// `shotline --explain NAME` says what to do about it.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_cause_name(cause: u32) -> *const c_char {
    texts(cause, 0)
}

/// Returns what happened to a packet or shot that was dropped for this cause, or NULL if there is none with this number. The
/// string is static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_cause_meaning(cause: u32) -> *const c_char {
    texts(cause, 1)
}
