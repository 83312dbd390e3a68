//! The committed seeds of the endpoints' fuzz targets, run through the targets' own functions.

#[path = "../../../../fuzz/src/endpoints.rs"]
mod targets;

use shotline_testing::assert_committed;
use shotline_wire::aeth::{Aeth, NakCode, RnrTimer, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::deth::Deth;
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use std::path::PathBuf;

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fuzz/seeds", target].iter().collect()
}

fn check_seeds(target: &str, check: fn(&[u8])) {
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder(target)).expect("seeds are committed") {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        (0..=bytes.len()).step_by(1 + bytes.len() / 64).for_each(|len| check(&bytes[..len]));
        // Flipping one bit per byte reaches code after checks that random bytes seldom pass.
        for (offset, bit) in (0..bytes.len()).map(|offset| (offset, offset % 8)) {
            let mut changed = bytes.clone();
            changed[offset] ^= 1 << bit;
            check(&changed);
        }
        check(&bytes);
        seeds += 1;
    }
    assert!(seeds > 0, "{target} has seeds");
}

#[test]
fn packet_seeds_and_their_mutations_pass() {
    check_seeds("endpoint_packets", targets::endpoint_packets);
}

#[test]
fn call_seeds_and_their_mutations_pass() {
    check_seeds("verbs_calls", targets::verbs_calls);
}

/// Returns a packet of the input: flags, length, header and payload. `psn` is relative to the expected one.
fn packet(flags: u8, opcode: Opcode, psn: u32, syndrome: Syndrome, payload: usize) -> Vec<u8> {
    let bth = Bth { ack_request: true, ..Bth::new(opcode, 0, psn) };
    let extensions = Extensions {
        deth: Some(Deth { q_key: 0, src_qp: 5 }),
        reth: Some(Reth { address: 16, r_key: 1, length: if payload > 0 { 2 * 256 } else { 8 } }),
        atomic: Some(AtomicEth { address: 8, r_key: 1, swap_or_add: 3, compare: 4 }),
        aeth: Some(Aeth { syndrome, msn: 1 }),
        atomic_ack: Some(AtomicAckEth { original: 9 }),
        ..Extensions::default()
    };
    let mut bytes = extensions.emit(&bth).to_vec();
    bytes.resize(bytes.len() + payload, 0xEE);
    [&[flags, bytes.len() as u8], &*bytes].concat()
}

#[test]
fn committed_seeds_match_the_current_format() {
    for (target, name, bytes) in generated_seeds() {
        assert_committed(&folder(target).join(name), &bytes);
    }
}

/// Returns the generated seeds; other committed seeds were found by fuzzing.
fn generated_seeds() -> [(&'static str, &'static str, Vec<u8>); 11] {
    use Opcode as Op;
    /// Flag: the payload is extended to a whole MTU.
    const FULL: u8 = 32;
    let (ack, rnr) = (Syndrome::ACK, Syndrome::RnrNak(RnrTimer::from_code(1).unwrap()));
    let nak = Syndrome::Nak(NakCode::PsnSequenceError);
    let all = |kind: u8, flags: u8, work: u8, packets: &[Vec<u8>]| [&[kind, flags, work], &*packets.concat()].concat();
    let plain = |opcode, psn| packet(0, opcode, psn, ack, 0);
    let full = |opcode, psn| packet(FULL, opcode, psn, ack, 4);
    let responder = [
        full(Op::RcWriteFirst, 0),
        full(Op::RcWriteLast, 1),
        packet(0, Op::RcReadRequest, 2, ack, 0),
        plain(Op::RcFetchAdd, 3),
        plain(Op::RcCompareSwap, 4),
        packet(0, Op::RcSendOnly, 5, ack, 8),
        plain(Op::RcFetchAdd, 3),
        full(Op::RcWriteFirst, 7),
    ];
    let requester = [
        plain(Op::RcAcknowledge, 1),
        plain(Op::RcAtomicAcknowledge, 2),
        full(Op::RcReadResponseFirst, 3),
        full(Op::RcReadResponseMiddle, 4),
        packet(0, Op::RcReadResponseLast, 5, ack, 188),
        packet(0, Op::RcAcknowledge, 6, rnr, 0),
        packet(0, Op::RcAcknowledge, 6, nak, 0),
        packet(0, Op::CongestionNotification, 0, ack, 16),
        plain(Op::RcAcknowledge, 15),
    ];
    let unreliable = [
        full(Op::UcSendFirst, 0),
        packet(0, Op::UcSendLast, 1, ack, 8),
        full(Op::UcWriteFirst, 2),
        full(Op::UcWriteLast, 3),
        packet(0, Op::UcSendOnly, 9, ack, 4),
    ];
    let datagrams = [packet(0, Op::UdSendOnly, 0, ack, 8), packet(16, Op::UdSendOnlyImm, 1, ack, 4)];
    // A queue pair on each node, connected; four bytes per call.
    let connected = |kind: u8| {
        let ends: [[u8; 4]; 4] = [[0, 0, kind, 0x77], [0, 1, kind, 0x77], [2, 0, 8, 0x10], [2, 1, 8, 0x10]];
        ends.concat()
    };
    let calls = |kind: u8, calls: &[[u8; 4]]| [connected(kind), calls.concat()].concat();
    let transfer =
        [[10, 1, 1, 2], [6, 0, 0, 4], [7, 0, 11, 4], [7, 0, 13, 4], [6, 0, 15, 2], [12, 0, 0, 0], [15, 0, 0, 0]];
    let end = [[7, 0, 11, 4], [4, 1, 0, 0], [12, 0, 0, 0], [14, 0, 1, 1], [5, 0, 0, 0], [7, 0, 11, 4], [15, 0, 0, 0]];
    [
        ("endpoint_packets", "responder", all(0, 0xE0, 0, &responder)),
        ("endpoint_packets", "responder_strict", all(0, 0xE8, 0, &responder)),
        ("endpoint_packets", "requester", all(0, 0x60, 0xFF, &requester)),
        ("endpoint_packets", "requester_scratch", all(0, 0x70, 0x2D, &requester)),
        ("endpoint_packets", "unreliable", all(1, 0x80, 0x83, &unreliable)),
        ("endpoint_packets", "datagrams", all(2, 0x80, 0x41, &datagrams)),
        ("verbs_calls", "reliable", calls(0, &transfer)),
        ("verbs_calls", "unreliable", calls(1, &transfer)),
        ("verbs_calls", "datagrams", calls(2, &transfer)),
        ("verbs_calls", "shared_receives", calls(8, &[&[[10, 1, 65, 2]], &transfer[..]].concat())),
        ("verbs_calls", "destroyed", calls(0, &[&transfer[..], &end].concat())),
    ]
}
