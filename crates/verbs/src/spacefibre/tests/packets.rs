//! Translation between the engines' headers and RDMA packets over SpaceFibre.

use super::*;
use crate::engine::{OutgoingPacket, Part};
use crate::spacefibre::packet::{Encoded, decode, encode, has_operands, part};
use shotline_wire::aeth::{Aeth, NakCode, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode, Opcode::*};
use shotline_wire::imm::{Ieth, ImmDt};
use shotline_wire::reth::Reth;
use shotline_wire::roce::Extensions;
use shotline_wire::spacefibre::rdma::{Operation as Op, Reply, ReplyKind, Status};

const KEY: u32 = 0xA1B2_C3D4;
const TO: Remote = Remote { address: 0x1000, rkey: KEY };
const IMM: u32 = 0xDEAD_BEEF;
const MSN: u32 = 7;

/// A packet of an engine and what it is over SpaceFibre.
struct Case {
    bth: Bth,
    extensions: Extensions,
    part: Part,
    /// Data that are not operands, without padding.
    payload: u32,
    operands: Vec<u8>,
    header: Header,
}

fn encoded(case: &Case) -> Option<Encoded> {
    let padded = case.payload.next_multiple_of(4);
    let bth = Bth { pad: (padded - case.payload) as u8, ..case.bth };
    let header = case.extensions.emit(&bth);
    let msn = if let Header::Reply(reply) = case.header { reply.msn } else { 0 };
    let (elements, to, part) = ((0, 0), address(2), case.part);
    encode(&OutgoingPacket { header, elements, to, part, msn, is_retransmission: false }, padded)
}

/// A WRITE of 30 bytes, or a SEND, in packets of up to 12 bytes.
fn segment(opcode: Opcode, operation: Op, offset: u32, payload: u32, operation_len: u32) -> Case {
    let is_write = matches!(operation, Op::Write | Op::WriteImm);
    let remote = is_write.then_some(Remote { address: TO.address + u64::from(offset), ..TO });
    let key = if is_write || operation == Op::SendInvalidate { KEY } else { 0 };
    let is_last = offset + payload == operation_len;
    let bth = Bth { ack_request: is_last, solicited: is_last, ..Bth::new(opcode, 0x12, 0xFF_FFFF) };
    let reth = Reth { address: TO.address, r_key: KEY, length: operation_len };
    Case {
        extensions: Extensions {
            reth: (is_write && offset == 0).then_some(reth),
            imm: operation.has_imm().then_some(ImmDt(IMM)),
            invalidate: (operation == Op::SendInvalidate).then_some(Ieth(KEY)),
            ..Extensions::default()
        },
        header: Header::Command(Command {
            reply_requested: is_last,
            solicited: is_last,
            key,
            address: remote.map_or(0, |remote| remote.address),
            operation_len,
            offset,
            imm: if operation.has_imm() { IMM } else { 0 },
            data_len: payload,
            ..Command::new(operation, 0x12, 0xFF_FFFF)
        }),
        bth,
        part: Part { operation_len, offset, remote },
        payload,
        operands: Vec::new(),
    }
}

fn segments() -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = [
        (Op::Send, [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly]),
        (Op::Write, [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly]),
    ];
    for (operation, [first, middle, last, only]) in plain {
        cases.push(segment(first, operation, 0, 12, 30));
        cases.push(segment(middle, operation, 12, 12, 30));
        cases.push(segment(last, operation, 24, 6, 30));
        cases.extend([0, 1, 11, 12].map(|len| segment(only, operation, 0, len, len)));
    }
    for (operation, last, only) in [
        (Op::SendImm, RcSendLastImm, RcSendOnlyImm),
        (Op::SendInvalidate, RcSendLastInvalidate, RcSendOnlyInvalidate),
        (Op::WriteImm, RcWriteLastImm, RcWriteOnlyImm),
    ] {
        cases.push(segment(last, operation, 24, 6, 30));
        cases.extend([0, 5].map(|len| segment(only, operation, 0, len, len)));
    }
    cases
}

/// A READ of `operation_len` bytes or an atomic operation.
fn request(opcode: Opcode, operation: Op, extensions: Extensions, operation_len: u32, operands: Vec<u8>) -> Case {
    let command = Command { reply_requested: true, key: KEY, ..Command::new(operation, 0x12, 5) };
    Case {
        bth: Bth { ack_request: true, ..Bth::new(opcode, 0x12, 5) },
        extensions,
        part: Part { operation_len, offset: 0, remote: Some(TO) },
        payload: 0,
        header: Header::Command(Command { address: TO.address, operation_len, ..command }),
        operands,
    }
}

fn requests() -> Vec<Case> {
    let reth = Reth { address: TO.address, r_key: KEY, length: 100_000 };
    let read = Extensions { reth: Some(reth), ..Extensions::default() };
    let mut cases = vec![request(RcReadRequest, Op::Read, read, 100_000, Vec::new())];
    let (low, high) = (0x0102_0304_0506_0708_u64, 0x1112_1314_1516_1718_u64);
    let swap = AtomicEth { address: TO.address, r_key: KEY, swap_or_add: high, compare: low };
    let extensions = Extensions { atomic: Some(swap), ..Extensions::default() };
    let operands = [low.to_be_bytes(), high.to_be_bytes()].concat();
    cases.push(request(RcCompareSwap, Op::CompareSwap, extensions, 8, operands));
    let extensions = Extensions { atomic: Some(AtomicEth { compare: 0, ..swap }), ..Extensions::default() };
    cases.push(request(RcFetchAdd, Op::FetchAdd, extensions, 8, high.to_be_bytes().to_vec()));
    cases
}

fn answer(opcode: Opcode, kind: ReplyKind, syndrome: Option<Syndrome>, status: Status, payload: u32) -> Case {
    let (is_atomic, original) = (kind == ReplyKind::Atomic, 0x2122_2324_2526_2728_u64);
    Case {
        bth: Bth::new(opcode, 0x34, 9),
        extensions: Extensions {
            aeth: syndrome.map(|syndrome| Aeth { syndrome, msn: MSN }),
            atomic_ack: is_atomic.then_some(AtomicAckEth { original }),
            ..Extensions::default()
        },
        part: Part::default(),
        payload,
        operands: if is_atomic { original.to_be_bytes().to_vec() } else { Vec::new() },
        header: Header::Reply(Reply {
            status,
            msn: MSN,
            data_len: if is_atomic { 8 } else { payload },
            ..Reply::new(kind, 0x34, 9)
        }),
    }
}

fn replies() -> Vec<Case> {
    let read = |first, last| ReplyKind::Read { first, last };
    let ack = Some(Syndrome::ACK);
    let mut cases = vec![
        answer(RcReadResponseFirst, read(true, false), ack, Status::Success, 4096),
        answer(RcReadResponseMiddle, read(false, false), None, Status::Success, 4096),
        answer(RcReadResponseLast, read(false, true), ack, Status::Success, 1),
        answer(RcReadResponseOnly, read(true, true), ack, Status::Success, 0),
        answer(RcReadResponseOnly, read(true, true), ack, Status::Success, 4095),
        answer(RcAtomicAcknowledge, ReplyKind::Atomic, ack, Status::Success, 0),
        answer(RcAcknowledge, ReplyKind::Acknowledge, ack, Status::Success, 0),
    ];
    for (code, status) in [
        (NakCode::PsnSequenceError, Status::SequenceError),
        (NakCode::InvalidRequest, Status::InvalidRequest),
        (NakCode::RemoteAccessError, Status::InvalidKey),
        (NakCode::RemoteOperationalError, Status::GeneralError),
    ] {
        cases.push(answer(RcAcknowledge, ReplyKind::Acknowledge, Some(Syndrome::Nak(code)), status, 0));
    }
    for timer in (0..32).filter_map(RnrTimer::from_code) {
        let (nak, status) = (Some(Syndrome::RnrNak(timer)), Status::ReceiverNotReady(timer));
        cases.push(answer(RcAcknowledge, ReplyKind::Acknowledge, nak, status, 0));
    }
    cases
}

fn all() -> impl Iterator<Item = Case> {
    segments().into_iter().chain(requests()).chain(replies())
}

#[test]
fn every_packet_is_encoded_as_specified_and_decoded_back() {
    for case in all() {
        let what = format!("{:?} of {} bytes", case.bth.opcode, case.payload);
        let Encoded { head, inline, payload } = encoded(&case).unwrap_or_else(|| panic!("{what}"));
        let len = head.len() - inline;
        assert_eq!(head[..len], *case.header.emit(), "{what}");
        assert_eq!((&head[len..], payload), (&*case.operands, case.payload), "{what}");
        let (header, rest) = Header::parse(&head).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((header, rest), (case.header, &*case.operands), "{what}");
        assert_eq!(has_operands(&header), inline > 0, "{what}");
        assert_eq!(decode(&header, rest), Some((case.bth, case.extensions)), "{what}");
        let is_segment = matches!(header, Header::Command(command) if command.operation.is_segmented());
        assert_eq!(part(&header), is_segment.then_some(case.part), "{what}");
    }
}

#[test]
fn only_packets_of_reliable_connections_are_encoded() {
    // This crate's engines send neither of the two.
    let unused = [RcFlush, RcAtomicWrite];
    let encodable: Vec<_> = all().map(|case| case.bth.opcode).collect();
    for opcode in Opcode::ALL {
        let case =
            Case { bth: Bth::new(*opcode, 1, 1), ..answer(*opcode, ReplyKind::Acknowledge, None, Status::Success, 0) };
        let is_rc = (*opcode as u8) < UcSendFirst as u8 && !unused.contains(opcode);
        assert_eq!(encodable.contains(opcode), is_rc, "{opcode:?}");
        assert_eq!(encoded(&case).is_some(), is_rc, "{opcode:?}");
    }
    assert!(encoded(&answer(CongestionNotification, ReplyKind::Acknowledge, None, Status::Success, 16)).is_none());
}

#[test]
fn examples_of_the_specification_are_encoded() {
    let example =
        |text: &str| -> Vec<u8> { text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect() };
    let first = Case { bth: Bth::new(RcWriteFirst, 0x12, 0xFF_FFFF), ..segment(RcWriteFirst, Op::Write, 0, 8, 12) };
    let last = segment(RcWriteLastImm, Op::WriteImm, 8, 4, 12);
    let bth = Bth { solicited: false, psn: 0, ..last.bth };
    let mut read = requests().remove(0);
    (read.bth.psn, read.part.operation_len) = (1, 12);
    read.part.remote = Some(Remote { address: 0x7F00_1234_5678, rkey: KEY });
    let ack = answer(RcAcknowledge, ReplyKind::Acknowledge, Some(Syndrome::ACK), Status::Success, 0);
    for (case, text) in [
        (
            first,
            "fe f0 48 10 a1 b2 c3 d4 fe 00 00 12 00 ff ff ff \
             00 00 00 00 00 00 10 00 00 00 00 0c 00 00 00 00 \
             00 00 00 00 00 00 08 fc",
        ),
        (
            Case { bth, ..last },
            "fe f0 4e 10 a1 b2 c3 d4 fe 00 00 12 00 00 00 00 \
             00 00 00 00 00 00 10 08 00 00 00 0c 00 00 00 08 \
             de ad be ef 00 00 04 e1",
        ),
        (Case { bth: Bth { psn: 0, ..ack.bth }, ..ack }, "fe f0 08 1f 00 00 00 34 fe 00 00 00 00 00 07 00 00 00 00 e1"),
        (
            read,
            "fe f0 46 10 a1 b2 c3 d4 fe 00 00 12 00 00 00 01 \
             00 00 7f 00 12 34 56 78 00 00 00 0c 00 00 00 00 \
             00 00 00 00 00 00 00 06",
        ),
    ] {
        assert_eq!(encoded(&case).unwrap().head[..], example(text), "{:?}", case.bth.opcode);
    }
}

#[test]
fn operands_that_are_too_short_are_refused() {
    for case in all().filter(|case| !case.operands.is_empty()) {
        for len in 0..case.operands.len() {
            assert_eq!(decode(&case.header, &case.operands[..len]), None, "{:?}", case.bth.opcode);
        }
    }
}
