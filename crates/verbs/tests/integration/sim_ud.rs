//! Tests of unreliable datagrams over the simulated network.

use shotline_memory::Access;
use shotline_testing::seeds;
use shotline_verbs::api::{
    Cq, Data, Destination, Element, Modify, Mtu, Operation, PostError, QpType, RecvWr, SendWr, Status,
};
use shotline_verbs::sim::{Link, Options, SimNetwork, seal};
use shotline_wire::roce::UdHeader;
use std::collections::BTreeMap;

const TIME: u64 = 1_000_000_000;

struct Ends {
    network: SimNetwork,
    ends: [(u32, Cq); 2],
    lkeys: [u32; 2],
}

impl Ends {
    fn new(seed: u64, options: &Options) -> Self {
        let mut network = SimNetwork::new(seed, &[1 << 18; 2]).unwrap();
        let ends = network.connect(QpType::Ud, options).unwrap();
        let lkeys = [0, 1].map(|index| network.node_mut(index).register(0, 1 << 18, Access::LOCAL_WRITE).unwrap().lkey);
        Self { network, ends, lkeys }
    }
    fn to_other(&self, from: usize, q_key: u32) -> Option<Destination> {
        Some(Destination { address: self.network.node(1 - from).address(), qp: self.ends[1 - from].0, q_key })
    }
    fn send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.network.post_send(0, self.ends[0].0, wr)
    }
    fn receive(&mut self, id: u64, address: u64, len: u32) {
        let elements = [Element { address, len, lkey: self.lkeys[1] }];
        self.network.post_recv(1, self.ends[1].0, &RecvWr { id, elements: &elements }).unwrap();
    }
}

#[test]
fn received_datagrams_are_intact_despite_faults() {
    for seed in seeds(0..400) {
        let mtu = Mtu::IBTA[seed as usize % 5];
        let mut ends = Ends::new(seed, &Options { mtu, ..Options::default() });
        let link = if seed % 4 == 0 {
            Link::random_lossless(&mut ends.network.random)
        } else {
            Link::random(&mut ends.network.random)
        };
        ends.network.set_links(link);
        ends.network.node_mut(1).steers = seed % 3 > 0;

        let mut sent = BTreeMap::new();
        for id in 0..40_u32 {
            ends.receive(u64::from(id), u64::from(id) * 5000, 4100);
            let len = ends.network.random.between(0, mtu.bytes().into()) as usize;
            let len = if id % 3 == 0 { mtu.bytes() as usize } else { len };
            let mut message = vec![0; len];
            ends.network.random.fill_bytes(&mut message);
            ends.network.node(0).memory().write(id as usize * 5000, &message);
            let element = [Element { address: u64::from(id) * 5000, len: len as u32, lkey: ends.lkeys[0] }];
            let data = if len <= 64 && id % 2 == 0 { Data::Inline(&message) } else { Data::Elements(&element) };
            let wr = SendWr {
                destination: ends.to_other(0, 0x1111_1111),
                ..SendWr::new(id.into(), Operation::SendImm(id), data)
            };
            ends.send(&wr).unwrap();
            sent.insert(id, message);
            if ends.network.random.chance(0.3) {
                ends.network.step();
            }
        }
        assert!(ends.network.run(TIME));

        let [(a, a_cq), (b, b_cq)] = ends.ends;
        for id in 0..40 {
            let completion = ends.network.node_mut(0).poll(a_cq).expect("every datagram completes when it is sent");
            assert_eq!((completion.id, completion.status), (id, Status::Success));
        }
        let mut arrived = 0;
        while let Some(completion) = ends.network.node_mut(1).poll(b_cq) {
            let message = &sent[&completion.imm.unwrap()];
            assert_eq!(completion.id, arrived, "receives are used in their order");
            assert_eq!(completion.source, Some((ends.network.node(0).address(), a)));
            assert_eq!(ends.network.node(1).read(completion.id * 5000, completion.bytes as usize), *message);
            arrived += 1;
        }
        let (counters, link) = (*ends.network.node(1).qp_counters(b).unwrap(), *ends.network.link_counters(0));
        assert_eq!(counters.packets_in, arrived + counters.drops.no_receive);
        assert_eq!(ends.network.node(1).counters.arrived, link.sent - link.lost + link.duplicated);
        if link.lost + link.duplicated + link.corrupted == 0 {
            assert_eq!(arrived, 40);
        }
        if ends.network.node(1).steers && arrived > 0 && counters.drops.no_receive == 0 && link.corrupted == 0 {
            assert_eq!(counters.bytes_copied, 0, "every payload is received at its destination");
        }
    }
}

#[test]
fn wrong_q_key_is_dropped_and_the_high_bit_means_the_own_key() {
    let mut ends = Ends::new(1, &Options::default());
    ends.receive(1, 0, 64);
    for (id, q_key) in [(1, 0x1111_1112), (2, 0), (3, 0x8000_0000)] {
        let destination = ends.to_other(0, q_key);
        ends.send(&SendWr { destination, ..SendWr::new(id, Operation::Send, Data::Inline(&[id as u8])) }).unwrap();
    }
    assert!(ends.network.run(TIME));
    let completion = ends.network.node_mut(1).poll(ends.ends[1].1).unwrap();
    assert_eq!((completion.id, completion.bytes, ends.network.node(1).read(0, 1)), (1, 1, vec![3]));
    let counters = ends.network.node(1).qp_counters(ends.ends[1].0).unwrap();
    assert_eq!((counters.drops.bad_q_key, counters.packets_out), (2, 0));
}

#[test]
fn datagram_longer_than_its_receive_is_dropped() {
    let mut ends = Ends::new(1, &Options::default());
    ends.receive(7, 100, 8);
    for message in [&[1; 9][..], &[2; 8]] {
        let destination = ends.to_other(0, 0x1111_1111);
        ends.send(&SendWr { destination, ..SendWr::new(0, Operation::Send, Data::Inline(message)) }).unwrap();
    }
    assert!(ends.network.run(TIME));
    let completion = ends.network.node_mut(1).poll(ends.ends[1].1).unwrap();
    assert_eq!((completion.id, completion.bytes), (7, 8));
    assert_eq!(ends.network.node(1).read(100, 12), [2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0]);
    assert_eq!(ends.network.node(1).qp_counters(ends.ends[1].0).unwrap().drops.bad_length, 1);
}

#[test]
fn invalid_requests_are_not_posted() {
    let mut ends = Ends::new(1, &Options { mtu: Mtu::B256, ..Options::default() });
    let destination = ends.to_other(0, 1);
    let element = [Element { address: 0, len: 257, lkey: ends.lkeys[0] }];
    let long = SendWr { destination, ..SendWr::new(1, Operation::Send, Data::Elements(&element)) };
    assert_eq!(ends.send(&long), Err(PostError::Length { max: 256, found: 257 }));
    let nowhere = SendWr::new(1, Operation::Send, Data::Inline(b"x"));
    assert_eq!(ends.send(&nowhere), Err(PostError::Destination));
    let invalidate = Operation::SendInvalidate(5);
    let wrong = SendWr { destination, ..SendWr::new(1, invalidate, Data::Inline(b"x")) };
    assert_eq!(ends.send(&wrong), Err(PostError::Unsupported(QpType::Ud)));
}

#[test]
fn error_state_flushes_all_requests() {
    let mut ends = Ends::new(1, &Options::default());
    let [(a, a_cq), (b, b_cq)] = ends.ends;
    ends.receive(5, 0, 64);
    ends.network.modify(1, b, &Modify::Error).unwrap();
    ends.network.modify(0, a, &Modify::Error).unwrap();
    let destination = ends.to_other(0, 0x1111_1111);
    ends.send(&SendWr { destination, ..SendWr::new(9, Operation::Send, Data::Inline(b"x")) }).unwrap();
    ends.receive(6, 0, 64);
    assert!(ends.network.run(TIME));
    let flushed = |completion: shotline_verbs::api::Completion| (completion.id, completion.status);
    assert_eq!(ends.network.node_mut(0).poll(a_cq).map(flushed), Some((9, Status::Flushed)));
    assert_eq!(ends.network.node_mut(1).poll(b_cq).map(flushed), Some((5, Status::Flushed)));
    assert_eq!(ends.network.node_mut(1).poll(b_cq).map(flushed), Some((6, Status::Flushed)));
}

#[test]
fn congestion_notifications_slow_the_sender() {
    let mut ends = Ends::new(1, &Options { mtu: Mtu::B4096, depth: 2048, ..Options::default() });
    // 1 GB/s, and a mark when 64 KiB are queued.
    ends.network.set_link(0, Link { rate: 1_000_000_000, mark: 1 << 16, queue: 1 << 20, ..Link::PERFECT });
    let element = [Element { address: 0, len: 4096, lkey: ends.lkeys[0] }];
    for id in 0..4000 {
        // No receive is needed: marks are processed before receives.
        let destination = ends.to_other(0, 0x1111_1111);
        let wr = SendWr::new(id, Operation::Send, Data::Elements(&element));
        let wr = SendWr { destination, signalled: false, ..wr };
        while let Err(error) = ends.send(&wr) {
            assert_eq!(error, PostError::Full);
            ends.network.step();
        }
        // A packet occupies the link for one step, so this offers twice its capacity.
        if id % 2 == 0 {
            ends.network.step();
        }
    }
    assert!(ends.network.run(TIME));
    let (sender, link) = (*ends.network.node(0).qp_counters(ends.ends[0].0).unwrap(), ends.network.link_counters(0));
    let cnps_out = ends.network.node(1).qp_counters(ends.ends[1].0).unwrap().cnps_out;
    assert!(cnps_out > 1 && sender.cnps_in == cnps_out, "{cnps_out} notifications sent, {} received", sender.cnps_in);
    assert!(link.overflowed == 0 && link.marked > 0 && link.marked < 1000, "{link:?}");
    // 16 MB take 16 ms.
    let elapsed_ns = ends.network.now() - 1_000_000;
    assert!(elapsed_ns < 32_000_000, "the link is well utilised: {elapsed_ns} ns");
}

#[test]
fn forged_datagrams_have_no_effect() {
    let mut ends = Ends::new(1, &Options::default());
    let (b, b_cq) = ends.ends[1];
    ends.receive(1, 0, 64);
    let (from, to) = (ends.network.node(0).address(), ends.network.node(1).address());
    let valid = UdHeader {
        opcode: shotline_wire::bth::Opcode::UdSendOnly,
        dest_qp: b,
        src_qp: 5,
        q_key: 0x1111_1111,
        psn: 0,
        imm: None,
        solicited: false,
        pad: 0,
    };
    let mut send = |header: UdHeader, payload: &[u8]| ends.network.inject(seal(from, to, &header.emit(), payload));
    send(UdHeader { q_key: 1, ..valid }, &[1; 4]);
    send(UdHeader { dest_qp: b + 1, ..valid }, &[2; 4]);
    send(valid, &[3; 2048]);
    send(UdHeader { pad: 3, ..valid }, &[4; 4]);
    assert!(ends.network.run(TIME));
    let counters = *ends.network.node(1).qp_counters(b).unwrap();
    assert_eq!((counters.drops.bad_q_key, counters.drops.bad_length, counters.packets_out), (1, 1, 0));
    assert_eq!(ends.network.node(1).counters.unknown_qp, 1);
    // The last packet was valid: one byte.
    let completion = ends.network.node_mut(1).poll(b_cq).unwrap();
    assert_eq!((completion.bytes, ends.network.node(1).read(0, 2)[0]), (1, 4));
    assert_eq!(ends.network.node_mut(1).poll(b_cq), None);
}
