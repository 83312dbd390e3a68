//! Tests of AF_XDP over a virtual cable between two network namespaces.

use crate::af_packet::{Cable, address, ip, mac};
use crate::suite::{BUFFERS, Collector, Memory, STEERS, conforms, header, receive};
use shotline_testing::{or_skip, wait_until};
use shotline_transport::conformance::EndpointPair;
use shotline_transport::xdp::{AttachMode, CopyMode, XdpConfig, XdpIo};
use shotline_transport::{Icrc, IoError, PacketIo, Seal, TxPacket};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

fn config(end: usize, v4: bool, memory: &Memory) -> XdpConfig {
    let bind = SocketAddr::new(address(end, v4), 0);
    XdpConfig { capacity: BUFFERS as usize, chunks: 256, ..XdpConfig::new("cable", bind, memory.scratch) }
}

fn open(cable: &Cable, end: usize, config: XdpConfig, memory: &Memory) -> XdpIo {
    cable.enter(end);
    XdpIo::open(config, &memory.regions).unwrap()
}

#[test]
fn xdp_conforms_in_native_and_generic_mode() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for mode in [AttachMode::Native, AttachMode::Generic] {
        for (v4, sealed) in [(true, true), (false, true), (true, false), (false, false)] {
            let open = || {
                let [tx, rx] = [0, 1].map(|end| {
                    let config = XdpConfig { mode, sealed, peer: mac(1 - end), ..config(end, v4, &memory) };
                    open(&cable, end, config, &memory)
                });
                EndpointPair { to: rx.local_addr(), tx, rx }
            };
            conforms(&format!("xdp, {mode:?}"), sealed, STEERS, &memory, open, |EndpointPair { rx, .. }| {
                assert_eq!(rx.is_native(), mode == AttachMode::Native);
                let counters = rx.xdp_counters();
                assert_eq!(counters.received, counters.landed);
                assert!(counters.causes().iter().all(|(_, count)| *count == 0), "{counters:?}");
                Ok(())
            });
        }
    }
}

#[test]
fn frames_of_every_length_in_one_or_more_chunks_are_intact() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut rx = open(&cable, 1, XdpConfig { chunks: 64, ..config(1, true, &memory) }, &memory);
    let mut tx = cable.open_udp(0, true, &memory);
    let head = header(3);
    // The ring of chunks wraps around several times, and some frames of three chunks span the wrap-around.
    for len in (1..8900).step_by(127).chain(3700..3860) {
        let (gather, bytes) = memory.payload(0, len);
        let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
        cable.enter(0);
        assert_eq!(tx.send(rx.local_addr(), &[one]).unwrap(), 1);
        let received = &receive(&mut rx, &memory, vec![Some(1)], 1)[0];
        assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true), "{len}");
    }
}

#[test]
fn traffic_to_other_addresses_and_ports_reaches_the_kernel() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for v4 in [true, false] {
        let mut rx = open(&cable, 1, config(1, v4, &memory), &memory);
        let to = rx.local_addr();
        let (own, other) =
            (UdpSocket::bind((address(1, v4), 0)).unwrap(), UdpSocket::bind((address(1, !v4), to.port())));
        let other = other.unwrap();
        for socket in [&own, &other] {
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        }
        cable.enter(0);
        let peer = |v4| UdpSocket::bind((address(0, v4), 0)).unwrap();
        // Packets may be lost just after the program is attached, and address resolution may lose the first one.
        let arrives = |what, from: UdpSocket, to: &UdpSocket| {
            wait_until(what, || {
                from.send_to(b"hello", to.local_addr().unwrap()).unwrap();
                to.recv_from(&mut [0; 8]).is_ok_and(|(len, _)| len == 5)
            });
        };
        arrives("a datagram to another port of this address", peer(v4), &own);
        arrives("a datagram to this port of another address", peer(!v4), &other);
        assert_eq!(rx.poll(&mut Collector::new(&memory, [].into()), 16).unwrap(), 0);
        // A fragment to this address and port is counted.
        peer(v4).send_to(&[2; 30_000], to).unwrap();
        wait_until("a fragment is counted", || {
            rx.poll(&mut Collector::new(&memory, [].into()), 16).unwrap();
            !v4 || rx.xdp_counters().fragments > 0
        });
    }
}

#[test]
fn xdp_and_sockets_resolve_each_other_and_exchange_packets() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for v4 in [true, false] {
        let mut socket = cable.open_udp(0, v4, &memory);
        let mut frames = open(&cable, 1, config(1, v4, &memory), &memory);
        let head = header(3);
        let (gather, bytes) = memory.payload(0, 6000);
        let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
        let mut steer = Collector::new(&memory, [].into());
        // Packets are lost and counted until the kernel has resolved the host.
        let mut tries = 0;
        wait_until("a packet comes through", || {
            cable.enter(1);
            assert_eq!(frames.send(socket.local_addr(), &[one]).unwrap(), 1);
            socket.wait(Duration::from_millis(50)).unwrap();
            socket.poll(&mut steer, 4).unwrap();
            tries += 1;
            !steer.received.is_empty()
        });
        assert_eq!((steer.received[0].icrc, steer.received[0].bytes == bytes), (Icrc::Good, true));
        assert_eq!(frames.xdp_counters().sent + frames.xdp_counters().unknown_host, tries);
        for _ in 0..200 {
            assert_eq!(socket.send(frames.local_addr(), &[one]).unwrap(), 1);
            let received = &receive(&mut frames, &memory, vec![Some(1)], 1)[0];
            assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
            assert_eq!(frames.send(socket.local_addr(), &[one; 3]).unwrap(), 3);
            for received in receive(&mut socket, &memory, vec![None; 3], 3) {
                assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
            }
        }
    }
}

#[test]
fn merged_packets_are_refused_and_single_ones_received() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut socket = cable.open_udp(0, true, &memory);
    let mut frames = open(&cable, 1, XdpConfig { mode: AttachMode::Generic, ..config(1, true, &memory) }, &memory);
    cable.enter(0);
    let head = header(3);
    let (gather, _) = memory.payload(0, 3000);
    let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
    assert_eq!(socket.send(frames.local_addr(), &[one; 10]).unwrap(), 10);
    assert_eq!(socket.send(frames.local_addr(), &[one]).unwrap(), 1);
    assert_eq!(receive(&mut frames, &memory, vec![None], 1)[0].icrc, Icrc::Good);
    let counters = frames.xdp_counters();
    assert_eq!((counters.merged, counters.received, counters.landed), (1, 2, 1), "{counters:?}");
    assert_eq!(frames.device_counters().receive_errors, 1);
}

#[test]
fn frames_beyond_the_ring_are_counted_and_the_others_received() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut rx = open(&cable, 1, XdpConfig { chunks: 64, queues: vec![0], ..config(1, true, &memory) }, &memory);
    let mut tx = cable.open_udp(0, true, &memory);
    let head = header(3);
    let (gather, _) = memory.payload(0, 1000);
    let one = TxPacket { header: &head, gather: &gather, seal: Seal::Compute };
    for _ in 0..1000 {
        assert_eq!(tx.send(rx.local_addr(), &[one]).unwrap(), 1);
    }
    let mut steer = Collector::new(&memory, [].into());
    wait_until("each frame has landed or is counted as lost", || {
        rx.poll(&mut steer, 16).unwrap();
        rx.xdp_counters().landed + rx.xdp_counters().no_chunk == 1000
    });
    let counters = rx.xdp_counters();
    assert!(counters.no_chunk > 0 && counters.landed >= 64, "{counters:?}");
    assert_eq!(counters.dropped, 0, "each is counted once");
}

#[test]
fn open_errors_name_the_remedy() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    cable.enter(1);
    let refused = |config: XdpConfig| match XdpIo::open(config, &memory.regions) {
        Ok(_) => panic!("opened"),
        Err(error @ (IoError::System { .. } | IoError::Config(_))) => error.to_string(),
        Err(error) => panic!("{error}"),
    };
    let good = || config(1, true, &memory);
    assert!(refused(XdpConfig { interface: "eth77".into(), ..good() }).contains("ip link lists"));
    assert!(refused(XdpConfig { queues: vec![9999], ..good() }).contains("queue 9999 of cable"));
    assert!(refused(XdpConfig { chunks: 100, ..good() }).contains("a power of two"));
    assert!(refused(XdpConfig { copy: CopyMode::Zero, ..good() }).contains("leave out copy=zero"));
    assert!(refused(XdpConfig { bind: "0.0.0.0:0".parse().unwrap(), ..good() }).contains("name one"));
    assert!(refused(XdpConfig { bind: "10.99.99.99:0".parse().unwrap(), ..good() }).contains("not on this machine"));
    let first = XdpIo::open(good(), &memory.regions).unwrap();
    assert!(refused(good()).contains("another program may own the queue"));
    drop(first);
    assert!(!ip("link show dev cable").contains("xdp"), "the program is detached with its owner");
    drop(XdpIo::open(good(), &memory.regions).unwrap());
}
