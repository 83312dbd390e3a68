//! Flags that choose a transport, and functions that open transports.

use shotline_backends::{OpenedSender, Options, Role, Sender, SenderParameters, Transport};
use shotline_instrument::probe::{LinkRequest, LinkTransport};
use shotline_memory::{Regions, Sge};
use shotline_transport::IoError;
use std::net::IpAddr;

/// Transport flags of programs that send.
#[derive(clap::Args, Clone, Debug)]
pub struct SenderFlags {
    /// Transport of packets: udp or dpdk:DEVICE
    #[arg(long, default_value = "udp", value_name = "TRANSPORT", help_heading = "Transport")]
    pub transport: Transport,
    /// Maximum length of an IP packet in bytes, for transports that bypass the kernel [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    mtu: Option<u16>,
    /// Ethernet address of the peer or router, for transports that bypass the kernel [default: learned, else broadcast]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    peer_mac: Option<String>,
    /// Additional arguments of DPDK's EAL, such as --eal=--log-level=8
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = "Transport")]
    eal: Option<String>,
}

impl SenderFlags {
    /// Returns the options to open the transport in this role.
    ///
    /// # Errors
    /// If it does not have this role, is not in this build, or a flag is given that it does not use.
    pub fn options(&self, role: Role) -> Result<Options, String> {
        let Self { mtu, peer_mac, eal, .. } = self.clone();
        let options = Options { mtu, peer_mac, eal, receive_buffer: None };
        self.transport.check(role, &options).map(|()| options)
    }
}

/// Returns a function that opens a sending transport for each link of an emulated device.
pub fn sender_opener<'a>(
    transport: &'a Transport,
    options: &'a Options,
    source: Option<IpAddr>,
) -> impl Fn(&LinkRequest, &Regions) -> Result<LinkTransport<Sender>, IoError> + use<'a> {
    move |request, regions| {
        let LinkRequest { destination: to, sealed, .. } = *request;
        let sending = SenderParameters { source, to, sealed, frames: 0, scratch: Sge::EMPTY };
        let OpenedSender { io, source } = transport.open_sender(&sending, options, regions)?;
        Ok(LinkTransport::new(io, source))
    }
}

/// Opens a socket for a link, on the address that the route to the receiver has.
pub fn open(
    source: Option<IpAddr>,
    request: &LinkRequest,
    regions: &Regions,
) -> Result<LinkTransport<Sender>, IoError> {
    sender_opener(&Transport::default(), &Options::default(), source)(request, regions)
}
