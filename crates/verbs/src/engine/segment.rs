//! Segmentation of SEND and WRITE messages into packets, and the position of a packet in its message.

use super::common::Common;
use super::gather::sge_range;
use super::sends::SendQueue;
use super::{Burst, Part};
use crate::api::{Operation, QpType, Remote};
use arrayvec::ArrayVec;
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::imm::ImmDt;
use shotline_wire::reth::Reth;
use shotline_wire::roce::MAX_HEADER_LEN;

/// Mask of a PSN, which has 24 bits in a packet.
pub(super) const PSN_MASK: u32 = 0x00FF_FFFF;

/// Returns how far PSN `a` is ahead of `b`, modulo 2^24: from -2^23 to 2^23 - 1 (Linux `rxe_hdr.h`).
pub(super) fn psn_diff(a: u32, b: u32) -> i32 {
    (a.wrapping_sub(b) << 8).cast_signed() >> 8
}

/// Extends a 24-bit PSN to the absolute sequence number nearest to `near`.
#[inline]
pub(super) fn expand_psn(psn: u32, near: u64) -> u64 {
    near.wrapping_add_signed(psn_diff(psn, near as u32 & PSN_MASK).into())
}

/// Returns the PSN after this one.
pub(super) fn next_psn(psn: u32) -> u32 {
    psn.wrapping_add(1) & PSN_MASK
}

/// Returns the number of packets of a message of `len` bytes; an empty message has one.
pub(super) fn packet_count(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}

/// Position and kind of a SEND or WRITE packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Part of a WRITE, otherwise of a SEND.
    pub write: bool,
    pub first: bool,
    pub last: bool,
    /// Carries immediate data.
    pub imm: bool,
    /// Carries an rkey to invalidate.
    pub invalidate: bool,
}

impl Segment {
    /// Decodes an RC or UC opcode; `None` if it is not a SEND or WRITE.
    pub fn of(opcode: Opcode) -> Option<Self> {
        let (write, first, last, imm, invalidate) = match opcode as u8 & 0x1F {
            0x00 => (false, true, false, false, false),
            0x01 => (false, false, false, false, false),
            0x02 => (false, false, true, false, false),
            0x03 => (false, false, true, true, false),
            0x04 => (false, true, true, false, false),
            0x05 => (false, true, true, true, false),
            0x06 => (true, true, false, false, false),
            0x07 => (true, false, false, false, false),
            0x08 => (true, false, true, false, false),
            0x09 => (true, false, true, true, false),
            0x0A => (true, true, true, false, false),
            0x0B => (true, true, true, true, false),
            0x16 => (false, false, true, false, true),
            0x17 => (false, true, true, false, true),
            _ => return None,
        };
        Some(Self { write, first, last, imm, invalidate })
    }

    /// Returns the opcode, RC or UC.
    fn opcode(self, kind: QpType) -> Opcode {
        use Opcode::*;
        let Self { write, first, last, imm, invalidate } = self;
        let reliable = match (write, first, last) {
            (false, true, false) => RcSendFirst,
            (false, false, false) => RcSendMiddle,
            (false, false, true) if invalidate => RcSendLastInvalidate,
            (false, false, true) => [RcSendLast, RcSendLastImm][usize::from(imm)],
            (false, true, true) if invalidate => RcSendOnlyInvalidate,
            (false, true, true) => [RcSendOnly, RcSendOnlyImm][usize::from(imm)],
            (true, true, false) => RcWriteFirst,
            (true, false, false) => RcWriteMiddle,
            (true, false, true) => [RcWriteLast, RcWriteLastImm][usize::from(imm)],
            (true, true, true) => [RcWriteOnly, RcWriteOnlyImm][usize::from(imm)],
        };
        match kind {
            QpType::Uc => Opcode::from_u8(reliable as u8 | UcSendFirst as u8).unwrap_or(reliable),
            _ => reliable,
        }
    }
}

/// Adds packet `index` of a SEND or WRITE to a burst, if the queue pair has a peer.
pub(super) fn push(
    burst: &mut Burst,
    common: &Common,
    sends: &SendQueue,
    number: u64,
    index: u32,
    psn: u32,
    ack_request: bool,
) {
    let Some((to, qp)) = common.peer else { return };
    let request = sends.get(number);
    let offset = index * common.mtu;
    let len = (request.len - offset).min(common.mtu);
    let (first, last) = (index == 0, index + 1 == request.packets);
    let (write, imm, invalidate) = match request.operation {
        Operation::SendImm(imm) => (None, Some(imm), None),
        Operation::SendInvalidate(key) => (None, None, Some(key)),
        Operation::Write(remote) => (Some(remote), None, None),
        Operation::WriteImm(remote, imm) => (Some(remote), Some(imm), None),
        _ => (None, None, None),
    };
    let (imm, invalidate) = (imm.filter(|_| last), invalidate.filter(|_| last));
    let segment = Segment { write: write.is_some(), first, last, imm: imm.is_some(), invalidate: invalidate.is_some() };
    let padding = sends.padding(len);
    let bth = Bth {
        // A WRITE without immediate data completes nothing at the peer, so it cannot raise a solicited event.
        solicited: request.solicited && last && (write.is_none() || imm.is_some()),
        pad: padding.len as u8,
        ack_request,
        ..Bth::new(segment.opcode(common.config.kind), qp, psn & PSN_MASK)
    };
    // Nearly all packets have at most one other header, so the general `Extensions` encoder is avoided here.
    let mut header = ArrayVec::new();
    append(&mut header, &bth.emit());
    if let (true, Some(remote)) = (first, write) {
        append(&mut header, &Reth { address: remote.address, r_key: remote.rkey, length: request.len }.emit());
    }
    if let Some(word) = imm.or(invalidate) {
        append(&mut header, &ImmDt(word).emit());
    }
    let remote = write.map(|remote| Remote { address: remote.address.wrapping_add(offset.into()), ..remote });
    let part = Part { operation_len: request.len, offset, remote };
    burst.push_request(to, header, part, sge_range(sends.elements(number), offset, len), padding);
}

/// Appends to a header buffer, which has capacity for the headers of any opcode.
fn append(header: &mut ArrayVec<u8, MAX_HEADER_LEN>, bytes: &[u8]) {
    let fits = header.try_extend_from_slice(bytes);
    debug_assert!(fits.is_ok(), "longer than the headers of any opcode");
}
