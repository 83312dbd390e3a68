//! Provider for two processes on one host: one-sided operations are direct copies that need no CPU time of the target.
//!
//! An [`ShmEndpoint`] is one end of a link between two processes, set up over a Unix socket ([`ShmListener::bind`],
//! [`ShmEndpoint::connect`], [`ShmEndpoint::over`]; [`ShmEndpoint::offer`] where blocking is not possible). Queue pairs
//! of the two ends are connected by number; the address in [`ReadyToReceive`](crate::api::ReadyToReceive) is ignored.
//!
//! # Memory
//! Memory that a peer may access is a whole [`Region::memfd`](shotline_memory::Region::memfd). Registration passes its
//! file descriptor to the peer, once, with its access rights. For READ only, the memory is sealed so that the kernel
//! lets only the owner write it; for WRITE, the peer can map it for reading and writing. Rights that the kernel cannot
//! enforce are refused at registration, with an error that suggests what to do: write without read, atomic without
//! write, part of a region. The rights of a region cannot change afterwards; for other rights, use another region.
//!
//! WRITE and READ are one copy, and atomic operations are CPU instructions, executed by the initiator when they are
//! posted. A request that was posted after a SEND may have taken effect even if that SEND is refused later (it
//! completes as flushed).
//!
//! Memory of an emulated accelerator can be open to a peer as well ([`EmulatedMemory`](shotline_memory::EmulatedMemory)
//! over such a region): the announcement has the model of its path, and the peer puts its mapping behind a path of this
//! model, so that its copies take the time of the path. All operations of an endpoint on such memory share one path;
//! endpoints in different processes do not. A long operation continues in later calls. A peer that does not use this
//! library can avoid the path.
//!
//! # Limits of revocation
//! A mapping cannot be revoked. When a registration ends, its key is cleared on the owner's board at once, and this
//! library refuses it in the peer from then on; a peer that does not use this library, or modifies it, keeps the memory
//! and its access rights. So [`Capabilities::revokes`](crate::api::Capabilities) is false: give a peer only memory that
//! it may access for its whole lifetime, and end the peer's process (or use new memory) to end its access. A peer of
//! the same user could read this process's memory by ptrace anyway, unless the system forbids it
//! (kernel.yama.ptrace_scope); the socket is open to the same user only.
//!
//! # Messages
//! SEND, and WRITE with immediate data, use a ring in shared memory, one per direction; they need the receiver's
//! [`progress`](crate::api::Provider::progress). The number of receives that the peer has posted is on its `board`, so
//! a sender that waits for one (`rnr_retry`) sends nothing meanwhile. Nothing that a peer writes to its board or ring
//! can make this side crash, or access memory out of bounds: positions, numbers and lengths are copied once, then
//! checked.
//!
//! When the peer's process exits, the socket closes, and all connected queue pairs enter the error state.

mod board;
mod cm_endpoint;
mod control;
mod endpoint;
mod execute;
mod keys;
mod link;
mod pair;
mod path;
mod provider;
mod queues;
mod receive;
mod record;
mod send;
mod share;
#[cfg(test)]
mod tests;
mod wakeups;

pub use endpoint::{ShmCounters, ShmEndpoint};
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
    VerbsError::Io(IoError::System { what: "shared-memory link".into(), source, hint: "" })
}
