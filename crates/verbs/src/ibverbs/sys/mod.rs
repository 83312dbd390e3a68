//! Safe wrappers of libibverbs, without any cost per packet.
//!
//! Each object keeps the objects that it was created from, so that C's order of destruction holds for any order of
//! drops. A device accesses memory only through the local keys of an [`Mr`], which keeps its region alive and ends the
//! device's access when it is dropped: naming memory in a work request is therefore safe, and the device refuses
//! invalid keys.
//!
//! | module | content |
//! |---|---|
//! | [`abi`] | structures and constants, compared with the C header by a test |
//! | `library` | the shared library and its functions |
//! | `device` | [`Device`], [`Context`], ports and GIDs |
//! | `memory` | [`Pd`], [`Mr`] |
//! | `completion` | [`Channel`], [`Cq`] |
//! | `pair` | [`Qp`], [`Srq`] |
//! | `ah` | [`Ah`]: address handles |
//! | `crc` | CRC of payloads that a device has written |
//! | `requests` | [`RecvList`], [`SendList`]: work requests posted together |

pub mod abi;
mod ah;
mod completion;
mod crc;
mod device;
#[cfg(test)]
pub(super) mod fake;
mod library;
mod memory;
mod pair;
mod requests;
#[cfg(test)]
mod tests;

pub use ah::{Ah, ah_attr};
pub use completion::{Channel, Cq};
pub(super) use crc::remainder;
pub use device::{AsyncEvent, Context, Device, Gid, GidKind, devices};
pub use memory::{Mr, Pd, flags};
pub use pair::{Qp, QpConfig, Srq};
pub use requests::{RecvList, SendList};

use shotline_transport::IoError;
use std::io;

/// Converts the error of a failed call.
fn failed(what: impl Into<String>, source: io::Error, hint: &'static str) -> IoError {
    IoError::System { what: what.into(), source, hint }
}

/// Converts the result of a call that returns an error number.
fn check(rc: i32, what: impl FnOnce() -> String, hint: &'static str) -> Result<(), IoError> {
    match rc {
        0 => Ok(()),
        // Some calls return -1 and set errno, some return the number, and old drivers return it negative.
        -1 => Err(failed(what(), io::Error::last_os_error(), hint)),
        number => Err(failed(what(), io::Error::from_raw_os_error(number.abs()), hint)),
    }
}

/// Converts a pointer returned by a call, which sets `errno` if it is null.
fn check_pointer<T>(
    pointer: *mut T,
    what: impl FnOnce() -> String,
    hint: &'static str,
) -> Result<std::ptr::NonNull<T>, IoError> {
    std::ptr::NonNull::new(pointer).ok_or_else(|| failed(what(), io::Error::last_os_error(), hint))
}
