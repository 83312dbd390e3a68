//! Checks of sockets, interfaces and the probe.

use super::check::State::{Fail, Ok as Good, Warn};
use super::check::{Check, Requirements, kernel_file, size};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use shotline_acquire::control::Control;
use shotline_backends::{Advice, Backend as _, Dpdk, Finding, route};
use shotline_memory::{Registrar, Sge};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_wire::framing::Kind;
use shotline_wire::shot::PACKET_BYTES;
use shotline_wire::{ipv4, ipv6, roce, udp};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

/// Receive buffer that a run requests, in bytes.
const REQUESTED_RECEIVE_BUFFER: usize = 256 << 20;
/// Longest time in seconds for which the receiver may be descheduled without a loss.
const DESCHEDULED_S: f64 = 0.02;
/// Share of the receive buffer that holds payload. The kernel also counts its own overhead for each packet.
const PAYLOAD_SHARE: f64 = 0.5;

pub fn checks(required: &Requirements) -> Vec<Check> {
    let local = local_ip(required.probe);
    let findings = shotline_backends::findings(local.as_ref().ok().copied());
    let mut checks = vec![receive_buffer(required)];
    checks.extend(required.probe.map(probe));
    match local {
        Ok(local) => {
            checks.extend([transport(local), port(local), mtu(local), icrc(local)]);
        }
        Err(error) => checks.push(
            Check::new("route", Fail, format!("no route to the probe: {error}"), "a route")
                .fix("ip route get <the probe's address>"),
        ),
    }
    checks.extend(findings.into_iter().map(check));
    checks
}

/// Returns the local address that the probe's packets arrive at.
fn local_ip(probe: Option<SocketAddr>) -> std::io::Result<IpAddr> {
    probe.map_or(Ok(Ipv6Addr::LOCALHOST.into()), route::local_ip)
}

/// Converts a finding about a transport to a check.
pub fn check(finding: Finding) -> Check {
    let Finding { name, good, found, expected, fix, names } = finding;
    let check = Check::new(name, if good { Good } else { Warn }, found, expected).fix(fix);
    names.into_iter().fold(check, |check, (what, names)| check.measured(what, names))
}

/// Checks the receive buffer that the kernel grants.
pub fn receive_buffer(required: &Requirements) -> Check {
    const NAME: &str = "receive buffer";
    let config = |bind| UdpConfig {
        bind,
        sealed: true,
        capacity: 0,
        scratch: Sge::EMPTY,
        receive_buffer: REQUESTED_RECEIVE_BUFFER,
        remainders: false,
        stamps: false,
        ecn: false,
    };
    let open = |bind: SocketAddr| UdpIo::open(&config(bind), &Registrar::new().finish());
    let opened = open((Ipv6Addr::LOCALHOST, 0).into()).or_else(|_| open(([127, 0, 0, 1], 0).into()));
    let granted = match opened {
        Ok(io) => io.receive_buffer(),
        Err(error) => return Check::new(NAME, Fail, error.to_string(), "a UDP socket on loopback"),
    };
    let shot = f64::from(required.geometry.shot_bytes());
    let descheduled_bytes = required.bytes_per_s * DESCHEDULED_S;
    let payload = granted as f64 * PAYLOAD_SHARE;
    let state = match payload {
        payload if payload < shot => Fail,
        payload if payload < descheduled_bytes => Warn,
        _ => Good,
    };
    let needed = (descheduled_bytes.max(shot) / PAYLOAD_SHARE).ceil() as u64;
    // The kernel doubles the value that is set.
    let setting = (needed / 2).next_multiple_of(1 << 20);
    let max: Option<u64> = kernel_file("/proc/sys/net/core/rmem_max").and_then(|text| text.parse().ok());
    let found = format!(
        "{} granted, enough for {:.1} ms at {:.1} Gbit/s (net.core.rmem_max is {})",
        size(granted as u64),
        payload / required.bytes_per_s * 1e3,
        required.bytes_per_s * 8.0 / 1e9,
        max.map_or("unknown".into(), |max| max.to_string())
    );
    let expected = format!("{} for {:.0} ms, and a shot of {}", size(needed), DESCHEDULED_S * 1e3, size(shot as u64));
    Check::new(NAME, state, found, expected)
        .fix(format!("sudo sysctl -w net.core.rmem_max={setting}"))
        .measured("granted_bytes", granted)
        .measured("needed_bytes", needed)
        .measured("rmem_max_bytes", max)
}

/// Checks whether this user may create sockets of AF_XDP.
pub fn af_xdp() -> Check {
    let found = match socket(AddressFamily::XDP, SocketType::RAW, None) {
        Ok(_) => "possible: --transport xdp:INTERFACE",
        Err(Errno::PERM | Errno::ACCESS) => "needs root",
        Err(_) => "not in this kernel",
    };
    Check::new("AF_XDP", Good, found, "optional")
}

/// Checks whether this build has DPDK.
pub fn dpdk() -> Check {
    let found = match Dpdk::ABOUT.missing {
        None => "in this build: --transport dpdk:DEVICE".to_owned(),
        Some(remedy) => format!("not in this build ({remedy})"),
    };
    Check::new("DPDK", Good, found, "optional")
}

fn probe(address: SocketAddr) -> Check {
    const NAME: &str = "probe";
    match Control::open(address, false).and_then(|mut control| control.query()) {
        Ok(probe) => Check::new(
            NAME,
            Good,
            format!(
                "{} at {address}: {} links x {} channels, {} bit, {} MS/s",
                probe.model.as_str(),
                probe.links,
                probe.channels,
                probe.bits,
                f64::from(probe.sample_rate_hz) / 1e6
            ),
            "a reply",
        ),
        Err(error) => Check::new(NAME, Fail, error.to_string(), "a reply").fix(format!("ping {}", address.ip())),
    }
}

/// Checks which transport `auto` chooses, and whether a better one is possible.
fn transport(local: IpAddr) -> Check {
    let Advice { why, better, .. } = shotline_backends::advise(local, None);
    let state = if better.is_none() { Good } else { Warn };
    Check::new("transport", state, why, "each byte copied at most once").fix(better.unwrap_or_default())
}

fn port(local: IpAddr) -> Check {
    let port = udp::ROCE_PORT;
    let expected = "free, or another port with --bind";
    match UdpSocket::bind((local, port)) {
        Ok(_) => Check::new("RoCE port", Good, format!("UDP {port} on {local} is free"), expected),
        Err(error) => Check::new("RoCE port", Fail, format!("UDP {port} on {local}: {error}"), expected).fix(format!(
            "ss -ulpn 'sport = :{port}'   (if no process is listed: rdma link, and rdma link delete what it lists)"
        )),
    }
}

/// Returns the length in bytes of the largest IP packet of a shot, over all framings that set-up supports.
fn largest_packet(local: IpAddr) -> u64 {
    let ip = if local.is_ipv4() { ipv4::Header::LEN } else { ipv6::Header::LEN };
    let frames = Kind::with_set_up().map(|kind| {
        let described = kind.description();
        described.header_len as usize + if described.sealed { roce::ICRC_LEN } else { 0 }
    });
    (ip + udp::Header::LEN + frames.max().unwrap_or(0)) as u64 + u64::from(PACKET_BYTES)
}

fn mtu(local: IpAddr) -> Check {
    const NAME: &str = "MTU";
    let needed = largest_packet(local);
    let expected = format!("at least {needed}, so that a {PACKET_BYTES}-byte payload needs no fragmentation");
    let Some(interface) = route::interface_of(local) else {
        return Check::new(NAME, Warn, format!("no interface has {local}"), expected).fix("ip addr");
    };
    let path = format!("/sys/class/net/{interface}/mtu");
    let Some(mtu) = kernel_file(&path).and_then(|text| text.parse::<u64>().ok()) else {
        return Check::new(NAME, Warn, format!("{path} cannot be read"), expected).fix("ip link");
    };
    let state = if mtu < needed { Fail } else { Good };
    Check::new(NAME, state, format!("{mtu} on {interface} ({local})"), expected)
        .fix(format!("sudo ip link set dev {interface} mtu 9000   (and on the switch, and on the probe's side)"))
        .measured("mtu_bytes", mtu)
        .measured("needed_bytes", needed)
}

fn icrc(local: IpAddr) -> Check {
    let found = if local.is_ipv4() {
        "over IPv4 a socket does not show the identification: it is derived from the ICRC, and counted as icrc_solved"
    } else {
        "over IPv6 a socket shows every input of the ICRC: each packet is verified"
    };
    Check::new("ICRC", Good, found, "checkable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_mtu_fits_the_longest_framing() {
        assert_eq!(largest_packet(Ipv6Addr::LOCALHOST.into()), 40 + 8 + 32 + 4096);
        assert_eq!(largest_packet([127, 0, 0, 1].into()), 20 + 8 + 32 + 4096);
    }
}
