//! Carriers: paths of datagrams between exactly two ends of a link, behind one trait, [`Carrier`].
//!
//! A carrier moves opaque datagrams in private memory of its caller. It has no addresses, no registered memory and no
//! steering ([`PacketIo`](crate::PacketIo) has those): a link protocol above it frames, numbers and checks its own
//! data.
//!
//! | carrier | module | ends | full path | loses datagrams |
//! |---|---|---|---|---|
//! | shared memory | [`shm`] | two processes of one host | stops the sender | no |
//! | UDP socket | [`udp`] | two hosts | stops the sender at its own interface only | yes |
//! | queue | [`inproc`] | two threads, for tests and examples | stops the sender | no |
//!
//! [`faulty::Faulty`] wraps any of them and disturbs the datagrams on purpose. [`conformance`] is the suite that each
//! carrier passes.
//!
//! Call order of an end:
//!
//! 1. [`Carrier::receive`] until it returns `None`.
//! 2. While there is something to send and [`Carrier::remaining`] is not 0: [`Carrier::append`], [`Carrier::finish`].
//! 3. [`Carrier::flush`], in each round.
//! 4. If nothing was done: [`wait`], or [`Carrier::prepare_sleep`] and then wait on [`Carrier::fd`] together with other
//!    descriptors.
//!
//! ```
//! use shotline_transport::carrier::{self, Carrier, inproc};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), shotline_transport::IoError> {
//! let (mut near, mut far) = inproc::pair(16)?;
//! assert!(near.remaining() >= 10);
//! near.append(b"two ");
//! near.append(b"pieces");
//! near.finish()?;
//! near.flush()?;
//!
//! carrier::wait(&mut far, Duration::from_secs(1))?;
//! assert_eq!(far.receive()?.as_deref(), Some(&b"two pieces"[..]));
//! assert!(far.receive()?.is_none());
//! # Ok(()) }
//! ```

pub mod conformance;
pub mod faulty;
pub mod inproc;
pub mod shm;
pub mod udp;

use crate::IoError;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum length of a datagram of any carrier in bytes.
pub const MAX_DATAGRAM: usize = 1 << 16;

/// One end of a path between the two ends of a link.
///
/// A peer that has gone is reported by [`Self::receive`] only, as [`IoError::Disconnected`], after all datagrams that it
/// has sent; until then, and on a carrier that cannot know (UDP), datagrams to it are discarded. Every other error of the
/// path is permanent as well, unless the carrier states otherwise.
pub trait Carrier {
    /// Returns the maximum length in bytes of a datagram that this end sends, at most [`MAX_DATAGRAM`]. Those that it
    /// receives may be longer, up to [`MAX_DATAGRAM`].
    fn max_datagram(&self) -> usize;
    /// Returns the number of bytes that may be appended to the datagram being built: [`Self::max_datagram`] less its
    /// length, or 0 if none was begun and the path is full or has failed.
    fn remaining(&mut self) -> usize;
    /// Appends bytes to the datagram being built.
    ///
    /// # Panics
    /// If there are more than the last call of [`Self::remaining`] has returned, less those appended since.
    fn append(&mut self, bytes: &[u8]);
    /// Completes the datagram being built; without bytes there is none, and nothing is sent. The peer may receive it
    /// before the next [`Self::flush`].
    ///
    /// # Errors
    /// [`IoError::System`] if a system call failed.
    fn finish(&mut self) -> Result<(), IoError>;
    /// Passes the completed datagrams to the peer, and wakes it if it sleeps. Those for which the path has no space at
    /// present are passed by a later call, so call this after each sleep. The datagram being built is not affected.
    ///
    /// # Errors
    /// [`IoError::System`] if a system call failed.
    fn flush(&mut self) -> Result<(), IoError>;
    /// Returns the next received datagram, of 1 to [`MAX_DATAGRAM`] bytes, in a private buffer that the caller may
    /// change; `None` if there is none at present.
    ///
    /// # Errors
    /// [`IoError::Disconnected`] if the peer has gone and all its datagrams were returned, [`IoError::InvalidPeer`] if
    /// it violates the carrier's format, [`IoError::System`] if a system call failed.
    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError>;
    /// Announces that this end may sleep on [`Self::fd`]. Returns `false` if it must not, because a datagram has
    /// arrived, the path was full and has space again, or it has failed. The announcement ends with the next call of
    /// another method.
    fn prepare_sleep(&mut self) -> bool;
    /// Returns the descriptor to sleep on. After [`Self::prepare_sleep`] has returned `true` it becomes readable when a
    /// datagram has arrived, a full path has space again, or the path has failed; it may also be readable for no reason.
    fn fd(&self) -> BorrowedFd<'_>;
}

impl<C: Carrier + ?Sized> Carrier for Box<C> {
    fn max_datagram(&self) -> usize {
        (**self).max_datagram()
    }
    fn remaining(&mut self) -> usize {
        (**self).remaining()
    }
    fn append(&mut self, bytes: &[u8]) {
        (**self).append(bytes);
    }
    fn finish(&mut self) -> Result<(), IoError> {
        (**self).finish()
    }
    fn flush(&mut self) -> Result<(), IoError> {
        (**self).flush()
    }
    fn receive(&mut self) -> Result<Option<&mut [u8]>, IoError> {
        (**self).receive()
    }
    fn prepare_sleep(&mut self) -> bool {
        (**self).prepare_sleep()
    }
    fn fd(&self) -> BorrowedFd<'_> {
        (**self).fd()
    }
}

/// Blocks until there may be something to do for this end ([`Carrier::prepare_sleep`]), or for `timeout`.
///
/// # Errors
/// [`IoError::System`] if the system call failed.
pub fn wait(carrier: &mut (impl Carrier + ?Sized), timeout: Duration) -> Result<(), IoError> {
    if !carrier.prepare_sleep() {
        return Ok(());
    }
    crate::sys::wait(carrier.fd(), timeout).map_err(|source| IoError::System {
        what: "waiting for a datagram".into(),
        source,
        hint: "",
    })
}
