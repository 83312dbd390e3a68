//! Packets whose bytes, CRC-8 and CRC-32 were computed by an independent program (Python, `zlib.crc32`).

use super::super::*;
use super::{hex, reseal};
use crate::aeth::RnrTimer;
use crate::atomic::AtomicAckEth;
use crate::crc;
use std::vec::Vec;

const KEY: u32 = 0xA1B2_C3D4;
const ADDRESS: u64 = 0x7F00_1234_5678;

/// Returns a command to queue pair 0x12.
fn command(operation: Operation, transaction_id: u32) -> Command {
    Command::new(operation, 0x12, transaction_id)
}

/// Returns a reply to queue pair 0x34, with seven or more completed operations.
fn reply(kind: ReplyKind, transaction_id: u32, msn: u32) -> Reply {
    Reply { msn, ..Reply::new(kind, 0x34, transaction_id) }
}

fn commands() -> [(&'static str, Command); 11] {
    use Operation::*;
    [
        (
            "fef04610a1b2c3d4fe00001200000100 00007f0012345678 ffffffff 00000000 00000000 000000 78",
            Command {
                reply_requested: true,
                key: KEY,
                address: ADDRESS,
                operation_len: u32::MAX,
                ..command(Read, 0x100)
            },
        ),
        (
            "fef04810a1b2c3d4fe00001200000101 0000000000000100 00000006 00000000 00000000 000006 e0 414243444546 69fe76bb",
            Command { key: KEY, address: 0x100, operation_len: 6, data_len: 6, ..command(Write, 0x101) },
        ),
        (
            "40f04a100000000141abcdef00ffffff fffffffffffffff8 00010008 00010000 00000000 000008 a3
             ffffffffffffffff 1cdf4421",
            Command {
                target: 0x40,
                initiator: 0x41,
                reply_requested: true,
                key: 1,
                address: u64::MAX - 7,
                operation_len: 0x1_0008,
                offset: 0x1_0000,
                data_len: 8,
                ..Command::new(Write, 0xAB_CDEF, 0xFF_FFFF)
            },
        ),
        (
            "fef04f10a1b2c3d4fe00001200000102 0000000000000200 00000004 00000000 deadbeef 000004 e4 01020304 cdfb3cb6",
            Command {
                reply_requested: true,
                solicited: true,
                key: KEY,
                address: 0x200,
                operation_len: 4,
                imm: 0xDEAD_BEEF,
                data_len: 4,
                ..command(WriteImm, 0x102)
            },
        ),
        (
            "fef0531000000000fe00001200000103 0000000000000000 00000005 00000000 00000000 000005 f0 68656c6c6f 86a61036",
            Command { reply_requested: true, solicited: true, operation_len: 5, data_len: 5, ..command(Send, 0x103) },
        ),
        (
            "fef0501000000000fe00001200000104 0000000000000000 00000000 00000000 00000000 000000 3b",
            command(Send, 0x104),
        ),
        (
            "fef0501000000000fe00001200000109 0000000000000000 00000005 00000000 00000000 000002 d0 6865 876625d1",
            Command { operation_len: 5, data_len: 2, ..command(Send, 0x109) },
        ),
        (
            "fef0561000000000fe00001200000105 0000000000000000 00000005 00000002 01020304 000003 fc 6c6c6f 34b3c9aa",
            Command {
                reply_requested: true,
                operation_len: 5,
                offset: 2,
                imm: 0x0102_0304,
                data_len: 3,
                ..command(SendImm, 0x105)
            },
        ),
        (
            "fef05a10a1b2c3d4fe00001200000106 0000000000000000 00000001 00000000 00000000 000001 a8 00 8def02d2",
            Command {
                reply_requested: true,
                key: KEY,
                operation_len: 1,
                data_len: 1,
                ..command(SendInvalidate, 0x106)
            },
        ),
        (
            "fef06210a1b2c3d4fe00001200000107 00007f0012345678 00000008 00000000 00000000 000010 e6
             3333333344444444 1111111122222222 6db9fc62",
            Command { reply_requested: true, key: KEY, address: ADDRESS, ..command(CompareSwap, 0x107) },
        ),
        (
            "fef06610a1b2c3d4fe00001200000108 0000000000000040 00000008 00000000 00000000 000008 b6
             0000000000000001 ffef2512",
            Command { reply_requested: true, key: KEY, address: 0x40, ..command(FetchAdd, 0x108) },
        ),
    ]
}

fn replies() -> [(&'static str, Reply); 11] {
    use ReplyKind::{Acknowledge, Atomic};
    let read = |first, last| ReplyKind::Read { first, last };
    let ahead = Reply { target: 0x40, initiator: 0x41, ..reply(read(false, false), 0x101, 7) };
    let longest = RnrTimer::from_code(31).expect("a code of 5 bits");
    [
        (
            "fef0061f00000034fe000100000007 00 000008 b6 6162636465666768 502aefae",
            Reply { data_len: 8, ..reply(read(true, false), 0x100, 7) },
        ),
        ("41f0041f0000003440000101000007 00 000004 66 696a6b6c 7cb627e0", Reply { data_len: 4, ..ahead }),
        (
            "fef0051f00000034fe000102000007 00 000001 2b 6d 68f201e1",
            Reply { data_len: 1, ..reply(read(false, true), 0x102, 7) },
        ),
        ("fef0071f00000034fe000103000008 00 000000 46", reply(read(true, true), 0x103, 8)),
        ("fef0081f00000034fe000104ffffff 00 000000 2c", reply(Acknowledge, 0x104, 0xFF_FFFF)),
        ("fef0201f00000034fe000107000009 00 000008 11 3333333344444444 9366c515", reply(Atomic, 0x107, 9)),
        (
            "fef0081f01000034fe000105000009 00 000000 bf",
            Reply { status: Status::GeneralError, ..reply(Acknowledge, 0x105, 9) },
        ),
        (
            "fef0081f02abcdeffeffffff000009 00 000000 9c",
            Reply { dest_qp: 0xAB_CDEF, status: Status::InvalidRequest, ..reply(Acknowledge, 0xFF_FFFF, 9) },
        ),
        (
            "fef0051f03000034fe000105000009 00 000000 32",
            Reply { status: Status::InvalidKey, ..reply(read(false, true), 0x105, 9) },
        ),
        (
            "fef0081f10000034fe000105000009 00 000000 f2",
            Reply { status: Status::SequenceError, ..reply(Acknowledge, 0x105, 9) },
        ),
        (
            "fef0081f11000034fe000105000009 1f 000000 bf",
            Reply { status: Status::ReceiverNotReady(longest), ..reply(Acknowledge, 0x105, 9) },
        ),
    ]
}

/// Returns all vectors: whole packets and their headers.
pub(super) fn packets() -> Vec<(Vec<u8>, Header)> {
    let commands = commands().map(|(bytes, command)| (hex(bytes), Header::Command(command)));
    let replies = replies().map(|(bytes, reply)| (hex(bytes), Header::Reply(reply)));
    commands.into_iter().chain(replies).collect()
}

#[test]
fn headers_have_the_specified_bytes() {
    for (bytes, header) in packets() {
        let emitted = header.emit();
        assert_eq!(emitted.as_slice(), &bytes[..emitted.len()], "{header:?}");
        assert_eq!(Header::parse(&bytes), Ok((header, &bytes[emitted.len()..])));
    }
}

#[test]
fn data_have_the_specified_crc() {
    for (bytes, header) in packets() {
        let (_, rest) = Header::parse(&bytes).unwrap();
        let data = header.data(rest).unwrap();
        assert_eq!(data.verify(), Ok(data.bytes));
        let (data_len, packet_len) = match header {
            Header::Command(command) => (command.data_len, command.packet_len()),
            Header::Reply(reply) => (reply.data_len, reply.packet_len()),
        };
        assert_eq!((data.bytes.len(), bytes.len()), (data_len as usize, packet_len));
        if data_len > 0 {
            assert_eq!(crc::register(u32::MAX, rest), crc::RESIDUE, "the CRC is little-endian");
        }
    }
}

#[test]
fn vectors_cover_every_operation() {
    let covered = commands().map(|(_, command)| command.operation);
    assert!(Operation::ALL.iter().all(|operation| covered.contains(operation)));
}

#[test]
fn atomic_operands_have_the_specified_bytes() {
    let [.., (compare_swap, _), (fetch_add, _)] = commands();
    let (data, (_, original)) = (hex(compare_swap), &replies()[5]);
    let (operands, crc) = CompareSwap::parse(&data[Command::LEN..]).unwrap();
    assert_eq!(operands, CompareSwap { compare: 0x3333_3333_4444_4444, swap: 0x1111_1111_2222_2222 });
    assert_eq!((operands.emit().as_slice(), crc.len()), (&data[40..56], DATA_CRC_LEN));
    let data = hex(fetch_add);
    let (operand, crc) = FetchAdd::parse(&data[Command::LEN..]).unwrap();
    assert_eq!(operand, FetchAdd { add: 1 });
    assert_eq!((operand.emit().as_slice(), crc.len()), (&data[40..48], DATA_CRC_LEN));
    assert_eq!(original.data_len as usize, AtomicAckEth::LEN);
    assert!(CompareSwap::parse(&data[40..55 - 8]).is_err() && FetchAdd::parse(&data[40..47]).is_err());
}

#[test]
fn first_and_last_follow_from_offset_and_lengths() {
    let places = commands().map(|(_, command)| (command.is_first(), command.is_last()));
    let (first, last, whole) = ((true, false), (false, true), (true, true));
    assert_eq!(places, [whole, whole, last, whole, whole, whole, first, last, whole, whole, whole]);
    let middle = Command { operation_len: 9, offset: 3, data_len: 3, ..command(Operation::Send, 0) };
    assert_eq!((middle.is_first(), middle.is_last()), (false, false));
    assert_eq!((Command { offset: 6, ..middle }.is_last(), Command { offset: 0, ..middle }.is_first()), (true, true));
}

/// Returns the error after a byte of a packet is replaced and the header CRC corrected.
fn error_of(packet: &str, at: usize, value: u8) -> ParseError {
    let mut bytes = hex(packet);
    let len = if bytes[2] >> 6 == COMMAND { Command::LEN } else { Reply::LEN };
    bytes[at] = value;
    reseal(&mut bytes, len);
    Header::parse(&bytes).expect_err("the field is invalid")
}

#[test]
fn invalid_fields_of_a_command_are_refused() {
    let [(read, _), (write, _), (segment, _), (write_imm, _), (send, _), (empty, _), .., (swap, _), (add, _)] =
        commands();
    let [.., (first, _), (send_imm, _), (invalidate, _), _, _] = commands();
    let cases = [
        (read, 1, 0x01, "RDMA protocol identifier must be 0xf0, found 0x1"),
        (read, 2, 0x86, "RDMA packet type 0x2 is unknown"),
        (read, 2, 0xC6, "RDMA packet type 0x3 is unknown"),
        (read, 3, 0x20, "RDMA version must be 0x1, found 0x2"),
        (read, 3, 0x11, "repeated RDMA packet type must be 0x0, found 0x1"),
        (read, 3, 0x1F, "repeated RDMA packet type must be 0x0, found 0xf"),
        (read, 12, 0x80, "reserved byte of an RDMA command must be 0x0, found 0x80"),
        (read, 2, 0x42, "operation of an RDMA command 0x0 is unknown"),
        (read, 2, 0x5E, "operation of an RDMA command 0x7 is unknown"),
        (read, 2, 0x7E, "operation of an RDMA command 0xf is unknown"),
        (read, 31, 1, "offset of an RDMA READ must be 0x0, found 0x1"),
        (read, 38, 1, "data length of an RDMA READ must be 0x0, found 0x1"),
        (read, 32, 1, "immediate data of an RDMA operation without it must be 0x0, found 0x1000000"),
        (write, 35, 1, "immediate data of an RDMA operation without it must be 0x0, found 0x1"),
        (write, 38, 0, "data length of an RDMA segment must be 1 to 65536, found 0"),
        (write, 36, 1, "data length of an RDMA segment must be 1 to 65536, found 65542"),
        (write, 38, 7, "end of an RDMA segment in its operation must be 0 to 6, found 7"),
        (write, 31, 1, "end of an RDMA segment in its operation must be 0 to 6, found 7"),
        (segment, 28, 0xFF, "end of an RDMA segment in its operation must be 0 to 65544, found 4278255624"),
        (write_imm, 27, 5, "end of an RDMA segment with immediate data or invalidation must be 0x5, found 0x4"),
        (send_imm, 31, 1, "end of an RDMA segment with immediate data or invalidation must be 0x5, found 0x4"),
        (invalidate, 27, 2, "end of an RDMA segment with immediate data or invalidation must be 0x2, found 0x1"),
        (first, 2, 0x54, "end of an RDMA segment with immediate data or invalidation must be 0x5, found 0x2"),
        (first, 2, 0x51, "end of an RDMA segment with a solicited event must be 0x5, found 0x2"),
        (send, 27, 6, "end of an RDMA segment with a solicited event must be 0x6, found 0x5"),
        (send, 4, 1, "key of an RDMA SEND must be 0x0, found 0x1000000"),
        (send, 23, 1, "address of an RDMA SEND must be 0x0, found 0x1"),
        (empty, 31, 1, "end of an RDMA segment in its operation must be 0 to 0, found 1"),
        (invalidate, 16, 1, "address of an RDMA SEND must be 0x0, found 0x100000000000000"),
        (swap, 38, 8, "data length of an RDMA atomic operation must be 0x10, found 0x8"),
        (swap, 27, 16, "length of an RDMA atomic operation must be 0x8, found 0x10"),
        (add, 38, 16, "data length of an RDMA atomic operation must be 0x8, found 0x10"),
        (add, 31, 8, "offset of an RDMA atomic operation must be 0x0, found 0x8"),
    ];
    for (packet, at, value, message) in cases {
        assert_eq!(std::format!("{}", error_of(packet, at, value)), message);
    }
}

#[test]
fn a_segment_whose_end_overflows_is_refused() {
    let segment =
        Command { operation_len: 8, offset: u32::MAX, data_len: 8, key: KEY, ..command(Operation::Write, 0x100) };
    let (what, found) = ("end of an RDMA segment in its operation", (1 << 32) + 7);
    assert_eq!(Command::parse(&segment.emit()), Err(ParseError::Range { what, min: 0, max: 8, found }));
}

#[test]
fn invalid_fields_of_a_reply_are_refused() {
    let [(read, _), _, _, (empty, _), (ack, _), (atomic, _), (error, _), .., (rnr, _)] = replies();
    let cases = [
        (ack, 3, 0x17, "repeated RDMA packet type must be 0xf, found 0x7"),
        (ack, 3, 0x10, "repeated RDMA packet type must be 0xf, found 0x0"),
        (ack, 2, 0x00, "kind of an RDMA reply 0x0 is unknown"),
        (ack, 2, 0x0C, "kind of an RDMA reply 0x3 is unknown"),
        (ack, 2, 0x0A, "first and last of an RDMA reply without segments must be 0x0, found 0x2"),
        (atomic, 2, 0x21, "first and last of an RDMA reply without segments must be 0x0, found 0x1"),
        (ack, 4, 4, "status of an RDMA reply 0x4 is unknown"),
        (ack, 4, 18, "status of an RDMA reply 0x12 is unknown"),
        (ack, 15, 1, "minimum delay of an RDMA reply without it must be 0x0, found 0x1"),
        (rnr, 15, 32, "minimum delay of an RDMA receiver must be 0 to 31, found 32"),
        (read, 18, 0, "data length of an RDMA READ's reply must be 1 to 65536, found 0"),
        (read, 16, 1, "data length of an RDMA READ's reply must be 1 to 65536, found 65544"),
        (empty, 2, 0x05, "data length of an RDMA READ's reply must be 1 to 65536, found 0"),
        (ack, 18, 1, "data length of an RDMA reply without data must be 0x0, found 0x1"),
        (error, 18, 8, "data length of an RDMA reply without data must be 0x0, found 0x8"),
        (read, 4, 1, "data length of an RDMA reply without data must be 0x0, found 0x8"),
        (atomic, 18, 0, "data length of an RDMA atomic reply must be 0x8, found 0x0"),
    ];
    for (packet, at, value, message) in cases {
        assert_eq!(std::format!("{}", error_of(packet, at, value)), message);
    }
}

#[test]
fn invalid_commands_name_their_connection() {
    let unknown = |fix: bool| {
        let mut bytes = hex(commands()[2].0);
        bytes[2] = 0x7C;
        if fix {
            reseal(&mut bytes, Command::LEN);
        }
        assert!(Command::parse(&bytes).is_err());
        Command::recipient(&bytes)
    };
    assert_eq!(unknown(true), Ok(Recipient { dest_qp: 0xAB_CDEF, transaction_id: 0xFF_FFFF }));
    assert!(unknown(false).is_err(), "a damaged header names nothing");
    assert!(Command::recipient(&hex(replies()[4].0)).is_err(), "replies are not answered");
    for (bytes, header) in packets() {
        let Header::Command(Command { dest_qp, transaction_id, .. }) = header else { continue };
        assert_eq!(Command::recipient(&bytes), Ok(Recipient { dest_qp, transaction_id }));
    }
}
