use super::*;
use Opcode::*;

#[test]
fn requests_complete_after_their_burst_is_sent() {
    let mut ends = Ends::new(UC);
    let to = ends.b.remote(0x1000);
    ends.a.post(1, Operation::Write(to), 0, 600).unwrap();
    let packets = ends.a.transmit(64);
    assert_eq!(opcodes(&packets), [UcWriteFirst, UcWriteMiddle, UcWriteLast]);
    assert_eq!((ends.a.completed(), ends.a.engine.has_packets_to_send(1)), (vec![], true));
    assert!(ends.a.transmit(64).is_empty());
    assert_eq!((ends.a.completed(), ends.a.engine.has_packets_to_send(1)), (vec![(1, Status::Success)], false));
    ends.arrive_at_b(&packets);
    assert_eq!((ends.b.read(0x1000, 600), ends.b.transmit(64).len()), (ends.a.read(0, 600), 0));
}

#[test]
fn lost_packet_costs_its_message_and_frees_its_receive() {
    let mut ends = Ends::new(UC);
    ends.b.post_recv(7, &[(0x1000, 600)]);
    ends.b.post_recv(8, &[(0x2000, 600)]);
    for id in 0..3 {
        ends.a.post(id, Operation::SendImm(id as u32), 0, 600).unwrap();
    }
    let mut packets = ends.a.transmit(64);
    assert_eq!(packets.len(), 9);
    packets.remove(1);
    ends.arrive_at_b(&packets);
    let completions: Vec<_> = ends.b.done.0.iter().map(|completion| (completion.id, completion.imm)).collect();
    assert_eq!(completions, [(7, Some(1)), (8, Some(2))]);
    assert_eq!((ends.b.counters.abandoned, ends.b.counters.out_of_sequence), (1, 2));
}

#[test]
fn forged_packets_do_not_disturb_a_message_in_progress() {
    let mut ends = Ends::new(UC);
    ends.b.post_recv(7, &[(0x1000, 600)]);
    ends.a.post(1, Operation::Send, 0, 600).unwrap();
    let packets = ends.a.transmit(64);
    let full = ends.b.remote(0);
    ends.arrive_at_b(&packets[..1]);
    let forged = [
        TestPacket::new(UcSendMiddle, &ends.b, 5000, &[0xEE; 256]),
        TestPacket::new(UcSendLast, &ends.b, 101, &[]),
        TestPacket::new(UcWriteMiddle, &ends.b, 101, &[0xEE; 256]),
        TestPacket::new(UcWriteOnly, &ends.b, 101, &[0xEE; 8]).reth(Remote { rkey: full.rkey ^ 1, ..full }, 8),
        TestPacket::new(UcWriteOnly, &ends.b, 9, &[0xEE; 8]).reth(Remote { address: SCRATCH - 7, ..full }, 8),
        TestPacket::new(UcSendOnly, &ends.b, 9, &[0xEE; 260]),
        TestPacket::new(RcSendOnly, &ends.b, 101, &[0xEE; 8]),
    ];
    ends.arrive_at_b(&forged);
    ends.arrive_at_b(&packets[1..]);
    assert_eq!(ends.b.completed(), [(7, Status::Success)]);
    assert_eq!((ends.b.read(0x1000, 600), ends.b.read(0, 8)), (ends.a.read(0, 600), vec![0; 8]));
    let drops = ends.b.counters.drops;
    assert_eq!((drops.bad_key, drops.bad_bounds, drops.bad_length, drops.bad_opcode), (1, 1, 2, 2));
}

#[test]
fn new_message_replaces_the_one_in_progress() {
    let mut ends = Ends::new(UC);
    ends.b.post_recv(7, &[(0x1000, 600)]);
    let first = TestPacket::new(UcSendFirst, &ends.b, 100, &[1; 256]);
    let other = TestPacket::new(UcWriteOnly, &ends.b, 4000, &[2; 8]).reth(ends.b.remote(0), 8);
    let rest = TestPacket::new(UcSendLast, &ends.b, 101, &[1; 8]);
    let next = TestPacket::new(UcSendOnly, &ends.b, 4001, &[3; 8]);
    ends.arrive_at_b(&[first, other, rest, next]);
    assert_eq!((ends.b.completed(), ends.b.counters.abandoned), (vec![(7, Status::Success)], 1));
    assert_eq!((ends.b.read(0, 8), ends.b.read(0x1000, 8)), (vec![2; 8], vec![3; 8]));
}

#[test]
fn send_too_long_is_dropped_or_fatal_in_strict_mode() {
    for strict in [false, true] {
        let mut ends = Ends::new(Options { strict, ..UC });
        ends.b.post_recv(7, &[(0x1000, 100)]);
        ends.b.post_recv(8, &[(0x1000, 100)]);
        let long = TestPacket::new(UcSendOnly, &ends.b, 100, &[1; 200]);
        ends.arrive_at_b(&[long]);
        assert_eq!(ends.b.counters.drops.bad_length, 1);
        let expected = [(7, Status::LocalLength), (8, Status::Flushed)];
        assert_eq!(ends.b.completed(), if strict { expected.to_vec() } else { vec![] });
        assert_eq!(ends.b.engine.state(), if strict { QpState::Error } else { QpState::ReadyToSend });
    }
}

#[test]
fn reads_atomics_and_invalidation_are_unsupported() {
    let mut ends = Ends::new(UC);
    let remote = ends.b.remote(0);
    for operation in [
        Operation::Read(remote),
        Operation::FetchAdd { remote, add: 1 },
        Operation::CompareSwap { remote, compare: 0, swap: 1 },
        Operation::SendInvalidate(1),
    ] {
        assert_eq!(ends.a.post(1, operation, 0, 8), Err(PostError::Unsupported(QpType::Uc)));
    }
}
