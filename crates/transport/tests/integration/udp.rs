//! Tests of UDP sockets: the conformance suite and socket-specific behaviour.

use crate::suite::{BUFFERS, Collector, HEADER, Memory, STEERS, conforms, header, post, receive};
use rustix::net::sockopt;
use shotline_memory::Sge;
use shotline_testing::wait_until_some;
use shotline_transport::conformance::EndpointPair;
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_transport::udp::{UdpConfig, UdpIo};
use shotline_transport::{Icrc, PacketIo, PayloadDestination, PayloadLocation, Pick, Recv, Seal, TxPacket};
use shotline_wire::crc;
use shotline_wire::shot::DropCause;
use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};

fn udp_pair(memory: &Memory, ip: &str, sealed: bool) -> (UdpIo, UdpIo) {
    udp_pair_with(memory, ip, |config| config.sealed = sealed)
}

fn udp_pair_with(memory: &Memory, ip: &str, set: impl Fn(&mut UdpConfig)) -> (UdpIo, UdpIo) {
    let open = || {
        let mut config = UdpConfig {
            bind: SocketAddr::new(ip.parse().unwrap(), 0),
            sealed: true,
            capacity: BUFFERS as usize,
            scratch: memory.scratch,
            receive_buffer: 4 << 20,
            remainders: true,
            stamps: true,
            ecn: false,
        };
        set(&mut config);
        UdpIo::open(&config, &memory.regions).unwrap()
    };
    (open(), open())
}

#[test]
fn udp_over_ipv6_conforms() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let open = || {
            let (tx, rx) = udp_pair(&memory, "::1", sealed);
            EndpointPair { to: rx.local_addr(), tx, rx }
        };
        conforms("udp, ::1", sealed, STEERS, &memory, open, |_| Ok(()));
    }
}

#[test]
fn udp_over_ipv4_conforms() {
    let memory = Memory::new();
    for sealed in [true, false] {
        let open = || {
            let (tx, rx) = udp_pair(&memory, "127.0.0.1", sealed);
            EndpointPair { to: rx.local_addr(), tx, rx }
        };
        conforms("udp, 127.0.0.1", sealed, STEERS, &memory, open, |_| Ok(()));
    }
}

#[test]
fn unknown_ipv4_ids_are_solved_and_checked_for_sequence() {
    // A sender may use any IPv4 identification, which a socket does not expose: the ICRC is computed for `id`.
    let memory = Memory::new();
    let (_, mut rx) = udp_pair(&memory, "127.0.0.1", true);
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (head, payload) = (header(3), memory.payload(0, 500).1);
    let mut verdict_on = |socket: &UdpSocket, id| {
        let (src_port, dst_port) = (socket.local_addr().unwrap().port(), rx.local_addr().port());
        let network = shotline_wire::icrc::Network::V4 { src: [127, 0, 0, 1], dst: [127, 0, 0, 1], id };
        let prefix = shotline_wire::icrc::Flow { network, src_port, dst_port }.prefix(24 + 500 + 4);
        let after = shotline_wire::icrc::after_header(prefix, &head);
        let icrc = shotline_wire::icrc::seal(after, 500_u64, crc::remainder(&payload));
        let packet = [&head[..], &payload, &icrc.to_le_bytes()].concat();
        socket.send_to(&packet, rx.local_addr()).unwrap();
        receive(&mut rx, &memory, vec![None], 1)[0].icrc
    };
    // Two sockets of one host have separate counters.
    for step in 0..4 {
        for (socket, first) in sockets.iter().zip([100, 30_000]) {
            assert_eq!(verdict_on(socket, first + step), Icrc::Solved { is_in_sequence: true });
        }
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut verdict = |id| verdict_on(&socket, id);
    // The first of a sender, two plausible successors, one that is not plausible, and its successor.
    let verdicts = [4660, 4661, 4661 + 1024, 4660, 4661].map(&mut verdict);
    assert_eq!(verdicts, [true, true, true, false, true].map(|is_in_sequence| Icrc::Solved { is_in_sequence }));
    assert_eq!(
        [65_535, 65_535, 100].map(&mut verdict)[1..],
        [true, true].map(|is_in_sequence| Icrc::Solved { is_in_sequence })
    );
}

#[test]
fn random_datagrams_get_a_verdict_and_never_panic() {
    let memory = Memory::new();
    for ip in ["::1", "127.0.0.1"] {
        let (_, mut rx) = udp_pair(&memory, ip, true);
        post(&mut rx, &memory, 0..100);
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let (mut state, mut solved) = (1_u32, 0);
        for len in (0..200).chain([4096, 4124, 4125, 9000, 65_000, 65_507]) {
            let mut bytes = vec![0; len];
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            socket.send_to(&bytes, rx.local_addr()).unwrap();
            let received = receive(&mut rx, &memory, vec![Some(len as u32 % 100)], 1);
            if let Icrc::Solved { .. } = received[0].icrc {
                solved += 1; // an identification matches by chance for one of 2^16 ICRCs: the port differs each time
                continue;
            }
            let expected = if len < HEADER + 4 { DropCause::Malformed } else { DropCause::BadIcrc };
            assert_eq!(received[0].fault, Some(expected), "{len} bytes");
        }
        assert!(solved <= 2, "{solved} of 206 by chance");
    }
}

#[test]
fn received_packets_have_time_stamps_if_enabled() {
    let memory = Memory::new();
    let (mut tx, mut rx) = udp_pair(&memory, "::1", false);
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let before = now();
    let head = header(1);
    let packet = TxPacket { header: &head, gather: &memory.payload(0, 100).0, seal: Seal::None };
    // The kernel enables timestamps asynchronously: the first packets may not have one.
    let received = wait_until_some("packets with a stamp", || {
        assert_eq!(tx.send(rx.local_addr(), &[packet; 3]).unwrap(), 3);
        Some(receive(&mut rx, &memory, vec![None; 3], 3))
            .filter(|received| received.iter().all(|received| received.stamp_ns > 0))
    });
    assert!(received.iter().all(|received| (before..=now()).contains(&received.stamp_ns)), "{received:?}");
}

#[test]
fn mispredicted_single_packets_are_not_lost() {
    let memory = Memory::new();
    for (ip, sealed) in [("::1", true), ("::1", false), ("127.0.0.1", true)] {
        let (mut tx, mut rx) = udp_pair(&memory, ip, sealed);
        let to = rx.local_addr();
        let good = if sealed { Icrc::Good } else { Icrc::Absent };
        let seal = if sealed { Seal::Compute } else { Seal::None };
        let head = header(9);
        let mut send = |len: u32| {
            let (gather, bytes) = memory.payload(u64::from(len % 64), len);
            assert_eq!(tx.send(to, &[TxPacket { header: &head, gather: &gather, seal }]).unwrap(), 1);
            bytes
        };
        // Enough consecutive single packets to enable the predicted receive path.
        for _ in 0..64 {
            send(100);
        }
        receive(&mut rx, &memory, vec![None; 64], 64);

        // Buffers with the length of some of the following packets.
        for id in 0..8 {
            assert_eq!(rx.post(&[Recv { id, sge: [memory.buffer(id.into(), 1000), Sge::EMPTY] }]), 1);
        }
        let lens = [1000, 1000, 999, 1003, 1000, 4096, 0, 1000];
        let sent: Vec<_> = lens.into_iter().map(&mut send).collect();
        let prediction = |id| Pick { destination: PayloadDestination::Posted(id), header_len: Some(HEADER as u16) };
        let mut predictions: Vec<_> = (0..6).map(prediction).collect();
        predictions.push(Pick { destination: PayloadDestination::Scratch, header_len: Some(HEADER as u16) });
        predictions.push(prediction(7));
        let mut steer = Collector { predictions, ..Collector::new(&memory, VecDeque::new()) };
        while steer.received.len() < 8 {
            rx.poll(&mut steer, 4).unwrap();
        }
        // Packets in their predicted buffers are reported first, in one batch: from then on the steer may move payloads
        // into the buffers.
        let (in_place, others): (Vec<_>, Vec<_>) = (0..8).partition(|index: &usize| lens[*index] == 1000);
        let order: Vec<_> = in_place.iter().chain([&6]).chain(others.iter().filter(|index| **index != 6)).collect();
        let mut first: Vec<_> = steer.received.iter().take_while(|received| received.landed_before == 0).collect();
        assert_eq!(first.len(), 5, "{ip}: four in place, and the empty one, which needs none");
        first.sort_by_key(|received| received.bytes.is_empty());
        for (received, index) in first.into_iter().chain(&steer.received[5..]).zip(order) {
            let what = (received.bytes == sent[*index], received.icrc, received.fault);
            assert_eq!(what, (true, good, None), "{ip}, {sealed}: packet {index}");
            let slot = received.landed == PayloadLocation::Posted(*index as u32);
            assert_eq!(slot, sent[*index].len() == 1000, "packet {index}");
        }
        // A buffer whose predicted packet did not arrive is still posted.
        send(1000);
        assert_eq!(receive(&mut rx, &memory, vec![Some(2)], 1)[0].landed, PayloadLocation::Posted(2));
    }
}

#[test]
fn unspecified_bind_address_is_refused_with_a_remedy() {
    let memory = Memory::new();
    let config = UdpConfig {
        bind: "[::]:0".parse().unwrap(),
        sealed: true,
        capacity: 1,
        scratch: memory.scratch,
        receive_buffer: 1 << 16,
        remainders: true,
        stamps: false,
        ecn: false,
    };
    let error = UdpIo::open(&config, &memory.regions).err().unwrap().to_string();
    assert!(error.contains("[::1]"), "{error}");
}

#[test]
fn ecn_marks_are_reported_per_batch_and_keep_icrcs_valid() {
    let memory = Memory::new();
    for v4 in [true, false] {
        let (mut tx, mut rx) = udp_pair_with(&memory, if v4 { "127.0.0.1" } else { "::1" }, |config| config.ecn = true);
        let class = |tx: &UdpIo| {
            let fd = tx.fd().unwrap();
            if v4 { sockopt::ip_tos(fd).map(u32::from) } else { sockopt::ipv6_tclass(fd) }
        };
        assert_eq!(class(&tx), Ok(0b10), "ECT(0)");
        let head = header(5);
        for (len, packets) in [(300, 1), (4000, 1), (4000, 9)] {
            let (gather, bytes) = memory.payload(0, len);
            let batch = vec![TxPacket { header: &head, gather: &gather, seal: Seal::Compute }; packets];
            // Enough rounds to use every receive path; every third batch is marked.
            for turn in 0..30 {
                let mark = if turn % 3 == 0 { 0b11 } else { 0b10 };
                let fd = tx.fd().unwrap();
                if v4 { sockopt::set_ip_tos(fd, mark) } else { sockopt::set_ipv6_tclass(fd, mark.into()) }.unwrap();
                assert_eq!(tx.send(rx.local_addr(), &batch).unwrap(), packets);
                for received in receive(&mut rx, &memory, vec![None; packets], packets) {
                    assert_eq!((received.icrc, received.fault, received.bytes == bytes), (Icrc::Good, None, true));
                    assert_eq!(received.congested, mark == 0b11, "{len} bytes, {packets} at once, turn {turn}");
                }
            }
        }
    }
}

#[test]
fn prebuilt_runs_arrive_intact_with_and_without_gaps() {
    let memory = Memory::new();
    for ip in ["127.0.0.1", "::1"] {
        let (mut tx, mut rx) = udp_pair(&memory, ip, false);
        let to = rx.local_addr();
        assert_eq!(tx.headroom(), 0);
        let first = memory.payload(0, 1).0[0];
        // More than one call accepts, by bytes and by number, and one that does not divide evenly.
        for (len, stride, count) in [(1000, 1000, 60), (1000, 1024, 60), (9000, 9000, 7), (40, 40, 150), (700, 704, 1)]
        {
            let run = FrameRun { region: first.region, offset: 8, stride, len, count };
            tx.prebuild(to, run.frame(0)).unwrap();
            assert_eq!(tx.send_prebuilt(to, run).unwrap(), count as usize);
            let received = receive(&mut rx, &memory, Vec::new(), count as usize);
            for (index, received) in received.iter().enumerate() {
                let (_, bytes) = memory.payload(run.frame(index as u32).offset, len);
                let whole = [received.header.as_slice(), &received.bytes].concat();
                assert_eq!((whole == bytes, received.fault), (true, None), "packet {index} of {run:?}");
            }
        }
        let run = FrameRun { region: first.region, offset: 0, stride: 100, len: 100, count: 5 };
        assert_eq!(run.after(3), FrameRun { offset: 300, count: 2, ..run });
        assert_eq!(tx.send_prebuilt(to, run.after(9)).unwrap(), 0, "nothing is left");
        assert!(tx.prebuild(to, Sge { len: 65_600, ..run.frame(0) }).is_err());
        assert!(tx.prebuild(to, Sge { len: 0, ..run.frame(0) }).is_err());
        let (mut sealed, _) = udp_pair(&memory, ip, true);
        assert!(sealed.send_prebuilt(to, run).is_err(), "an ICRC needs the payload");
    }
}
