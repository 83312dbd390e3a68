//! SPEAD heaps as shots: the heap counter is the shot's number, the heap's payload its bytes.
//!
//! A heap has no end-of-shot record ([`crate::shot::Trailer::None`]); only the UDP checksum protects a packet. Senders
//! differ in the number of items per packet, and some put more into a heap's first packet, so the framing is
//! configured with the expected numbers. A packet with another number is still parsed correctly, at the cost of one
//! more copy.

use super::description::{Completions, Description, Keys, Replay, SetUp};
use super::{Extras, Framing, Link, MAX_HEADER, Packet, Placement, Position, SampleContext, Signal};
use crate::shot::{Geometry, Trailer};
use crate::spead::{Flavour, Header};
use crate::{ParseError, bytes};
use arrayvec::ArrayVec;

/// Registry entry of this framing.
pub const DESCRIPTION: Description = Description {
    name: "spead",
    set_up: SetUp::Learned,
    sealed: false,
    header_len: 40,
    trailer: Trailer::None,
    port: 7148,
    shares_address: false,
    keys: Keys::None,
    completions: Completions::Unsupported,
    replay: Replay::AddressPerLink,
    large_shots: false,
};

/// Framing of SPEAD heaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spead {
    /// SPEAD flavour.
    pub flavour: Flavour,
    /// Number of items in a heap's first packet.
    pub first_items: u16,
    /// Number of items in its other packets.
    pub items: u16,
}

impl Extras for Spead {
    fn header_len_at(&self, index: u32, _g: &Geometry) -> Option<usize> {
        Some(Header::len_of(if index == 0 { self.first_items } else { self.items }))
    }

    /// Heaps of another size are item descriptors or stream control.
    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal> {
        let (header, _) = Header::parse(header).ok()?;
        let other = header.heap_bytes.is_some_and(|bytes| bytes != u64::from(g.shot_bytes()));
        (other || header.control).then_some(Signal::Control { number: header.heap, stop: header.stop })
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

impl Framing for Spead {
    fn name(&self) -> &'static str {
        DESCRIPTION.name
    }

    fn has_icrc(&self) -> bool {
        DESCRIPTION.sealed
    }

    fn header_len(&self, first: &[u8]) -> usize {
        Header::peek_len(first).min(MAX_HEADER)
    }

    /// Returns 0: there is one stream per port, since SPEAD packets do not identify their stream.
    fn key(&self, _header: &[u8]) -> Result<u32, ParseError> {
        Ok(0)
    }

    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let (header, _) = Header::parse(header)?;
        let shot_bytes = u64::from(g.shot_bytes());
        if let Some(found) = header.heap_bytes.filter(|bytes| *bytes != shot_bytes) {
            return Err(ParseError::Length { what: "the heap", expected: shot_bytes, found });
        }
        if header.flavour != self.flavour {
            let (expected, found) = (self.flavour.bits().into(), header.flavour.bits().into());
            return Err(ParseError::Value { what: "bits of a heap address", expected, found });
        }
        let offset = u32::try_from(header.offset).unwrap_or(u32::MAX);
        let packet = Packet::at(g, 0, header.heap, offset)?;
        packet.expect_len(u32::try_from(header.len).unwrap_or(u32::MAX))?;
        packet.expect_len(payload_len)?;
        let position = Position::Shot { number: header.heap, bits: self.flavour.bits(), offset, last: packet.last };
        Ok(Placement { position, len: payload_len })
    }

    fn emit(&self, _link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        let header = Header {
            flavour: self.flavour,
            items: 4,
            heap: p.shot,
            heap_bytes: Some(p.shot_bytes.into()),
            offset: p.offset.into(),
            len: p.len.into(),
            stop: false,
            control: false,
        };
        bytes::append(out, &header.emit());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shot::{Packetization, Packing, Trailer};
    use proptest::prelude::*;

    const SPEAD: Spead = Spead { flavour: Flavour::F48, first_items: 4, items: 4 };

    fn heap(bytes: u32, first: u32, rest: u32) -> Geometry {
        let g = Geometry::new(1, bytes, 8, Packing::Uint8, 0).unwrap();
        g.sent_as(Trailer::None, Packetization { first, rest, separate_trailer: false }).unwrap()
    }

    proptest! {
        #[test]
        fn heap_packets_are_placed_where_they_were_sent_from(
            samples in 1_u32..100_000, first in 50_u32..9000, rest in 50_u32..9000, shot in 0_u64..1 << 48,
            index: prop::sample::Index,
        ) {
            let g = heap(samples, first, rest);
            let packet = Packet::nth(&g, 0, shot, index.index(g.packets() as usize) as u32).unwrap();
            let mut header = ArrayVec::new();
            SPEAD.emit(&Link::default(), &packet, &mut header);
            prop_assert_eq!(SPEAD.header_len(&header), header.len());
            prop_assert_eq!(SPEAD.header_len_at(packet.index, &g), Some(header.len()));
            let place = SPEAD.place(&header, packet.len, &g).unwrap();
            let position = Position::Shot { number: shot, bits: 48, offset: packet.offset, last: packet.last };
            prop_assert_eq!(place, Placement { position, len: packet.len });
            prop_assert!(SPEAD.place(&header, packet.len + 1, &g).is_err());
            prop_assert!(SPEAD.place(&header[..header.len() - 1], packet.len, &g).is_err());
            let other = heap(samples + 1, first, rest);
            prop_assert!(SPEAD.place(&header, packet.len, &other).is_err(), "a heap of another size");
            prop_assert_eq!(SPEAD.signal(&header, &other), Some(Signal::Control { number: shot, stop: false }));
            prop_assert_eq!(SPEAD.signal(&header, &g), None, "a packet at a wrong offset is not a signal");
        }
    }

    #[test]
    fn packets_off_the_packet_boundaries_are_refused() {
        let g = heap(10_000, 1000, 1008);
        let place = |offset: u64, len: u64| {
            let (items, heap_bytes) = (4, Some(10_000));
            let flavour = Flavour::F48;
            let header = Header { flavour, items, heap: 1, heap_bytes, offset, len, stop: false, control: false };
            SPEAD.place(&header.emit(), len as u32, &g)
        };
        assert!(place(1000, 1008).is_ok());
        for (offset, len) in [(1000, 1000), (1008, 1008), (10_000, 0), (0, 1008), (1 << 40, 1000), (1000, 1 << 40)] {
            assert!(place(offset, len).is_err(), "{offset}, {len}");
        }
    }
}
