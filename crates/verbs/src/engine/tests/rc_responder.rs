use super::*;
use Opcode::*;

fn write(ends: &Ends, psn: u32, address: u64, payload: &[u8]) -> TestPacket {
    let mut packet =
        TestPacket::new(RcWriteOnly, &ends.b, psn, payload).reth(ends.b.remote(address), payload.len() as u32);
    packet.bth.ack_request = true;
    packet
}

#[test]
fn batch_is_acknowledged_once() {
    let mut ends = Ends::new(RC);
    let packets: Vec<_> = (0..10).map(|index| write(&ends, 100 + index, 0, &[index as u8; 8])).collect();
    ends.arrive_at_b(&packets);
    let responses = ends.b.transmit(64);
    assert_eq!((psns(&responses), responses[0].syndrome()), (vec![109], Some(Syndrome::ACK)));
    assert_eq!(responses[0].extensions.aeth.unwrap().msn, 10);
    assert_eq!(ends.b.transmit(64).len(), 0);
}

#[test]
fn gap_is_nakked_once_until_the_missing_packet_arrives() {
    let mut ends = Ends::new(RC);
    let ahead: Vec<_> = (101..110).map(|psn| write(&ends, psn, 0, &[1; 8])).collect();
    for packet in &ahead {
        ends.arrive_at_b(std::slice::from_ref(packet));
        ends.b.now += 1_000_000;
        if packet.bth.psn == 101 {
            let responses = ends.b.transmit(64);
            let expected = Some(Syndrome::Nak(NakCode::PsnSequenceError));
            assert_eq!((responses.len(), responses[0].bth.psn, responses[0].syndrome()), (1, 100, expected));
        }
        assert_eq!(ends.b.transmit(64).len(), 0);
    }
    assert_eq!((ends.b.counters.out_of_sequence, ends.b.counters.bytes_in), (9, 0));
    let missing = write(&ends, 100, 0, &[2; 8]);
    ends.arrive_at_b(&[missing, ahead[1].clone()]);
    let responses = ends.b.transmit(64);
    assert_eq!((responses[0].bth.psn, responses[0].syndrome()), (101, Some(Syndrome::Nak(NakCode::PsnSequenceError))));
}

#[test]
fn sequence_error_naks_are_rate_limited() {
    let mut ends = Ends::new(RC);
    for round in 0..100 {
        // A gap, followed at once by the missing packet: each would cause a NAK.
        let (ahead, missing) = (write(&ends, 101 + round, 0, &[1; 8]), write(&ends, 100 + round, 0, &[1; 8]));
        ends.arrive_at_b(&[ahead]);
        ends.b.transmit(64);
        ends.arrive_at_b(&[missing]);
        ends.b.now += 1000;
    }
    assert_eq!((ends.b.counters.naks_out.sequence, ends.b.counters.naks_suppressed), (5, 95));
}

#[test]
fn duplicate_write_is_acknowledged_and_not_written() {
    let mut ends = Ends::new(RC);
    let packets = [write(&ends, 100, 0, &[1; 8]), write(&ends, 101, 64, &[2; 8])];
    ends.arrive_at_b(&packets);
    ends.b.transmit(64);
    ends.b.memory.write(0, &[9; 8]);
    ends.arrive_at_b(&packets[..1]);
    let responses = ends.b.transmit(64);
    assert_eq!((psns(&responses), responses[0].syndrome()), (vec![101], Some(Syndrome::ACK)));
    assert_eq!((ends.b.read(0, 8), ends.b.counters.duplicates, ends.b.counters.bytes_in), (vec![9; 8], 1, 16));
}

#[test]
fn duplicate_atomic_is_answered_from_the_saved_result() {
    let mut ends = Ends::new(RC);
    ends.b.memory.write(8, &40_u64.to_ne_bytes());
    let add = |psn| TestPacket::new(RcFetchAdd, &ends.b, psn, &[]).atomic(ends.b.remote(8), 0, 2);
    let requests = [add(100), add(101), add(102)];
    for (request, original) in requests.iter().zip([40, 42, 44]) {
        for _ in 0..3 {
            ends.arrive_at_b(std::slice::from_ref(request));
            let responses = ends.b.transmit(64);
            assert_eq!((responses.len(), responses[0].bth.psn), (1, request.bth.psn));
            assert_eq!(responses[0].extensions.atomic_ack.unwrap().original, original);
        }
    }
    assert_eq!(ends.b.read(8, 8), 46_u64.to_ne_bytes());
    // Two may be outstanding, so the first cannot be a duplicate any more; the other operation was never requested.
    let other = TestPacket::new(RcCompareSwap, &ends.b, 101, &[]).atomic(ends.b.remote(8), 0, 2);
    ends.arrive_at_b(&[requests[0].clone(), other]);
    assert_eq!((ends.b.transmit(64).len(), ends.b.counters.drops.bad_psn), (0, 2));
    assert_eq!(ends.b.read(8, 8), 46_u64.to_ne_bytes());
}

#[test]
fn duplicate_read_is_answered_within_the_original_range() {
    let mut ends = Ends::new(RC);
    let read = |psn, address, len| TestPacket::new(RcReadRequest, &ends.b, psn, &[]).reth(ends.b.remote(address), len);
    let (whole, part, beyond) = (read(100, 0, 1000), read(102, 512, 488), read(102, 512, 800));
    ends.arrive_at_b(std::slice::from_ref(&whole));
    assert_eq!(psns(&ends.b.transmit(64)), [100, 101, 102, 103]);
    ends.arrive_at_b(std::slice::from_ref(&whole));
    assert_eq!(psns(&ends.b.transmit(64)), [100, 101, 102, 103]);
    ends.arrive_at_b(&[part]);
    let responses = ends.b.transmit(64);
    assert_eq!(opcodes(&responses), [RcReadResponseFirst, RcReadResponseLast]);
    assert_eq!(responses[1].payload.len(), 232);
    ends.arrive_at_b(&[beyond]);
    assert_eq!((ends.b.transmit(64).len(), ends.b.counters.drops.bad_psn), (0, 1));
    // A duplicate while the response is being sent starts it again, and it is not sent twice.
    ends.arrive_at_b(std::slice::from_ref(&whole));
    assert_eq!(psns(&ends.b.transmit(2)), [100, 101]);
    ends.arrive_at_b(&[whole]);
    assert_eq!(psns(&ends.b.transmit(64)), [100, 101, 102, 103]);
}

#[test]
fn responses_keep_request_order_and_the_ack_comes_last() {
    let mut ends = Ends::new(RC);
    let read = TestPacket::new(RcReadRequest, &ends.b, 100, &[]).reth(ends.b.remote(0), 3 * MTU);
    let add = TestPacket::new(RcFetchAdd, &ends.b, 103, &[]).atomic(ends.b.remote(8), 0, 2);
    let packets = [read, add, write(&ends, 104, 64, &[1; 8])];
    ends.arrive_at_b(&packets);
    assert_eq!(psns(&ends.b.transmit(2)), [100, 101]);
    let rest = ends.b.transmit(64);
    assert_eq!(psns(&rest), [102, 103, 104]);
    assert_eq!(opcodes(&rest), [RcReadResponseLast, RcAtomicAcknowledge, RcAcknowledge]);
}

#[test]
fn read_responses_do_not_starve_own_requests() {
    let mut ends = Ends::new(RC);
    let read = TestPacket::new(RcReadRequest, &ends.b, 100, &[]).reth(ends.b.remote(0), 1 << 19);
    ends.arrive_at_b(&[read]);
    let to = ends.a.remote(0);
    ends.b.post(1, Operation::Write(to), 0, 8 * MTU).unwrap();
    let packets = ends.b.transmit(16);
    let requests =
        packets.iter().filter(|packet| crate::engine::segment::Segment::of(packet.bth.opcode).is_some()).count();
    assert_eq!((packets.len(), requests), (16, 8));
}

#[test]
fn message_is_scattered_to_its_receive() {
    let mut ends = Ends::new(RC);
    ends.b.post_recv(7, &[(0x1000, 100), (0x3000, 0), (0x2000, 300), (0x4000, 300)]);
    ends.a.post(1, Operation::SendImm(0xABCD), 0, 650).unwrap();
    ends.settle();
    let [completion] = ends.b.done.0[..] else { panic!("{:?}", ends.b.done.0) };
    assert_eq!((completion.id, completion.bytes, completion.imm), (7, 650, Some(0xABCD)));
    let bytes = [ends.b.read(0x1000, 100), ends.b.read(0x2000, 300), ends.b.read(0x4000, 250)].concat();
    assert_eq!(bytes, ends.a.read(0, 650));
    assert_eq!(ends.b.read(0x4000 + 250, 50), [0; 50]);
}

#[test]
fn write_imm_consumes_a_receive_without_writing_to_it() {
    let mut ends = Ends::new(RC);
    ends.b.post_recv(7, &[(0x1000, 100)]);
    let to = ends.b.remote(0x2000);
    ends.a.post(1, Operation::WriteImm(to, 5), 0, 600).unwrap();
    ends.settle();
    let [completion] = ends.b.done.0[..] else { panic!("{:?}", ends.b.done.0) };
    assert_eq!((completion.kind, completion.bytes, completion.imm), (CompletionKind::RecvWriteImm, 600, Some(5)));
    assert_eq!((ends.b.read(0x1000, 100), ends.b.read(0x2000, 600)), (vec![0; 100], ends.a.read(0, 600)));
    let usage = ends.b.protection.counters(ends.b.mr.lkey).unwrap();
    assert_eq!((usage.writes, usage.bytes_in), (1, 600));
}

#[test]
fn send_with_invalidate_revokes_a_key() {
    let mut ends = Ends::new(RC);
    let other = ends.b.protection.register(ends.b.pd, &ends.b.memory, 0, 64, Access::ALL, Addressing::ZeroBased);
    let other = other.unwrap();
    ends.b.post_recv(7, &[(0x1000, 100)]);
    ends.a.post(1, Operation::SendInvalidate(other.rkey), 0, 8).unwrap();
    ends.settle();
    assert_eq!(ends.b.done.0[0].invalidated, Some(other.rkey));
    let packet = TestPacket::new(RcWriteOnly, &ends.b, 101, &[1; 8]).reth(Remote { address: 0, rkey: other.rkey }, 8);
    ends.arrive_at_b(&[packet]);
    assert_eq!((ends.b.counters.drops.bad_key, ends.b.counters.bytes_in), (1, 8));
}

#[test]
fn deregistered_key_stops_write_and_read_in_flight() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0x1000);
    ends.a.post(1, Operation::Write(to), 0, 3 * MTU).unwrap();
    let packets = ends.a.transmit(64);
    ends.arrive_at_b(&packets[..1]);
    let lkey = ends.b.mr.lkey;
    assert!(ends.b.protection.deregister(lkey));
    ends.arrive_at_b(&packets[1..2]);
    assert_eq!((ends.b.counters.drops.bad_key, ends.b.counters.bytes_in), (1, u64::from(MTU)));
    assert_eq!(ends.b.read(0x1000 + u64::from(MTU), 8), [0; 8]);

    for strict in [false, true] {
        let mut ends = Ends::new(Options { strict, ..RC });
        let read = TestPacket::new(RcReadRequest, &ends.b, 100, &[]).reth(ends.b.remote(0), 4 * MTU);
        ends.arrive_at_b(&[read]);
        assert_eq!(ends.b.transmit(2).len(), 2);
        let lkey = ends.b.mr.lkey;
        assert!(ends.b.protection.deregister(lkey));
        let rest = ends.b.transmit(64);
        assert_eq!(ends.b.counters.drops.bad_key, 1);
        let expected = if strict { vec![(102, Some(Syndrome::Nak(NakCode::RemoteAccessError)))] } else { vec![] };
        let rest: Vec<_> =
            rest.iter().chain(&ends.b.transmit(64)).map(|packet| (packet.bth.psn, packet.syndrome())).collect();
        assert_eq!(rest, expected);
        assert_eq!(ends.b.engine.state(), if strict { QpState::Error } else { QpState::ReadyToSend });
    }
}

#[test]
fn congestion_mark_slows_the_sender_down() {
    let mut ends = Ends::new(RC);
    let packet = write(&ends, 100, 0, &[1; 8]);
    let landed = PayloadLocation::Scratch(Sge { region: RegionId(0), offset: SCRATCH, len: 8 });
    let from = ends.a.address;
    ends.b.receive_landed(from, &packet, landed, true);
    let responses = ends.b.transmit(64);
    assert_eq!(opcodes(&responses), [CongestionNotification, RcAcknowledge]);
    assert!(responses[0].bth.becn && responses[0].payload == [0; 16] && responses[0].bth.dest_qp == 2);
    ends.arrive_at_a(&responses[..1]);
    let to = ends.b.remote(0);
    ends.a.post(1, Operation::Write(to), 0, 1 << 18).unwrap();
    let sent = ends.a.transmit(4096).len();
    let deadline = ends.a.engine.deadline().unwrap();
    assert!(sent < 1024 && deadline > ends.a.now && !ends.a.engine.has_packets_to_send(ends.a.now), "{sent} at once");
    ends.a.now = deadline;
    assert!(ends.a.engine.has_packets_to_send(deadline) && !ends.a.transmit(64).is_empty());
    assert_eq!((ends.a.counters.cnps_in, ends.b.counters.cnps_out), (1, 1));
}
