//! Tests of a UDP port with several peers.

use crate::carrier_udp::{loopback, receive, send};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use shotline_transport::carrier::Carrier;
use shotline_transport::carrier::udp::{UdpCarrier, UdpPort};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Addresses to bind, with those by which the port is reached.
const ADDRESSES: [[&str; 2]; 4] = [["127.0.0.1"; 2], ["::1"; 2], ["0.0.0.0", "127.0.0.1"], ["::", "::1"]];

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn address_of(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().unwrap()
}

/// Binds sockets of peers and connects a port to each.
fn connect_all(port: &mut UdpPort, ip: &str, count: usize) -> Vec<(UdpSocket, UdpCarrier)> {
    let peers = (0..count).map(|_| UdpSocket::bind(at(ip, 0)).unwrap());
    peers
        .map(|peer| (port.connect(address_of(&peer), None).unwrap(), peer))
        .map(|(carrier, peer)| (peer, carrier))
        .collect()
}

/// Returns the bytes that wait in IPv4 sockets on loopback with this local port, and the number of the sockets.
fn waiting(port: u16) -> (usize, usize) {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let local = format!("0100007F:{port:04X}");
    let lines = table.lines().filter(|line| line.split_whitespace().nth(1) == Some(&local));
    // The fifth field has the bytes to send and those received, in hexadecimal digits.
    let bytes = lines.map(|line| line.split_whitespace().nth(4).and_then(|queues| queues.split_once(':')).unwrap().1);
    bytes.fold((0, 0), |(sum, count), bytes| (sum + usize::from_str_radix(bytes, 16).unwrap(), count + 1))
}

#[test]
fn peers_of_a_port_exchange_their_own_datagrams_only() {
    for [local, reached] in ADDRESSES {
        let mut port = UdpPort::bind(at(local, 0)).unwrap();
        let to = at(reached, port.local_addr().port());
        let mut paths = connect_all(&mut port, reached, 16);
        for round in 0..10_u8 {
            for (index, (peer, carrier)) in paths.iter_mut().enumerate() {
                peer.send_to(&[index as u8, round], to).unwrap();
                send(carrier, &[round, index as u8]);
            }
            for (index, (peer, carrier)) in paths.iter_mut().enumerate() {
                assert_eq!(receive(carrier), [index as u8, round]);
                assert!(carrier.receive().unwrap().is_none());
                let mut bytes = [0; 9];
                assert_eq!(peer.recv_from(&mut bytes).unwrap(), (2, to));
                assert_eq!(bytes[..2], [round, index as u8]);
            }
            // One leaves, and one comes.
            paths.remove(usize::from(round));
            paths.extend(connect_all(&mut port, reached, 1));
        }
    }
}

#[test]
fn full_buffer_of_one_peer_does_not_stop_another() {
    let mut port = UdpPort::bind(loopback(0)).unwrap();
    let [(busy, _carrier), (other, mut carrier)] = <[_; 2]>::try_from(connect_all(&mut port, "127.0.0.1", 2)).unwrap();
    let mut before = None;
    // Until its buffer is full.
    while before.replace(waiting(port.local_addr().port())) != Some(waiting(port.local_addr().port())) {
        (0..100).for_each(|_| _ = busy.send_to(&[0; 60_000], port.local_addr()).unwrap());
    }
    other.send_to(b"in time", port.local_addr()).unwrap();
    assert_eq!(receive(&mut carrier), b"in time");
}

#[test]
fn datagrams_of_other_senders_do_not_pile_up() {
    let mut port = UdpPort::bind(loopback(0)).unwrap();
    let (to, other) = (port.local_addr(), UdpSocket::bind(loopback(0)).unwrap());
    let flood = |from: &UdpSocket| (0..100).for_each(|_| assert_eq!(from.send_to(&[0; 1000], to).unwrap(), 1000));
    flood(&other);
    assert_eq!(waiting(to.port()), (0, 1));
    let mut paths = connect_all(&mut port, "127.0.0.1", 2);
    flood(&other);
    assert_eq!(waiting(to.port()), (0, 3));
    flood(&paths[0].0);
    assert!(waiting(to.port()).0 >= 1000);
    let (gone, carrier) = paths.remove(0);
    drop(carrier);
    flood(&gone);
    assert_eq!(waiting(to.port()), (0, 2));
    paths[0].0.send_to(b"still there", to).unwrap();
    assert_eq!(receive(&mut paths[0].1), b"still there");
}

/// Tries to bind an address as another program could, with any options.
fn assert_is_taken(ip: IpAddr, port: u16) {
    let address = SocketAddr::new(ip, port);
    for options in 0..4 {
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseport(&fd, options & 1 > 0).unwrap();
        sockopt::set_socket_reuseaddr(&fd, options & 2 > 0).unwrap();
        assert_eq!(bind(&fd, &address), Err(rustix::io::Errno::ADDRINUSE), "{address}, options {options}");
    }
}

#[test]
fn port_cannot_be_bound_by_others() {
    for [local, reached] in ADDRESSES {
        let mut port = UdpPort::bind(at(local, 0)).unwrap();
        let number = port.local_addr().port();
        let assert_is_taken = || [local, reached].iter().for_each(|ip| assert_is_taken(ip.parse().unwrap(), number));
        assert_is_taken();
        let mut paths = Vec::new();
        for _ in 0..4 {
            paths.extend(connect_all(&mut port, reached, 1));
            assert_is_taken();
        }
        // Also after a failure, which another family of addresses is.
        let other_family = if reached == "127.0.0.1" { "[::1]:9" } else { "127.0.0.1:9" };
        if local != "::" {
            assert!(port.connect(other_family.parse().unwrap(), None).is_err());
        }
        assert_is_taken();
        paths.clear();
        assert_is_taken();
        let error = UdpPort::bind(at(local, number)).unwrap_err().to_string();
        assert!(error.contains("another process may own this port"), "{error}");
        drop(port);
        UdpPort::bind(at(local, number)).unwrap();
    }
}

#[test]
fn second_path_to_the_same_peer_is_refused() {
    let mut port = UdpPort::bind(loopback(0)).unwrap();
    let [(peer, carrier)] = <[_; 1]>::try_from(connect_all(&mut port, "127.0.0.1", 1)).unwrap();
    let error = port.connect(address_of(&peer), None).unwrap_err().to_string();
    assert!(error.contains(&format!("to {}, found another one", address_of(&peer))), "{error}");
    drop(carrier);
    let mut carrier = port.connect(address_of(&peer), None).unwrap();
    peer.send_to(b"again", port.local_addr()).unwrap();
    assert_eq!(receive(&mut carrier), b"again");
}
