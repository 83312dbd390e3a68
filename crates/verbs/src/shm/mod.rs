//! The provider for two processes on one host: one-sided operations by direct copy, while the target's processor sleeps.
//!
//! An [`ShmEndpoint`] is one end of a link between two processes, made over a Unix socket
//! ([`ShmListener::bind`], [`ShmEndpoint::connect`], [`ShmEndpoint::over`]; [`ShmEndpoint::offer`] where nobody may wait). Queue pairs of the two ends are connected
//! by their numbers; the address in [`ReadyToReceive`](crate::api::ReadyToReceive) means nothing here.
//!
//! # Memory
//! Memory that a peer may touch is a whole [`Region::memfd`](shotline_memory::Region::memfd). Registering it hands its
//! file descriptor to the peer, once, with its rights: for READ only, the memory is sealed so that the kernel lets
//! nobody but its owner write; for WRITE, the peer can map it for both. What the kernel cannot hold is refused when it
//! is registered, with a word about what to do: write without read, atomic without write, part of a region. Rights to
//! one region are given once and for all; for other rights, take another region.
//!
//! WRITE and READ are one copy, atomic operations are the processor's own, by the initiator, when they are posted. A
//! request that was posted behind a SEND may have taken effect although that SEND is refused later (and it completes as
//! flushed).
//!
//! # What revocation can do
//! A mapping cannot be taken back. When a registration ends, its key ends on the owner's board at once, and this
//! library refuses it in the peer from then on; a peer that does not use this library, or changes it, keeps the memory
//! and the rights that it was given. So [`Capabilities::revokes`](crate::api::Capabilities) is false: give a peer only
//! memory that it may have for as long as it lives, and end the process (or use new memory) to end its rights. A peer
//! of the same user could anyway read this process's memory by ptrace, unless the system forbids it
//! (kernel.yama.ptrace_scope); the socket is open to the same user only.
//!
//! # Messages
//! SEND, and WRITE with immediate data, pass a ring in shared memory, one in each direction; they need the receiver's
//! [`progress`](crate::api::Provider::progress). How many receives the peer has posted is seen on its `board`, so
//! that a sender waits (`rnr_retries`) without asking. Nothing that a peer writes to its board or ring can make this
//! side crash, write elsewhere, or read outside: positions, numbers and lengths are copied once, then checked.
//!
//! The death of the peer's process ends the socket: all connected queue pairs go to the error state.

mod board;
mod carry;
mod control;
mod endpoint;
mod link;
mod pair;
mod provider;
mod queues;
mod receive;
mod record;
mod rights;
mod send;
mod share;
mod sleep;
mod tally;
#[cfg(test)]
mod tests;

pub use endpoint::{Counters, ShmEndpoint};
pub use link::{ShmListener, ShmOffer};
pub use provider::DESCRIPTION;
pub use share::PeerRegion;

use crate::api::VerbsError;
use rustix::io::Errno;
use shotline_transport::IoError;

fn failed(error: Errno) -> VerbsError {
    failure(error.into())
}

fn failure(source: std::io::Error) -> VerbsError {
    VerbsError::Io(IoError::System { what: "the link between two processes".into(), source, hint: "" })
}
