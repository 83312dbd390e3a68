//! Connections of initiators to targets.

use crate::Result;
use crate::values::udp_options;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_verbs::cm::message::Cause;
use shotline_verbs::cm::{Client, ClientError, ControlAddress, Endpoint, Token};
use shotline_verbs::ibverbs::IbverbsEndpoint;
use shotline_verbs::provider::ProviderKind;
use shotline_verbs::shm::ShmEndpoint;
use shotline_verbs::soft::SoftEndpoint;
use shotline_verbs::spacefibre::{CarrierKind, SpaceFibreEndpoint};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Arguments that give access to running targets, which the command names by `to`.
#[derive(clap::Args)]
pub struct Access {
    /// Token of the running target
    #[arg(long, value_name = "TOKEN", requires = "to")]
    token: Option<Token>,
    /// File with the token, readable only by its owner
    #[arg(long, value_name = "FILE", requires = "to", conflicts_with = "token")]
    token_file: Option<PathBuf>,
}

impl Access {
    /// Returns the token.
    pub fn token(&self) -> Result<Token> {
        match (self.token, &self.token_file) {
            (Some(token), _) => Ok(token),
            (None, Some(path)) => Ok(Token::read(path)?),
            (None, None) => Err("a target needs a token: use --token or --token-file".into()),
        }
    }
}

/// Address of a target, and its token.
pub type Target = (ControlAddress, Token);

/// What is done with endpoints that are connected to targets, of any provider.
pub trait WithEndpoints {
    /// Result of it.
    type Output;
    /// Does it. `connect` opens an endpoint for a target and the control connection.
    fn with<P: Endpoint + 'static>(self, connect: impl Fn(&Target) -> Result<(P, Client)>) -> Result<Self::Output>;
}

/// Does something with endpoints of the provider that is selected. `bind`: their local address, if not that of the route.
pub fn with_endpoints<W: WithEndpoints>(
    transport: &ProviderKind,
    bind: Option<SocketAddr>,
    work: W,
) -> Result<W::Output> {
    match transport {
        ProviderKind::Soft => work.with(|to| {
            let provider = SoftEndpoint::udp(local_address(bind, &to.0)?, udp_options(None))?;
            let client = connect(transport, to, Some(provider.address().ip()))?;
            Ok((provider, client))
        }),
        ProviderKind::Ibverbs(choice) => work.with(|to| {
            let provider = IbverbsEndpoint::open(choice)?;
            let client = connect(transport, to, Some(provider.address().ip()))?;
            Ok((provider, client))
        }),
        ProviderKind::Shm => work.with(|to| {
            let mut client = connect(transport, to, None)?;
            Ok((client.link(ShmEndpoint::offer)?.join()?, client))
        }),
        ProviderKind::SpaceFibre(selector) => match selector.carrier {
            CarrierKind::Udp => work.with(|to| {
                let provider = SpaceFibreEndpoint::udp(local_address(bind, &to.0)?, selector)?;
                let client = connect(transport, to, Some(provider.address().ip()))?;
                Ok((provider, client))
            }),
            CarrierKind::Shm => work.with(|to| {
                let mut client = connect(transport, to, None)?;
                let carrier = client.link(|socket| Ok(ShmCarrier::offer(socket)?))?.join()?;
                Ok((SpaceFibreEndpoint::shm(carrier, selector)?, client))
            }),
        },
    }
}

/// Connects to a target, if its provider and links are those of this end.
pub fn connect(transport: &ProviderKind, to: &Target, from: Option<IpAddr>) -> Result<Client> {
    let client = open(to, from)?;
    transport.check_target(client.welcome())?;
    Ok(client)
}

/// Opens the control connection to a target of any provider.
pub fn open(to: &Target, from: Option<IpAddr>) -> Result<Client> {
    Client::connect(&to.0, from, to.1).map_err(|error| match error {
        ClientError::Refused(refusal) if refusal.cause == Cause::Token => {
            format!("wrong token for the target at {}: use the one that it printed, or its --token-file", to.0).into()
        }
        error => error.into(),
    })
}

/// Returns the local address from which a target is reached: `bind`, or the one of the route.
pub fn local_address(bind: Option<SocketAddr>, to: &ControlAddress) -> Result<SocketAddr> {
    match (bind, to) {
        (Some(bind), _) => Ok(bind),
        (None, ControlAddress::Tcp(target)) => Ok(SocketAddr::new(route(*target)?, 0)),
        (None, ControlAddress::Unix(_)) => Err("a target with a path needs --transport shm or spacefibre:shm".into()),
    }
}

/// Returns the local address of the route to a target.
pub fn route(to: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = || {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(|error: std::io::Error| {
        format!("cannot find the route to {to}: {error}; name the local address with --bind").into()
    })
}
