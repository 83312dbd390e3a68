//! Endpoints as handles that any thread may use: initiators of a target, and targets in this process.
//!
//! - [`Initiator`]: an endpoint that is connected to a target, with its control connection.
//! - [`Memory`]: memory of this process; [`LocalRegion`]: memory that is registered at an endpoint.
//! - [`CompletionQueue`], [`QueuePair`]: the queues of an initiator.
//! - [`ServedTarget`]: memory that other programs read and write, served by a thread.
//!
//! The provider of an endpoint makes progress only when it is called, from one thread at a time: a mutex serialises the
//! calls. A thread that waits holds the mutex only while it polls, and sleeps on a file descriptor without it. One waiting
//! thread at a time sleeps there; the others wait for it, and one of them takes its place when it returns.
//!
//! When the target ends the control connection, or its process ends, the outstanding requests complete as
//! [`Flushed`](shotline_verbs::api::Status::Flushed); later calls return [`EndpointError::Disconnected`].
//!
//! Handles may be dropped in any order. The memory of a registration exists as long as the registration, a view of it, or a
//! request that uses it. After [`Initiator::close`] every call returns [`EndpointError::Closed`]. In a child process of
//! `fork`, every call returns [`EndpointError::Forked`], and nothing that the parent uses is touched.

mod bulk;
mod driver;
mod error;
mod failure;
mod initiator;
mod memory;
mod queues;
mod remote;
mod shared;
mod target;
#[cfg(test)]
mod tests;

pub use error::EndpointError;
pub use failure::{CompletionFailure, kind_name, status_name};
pub use initiator::{Initiator, QueuePairOptions};
pub use memory::{LocalRegion, Memory, rights, rights_name};
pub use queues::{CompletionQueue, QueuePair};
pub use remote::RemoteRegion;
pub use target::{ServedRegion, ServedTarget, TargetOptions, TargetState};
