//! Tests of several connections over one link that share one receive queue.

use shotline_memory::Access;
use shotline_testing::seeds;
use shotline_verbs::api::{CompletionKind, Data, Element, Mtu, Operation, QpConfig, QpType, RecvWr, SendWr, Status};
use shotline_verbs::sim::{Link, Options, SimNetwork};
use std::time::Duration;

const MESSAGES: u64 = 12;
const SLOT_BYTES: u64 = 4096;
const RECEIVES: u64 = 200;

/// Returns message `number` of connection `qp`.
fn message(seed: u64, qp: u64, number: u64, mtu: u64) -> Vec<u8> {
    let mut random = shotline_random::SplitMix64::new(seed ^ qp << 32 ^ number << 40);
    let len = random.between(16, (3 * mtu).min(SLOT_BYTES));
    let mut bytes = vec![0; len as usize];
    random.fill_bytes(&mut bytes);
    bytes[..8].copy_from_slice(&qp.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn shared_receives_neither_lose_nor_mix_messages() {
    for seed in seeds(0..300) {
        let mut network = SimNetwork::new(seed, &[(RECEIVES * SLOT_BYTES) as usize; 2]).unwrap();
        let mtu = network.random.choose(&[Mtu::B256, Mtu::B512, Mtu::B1024]);
        let link = match seed % 3 {
            0 => Link::random_lossless(&mut network.random),
            _ => Link::random(&mut network.random),
        };
        network.set_links(link);
        network.node_mut(1).steers = seed % 5 > 0;
        let timeout = Duration::from_millis(1);
        let options = Options { mtu, timeout, retry_cnt: u8::MAX, psn: [0xFF_FFF0; 2], ..Options::default() };
        let cqs = [0, 1].map(|index| network.node_mut(index).create_cq());
        let srq = network.node_mut(1).create_srq(RECEIVES as u32, 2);
        let kinds = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Rc];
        let qps = kinds.map(|kind| {
            let qps = [0, 1].map(|index| {
                let node = network.node_mut(index);
                let config = QpConfig::new(kind, node.pd(), cqs[index], cqs[index]);
                node.create_qp(&QpConfig { srq: (index == 1).then_some(srq), ..config })
            });
            for index in 0..2 {
                let peer = (network.node(1 - index).address(), qps[1 - index]);
                network.bring_up(index, qps[index], Some(peer), &options, 0xFF_FFF0, 0xFF_FFF0).unwrap();
            }
            qps
        });
        let lkeys = [0, 1].map(|index| {
            let len = network.node(index).memory().len() as u64 / 2;
            network.node_mut(index).register(0, len, Access::LOCAL_WRITE).unwrap().lkey
        });

        let mut posted = 0;
        let mut sent = [0; 4];
        let mut arrived: [Vec<(u64, Vec<u8>)>; 4] = Default::default();
        for round in 0.. {
            // Receives have two elements and are sometimes posted late.
            let late = network.random.between(0, 3);
            for _ in 0..if posted < RECEIVES { late } else { 0 } {
                let first = network.random.below(SLOT_BYTES) as u32;
                let element = |address, len| Element { address, len, lkey: lkeys[1] };
                let elements = [
                    element(posted * SLOT_BYTES, first),
                    element(posted * SLOT_BYTES + u64::from(first), SLOT_BYTES as u32 - first),
                ];
                if posted < RECEIVES {
                    network.node_mut(1).post_srq_recv(srq, &RecvWr { id: posted, elements: &elements }).unwrap();
                    posted += 1;
                }
            }
            for (index, qp) in qps.iter().enumerate() {
                if sent[index] < MESSAGES && network.random.chance(0.3) {
                    let bytes = message(seed, index as u64, sent[index], mtu.bytes().into());
                    let address = (index as u64 * MESSAGES + sent[index]) * SLOT_BYTES;
                    network.node(0).memory().write(address as usize, &bytes);
                    let element = [Element { address, len: bytes.len() as u32, lkey: lkeys[0] }];
                    let wr = SendWr::new(sent[index], Operation::Send, Data::Elements(&element));
                    network.post_send(0, qp[0], &wr).unwrap();
                    sent[index] += 1;
                }
            }
            for _ in 0..network.random.between(1, 5) {
                network.step();
            }
            while let Some(done) = network.node_mut(1).poll(cqs[1]) {
                assert_eq!((done.status, done.kind), (Status::Success, CompletionKind::Recv));
                let index = qps.iter().position(|qp| qp[1] == done.qp).unwrap();
                let bytes = network.node(1).read(done.id * SLOT_BYTES, done.bytes as usize);
                assert_eq!(bytes[..8], (index as u64).to_le_bytes(), "it arrived on its own connection");
                let number = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                assert!(
                    bytes == message(seed, index as u64, number, mtu.bytes().into()),
                    "message {number} of {index}"
                );
                if kinds[index] == QpType::Rc {
                    assert_eq!(number, arrived[index].len() as u64, "in order, each once");
                }
                arrived[index].push((done.id, bytes));
            }
            let all = |index: usize| {
                sent[index] == MESSAGES && (kinds[index] == QpType::Uc || arrived[index].len() as u64 == MESSAGES)
            };
            if (0..4).all(all) {
                break;
            }
            assert!(round < 20_000, "{:?} arrived", arrived.map(|messages| messages.len()));
        }
        network.run(1_000_000_000);
        for (id, bytes) in arrived.iter().flatten() {
            assert!(
                network.node(1).read(id * SLOT_BYTES, bytes.len()) == *bytes,
                "a completed message was overwritten"
            );
        }
        let completed = std::iter::from_fn(|| network.node_mut(0).poll(cqs[0])).count() as u64;
        assert_eq!(completed, 4 * MESSAGES);
    }
}
