//! Endpoints over the carriers of this machine.

use super::options::LinkOptions;
use super::{Connected, Connector, LinkSelector, SpaceFibreEndpoint};
use crate::api::VerbsError;
use crate::random;
use shotline_transport::carrier::Carrier;
use shotline_transport::carrier::faulty::{Faults, Faulty};
use shotline_transport::carrier::inproc;
use shotline_transport::carrier::shm::ShmCarrier;
use shotline_transport::carrier::udp::UdpPort;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Carrier of any kind.
pub type AnyCarrier = Box<dyn Carrier + Send>;

/// Adds bit errors to what a carrier sends, if any are wanted.
fn with_errors(carrier: impl Carrier + Send + 'static, bit_error_rate: f64) -> Result<AnyCarrier, VerbsError> {
    if bit_error_rate == 0.0 {
        return Ok(Box::new(carrier));
    }
    let seed = u64::from_ne_bytes(random::bytes()?);
    Ok(Box::new(Faulty::new(carrier, Faults { seed, bit_error_rate, ..Faults::default() })))
}

/// Opens a UDP socket for each far end, all on the same local address.
pub struct UdpConnector {
    port: UdpPort,
    bit_error_rate: f64,
}

impl Connector for UdpConnector {
    type Carrier = AnyCarrier;

    fn connect(&mut self, peer: SocketAddr) -> Result<AnyCarrier, VerbsError> {
        with_errors(self.port.connect(peer, None)?, self.bit_error_rate)
    }

    fn disconnect(&mut self, carrier: AnyCarrier) {
        drop(carrier);
    }

    fn address(&self) -> SocketAddr {
        self.port.local_addr()
    }
}

impl SpaceFibreEndpoint<UdpConnector> {
    /// Opens an endpoint on a local UDP address, for links to up to 16 far ends. No privileges are needed.
    ///
    /// # Errors
    /// [`VerbsError::Io`] if the address is not available; otherwise those of [`SpaceFibreEndpoint::open`].
    pub fn udp(bind: SocketAddr, selector: &LinkSelector) -> Result<Self, VerbsError> {
        let connector = UdpConnector { port: UdpPort::bind(bind)?, bit_error_rate: selector.bit_error_rate };
        Self::open(connector, selector.options())
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
