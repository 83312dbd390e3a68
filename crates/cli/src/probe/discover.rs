//! `shotline probe discover`: broadcasts a Query and lists the answers.

use super::report::Description;
use crate::Result;
use crate::output::{Report, Rows as _, print_report};
use crate::values::address;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Serialize, Serializer};
use shotline_wire::ParseError;
use shotline_wire::setup::{Body, LEN, Message, PORT, Reply, Request};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

/// The all-nodes multicast address of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Number of times that the Query is sent within the wait, because a Query or its answer may be lost.
const TRIES: u32 = 3;
/// Maximum number of datagrams of each socket that are read after the time is over. A process that was stopped
/// meanwhile still reads queued answers, and a flood does not extend the time without limit.
const MAX_LATE: usize = 64;
/// Maximum number of addresses that are listed.
const MAX_LISTED: usize = 1024;

/// Arguments of `shotline probe discover`.
#[derive(clap::Args)]
pub struct Args {
    /// Addresses to query in addition: broadcasts do not reach probes behind a router
    #[arg(value_name = "ADDRESS", value_parser = address)]
    addresses: Vec<SocketAddr>,
    /// Time to wait for answers, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// Set-up port to query
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

/// An answer, by its source address.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Probe(Description),
    /// The sender uses the protocol, but its answer cannot be used.
    Other {
        probe: String,
        error: String,
    },
}

#[derive(Default, Serialize)]
struct Answers {
    #[serde(serialize_with = "listed")]
    probes: BTreeMap<SocketAddr, Answer>,
    /// Number of answers of further addresses.
    unlisted: u64,
}

impl Answers {
    fn add(&mut self, from: SocketAddr, answer: Answer) {
        if self.probes.len() < MAX_LISTED || self.probes.contains_key(&from) {
            self.probes.insert(from, answer);
        } else {
            self.unlisted += 1;
        }
    }
}

fn listed<S: Serializer>(probes: &BTreeMap<SocketAddr, Answer>, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_seq(probes.values())
}

/// Lists the probes that answer.
pub fn run(args: &Args) -> Result {
    if !args.json && io::stderr().is_terminal() {
        errln!("querying for {} s", args.seconds);
    }
    let sockets = Sockets::open()?;
    let destinations = destinations(args);
    let query = Message::request(0, random()?, false, Request::Query);
    let start = Instant::now();
    let wait = Duration::from_secs_f64(args.seconds);
    let mut answers = Answers::default();
    for turn in 1..=TRIES {
        destinations.iter().for_each(|to| sockets.send(&query.emit(), *to));
        sockets.listen(start + wait * turn / TRIES, |datagram, from| {
            if let Some(answer) = parse_answer(datagram, from, &query) {
                answers.add(from, answer);
            }
        })?;
    }
    if answers.probes.is_empty() {
        return Err(format!(
            "no probe answered within {} s on port {}: is it powered on, and on this network? Query a probe behind a router, or one that listens on a single address, by its address: shotline probe discover ADDRESS",
            args.seconds, args.port
        )
        .into());
    }
    print_report(args.json, &answers)
}

impl Report for Answers {
    fn print(&self) -> Result {
        for (index, found) in self.probes.values().enumerate() {
            if index > 0 {
                outln!();
            }
            match found {
                Answer::Probe(description) => crate::output::print_table(&description.rows()),
                Answer::Other { probe, error } => outln!("  {probe}  {}", crate::output::escape_controls(error)),
            }
        }
        if self.unlisted > 0 {
            errln!("{MAX_LISTED} addresses are listed; {} further answers are not", self.unlisted);
        }
        Ok(())
    }
}

/// Parses an answer. Returns `None` if it does not answer the query.
fn parse_answer(datagram: &[u8], from: SocketAddr, query: &Message) -> Option<Answer> {
    let other = |error: String| Some(Answer::Other { probe: from.to_string(), error });
    match Message::parse(datagram) {
        Ok(Message { body: Body::Reply(reply), sequence, token })
            if (sequence, token) == (query.sequence, query.token) =>
        {
            match reply {
                Reply::Describe(describe) => Some(Answer::Probe(Description::of(from, &describe))),
                Reply::Refused { refusal, .. } => other(refusal.to_string()),
                _ => other("sent an unexpected reply".into()),
            }
        }
        Err(error @ ParseError::Value { what, .. }) if what.ends_with("version") => {
            other(format!("{error}: update the program or the probe, whichever is older"))
        }
        _ => None,
    }
}

/// Returns loopback, the addresses given, and the broadcast and all-nodes addresses of each interface that is up.
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
            // Computed, because the broadcast address of an interface is often not set.
            to.push((own.ip() | !mask.ip(), port).into());
        }
        // The scope of a link-local address names its interface.
        let v6 = interface.address.and_then(|address| address.as_sockaddr_in6().copied());
        let scope = v6.filter(|address| address.ip().is_unicast_link_local()).map(|address| address.scope_id());
        to.extend(scope.map(|scope| SocketAddr::from(SocketAddrV6::new(ALL_NODES, port, 0, scope))));
    }
    to.sort_unstable();
    to.dedup();
    to
}

/// A socket for each address family; a machine may lack one family.
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

    /// Sends to one address. Errors are ignored, so that an unreachable network does not prevent the other queries.
    fn send(&self, message: &[u8], to: SocketAddr) {
        for socket in &self.0 {
            if socket.local_addr().is_ok_and(|local| local.is_ipv4() == to.is_ipv4()) {
                let _ = socket.send_to(message, to);
            }
        }
    }

    /// Passes on the datagrams that arrive until `end`, and then those that are queued, at most [`MAX_LATE`] of each
    /// socket.
    fn listen(&self, end: Instant, mut on_datagram: impl FnMut(&[u8], SocketAddr)) -> io::Result<()> {
        let mut late = MAX_LATE;
        while late > 0 {
            let mut is_idle = true;
            for socket in &self.0 {
                let mut datagram = [0; LEN + 1];
                match socket.recv_from(&mut datagram) {
                    Ok((len, from)) => {
                        is_idle = false;
                        on_datagram(&datagram[..len], from);
                    }
                    // An ICMP error: no probe listened at the address of an earlier Query.
                    Err(error)
                        if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                late = if is_idle { 0 } else { late - 1 };
            } else if is_idle {
                self.sleep(remaining)?;
            }
        }
        Ok(())
    }

    /// Sleeps until a datagram may be available.
    fn sleep(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut fds: Vec<_> = self.0.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns a random number other than 0, which would mean no token.
pub fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_does_not_extend_the_listening_time() {
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = ours.local_addr().unwrap();
        let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
        let more = || flood.send_to(b"more", to).unwrap();
        let mut received = 0;
        more();
        ours.peek(&mut [0]).unwrap(); // wait for the first datagram
        ours.set_nonblocking(true).unwrap();
        let sockets = Sockets(vec![ours]);
        // Each datagram that is read is followed by another one.
        let listened = sockets.listen(Instant::now(), |datagram, from| {
            assert_eq!((datagram, from), (b"more".as_slice(), flood.local_addr().unwrap()));
            received += 1;
            assert!(received <= MAX_LATE, "a flood extends the listening time without limit");
            more();
        });
        listened.unwrap();
        assert!(received > 0);
    }

    #[test]
    fn unlisted_addresses_are_counted() {
        let mut answers = Answers::default();
        let answer = |port: u16| {
            let from = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            (from, Answer::Other { probe: from.to_string(), error: String::new() })
        };
        for port in (1..=MAX_LISTED as u16 + 5).chain([1]) {
            let (from, found) = answer(port);
            answers.add(from, found);
        }
        assert_eq!((answers.probes.len(), answers.unlisted), (MAX_LISTED, 5));
        let json = serde_json::to_value(&answers).unwrap();
        assert_eq!((json["probes"].as_array().unwrap().len(), json["unlisted"].as_u64()), (MAX_LISTED, Some(5)));
    }
}
