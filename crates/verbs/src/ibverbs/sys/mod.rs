//! libibverbs, as safe as it can be made without costing anything per packet.
//!
//! Each object owns what it was made of, so that C's order of destruction holds whatever is dropped first. A device
//! reaches memory only by the local keys of an [`Mr`], which keeps its region alive and ends the device's access when
//! it goes: naming memory in a work request is therefore safe, and a wrong name is the device's to refuse.
//!
//! | file | what |
//! |---|---|
//! | [`abi`] | structures and constants, compared with the C header by a test |
//! | `library` | the shared library and its functions |
//! | `device` | [`Device`], [`Context`], ports and GIDs |
//! | `memory` | [`Pd`], [`Mr`] |
//! | `completion` | [`Channel`], [`Cq`] |
//! | `pair` | [`Qp`], [`Srq`], [`Ah`] |
//! | `bytes` | reading what a device has written |
//! | `requests` | [`RecvList`], [`SendList`]: work requests posted together |

pub mod abi;
mod bytes;
mod completion;
mod device;
mod library;
mod memory;
mod pair;
mod requests;
#[cfg(test)]
mod tests;
mod way;

pub(super) use bytes::remainder;
pub use completion::{Channel, Cq};
pub use device::{AsyncEvent, Context, Device, Gid, GidKind, devices};
pub use memory::{Mr, Pd, flags};
pub use pair::{Qp, QpConfig, Srq};
pub use requests::{RecvList, SendList};
pub use way::{Ah, way_to};

use shotline_transport::IoError;
use std::io;

/// What a call that sets `errno`, or returns it, says when it fails.
fn failed(what: impl Into<String>, source: io::Error, hint: &'static str) -> IoError {
    IoError::System { what: what.into(), source, hint }
}

/// The result of a call that returns an error number.
fn check(rc: i32, what: impl FnOnce() -> String, hint: &'static str) -> Result<(), IoError> {
    match rc {
        0 => Ok(()),
        // Some calls return -1 and set errno, some return the number, and old drivers return it negative.
        -1 => Err(failed(what(), io::Error::last_os_error(), hint)),
        number => Err(failed(what(), io::Error::from_raw_os_error(number.abs()), hint)),
    }
}

/// A pointer that a call returned, which sets `errno` when there is none.
fn made<T>(
    pointer: *mut T,
    what: impl FnOnce() -> String,
    hint: &'static str,
) -> Result<std::ptr::NonNull<T>, IoError> {
    std::ptr::NonNull::new(pointer).ok_or_else(|| failed(what(), io::Error::last_os_error(), hint))
}
