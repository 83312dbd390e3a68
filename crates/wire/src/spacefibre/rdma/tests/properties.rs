//! Properties of all headers and of arbitrary bytes.

use super::super::head::version_byte;
use super::super::*;
use super::reseal;
use super::vectors::packets;
use crate::aeth::RnrTimer;
use crate::crc;
use proptest::prelude::*;
use std::vec::Vec;

const MASK_24: u32 = 0xFF_FFFF;

/// Place of a segment of a WRITE or SEND: operation length, offset, data length.
fn segment() -> impl Strategy<Value = (u32, u32, u32)> {
    prop_oneof![
        Just((0, 0, 0)),
        (1..=MAX_SEGMENT).prop_flat_map(|data| (data..=u32::MAX, Just(data))).prop_flat_map(|(operation, data)| (
            Just(operation),
            prop_oneof![Just(0), Just(operation - data), 0..=operation - data],
            Just(data)
        )),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let operation = prop::sample::select(Operation::ALL.as_slice());
    (operation, segment(), any::<[u8; 2]>(), any::<[bool; 2]>(), any::<[u32; 5]>(), any::<u64>()).prop_map(
        |(operation, place, [target, initiator], flags, [key, dest_qp, transaction_id, imm, read_len], address)| {
            let (is_segmented, [reply_requested, solicited]) = (operation.is_segmented(), flags);
            let is_last = !is_segmented || place.1 + place.2 == place.0;
            let (operation, solicited) = if is_last { (operation, solicited) } else { (operation.plain(), false) };
            let base = Command::new(operation, dest_qp & MASK_24, transaction_id & MASK_24);
            let (operation_len, offset, data_len) = match operation {
                _ if is_segmented => place,
                Operation::Read => (read_len, 0, 0),
                _ => (base.operation_len, base.offset, base.data_len),
            };
            let key = if operation.has_key() { key } else { 0 };
            let address = if operation.has_address() { address } else { 0 };
            let imm = if operation.has_imm() { imm } else { 0 };
            Command {
                target,
                initiator,
                reply_requested,
                solicited,
                key,
                address,
                operation_len,
                offset,
                imm,
                data_len,
                ..base
            }
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    let timer = (0_u8..32).prop_map(|code| RnrTimer::from_code(code).expect("a code of 5 bits"));
    prop_oneof![
        3 => Just(Status::Success),
        1 => Just(Status::GeneralError),
        1 => Just(Status::InvalidRequest),
        1 => Just(Status::InvalidKey),
        1 => Just(Status::SequenceError),
        1 => timer.prop_map(Status::ReceiverNotReady),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let kind = prop_oneof![
        2 => any::<[bool; 2]>().prop_map(|[first, last]| ReplyKind::Read { first, last }),
        1 => Just(ReplyKind::Acknowledge),
        1 => Just(ReplyKind::Atomic),
    ];
    (kind, status(), any::<[u8; 2]>(), any::<[u32; 3]>(), 0..=MAX_SEGMENT).prop_map(
        |(kind, status, [initiator, target], numbers, read_len)| {
            let [dest_qp, transaction_id, msn] = numbers.map(|number| number & MASK_24);
            let base = Reply::new(kind, dest_qp, transaction_id);
            let data_len = match (status, kind) {
                (Status::Success, ReplyKind::Read { first: true, last: true }) => read_len,
                (Status::Success, ReplyKind::Read { .. }) => read_len.max(1),
                (Status::Success, _) => base.data_len,
                _ => 0,
            };
            Reply { initiator, target, status, msn, data_len, ..base }
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![command().prop_map(Header::Command), reply().prop_map(Header::Reply)]
}

fn data_len(header: &Header) -> usize {
    match header {
        Header::Command(command) => command.data_len as usize,
        Header::Reply(reply) => reply.data_len as usize,
    }
}

/// Returns a packet with this header and data of repeated bytes.
fn packet(header: &Header) -> Vec<u8> {
    let mut packet = header.emit().to_vec();
    let len = data_len(header);
    if len > 0 {
        let data = std::vec![0x5A; len];
        packet.extend(&data);
        packet.extend(crc::crc32(&data).to_le_bytes());
    }
    packet
}

/// Parses a whole packet.
fn parse(packet: &[u8]) -> Result<(Header, &[u8]), ParseError> {
    let (header, rest) = Header::parse(packet)?;
    Ok((header, header.data(rest)?.verify()?))
}

/// Asserts that no header with one flipped bit is parsed. `bytes` is the header, or the whole packet.
fn assert_flips_are_found(bytes: &[u8], header: &Header) {
    for at in 0..header.emit().len() {
        for bit in 0..8 {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << bit;
            assert!(Header::parse(&flipped).is_err(), "{header:?} with byte {at} bit {bit} flipped");
            assert!(Command::recipient(&flipped).is_err(), "{header:?} with byte {at} bit {bit} flipped");
        }
    }
}

#[test]
fn every_flipped_bit_of_a_vector_is_found() {
    for (bytes, header) in packets() {
        assert_flips_are_found(&bytes, &header);
        for at in header.emit().len()..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(parse(&flipped).is_err(), "{header:?} with byte {at} bit {bit} flipped");
            }
        }
    }
}

#[test]
fn truncated_and_extended_packets_are_refused() {
    for (bytes, header) in packets() {
        let header_len = header.emit().len();
        for len in 0..bytes.len() {
            let error = parse(&bytes[..len]).expect_err("the packet is truncated");
            assert!(
                matches!(error, ParseError::Truncated { found, .. } if found == len.checked_sub(header_len).unwrap_or(len))
            );
        }
        let expected = (bytes.len() - header_len) as u64;
        for more in 1..6 {
            let longer = [bytes.as_slice(), &[0; 5][..more]].concat();
            let (what, found) = ("RDMA data with its CRC", expected + more as u64);
            assert_eq!(parse(&longer), Err(ParseError::Length { what, expected, found }));
        }
    }
}

proptest! {
    #[test]
    fn headers_round_trip(header in header()) {
        let mut bytes = header.emit().to_vec();
        bytes.extend([1, 2, 3]);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, [1, 2, 3].as_slice())));
        let (own, other) = match header {
            Header::Command(command) => (Command::parse(&bytes).map(|(own, _)| own == command), Reply::parse(&bytes).is_ok()),
            Header::Reply(reply) => (Reply::parse(&bytes).map(|(own, _)| own == reply), Command::parse(&bytes).is_ok()),
        };
        prop_assert_eq!((own, other), (Ok(true), false));
    }

    #[test]
    fn packets_round_trip(header in header()) {
        let bytes = packet(&header);
        let (parsed, data) = parse(&bytes).unwrap();
        prop_assert_eq!((parsed, data.len()), (header, data_len(&header)));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_found(header in header()) {
        assert_flips_are_found(&header.emit(), &header);
    }

    /// A packet whose type changes is refused although the CRC of the other header matches.
    #[test]
    fn the_packet_type_does_not_depend_on_the_crc(header in header()) {
        let mut bytes = packet(&header);
        bytes.resize(bytes.len().max(Command::LEN), 0);
        let (repeated, len) = match header {
            Header::Command(_) => (0, Reply::LEN),
            Header::Reply(_) => (0xF, Command::LEN),
        };
        bytes[2] ^= 0x40;
        reseal(&mut bytes, len);
        let what = "repeated RDMA packet type";
        prop_assert_eq!(Header::parse(&bytes), Err(ParseError::Value { what, expected: 0xF - repeated, found: repeated }));
    }

    #[test]
    fn segments_of_a_valid_command_lie_in_its_operation(command in command()) {
        let end = command.offset.checked_add(command.data_len);
        prop_assert!(!command.operation.is_segmented() || end.is_some_and(|end| end <= command.operation_len));
        prop_assert_eq!(command.is_last(), !command.operation.is_segmented() || end == Some(command.operation_len));
    }

    /// The last segment has immediate data, solicited event or invalidation, and any other is refused with them.
    #[test]
    fn only_the_last_segment_ends_an_operation(command in command(), later in 1_u32..) {
        let ends = command.operation.plain() != command.operation || command.solicited;
        let operation_len = command.operation_len.saturating_add(later);
        let longer = Command { operation_len, ..command };
        if command.operation.is_segmented() && command.data_len > 0 && longer != command {
            prop_assert_eq!(Command::parse(&longer.emit()).is_ok(), !ends);
        }
    }

    /// Random bytes seldom have the protocol identifier and the CRC, so these get them, and few fields that are not 0.
    #[test]
    fn parsed_bytes_are_emitted_again(
        mut bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..80),
        instruction: u8, forge: bool,
    ) {
        if forge && bytes.len() >= Command::LEN {
            let (packet_type, len) =
                if instruction & 0x40 != 0 { (COMMAND, Command::LEN) } else { (REPLY, Reply::LEN) };
            (bytes[1], bytes[2], bytes[3]) = (PROTOCOL, instruction & 0x7F, version_byte(packet_type));
            reseal(&mut bytes, len);
        }
        if let Ok((header, rest)) = Header::parse(&bytes) {
            let again = header.emit();
            prop_assert_eq!([again.as_slice(), rest].concat(), bytes.clone());
            prop_assert_eq!(header.data(rest).is_ok(), rest.len() == packet(&header).len() - again.len());
        }
        let (command, reply) = (Command::parse(&bytes).is_ok(), Reply::parse(&bytes).is_ok());
        prop_assert_eq!(command || reply, Header::parse(&bytes).is_ok());
        prop_assert!(!command || Command::recipient(&bytes).is_ok());
    }
}
