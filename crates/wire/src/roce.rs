//! A whole RoCEv2 packet, from the BTH to the ICRC: the payload of a UDP datagram to
//! [`crate::udp::ROCE_PORT`] (IBTA annex A17).

use crate::aeth::Aeth;
use crate::atomic::{AtomicAckEth, AtomicEth};
use crate::bth::{Bth, Extension, Opcode, Service};
use crate::deth::Deth;
use crate::imm::{Feth, Ieth, ImmDt};
use crate::reth::Reth;
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Length of the ICRC at the end of every packet, in bytes.
pub const ICRC_LEN: usize = 4;
/// Length of the longest header (compare and swap), BTH included, in bytes.
pub const MAX_HEADER_LEN: usize = 40;

/// The headers between BTH and payload. After parsing, exactly those of the opcode are `Some`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// Datagram header.
    pub deth: Option<Deth>,
    /// RDMA header.
    pub reth: Option<Reth>,
    /// Atomic operation.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgement.
    pub aeth: Option<Aeth>,
    /// Original value of an atomic operation.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// Key to invalidate.
    pub invalidate: Option<Ieth>,
    /// Flush.
    pub flush: Option<Feth>,
}

/// A packet, received or to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// The opcode's other headers.
    pub extensions: Extensions,
    /// The payload without its padding.
    pub payload: &'a [u8],
    /// The ICRC as stored in the packet, not verified; see [`crate::icrc`].
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Parses a UDP payload. The ICRC is not verified here, since it also covers the IP and UDP headers.
    ///
    /// # Errors
    /// If the payload is shorter than the opcode's headers, its padding and the ICRC, or a header is not valid.
    pub fn parse(udp_payload: &'a [u8]) -> Result<Self, ParseError> {
        let Some((packet, icrc)) = udp_payload.split_last_chunk::<ICRC_LEN>() else {
            let needed = Bth::LEN + ICRC_LEN;
            return Err(ParseError::Truncated { what: "RoCEv2 packet", needed, found: udp_payload.len() });
        };
        let (bth, extensions, rest) = headers(packet)?;
        let pad = usize::from(bth.pad);
        let payload = rest.len().checked_sub(pad).and_then(|len| rest.get(..len)).ok_or(ParseError::Truncated {
            what: "RoCEv2 payload with its padding",
            needed: pad,
            found: rest.len(),
        })?;
        Ok(Self { bth, extensions, payload, icrc: u32::from_le_bytes(*icrc) })
    }

    /// Encodes the packet's headers: the BTH and those of its opcode, in wire order.
    pub fn emit_header(&self) -> ArrayVec<u8, MAX_HEADER_LEN> {
        self.extensions.emit(&self.bth)
    }

    /// Returns the length of the whole packet in bytes: headers, payload, padding and ICRC.
    pub fn wire_len(&self) -> usize {
        self.bth.opcode.header_len() + self.payload.len() + usize::from(self.bth.pad) + ICRC_LEN
    }
}

impl Extensions {
    fn parse_one<'a>(&mut self, extension: Extension, bytes: &'a [u8]) -> Result<&'a [u8], ParseError> {
        fn store<'a, T>(
            field: &mut Option<T>,
            parsed: Result<(T, &'a [u8]), ParseError>,
        ) -> Result<&'a [u8], ParseError> {
            let (header, rest) = parsed?;
            *field = Some(header);
            Ok(rest)
        }
        match extension {
            Extension::Deth => store(&mut self.deth, Deth::parse(bytes)),
            Extension::Reth => store(&mut self.reth, Reth::parse(bytes)),
            Extension::AtomicEth => store(&mut self.atomic, AtomicEth::parse(bytes)),
            Extension::Aeth => store(&mut self.aeth, Aeth::parse(bytes)),
            Extension::AtomicAckEth => store(&mut self.atomic_ack, AtomicAckEth::parse(bytes)),
            Extension::Imm => store(&mut self.imm, ImmDt::parse(bytes)),
            Extension::Ieth => store(&mut self.invalidate, Ieth::parse(bytes)),
            Extension::Feth => store(&mut self.flush, Feth::parse(bytes)),
        }
    }

    /// Encodes a packet's headers: `bth` and those of its opcode. A header that the opcode requires and that is
    /// `None` here is written as zeros; one that the opcode does not have is omitted.
    pub fn emit(&self, bth: &Bth) -> ArrayVec<u8, MAX_HEADER_LEN> {
        let mut out = ArrayVec::new();
        // The headers of the longest opcode fill the array, so this cannot overflow (tested for every opcode).
        bytes::append(&mut out, &bth.emit());
        for extension in bth.opcode.extensions() {
            match extension {
                Extension::Deth => bytes::append(&mut out, &self.deth.map_or([0; Deth::LEN], |h| h.emit())),
                Extension::Reth => bytes::append(&mut out, &self.reth.map_or([0; Reth::LEN], |h| h.emit())),
                Extension::AtomicEth => bytes::append(&mut out, &self.atomic.map_or([0; AtomicEth::LEN], |h| h.emit())),
                Extension::Aeth => bytes::append(&mut out, &self.aeth.map_or([0; Aeth::LEN], |h| h.emit())),
                Extension::AtomicAckEth => {
                    bytes::append(&mut out, &self.atomic_ack.map_or([0; AtomicAckEth::LEN], |h| h.emit()))
                }
                Extension::Imm => bytes::append(&mut out, &self.imm.map_or([0; ImmDt::LEN], |h| h.emit())),
                Extension::Ieth => bytes::append(&mut out, &self.invalidate.map_or([0; Ieth::LEN], |h| h.emit())),
                Extension::Feth => bytes::append(&mut out, &self.flush.map_or([0; Feth::LEN], |h| h.emit())),
            }
        }
        out
    }
}

/// Parses a packet's headers: the BTH and those of its opcode. The bytes after them are ignored.
///
/// # Errors
/// If the packet is shorter than its headers or one of them is not valid.
pub fn header(packet: &[u8]) -> Result<(Bth, Extensions), ParseError> {
    headers(packet).map(|(bth, extensions, _)| (bth, extensions))
}

fn headers(packet: &[u8]) -> Result<(Bth, Extensions, &[u8]), ParseError> {
    let (bth, mut rest) = Bth::parse(packet)?;
    let mut extensions = Extensions::default();
    for extension in bth.opcode.extensions() {
        rest = extensions.parse_one(*extension, rest)?;
    }
    Ok((bth, extensions, rest))
}

/// The header fields of an unreliable datagram that a UD queue pair checks or delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdHeader {
    /// [`Opcode::UdSendOnly`] or [`Opcode::UdSendOnlyImm`].
    pub opcode: Opcode,
    /// Destination queue pair.
    pub dest_qp: u32,
    /// The sender's queue pair.
    pub src_qp: u32,
    /// Queue key.
    pub q_key: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Solicited event.
    pub solicited: bool,
    /// Bytes at the payload's end that are padding.
    pub pad: u8,
}

impl UdHeader {
    /// Returns the length of the header in bytes: 20, or 24 with immediate data.
    pub fn header_len(&self) -> usize {
        self.opcode.header_len()
    }

    /// Encodes the header as Linux sends it (migrated, default partition). The immediate is written only with
    /// [`Opcode::UdSendOnlyImm`].
    pub fn emit(&self) -> ArrayVec<u8, MAX_HEADER_LEN> {
        let bth = Bth { solicited: self.solicited, pad: self.pad, ..Bth::new(self.opcode, self.dest_qp, self.psn) };
        let mut out = ArrayVec::new();
        bytes::append(&mut out, &bth.emit());
        bytes::append(&mut out, &Deth { q_key: self.q_key, src_qp: self.src_qp }.emit());
        if self.opcode == Opcode::UdSendOnlyImm {
            bytes::append(&mut out, &ImmDt(self.imm.unwrap_or(0)).emit());
        }
        out
    }
}

/// Parses the header of an unreliable datagram. The bytes after it (payload, ICRC) are ignored.
///
/// # Errors
/// If the header is truncated or of another transport service.
pub fn ud_header(header: &[u8]) -> Result<UdHeader, ParseError> {
    let (bth, rest) = Bth::parse(header)?;
    if bth.opcode.service() != Service::UnreliableDatagram {
        return Err(ParseError::Unknown { what: "datagram opcode", found: bth.opcode as u64 });
    }
    let (deth, rest) = Deth::parse(rest)?;
    let imm = match bth.opcode {
        Opcode::UdSendOnlyImm => Some(bytes::Fields::new("ImmDt", rest).u32()?),
        _ => None,
    };
    Ok(UdHeader {
        opcode: bth.opcode,
        dest_qp: bth.dest_qp,
        src_qp: deth.src_qp,
        q_key: deth.q_key,
        psn: bth.psn,
        imm,
        solicited: bth.solicited,
        pad: bth.pad,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aeth::Syndrome;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn every_opcode_survives_a_round_trip_with_its_headers() {
        let all = Extensions {
            deth: Some(Deth { q_key: 0x8765_4321, src_qp: 0xABCDEF }),
            reth: Some(Reth { address: 1 << 63 | 5, r_key: 0x1234_5678, length: 99 }),
            atomic: Some(AtomicEth { address: 8, r_key: 9, swap_or_add: 10, compare: 11 }),
            aeth: Some(Aeth { syndrome: Syndrome::ACK, msn: 0xFE_DCBA }),
            atomic_ack: Some(AtomicAckEth { original: 77 }),
            imm: Some(ImmDt(0xDEAD_BEEF)),
            invalidate: Some(Ieth(0x0102_0304)),
            flush: Some(Feth { placement: 3, selection: 1 }),
        };
        for opcode in Opcode::ALL {
            let bth = Bth { pad: 3, ..Bth::new(*opcode, 7, 8) };
            let mut wire = Vec::from(all.emit(&bth).as_slice());
            assert_eq!(wire.len(), opcode.header_len());
            wire.extend(b"hello\0\0\0\x04\x03\x02\x01");
            let packet = Packet::parse(&wire).unwrap();
            assert_eq!((packet.bth, packet.payload, packet.icrc), (bth, b"hello".as_slice(), 0x0102_0304));
            assert_eq!(packet.emit_header(), all.emit(&bth), "{opcode:?}");
            assert_eq!(packet.wire_len(), wire.len());
        }
    }

    #[test]
    fn padding_beyond_the_payload_is_refused() {
        let bth = Bth { pad: 3, ..Bth::new(Opcode::RcSendOnly, 1, 1) };
        let mut wire = Vec::from(bth.emit());
        wire.extend([1, 2, 0, 0, 0, 0]);
        assert!(matches!(Packet::parse(&wire), Err(ParseError::Truncated { needed: 3, found: 2, .. })));
    }

    #[test]
    fn ud_header_of_another_service_is_refused() {
        let header = Bth::new(Opcode::RcSendOnly, 1, 1).emit();
        assert_eq!(ud_header(&header), Err(ParseError::Unknown { what: "datagram opcode", found: 4 }));
    }

    proptest! {
        #[test]
        fn ud_headers_survive_a_round_trip(
            imm: Option<u32>, dest_qp in 0_u32..1 << 24, src_qp in 0_u32..1 << 24, q_key: u32, psn in 0_u32..1 << 24,
            solicited: bool, pad in 0_u8..4,
        ) {
            let opcode = if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly };
            let header = UdHeader { opcode, dest_qp, src_qp, q_key, psn, imm, solicited, pad };
            let wire = header.emit();
            prop_assert_eq!(wire.len(), header.header_len());
            prop_assert_eq!(ud_header(&wire), Ok(header));
        }

        #[test]
        fn parse_does_not_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), opcode in prop::sample::select(Opcode::ALL),
        ) {
            let _ = Packet::parse(&bytes);
            // Random bytes seldom have a valid opcode and version.
            if let Some(first) = bytes.get_mut(0) { *first = opcode as u8; }
            if let Some(flags) = bytes.get_mut(1) { *flags &= 0xF0; }
            let _ = (Packet::parse(&bytes), ud_header(&bytes));
        }
    }
}
