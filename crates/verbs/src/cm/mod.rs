//! Connection manager: how an initiator finds a target's memory and connects queue pairs to it.
//!
//! A control connection (TCP, or a Unix socket between processes of one machine) carries [messages](message): the
//! initiator presents its [`Token`], lists regions, and exchanges queue pair numbers, PSNs and keys. It stays open for
//! the lifetime of the initiator's queue pairs: when it ends for any reason, they are destroyed and their keys become
//! invalid. It carries no payload data.
//!
//! - [`message`]: the messages and their validation; no I/O.
//! - [`Conversation`]: the target side of one connection; no I/O.
//! - [`Control`]: sockets and timeouts of the connections.
//! - [`Exports`]: a [`Host`] for connections: regions of a provider, a protection domain for each initiator.
//! - [`Target`]: the exports and the control connections together: a whole target.
//! - [`MemoryBudget`]: limit of the memory that initiators make a target allocate.
//! - [`Client`]: the initiator side.
//!
//! A peer with the token may do all that the rights of the regions allow. The connection is not encrypted: an attacker
//! that can read the network traffic gets the token, and with it access to the regions (`docs/endpoints.md` describes
//! countermeasures).

mod budget;
mod client;
mod control;
mod conversation;
mod endpoint;
mod exports;
mod fields;
pub mod message;
mod target;
mod token;

pub use budget::{MemoryBudget, MemoryBudgetState, MemoryLimit, Reservation};
pub use client::{Client, ClientError, MAX_WATCHED_LINKS, Opening, QpRequest, TargetFailure};
pub use control::{Control, ControlAddress, ControlLimits};
pub use conversation::{ControlCounters, Conversation, Host, Progress, SessionId};
pub use endpoint::{Endpoint, EndpointCounters};
pub use exports::{ConnectedQp, Export, Exports, Initiator, QueuePairState, add_usage, operations};
pub use target::Target;
pub use token::{Token, TokenError};
