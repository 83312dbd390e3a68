//! Learns the configuration of a sensor bridge: from the last packets of some frames and their metadata.

use super::learner::{Hints, LearnedStream, Learner};
use shotline_wire::bth::{Bth, Opcode};
use shotline_wire::framing::{Hsb, hsb::HEADER_LEN, hsb::LAST_HEADER_LEN};
use shotline_wire::hsb::{Metadata, PAGE_UNIT, PSN_BITS};
use shotline_wire::imm::ImmDt;
use shotline_wire::reth::Reth;
use shotline_wire::shot::{MAX_PACKETS, PACKET_BYTES, Packetization, Trailer};
use std::sync::Arc;

/// Maximum bytes of a frame that fits a shot.
const MAX_FRAME_BYTES: u32 = (MAX_PACKETS * PACKET_BYTES) - Metadata::LEN as u32;

/// The last packet of a frame.
#[derive(Clone, Copy, Debug)]
struct LastPacket {
    /// Start address of its page.
    address: u64,
    page: u32,
    valid_bytes: u32,
    /// Set if the metadata was sent in a separate packet.
    separate: bool,
    /// Packet sequence number.
    psn: u32,
}

/// Learner of a sensor bridge.
#[derive(Debug)]
pub(super) struct Bridge {
    hints: Hints,
    payload: u32,
    before: Option<LastPacket>,
    step: Option<(u64, u32)>,
    pages: Option<u32>,
    frames: u32,
}

impl Bridge {
    /// Parses the last packet of a frame; none if it does not end a complete frame.
    fn parse_last(bth: &Bth, reth: &Reth, rest: &[u8]) -> Result<Option<LastPacket>, String> {
        let Ok((ImmDt(immediate), payload)) = ImmDt::parse(rest) else { return Ok(None) };
        if payload.len() as u64 != u64::from(reth.length) {
            return Ok(None);
        }
        let Some((_, metadata)) = payload.split_last_chunk::<{ Metadata::LEN }>() else { return Ok(None) };
        let Ok(metadata) = Metadata::parse(metadata) else { return Ok(None) };
        if metadata.flags & 1 != 0 {
            return Ok(None); // the sensor ended it early
        }
        let page = match (immediate >> 12 == bth.psn & 0xF_FFFF, immediate >> 8 == bth.psn & 0xFF_FFFF) {
            (true, _) => immediate & 0xFFF,
            (_, true) => immediate & 0x3,
            _ => return Err(format!("its immediate {immediate:#010x} does not contain PSN {:#x} and a page", bth.psn)),
        };
        let valid_bytes = u32::try_from(metadata.valid_bytes).unwrap_or(u32::MAX);
        if !(1..=MAX_FRAME_BYTES).contains(&valid_bytes) {
            let found = metadata.valid_bytes;
            return Err(format!("expected frames of 1 to {MAX_FRAME_BYTES} bytes, found one of {found}"));
        }
        let trailer_bytes = u64::from(valid_bytes).next_multiple_of(u64::from(PAGE_UNIT)) + Metadata::LEN as u64;
        let end = reth.address.checked_add(payload.len() as u64);
        let Some(address) = end.and_then(|end| end.checked_sub(trailer_bytes)) else {
            return Err(format!(
                "its metadata at {:#x} describes {valid_bytes} bytes before it, which are outside of the address space",
                reth.address
            ));
        };
        Ok(Some(LastPacket { address, page, valid_bytes, separate: payload.len() == Metadata::LEN, psn: bth.psn }))
    }

    /// Returns the number of packets of a frame that ends with `last`.
    fn packets(&self, last: LastPacket) -> u32 {
        if self.payload == 0 {
            return 1; // no other packet than a frame's last has arrived
        }
        let trailer_bytes = if last.separate { 0 } else { Metadata::LEN as u32 };
        let body = last.valid_bytes.next_multiple_of(if last.separate { 1 } else { PAGE_UNIT }) + trailer_bytes;
        body.div_ceil(self.payload) + u32::from(last.separate)
    }

    /// Derives the distance of pages and the address of the first one from two pages.
    fn compare_pages(&mut self, a: LastPacket, b: LastPacket) {
        let (low, high) = if a.page < b.page { (a, b) } else { (b, a) };
        let pages = u64::from(high.page - low.page);
        let bytes = high.address.checked_sub(low.address);
        let step = bytes.filter(|bytes| pages > 0 && bytes % pages == 0).map(|bytes| bytes / pages);
        let Some(step) = step.and_then(|step| u32::try_from(step).ok()) else { return };
        if let Some(base) = low.address.checked_sub(u64::from(low.page) * u64::from(step)) {
            self.step = Some((base, step));
        }
        // Pages are used in turn: the one before page 0 is the last, if no frame in between was lost.
        let between = b.psn.wrapping_sub(a.psn) & ((1 << PSN_BITS) - 1);
        if self.pages.is_none() && b.page == 0 && between == self.packets(b) {
            self.pages = Some(a.page + 1);
        }
    }
}

impl Learner for Bridge {
    fn new(hints: Hints) -> Self {
        Self { hints, payload: 0, before: None, step: None, pages: hints.pages, frames: 0 }
    }

    fn key(packet: &[u8]) -> Option<u32> {
        let (bth, _) = Bth::parse(packet).ok()?;
        matches!(bth.opcode, Opcode::UcWriteOnly | Opcode::UcWriteOnlyImm).then_some(bth.dest_qp)
    }

    fn header_len(first: &[u8]) -> usize {
        match first.first() {
            Some(opcode) if *opcode == Opcode::UcWriteOnlyImm as u8 => LAST_HEADER_LEN,
            _ => HEADER_LEN,
        }
    }

    fn examine(&mut self, packet: &[u8]) -> Result<Option<LearnedStream>, String> {
        let Ok((bth, rest)) = Bth::parse(packet) else { return Ok(None) };
        let Ok((reth, rest)) = Reth::parse(rest) else { return Ok(None) };
        if bth.opcode == Opcode::UcWriteOnly && rest.len() as u64 == u64::from(reth.length) {
            self.payload = self.payload.max(reth.length);
        }
        if bth.opcode != Opcode::UcWriteOnlyImm {
            return Ok(None);
        }
        let Some(last) = Self::parse_last(&bth, &reth, rest)? else { return Ok(None) };
        self.frames += 1;
        if let Some(before) = self.before.replace(last) {
            self.compare_pages(before, last);
        }
        if self.pages == Some(1) {
            let step = last.valid_bytes.next_multiple_of(PAGE_UNIT) + Metadata::LEN as u32;
            self.step = Some((last.address, step));
        }
        let (Some((base, step)), Some(pages)) = (self.step, self.pages) else { return Ok(None) };
        // A frame in one packet has no other, so its own length counts.
        let payload = if self.payload > 0 { self.payload } else { reth.length };
        let LastPacket { valid_bytes, separate, .. } = last;
        Ok(Some(LearnedStream {
            framing: Arc::new(Hsb { base, step, pages, r_key: reth.r_key }),
            key: bth.dest_qp,
            sample_bytes: valid_bytes,
            stream: None,
            shape: None,
            trailer: Trailer::HsbMetadata,
            packetization: Packetization { separate_trailer: separate, ..Packetization::uniform(payload) },
            first_shot: None,
            description: format!(
                "sensor bridge: frames of {valid_bytes} bytes in packets of {payload}, metadata {}; {pages} pages of {step} bytes from {base:#x}, queue pair {:#x}, remote key {:#x}",
                if separate { "in a separate packet" } else { "in the last packet" },
                bth.dest_qp,
                reth.r_key
            ),
        }))
    }

    fn missing(&self) -> String {
        match (self.frames, self.hints.pages) {
            (0, _) => "the end of a frame (UC RDMA WRITE_ONLY with immediate and 128 bytes of metadata)".into(),
            (_, None) if self.step.is_some() => {
                "the ring of pages to wrap around: specify their number with --pages".into()
            }
            _ => "frames in two different pages: if there is only one, use --pages 1".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrayvec::ArrayVec;
    use proptest::prelude::*;
    use shotline_wire::framing::{Framing, Link, Packet};
    use shotline_wire::shot::{Geometry, Packing};

    const BRIDGE: Hsb = Hsb { base: 0x1000_0000, step: 0x1_0080, pages: 4, r_key: 0x1234 };

    /// Generates the packets of a frame, as a bridge sends them.
    fn frame(geometry: &Geometry, shot: u64) -> Vec<Vec<u8>> {
        let packets = geometry.packets();
        let packet = |index| {
            let packet = Packet::nth(geometry, shot as u32 * packets + index, shot, index).unwrap();
            let mut header = ArrayVec::new();
            BRIDGE.emit(&Link { dest_qp: 2, ..Link::default() }, &packet, &mut header);
            let mut bytes = header.to_vec();
            bytes.resize(header.len() + packet.len as usize, 0);
            if packet.last {
                let metadata = Metadata { valid_bytes: geometry.sample_bytes().into(), ..Metadata::default() };
                let at = bytes.len() - Metadata::LEN;
                bytes[at..].copy_from_slice(&metadata.emit());
            }
            bytes
        };
        (0..packets).map(packet).collect()
    }

    #[test]
    fn frames_of_a_whole_ring_give_the_configuration() {
        for separate in [false, true] {
            let geometry = Geometry::new(1, 65_000, 8, Packing::Uint8, 0).unwrap();
            let cut = Packetization { separate_trailer: separate, ..Packetization::uniform(1408) };
            let geometry = geometry.sent_as(Trailer::HsbMetadata, cut).unwrap();
            let mut bridge = Bridge::new(Hints::default());
            let mut learned = None;
            for shot in 1..=4 {
                assert!(learned.is_none(), "before page 0 was repeated");
                for packet in frame(&geometry, shot) {
                    learned = bridge.examine(&packet).unwrap();
                }
            }
            let learned = learned.unwrap();
            assert_eq!((learned.sample_bytes, learned.packetization, learned.key), (65_000, cut, 2));
            assert_eq!(format!("{:?}", learned.framing), format!("{BRIDGE:?}"));
        }
    }

    #[test]
    fn a_lost_frame_does_not_shorten_the_ring() {
        let geometry = Geometry::new(1, 65_000, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(Trailer::HsbMetadata, Packetization::uniform(1408)).unwrap();
        let mut bridge = Bridge::new(Hints::default());
        let mut learned = None;
        // Frame 3 is lost, so page 2 is followed by page 0.
        for shot in [1, 2, 4, 5, 6, 7, 8] {
            assert!(learned.is_none(), "{shot}");
            for packet in frame(&geometry, shot) {
                learned = bridge.examine(&packet).unwrap();
            }
        }
        assert_eq!(format!("{:?}", learned.unwrap().framing), format!("{BRIDGE:?}"));
    }

    #[test]
    fn an_impossible_frame_is_refused() {
        let geometry = Geometry::new(1, 1000, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(Trailer::HsbMetadata, Packetization::uniform(1408)).unwrap();
        for valid_bytes in [0, u64::from(MAX_FRAME_BYTES) + 1, u32::MAX.into(), u64::MAX] {
            let mut packet = frame(&geometry, 5).remove(0);
            let at = packet.len() - Metadata::LEN;
            packet[at..].copy_from_slice(&Metadata { valid_bytes, ..Metadata::default() }.emit());
            for pages in [None, Some(1)] {
                assert!(
                    Bridge::new(Hints { pages, ..Hints::default() })
                        .examine(&packet)
                        .unwrap_err()
                        .contains("found one of")
                );
            }
        }
    }

    #[test]
    fn an_immediate_of_another_packet_is_refused() {
        let geometry = Geometry::new(1, 1000, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(Trailer::HsbMetadata, Packetization::uniform(1408)).unwrap();
        let mut packet = frame(&geometry, 5).remove(0);
        packet[28] ^= 1;
        assert!(
            Bridge::new(Hints { pages: Some(4), ..Hints::default() })
                .examine(&packet)
                .unwrap_err()
                .contains("immediate")
        );
    }

    #[test]
    fn addresses_near_the_64_bit_limit_do_not_overflow() {
        let geometry = Geometry::new(1, 1000, 8, Packing::Uint8, 0).unwrap();
        let geometry = geometry.sent_as(Trailer::HsbMetadata, Packetization::uniform(1408)).unwrap();
        let mut bridge = Bridge::new(Hints::default());
        for (shot, address) in [(1, 0), (2, u64::MAX), (3, u64::MAX - 1152), (2, 4096), (5, u64::MAX - 1152)] {
            let mut packet = frame(&geometry, shot).remove(0);
            packet[12..20].copy_from_slice(&u64::to_be_bytes(address));
            if let Ok(Some(learned)) = bridge.examine(&packet) {
                let _ = learned.framing.place(&packet[..LAST_HEADER_LEN], 1152, &geometry);
            }
        }
    }

    proptest! {
        #[test]
        fn any_input_is_refused_or_gives_a_valid_ring(
            separate: bool,
            packets in prop::collection::vec((0_u64..20, any::<prop::sample::Index>(), any::<u32>()), 1..60),
            pages in prop::option::of(any::<u32>()),
        ) {
            let geometry = Geometry::new(1, 3000, 8, Packing::Uint8, 0).unwrap();
            let cut = Packetization { separate_trailer: separate, ..Packetization::uniform(1408) };
            let geometry = geometry.sent_as(Trailer::HsbMetadata, cut).unwrap();
            let mut bridge = Bridge::new(Hints { pages, ..Hints::default() });
            for (shot, index, noise) in packets {
                let mut packet = index.get(&frame(&geometry, shot)).clone();
                // Corrupt the headers or the metadata, which the learner parses.
                let at = noise as usize % 64;
                let at = if noise & 1 == 0 { packet.len().saturating_sub(1 + 2 * at) } else { at };
                if noise % 3 == 0 && at < packet.len() {
                    packet[at] ^= (noise >> 24) as u8;
                }
                prop_assert!(Bridge::header_len(&packet) >= HEADER_LEN);
                let _ = (Bridge::key(&packet), bridge.missing());
                if let Ok(Some(learned)) = bridge.examine(&packet) {
                    prop_assert!((1..=MAX_FRAME_BYTES).contains(&learned.sample_bytes));
                    prop_assert!(learned.packetization.rest > 0);
                }
            }
        }
    }
}
