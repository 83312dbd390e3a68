//! What is known of a provider before an endpoint of it is opened.

use super::{Capabilities, Mtu};

/// A provider's entry in the registry ([`ProviderKind`](crate::provider::ProviderKind)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// What its endpoints can do, the provider's name among it. Of devices, `atomics` and `max_operation` are upper bounds: an
    /// endpoint says what its device has.
    pub capabilities: Capabilities,
    /// How it is written on a command line, in brackets what can be left out.
    pub form: &'static str,
    /// What it is, in some words.
    pub summary: &'static str,
    /// Where its peers are.
    pub reach: Reach,
    /// Whether the machine needs an RDMA device.
    pub needs_device: bool,
    /// Flags of [`Flag`] that it uses; others are refused where it is chosen.
    pub flags: &'static [Flag],
    /// Default path MTU; `None`: the device's, or there are no packets.
    pub mtu: Option<Mtu>,
    /// Socket on which a target of this provider takes control connections.
    pub control: ControlSocket,
}

impl Description {
    /// The provider's name.
    pub const fn name(&self) -> &'static str {
        self.capabilities.name
    }
}

/// A flag of a command line that only some providers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--bind`: local address of the packets.
    Bind,
    /// `--mtu`: path MTU.
    Mtu,
    /// `--lax`: packets of any UDP port and any IPv4 identification ([`QpConfig::lax`](super::QpConfig::lax)).
    Lax,
    /// `--receive-buffer`: receive buffer to ask the kernel for.
    ReceiveBuffer,
    /// `--loss`: probability of losing a packet that is sent.
    Loss,
    /// `--rdma-cm`: queue pairs for programs that connect by RDMA's connection manager.
    RdmaCm,
}

impl Flag {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Bind, Self::Mtu, Self::Lax, Self::ReceiveBuffer, Self::Loss, Self::RdmaCm];

    /// The flag as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind => "--bind",
            Self::Mtu => "--mtu",
            Self::Lax => "--lax",
            Self::ReceiveBuffer => "--receive-buffer",
            Self::Loss => "--loss",
            Self::RdmaCm => "--rdma-cm",
        }
    }
}

/// Where the peers of a provider's endpoints are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On any machine of the network.
    Network,
    /// On this machine: peers map each other's memory, so regions must be of a kind that other processes can map.
    Machine,
}

/// Kind of socket for control connections ([`Control`](crate::cm::Control)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlSocket {
    /// A TCP port.
    Tcp,
    /// A Unix socket at a path: the connection hands over file descriptors.
    Unix,
}
