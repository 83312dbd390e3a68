//! Frames of a Holoscan Sensor Bridge as shots: UC RDMA WRITE packets into a ring of pages ([`crate::hsb`]).
//!
//! Every packet carries its address, so its offset in the frame is exact. The frame number follows from the page and
//! the packet sequence number. The header is BTH and RETH, 28 bytes; in the last packet of a frame an immediate
//! follows.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Extras, Framing, Link, MAX_HEADER, Packet, Placement, Position, SampleContext, Signal};
use crate::bth::{Bth, Opcode};
use crate::hsb::PSN_BITS;
use crate::imm::ImmDt;
use crate::reth::Reth;
use crate::shot::{Geometry, Trailer};
use crate::udp::ROCE_PORT;
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Length of the header of all packets but a frame's last, in bytes.
pub const HEADER_LEN: usize = Bth::LEN + Reth::LEN;
/// Length of the header of a frame's last packet, in bytes.
pub const LAST_HEADER_LEN: usize = HEADER_LEN + ImmDt::LEN;

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "hsb",
    set_up: SetUp::Learned,
    sealed: true,
    header_len: HEADER_LEN as u32,
    trailer: Trailer::HsbMetadata,
    port: ROCE_PORT,
    shares_address: false,
    keys: Keys::QueuePair,
    completions: Completions::Unsupported,
    replay: Replay::AddressPerLink,
    large_shots: false,
};

/// Framing of a sensor bridge, with the receiver's memory layout as configured in the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsb {
    /// Address of page 0.
    pub base: u64,
    /// Distance between pages in bytes, at least the length of a shot.
    pub step: u32,
    /// Number of pages in the ring.
    pub pages: u32,
    /// Remote key (R_Key) that packets must carry.
    pub r_key: u32,
}

impl Extras for Hsb {
    fn header_len_at(&self, index: u32, g: &Geometry) -> Option<usize> {
        Some(if index + 1 == g.packets() { LAST_HEADER_LEN } else { HEADER_LEN })
    }

    fn signal(&self, _header: &[u8], _g: &Geometry) -> Option<Signal> {
        None
    }

    fn count(&self, _header: &[u8]) -> Option<u8> {
        None
    }

    fn is_counted(&self) -> bool {
        false
    }

    fn sample_context(&self) -> SampleContext {
        SampleContext::default()
    }

    fn stamp_tai_ns(&self, _shot: u64, _g: &Geometry) -> u64 {
        0
    }
}

impl Framing for Hsb {
    fn name(&self) -> &'static str {
        DESCRIPTION.name
    }

    fn has_icrc(&self) -> bool {
        DESCRIPTION.sealed
    }

    fn header_len(&self, first: &[u8]) -> usize {
        match first.first() {
            Some(opcode) if *opcode == Opcode::UcWriteOnlyImm as u8 => LAST_HEADER_LEN,
            _ => HEADER_LEN,
        }
    }

    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        Bth::parse(header).map(|(bth, _)| bth.dest_qp)
    }

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let (bth, rest) = Bth::parse(header)?;
        let last = match bth.opcode {
            Opcode::UcWriteOnly => false,
            Opcode::UcWriteOnlyImm => true,
            other => return Err(ParseError::Unknown { what: "opcode of a sensor bridge", found: other as u64 }),
        };
        let (reth, rest) = Reth::parse(rest)?;
        if last {
            ImmDt::parse(rest)?;
        }
        if reth.r_key != self.r_key {
            let (expected, found) = (self.r_key.into(), reth.r_key.into());
            return Err(ParseError::Value { what: "remote key", expected, found });
        }
        // The bridge does not pad payloads to a multiple of 4, so a packet with a pad count is from another sender.
        if bth.pad != 0 {
            return Err(ParseError::Value { what: "pad count", expected: 0, found: bth.pad.into() });
        }
        if reth.length != payload_len {
            let (expected, found) = (payload_len.into(), reth.length.into());
            return Err(ParseError::Length { what: "RDMA WRITE", expected, found });
        }
        let ring = u64::from(self.step) * u64::from(self.pages);
        let outside = || ParseError::Range {
            what: "RDMA WRITE's address",
            min: self.base,
            max: self.base.saturating_add(ring),
            found: reth.address,
        };
        let at = reth.address.checked_sub(self.base).filter(|at| *at < ring).ok_or_else(outside)?;
        let (page, offset) = ((at / u64::from(self.step)) as u32, (at % u64::from(self.step)) as u32);
        let packet = Packet::at(g, bth.psn, page.into(), offset)?;
        packet.expect_len(payload_len)?;
        packet.expect_last(last)?;
        let first = bth.psn.wrapping_sub(packet.index) & ((1 << PSN_BITS) - 1);
        let position = Position::Paged { page, pages: self.pages, first, bits: PSN_BITS, offset };
        Ok(Placement { position, len: payload_len })
    }

    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let page = p.shot % u64::from(self.pages.max(1));
        let opcode = if p.last { Opcode::UcWriteOnlyImm } else { Opcode::UcWriteOnly };
        let psn = p.psn & ((1 << PSN_BITS) - 1);
        let bth = Bth { migrated: false, ..Bth::new(opcode, link.dest_qp, psn) };
        let address = self.base.wrapping_add(page * u64::from(self.step) + u64::from(p.offset));
        bytes::append(out, &bth.emit());
        bytes::append(out, &Reth { address, r_key: self.r_key, length: p.len }.emit());
        if p.last {
            bytes::append(out, &ImmDt(psn << 12 | page as u32 & 0xFFF).emit());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::{Packetization, Packing, Trailer};
    use proptest::prelude::*;

    const HSB: Hsb = Hsb { base: 0x1000_0000, step: 0x1_0080, pages: 4, r_key: 0x1234 };

    fn frame(apart: bool) -> Geometry {
        let g = Geometry::new(1, 65_536 - 300, 8, Packing::Uint8, 0).unwrap();
        g.sent_as(Trailer::HsbMetadata, Packetization { first: 1408, rest: 1408, separate_trailer: apart }).unwrap()
    }

    #[test]
    fn pad_count_and_wrong_length_have_errors_of_their_own() {
        let g = frame(false);
        let packet = Packet::nth(&g, 0, 0, 0).unwrap();
        let mut header = ArrayVec::new();
        HSB.emit(&Link::default(), &packet, &mut header);
        let len = packet.len;
        let expected = ParseError::Length { what: "RDMA WRITE", expected: u64::from(len) - 4, found: len.into() };
        assert_eq!(HSB.place(&header, len - 4, &g), Err(expected));
        header[1] |= 2 << 4;
        let expected = ParseError::Value { what: "pad count", expected: 0, found: 2 };
        assert_eq!(HSB.place(&header, len, &g), Err(expected));
    }

    proptest! {
        #[test]
        fn frame_packets_are_placed_where_they_were_sent_from(
            apart: bool, shot in 0_u64..1 << 40, psn: u32, index: prop::sample::Index,
        ) {
            let g = frame(apart);
            let packet = Packet::nth(&g, psn, shot, index.index(g.packets() as usize) as u32).unwrap();
            let mut header = ArrayVec::new();
            HSB.emit(&Link { dest_qp: 2, ..Link::default() }, &packet, &mut header);
            prop_assert_eq!(HSB.header_len(&header), header.len());
            prop_assert_eq!(HSB.header_len_at(packet.index, &g), Some(header.len()));
            prop_assert_eq!(HSB.key(&header), Ok(2));
            let place = HSB.place(&header, packet.len, &g).unwrap();
            let first = psn.wrapping_sub(packet.index) & 0xF_FFFF;
            let position =
                Position::Paged { page: (shot % 4) as u32, pages: 4, first, bits: 20, offset: packet.offset };
            prop_assert_eq!(place, Placement { position, len: packet.len });
            prop_assert!(HSB.place(&header, packet.len - 1, &g).is_err());
            prop_assert!(HSB.place(&header[..header.len() - 1], packet.len, &g).is_err());
            for wrong in [
                Hsb { r_key: 0x1235, ..HSB },
                Hsb { base: HSB.base + 128, ..HSB },
                Hsb { base: HSB.base + (1 << 30), ..HSB },
                Hsb { base: 0, ..HSB },
            ] {
                prop_assert!(wrong.place(&header, packet.len, &g).is_err(), "{wrong:?}");
            }
        }
    }
}
