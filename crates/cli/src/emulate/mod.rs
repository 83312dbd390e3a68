//! `shotline emulate`: devices that speak the real wire formats.

mod digitizer;
mod probe;

use crate::Result;
use shotline_instrument::probe::{Outlet, Wanted};
use shotline_memory::{Regions, Sge};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{IoError, PacketIo};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Instruments that can be emulated.
#[derive(clap::Subcommand)]
pub enum Device {
    /// The 192-channel ultrasound probe: two links of 96 channels, 12 bit, 40 MS/s
    #[command(after_help = "\
Examples:
  shotline emulate probe                                 wait on [::1]:47910 for a receiver
  shotline emulate probe --input rf.hdf5                 real RF data instead of test patterns
  shotline emulate probe --loss 1e-4 --corrupt 1e-4      a bad link
  shotline emulate probe --listen 0.0.0.0:47910          found by `shotline probe discover` on the network
  shotline record --probe [::1]:47910 --out run.h5       the other side")]
    Probe(Box<probe::Probe>),
    /// A digitizer: 500 MS/s of IQ in 64 MiB blocks with their spectra, by DMA into prebuilt frames
    #[command(after_help = digitizer::EXAMPLES)]
    Digitizer(Box<digitizer::Digitizer>),
}

/// Runs an emulated device until it is asked to stop.
pub fn run(device: Device) -> Result {
    match device {
        Device::Probe(args) => probe::run(&args),
        Device::Digitizer(args) => digitizer::run(&args),
    }
}

/// Sets the flag when standard input ends.
pub fn stop_at_end_of_stdin(stop: &AtomicBool) {
    let mut sink = [0; 64];
    while !matches!(std::io::stdin().read(&mut sink), Ok(0) | Err(_)) {}
    stop.store(true, Ordering::Relaxed);
}

/// A socket of its own for each link, on the address that the route to the receiver has.
pub fn open(
    source: Option<IpAddr>,
    wanted: &Wanted,
    regions: &Regions,
) -> std::result::Result<Outlet<impl PacketIo + use<>>, IoError> {
    let io = socket(source, wanted.destination, wanted.sealed, regions)?;
    let source = io.local_addr();
    Ok(Outlet::new(io, source))
}

/// A socket that sends to a destination, from this address or that of the route to it.
fn socket(
    source: Option<IpAddr>,
    to: SocketAddr,
    sealed: bool,
    regions: &Regions,
) -> std::result::Result<UdpIo, IoError> {
    let ip = match source {
        Some(ip) => ip,
        None => route(to)?,
    };
    let config = UdpConfig {
        bind: SocketAddr::new(ip, 0),
        sealed,
        capacity: 0,
        scratch: Sge::EMPTY,
        receive_buffer: 1 << 16,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    UdpIo::open(&config, regions)
}

/// A port that sends to a destination; without a source the one next to the destination. `frames`: bytes of prebuilt
/// frames, which a memif client leaves where they are until they have been read.
#[cfg(feature = "dpdk")]
fn port(
    device: &str,
    flags: &crate::transport::Flags,
    source: Option<IpAddr>,
    to: SocketAddr,
    sealed: bool,
    frames: usize,
    regions: &Regions,
) -> std::result::Result<shotline_transport::dpdk::DpdkIo, IoError> {
    use shotline_transport::dpdk::{DpdkConfig, DpdkIo, EalConfig};
    let source = SocketAddr::new(source.unwrap_or_else(|| neighbour(to.ip())), SOURCE_PORT);
    let config = crate::transport::dpdk::config(device, &flags.dpdk, source, Sge::EMPTY)?;
    let eal = EalConfig { memory_mib: config.eal.memory_mib + (frames >> 20) as u32, ..config.eal };
    let config = DpdkConfig { eal, lend: frames > 0, sealed, remainders: false, capacity: 0, ..config };
    let mut io = DpdkIo::open(config, regions)?;
    io.wait_link(crate::transport::LINK_PATIENCE)?;
    Ok(io)
}

/// Where packets come from that no kernel sends.
#[cfg(feature = "dpdk")]
const SOURCE_PORT: u16 = 47921;

/// Another address of the same network.
#[cfg(feature = "dpdk")]
fn neighbour(address: IpAddr) -> IpAddr {
    match address {
        // Neither the network's own address nor the broadcast of a small one.
        IpAddr::V4(ip) if matches!(ip.octets()[3] & 3, 0 | 3) => IpAddr::V4((u32::from(ip) ^ 2).into()),
        IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) ^ 3).into()),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) ^ 3).into()),
    }
}

/// The local address of the route to a destination.
fn route(to: SocketAddr) -> std::result::Result<IpAddr, IoError> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = || {
        let socket = std::net::UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    probe().map_err(|source| IoError::System {
        what: format!("finding the route to {to}"),
        source,
        hint: "; name the local address with --source",
    })
}
