//! The transports that `--transport` names, as a registry: [`Transport`] is the enum of them, and each has one file here
//! that reads its words, opens it as receiver and as sender, and says what it can do and what `doctor` finds of it.
//!
//! A new transport is a backend in `shotline-transport` (or a provider's, as `ibverbs`), a file here that implements
//! [`Backend`], and a line of the registry. [`Io`] and [`Sender`] are then one more variant large: programs that are
//! generic over [`PacketIo`](shotline_transport::PacketIo) are compiled once for all transports.

mod auto;
mod backend;
mod dpdk;
mod ibverbs;
mod opening;
mod packet;
mod registry;
pub mod route;
mod table;
mod udp;
mod xdp;

pub use auto::{Advice, advise};
pub use backend::{About, Backend, Finding, Flag, Never};
pub use dpdk::Dpdk;
pub use ibverbs::Ibverbs;
pub use opening::{Opened, Options, Outgoing, Role, Sending, Wanted, mac};
pub use packet::Packet;
pub use registry::{Io, Sender, Transport, findings};
pub use table::{HEADER, rows};
pub use udp::Udp;
pub use xdp::Xdp;
