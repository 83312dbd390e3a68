//! The verbs: the interface to queue pairs, the same for every provider.
//!
//! Call order: [`Provider::alloc_pd`], [`Provider::reg_mr`], [`Provider::create_cq`], [`Provider::create_qp`],
//! [`Provider::modify_qp`] through `Init`, `ReadyToReceive` and `ReadyToSend`, then [`Provider::post_recv`],
//! [`Provider::post_send`] and [`Provider::poll_cq`]. The [`guide`] has a page for each verb.

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
