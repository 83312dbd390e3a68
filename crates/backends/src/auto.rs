//! `auto`: selects the transport with the fewest copies per byte.

use crate::ibverbs::Ibverbs;
use crate::registry::Transport;
use crate::route;
use crate::udp::Udp;
use crate::xdp::Xdp;
use shotline_memory::{Region, Registrar, Sge};
use shotline_transport::xdp::{AttachMode, CopyMode, XdpConfig, XdpIo};
use shotline_transport::{IoError, SCRATCH_BYTES};
use shotline_verbs::ibverbs::find;
use std::net::{IpAddr, SocketAddr};

/// A recommended transport, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The transport, never [`Transport::Auto`].
    pub transport: Transport,
    /// The reason, in one sentence.
    pub why: String,
    /// What would allow a better transport, if anything.
    pub better: Option<String>,
}

/// Selects the transport that [`Transport::Auto`] stands for: the one with the fewest copies per byte, for packets to
/// the local address on `links` links, if their number is known.
///
/// An RDMA card with the address is preferred, because it writes payloads to their destinations (for one link only, the
/// limit of its queue pair). Next is AF_XDP with a zero-copy driver, else sockets, which copy each byte once, while
/// AF_XDP in copy mode copies it twice. AF_XDP is probed by opening the interface's queues briefly.
pub fn advise(local: IpAddr, links: Option<u8>) -> Advice {
    if let (Some(1), Ok(Some(found))) = (links, find::by_address(local))
        && found.is_hardware
    {
        let why = format!("ibverbs: the RDMA card {} writes payloads to their destinations", found.device);
        let device = Ibverbs { choice: found.device, keep_headers: false };
        return Advice { transport: Transport::Ibverbs(device), why, better: None };
    }
    let sockets = |why: String, better: Option<&str>| Advice {
        transport: Transport::Udp(Udp),
        why: format!("sockets: {why}"),
        better: better.map(str::to_owned),
    };
    if local.is_loopback() {
        return sockets(format!("{local} is on loopback, where the kernel delivers packets in batches (GRO)"), None);
    }
    let Some(interface) = route::interface_of(local) else {
        return sockets(format!("no interface has {local}"), Some("--bind with an address of an interface (ip addr)"));
    };
    match try_zero_copy(&interface, local) {
        Ok(()) => {
            let why = format!("AF_XDP: the driver of {interface} supports zero-copy");
            let xdp = Xdp { interface, queues: None, mode: AttachMode::Native, copy: CopyMode::Zero, chunks: None };
            Advice { transport: Transport::Xdp(xdp), why, better: None }
        }
        Err(error) => sockets(
            format!("zero-copy AF_XDP is not available on {interface}: {error}"),
            Some("a card whose driver supports zero-copy AF_XDP (mlx5, ice, i40e, igc), and root"),
        ),
    }
}

/// Opens an interface's queues briefly in zero-copy mode, and returns the error if that fails.
fn try_zero_copy(interface: &str, local: IpAddr) -> Result<(), String> {
    let mut registrar = Registrar::new();
    let scratch = Region::heap(SCRATCH_BYTES as usize).map_err(|error| error.to_string())?;
    let scratch = Sge { region: registrar.add(scratch), offset: 0, len: SCRATCH_BYTES };
    let config = XdpConfig::new(interface, SocketAddr::new(local, 0), scratch);
    let config = XdpConfig { mode: AttachMode::Native, copy: CopyMode::Zero, chunks: 64, capacity: 1, ..config };
    XdpIo::open(config, &registrar.finish()).map(drop).map_err(|error| match error {
        IoError::System { what, source, .. } => format!("{what}: {source}"),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_uses_sockets() {
        assert_eq!(route::interface_of([127, 0, 0, 1].into()).as_deref(), Some("lo"));
        let best = advise([127, 0, 0, 1].into(), Some(1));
        assert_eq!((best.transport, best.better), (Transport::Udp(Udp), None));
    }
}
