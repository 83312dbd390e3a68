//! Endpoints that are connected to targets, by the name of their provider.

use crate::api::VerbsError;
use crate::cm::message::Cause;
use crate::cm::{Client, ClientError, ControlAddress, Endpoint, Token};
use crate::ibverbs::IbverbsEndpoint;
use crate::provider::ProviderKind;
use crate::shm::ShmEndpoint;
use crate::soft::{SoftEndpoint, UdpOptions};
use crate::spacefibre::{CarrierKind, SpaceFibreEndpoint};
use shotline_transport::carrier::shm::ShmCarrier;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Address of a target, and its token.
pub type Target = (ControlAddress, Token);

/// Reason why there is no connection to a target.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The control connection failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The target has another token.
    #[error("wrong token for the target at {to}: use the one that it printed, or its --token-file")]
    Token {
        /// Address of the target.
        to: ControlAddress,
    },
    /// The local endpoint cannot be opened.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// The target has another provider or other links; the text says what to use.
    #[error("{0}")]
    Mismatch(String),
    /// The target listens on a Unix socket, which this provider does not use.
    #[error("a target with a path needs --transport shm or spacefibre:shm")]
    Path,
    /// The kernel has no route to the target.
    #[error("cannot find the route to {to}: {source}; name the local address with --bind")]
    Route {
        /// Address of the target.
        to: SocketAddr,
        /// The kernel's reason.
        source: std::io::Error,
    },
}

/// What is done with endpoints that are connected to targets, of any provider.
pub trait WithEndpoints {
    /// Result of it.
    type Output;
    /// Does it. `connect` opens an endpoint for a target and the control connection.
    fn with<P: Endpoint + Send + 'static>(
        self,
        connect: impl Fn(&Target) -> Result<(P, Client), ConnectError>,
    ) -> Self::Output;
}

impl ProviderKind {
    /// Does something with endpoints of this provider. `bind`: their local address, if not that of the route.
    pub fn with_endpoints<W: WithEndpoints>(&self, bind: Option<SocketAddr>, work: W) -> W::Output {
        match self {
            Self::Soft => work.with(|to| {
                let provider = SoftEndpoint::udp(local_address(bind, &to.0)?, UdpOptions::default())?;
                let client = self.control(to, Some(provider.address().ip()))?;
                Ok((provider, client))
            }),
            Self::Ibverbs(choice) => work.with(|to| {
                let provider = IbverbsEndpoint::open(choice)?;
                let client = self.control(to, Some(provider.address().ip()))?;
                Ok((provider, client))
            }),
            Self::Shm => work.with(|to| {
                let mut client = self.control(to, None)?;
                Ok((client.link(ShmEndpoint::offer)?.join()?, client))
            }),
            Self::SpaceFibre(selector) => match selector.carrier {
                CarrierKind::Udp => work.with(|to| {
                    let provider = SpaceFibreEndpoint::udp(local_address(bind, &to.0)?, selector)?;
                    let client = self.control(to, Some(provider.address().ip()))?;
                    Ok((provider, client))
                }),
                CarrierKind::Shm => work.with(|to| {
                    let mut client = self.control(to, None)?;
                    let carrier = client.link(|socket| Ok(ShmCarrier::offer(socket)?))?;
                    let carrier = carrier.join().map_err(VerbsError::from)?;
                    Ok((SpaceFibreEndpoint::shm(carrier, selector)?, client))
                }),
            },
        }
    }

    /// Opens an endpoint of this provider and connects it to a target. Its calls of the verbs are indirect;
    /// [`Self::with_endpoints`] has direct ones. `bind`: the local address, if not that of the route.
    ///
    /// # Errors
    /// If the target cannot be reached, refuses the token, or has another provider; or if the endpoint cannot be opened.
    pub fn connect(
        &self,
        to: &Target,
        bind: Option<SocketAddr>,
    ) -> Result<(Box<dyn Endpoint + Send>, Client), ConnectError> {
        struct Boxed<'a>(&'a Target);
        impl WithEndpoints for Boxed<'_> {
            type Output = Result<(Box<dyn Endpoint + Send>, Client), ConnectError>;
            fn with<P: Endpoint + Send + 'static>(
                self,
                connect: impl Fn(&Target) -> Result<(P, Client), ConnectError>,
            ) -> Self::Output {
                let (provider, client) = connect(self.0)?;
                Ok((Box::new(provider), client))
            }
        }
        self.with_endpoints(bind, Boxed(to))
    }

    /// Opens the control connection to a target, if its provider and links are those of this end.
    ///
    /// # Errors
    /// As for [`Self::connect`].
    pub fn control(&self, to: &Target, from: Option<IpAddr>) -> Result<Client, ConnectError> {
        let client = open_control(to, from)?;
        self.check_target(client.welcome()).map_err(ConnectError::Mismatch)?;
        Ok(client)
    }
}

/// Opens the control connection to a target of any provider.
///
/// # Errors
/// [`ConnectError::Token`] for a wrong token, otherwise [`ConnectError::Client`].
pub fn open_control(to: &Target, from: Option<IpAddr>) -> Result<Client, ConnectError> {
    Client::connect(&to.0, from, to.1).map_err(|error| match error {
        ClientError::Refused(refusal) if refusal.cause == Cause::Token => ConnectError::Token { to: to.0.clone() },
        error => error.into(),
    })
}

/// Returns the local address from which a target is reached: `bind`, or the one of the route.
///
/// # Errors
/// [`ConnectError::Path`] if the target is not reached by IP, [`ConnectError::Route`] if there is no route.
pub fn local_address(bind: Option<SocketAddr>, to: &ControlAddress) -> Result<SocketAddr, ConnectError> {
    match (bind, to) {
        (Some(bind), _) => Ok(bind),
        (None, ControlAddress::Tcp(target)) => Ok(SocketAddr::new(route(*target)?, 0)),
        (None, ControlAddress::Unix(_)) => Err(ConnectError::Path),
    }
}

/// Returns the local address of the route to a target.
///
/// # Errors
/// [`ConnectError::Route`] if there is none.
pub fn route(to: SocketAddr) -> Result<IpAddr, ConnectError> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = || {
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(|source| ConnectError::Route { to, source })
}
