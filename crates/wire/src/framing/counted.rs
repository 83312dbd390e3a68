//! RoCEv2 unreliable datagrams without an immediate: only the packet sequence number identifies the position of a
//! payload, so the receiver counts packets.
//!
//! Every packet is a UD SEND_ONLY (0x64) of 4096 bytes, the last of a shot shorter; the solicited-event bit
//! is set on the last packet only. The sequence number starts at a value that the set-up exchange carries, grows by
//! one with each packet, and wraps at 2^24. The number of the shot is `(psn - first) mod 2^24` divided by the packets
//! of a shot. The header is 20 bytes: BTH, DETH.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Framing, Link, MAX_HEADER, NoExtras, Packet, Placement, Position, ud};
use crate::bth::Opcode;
use crate::roce::{UdHeader, ud_header};
use crate::shot::{Geometry, Trailer};
use crate::udp::ROCE_PORT;
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Bits of the packet sequence number.
pub const SEQUENCE_BITS: u32 = 24;
/// Length of the header, in bytes.
pub const HEADER_LEN: usize = 20;

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "counted",
    set_up: SetUp::Required { id: 1 },
    sealed: true,
    header_len: HEADER_LEN as u32,
    trailer: Trailer::Record,
    port: ROCE_PORT,
    shares_address: true,
    keys: Keys::QueuePairAndQKey,
    completions: Completions::Count,
    replay: Replay::Refused,
    large_shots: false,
};

/// UD framing without an immediate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted;

impl NoExtras for Counted {}

impl Framing for Counted {
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
        if header.opcode != Opcode::UdSendOnly {
            let (expected, found) = (Opcode::UdSendOnly as u64, header.opcode as u64);
            return Err(ParseError::Value { what: "opcode", expected, found });
        }
        let len = ud::unpadded(&header, payload_len)?;
        // Only the receiver's count gives the index of the packet, but the packet itself is marked if it is the last.
        let index = if header.solicited { g.packets() - 1 } else { 0 };
        let packet = Packet::nth(g, header.psn, 0, index)?;
        packet.expect_len(len)?;
        packet.expect_last(header.solicited)?;
        Ok(Placement { position: Position::Sequence { number: header.psn, bits: SEQUENCE_BITS }, len })
    }

    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let header = UdHeader {
            opcode: Opcode::UdSendOnly,
            dest_qp: link.dest_qp,
            src_qp: link.src_qp,
            q_key: link.q_key,
            psn: p.psn,
            imm: None,
            solicited: p.last,
            pad: ud::pad(p.len),
        };
        bytes::append(out, &header.emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::Packing;

    fn place(solicited: bool, len: u32) -> Result<Placement, ParseError> {
        let g = Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap(); // the last packet has 1344 bytes
        let packet = Packet { psn: 0x0123_4567, len, last: solicited, ..Packet::default() };
        let mut header = ArrayVec::new();
        Counted.emit(&Link::default(), &packet, &mut header);
        Counted.place(&header, len, &g)
    }

    #[test]
    fn position_is_the_sequence_number() {
        let position = Position::Sequence { number: 0x23_4567, bits: 24 };
        assert_eq!(place(false, 4096), Ok(Placement { position, len: 4096 }));
        assert_eq!(place(true, 1344), Ok(Placement { position, len: 1344 }));
    }

    #[test]
    fn wrong_payload_lengths_are_refused() {
        assert!(place(false, 1344).is_err() && place(true, 4096).is_err() && place(false, 0).is_err());
    }
}
