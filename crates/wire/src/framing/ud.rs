//! RoCEv2 unreliable datagrams with an immediate: the framing of the ultrasound probe.
//!
//! Every packet is a UD SEND_ONLY_WITH_IMMEDIATE (0x65). The immediate holds the shot number modulo 2^20 in
//! bits 31:12 and the packet's index in bits 11:0, so the payload's offset is index · 4096. Payloads are
//! 4096 bytes, the last of a shot shorter; the solicited-event bit is set on the last packet only. The
//! header is 24 bytes: BTH, DETH, immediate.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position};
use crate::bth::Opcode;
use crate::roce::{UdHeader, ud_header};
use crate::shot::{Geometry, Trailer};
use crate::udp::ROCE_PORT;
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Bits of the shot number that the immediate holds.
pub const SHOT_BITS: u32 = 20;
/// Bits of the packet index.
pub const INDEX_BITS: u32 = 12;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 24;

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "ud",
    set_up: SetUp::Optional { id: 0 },
    sealed: true,
    header_len: HEADER_LEN as u32,
    trailer: Trailer::Record,
    port: ROCE_PORT,
    shares_address: true,
    keys: Keys::QueuePairAndQKey,
    completions: Completions::Immediate,
    replay: Replay::Complete,
    large_shots: false,
};

/// UD framing with an immediate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ud;

/// Returns the immediate of a packet: shot number modulo 2^20, index modulo 2^12.
pub fn immediate(shot: u64, index: u32) -> u32 {
    (shot as u32) << INDEX_BITS | index & ((1 << INDEX_BITS) - 1)
}

/// Returns the shot number (its low 20 bits) and the packet index of an immediate.
pub fn split_immediate(imm: u32) -> (u32, u32) {
    (imm >> INDEX_BITS, imm & ((1 << INDEX_BITS) - 1))
}

/// Returns the number of bytes that pad a payload to a multiple of 4.
pub(super) fn pad(len: u32) -> u8 {
    (len.wrapping_neg() & 3) as u8
}

/// Returns the length of the payload without its padding.
pub(super) fn unpadded(header: &UdHeader, payload_len: u32) -> Result<u32, ParseError> {
    payload_len.checked_sub(header.pad.into()).ok_or(ParseError::Truncated {
        what: "payload with its padding",
        needed: header.pad.into(),
        found: payload_len as usize,
    })
}

impl NoExtras for Ud {}

impl Framing for Ud {
    fn name(&self) -> &'static str {
        DESCRIPTION.name
    }

    fn has_icrc(&self) -> bool {
        DESCRIPTION.sealed
    }

    fn header_len(&self, _first: &[u8]) -> usize {
        HEADER_LEN
    }

    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        ud_header(header).map(|header| header.dest_qp)
    }

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let header = ud_header(header)?;
        let Some(imm) = header.imm else {
            let (expected, found) = (Opcode::UdSendOnlyImm as u64, header.opcode as u64);
            return Err(ParseError::Value { what: "opcode", expected, found });
        };
        let len = unpadded(&header, payload_len)?;
        let (shot, index) = split_immediate(imm);
        let packet = Packet::nth(g, header.psn, shot.into(), index)?;
        packet.expect_len(len)?;
        packet.expect_last(header.solicited)?;
        let Packet { offset, last, .. } = packet;
        Ok(Placement { position: Position::Shot { number: shot.into(), bits: SHOT_BITS, offset, last }, len })
    }

    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let header = UdHeader {
            opcode: Opcode::UdSendOnlyImm,
            dest_qp: link.dest_qp,
            src_qp: link.src_qp,
            q_key: link.q_key,
            psn: p.psn,
            imm: Some(immediate(p.shot, p.index)),
            solicited: p.last,
            pad: pad(p.len),
        };
        bytes::append(out, &header.emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::Packing;

    fn geometry() -> Geometry {
        Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap() // 71 packets, the last of 1344 bytes
    }

    fn header(shot: u64, index: u32, solicited: bool) -> ArrayVec<u8, 40> {
        let imm = Some(immediate(shot, index));
        let opcode = Opcode::UdSendOnlyImm;
        UdHeader { opcode, dest_qp: 1, src_qp: 2, q_key: 3, psn: 4, imm, solicited, pad: 0 }.emit()
    }

    #[test]
    fn shot_numbers_wrap_at_twenty_bits() {
        assert_eq!(immediate(0x123_4567_89AB, 70), 0x789A_B046);
        assert_eq!(split_immediate(0x789A_B046), (0x789AB, 70));
    }

    #[test]
    fn an_index_beyond_the_shot_is_refused() {
        let error = Ud.place(&header(1, 71, true), 1344, &geometry()).unwrap_err();
        assert_eq!(error, ParseError::Range { what: "packet index", min: 0, max: 70, found: 71 });
    }

    #[test]
    fn a_wrong_length_is_refused() {
        let error = Ud.place(&header(1, 70, true), 1340, &geometry()).unwrap_err();
        assert_eq!(error, ParseError::Length { what: "the packet's payload", expected: 1344, found: 1340 });
    }

    #[test]
    fn a_solicited_event_anywhere_but_on_the_last_is_refused() {
        assert!(Ud.place(&header(1, 69, true), 4096, &geometry()).is_err());
        assert!(Ud.place(&header(1, 70, false), 1344, &geometry()).is_err());
        assert!(Ud.place(&header(1, 70, true), 1344, &geometry()).is_ok());
    }

    #[test]
    fn padding_does_not_count() {
        let mut header = header(1, 70, true);
        header[1] |= 0x30;
        assert_eq!(Ud.place(&header, 1347, &geometry()).unwrap().len, 1344);
        assert!(Ud.place(&header, 2, &geometry()).is_err());
    }

    #[test]
    fn a_packet_without_immediate_is_refused() {
        let mut header = header(1, 70, true);
        header[0] = Opcode::UdSendOnly as u8;
        let error = Ud.place(&header, 1344, &geometry()).unwrap_err();
        assert_eq!(error, ParseError::Value { what: "opcode", expected: 0x65, found: 0x64 });
    }
}
