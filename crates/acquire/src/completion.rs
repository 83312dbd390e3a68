//! Framings of packets that a device receives: a work completion shows neither sequence number nor solicited event.
//!
//! A completion's contents replace the packet's header ([`UdCompletion`]). For `ud` packets the immediate data is
//! sufficient. `counted` packets have none: the receiver counts them, and detects a loss only by the
//! end-of-shot record.

use arrayvec::ArrayVec;
use shotline_verbs::ud::UdCompletion;
use shotline_wire::ParseError;
use shotline_wire::framing::ud::{SHOT_BITS, split_immediate};
use shotline_wire::framing::{
    Counted, Extras, Framing, Kind, Link, MAX_HEADER, Packet, Placement, Position, SampleContext, Signal, Ud,
};
use shotline_wire::shot::Geometry;
use std::sync::Arc;

/// Returns the framing for packets that a device receives; none if completions do not show enough of them.
pub fn completion_framing(kind: Kind) -> Option<Arc<dyn Framing>> {
    match kind {
        Kind::Ud => Some(Arc::new(UD)),
        Kind::Counted => Some(Arc::new(COUNTED)),
        Kind::Udp | Kind::Digitizer | Kind::Vita49 | Kind::Spead | Kind::Hsb => None,
    }
}

const UD: CompletionFraming = CompletionFraming { sent: &Ud, place: by_immediate, is_counted: false };
const COUNTED: CompletionFraming = CompletionFraming { sent: &Counted, place: by_count, is_counted: true };

/// A framing whose headers the device has removed.
#[derive(Debug)]
struct CompletionFraming {
    /// Framing on the wire.
    sent: &'static dyn Framing,
    /// Returns the destination of a payload by its immediate data and its length.
    place: fn(Option<u32>, u32, &Geometry) -> Result<Placement, ParseError>,
    /// Set if completions do not show a payload's destination.
    is_counted: bool,
}

impl Framing for CompletionFraming {
    fn name(&self) -> &'static str {
        self.sent.name()
    }
    fn has_icrc(&self) -> bool {
        self.sent.has_icrc()
    }
    fn header_len(&self, _first: &[u8]) -> usize {
        UdCompletion::LEN
    }
    fn key(&self, header: &[u8]) -> Result<u32, ParseError> {
        parse_completion(header).map(|completion| completion.dest_qp)
    }
    fn place(&self, header: &[u8], len: u32, g: &Geometry) -> Result<Placement, ParseError> {
        (self.place)(parse_completion(header)?.imm, len, g)
    }
    fn emit(&self, link: &Link, p: &Packet, out: &mut ArrayVec<u8, MAX_HEADER>) {
        self.sent.emit(link, p, out);
    }
}

/// A completion shows nothing of a packet but its destination.
impl Extras for CompletionFraming {
    fn header_len_at(&self, _index: u32, _g: &Geometry) -> Option<usize> {
        None
    }
    fn signal(&self, _header: &[u8], _g: &Geometry) -> Option<Signal> {
        None
    }
    fn count(&self, _header: &[u8]) -> Option<u8> {
        None
    }
    fn is_counted(&self) -> bool {
        self.is_counted
    }
    fn sample_context(&self) -> SampleContext {
        self.sent.sample_context()
    }
    fn stamp_tai_ns(&self, shot: u64, g: &Geometry) -> u64 {
        self.sent.stamp_tai_ns(shot, g)
    }
}

fn parse_completion(header: &[u8]) -> Result<UdCompletion, ParseError> {
    let truncated = ParseError::Truncated { what: "work completion", needed: UdCompletion::LEN, found: header.len() };
    UdCompletion::parse(header).ok_or(truncated)
}

fn by_immediate(imm: Option<u32>, len: u32, g: &Geometry) -> Result<Placement, ParseError> {
    let Some(imm) = imm else {
        return Err(ParseError::Missing { what: "immediate data" });
    };
    let (shot, index) = split_immediate(imm);
    let packet = Packet::nth(g, 0, shot.into(), index)?;
    packet.expect_len(len)?;
    let Packet { offset, last, .. } = packet;
    Ok(Placement { position: Position::Shot { number: shot.into(), bits: SHOT_BITS, offset, last }, len })
}

fn by_count(imm: Option<u32>, len: u32, g: &Geometry) -> Result<Placement, ParseError> {
    if imm.is_some() {
        return Err(ParseError::Unsupported { what: "immediate data in a counted packet" });
    }
    let last = g.packets() - 1;
    if ![g.packet_bytes(0), g.packet_bytes(last)].contains(&len) {
        return Err(ParseError::Length {
            what: "the packet's payload",
            expected: g.packet_bytes(0).into(),
            found: len.into(),
        });
    }
    Ok(Placement { position: Position::Sequence { number: 0, bits: 0 }, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::framing::description::Completions;
    use shotline_wire::framing::ud::immediate;
    use shotline_wire::shot::Packing;

    fn geometry() -> Geometry {
        Geometry::new(96, 2000, 12, Packing::Packed12, 0).unwrap() // 71 packets, the last of 1344 bytes
    }

    fn header(imm: Option<u32>) -> [u8; UdCompletion::LEN] {
        UdCompletion { dest_qp: 17, src_qp: 3, imm }.emit()
    }

    #[test]
    fn completion_framings_match_the_registry() {
        for kind in Kind::ALL {
            let shown = match kind.description().completions {
                Completions::Immediate => Some(format!("{UD:?}")),
                Completions::Count => Some(format!("{COUNTED:?}")),
                Completions::Unsupported => None,
            };
            assert_eq!(completion_framing(kind).map(|framing| format!("{framing:?}")), shown, "{kind}");
            assert!(completion_framing(kind).is_none_or(|framing| framing.name() == kind.name()), "{kind}");
            let is_counted = kind.description().completions == Completions::Count;
            assert!(completion_framing(kind).is_none_or(|framing| framing.is_counted() == is_counted), "{kind}");
        }
    }

    #[test]
    fn an_immediate_gives_the_destination_of_a_payload() {
        let place = |imm, len| UD.place(&header(imm), len, &geometry());
        let position = Position::Shot { number: 5, bits: SHOT_BITS, offset: 70 * 4096, last: true };
        assert_eq!(place(Some(immediate(5, 70)), 1344), Ok(Placement { position, len: 1344 }));
        for (imm, len) in [(Some(immediate(5, 70)), 4096), (Some(immediate(5, 71)), 4096), (None, 4096)] {
            assert!(place(imm, len).is_err(), "{imm:?} {len}");
        }
        assert_eq!(UD.key(&header(None)), Ok(17));
        assert!(UD.key(&[0; 24]).is_err());
    }

    #[test]
    fn a_counted_packet_has_the_length_of_a_shots_packet() {
        let place = |imm, len| COUNTED.place(&header(imm), len, &geometry());
        let position = Position::Sequence { number: 0, bits: 0 };
        assert_eq!(place(None, 4096), Ok(Placement { position, len: 4096 }));
        assert_eq!(place(None, 1344), Ok(Placement { position, len: 1344 }));
        assert!(place(None, 1340).is_err() && place(Some(1), 4096).is_err());
    }
}
