//! Who answers a Query that everyone hears.

use super::address;
use super::tell::{Description, Tell as _};
use crate::Result;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use shotline_wire::ParseError;
use shotline_wire::setup::{Body, LEN, Message, PORT, Reply, Request};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

/// Every node of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// A Query may be lost, as may its answer: it is sent so many times within the wait.
const TRIES: u32 = 3;

/// Arguments of `shotline probe discover`.
#[derive(clap::Args)]
pub struct Args {
    /// Ask these, too: probes behind a router hear no broadcast
    #[arg(value_name = "ADDRESS", value_parser = address)]
    addresses: Vec<SocketAddr>,
    /// Time to wait for answers
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// Set-up port to ask at
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds))
        .ok_or_else(|| format!("expected 0.01 to 3600 seconds, found {text}"))
}

/// An answer, by the address that it came from.
#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Probe(Description),
    /// Somebody speaks the protocol, but not so that he is understood.
    Other {
        probe: String,
        error: String,
    },
}

#[derive(Serialize)]
struct Answers {
    probes: Vec<Found>,
}

/// Lists the probes that answer.
pub fn run(args: &Args) -> Result {
    if !args.json && io::stderr().is_terminal() {
        errln!("asking for {} s", args.seconds);
    }
    let sockets = Sockets::open()?;
    let everyone = destinations(args);
    let query = Message::request(std::process::id(), 0, false, Request::Query);
    let begun = Instant::now();
    let wait = Duration::from_secs_f64(args.seconds);
    let mut found = BTreeMap::new();
    for turn in 1..=TRIES {
        everyone.iter().for_each(|to| sockets.send(&query.emit(), *to));
        let end = begun + wait * turn / TRIES;
        while let Some((datagram, from)) = sockets.receive(end)? {
            if let Some(answer) = read(&datagram, from, &query) {
                found.insert(from, answer);
            }
        }
    }
    if found.is_empty() {
        return Err(format!(
            "no probe answered within {} s on port {}: is it on, and on this network? One behind a router, or one that listens on one address only, must be asked by its address: shotline probe discover ADDRESS",
            args.seconds, args.port
        )
        .into());
    }
    let answers = Answers { probes: found.into_values().collect() };
    if args.json {
        outln!("{}", serde_json::to_string(&answers)?);
    } else {
        print(&answers);
    }
    Ok(())
}

fn print(answers: &Answers) {
    for (index, found) in answers.probes.iter().enumerate() {
        if index > 0 {
            outln!();
        }
        match found {
            Found::Probe(description) => crate::output::print_table(&description.rows()),
            Found::Other { probe, error } => outln!("  {probe}  {}", crate::output::shown(error)),
        }
    }
}

/// What an answer says; none if it is none to our question.
fn read(datagram: &[u8], from: SocketAddr, query: &Message) -> Option<Found> {
    let other = |error: String| Some(Found::Other { probe: from.to_string(), error });
    match Message::parse(datagram) {
        Ok(Message { body: Body::Reply(reply), sequence, token })
            if (sequence, token) == (query.sequence, query.token) =>
        {
            match reply {
                Reply::Describe(describe) => Some(Found::Probe(Description::of(from, &describe))),
                Reply::Refused { refusal, .. } => other(refusal.to_string()),
                _ => other("answered something else than was asked".into()),
            }
        }
        Err(error @ ParseError::Value { what, .. }) if what.ends_with("version") => {
            other(format!("{error}: update the older of the two"))
        }
        _ => None,
    }
}

/// Loopback, the addresses given, and everyone on each interface that is up.
fn destinations(args: &Args) -> Vec<SocketAddr> {
    let port = args.port;
    let mut to = vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    to.extend(&args.addresses);
    for interface in getifaddrs().into_iter().flatten() {
        if !interface.flags.contains(InterfaceFlags::IFF_UP) || interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        if interface.flags.contains(InterfaceFlags::IFF_BROADCAST)
            && let Some(own) = interface.address.and_then(|address| address.as_sockaddr_in().copied())
            && let Some(mask) = interface.netmask.and_then(|mask| mask.as_sockaddr_in().copied())
        {
            // Not the interface's own broadcast address, which is often not set.
            to.push((own.ip() | !mask.ip(), port).into());
        }
        // Link-local addresses name their interface.
        let v6 = interface.address.and_then(|address| address.as_sockaddr_in6().copied());
        let scope = v6.filter(|address| address.ip().is_unicast_link_local()).map(|address| address.scope_id());
        to.extend(scope.map(|scope| SocketAddr::from(SocketAddrV6::new(ALL_NODES, port, 0, scope))));
    }
    to.sort_unstable();
    to.dedup();
    to
}

/// A socket for each family; a machine may lack one.
struct Sockets(Vec<UdpSocket>);

impl Sockets {
    fn open() -> io::Result<Self> {
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
            socket.set_broadcast(true)?;
            Ok(socket)
        });
        let v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0));
        match (v4, v6) {
            (Err(error), Err(_)) => Err(error),
            (v4, v6) => {
                let sockets: Vec<_> = v4.into_iter().chain(v6).collect();
                sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
                Ok(Self(sockets))
            }
        }
    }

    /// Sends to one; that a network is not there is no reason not to ask the others.
    fn send(&self, message: &[u8], to: SocketAddr) {
        for socket in &self.0 {
            if socket.local_addr().is_ok_and(|local| local.is_ipv4() == to.is_ipv4()) {
                let _ = socket.send_to(message, to);
            }
        }
    }

    /// A datagram that came before `end`.
    fn receive(&self, end: Instant) -> io::Result<Option<(Vec<u8>, SocketAddr)>> {
        loop {
            for socket in &self.0 {
                let mut datagram = [0; LEN + 1];
                match socket.recv_from(&mut datagram) {
                    Ok((len, from)) => return Ok(Some((datagram.iter().take(len).copied().collect(), from))),
                    // An earlier Query found nobody at its address.
                    Err(error)
                        if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds: Vec<_> = self.0.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
