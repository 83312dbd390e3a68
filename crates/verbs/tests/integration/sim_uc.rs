//! Tests of unreliable connections over the simulated network.

use crate::model::Workload;
use shotline_memory::Access;
use shotline_testing::seeds;
use shotline_verbs::api::{CompletionKind, Data, Element, Mtu, Operation, QpType, RecvWr, Remote, SendWr, Status};
use shotline_verbs::sim::{Link, Options, SimNetwork};

#[test]
fn loss_free_link_delivers_everything() {
    for seed in seeds(0..300) {
        let options =
            Options { mtu: Mtu::IBTA[seed as usize % 5], psn: [0xFF_FFFD, seed as u32], ..Options::default() };
        let mut work = Workload::new(QpType::Uc, seed, &options);
        work.network.node_mut(1).steers = seed % 4 > 0;
        (0..2).for_each(|from| work.plan(from, 16));
        let link = Link::random_lossless(&mut work.network.random);
        work.network.set_links(link);
        work.run(false);
        work.check_end();
        for side in 0..2 {
            let counters = work.network.node(side).qp_counters(work.sides[side].qp).unwrap();
            assert_eq!(
                (counters.packets_in, counters.out_of_sequence),
                (work.sides[side].accepted_packets, 0),
                "{counters:#?}"
            );
        }
    }
}

#[test]
fn completed_messages_are_whole_and_stay_unchanged() {
    const MESSAGES: u64 = 40;
    const SLOT_BYTES: u64 = 20_000;
    for seed in seeds(0..500) {
        let mtu = Mtu::IBTA[seed as usize % 5];
        let options = Options { mtu, depth: 128, psn: [0xFF_FFF0, 7], strict: seed % 2 == 0, ..Options::default() };
        let mut network = SimNetwork::new(seed, &[2 * (MESSAGES * SLOT_BYTES) as usize; 2]).unwrap();
        let [(a, _), (b, cq)] = network.connect(QpType::Uc, &options).unwrap();
        let link = Link::random(&mut network.random);
        network.set_links(link);
        network.node_mut(1).steers = seed % 4 > 0;
        let from = network.node_mut(0).register(0, MESSAGES * SLOT_BYTES, Access::NONE).unwrap();
        let all = 2 * MESSAGES * SLOT_BYTES;
        let to = network.node_mut(1).register(0, all, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();

        // Receives lie after the ranges that are written, and duplicates of messages can use more of them than were
        // sent.
        for id in 0..MESSAGES {
            let elements = [Element { address: (MESSAGES + id) * SLOT_BYTES, len: SLOT_BYTES as u32, lkey: to.lkey }];
            network.post_recv(1, b, &RecvWr { id, elements: &elements }).unwrap();
        }
        let mut messages = Vec::new();
        let mut whole = Vec::new();
        for id in 0..MESSAGES {
            let len = network.random.between(8, 4 * u64::from(mtu.bytes())).min(SLOT_BYTES);
            let mut message = vec![0; len as usize];
            network.random.fill_bytes(&mut message);
            message[..8].copy_from_slice(&id.to_le_bytes());
            network.node(0).memory().write((id * SLOT_BYTES) as usize, &message);
            messages.push(message);
            let element = [Element { address: id * SLOT_BYTES, len: len as u32, lkey: from.lkey }];
            let remote = Remote { address: id * SLOT_BYTES, rkey: to.rkey };
            let operation = network.random.choose(&[Operation::Send, Operation::WriteImm(remote, id as u32)]);
            network.post_send(0, a, &SendWr::new(id, operation, Data::Elements(&element))).unwrap();
            for _ in 0..network.random.below(4) {
                network.step();
            }
            check(&mut network, cq, &messages, &mut whole);
        }
        assert!(network.run(1_000_000_000));
        check(&mut network, cq, &messages, &mut whole);
        for (address, message) in &whole {
            assert!(
                network.node(1).read(*address, messages[*message].len()) == messages[*message],
                "it has changed since"
            );
        }
        let (counters, link) = (network.node(1).qp_counters(b).unwrap(), network.link_counters(0));
        if link.lost + link.corrupted + link.reordered + link.duplicated == 0 && counters.drops.no_receive == 0 {
            assert!(whole.len() >= MESSAGES as usize, "{counters:#?}");
        }
    }

    fn check(
        network: &mut SimNetwork,
        cq: shotline_verbs::api::Cq,
        messages: &[Vec<u8>],
        whole: &mut Vec<(u64, usize)>,
    ) {
        while let Some(completion) = network.node_mut(1).poll(cq) {
            assert_eq!(completion.status, Status::Success);
            let receive = (MESSAGES + completion.id) * SLOT_BYTES;
            let (address, message) = match completion.kind {
                CompletionKind::Recv => {
                    let head = network.node(1).read(receive, 8);
                    (receive, usize::from(head[0]))
                }
                _ => (u64::from(completion.imm.unwrap()) * SLOT_BYTES, completion.imm.unwrap() as usize),
            };
            assert_eq!(completion.bytes as usize, messages[message].len());
            assert!(network.node(1).read(address, messages[message].len()) == messages[message], "message {message}");
            whole.push((address, message));
        }
    }
}
