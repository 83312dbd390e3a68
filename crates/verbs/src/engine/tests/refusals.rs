//! Invalid requests from the network: dropped and counted, and the connection continues; or, in strict mode, answered
//! with the standard NAK code, and the queue pair fails.

use super::*;
use Opcode::*;

type Cause = fn(&QpDropCounters) -> u64;

/// Returns invalid requests with the counter of their drop cause and the standard NAK code.
fn invalid_requests(ends: &mut Ends) -> Vec<(&'static str, TestPacket, Cause, NakCode)> {
    use NakCode::{InvalidRequest, RemoteAccessError};
    let full = ends.b.remote(0);
    let other = ends.b.protection.allocate();
    let memory = Arc::clone(&ends.b.memory);
    let mut register = |pd, access, addressing| {
        let mr = ends.b.protection.register(pd, &memory, 0, 4096, access, addressing).unwrap();
        Remote { address: mr.address, rkey: mr.rkey }
    };
    let foreign = register(other, Access::ALL, Addressing::ZeroBased);
    let read_only = register(ends.b.pd, Access::REMOTE_READ, Addressing::ZeroBased);
    let write_only = register(ends.b.pd, Access::LOCAL_WRITE | Access::REMOTE_WRITE, Addressing::ZeroBased);
    let high = register(ends.b.pd, Access::ALL, Addressing::Virtual(u64::MAX - 4096));
    let unknown = Remote { address: 0, rkey: full.rkey ^ 1 };
    let at = |remote: Remote, address| Remote { address, ..remote };
    let packet = |opcode, len: usize| TestPacket::new(opcode, &ends.b, 100, &vec![0xEE; len]);
    let write = |remote, len: usize| packet(RcWriteOnly, len).reth(remote, len as u32);
    let read = |remote, len| packet(RcReadRequest, 0).reth(remote, len);
    let add = |remote| packet(RcFetchAdd, 0).atomic(remote, 0, 1);
    let mut unpadded = write(full, 8);
    unpadded.payload.truncate(6);
    let mut padded_beyond = write(full, 0);
    padded_beyond.bth.pad = 3;
    vec![
        ("an unknown key", write(unknown, 8), |r| r.bad_key, RemoteAccessError),
        ("a key of another domain", write(foreign, 8), |r| r.bad_key, RemoteAccessError),
        ("a READ with such a key", read(unknown, 8), |r| r.bad_key, RemoteAccessError),
        ("an atomic operation with such a key", add(unknown), |r| r.bad_key, RemoteAccessError),
        ("a WRITE to what may be read", write(read_only, 8), |r| r.bad_rights, RemoteAccessError),
        ("a READ of what may be written", read(write_only, 8), |r| r.bad_rights, RemoteAccessError),
        ("an atomic operation on what may be written", add(write_only), |r| r.bad_rights, RemoteAccessError),
        ("a byte past the end", write(at(full, SCRATCH - 7), 8), |r| r.bad_bounds, RemoteAccessError),
        ("an address far past the end", write(at(full, u64::MAX), 8), |r| r.bad_bounds, RemoteAccessError),
        ("an address that wraps", read(at(high, u64::MAX - 3), 8), |r| r.bad_bounds, RemoteAccessError),
        ("an address before the beginning", read(at(high, high.address - 1), 8), |r| r.bad_bounds, RemoteAccessError),
        ("a length past the end", read(full, 1 << 31), |r| r.bad_bounds, RemoteAccessError),
        ("an unaligned atomic operation", add(at(full, 4)), |r| r.bad_bounds, InvalidRequest),
        ("an atomic operation past the end", add(at(full, SCRATCH)), |r| r.bad_bounds, RemoteAccessError),
        ("more than 2^31 bytes", read(full, (1 << 31) + 1), |r| r.bad_length, InvalidRequest),
        (
            "the maximum of the length field",
            packet(RcWriteFirst, 256).reth(full, u32::MAX),
            |r| r.bad_length,
            InvalidRequest,
        ),
        ("a payload longer than the MTU", write(full, 260), |r| r.bad_length, InvalidRequest),
        ("a payload shorter than its WRITE", packet(RcWriteOnly, 8).reth(full, 12), |r| r.bad_length, InvalidRequest),
        ("a payload longer than its WRITE", packet(RcWriteOnly, 8).reth(full, 4), |r| r.bad_length, InvalidRequest),
        (
            "a first packet that is not full",
            packet(RcWriteFirst, 128).reth(full, 512),
            |r| r.bad_length,
            InvalidRequest,
        ),
        (
            "a first packet with the whole message",
            packet(RcWriteFirst, 256).reth(full, 256),
            |r| r.bad_length,
            InvalidRequest,
        ),
        ("a payload that is not padded", unpadded, |r| r.bad_length, InvalidRequest),
        ("padding without a payload", padded_beyond, |r| r.bad_length, InvalidRequest),
        ("a READ with a payload", packet(RcReadRequest, 8).reth(full, 8), |r| r.bad_length, InvalidRequest),
        ("a middle packet without a first one", packet(RcWriteMiddle, 256), |r| r.bad_opcode, InvalidRequest),
        ("a last packet without a first one", packet(RcSendLast, 8), |r| r.bad_opcode, InvalidRequest),
        ("an unsupported operation", packet(RcFlush, 0).reth(full, 8), |r| r.bad_opcode, InvalidRequest),
        ("an atomic write", packet(RcAtomicWrite, 8).reth(full, 8), |r| r.bad_opcode, InvalidRequest),
    ]
}

fn valid_write_succeeds(ends: &mut Ends, name: &str) {
    let to = ends.b.remote(0x800);
    ends.a.post(1, Operation::Write(to), 0, 600).unwrap();
    ends.settle();
    assert_eq!(ends.a.completed(), [(1, Status::Success)], "after {name}");
    assert_eq!(ends.b.read(0x800, 600), ends.a.read(0, 600), "after {name}");
}

#[test]
fn invalid_request_is_counted_and_changes_nothing() {
    let mut ends = Ends::new(RC);
    ends.b.memory.write(0, &[0x55; 4096]);
    let before = ends.b.read(0, SCRATCH as usize);
    for (name, packet, cause, _) in invalid_requests(&mut ends) {
        let counted = ends.b.counters.drops;
        ends.arrive_at_b(&[packet]);
        assert_eq!(cause(&ends.b.counters.drops), cause(&counted) + 1, "{name}");
        assert_eq!((ends.b.transmit(64).len(), ends.b.engine.state()), (0, QpState::ReadyToSend), "{name}");
        assert_eq!(ends.b.counters.bytes_in, 0, "{name}");
        assert!(ends.b.read(0, SCRATCH as usize) == before, "{name}");
    }
    valid_write_succeeds(&mut ends, "all of them");
}

#[test]
fn strict_mode_naks_an_invalid_request_and_fails() {
    let count = invalid_requests(&mut Ends::new(RC)).len();
    for index in 0..count {
        let mut ends = Ends::new(Options { strict: true, ..RC });
        ends.b.post_recv(9, &[(0, 8)]);
        let (name, packet, _, code) = invalid_requests(&mut ends).swap_remove(index);
        ends.arrive_at_b(&[packet]);
        assert_eq!((ends.b.engine.state(), ends.b.completed()), (QpState::Error, vec![(9, Status::Flushed)]), "{name}");
        let responses = ends.b.transmit(64);
        assert_eq!((psns(&responses), responses[0].syndrome()), (vec![100], Some(Syndrome::Nak(code))), "{name}");
        assert_eq!(ends.b.counters.bytes_in, 0, "{name}");
        assert!(!ends.b.engine.has_packets_to_send(ends.b.now), "{name}");
    }
}

#[test]
fn queue_pair_rights_restrict_memory_rights() {
    for strict in [false, true] {
        let mut ends = Ends::new(Options { access: Access::NONE, strict, ..RC });
        let full = ends.b.remote(0);
        for packet in [
            TestPacket::new(RcWriteOnly, &ends.b, 100, &[1; 8]).reth(full, 8),
            TestPacket::new(RcReadRequest, &ends.b, 100, &[]).reth(full, 8),
            TestPacket::new(RcFetchAdd, &ends.b, 100, &[]).atomic(full, 0, 8),
        ] {
            ends.arrive_at_b(&[packet]);
        }
        assert_eq!(ends.b.counters.drops.bad_rights, if strict { 1 } else { 3 });
        assert_eq!(ends.b.read(0, 8), [0; 8]);
    }
}

#[test]
fn reads_beyond_max_dest_rd_atomic_are_rejected() {
    for strict in [false, true] {
        let mut ends = Ends::new(Options { strict, ..RC });
        let full = ends.b.remote(0);
        let reads: Vec<_> =
            (100..103).map(|psn| TestPacket::new(RcReadRequest, &ends.b, psn, &[]).reth(full, 8)).collect();
        ends.arrive_at_b(&reads);
        assert_eq!(ends.b.counters.drops.too_many, 1);
        let responses = ends.b.transmit(64);
        let naks = responses.iter().filter(|response| response.syndrome() != Some(Syndrome::ACK)).count();
        assert_eq!((psns(&responses[..2]), naks), (vec![100, 101], usize::from(strict)));
    }
}

#[test]
fn send_longer_than_its_receive_is_rejected() {
    for strict in [false, true] {
        let mut ends = Ends::new(Options { strict, ..RC });
        ends.b.post_recv(9, &[(0, 300)]);
        ends.a.post(1, Operation::Send, 0, 400).unwrap();
        let packets = ends.a.transmit(64);
        ends.arrive_at_b(&packets);
        assert_eq!(ends.b.counters.drops.bad_length, 1);
        if strict {
            assert_eq!(ends.b.completed(), [(9, Status::LocalLength)]);
            let responses = ends.b.transmit(64);
            ends.arrive_at_a(&responses);
            assert_eq!(ends.a.completed(), [(1, Status::RemoteInvalid)]);
        } else {
            assert_eq!((ends.b.completed(), ends.b.engine.state()), (vec![], QpState::ReadyToSend));
        }
    }
}

#[test]
fn invalid_packet_does_not_disturb_a_message_in_progress() {
    let mut ends = Ends::new(RC);
    ends.b.post_recv(9, &[(0x1000, 600)]);
    ends.a.post(1, Operation::Send, 0, 600).unwrap();
    let packets = ends.a.transmit(64);
    ends.arrive_at_b(&packets[..1]);
    for (opcode, len) in
        [(RcSendOnly, 8), (RcSendMiddle, 100), (RcSendLast, 0), (RcWriteMiddle, 256), (RcSendFirst, 256)]
    {
        let packet = TestPacket::new(opcode, &ends.b, 101, &vec![0xEE; len]);
        ends.arrive_at_b(&[packet]);
    }
    let read = TestPacket::new(RcReadRequest, &ends.b, 101, &[]).reth(ends.b.remote(0), 8);
    ends.arrive_at_b(&[read]);
    assert_eq!((ends.b.counters.drops.bad_opcode, ends.b.counters.drops.bad_length), (4, 2));
    ends.arrive_at_b(&packets[1..]);
    assert_eq!(ends.b.completed(), [(9, Status::Success)]);
    assert_eq!(ends.b.read(0x1000, 600), ends.a.read(0, 600));
}

#[test]
fn wrong_source_partition_service_or_state_is_dropped() {
    let mut ends = Ends::new(RC);
    let packet = TestPacket::new(RcWriteOnly, &ends.b, 100, &[1; 8]).reth(ends.b.remote(0), 8);
    ends.b.receive(SocketAddr::from(([10, 0, 0, 9], 4791)), &packet);
    let mut partition = packet.clone();
    partition.bth.p_key = 0x7FFE;
    let mut service = packet.clone();
    service.bth.opcode = UcWriteOnly;
    ends.arrive_at_b(&[partition, service]);
    let drops = ends.b.counters.drops;
    assert_eq!((drops.bad_source, drops.bad_partition, drops.bad_opcode), (1, 1, 1));
    ends.b.modify(Modify::Reset).unwrap();
    ends.arrive_at_b(&[packet]);
    assert_eq!((ends.b.counters.drops.bad_state, ends.b.counters.bytes_in), (1, 0));
    assert!(!ends.b.engine.has_packets_to_send(ends.b.now));
}

#[test]
fn empty_write_and_read_need_no_key_and_any_source_port() {
    let mut ends = Ends::new(RC);
    let nowhere = Remote { address: u64::MAX, rkey: 0 };
    let write = TestPacket::new(RcWriteOnly, &ends.b, 100, &[]).reth(nowhere, 0);
    let read = TestPacket::new(RcReadRequest, &ends.b, 101, &[]).reth(nowhere, 0);
    let port = SocketAddr::new(ends.a.address.ip(), 50_000);
    ends.b.receive(port, &write);
    ends.b.receive(port, &read);
    let responses = ends.b.transmit(64);
    assert_eq!((psns(&responses), opcodes(&responses)), (vec![101], vec![RcReadResponseOnly]));
    assert_eq!(ends.b.counters.drops, QpDropCounters::default());
}

#[test]
fn source_port_of_the_first_executed_packet_is_learnt() {
    for (options, write, any_port) in [(RC, RcWriteOnly, false), (UC, UcWriteOnly, false), (RC, RcWriteOnly, true)] {
        let mut ends = Ends::new(Options { accept_any_source_port: any_port, ..options });
        let [peer, other] = [50_000, 50_001].map(|port| SocketAddr::new(ends.a.address.ip(), port));
        let remote = ends.b.remote(0);
        let packet = |psn, byte| TestPacket::new(write, &ends.b, psn, &[byte; 8]).reth(remote, 8);
        let [first, old, second] = [packet(100, 1), packet(99, 2), packet(101, 3)];
        let wrong = TestPacket::new(write, &ends.b, 100, &[9; 8]).reth(Remote { rkey: !remote.rkey, ..remote }, 8);
        ends.b.receive(other, &wrong); // rejected: its port is not learnt
        if options.kind == QpType::Rc {
            ends.b.receive(other, &old); // only acknowledged again
        }
        ends.b.receive(peer, &first);
        ends.b.receive(other, &second);
        let dropped = ends.b.counters.drops.bad_source;
        assert_eq!((dropped, ends.b.read(0, 1)), if any_port { (0, vec![3]) } else { (1, vec![1]) }, "{write:?}");
        let notification = TestPacket::new(CongestionNotification, &ends.b, 0, &[0; 16]);
        ends.b.receive(other, &notification);
        assert_eq!((ends.b.counters.drops.bad_source, ends.b.counters.cnps_in), (dropped, 1));
        ends.b.receive(peer, &second);
        assert_eq!(ends.b.read(0, 1), [3]);
        // A new connection learns the port again.
        ends.b.modify(Modify::Reset).unwrap();
        assert!(ends.b.engine.is_from_peer(other));
    }
}
