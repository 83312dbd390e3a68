//! `dpdk:DEVICE`: a DPDK port. A build without the feature parses the name and reports what is missing.

use crate::backend::{About, Backend, Flag};
#[cfg(not(feature = "dpdk"))]
use crate::backend::{Never, not_built};
use crate::opening::{OpenedReceiver, OpenedSender, Options, ReceiverParameters, Role, SenderParameters};
#[cfg(feature = "dpdk")]
use crate::{PacketShape, route};
use shotline_memory::Regions;
use shotline_transport::IoError;
#[cfg(feature = "dpdk")]
use shotline_transport::dpdk::{DpdkConfig, DpdkIo, EalConfig, SplitShape};
#[cfg(feature = "dpdk")]
use std::{net::SocketAddr, time::Duration};

/// A device in DPDK's syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dpdk(pub String);

/// Time that a sender waits for the peer of its link.
#[cfg(feature = "dpdk")]
const LINK_TIMEOUT: Duration = Duration::from_secs(30);
/// UDP source port of packets that the kernel does not send.
#[cfg(feature = "dpdk")]
const SOURCE_PORT: u16 = 47921;
/// Remedy in the error message of a build without the feature.
const MISSING: &str = "apt install libdpdk-dev, then build it with --features dpdk";

#[cfg(feature = "dpdk")]
type Port = DpdkIo;
#[cfg(not(feature = "dpdk"))]
type Port = Never;

impl Backend for Dpdk {
    const ABOUT: About = About {
        name: "dpdk",
        argument: Some("DEVICE"),
        examples: &["dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock", "dpdk:0000:03:00.0"],
        steers: "yes; no with header split",
        credits: "memif only",
        one_link: &[Role::Sender],
        sends: true,
        sends_complete_frames: false,
        copies: "1, from the driver's buffer; memif: 2, or 1 without ICRC; packet card: 0",
        batch: "32",
        privileges: "none for memif; root or VFIO for cards",
        feature: Some("dpdk"),
        missing: if cfg!(feature = "dpdk") { None } else { Some(MISSING) },
        receiver_flags: &[Flag::Mtu, Flag::PeerMac, Flag::Eal],
        sender_flags: &[Flag::Mtu, Flag::PeerMac, Flag::Eal],
        complete_frames_flags: &[],
    };
    type Io = Port;
    type Sender = Port;

    fn parse(arguments: &str) -> Result<Option<Self>, String> {
        Ok((!arguments.is_empty()).then(|| Self(arguments.into())))
    }

    fn arguments(&self) -> String {
        self.0.clone()
    }

    #[cfg(feature = "dpdk")]
    fn writes_shared_memory(&self) -> bool {
        shotline_transport::dpdk::writes_receives(&self.0)
    }

    #[cfg(feature = "dpdk")]
    fn open(
        &self,
        parameters: &ReceiverParameters,
        options: &Options,
        regions: &Regions,
    ) -> Result<OpenedReceiver<DpdkIo>, IoError> {
        let ReceiverParameters { bind, sealed, remainders, capacity, scratch, .. } = *parameters;
        let defaults = self.config(options, DpdkConfig::new(self.0.as_str(), bind, scratch))?;
        let split = parameters.in_order.map(|PacketShape { header, payload }| SplitShape { header, payload });
        let config = DpdkConfig { sealed, remainders, capacity, split, ..defaults };
        let receive_buffer = usize::from(config.descriptors) * usize::from(config.mtu);
        Ok(OpenedReceiver { io: DpdkIo::open(config, regions)?, local: bind, receive_buffer })
    }

    #[cfg(feature = "dpdk")]
    fn open_sender(
        &self,
        parameters: &SenderParameters,
        options: &Options,
        regions: &Regions,
    ) -> Result<OpenedSender<DpdkIo>, IoError> {
        let ip = parameters.source.unwrap_or_else(|| route::neighbour(parameters.to.ip()));
        let source = SocketAddr::new(ip, SOURCE_PORT);
        let defaults = self.config(options, DpdkConfig::new(self.0.as_str(), source, parameters.scratch))?;
        let eal = EalConfig { memory_mib: defaults.eal.memory_mib + (parameters.frames >> 20) as u32, ..defaults.eal };
        let (zero_copy, sealed) = (parameters.frames > 0, parameters.sealed);
        let mut io =
            DpdkIo::open(DpdkConfig { eal, zero_copy, sealed, remainders: false, capacity: 0, ..defaults }, regions)?;
        io.wait_link(LINK_TIMEOUT)?;
        Ok(OpenedSender { source: io.local_addr(), io })
    }

    #[cfg(not(feature = "dpdk"))]
    fn open(&self, _: &ReceiverParameters, _: &Options, _: &Regions) -> Result<OpenedReceiver<Never>, IoError> {
        Err(IoError::Config(not_built(&Self::ABOUT, &self.0)))
    }

    #[cfg(not(feature = "dpdk"))]
    fn open_sender(&self, _: &SenderParameters, _: &Options, _: &Regions) -> Result<OpenedSender<Never>, IoError> {
        Err(IoError::Config(not_built(&Self::ABOUT, &self.0)))
    }
}

#[cfg(feature = "dpdk")]
impl Dpdk {
    /// Returns a port's configuration with the user's flags applied.
    fn config(&self, options: &Options, defaults: DpdkConfig) -> Result<DpdkConfig, IoError> {
        let peer = options.peer().map_err(IoError::Config)?;
        let arguments = options.eal.as_deref().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        let eal = EalConfig { arguments, ..EalConfig::default() };
        Ok(DpdkConfig { eal, peer, mtu: options.mtu.unwrap_or(defaults.mtu), ..defaults })
    }
}
