//! The verbs: the interface to queue pairs, the same for every provider.
//!
//! 1. Allocate a protection domain and register memory in it: [`Provider::alloc_pd`], [`Provider::reg_mr`]
//!    ([`guide::memory`]).
//! 2. Create a completion queue and a queue pair: [`Provider::create_cq`], [`Provider::create_qp`].
//! 3. Exchange address, queue pair number, first PSN and rkeys with the peer, and change the state to `Init`,
//!    `ReadyToReceive` and `ReadyToSend`: [`Provider::modify_qp`] ([`guide::queue_pairs`]).
//! 4. Post requests: [`Provider::post_recv`] ([`guide::recv`]), [`Provider::post_send`] ([`guide::post`]).
//! 5. Poll their completions: [`Provider::poll_cq`] ([`guide::completions`]).
//!
//! `examples/01-read-write-send.rs` is a complete program.

mod completion;
mod description;
mod error;
pub mod guide;
mod handle;
mod notice;
mod provider;
mod qp;
mod split;
mod window;
mod wr;

pub use completion::{Completion, CompletionKind, Status};
pub use description::{ControlSocket, Description, Flag, Reach};
pub use error::{PostError, VerbsError};
pub use handle::{Cq, Qp, Srq};
pub use notice::{AsyncEvent, NoNotices, Notices, RemoteAccess};
pub use provider::{Capabilities, Provider};
pub use qp::{Modify, Mtu, QpConfig, QpState, QpType, ReadyToReceive, ReadyToSend};
pub use split::split;
pub use window::{NoWindows, Window, Windows};
pub use wr::{Data, Destination, Element, Operation, RecvWr, Remote, SendWr};
