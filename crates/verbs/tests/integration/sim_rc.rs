//! Tests of reliable connections over the simulated network, against a reference model.

use crate::model::Workload;
use shotline_memory::Access;
use shotline_random::SplitMix64;
use shotline_testing::seeds;
use shotline_verbs::api::{
    CompletionKind, Data, Element, Mtu, Operation, QpState, QpType, RecvWr, Remote, SendWr, Status,
};
use shotline_verbs::engine::QpDropCounters;
use shotline_verbs::sim::{Link, Options, SimNetwork};
use std::time::Duration;

fn options(seed: u64) -> Options {
    let random = &mut SplitMix64::new(!seed);
    let mut psn = || {
        let any = random.next_u64() as u32 & 0xFF_FFFF;
        random.choose(&[0, 0x10, 0xFF_FFFE, 0xFF_FFFF, 0xFF_FFF0, 0x7F_FFFE, 0x80_0000, any])
    };
    Options {
        psn: [psn(), psn()],
        mtu: random.choose(&Mtu::IBTA),
        rd_atomic: random.choose(&[1, 2, 4, 16]),
        depth: random.choose(&[16, 64]),
        ack_every: random.choose(&[0, 0, 1, 3_000, 1 << 20]),
        retry_cnt: u8::MAX,
        timeout: Duration::from_millis(1),
        strict: random.chance(0.5),
        ..Options::default()
    }
}

fn work(seed: u64, max: u64) -> Workload {
    let mut work = Workload::new(QpType::Rc, seed, &options(seed));
    work.network.node_mut(0).steers = work.network.random.chance(0.7);
    work.network.node_mut(1).steers = work.network.random.chance(0.7);
    for from in 0..2 {
        let count = work.network.random.between(0, max);
        work.plan(from, count);
    }
    work
}

#[test]
fn loss_free_link_needs_no_retransmission() {
    for seed in seeds(0..500) {
        let mut work = work(seed, 16);
        let link = Link::random_lossless(&mut work.network.random);
        work.network.set_links(link);
        work.run(false);
        work.check_end();
        for index in 0..2 {
            let (side, node) = (&work.sides[index], work.network.node(index));
            let counters = node.qp_counters(side.qp).unwrap();
            let peer = work.network.node(1 - index).qp_counters(work.sides[1 - index].qp).unwrap();
            assert_eq!(counters.packets_in, peer.packets_out);
            assert_eq!(
                (counters.retransmitted, counters.timeouts, counters.duplicates, counters.out_of_sequence),
                (0, 0, 0, 0)
            );
            assert_eq!(counters.packets_in, side.accepted_packets + counters.acks_in, "{counters:#?}");
            assert_eq!((counters.naks_in, counters.drops), Default::default());
        }
    }
}

#[test]
fn every_request_is_executed_once_despite_faults() {
    for seed in seeds(0..500) {
        let mut work = work(seed, 10);
        for index in 0..2 {
            let link = Link::random(&mut work.network.random);
            work.network.set_link(index, link);
        }
        let late = work.network.random.chance(0.3);
        work.run(late);
        work.check_end();
        for index in 0..2 {
            let side = &work.sides[index];
            let counters = *work.network.node(index).qp_counters(side.qp).unwrap();
            let (naks, drops) = (counters.naks_in, counters.drops);
            let naks = naks.sequence + naks.receiver_not_ready;
            let dropped = counters.duplicates + counters.out_of_sequence + drops.no_receive;
            assert_eq!(counters.packets_in, side.accepted_packets + counters.acks_in + naks + dropped, "{counters:#?}");
            // A conforming peer's packets are not rejected. A late copy of an atomic operation whose result has been
            // discarded is a duplicate, too.
            let QpDropCounters { no_receive, bad_psn, .. } = drops;
            assert!(bad_psn <= counters.duplicates);
            assert_eq!(drops, QpDropCounters { no_receive, bad_psn, ..QpDropCounters::default() });
        }
    }
}

#[test]
fn unreachable_peer_fails_the_oldest_and_flushes_the_others() {
    for seed in seeds(0..300) {
        let mut work = Workload::new(QpType::Rc, seed, &Options { retry_cnt: 3, ..options(seed) });
        for from in 0..2 {
            work.plan(from, 12);
        }
        for index in 0..2 {
            work.post_receives(index, usize::MAX);
            work.post_sends(index, 12);
        }
        let link = Link::random_lossless(&mut work.network.random);
        work.network.set_links(link);
        for _ in 0..work.network.random.below(12) {
            work.network.step();
        }
        work.check_completions();
        work.network.set_links(Link::CUT);
        assert!(work.network.run(100_000_000_000), "retries are limited");
        for index in 0..2 {
            let side = &mut work.sides[index];
            let mut receives = 0;
            let mut failed = false;
            while let Some(completion) = work.network.node_mut(index).poll(side.cq) {
                if matches!(completion.kind, CompletionKind::Recv | CompletionKind::RecvWriteImm) {
                    receives += 1;
                    assert!(matches!(completion.status, Status::Success | Status::Flushed));
                    continue;
                }
                // Successful requests may be unsignalled; failures always post a completion.
                let oldest = loop {
                    let oldest = side.posted.pop_front().expect("every request completes once");
                    if oldest.completion.id == completion.id {
                        break oldest;
                    }
                    assert!(!oldest.signalled && !failed, "{oldest:?} was skipped before {completion:?}");
                };
                let expected = match (completion.status, failed) {
                    (Status::Success, false) => continue,
                    (_, false) => Status::RetryExceeded,
                    (_, true) => Status::Flushed,
                };
                assert_eq!((completion.status, completion.kind), (expected, oldest.completion.kind));
                failed = true;
            }
            assert!(side.posted.is_empty());
            let engine = work.network.node(index).engine(side.qp).unwrap();
            let state = if failed { QpState::Error } else { QpState::ReadyToSend };
            assert_eq!((engine.state(), engine.deadline()), (state, None));
            let (found, waiting) = (receives, side.arriving());
            assert!(!failed || found >= waiting, "{found} of {waiting} receives completed");
        }
    }
}

#[test]
fn rnr_retries_end_after_the_configured_number() {
    for rnr_retries in 0..7 {
        let mut work = Workload::new(QpType::Rc, 5, &Options { rnr_retry: rnr_retries, ..Options::default() });
        while work.receives_planned(1) == 0 {
            work.plan(0, 1);
        }
        work.post_sends(0, u64::MAX);
        assert!(work.network.run(10_000_000_000));
        let (qp, cq) = (work.sides[0].qp, work.sides[0].cq);
        let failed =
            std::iter::from_fn(|| work.network.node_mut(0).poll(cq)).find(|done| done.status != Status::Success);
        assert_eq!(failed.map(|done| done.status), Some(Status::RnrRetryExceeded));
        let counters = work.network.node(0).qp_counters(qp).unwrap();
        assert_eq!(counters.naks_in.receiver_not_ready, u64::from(rnr_retries) + 1);
    }
}

#[test]
fn congestion_marks_reduce_loss() {
    const LEN: u32 = 1 << 16;
    // 500 MB/s with a queue that is shorter than the window, with and without marking.
    let [marked, unmarked] = [40_000, u64::MAX].map(|mark| {
        let mut network = SimNetwork::new(1, &[LEN as usize; 2]).unwrap();
        let options = Options { mtu: Mtu::B4096, retry_cnt: u8::MAX, depth: 256, ..Options::default() };
        let [(a, cq), (b, _)] = network.connect(QpType::Rc, &options).unwrap();
        network.set_links(Link { rate: 500_000_000, queue: 300_000, mark, ..Link::PERFECT });
        let from = network.node_mut(0).register(0, LEN.into(), Access::NONE).unwrap();
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let to = network.node_mut(1).register(0, LEN.into(), rights).unwrap();
        let element = [Element { address: 0, len: LEN, lkey: from.lkey }];
        let write = Operation::Write(Remote { address: 0, rkey: to.rkey });
        for id in 0..200 {
            network.post_send(0, a, &SendWr::new(id, write, Data::Elements(&element))).unwrap();
        }
        assert!(network.run(100_000_000_000));
        assert!((0..200).all(|id| network.node_mut(0).poll(cq).is_some_and(|done| done.id == id)));
        let (cnps_out, counters) =
            (network.node(1).qp_counters(b).unwrap().cnps_out, network.node(0).qp_counters(a).unwrap());
        assert_eq!((counters.cnps_in, cnps_out > 0), (cnps_out, mark < u64::MAX));
        network.link_counters(0).overflowed
    });
    assert!(marked < unmarked / 3, "{marked} packets lost with marks, {unmarked} without");
}

#[test]
fn operations_longer_than_the_window_complete() {
    const LEN: u64 = (1 << 20) + 13;
    for seed in seeds(0..9) {
        let mut network = SimNetwork::new(seed, &[3 << 20; 2]).unwrap();
        let options = Options { mtu: Mtu::B256, retry_cnt: 50, psn: [0xFF_FF00; 2], ..options(seed) };
        let [(a, a_cq), (b, b_cq)] = network.connect(QpType::Rc, &options).unwrap();
        let loss = if seed < 3 { 0.0 } else { 0.01 };
        network.set_links(Link { loss, coalesce: 10_000, ..Link::PERFECT });
        let keys = [0, 1].map(|index| network.node_mut(index).register(0, 3 << 20, Access::ALL).unwrap());
        let mut bytes = vec![0; LEN as usize];
        network.random.fill_bytes(&mut bytes);
        let source = usize::from(seed % 3 == 2);
        network.node(source).memory().write(5, &bytes);

        let element = |index: usize| {
            let (first, second) = (100_001, LEN as u32 - 100_001);
            let start = if index == source { 5 } else { 1 << 20 };
            let lkey = keys[index].lkey;
            [Element { address: start, len: first, lkey }, Element { address: start + 100_001, len: second, lkey }]
        };
        let remote = Remote { address: if source == 1 { 5 } else { 1 << 20 }, rkey: keys[1].rkey };
        let operation = [Operation::Send, Operation::Write(remote), Operation::Read(remote)][seed as usize % 3];
        network.post_recv(1, b, &RecvWr { id: 1, elements: &element(1) }).unwrap();
        network.post_send(0, a, &SendWr::new(2, operation, Data::Elements(&element(0)))).unwrap();
        assert!(network.run(100_000_000_000));
        assert_eq!(network.node_mut(0).poll(a_cq).map(|done| (done.id, done.status)), Some((2, Status::Success)));
        let received = network.node_mut(1).poll(b_cq).map(|done| (done.id, u64::from(done.bytes)));
        assert_eq!(received, (operation == Operation::Send).then_some((1, LEN)));
        assert!(network.node(1 - source).read(1 << 20, LEN as usize) == bytes);
        let retransmitted =
            [(0, a), (1, b)].map(|(index, qp)| network.node(index).qp_counters(qp).unwrap().retransmitted);
        assert!(loss > 0.0 || retransmitted == [0, 0], "{retransmitted:?}");
    }
}
