//! Versions of the library and of its binary interface.

use std::ffi::{CStr, c_char};

/// Version of the binary interface of this header: the number in the name libshotline.so.0. Programs that were compiled
/// with one number must not run with a library of another one.
pub const SHOTLINE_ABI_VERSION: u32 = 0;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// Returns the version of the binary interface of the library that is loaded. It differs from SHOTLINE_ABI_VERSION if
/// the program was compiled with the header of an incompatible version.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_abi_version() -> u32 {
    SHOTLINE_ABI_VERSION
}

/// Returns the version of the library that is loaded, for example "0.1.0". The string is static.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn shotline_version() -> *const c_char {
    VERSION.as_ptr()
}
