//! Connections of a target's accelerator to other targets.

use crate::Result;
use shotline_accelerate::{Dial, Neighbour, Peer};
use shotline_memory::Region;
use shotline_verbs::cm::{Client, ControlAddress, Endpoint, Token};
use shotline_verbs::connect::{ConnectError, Target, WithEndpoints};
use shotline_verbs::provider::ProviderKind;
use std::net::SocketAddr;
use std::sync::Arc;

/// Connects the accelerator to other targets, in the way that initiators reach this one.
pub struct Neighbours {
    transport: ProviderKind,
    /// Local address, with any port; `None`: that of the route.
    bind: Option<SocketAddr>,
}

impl Neighbours {
    /// Connects by this provider, from the address of a target's traffic.
    pub fn new(transport: &ProviderKind, bind: Option<SocketAddr>) -> Self {
        let bind = bind.filter(|bind| !bind.ip().is_unspecified()).map(|bind| SocketAddr::new(bind.ip(), 0));
        Self { transport: transport.clone(), bind }
    }
}

impl Dial for Neighbours {
    fn dial(
        &self,
        address: &str,
        token: Token,
        memory: &Arc<Region>,
    ) -> std::result::Result<Box<dyn Neighbour>, String> {
        // No name is looked up, which could take long.
        let to = match address.parse() {
            Ok(address) => ControlAddress::Tcp(address),
            Err(_) if address.contains('/') => ControlAddress::Unix(address.into()),
            Err(_) => return Err(format!("expected ADDRESS:PORT or a path, found {address}")),
        };
        let connected = self.transport.with_endpoints(self.bind, Connect { to: (to, token), memory });
        connected.map_err(|error| error.to_string())
    }
}

struct Connect<'a> {
    to: Target,
    memory: &'a Arc<Region>,
}

impl WithEndpoints for Connect<'_> {
    type Output = Result<Box<dyn Neighbour>>;
    fn with<P: Endpoint + Send + 'static>(
        self,
        connect: impl Fn(&Target) -> std::result::Result<(P, Client), ConnectError>,
    ) -> Self::Output {
        let (provider, client) = connect(&self.to)?;
        Ok(Box::new(Peer::connect(provider, client, self.memory)?))
    }
}
