use super::*;
use Opcode::*;

#[test]
fn messages_are_segmented_without_an_empty_last_packet() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0x1000);
    for (len, expected) in [
        (0, &[RcWriteOnly][..]),
        (1, &[RcWriteOnly]),
        (MTU, &[RcWriteOnly]),
        (MTU + 1, &[RcWriteFirst, RcWriteLast]),
        (2 * MTU, &[RcWriteFirst, RcWriteLast]),
        (4 * MTU, &[RcWriteFirst, RcWriteMiddle, RcWriteMiddle, RcWriteLast]),
    ] {
        ends.a.post(1, Operation::Write(to), 0, len).unwrap();
        let packets = ends.a.transmit(64);
        assert_eq!(opcodes(&packets), expected, "{len}");
        assert!(packets.iter().all(|packet| packet.payload.len() % 4 == 0));
        ends.arrive_at_b(&packets);
        ends.settle();
        assert_eq!(ends.a.completed(), [(1, Status::Success)]);
        assert_eq!(ends.b.read(0x1000, len as usize), ends.a.read(0, len as usize));
    }
}

#[test]
fn sends_have_their_opcodes_and_only_the_last_solicits() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    for (operation, only, last) in [
        (Operation::Send, RcSendOnly, RcSendLast),
        (Operation::SendImm(9), RcSendOnlyImm, RcSendLastImm),
        (Operation::SendInvalidate(9), RcSendOnlyInvalidate, RcSendLastInvalidate),
        (Operation::WriteImm(to, 9), RcWriteOnlyImm, RcWriteLastImm),
    ] {
        for len in [MTU, 3 * MTU] {
            let elements = [Element { address: 0, len, lkey: ends.a.mr.lkey }];
            let wr = SendWr::new(1, operation, Data::Elements(&elements));
            ends.a.send(&SendWr { solicited: true, ..wr }).unwrap();
            let packets = ends.a.transmit(64);
            let (end, before) = packets.split_last().unwrap();
            assert_eq!(end.bth.opcode, if len == MTU { only } else { last });
            assert!(end.bth.solicited && end.bth.ack_request);
            assert!(before.iter().all(|packet| !packet.bth.solicited && !packet.bth.ack_request));
            let carries = end.extensions.imm.map(|imm| imm.0).or(end.extensions.invalidate.map(|key| key.0));
            assert_eq!(carries, (operation != Operation::Send).then_some(9));
        }
    }
}

#[test]
fn psn_wraps_around() {
    let mut ends = Ends::new(Options { psn: [0xFF_FFFE, 0xFF_FFFF], ..RC });
    let remote = ends.b.remote(0x2000);
    ends.a.post(1, Operation::Write(remote), 0, 5 * MTU).unwrap();
    ends.a.post(2, Operation::Read(remote), 0x8_0000, 5 * MTU).unwrap();
    let packets = ends.a.transmit(64);
    assert_eq!(psns(&packets), [0xFF_FFFE, 0xFF_FFFF, 0, 1, 2, 3]);
    ends.arrive_at_b(&packets);
    ends.settle();
    assert_eq!(ends.a.completed(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(ends.a.read(0x8_0000, 5 * 256), ends.a.read(0, 5 * 256));
    assert_eq!(ends.a.counters.drops, QpDropCounters::default());
}

#[test]
fn message_of_2_gib_is_sent_and_a_longer_one_refused() {
    let pieces = 1 << 11;
    let mut ends = Ends::new(Options { max_sge: pieces + 1, mtu: Mtu::B4096, ..RC });
    let (lkey, to) = (ends.a.mr.lkey, ends.b.remote(0));
    let piece = Element { address: 0, len: 1 << 20, lkey };
    let mut elements = vec![piece; pieces as usize];
    ends.a.send(&SendWr::new(1, Operation::Write(to), Data::Elements(&elements))).unwrap();
    elements.push(Element { len: 1, ..piece });
    let refused = ends.a.send(&SendWr::new(2, Operation::Write(to), Data::Elements(&elements)));
    assert_eq!(refused, Err(PostError::Length { max: 1 << 31, found: (1 << 31) + 1 }));
    let (mut count, mut psn, mut burst) = (0, 0, Burst::default());
    while ends.a.completed().is_empty() {
        ends.a.with(|engine, ctx| engine.transmit(ctx, &mut burst, 1024));
        let Some(last) = burst.packets.last() else { panic!("stuck after {count} packets") };
        count += burst.len() as u64;
        psn = Bth::parse(&last.header).unwrap().0.psn;
        burst.clear();
        let ack = TestPacket::acknowledgement(&ends.a, psn, Syndrome::ACK);
        ends.arrive_at_a(&[ack]);
    }
    assert_eq!(count, (1 << 31) / 4096);
    assert_eq!(psn, 100 + (1 << 19) - 1);
}

#[test]
fn unsignalled_requests_have_no_completion_and_free_their_slots() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    for round in 0..10 {
        for id in 0..100 {
            let bytes = [round; 8];
            let wr = SendWr::new(id, Operation::Write(to), Data::Inline(&bytes));
            ends.a.send(&SendWr { signalled: id == 99, ..wr }).unwrap();
        }
        ends.settle();
        assert_eq!(ends.a.completed(), [(99, Status::Success)]);
    }
}

#[test]
fn ack_of_unsent_or_old_psn_is_ignored() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    ends.a.post(1, Operation::Write(to), 0, 2 * MTU).unwrap();
    assert_eq!(ends.a.transmit(1).len(), 1);
    // The second packet (101) was posted, but not sent.
    for psn in [101, 102, 5000, 100 + (1 << 23) - 1] {
        for syndrome in [Syndrome::ACK, Syndrome::Nak(NakCode::RemoteAccessError)] {
            let forged = TestPacket::acknowledgement(&ends.a, psn, syndrome);
            ends.arrive_at_a(&[forged]);
        }
    }
    for psn in [99, 0, 100_u32.wrapping_sub(1 << 23) & 0xFF_FFFF] {
        let old = TestPacket::acknowledgement(&ends.a, psn, Syndrome::ACK);
        ends.arrive_at_a(&[old]);
    }
    assert_eq!((ends.a.counters.drops.bad_ack, ends.a.counters.duplicates), (8, 3));
    assert_eq!((ends.a.completed(), ends.a.engine.state()), (vec![], QpState::ReadyToSend));
    let rest = ends.a.transmit(64);
    assert_eq!(psns(&rest), [101]);
}

#[test]
fn sequence_error_goes_back_once_and_acks_what_precedes() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    ends.a.post(1, Operation::Write(to), 0, MTU).unwrap();
    ends.a.post(2, Operation::Write(to), 0, 4 * MTU).unwrap();
    assert_eq!(psns(&ends.a.transmit(64)), [100, 101, 102, 103, 104]);
    let nak = TestPacket::acknowledgement(&ends.a, 102, Syndrome::Nak(NakCode::PsnSequenceError));
    ends.arrive_at_a(&[nak.clone(), nak]);
    assert_eq!(ends.a.completed(), [(1, Status::Success)]);
    let retransmitted = ends.a.transmit(64);
    assert_eq!(
        (psns(&retransmitted), opcodes(&retransmitted)),
        (vec![102, 103, 104], vec![RcWriteMiddle, RcWriteMiddle, RcWriteLast])
    );
    let old = TestPacket::acknowledgement(&ends.a, 102, Syndrome::Nak(NakCode::PsnSequenceError));
    ends.arrive_at_a(&[old]);
    assert_eq!((ends.a.transmit(64).len(), ends.a.counters.retransmitted), (0, 3));
}

#[test]
fn timeout_retransmits_with_back_off_until_retries_are_used_up() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    ends.a.post(1, Operation::Write(to), 0, 8).unwrap();
    ends.a.post(2, Operation::Write(to), 0, 8).unwrap();
    for round in 0..4 {
        assert_eq!(ends.a.transmit(64).len(), 2);
        let deadline = ends.a.engine.deadline().unwrap();
        assert_eq!(deadline - ends.a.now, TIMEOUT << round);
        ends.a.expire_at(deadline - 1);
        assert_eq!(ends.a.counters.timeouts, round);
        ends.a.expire_at(deadline);
    }
    assert_eq!(ends.a.completed(), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
    assert_eq!((ends.a.engine.state(), ends.a.engine.deadline()), (QpState::Error, None));
    assert!(!ends.a.engine.has_packets_to_send(ends.a.now));
}

#[test]
fn rnr_nak_is_retried_rnr_retry_times() {
    for endless in [false, true] {
        let mut ends = Ends::new(Options { rnr_retry: if endless { 7 } else { 2 }, ..RC });
        ends.a.post(1, Operation::Send, 0, 600).unwrap();
        for _ in 0..if endless { 50 } else { 2 } {
            let packets = ends.a.transmit(64);
            assert_eq!(packets.len(), 3);
            ends.arrive_at_b(&packets);
            let responses = ends.b.transmit(64);
            assert_eq!(responses.len(), 1, "one RNR NAK: the later packets are out of sequence");
            assert!(matches!(responses[0].syndrome(), Some(Syndrome::RnrNak(_))));
            ends.arrive_at_a(&responses);
            assert_eq!(ends.a.transmit(64).len(), 0, "the RNR delay is running");
            assert_eq!(ends.a.engine.deadline(), Some(ends.a.now + 10_000));
            ends.a.now += 10_000;
        }
        if endless {
            ends.b.post_recv(5, &[(0, 600)]);
            ends.settle();
            assert_eq!(
                (ends.a.completed(), ends.b.completed()),
                (vec![(1, Status::Success)], vec![(5, Status::Success)])
            );
        } else {
            let packets = ends.a.transmit(64);
            ends.arrive_at_b(&packets);
            let responses = ends.b.transmit(64);
            ends.arrive_at_a(&responses);
            assert_eq!(ends.a.completed(), [(1, Status::RnrRetryExceeded)]);
            assert_eq!(ends.a.engine.state(), QpState::Error);
        }
    }
}

#[test]
fn remote_error_nak_fails_the_request_and_the_connection() {
    for (code, status) in [
        (NakCode::InvalidRequest, Status::RemoteInvalid),
        (NakCode::RemoteAccessError, Status::RemoteAccess),
        (NakCode::RemoteOperationalError, Status::RemoteOperation),
    ] {
        let mut ends = Ends::new(RC);
        let to = ends.b.remote(0);
        (1..4).for_each(|id| ends.a.post(id, Operation::Write(to), 0, 8).unwrap());
        assert_eq!(ends.a.transmit(64).len(), 3);
        let nak = TestPacket::acknowledgement(&ends.a, 101, Syndrome::Nak(code));
        ends.arrive_at_a(&[nak]);
        assert_eq!(ends.a.completed(), [(1, Status::Success), (2, status), (3, Status::Flushed)]);
        assert_eq!(ends.a.engine.state(), QpState::Error);
        ends.a.post(4, Operation::Write(to), 0, 8).unwrap();
        assert_eq!(ends.a.completed(), [(4, Status::Flushed)]);
    }
}

#[test]
fn ack_past_a_read_makes_it_requested_again() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0);
    ends.a.post(1, Operation::Write(remote), 0, 8).unwrap();
    ends.a.post(2, Operation::Read(remote), 0, 2 * MTU).unwrap();
    ends.a.post(3, Operation::Write(remote), 0, 8).unwrap();
    assert_eq!(psns(&ends.a.transmit(64)), [100, 101, 103]);
    let ack = TestPacket::acknowledgement(&ends.a, 103, Syndrome::ACK);
    ends.arrive_at_a(&[ack.clone(), ack]);
    assert_eq!(ends.a.completed(), [(1, Status::Success)]);
    let retransmitted = ends.a.transmit(64);
    assert_eq!((psns(&retransmitted), opcodes(&retransmitted)), (vec![101, 103], vec![RcReadRequest, RcWriteOnly]));
}

#[test]
fn read_is_requested_again_from_the_first_missing_response() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0);
    let bytes: Vec<u8> = (0..1000).map(|index| (index % 247) as u8).collect();
    ends.b.memory.write(0, &bytes);
    ends.a.post(1, Operation::Read(remote), 0x8_0000, 1000).unwrap();
    let request = ends.a.transmit(64);
    ends.arrive_at_b(&request);
    let responses = ends.b.transmit(64);
    assert_eq!(
        opcodes(&responses),
        [RcReadResponseFirst, RcReadResponseMiddle, RcReadResponseMiddle, RcReadResponseLast]
    );
    ends.arrive_at_a(&[responses[0].clone(), responses[2].clone(), responses[3].clone()]);
    assert_eq!(ends.a.counters.out_of_sequence, 2);
    let retransmitted = ends.a.transmit(64);
    let reth = retransmitted[0].extensions.reth.unwrap();
    assert_eq!((retransmitted.len(), retransmitted[0].bth.psn, reth.address, reth.length), (1, 101, 256, 744));
    ends.arrive_at_b(&retransmitted);
    let responses = ends.b.transmit(64);
    assert_eq!((psns(&responses), responses[0].bth.opcode), (vec![101, 102, 103], RcReadResponseFirst));
    ends.arrive_at_a(&responses);
    assert_eq!(ends.a.completed(), [(1, Status::Success)]);
    assert_eq!(ends.a.read(0x8_0000, 1000), bytes);
}

#[test]
fn outstanding_reads_are_limited_and_a_fence_waits_for_all() {
    let mut ends = Ends::new(RC);
    let remote = ends.b.remote(0);
    (1..4).for_each(|id| ends.a.post(id, Operation::Read(remote), 0, 8).unwrap());
    let first = ends.a.transmit(64);
    assert_eq!(psns(&first), [100, 101]);
    ends.arrive_at_b(&first);
    let responses = ends.b.transmit(64);
    ends.arrive_at_a(&responses[..1]);
    assert_eq!(psns(&ends.a.transmit(64)), [102]);
    let wr = SendWr::new(4, Operation::Write(remote), Data::Inline(&[]));
    ends.a.send(&SendWr { fence: true, ..wr }).unwrap();
    assert_eq!(ends.a.transmit(64).len(), 0);
    ends.arrive_at_a(&responses[1..]);
    assert_eq!(ends.a.transmit(64).len(), 0, "one READ is still outstanding");
    let last = TestPacket::new(RcReadRequest, &ends.b, 102, &[]).reth(remote, 8);
    ends.arrive_at_b(&[last]);
    let responses = ends.b.transmit(64);
    ends.arrive_at_a(&responses);
    assert_eq!(psns(&ends.a.transmit(64)), [103]);
}

#[test]
fn window_limits_writes_and_reads_in_flight() {
    let mut ends = Ends::new(RC);
    ends.a.with(|engine, _| engine.limit_window(16 * MTU));
    let remote = ends.b.remote(0);
    ends.a.post(1, Operation::Write(remote), 0, 64 * MTU).unwrap();
    let packets = ends.a.transmit(64);
    assert_eq!(packets.len(), 16);
    assert!(packets.iter().any(|packet| packet.bth.ack_request), "otherwise it would wait forever");
    ends.arrive_at_b(&packets);
    ends.settle();
    ends.a.post(2, Operation::Read(remote), 0, 64 * MTU).unwrap();
    let requests = ends.a.transmit(64);
    let requested: u32 = requests.iter().map(|request| request.extensions.reth.unwrap().length).sum();
    assert!(requested <= 16 * MTU, "{requested} bytes requested at once");
    ends.arrive_at_b(&requests);
    ends.settle();
    assert_eq!(ends.a.completed(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(ends.a.counters.retransmitted + ends.a.counters.duplicates, 0);
}

#[test]
fn wrong_read_response_is_dropped_or_fatal_in_strict_mode() {
    for strict in [false, true] {
        let mut ends = Ends::new(Options { strict, ..RC });
        let remote = ends.b.remote(0);
        ends.a.post(1, Operation::Read(remote), 0, 8).unwrap();
        ends.a.transmit(64);
        let mut short = TestPacket::new(RcReadResponseOnly, &ends.a, 100, &[1; 4]);
        short.extensions.aeth = Some(Aeth { syndrome: Syndrome::ACK, msn: 1 });
        ends.arrive_at_a(std::slice::from_ref(&short));
        assert_eq!(ends.a.counters.drops.bad_length, 1);
        let expected = if strict { vec![(1, Status::BadResponse)] } else { vec![] };
        assert_eq!(ends.a.completed(), expected);
    }
}

#[test]
fn atomic_results_are_native_endian_even_in_two_elements() {
    let mut ends = Ends::new(RC);
    ends.b.memory.write(64, &0x0102_0304_0506_0708_u64.to_ne_bytes());
    let remote = ends.b.remote(64);
    let lkey = ends.a.mr.lkey;
    let elements = [Element { address: 0, len: 3, lkey }, Element { address: 100, len: 5, lkey }];
    let add = Operation::FetchAdd { remote, add: 1 };
    ends.a.send(&SendWr::new(1, add, Data::Elements(&elements))).unwrap();
    ends.a.post(2, Operation::CompareSwap { remote, compare: 0x0102_0304_0506_0709, swap: 5 }, 200, 8).unwrap();
    ends.settle();
    assert_eq!(ends.a.completed(), [(1, Status::Success), (2, Status::Success)]);
    let original = [ends.a.read(0, 3), ends.a.read(100, 5)].concat();
    assert_eq!(original, 0x0102_0304_0506_0708_u64.to_ne_bytes());
    assert_eq!(ends.a.read(200, 8), 0x0102_0304_0506_0709_u64.to_ne_bytes());
    assert_eq!(ends.b.read(64, 8), 5_u64.to_ne_bytes());
}

#[test]
fn acks_are_requested_every_ack_every_bytes_and_at_the_end() {
    let mut side = Side::new(2, &RC);
    let peer = Side::new(3, &RC);
    side.modify(Modify::Init { access: Access::ALL, q_key: 0 }).unwrap();
    let (timer, to) = (RnrTimer::from_code(1).unwrap(), peer.remote(0));
    side.modify(Modify::ReadyToReceive(ReadyToReceive {
        peer: Some((peer.address, 3)),
        mtu: Mtu::B256,
        psn: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: timer,
        ack_every: 1000,
    }))
    .unwrap();
    let timeout = Duration::from_nanos(TIMEOUT);
    side.modify(Modify::ReadyToSend(ReadyToSend { psn: 0, timeout, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 0 }))
        .unwrap();
    for id in 0..6 {
        side.post(id, Operation::Write(to), 0, MTU).unwrap();
    }
    let ack_requests: Vec<_> = side.transmit(64).iter().map(|packet| packet.bth.ack_request).collect();
    assert_eq!(ack_requests, [false, false, false, true, false, true]);
}

#[test]
fn window_narrows_on_loss_and_widens_on_acks() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    let round = |ends: &mut Ends, nak: Option<u32>| {
        ends.a.post(1, Operation::Write(to), 0, 1 << 19).unwrap();
        let sent = ends.a.transmit(4096);
        if let Some(missing) = nak {
            let nak = TestPacket::acknowledgement(
                &ends.a,
                sent[0].bth.psn + missing,
                Syndrome::Nak(NakCode::PsnSequenceError),
            );
            ends.arrive_at_a(&[nak]);
        } else {
            let deadline = ends.a.engine.deadline().unwrap();
            ends.a.expire_at(deadline);
        }
        let in_flight = ends.a.transmit(4096).len();
        ends.a.modify(Modify::Reset).unwrap();
        let peer = (ends.b.address, 3);
        ends.a.bring_up(peer, &RC, 100, 7000);
        (sent.len(), in_flight)
    };
    assert_eq!(round(&mut ends, Some(0)), (1024, 896));
    assert_eq!(round(&mut ends, None), (1024, 512));
    // Half of the packets arrived: first the window grows by an eighth of that number, up to its maximum.
    assert_eq!(round(&mut ends, Some(512)), (1024, 896));
    ends.a.post(1, Operation::Write(to), 0, 1 << 19).unwrap();
    ends.a.transmit(4096);
    let deadline = ends.a.engine.deadline().unwrap();
    ends.a.expire_at(deadline);
    let retransmitted = ends.a.transmit(4096);
    let ack = TestPacket::acknowledgement(&ends.a, retransmitted[retransmitted.len() - 1].bth.psn, Syndrome::ACK);
    ends.arrive_at_a(&[ack]);
    assert_eq!(ends.a.transmit(4096).len(), 512 + 512 / 8);
}
