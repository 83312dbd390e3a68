//! The registry of transports that `--transport` selects: [`Transport`] is the enum of them, and each has one file here
//! that parses its arguments, opens it as receiver and as sender, and defines its capabilities and its `doctor` check.
//!
//! To add a transport, write a backend in `shotline-transport` (or in a provider's crate, as `ibverbs`), a file here
//! that implements [`Backend`], and a line in the registry. [`Io`] and [`Sender`] then have one more variant; programs
//! that are generic over [`PacketIo`](shotline_transport::PacketIo) are compiled once for all transports.

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
pub use opening::{
    OpenedReceiver, OpenedSender, Options, PacketShape, ReceiverParameters, Role, SenderParameters, mac,
};
pub use packet::Packet;
pub use registry::{Io, Sender, Transport, findings};
pub use table::{HEADER, rows};
pub use udp::Udp;
pub use xdp::Xdp;
