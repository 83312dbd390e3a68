//! Frames taken from a driver, over a cable between two network namespaces.

use crate::af_packet::{Cable, address, ip, mac};
use crate::suite::{Collector, Memory, PLACES, STEERS, conforms, header, receive};
use shotline_testing::{or_skip, until};
use shotline_transport::conformance::Ends;
use shotline_transport::xdp::{Copy, Mode, XdpConfig, XdpIo};
use shotline_transport::{Icrc, IoError, PacketIo, Seal, Send};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

fn config(end: usize, v4: bool, memory: &Memory) -> XdpConfig {
    let bind = SocketAddr::new(address(end, v4), 0);
    XdpConfig { capacity: PLACES as usize, chunks: 256, ..XdpConfig::new("cable", bind, memory.scratch) }
}

fn open(cable: &Cable, end: usize, config: XdpConfig, memory: &Memory) -> XdpIo {
    cable.enter(end);
    XdpIo::open(config, &memory.regions).unwrap()
}

#[test]
fn xdp_conforms_in_the_driver_and_in_the_kernels_own_path() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for mode in [Mode::Native, Mode::Generic] {
        for (v4, sealed) in [(true, true), (false, true), (true, false), (false, false)] {
            let open = || {
                let [tx, rx] = [0, 1].map(|end| {
                    let config = XdpConfig { mode, sealed, peer: mac(1 - end), ..config(end, v4, &memory) };
                    open(&cable, end, config, &memory)
                });
                Ends { to: rx.local_addr(), tx, rx }
            };
            conforms(&format!("xdp, {mode:?}"), sealed, STEERS, &memory, open, |Ends { rx, .. }| {
                assert_eq!(rx.is_native(), mode == Mode::Native);
                let statistics = rx.statistics();
                assert_eq!(statistics.received, statistics.landed);
                assert!(statistics.causes().iter().all(|(_, count)| *count == 0), "{statistics:?}");
                Ok(())
            });
        }
    }
}

#[test]
fn frames_of_every_length_come_whole_whether_they_lie_in_one_chunk_or_in_several() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut rx = open(&cable, 1, XdpConfig { chunks: 64, ..config(1, true, &memory) }, &memory);
    let mut tx = cable.open_udp(0, true, &memory);
    let head = header(3);
    // The chunks' ring goes round several times, and frames of three chunks lie around its end.
    for len in (1..8900).step_by(127).chain(3700..3860) {
        let (gather, bytes) = memory.payload(0, len);
        let one = Send { header: &head, gather: &gather, seal: Seal::Compute };
        cable.enter(0);
        assert_eq!(tx.send(rx.local_addr(), &[one]).unwrap(), 1);
        let got = &receive(&mut rx, &memory, vec![Some(1)], 1)[0];
        assert_eq!((got.icrc, got.fault, got.bytes == bytes), (Icrc::Good, None, true), "{len}");
    }
}

#[test]
fn whatever_is_not_for_this_address_and_port_stays_the_kernels() {
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
        // A cable that has just got a program may lose one, and so may the question for its address.
        let comes = |what, from: UdpSocket, to: &UdpSocket| {
            until(what, || {
                from.send_to(b"hello", to.local_addr().unwrap()).unwrap();
                to.recv_from(&mut [0; 8]).is_ok_and(|(len, _)| len == 5)
            });
        };
        comes("a datagram to another port of this address", peer(v4), &own);
        comes("a datagram to this port of another address", peer(!v4), &other);
        assert_eq!(rx.poll(&mut Collector::new(&memory, [].into()), 16).unwrap(), 0);
        // And what is for it, but no packet, is counted.
        peer(v4).send_to(&[2; 30_000], to).unwrap();
        until("a fragment is counted", || {
            rx.poll(&mut Collector::new(&memory, [].into()), 16).unwrap();
            !v4 || rx.statistics().fragments > 0
        });
    }
}

#[test]
fn frames_of_the_driver_and_sockets_understand_each_other_and_find_each_other_on_the_link() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    for v4 in [true, false] {
        let mut socket = cable.open_udp(0, v4, &memory);
        let mut frames = open(&cable, 1, config(1, v4, &memory), &memory);
        let head = header(3);
        let (gather, bytes) = memory.payload(0, 6000);
        let one = Send { header: &head, gather: &gather, seal: Seal::Compute };
        let mut steer = Collector::new(&memory, [].into());
        // Until the kernel has found the host, packets are lost on the way, and counted.
        let mut tries = 0;
        until("a packet comes through", || {
            cable.enter(1);
            assert_eq!(frames.send(socket.local_addr(), &[one]).unwrap(), 1);
            socket.wait(Duration::from_millis(50)).unwrap();
            socket.poll(&mut steer, 4).unwrap();
            tries += 1;
            !steer.got.is_empty()
        });
        assert_eq!((steer.got[0].icrc, steer.got[0].bytes == bytes), (Icrc::Good, true));
        assert_eq!(frames.statistics().sent + frames.statistics().unknown_host, tries);
        for _ in 0..200 {
            assert_eq!(socket.send(frames.local_addr(), &[one]).unwrap(), 1);
            let got = &receive(&mut frames, &memory, vec![Some(1)], 1)[0];
            assert_eq!((got.icrc, got.fault, got.bytes == bytes), (Icrc::Good, None, true));
            assert_eq!(frames.send(socket.local_addr(), &[one; 3]).unwrap(), 3);
            for got in receive(&mut socket, &memory, vec![None; 3], 3) {
                assert_eq!((got.icrc, got.fault, got.bytes == bytes), (Icrc::Good, None, true));
            }
        }
    }
}

#[test]
fn packets_that_an_offload_has_left_together_are_refused_and_counted_and_lone_ones_come() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut socket = cable.open_udp(0, true, &memory);
    let mut frames = open(&cable, 1, XdpConfig { mode: Mode::Generic, ..config(1, true, &memory) }, &memory);
    cable.enter(0);
    let head = header(3);
    let (gather, _) = memory.payload(0, 3000);
    let one = Send { header: &head, gather: &gather, seal: Seal::Compute };
    assert_eq!(socket.send(frames.local_addr(), &[one; 10]).unwrap(), 10);
    assert_eq!(socket.send(frames.local_addr(), &[one]).unwrap(), 1);
    assert_eq!(receive(&mut frames, &memory, vec![None], 1)[0].icrc, Icrc::Good);
    let statistics = frames.statistics();
    assert_eq!((statistics.joined, statistics.received, statistics.landed), (1, 2, 1), "{statistics:?}");
    assert_eq!(frames.device().receive_errors, 1);
}

#[test]
fn frames_that_nobody_takes_in_time_are_lost_and_counted_and_every_other_one_comes() {
    let cable = or_skip!(Cable::new());
    let memory = Memory::new();
    let mut rx = open(&cable, 1, XdpConfig { chunks: 64, queues: vec![0], ..config(1, true, &memory) }, &memory);
    let mut tx = cable.open_udp(0, true, &memory);
    let head = header(3);
    let (gather, _) = memory.payload(0, 1000);
    let one = Send { header: &head, gather: &gather, seal: Seal::Compute };
    for _ in 0..1000 {
        assert_eq!(tx.send(rx.local_addr(), &[one]).unwrap(), 1);
    }
    let mut steer = Collector::new(&memory, [].into());
    until("each frame has landed or is counted as lost", || {
        rx.poll(&mut steer, 16).unwrap();
        rx.statistics().landed + rx.statistics().no_chunk == 1000
    });
    let statistics = rx.statistics();
    assert!(statistics.no_chunk > 0 && statistics.landed >= 64, "{statistics:?}");
    assert_eq!(statistics.dropped, 0, "each is counted once");
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_to_do() {
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
    assert!(refused(XdpConfig { copy: Copy::Zero, ..good() }).contains("leave the choice to it"));
    assert!(refused(XdpConfig { bind: "0.0.0.0:0".parse().unwrap(), ..good() }).contains("name one"));
    assert!(refused(XdpConfig { bind: "10.99.99.99:0".parse().unwrap(), ..good() }).contains("not on this machine"));
    let first = XdpIo::open(good(), &memory.regions).unwrap();
    assert!(refused(good()).contains("another program may own the queue"));
    drop(first);
    assert!(!ip("link show dev cable").contains("xdp"), "the program went with its owner");
    drop(XdpIo::open(good(), &memory.regions).unwrap());
}
