//! Endpoints over the carriers of this machine.

use super::options::LinkOptions;
use super::{Connected, Connector, LinkSelector, SpaceFibreEndpoint};
use crate::api::VerbsError;
use crate::random;
use shotline_transport::carrier::Carrier;
use shotline_transport::carrier::faulty::{Faults, Faulty};
use shotline_transport::carrier::inproc;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_transport::carrier::udp::{UdpCarrier, UdpSocket};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Carrier of any kind.
pub type AnyCarrier = Box<dyn Carrier>;

/// Adds bit errors to what a carrier sends, if any are wanted.
fn with_errors(carrier: impl Carrier + 'static, bit_error_rate: f64) -> Result<AnyCarrier, VerbsError> {
    if bit_error_rate == 0.0 {
        return Ok(Box::new(carrier));
    }
    let seed = u64::from_ne_bytes(random::bytes()?);
    Ok(Box::new(Faulty::new(carrier, Faults { seed, bit_error_rate, ..Faults::default() })))
}

/// Connects a UDP socket to one far end at a time.
pub struct UdpConnector {
    address: SocketAddr,
    /// The bound socket while no far end is connected.
    socket: Option<UdpSocket>,
    bit_error_rate: f64,
}

impl Connector for UdpConnector {
    type Carrier = AnyCarrier;

    fn connect(&mut self, peer: SocketAddr) -> Result<AnyCarrier, VerbsError> {
        let socket = self.socket.take().ok_or_else(|| {
            VerbsError::Invalid(format!(
                "the SpaceFibre link at {} has a far end already: {peer} must wait, or use another endpoint",
                self.address
            ))
        })?;
        with_errors(socket.connect(peer, None)?, self.bit_error_rate)
    }

    fn disconnect(&mut self, carrier: AnyCarrier) {
        drop(carrier);
        // If another process has taken the port meanwhile, the next connection reports that there is no path.
        self.socket = UdpCarrier::bind(self.address).ok();
    }

    fn address(&self) -> SocketAddr {
        self.address
    }
}

impl SpaceFibreEndpoint<UdpConnector> {
    /// Opens an endpoint on a local UDP address, for links to one far end at a time. No privileges are needed.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the address is not available; otherwise those of [`SpaceFibreEndpoint::open`].
    pub fn udp(bind: SocketAddr, selector: &LinkSelector) -> Result<Self, VerbsError> {
        let socket = UdpCarrier::bind(bind)?;
        let (address, bit_error_rate) = (socket.local_addr(), selector.bit_error_rate);
        Self::open(UdpConnector { address, socket: Some(socket), bit_error_rate }, selector.options())
    }
}

impl SpaceFibreEndpoint<Connected<AnyCarrier>> {
    /// Creates an endpoint over shared memory with another process.
    ///
    /// # Errors
    /// Those of [`SpaceFibreEndpoint::open`].
    pub fn shm(carrier: ShmCarrier, selector: &LinkSelector) -> Result<Self, VerbsError> {
        // Addresses have no meaning here, and both ends name each other by this one.
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let carrier = with_errors(carrier, selector.bit_error_rate)?;
        Self::open(Connected::new(carrier, address), selector.options())
    }

    /// Creates two endpoints in one process, whose carriers have faults.
    ///
    /// # Errors
    /// Those of [`SpaceFibreEndpoint::open`].
    pub fn pair(options: &LinkOptions, addresses: [SocketAddr; 2], faults: Faults) -> Result<[Self; 2], VerbsError> {
        let (a, b) = inproc::pair(64)?;
        let open = |carrier, address, seed| {
            let carrier: AnyCarrier = Box::new(Faulty::new(carrier, Faults { seed, ..faults }));
            Self::open(Connected::new(carrier, address), options.clone())
        };
        Ok([open(a, addresses[0], faults.seed)?, open(b, addresses[1], !faults.seed)?])
    }
}
