//! Tests of the local side: posting, states, memory.

use super::*;

#[test]
fn posting_checks_state_capacity_elements_lengths_and_keys() {
    let mut ends = Ends::new(RC);
    let to = ends.b.remote(0);
    let write = Operation::Write(to);
    let a = &mut ends.a;
    let lkey = a.mr.lkey;
    let read_only = a.protection.register(a.pd, &a.memory, 0, 64, Access::NONE, Addressing::ZeroBased).unwrap().lkey;
    let element = |address, len, lkey| Element { address, len, lkey };
    let mut send = |operation, data: Data<'_>| a.send(&SendWr::new(1, operation, data));
    let refused = |index, refused| Err(PostError::Element { index, refused });
    use shotline_memory::AccessError::{Bounds, Rights, UnknownKey};

    let five = [element(0, 1, lkey); 5];
    assert_eq!(send(write, Data::Elements(&five)), Err(PostError::TooManyElements { max: 4, found: 5 }));
    let unknown = [element(0, 1, lkey), element(0, 1, lkey ^ 0x1100)];
    assert_eq!(send(write, Data::Elements(&unknown)), refused(1, UnknownKey));
    assert_eq!(send(write, Data::Elements(&[element(SCRATCH, 1, lkey)])), refused(0, Bounds));
    assert_eq!(send(write, Data::Elements(&[element(0, 8, read_only)])), Ok(()));
    assert_eq!(send(Operation::Read(to), Data::Elements(&[element(0, 8, read_only)])), refused(0, Rights));
    assert_eq!(send(write, Data::Inline(&[0; 65])), Err(PostError::Inline { max: 64, found: 65 }));
    assert_eq!(send(Operation::Read(to), Data::Inline(&[0; 8])), Err(PostError::Inline { max: 0, found: 8 }));
    let add = Operation::FetchAdd { remote: to, add: 1 };
    assert_eq!(send(add, Data::Elements(&[element(0, 4, lkey)])), Err(PostError::Length { max: 8, found: 4 }));
    let destination = crate::api::Destination { address: a.address, qp: 1, q_key: 2 };
    let wr = SendWr { destination: Some(destination), ..SendWr::new(1, write, Data::Inline(&[])) };
    assert_eq!(a.send(&wr), Err(PostError::Destination));
    for _ in 1..128 {
        assert_eq!(a.send(&SendWr::new(1, write, Data::Inline(&[]))), Ok(()));
    }
    assert_eq!(a.send(&SendWr::new(1, write, Data::Inline(&[]))), Err(PostError::Full));
}

#[test]
fn connection_without_rd_atomic_refuses_reads() {
    let mut ends = Ends::new(Options { max_rd_atomic: 0, ..RC });
    let remote = ends.b.remote(0);
    assert_eq!(ends.a.post(1, Operation::Read(remote), 0, 8), Err(PostError::Unsupported(QpType::Rc)));
}

#[test]
fn only_the_specified_state_transitions_are_allowed() {
    let mut side = Side::new(2, &RC);
    let ready = Modify::ReadyToSend(ReadyToSend {
        psn: 0,
        timeout: Duration::ZERO,
        retry_cnt: 0,
        rnr_retry: 0,
        max_rd_atomic: 0,
    });
    let init = Modify::Init { access: Access::ALL, q_key: 0 };
    assert!(matches!(side.modify(ready), Err(VerbsError::Invalid(_))));
    assert_eq!(side.post(1, Operation::Send, 0, 8), Err(PostError::State(QpState::Reset)));
    let receive = RecvWr { id: 1, elements: &[] };
    assert_eq!(side.with(|engine, ctx| engine.post_recv(ctx, &receive)), Err(PostError::State(QpState::Reset)));
    side.modify(init).unwrap();
    assert!(side.modify(ready).is_err());
    let without_peer = Modify::ReadyToReceive(ReadyToReceive {
        peer: None,
        mtu: Mtu::B256,
        psn: 0,
        max_dest_rd_atomic: 0,
        min_rnr_timer: RnrTimer::from_code(1).unwrap(),
        ack_every: 0,
    });
    assert!(side.modify(without_peer).is_err(), "a connection without a peer would accept any sender");
    assert_eq!(side.with(|engine, ctx| engine.post_recv(ctx, &receive)), Ok(()));
    assert_eq!(side.post(1, Operation::Send, 0, 8), Err(PostError::State(QpState::Init)));
    side.modify(Modify::Error).unwrap();
    assert_eq!(side.completed(), [(1, Status::Flushed)]);
    side.with(|engine, ctx| engine.post_recv(ctx, &receive)).unwrap();
    side.post(2, Operation::Send, 0, 8).unwrap();
    assert_eq!(side.completed(), [(1, Status::Flushed), (2, Status::Flushed)]);
    assert!(side.modify(init).is_err());
    side.modify(Modify::Reset).unwrap();
    assert_eq!(side.engine.state(), QpState::Reset);
}

#[test]
fn error_flushes_all_in_order_and_reset_discards_all() {
    for change in [Modify::Error, Modify::Reset] {
        let mut ends = Ends::new(RC);
        let to = ends.b.remote(0);
        ends.a.post_recv(7, &[(0, 600)]);
        ends.a.post_recv(8, &[(0, 600)]);
        let first = TestPacket::new(Opcode::RcSendFirst, &ends.a, 7000, &[1; 256]);
        ends.arrive_at_a(&[first]);
        let wr = SendWr::new(1, Operation::Write(to), Data::Inline(&[1]));
        ends.a.send(&SendWr { signalled: false, ..wr }).unwrap();
        ends.a.post(2, Operation::Write(to), 0, 8).unwrap();
        ends.a.transmit(1);
        ends.a.modify(change).unwrap();
        let flushed = [1, 2, 7, 8].map(|id| (id, Status::Flushed));
        assert_eq!(ends.a.completed(), if matches!(change, Modify::Error) { flushed.to_vec() } else { vec![] });
        assert_eq!((ends.a.receives.len(), ends.a.engine.deadline()), (0, None));
        assert!(!ends.a.engine.has_packets_to_send(ends.a.now) && ends.a.transmit(64).is_empty());
        if matches!(change, Modify::Reset) {
            // It can be connected again, and starts with a fresh state.
            let peer = (ends.b.address, 3);
            ends.a.bring_up(peer, &RC, 100, 7000);
            ends.a.post_recv(9, &[(0x5000, 600)]);
            ends.a.post(3, Operation::Write(to), 0, 600).unwrap();
            ends.b.post(4, Operation::Send, 0, 600).unwrap();
            ends.settle();
            assert_eq!(ends.a.completed(), [(9, Status::Success), (3, Status::Success)]);
        }
    }
}

#[test]
fn posted_request_pins_memory_after_its_key_is_deregistered() {
    let mut ends = Ends::new(RC);
    let own = Region::host(4096).unwrap();
    own.write(0, &[7; 600]);
    let a = &mut ends.a;
    let mr = a.protection.register(a.pd, &own, 0, 4096, Access::NONE, Addressing::ZeroBased).unwrap();
    let elements = [Element { address: 0, len: 600, lkey: mr.lkey }];
    let write = Operation::Write(ends.b.remote(0));
    a.send(&SendWr::new(1, write, Data::Elements(&elements))).unwrap();
    assert!(a.protection.deregister(mr.lkey));
    drop(a.protection.take_changed());
    let references = Arc::strong_count(&own);
    let mut burst = Burst::default();
    a.with(|engine, ctx| engine.transmit(ctx, &mut burst, 64));
    assert!(
        burst.packets.iter().all(|packet| !a.protection.regions().get(burst.elements(packet)[0].region).is_empty())
    );
    let ack = TestPacket::acknowledgement(&ends.a, 102, Syndrome::ACK);
    ends.arrive_at_a(&[ack]);
    assert_eq!(ends.a.completed(), [(1, Status::Success)]);
    drop(ends.a.protection.take_changed());
    assert!(Arc::strong_count(&own) < references);
}

#[test]
fn shared_receives_survive_the_failure_of_a_queue_pair() {
    let mut ends = Ends::new(RC);
    let config = QpConfig { srq: Some(crate::api::Srq(0)), ..*ends.b.engine.config() };
    let buffer = Sge { region: RegionId(0), offset: BUFFER, len: Engine::buffer_bytes(&config) };
    let mut shared = Engine::new(3, &config, buffer);
    std::mem::swap(&mut ends.b.engine, &mut shared);
    let peer = (ends.a.address, 2);
    ends.b.bring_up(peer, &RC, 7000, 100);
    let elements = [Element { address: 0, len: 600, lkey: ends.b.mr.lkey }];
    for id in [5, 6] {
        ends.b.receives.post(&mut ends.b.protection, &RecvWr { id, elements: &elements }).unwrap();
    }
    let first = TestPacket::new(Opcode::RcSendFirst, &ends.b, 100, &[1; 256]);
    ends.arrive_at_b(&[first]);
    ends.b.modify(Modify::Error).unwrap();
    assert_eq!((ends.b.completed(), ends.b.receives.len()), (vec![(5, Status::Flushed)], 1));
}

#[test]
fn receive_slot_is_freed_by_finish_and_not_by_take() {
    let mut side = Side::new(2, &RC);
    let element = [Element { address: 0, len: 8, lkey: side.mr.lkey }];
    let mut queue = RecvQueue::new(side.pd, 2, 1);
    let mut post = |queue: &mut RecvQueue, id| queue.post(&mut side.protection, &RecvWr { id, elements: &element });
    post(&mut queue, 1).unwrap();
    post(&mut queue, 2).unwrap();
    assert_eq!(post(&mut queue, 3), Err(PostError::Full));
    let slot = queue.take().unwrap();
    assert_eq!(post(&mut queue, 3), Err(PostError::Full));
    assert_eq!(queue.finish(&mut side.protection, slot), 1);
    let mut post = |queue: &mut RecvQueue, id| queue.post(&mut side.protection, &RecvWr { id, elements: &element });
    post(&mut queue, 3).unwrap();
    let mut ids = vec![];
    queue.flush(&mut side.protection, |id| ids.push(id));
    assert_eq!((ids, queue.len()), (vec![2, 3], 0));
}

#[test]
fn queue_pair_state_is_below_4_kib() {
    // The rest of the 16 KiB that a target reserves for a queue pair (`cm::Exports`) is for its responses.
    let bytes = size_of::<rc::Rc>() + size_of::<Engine>() + size_of::<QpCounters>();
    assert!(bytes < 4096, "{bytes} bytes");
}
