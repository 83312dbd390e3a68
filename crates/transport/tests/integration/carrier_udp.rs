//! Tests of the UDP carrier against other sockets.

use crate::carriers::udp_pair;
use shotline_testing::{WAIT_TIMEOUT, or_skip, wait_until_some};
use shotline_transport::IoError;
use shotline_transport::carrier::udp::UdpCarrier;
use shotline_transport::carrier::{Carrier, wait};
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

pub fn send(carrier: &mut UdpCarrier, bytes: &[u8]) {
    assert!(carrier.remaining() >= bytes.len());
    carrier.append(bytes);
    carrier.finish().unwrap();
    carrier.flush().unwrap();
}

pub fn receive(carrier: &mut UdpCarrier) -> Vec<u8> {
    wait_until_some("a datagram arrives", || carrier.receive().unwrap().map(|bytes| bytes.to_vec()))
}

pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new([127, 0, 0, 1].into(), port)
}

#[test]
fn peer_that_starts_later_is_reached() {
    for ip in ["127.0.0.1", "::1"] {
        let bind = |port| UdpCarrier::bind(SocketAddr::new(ip.parse().unwrap(), port)).unwrap();
        let (near, far) = (bind(0), bind(0));
        let (from, to) = (near.local_addr(), far.local_addr());
        drop(far);
        let mut near = near.connect(to, None).unwrap();
        for _ in 0..50 {
            // Each is refused by an ICMP message, which a later call reports.
            send(&mut near, b"too early");
            assert!(near.receive().unwrap().is_none());
            wait(&mut near, Duration::from_millis(1)).unwrap();
        }
        let mut far = bind(to.port()).connect(from, None).unwrap();
        send(&mut near, b"in time");
        assert_eq!(receive(&mut far), b"in time");
        send(&mut far, b"back");
        assert_eq!(receive(&mut near), b"back");
    }
}

/// Returns the ICMP message that a firewall sends when it rejects a datagram from `from` to `to`.
fn rejection(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let octets = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(_) => unreachable!(),
    };
    // Type 3, code 13, and the datagram's IPv4 and UDP headers.
    let ip = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0][..], &octets(from), &octets(to)].concat();
    let udp = [from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat();
    let mut message = [&[3, 13, 0, 0, 0, 0, 0, 0][..], &ip, &udp].concat();
    let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    message[2..4].copy_from_slice(&(!((folded & 0xFFFF) + (folded >> 16)) as u16).to_be_bytes());
    message
}

#[test]
fn rejected_datagrams_are_lost_without_an_error() {
    use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP));
    let raw = or_skip!(raw.map_err(|error| format!("cannot send ICMP messages ({error}); run as root")));
    let reject = |from, to| _ = sendto(&raw, &rejection(from, to), SendFlags::empty(), &loopback(0)).unwrap();
    let peer = UdpSocket::bind(loopback(0)).unwrap();
    let to = peer.local_addr().unwrap();
    // A socket alone reports the message.
    let other = UdpSocket::bind(loopback(0)).unwrap();
    other.connect(to).unwrap();
    reject(other.local_addr().unwrap(), to);
    assert_eq!(other.send(b"x").unwrap_err().kind(), std::io::ErrorKind::HostUnreachable);

    let socket = UdpCarrier::bind(loopback(0)).unwrap();
    let local = socket.local_addr();
    let mut carrier = socket.connect(to, None).unwrap();
    for _ in 0..10 {
        reject(local, to);
        send(&mut carrier, b"out");
        let mut bytes = [0; 9];
        assert_eq!(peer.recv_from(&mut bytes).unwrap(), (3, local));
        peer.send_to(b"in", local).unwrap();
        reject(local, to);
        assert_eq!(receive(&mut carrier), b"in");
    }
}

#[test]
fn only_datagrams_of_the_peer_are_received() {
    let [peer, other] = [(); 2].map(|()| UdpSocket::bind(loopback(0)).unwrap());
    let socket = UdpCarrier::bind(loopback(0)).unwrap();
    let local = socket.local_addr();
    for _ in 0..20 {
        other.send_to(b"before the connection", local).unwrap();
        peer.send_to(b"peer", local).unwrap();
    }
    let mut carrier = socket.connect(peer.local_addr().unwrap(), None).unwrap();
    other.send_to(b"after the connection", local).unwrap();
    peer.send_to(b"last", local).unwrap();
    for _ in 0..20 {
        assert_eq!(receive(&mut carrier), b"peer");
    }
    assert_eq!(receive(&mut carrier), b"last");
    assert!(carrier.receive().unwrap().is_none());
}

#[test]
fn empty_datagrams_of_a_peer_are_ignored() {
    let peer = UdpSocket::bind(loopback(0)).unwrap();
    let socket = UdpCarrier::bind(loopback(0)).unwrap();
    let local = socket.local_addr();
    let mut carrier = socket.connect(peer.local_addr().unwrap(), None).unwrap();
    for bytes in [&b""[..], b"", b"x", b""] {
        peer.send_to(bytes, local).unwrap();
    }
    assert_eq!(receive(&mut carrier), b"x");
    assert!(carrier.receive().unwrap().is_none());
}

#[test]
fn runs_of_equal_length_arrive_as_single_datagrams() {
    let peer = UdpSocket::bind(loopback(0)).unwrap();
    peer.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let socket = UdpCarrier::bind(loopback(0)).unwrap();
    let mut carrier = socket.connect(peer.local_addr().unwrap(), Some(1000)).unwrap();
    // Two batches of the kernel's maximum, a shorter datagram that ends one, and longer ones.
    let lens: Vec<usize> = [vec![70; 130], vec![10], vec![70; 3], vec![1000; 3], vec![999, 1000]].concat();
    for (index, len) in lens.iter().enumerate() {
        assert_eq!(carrier.remaining(), 1000);
        carrier.append(&vec![index as u8; *len]);
        carrier.finish().unwrap();
    }
    carrier.flush().unwrap();
    let mut buffer = [0; 2000];
    for (index, len) in lens.iter().enumerate() {
        let (found, _) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..found], vec![index as u8; *len], "datagram {index}");
    }
}

#[test]
fn maximum_of_a_datagram_is_that_of_the_path() {
    let (near, _) = udp_pair("127.0.0.1", None).unwrap();
    assert_eq!(near.max_datagram(), 65_507);
    let (near, _) = udp_pair("::1", None).unwrap();
    assert_eq!(near.max_datagram(), 65_536 - 48);
    let (near, _) = udp_pair("::1", Some(8192)).unwrap();
    assert_eq!(near.max_datagram(), 8192);
    for wrong in [0, 65_508, usize::MAX] {
        let error = udp_pair("127.0.0.1", Some(wrong)).unwrap_err();
        assert!(matches!(error, IoError::Config(_)) && error.to_string().contains("1 to 65507 bytes"), "{error}");
    }
    let family = UdpCarrier::bind(loopback(0)).unwrap().connect("[::1]:9".parse().unwrap(), None).unwrap_err();
    assert!(family.to_string().contains("one family"), "{family}");
}

/// Moves this thread to a new network namespace with an interface on which no host answers: the kernel queues packets,
/// and drops them when it has asked for an Ethernet address three times.
fn enter_silent_network() -> Result<(), String> {
    // SAFETY: only this thread's network namespace changes, and it has no sockets yet.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .map_err(|error| format!("cannot make a network namespace ({error}); run as root"))?;
    let command = |line: &str| {
        let mut words = line.split(' ');
        let output = Command::new(words.next().unwrap_or_default()).args(words).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(format!("{line}: {error}")),
        }
    };
    command("ip link add near type veth peer name far")?;
    command("ip link set near up")?;
    command("ip link set far up")?;
    command("ip address add 10.9.9.1/24 dev near")?;
    let unlimited = std::fs::write("/proc/sys/net/ipv4/neigh/near/unres_qlen_bytes", "1000000000");
    unlimited.map_err(|error| format!("cannot make a queue longer: {error}"))
}

#[test]
fn full_socket_stops_the_sender_until_it_has_space() {
    let test = std::thread::spawn(|| {
        or_skip!(enter_silent_network());
        let socket = UdpCarrier::bind("10.9.9.1:0".parse().unwrap()).unwrap();
        let mut near = socket.connect("10.9.9.2:9".parse().unwrap(), None).unwrap();
        assert_eq!(near.max_datagram(), 1472);
        let mut sent = 0;
        while near.remaining() > 0 {
            near.append(&[0; 1472]);
            near.finish().unwrap();
            near.flush().unwrap();
            sent += 1;
            assert!(sent < 100_000, "the socket is never full");
        }
        let begin = Instant::now();
        while near.remaining() == 0 {
            wait(&mut near, WAIT_TIMEOUT).unwrap();
            near.flush().unwrap();
        }
        assert!((100..60_000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
        assert!(near.receive().unwrap().is_none());
    });
    test.join().unwrap();
}
