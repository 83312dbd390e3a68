//! `auto`: of the other transports the one that touches each byte least.

use crate::backend::{About, Advice, Backend, Finding, Never};
use crate::ibverbs::Ibverbs;
use crate::opening::{Opened, Options, Outgoing, Sending, Wanted};
use crate::route;
use crate::udp::Udp;
use crate::xdp::Xdp;
use shotline_memory::{Region, Regions, Registrar, Sge};
use shotline_transport::xdp::{Copy, Mode, XdpConfig, XdpIo};
use shotline_transport::{IoError, SCRATCH_BYTES};
use shotline_verbs::ibverbs::find;
use std::net::{IpAddr, SocketAddr};

/// Stands for another transport, which [`Backend::advise`] chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto;

impl Backend for Auto {
    const ABOUT: About = About {
        name: "auto",
        argument: None,
        examples: &[],
        steers: "as what it takes",
        credits: "no",
        stands_for_another: true,
        one_link: false,
        sends: false,
        sends_whole_frames: false,
        copies: "as what it takes: of ibverbs, xdp and udp the one with fewest copies",
        batch: "as what it takes",
        privileges: "none; root to try xdp",
        feature: None,
        missing: None,
        receiver_flags: &[],
        sender_flags: &[],
        whole_frames_flags: &[],
    };
    type Io = Never;
    type Sender = Never;

    fn parse(_words: &str) -> Result<Option<Self>, String> {
        Ok(Some(Self))
    }

    fn words(&self) -> String {
        String::new()
    }

    fn open(&self, _: &Wanted, _: &Options, _: &Regions) -> Result<Opened<Never>, IoError> {
        Err(IoError::Config("auto stands for another transport: ask which before opening it".into()))
    }

    fn open_sender(&self, _: &Sending, _: &Options, _: &Regions) -> Result<Outgoing<Never>, IoError> {
        Err(IoError::Config("auto only receives: send by udp".into()))
    }

    fn advise(&self, local: IpAddr, links: Option<u8>) -> Option<Advice> {
        Some(best(local, links))
    }

    /// What it takes, and what would be better.
    fn doctor(local: Option<IpAddr>) -> Option<Finding> {
        let Advice { why, better, .. } = best(local?, None);
        Some(Finding {
            name: "transport",
            good: better.is_none(),
            found: why,
            wanted: "each byte touched once",
            fix: better.unwrap_or_default(),
            names: None,
        })
    }
}

fn named<B: Backend>(backend: &B) -> String {
    let words = backend.words();
    if words.is_empty() { B::ABOUT.name.into() } else { format!("{}:{words}", B::ABOUT.name) }
}

/// The transport that touches each byte least: an RDMA card that has the address, which writes payloads to their places
/// (`links`: of one link, as its queue pair takes no more); else AF_XDP where the driver receives into our memory, else
/// sockets, which copy each byte once, as AF_XDP would with a kernel's copy twice. An interface is asked by opening it
/// for a moment.
fn best(local: IpAddr, links: Option<u8>) -> Advice {
    if let (Some(1), Ok(Some(found))) = (links, find::at(local))
        && found.hardware
    {
        let why = format!("ibverbs: the RDMA card {} writes payloads to their places", found.choice);
        let device = Ibverbs { choice: found.choice, keep_headers: false };
        return Advice { transport: named(&device), why, better: None };
    }
    let sockets = |why: String, better: Option<&str>| Advice {
        transport: named(&Udp),
        why: format!("sockets: {why}"),
        better: better.map(str::to_owned),
    };
    if local.is_loopback() {
        return sockets(format!("{local} is on loopback, where the kernel hands over many packets at once"), None);
    }
    let Some(interface) = route::interface_of(local) else {
        return sockets(format!("no interface has {local}"), Some("--bind with an address of an interface (ip addr)"));
    };
    match try_zero_copy(&interface, local) {
        Ok(()) => {
            let why = format!("AF_XDP: the driver of {interface} receives into this program's memory");
            let xdp = Xdp { interface, queues: None, mode: Mode::Native, copy: Copy::Zero, chunks: None };
            Advice { transport: named(&xdp), why, better: None }
        }
        Err(error) => sockets(
            format!("AF_XDP without a copy is not to be had on {interface}: {error}"),
            Some("a card whose driver has AF_XDP without a copy (mlx5, ice, i40e, igc), and root"),
        ),
    }
}

/// Opens an interface's queues for a moment, without a copy.
fn try_zero_copy(interface: &str, local: IpAddr) -> Result<(), String> {
    let mut registrar = Registrar::new();
    let scratch = Region::heap(SCRATCH_BYTES as usize).map_err(|error| error.to_string())?;
    let scratch = Sge { region: registrar.add(scratch), offset: 0, len: SCRATCH_BYTES };
    let config = XdpConfig::new(interface, SocketAddr::new(local, 0), scratch);
    let config = XdpConfig { mode: Mode::Native, copy: Copy::Zero, chunks: 64, capacity: 1, ..config };
    XdpIo::open(config, &registrar.finish()).map(drop).map_err(|error| match error {
        IoError::System { what, source, .. } => format!("{what}: {source}"),
        error => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_best_served_by_sockets() {
        assert_eq!(route::interface_of([127, 0, 0, 1].into()).as_deref(), Some("lo"));
        let best = best([127, 0, 0, 1].into(), Some(1));
        assert_eq!((best.transport.as_str(), best.better), ("udp", None));
    }
}
