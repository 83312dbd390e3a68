//! The connection manager: how an initiator finds a target's memory and gets a queue pair to it.
//!
//! A control connection (TCP, or a Unix socket between processes of one machine) carries [messages](message): the
//! initiator shows its [`Token`], lists regions, and exchanges queue pair numbers, sequence numbers and keys. It stays
//! open as long as the initiator wants its queue pairs: when it ends, however it ends, they are destroyed and their
//! keys are dead. No data travel on it.
//!
//! - [`message`]: what is said, and how it is checked; no I/O.
//! - [`Conversation`]: the target's side of one connection; bytes in, bytes out, no I/O.
//! - [`Control`]: sockets and time-outs around many conversations.
//! - [`Exports`]: a [`Host`] for conversations: regions of a provider, a protection domain for each initiator.
//! - [`Account`]: the memory that initiators make a target take.
//! - [`Client`]: the initiator's side.
//!
//! Whoever has the token may do all that the regions' rights allow. The connection is not encrypted: on a network with
//! listeners the token, and with it the regions, is theirs (`docs/endpoints.md` tells what to do).

mod account;
mod client;
mod control;
mod conversation;
mod endpoint;
mod exports;
mod fields;
pub mod message;
mod token;

pub use account::{Account, AccountState, Bound, Loan};
pub use client::{Client, ClientError, Wish};
pub use control::{Control, Limits, Listen};
pub use conversation::{Conversation, Counts, Host, Progress, SessionId};
pub use endpoint::{Endpoint, Tally};
pub use exports::{Connected, Export, Exports, Initiator, operations};
pub use token::{Token, TokenError};
