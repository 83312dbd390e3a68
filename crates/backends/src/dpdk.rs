//! `dpdk:DEVICE`: a port that DPDK drives. A build without the feature knows the name and says what it lacks.

use crate::backend::{About, Backend, Flag};
#[cfg(not(feature = "dpdk"))]
use crate::backend::{Never, not_built};
use crate::opening::{Opened, Options, Outgoing, Role, Sending, Wanted};
#[cfg(feature = "dpdk")]
use crate::route;
use shotline_memory::Regions;
use shotline_transport::IoError;
#[cfg(feature = "dpdk")]
use shotline_transport::dpdk::{DpdkConfig, DpdkIo, EalConfig};
#[cfg(feature = "dpdk")]
use std::{net::SocketAddr, time::Duration};

/// A device as DPDK writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dpdk(pub String);

/// How long a sender waits for the other side of its link.
#[cfg(feature = "dpdk")]
const LINK_PATIENCE: Duration = Duration::from_secs(30);
/// The port that packets come from which no kernel sends.
#[cfg(feature = "dpdk")]
const SOURCE_PORT: u16 = 47921;
/// What a build without the feature says behind the device's name.
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
        steers: "yes",
        credits: "of memif",
        one_link: &[Role::Sender],
        sends: true,
        sends_whole_frames: false,
        copies: "1 out of the driver's buffer; of memif 2, 1 of packets without ICRC",
        batch: "32",
        privileges: "the device's: none for memif, root or VFIO for cards",
        feature: Some("dpdk"),
        missing: if cfg!(feature = "dpdk") { None } else { Some(MISSING) },
        receiver_flags: &[Flag::Mtu, Flag::PeerMac, Flag::Eal],
        sender_flags: &[Flag::Mtu, Flag::PeerMac, Flag::Eal],
        whole_frames_flags: &[],
    };
    type Io = Port;
    type Sender = Port;

    fn parse(words: &str) -> Result<Option<Self>, String> {
        Ok((!words.is_empty()).then(|| Self(words.into())))
    }

    fn words(&self) -> String {
        self.0.clone()
    }

    #[cfg(feature = "dpdk")]
    fn open(&self, wanted: &Wanted, options: &Options, regions: &Regions) -> Result<Opened<DpdkIo>, IoError> {
        let Wanted { bind, sealed, remainders, capacity, scratch, .. } = *wanted;
        let usual = self.config(options, DpdkConfig::new(self.0.as_str(), bind, scratch))?;
        let config = DpdkConfig { sealed, remainders, capacity, ..usual };
        let receive_buffer = usize::from(config.descriptors) * usize::from(config.mtu);
        Ok(Opened { io: DpdkIo::open(config, regions)?, local: bind, receive_buffer })
    }

    #[cfg(feature = "dpdk")]
    fn open_sender(
        &self,
        sending: &Sending,
        options: &Options,
        regions: &Regions,
    ) -> Result<Outgoing<DpdkIo>, IoError> {
        let ip = sending.source.unwrap_or_else(|| route::neighbour(sending.to.ip()));
        let source = SocketAddr::new(ip, SOURCE_PORT);
        let usual = self.config(options, DpdkConfig::new(self.0.as_str(), source, sending.scratch))?;
        let eal = EalConfig { memory_mib: usual.eal.memory_mib + (sending.frames >> 20) as u32, ..usual.eal };
        let (lend, sealed) = (sending.frames > 0, sending.sealed);
        let mut io = DpdkIo::open(DpdkConfig { eal, lend, sealed, remainders: false, capacity: 0, ..usual }, regions)?;
        io.wait_link(LINK_PATIENCE)?;
        Ok(Outgoing { source: io.local_addr(), io })
    }

    #[cfg(not(feature = "dpdk"))]
    fn open(&self, _: &Wanted, _: &Options, _: &Regions) -> Result<Opened<Never>, IoError> {
        Err(IoError::Config(not_built(&Self::ABOUT, &self.0)))
    }

    #[cfg(not(feature = "dpdk"))]
    fn open_sender(&self, _: &Sending, _: &Options, _: &Regions) -> Result<Outgoing<Never>, IoError> {
        Err(IoError::Config(not_built(&Self::ABOUT, &self.0)))
    }
}

#[cfg(feature = "dpdk")]
impl Dpdk {
    /// A port's configuration with what the user said.
    fn config(&self, options: &Options, usual: DpdkConfig) -> Result<DpdkConfig, IoError> {
        let peer = options.peer().map_err(IoError::Config)?;
        let arguments = options.eal.as_deref().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        let eal = EalConfig { arguments, ..EalConfig::default() };
        Ok(DpdkConfig { eal, peer, mtu: options.mtu.unwrap_or(usual.mtu), ..usual })
    }
}
