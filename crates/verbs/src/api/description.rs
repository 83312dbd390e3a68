//! Properties of a provider that are known before an endpoint is opened.

use super::{Capabilities, Mtu};

/// A provider's entry in the registry ([`ProviderKind`](crate::provider::ProviderKind)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Capabilities of its endpoints, the provider's name included. For devices, `atomics` and `max_operation` are
    /// upper bounds: an open endpoint reports those of its device.
    pub capabilities: Capabilities,
    /// Form on a command line; optional parts in brackets.
    pub form: &'static str,
    /// Short description.
    pub summary: &'static str,
    /// Location of its peers.
    pub reach: Reach,
    /// Requires an RDMA device.
    pub needs_device: bool,
    /// Command-line flags that it uses; others are rejected when it is chosen.
    pub flags: &'static [Flag],
    /// Default path MTU; `None`: the device's, or there are no packets.
    pub mtu: Option<Mtu>,
    /// Kind of socket on which a target of this provider accepts control connections.
    pub control: ControlSocket,
}

impl Description {
    /// Returns the provider's name.
    pub const fn name(&self) -> &'static str {
        self.capabilities.name
    }
}

/// Command-line flag that only some providers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--bind`: local address of the packets.
    Bind,
    /// `--mtu`: path MTU.
    Mtu,
    /// `--accept-any-source-port`: packets of any UDP port and any IPv4 identification
    /// ([`QpConfig::accept_any_source_port`](super::QpConfig::accept_any_source_port)).
    AcceptAnySourcePort,
    /// `--receive-buffer`: receive buffer to request from the kernel, in bytes.
    ReceiveBuffer,
    /// `--loss`: probability of losing a packet that is sent.
    Loss,
    /// `--rdma-cm`: queue pairs for programs that connect through the RDMA connection manager.
    RdmaCm,
}

impl Flag {
    /// All flags.
    pub const ALL: [Self; 6] =
        [Self::Bind, Self::Mtu, Self::AcceptAnySourcePort, Self::ReceiveBuffer, Self::Loss, Self::RdmaCm];

    /// Returns the flag as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind => "--bind",
            Self::Mtu => "--mtu",
            Self::AcceptAnySourcePort => "--accept-any-source-port",
            Self::ReceiveBuffer => "--receive-buffer",
            Self::Loss => "--loss",
            Self::RdmaCm => "--rdma-cm",
        }
    }
}

/// Location of the peers of a provider's endpoints.
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
    /// A Unix socket at a path: file descriptors are passed over the connection.
    Unix,
}
