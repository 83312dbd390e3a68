//! The conformance suite on every framing of the registry, and on faulty ones.

use arrayvec::ArrayVec;
use proptest::prelude::*;
use shotline_wire::ParseError;
use shotline_wire::framing::conformance::{self, CHECKS, Case};
use shotline_wire::framing::{
    Counted, Digitizer, Extras, Framing, Hsb, Kind, Link, MAX_HEADER, NoExtras, Packet, Placement, Position,
    SampleContext, Signal, Spead, Ud, Udp, Vita49,
};
use shotline_wire::shot::{Geometry, Packetization, Packing, Trailer};
use shotline_wire::spead::Flavour;

/// Shots of 1 to about 50 packets with an end-of-shot record; the last packet is any multiple of 64 bytes.
fn with_record() -> impl Strategy<Value = Geometry> {
    (1_u16..40, 1_u32..3000, any::<bool>()).prop_filter_map("odd", |(channels, samples, packed)| {
        let packing = if packed { Packing::Packed12 } else { Packing::Int16Le };
        Geometry::new(channels, samples, 12, packing, 0).ok()
    })
}

/// Shots with another trailer, in packets of a multiple of 64 bytes.
fn with_trailer((channels, packing): (u16, Packing), trailer: Trailer) -> impl Strategy<Value = Geometry> {
    (1_u32..20_000, 1_u32..32).prop_filter_map("odd", move |(samples, units)| {
        let (shape, bits) = ((channels, samples * 16), packing.bits_per_sample() as u8);
        Geometry::with_packetization(shape, (bits, packing), 1_000_000, trailer, Packetization::uniform(units * 64))
            .ok()
    })
}

/// A framing as its senders use it, with a geometry and a shot number that it supports.
fn member(kind: Kind) -> BoxedStrategy<(Box<dyn Framing>, Geometry, u64)> {
    let iq = (2, Packing::Int16Le);
    match kind {
        Kind::Ud => (with_record(), any::<u64>()).prop_map(|(g, shot)| (Box::new(Ud) as _, g, shot)).boxed(),
        Kind::Counted => (with_record(), any::<u64>()).prop_map(|(g, shot)| (Box::new(Counted) as _, g, shot)).boxed(),
        Kind::Udp => (with_record(), any::<u64>()).prop_map(|(g, shot)| (Box::new(Udp) as _, g, shot)).boxed(),
        Kind::Digitizer => (with_trailer(iq, Trailer::Block), any::<u64>())
            .prop_map(|(g, shot)| (Box::new(Digitizer) as _, g, shot))
            .boxed(),
        Kind::Vita49 => (with_trailer((2, Packing::Int16Be), Trailer::Context), 0_u64..1 << 32)
            .prop_map(|(g, shot)| (Box::new(Vita49::for_blocks(&g, (0, 1 << 60))) as _, g, shot))
            .boxed(),
        Kind::Spead => (with_trailer((1, Packing::Uint8), Trailer::None), any::<(u64, bool)>())
            .prop_map(|(g, (shot, wide))| {
                let flavour = if wide { Flavour::F40 } else { Flavour::F48 };
                (Box::new(Spead { flavour, first_items: 4, items: 4 }) as _, g, shot)
            })
            .boxed(),
        Kind::Hsb => (with_trailer((1, Packing::Uint8), Trailer::HsbMetadata), any::<u64>(), 1_u32..64)
            .prop_map(|(g, shot, pages)| {
                let last = g.packets() - 1;
                let step = g.packet_offset(last) + g.packet_bytes(last);
                (Box::new(Hsb { base: 0x1000_0000, step, pages, r_key: 0x1234 }) as _, g, shot)
            })
            .boxed(),
    }
}

proptest! {
    #[test]
    fn every_framing_conforms(
        members in Kind::ALL.map(member), first_psn: u32, link: [u32; 4], seed: u64,
    ) {
        let [dest_qp, src_qp, q_key, stream] = link;
        let link = Link { dest_qp, src_qp, q_key, stream };
        for (kind, (framing, geometry, shot)) in Kind::ALL.into_iter().zip(members) {
            let case = Case { geometry, shot, first_psn, link, seed };
            if let Err(failure) = conformance::run(&*framing, &case) {
                return Err(TestCaseError::fail(format!("{failure}\n{framing:?} {case:?}")));
            }
            let mut header = ArrayVec::new();
            let described = kind.description();
            prop_assert_eq!((described.name, described.sealed), (framing.name(), framing.has_icrc()));
            prop_assert_eq!(described.trailer, geometry.trailer());
            if geometry.packets() > 1 {
                framing.emit(&link, &Packet::nth(&geometry, first_psn, shot, 0).unwrap(), &mut header);
                prop_assert_eq!(described.header_len as usize, header.len(), "{}", kind);
            }
        }
    }
}

/// [`Udp`] with one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faulty {
    /// The returned shot number is one too high.
    Shot,
    /// The predicted header length is one byte too long.
    Prediction,
    /// The key is a byte of the shot's offset.
    Key,
    /// A header without its last byte is accepted.
    Truncated,
    /// The payload's length is not checked.
    Payload,
    /// A malformed header is accepted with a placement after the end of the shot.
    Place,
}

impl Framing for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn has_icrc(&self) -> bool {
        Udp.has_icrc()
    }
    fn header_len(&self, first: &[u8]) -> usize {
        Udp.header_len(first)
    }
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        if *self == Self::Key { Ok(header.get(22).copied().unwrap_or(0).into()) } else { Udp.key(header) }
    }
    fn place(&self, header: &[u8], payload_len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let outside = Position::Shot { number: 0, bits: 64, offset: g.sent_bytes(), last: true };
        match (self, Udp.place(header, payload_len, g)) {
            (Self::Shot, Ok(Placement { position: Position::Shot { number, bits, offset, last }, len })) => {
                Ok(Placement { position: Position::Shot { number: number.wrapping_add(1), bits, offset, last }, len })
            }
            (Self::Truncated, Err(_)) if header.len() == 31 => {
                Udp.place(&[header, &[g.sent_bytes() as u8]].concat(), payload_len, g)
            }
            (Self::Payload, Err(error)) if header.len() == 32 => {
                let found = [header[24], header[25], header[26], header[27]].map(u32::from);
                let found = found.into_iter().fold(0, |sum, byte| sum << 8 | byte);
                Udp.place(header, found, g).map_err(|_| error)
            }
            (Self::Place, Err(_)) if header.len() == 32 && header[0] != b'S' => {
                Ok(Placement { position: outside, len: payload_len })
            }
            (_, result) => result,
        }
    }
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        Udp.emit(link, p, out);
    }
}

impl Extras for Faulty {
    fn header_len_at(&self, _index: u32, _g: &Geometry) -> Option<usize> {
        (*self == Self::Prediction).then_some(33)
    }
    fn signal(&self, header: &[u8], g: &Geometry) -> Option<Signal> {
        Udp.signal(header, g)
    }
    fn count(&self, header: &[u8]) -> Option<u8> {
        Udp.count(header)
    }
    fn is_counted(&self) -> bool {
        Udp.is_counted()
    }
    fn sample_context(&self) -> SampleContext {
        Udp.sample_context()
    }
    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64 {
        Udp.stamp_tai_ns(shot, g)
    }
}

/// [`Udp`] that accepts random bytes.
#[derive(Debug)]
struct Unchecked;

impl NoExtras for Unchecked {}

impl Framing for Unchecked {
    fn name(&self) -> &'static str {
        "unchecked"
    }
    fn has_icrc(&self) -> bool {
        false
    }
    fn header_len(&self, first: &[u8]) -> usize {
        Udp.header_len(first)
    }
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        Udp.key(header)
    }
    fn place(&self, header: &[u8], len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        let position = Position::Sequence { number: 2, bits: 1 };
        if header.len() == 40 { Ok(Placement { position, len }) } else { Udp.place(header, len, g) }
    }
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        Udp.emit(link, p, out);
    }
}

#[test]
fn every_check_detects_a_faulty_framing() {
    let geometry = Geometry::new(96, 500, 12, Packing::Packed12, 0).unwrap();
    let case = Case { geometry, shot: 9, first_psn: 0, link: Link::default(), seed: 4711 };
    assert_eq!(conformance::run(&Udp, &case), Ok(()));
    use Faulty::*;
    let wrong: [&dyn Framing; CHECKS.len()] = [&Shot, &Prediction, &Key, &Truncated, &Payload, &Place, &Unchecked];
    for (check, framing) in CHECKS.into_iter().zip(wrong) {
        let found = conformance::run(framing, &case).map_err(|failure| failure.check);
        assert_eq!(found, Err(check.name), "{framing:?}");
    }
}
