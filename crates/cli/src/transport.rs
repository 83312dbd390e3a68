//! What carries packets: sockets, frames of an interface, an RDMA device, or a port that DPDK drives.

use crate::Result;
use nix::ifaddrs::getifaddrs;
use shotline_acquire::config::Settings;
use shotline_memory::{Region, Registrar, Sge};
use shotline_transport::xdp::{Copy, Mode, XdpConfig, XdpIo};
use shotline_transport::{IoError, SCRATCH_BYTES};
use shotline_verbs::ibverbs::ud::UdConfig;
use shotline_verbs::ibverbs::{Choice, find};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

/// How long a sender waits for the other side of its link.
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "sockets have no links to wait for"))]
pub const LINK_PATIENCE: Duration = Duration::from_secs(30);

/// What carries packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// UDP sockets.
    #[default]
    Udp,
    /// Frames of an interface, taken from its driver (AF_XDP).
    Xdp(Box<Interface>),
    /// Frames of an interface, as the kernel shows them to those who ask (AF_PACKET).
    Packet(String),
    /// A queue pair of an RDMA device.
    Ibverbs(Rdma),
    /// A device that DPDK drives, as DPDK writes it.
    Dpdk(String),
    /// Of the others, the one that touches each byte least: see [`best`].
    Auto,
}

/// An interface and how its frames are taken: `eth1,queues=0-3,mode=native`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    name: String,
    queues: Vec<u32>,
    mode: Mode,
    copy: Copy,
    chunks: Option<u32>,
}

impl FromStr for Interface {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut words = text.split(',');
        let name = words.next().filter(|name| !name.is_empty() && !name.contains('=')).map(str::to_owned);
        let name = name.ok_or_else(|| format!("\"{text}\" names no interface: such as xdp:eth1"))?;
        let mut this = Self { name, queues: Vec::new(), mode: Mode::Auto, copy: Copy::Auto, chunks: None };
        for word in words {
            let unknown = || {
                format!(
                    "expected queues=0-3, mode=native, mode=generic, copy=yes, copy=zero or chunks=8192 behind the interface, found {word}"
                )
            };
            match word.split_once('=').ok_or_else(unknown)? {
                ("queues", range) => this.queues = queues(range).ok_or_else(unknown)?,
                ("mode", "native") => this.mode = Mode::Native,
                ("mode", "generic") => this.mode = Mode::Generic,
                ("copy", "yes") => this.copy = Copy::Copy,
                ("copy", "zero") => this.copy = Copy::Zero,
                ("chunks", count) => this.chunks = Some(count.parse().map_err(|_| unknown())?),
                _ => return Err(unknown()),
            }
        }
        Ok(this)
    }
}

/// An RDMA device, which of its addresses, and how it receives: `mlx5_0,port=1,gid=3,headers=keep`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rdma {
    choice: Choice,
    keep_headers: bool,
}

impl FromStr for Rdma {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let keep = |word: &&str| *word == "headers=keep";
        let words: Vec<_> = text.split(',').filter(|word| !keep(word)).collect();
        let choice: Choice = words.join(",").parse()?;
        Ok(Self { choice, keep_headers: text.split(',').any(|word| keep(&word)) })
    }
}

impl Rdma {
    /// The backend's configuration, for packets to this address.
    pub fn config(&self, local: IpAddr, capacity: usize) -> UdConfig {
        let Self { choice, keep_headers } = self.clone();
        UdConfig { choice, local, capacity, remainders: true, keep_headers }
    }
}

/// `2`, or `0-3`: fewer than 4096 of them.
fn queues(range: &str) -> Option<Vec<u32>> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < 4096).then(|| (first..=last).collect())
}

impl Interface {
    /// The backend's configuration.
    pub fn config(&self, bind: SocketAddr, scratch: Sge) -> XdpConfig {
        let config = XdpConfig::new(self.name.as_str(), bind, scratch);
        let (mode, copy, chunks) = (self.mode, self.copy, self.chunks.unwrap_or(config.chunks));
        XdpConfig { queues: self.queues.clone(), mode, copy, chunks, ..config }
    }
}

impl FromStr for Transport {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            None if text == "udp" => Ok(Self::Udp),
            None if text == "auto" => Ok(Self::Auto),
            Some(("xdp", interface)) => Ok(Self::Xdp(Box::new(interface.parse()?))),
            Some(("packet", interface)) if !interface.is_empty() => Ok(Self::Packet(interface.into())),
            Some(("ibverbs", device)) => Ok(Self::Ibverbs(device.parse()?)),
            Some(("dpdk", device)) if !device.is_empty() => Ok(Self::Dpdk(device.into())),
            _ => Err(format!(
                "expected auto, udp, xdp:INTERFACE, packet:INTERFACE, ibverbs:DEVICE or dpdk:DEVICE, such as xdp:eth1, ibverbs:mlx5_0, dpdk:net_memif0,role=server,id=0,socket=/run/shot.sock or dpdk:0000:03:00.0, found {text}"
            )),
        }
    }
}

/// Flags of programs that send.
#[derive(clap::Args, Clone, Debug)]
pub struct Flags {
    /// What carries packets: udp, or dpdk:DEVICE
    #[arg(long, default_value = "udp", value_name = "TRANSPORT", help_heading = "Transport")]
    pub transport: Transport,
    #[command(flatten)]
    pub dpdk: DpdkFlags,
}

/// What DPDK needs to know.
#[derive(clap::Args, Clone, Debug)]
pub struct DpdkFlags {
    /// Longest IP packet in bytes, where no kernel knows it [default: 9000]
    #[arg(long, value_name = "BYTES", help_heading = "Transport")]
    pub mtu: Option<u16>,
    /// Ethernet address of the other side or the router, where no kernel knows it [default: learned, else all hosts]
    #[arg(long, value_name = "MAC", help_heading = "Transport")]
    pub peer_mac: Option<String>,
    /// More words for DPDK's command line (EAL), such as --eal=--log-level=8
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, help_heading = "Transport")]
    pub eal: Option<String>,
}

#[cfg(feature = "dpdk")]
impl DpdkFlags {
    /// Of a receiver's settings.
    pub fn of(settings: &Settings) -> Self {
        let Settings { mtu, peer_mac, eal, .. } = settings.clone();
        Self { mtu, peer_mac, eal }
    }
}

/// What a receiver's settings name.
pub fn of(settings: &Settings) -> Result<Transport> {
    Ok(settings.transport.as_deref().map_or(Ok(Transport::Udp), str::parse)?)
}

#[cfg(feature = "dpdk")]
pub mod dpdk {
    //! Opening ports.

    use super::{DpdkFlags, mac};
    use shotline_memory::Sge;
    use shotline_transport::IoError;
    use shotline_transport::dpdk::{DpdkConfig, EalConfig};
    use std::net::SocketAddr;

    /// A port's configuration from flags.
    pub fn config(device: &str, flags: &DpdkFlags, bind: SocketAddr, scratch: Sge) -> Result<DpdkConfig, IoError> {
        let peer = flags.peer_mac.as_deref().map(mac).transpose().map_err(IoError::Config)?;
        let words = flags.eal.as_deref().unwrap_or("").split_whitespace().map(str::to_owned).collect();
        let config = DpdkConfig::new(device, bind, scratch);
        Ok(DpdkConfig {
            eal: EalConfig { arguments: words, ..EalConfig::default() },
            peer,
            mtu: flags.mtu.unwrap_or(config.mtu),
            ..config
        })
    }
}

/// An Ethernet address.
#[cfg(any(feature = "dpdk", feature = "rtl"))]
pub fn mac(text: &str) -> std::result::Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("expected an Ethernet address such as 02:00:00:00:00:01, found {text}"))
}

/// What this machine has for packets to an address, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best {
    /// Sockets, or an interface's driver.
    pub transport: Transport,
    /// Why, in one sentence.
    pub why: String,
    /// What would be better, if anything would.
    pub better: Option<String>,
}

/// The transport that touches each byte least: an RDMA card that has the address, which writes payloads to their places
/// (`links`: of one link, as its queue pair takes no more); else AF_XDP where the driver receives into our memory, else sockets, which copy
/// each byte once, as AF_XDP would with a kernel's copy twice. An interface is asked by opening it for a moment.
pub fn best(local: IpAddr, links: Option<u8>) -> Best {
    if let (Some(1), Ok(Some(found))) = (links, find::at(local))
        && found.hardware
    {
        let why = format!("ibverbs: the RDMA card {} writes payloads to their places", found.choice);
        let rdma = Rdma { choice: found.choice, keep_headers: false };
        return Best { transport: Transport::Ibverbs(rdma), why, better: None };
    }
    let sockets = |why: String, better: Option<&str>| Best {
        transport: Transport::Udp,
        why: format!("sockets: {why}"),
        better: better.map(str::to_owned),
    };
    if local.is_loopback() {
        return sockets(format!("{local} is on loopback, where the kernel hands over many packets at once"), None);
    }
    let Some(name) = interface_of(local) else {
        return sockets(format!("no interface has {local}"), Some("--bind with an address of an interface (ip addr)"));
    };
    let mut registrar = Registrar::new();
    let tried = match Region::heap(SCRATCH_BYTES as usize) {
        Ok(scratch) => {
            let scratch = Sge { region: registrar.add(scratch), offset: 0, len: SCRATCH_BYTES };
            let config = XdpConfig::new(name.as_str(), SocketAddr::new(local, 0), scratch);
            let config = XdpConfig { mode: Mode::Native, copy: Copy::Zero, chunks: 64, capacity: 1, ..config };
            XdpIo::open(config, &registrar.finish()).map(drop).map_err(|error| match error {
                IoError::System { what, source, .. } => format!("{what}: {source}"),
                error => error.to_string(),
            })
        }
        Err(error) => Err(error.to_string()),
    };
    match tried {
        Ok(()) => {
            let (mode, copy) = (Mode::Native, Copy::Zero);
            let interface = Interface { name, queues: Vec::new(), mode, copy, chunks: None };
            let why = format!("AF_XDP: the driver of {} receives into this program's memory", interface.name);
            Best { transport: Transport::Xdp(Box::new(interface)), why, better: None }
        }
        Err(error) => sockets(
            format!("AF_XDP without a copy is not to be had on {name}: {error}"),
            Some("a card whose driver has AF_XDP without a copy (mlx5, ice, i40e, igc), and root"),
        ),
    }
}

/// The interface that has an address.
pub fn interface_of(ip: IpAddr) -> Option<String> {
    let has = |address: &nix::sys::socket::SockaddrStorage| match ip {
        IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|found| found.ip() == ip),
        IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|found| found.ip() == ip),
    };
    getifaddrs().ok()?.find(|entry| entry.address.as_ref().is_some_and(has)).map(|entry| entry.interface_name)
}

/// The local address that packets from a host come to.
pub fn local_ip(host: SocketAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = if host.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(host)?;
    Ok(socket.local_addr()?.ip())
}

/// Why senders do not take frames from an interface.
pub fn receives_only() -> String {
    "auto, xdp:INTERFACE, packet:INTERFACE and ibverbs:DEVICE are for receivers: send by udp, or by dpdk:DEVICE".into()
}

/// Why a build without DPDK cannot.
#[cfg(not(feature = "dpdk"))]
pub fn no_dpdk(device: &str) -> shotline_transport::IoError {
    shotline_transport::IoError::Config(format!(
        "this shotline was built without DPDK, so it cannot open {device}: apt install libdpdk-dev, then build it with --features dpdk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_a_name_and_perhaps_a_device() {
        assert_eq!("udp".parse(), Ok(Transport::Udp));
        assert_eq!("dpdk:0000:03:00.0".parse(), Ok(Transport::Dpdk("0000:03:00.0".into())));
        assert_eq!("dpdk:net_memif0,id=0".parse(), Ok(Transport::Dpdk("net_memif0,id=0".into())));
        assert_eq!("auto".parse(), Ok(Transport::Auto));
        assert_eq!("packet:eth1".parse(), Ok(Transport::Packet("eth1".into())));
        for bad in ["", "tcp", "dpdk", "dpdk:", "udp:1", "xdp", "packet:"] {
            assert!(bad.parse::<Transport>().unwrap_err().contains("dpdk:DEVICE"), "{bad}");
        }
    }

    #[test]
    fn an_rdma_device_may_have_a_port_and_an_address() {
        let read = "ibverbs:mlx5_0,port=2,gid=3,headers=keep".parse();
        let choice = Choice { device: Some("mlx5_0".into()), port: Some(2), gid: Some(3) };
        let rdma = Rdma { choice, keep_headers: true };
        assert_eq!(read, Ok(Transport::Ibverbs(rdma)));
        for bad in ["ibverbs:port=1", "ibverbs:rxe0,port=300", "ibverbs:rxe0,gid=x", "ibverbs:rxe0,mtu=1"] {
            assert!(bad.parse::<Transport>().is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_found_and_best_served_by_sockets() {
        assert_eq!(interface_of([127, 0, 0, 1].into()).as_deref(), Some("lo"));
        let best = best([127, 0, 0, 1].into(), Some(1));
        assert_eq!((best.transport, best.better), (Transport::Udp, None));
    }

    #[test]
    fn an_interface_may_have_queues_a_mode_a_way_to_copy_and_chunks() {
        let Ok(Transport::Xdp(read)) = "xdp:eth1,queues=2-4,mode=native,copy=zero,chunks=1024".parse() else {
            panic!("not read")
        };
        let (mode, copy) = (Mode::Native, Copy::Zero);
        let expected = Interface { name: "eth1".into(), queues: vec![2, 3, 4], mode, copy, chunks: Some(1024) };
        assert_eq!(*read, expected);
        for bad in ["xdp:", "xdp:queues=1", "xdp:eth1,queues=4-2", "xdp:eth1,queues=0-99999", "xdp:eth1,mode=fast"] {
            assert!(bad.parse::<Transport>().is_err(), "{bad}");
        }
        for bad in ["xdp:eth1,copy=no", "xdp:eth1,chunks=many", "xdp:eth1,", "xdp:eth1,2"] {
            assert!(bad.parse::<Transport>().unwrap_err().contains("expected queues=0-3"), "{bad}");
        }
    }
}
