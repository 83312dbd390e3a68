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
    /// Whether the RDMA connection manager (`--rdma-cm`) can serve its queue pairs.
    pub rdma_cm: bool,
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
