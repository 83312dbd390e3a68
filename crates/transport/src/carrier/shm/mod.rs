//! Shared memory between two processes of one host.
//!
//! Each end owns one piece of shared memory, which only it can write: the other end's mapping is read-only, which the
//! kernel enforces (`F_SEAL_FUTURE_WRITE`). It holds a ring with the datagrams that the end sends, and three words: the
//! position up to which it has written its ring, the position up to which it has read the peer's ring, and a request to
//! be woken. A Unix socket passes the two pieces at the beginning, wakes an end that sleeps, and is closed by the kernel
//! when a process exits. Unless an end sleeps there is no system call.
//!
//! # Trust
//! A peer can send any datagrams, or none. Nothing that it writes makes this end crash, loop, block, or access memory
//! out of bounds: positions and lengths are copied once, then checked, and datagrams are copied to private memory. An
//! impossible position or length ends the path with [`IoError::InvalidPeer`].
//!
//! ```
//! use shotline_transport::carrier::{Carrier, shm::ShmCarrier};
//!
//! # fn main() -> Result<(), shotline_transport::IoError> {
//! // Both ends in this process; `ShmCarrier::over` makes one end over a socket to another process.
//! let (mut near, mut far) = ShmCarrier::pair()?;
//! assert!(near.remaining() > 0);
//! near.append(b"a datagram");
//! near.finish()?;
//! near.flush()?;
//! assert_eq!(far.receive()?.as_deref(), Some(&b"a datagram"[..]));
//! # Ok(()) }
//! ```

mod end;
mod setup;
mod socket;
mod sys;
#[cfg(test)]
mod tests;

pub use end::ShmCarrier;
pub use setup::ShmOffer;

use crate::IoError;

/// Reasons to wake an end, in the low bits of its wake-up word.
mod wake {
    /// A datagram has arrived.
    pub(super) const DATA: u32 = 1;
    /// There is space in its ring.
    pub(super) const SPACE: u32 = 2;
    /// Increment of the rest of the word, so that each request is answered once.
    pub(super) const STEP: u32 = 4;
}

fn invalid(what: &'static str) -> IoError {
    IoError::InvalidPeer { path: "a shared-memory path", what }
}
