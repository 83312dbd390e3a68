//! Commands with an intact header and invalid fields, as in section 11 of `docs/wire-formats.md`.

use super::unlinked::{Unlinked, answer, data};
use super::*;
use crate::api::QpState;
use crate::spacefibre::SpaceFibreDropCounters;
use crate::spacefibre::receive::MAX_DATA;
use shotline_wire::spacefibre::crc::crc8;
use shotline_wire::spacefibre::datagram::PacketEnd;
use shotline_wire::spacefibre::rdma::{Operation as Op, Status};

const EOP: PacketEnd = PacketEnd::Eop;

/// Returns headers with an intact CRC and one invalid field, for the transaction identifier `id`.
fn invalid_headers(target: &Unlinked, id: u32) -> Vec<(&'static str, Vec<u8>)> {
    let valid = target.segment(Op::Write, id, 0, 13, 13);
    let with_byte = |at: usize, value: u8| {
        let mut header = valid.emit();
        header[at] = value;
        header[39] = crc8(&header[..39]);
        header.to_vec()
    };
    let with = |command: Command| command.emit().to_vec();
    vec![
        ("an unknown operation", with_byte(2, 0x40 | 7 << 2)),
        ("a reserved byte", with_byte(12, 1)),
        ("immediate data of a WRITE", with(Command { imm: 1, ..valid })),
        ("an end after that of the operation", with(Command { offset: 1, ..valid })),
        ("an empty segment", with(Command { data_len: 0, ..valid })),
        ("a SEND with a key", with(Command { address: 0, operation: Op::Send, ..valid })),
        ("a SEND with an address", with(Command { key: 0, address: 8, operation: Op::Send, ..valid })),
        ("a solicited event before the end", with(Command { solicited: true, operation_len: 20, ..valid })),
        ("immediate data before the end", with(Command { operation: Op::WriteImm, operation_len: 20, ..valid })),
        ("invalidation before the end", {
            with(Command { operation: Op::SendInvalidate, address: 0, operation_len: 20, ..valid })
        }),
        ("a READ with data", with(Command { operation: Op::Read, ..valid })),
        ("a READ with an offset", with(Command { operation: Op::Read, data_len: 0, offset: 1, ..valid })),
        ("an atomic operation of 13 bytes", with(Command { operation: Op::FetchAdd, data_len: 8, ..valid })),
        ("operands of the wrong length", with(Command { operation: Op::CompareSwap, operation_len: 8, ..valid })),
        ("more data than the segment size", {
            with(Command { operation_len: MAX_DATA + 1, data_len: MAX_DATA + 1, ..valid })
        }),
    ]
}

/// Receives a header with an invalid field, and what may follow it. Checks that the packet is dropped and changes
/// nothing. Returns what the target sends.
fn take_invalid(target: &mut Unlinked, name: &str, header: &[u8], rest: &[u8]) -> Vec<(Header, Vec<u8>)> {
    target.counters = Default::default();
    target.receive(&[header, rest].concat(), EOP);
    let (malformed, too_long) = if name.contains("segment size") { (0, 1) } else { (1, 0) };
    let expected = SpaceFibreDropCounters { malformed, too_long, ..Default::default() };
    assert_eq!((target.counters.packets_in, target.counters.drops), (1, expected), "{name}");
    assert_eq!(target.qp_counters().packets_in, 0, "{name}");
    assert!(target.node.bytes(0, 64).iter().all(|byte| *byte == 0), "{name}: memory");
    target.sent()
}

#[test]
fn invalid_fields_of_the_expected_command_have_status_2() {
    let count = invalid_headers(&Unlinked::new(true), 0).len();
    for index in 0..count {
        // Neither what follows the header nor its CRC matters.
        for rest in [0, 5, 13, 17, 30] {
            let mut target = Unlinked::new(true);
            let (name, header) = invalid_headers(&target, 0).swap_remove(index);
            let sent = take_invalid(&mut target, name, &header, &vec![0xEE; rest]);
            assert_eq!(sent, [answer(Status::InvalidRequest, 0, 0)], "{name}, {rest} bytes");
            assert_eq!((target.state(), target.qp_counters().naks_out.invalid), (QpState::Error, 1), "{name}");
        }
    }
}

#[test]
fn invalid_fields_of_another_command_are_dropped() {
    let mut target = Unlinked::new(true);
    for id in [1, 2, 0x7F_FFFF, 0x80_0000, 0xFF_FFFF] {
        for (name, header) in invalid_headers(&target, id) {
            assert_eq!(take_invalid(&mut target, name, &header, &[]), [], "{name}, {id}");
        }
    }
    assert_eq!(target.state(), QpState::ReadyToSend);
    // On a queue pair that is not strict, the expected one is, too.
    let mut target = Unlinked::new(false);
    for (name, header) in invalid_headers(&target, 0) {
        assert_eq!(take_invalid(&mut target, name, &header, &[]), [], "{name}");
    }
    let write = Command { reply_requested: true, ..target.segment(Op::Write, 0, 0, 13, 13) };
    target.take(write);
    assert_eq!(target.sent(), [answer(Status::Success, 0, 1)]);
    assert_eq!(target.node.bytes(0, 14), [data(&write), vec![0]].concat());
}

#[test]
fn invalid_fields_are_checked_after_end_and_destination() {
    let mut target = Unlinked::new(true);
    let unconnected = target.node.create_qp_with(&QpConfig { strict: true, ..target.node.config() }, Access::ALL);
    for (name, header) in invalid_headers(&target, 0) {
        target.counters = Default::default();
        target.receive(&header, PacketEnd::Eep);
        assert_eq!(target.counters.drops, SpaceFibreDropCounters { eep: 1, ..Default::default() }, "{name}");
        // Another node, a queue pair that does not exist, and one that is not connected.
        for (at, bytes) in [(0, vec![0x40]), (9, vec![0xAA; 3]), (9, unconnected.0.to_be_bytes()[1..].to_vec())] {
            let mut other = header.clone();
            other[at..at + bytes.len()].copy_from_slice(&bytes);
            other[39] = crc8(&other[..39]);
            target.counters = Default::default();
            target.receive(&other, EOP);
            let drops = target.counters.drops;
            let is_connected = bytes.len() == 3 && bytes != [0xAA; 3];
            assert_eq!(drops.unknown_qp, u64::from(!is_connected), "{name}: {drops:?}");
            assert_eq!(drops.by_cause().iter().map(|(_, count)| count).sum::<u64>(), 1, "{name}: {drops:?}");
        }
        assert_eq!((target.sent(), target.state()), (vec![], QpState::ReadyToSend), "{name}");
        assert_eq!(target.node.endpoint.qp_state(unconnected).unwrap(), QpState::Init);
    }
}
