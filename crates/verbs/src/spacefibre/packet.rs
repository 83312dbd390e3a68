//! Translation between the packets of the engines, which have RoCE's headers, and RDMA packets over SpaceFibre.

use crate::api::Remote;
use crate::engine::{OutgoingPacket, Part};
use arrayvec::ArrayVec;
use shotline_wire::aeth::{Aeth, NakCode, Syndrome};
use shotline_wire::atomic::{AtomicAckEth, AtomicEth};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::imm::{Ieth, ImmDt};
use shotline_wire::reth::Reth;
use shotline_wire::roce::{self, Extensions};
use shotline_wire::spacefibre::rdma::{Command, CompareSwap, FetchAdd, Header, Operation, Reply, ReplyKind, Status};

/// Maximum length of a header with the operands of an atomic operation, in bytes.
const MAX_HEAD: usize = Command::LEN + CompareSwap::LEN;

/// Bytes of a packet that do not lie in registered memory.
pub(super) type Head = ArrayVec<u8, MAX_HEAD>;

/// Encoded start of a packet.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    /// Header, and the operands of an atomic operation.
    pub(super) head: Head,
    /// Bytes of `head` that are data, covered by the data CRC.
    pub(super) inline: usize,
    /// Bytes of the gather list that are data: without padding.
    pub(super) payload: u32,
}

/// Encodes a packet of an RC engine with `len` bytes in its gather list, padding included. Returns `None` for packets
/// that a lossless link does not have: congestion notifications.
pub(super) fn encode(packet: &OutgoingPacket, len: u32) -> Option<Encoded> {
    let (bth, extensions) = roce::header(&packet.header).ok()?;
    let payload = len - u32::from(bth.pad);
    let mut head = Head::new();
    let mut inline = ArrayVec::<u8, { CompareSwap::LEN }>::new();
    if let Some(operation) = operation(bth.opcode) {
        let command = command(operation, &bth, &extensions, packet.part, payload, &mut inline)?;
        extend(&mut head, &command.emit());
    } else {
        extend(&mut head, &reply(&bth, &extensions, packet.msn, payload, &mut inline)?.emit());
    }
    extend(&mut head, &inline);
    Some(Encoded { head, inline: inline.len(), payload })
}

/// Appends bytes to an array that has capacity for the longest of them.
fn extend<const N: usize>(to: &mut ArrayVec<u8, N>, bytes: &[u8]) {
    let fits = to.try_extend_from_slice(bytes);
    debug_assert!(fits.is_ok(), "longer than the longest header");
}

/// Returns the operation of a request's opcode; `None` for responses and others.
fn operation(opcode: Opcode) -> Option<Operation> {
    use Opcode::*;
    Some(match opcode {
        RcSendFirst | RcSendMiddle | RcSendLast | RcSendOnly => Operation::Send,
        RcSendLastImm | RcSendOnlyImm => Operation::SendImm,
        RcSendLastInvalidate | RcSendOnlyInvalidate => Operation::SendInvalidate,
        RcWriteFirst | RcWriteMiddle | RcWriteLast | RcWriteOnly => Operation::Write,
        RcWriteLastImm | RcWriteOnlyImm => Operation::WriteImm,
        RcReadRequest => Operation::Read,
        RcCompareSwap => Operation::CompareSwap,
        RcFetchAdd => Operation::FetchAdd,
        _ => return None,
    })
}

fn command(
    operation: Operation,
    bth: &Bth,
    extensions: &Extensions,
    part: Part,
    payload: u32,
    inline: &mut ArrayVec<u8, { CompareSwap::LEN }>,
) -> Option<Command> {
    let key = part.remote.map_or(0, |remote| remote.rkey);
    let mut command = Command {
        reply_requested: bth.ack_request,
        solicited: bth.solicited,
        key: extensions.invalidate.map_or(key, |key| key.0),
        address: part.remote.map_or(0, |remote| remote.address),
        operation_len: part.operation_len,
        offset: part.offset,
        imm: extensions.imm.map_or(0, |imm| imm.0),
        data_len: payload,
        ..Command::new(operation, bth.dest_qp, bth.psn)
    };
    match operation {
        Operation::Read => command.reply_requested = true,
        Operation::CompareSwap | Operation::FetchAdd => {
            let atomic = extensions.atomic?;
            if operation == Operation::CompareSwap {
                extend(inline, &CompareSwap { compare: atomic.compare, swap: atomic.swap_or_add }.emit());
            } else {
                extend(inline, &FetchAdd { add: atomic.swap_or_add }.emit());
            }
            (command.reply_requested, command.data_len, command.operation_len) = (true, inline.len() as u32, 8);
        }
        _ => {}
    }
    Some(command)
}

fn reply(
    bth: &Bth,
    extensions: &Extensions,
    msn: u32,
    payload: u32,
    inline: &mut ArrayVec<u8, { CompareSwap::LEN }>,
) -> Option<Reply> {
    let read = |first, last| ReplyKind::Read { first, last };
    let kind = match bth.opcode {
        Opcode::RcAcknowledge => ReplyKind::Acknowledge,
        Opcode::RcAtomicAcknowledge => ReplyKind::Atomic,
        Opcode::RcReadResponseFirst => read(true, false),
        Opcode::RcReadResponseMiddle => read(false, false),
        Opcode::RcReadResponseLast => read(false, true),
        Opcode::RcReadResponseOnly => read(true, true),
        _ => return None,
    };
    let status = match extensions.aeth.map(|aeth| aeth.syndrome) {
        None | Some(Syndrome::Ack(_)) => Status::Success,
        Some(Syndrome::RnrNak(timer)) => Status::ReceiverNotReady(timer),
        Some(Syndrome::Nak(NakCode::PsnSequenceError)) => Status::SequenceError,
        Some(Syndrome::Nak(NakCode::InvalidRequest | NakCode::InvalidRdRequest)) => Status::InvalidRequest,
        Some(Syndrome::Nak(NakCode::RemoteAccessError)) => Status::InvalidKey,
        Some(Syndrome::Nak(NakCode::RemoteOperationalError)) => Status::GeneralError,
    };
    if let Some(original) = extensions.atomic_ack {
        extend(inline, &original.emit());
    }
    Some(Reply {
        status,
        msn,
        data_len: if kind == ReplyKind::Atomic { AtomicAckEth::LEN as u32 } else { payload },
        ..Reply::new(kind, bth.dest_qp, bth.psn)
    })
}

/// Returns the headers of a received packet as the engines take them. `operands` is the data of an atomic operation or
/// its reply, and not used for others. `None` if they are too short.
pub(super) fn decode(header: &Header, operands: &[u8]) -> Option<(Bth, Extensions)> {
    match header {
        Header::Command(command) => decode_command(command, operands),
        Header::Reply(reply) => decode_reply(reply, operands),
    }
}

/// Returns `true` if the data of this packet are operands, which [`decode`] takes, and not payload.
pub(super) fn has_operands(header: &Header) -> bool {
    match header {
        Header::Command(command) => {
            matches!(command.operation, Operation::CompareSwap | Operation::FetchAdd)
        }
        Header::Reply(reply) => reply.kind == ReplyKind::Atomic,
    }
}

/// Returns the part of its operation that a segment of a WRITE or SEND states; `None` for others.
pub(super) fn part(header: &Header) -> Option<Part> {
    let Header::Command(command) = header else { return None };
    let Command { operation, operation_len, offset, key, address, .. } = *command;
    let remote = operation.has_address().then_some(Remote { address, rkey: key });
    operation.is_segmented().then_some(Part { operation_len, offset, remote })
}

fn decode_command(command: &Command, operands: &[u8]) -> Option<(Bth, Extensions)> {
    use Opcode::*;
    let position = match (command.is_first(), command.is_last()) {
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2,
        (true, true) => 3,
    };
    // Immediate data and keys to invalidate are in the last segment only.
    let opcode = match command.operation {
        Operation::Send => [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly][position],
        Operation::SendImm => [RcSendLastImm, RcSendOnlyImm][usize::from(command.is_first())],
        Operation::SendInvalidate => [RcSendLastInvalidate, RcSendOnlyInvalidate][usize::from(command.is_first())],
        Operation::Write => [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly][position],
        Operation::WriteImm => [RcWriteLastImm, RcWriteOnlyImm][usize::from(command.is_first())],
        Operation::Read => RcReadRequest,
        Operation::CompareSwap => RcCompareSwap,
        Operation::FetchAdd => RcFetchAdd,
    };
    let bth = Bth {
        solicited: command.solicited,
        ack_request: command.reply_requested,
        ..Bth::new(opcode, command.dest_qp, command.transaction_id)
    };
    let mut extensions = Extensions::default();
    match command.operation {
        Operation::Read => extensions.reth = Some(reth(command)),
        Operation::Write | Operation::WriteImm if command.is_first() => extensions.reth = Some(reth(command)),
        Operation::CompareSwap => {
            let (CompareSwap { compare, swap }, _) = CompareSwap::parse(operands).ok()?;
            extensions.atomic = Some(atomic(command, swap, compare));
        }
        Operation::FetchAdd => extensions.atomic = Some(atomic(command, FetchAdd::parse(operands).ok()?.0.add, 0)),
        _ => {}
    }
    if command.is_last() {
        extensions.imm = command.operation.has_imm().then_some(ImmDt(command.imm));
        extensions.invalidate = (command.operation == Operation::SendInvalidate).then_some(Ieth(command.key));
    }
    Some((bth, extensions))
}

fn reth(command: &Command) -> Reth {
    Reth { address: command.address, r_key: command.key, length: command.operation_len }
}

fn atomic(command: &Command, swap_or_add: u64, compare: u64) -> AtomicEth {
    AtomicEth { address: command.address, r_key: command.key, swap_or_add, compare }
}

fn decode_reply(reply: &Reply, operands: &[u8]) -> Option<(Bth, Extensions)> {
    let opcode = match reply.kind {
        // With any other status the kind has no meaning.
        _ if reply.status != Status::Success => Opcode::RcAcknowledge,
        ReplyKind::Acknowledge => Opcode::RcAcknowledge,
        ReplyKind::Atomic => Opcode::RcAtomicAcknowledge,
        ReplyKind::Read { first: true, last: false } => Opcode::RcReadResponseFirst,
        ReplyKind::Read { first: false, last: false } => Opcode::RcReadResponseMiddle,
        ReplyKind::Read { first: false, last: true } => Opcode::RcReadResponseLast,
        ReplyKind::Read { first: true, last: true } => Opcode::RcReadResponseOnly,
    };
    let syndrome = match reply.status {
        Status::Success => Syndrome::ACK,
        Status::ReceiverNotReady(timer) => Syndrome::RnrNak(timer),
        Status::SequenceError => Syndrome::Nak(NakCode::PsnSequenceError),
        Status::InvalidRequest => Syndrome::Nak(NakCode::InvalidRequest),
        Status::InvalidKey => Syndrome::Nak(NakCode::RemoteAccessError),
        Status::GeneralError => Syndrome::Nak(NakCode::RemoteOperationalError),
    };
    let mut extensions = Extensions::default();
    if opcode != Opcode::RcReadResponseMiddle {
        extensions.aeth = Some(Aeth { syndrome, msn: reply.msn });
    }
    if opcode == Opcode::RcAtomicAcknowledge {
        extensions.atomic_ack = Some(AtomicAckEth::parse(operands).ok()?.0);
    }
    Some((Bth::new(opcode, reply.dest_qp, reply.transaction_id), extensions))
}
