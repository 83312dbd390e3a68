//! The committed seeds of the fuzz targets `cm_message` and `rdma_cm`, run through the targets' own functions.

#[path = "../../../../fuzz/src/messages.rs"]
mod targets;

use shotline_testing::assert_committed;
use shotline_verbs::api::Mtu;
use shotline_verbs::cm::message::{Answer, Request, parse};
use shotline_verbs::rdma_cm::message::{
    self as rdma, Datagram, Message, REP_PRIVATE_BYTES, REQ_PRIVATE_BYTES, RdAtomicLimits, Reply, service_id,
};
use std::path::PathBuf;

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds", target].iter().collect()
}

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(target)).expect("seeds are committed");
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        })
        .collect()
}

/// Checks a seed, every `step`th prefix of it, and all variants with one bit flipped.
fn check_mutations(bytes: &[u8], step: usize, check: fn(&[u8])) {
    (0..bytes.len()).step_by(step).for_each(|len| check(&bytes[..len]));
    check(bytes);
    for (offset, bit) in (0..8 * bytes.len()).map(|bit| (bit / 8, bit % 8)) {
        let mut changed = bytes.to_vec();
        changed[offset] ^= 1 << bit;
        check(&changed);
    }
}

#[test]
fn seeds_are_valid_control_messages() {
    let seeds = seeds("cm_message");
    assert!(seeds.len() >= 8);
    for (name, bytes) in seeds {
        let parsed = match name.split_once('_') {
            Some(("request", _)) => parse::<Request>(&bytes).map(|_| ()),
            _ => parse::<Answer>(&bytes).map(|_| ()),
        };
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
    }
}

#[test]
fn control_message_seeds_and_their_mutations_pass() {
    seeds("cm_message").iter().for_each(|(_, bytes)| check_mutations(bytes, 1, targets::cm_message));
}

#[test]
fn rdma_cm_seeds_and_their_mutations_pass() {
    for (name, bytes) in conversations() {
        assert_committed(&folder("rdma_cm").join(name), &bytes);
    }
    seeds("rdma_cm").iter().for_each(|(_, bytes)| check_mutations(bytes, 16, targets::rdma_cm));
}

/// Messages received by one side, in order. The byte before each encodes when it arrives and what this side does then
/// (`fuzz/src/messages.rs`).
fn conversations() -> [(&'static str, Vec<u8>); 3] {
    let (own, other) = (1, 9);
    let rd_atomic = RdAtomicLimits { responder_resources: 16, initiator_depth: 1 };
    let request = rdma::Request {
        service: service_id(7174),
        qp: 0x11,
        psn: 0xABCDEF,
        rd_atomic,
        mtu: Mtu::B1024,
        retry_cnt: 7,
        rnr_retry: 7,
        path: [[10, 0, 0, 2].into(), [10, 0, 0, 1].into()],
        private_data: [0; REQ_PRIVATE_BYTES],
    };
    let reply = Reply { qp: 0x11, psn: 3, rd_atomic, rnr_retry: 7, private_data: [0; REP_PRIVATE_BYTES] };
    let req = || Message::Req(Box::new(request.clone()));
    let all = |steps: Vec<(u8, Message)>| -> Vec<u8> {
        let datagram = |message| Datagram { transaction: 5, local: other, remote: own, message }.emit();
        steps.into_iter().flat_map(|(what, message)| [&[what][..], &datagram(message)].concat()).collect()
    };
    [
        ("passive", all(vec![(0, req()), (5, req()), (0, Message::Rtu), (1, Message::Dreq(0x22))])),
        // It requests the same service that it provides, and disconnects first.
        (
            "active",
            all(vec![(0x90, req()), (1, Message::Mra), (0x20, Message::Rep(Box::new(reply))), (0, Message::Drep)]),
        ),
        ("refused", all(vec![(0x9F, req()), (1, req()), (0, Message::Rej(28))])),
    ]
}
