//! All distinct shots of a probe, prepared before the first one is sent, in one region.
//!
//! ```text
//! | shots: links x period slots | records: links x RECORDS x 64 | copies: COPY_SLOTS x 4096 |
//! ```
//!
//! A slot holds samples and padding in the layout of a receiver's slot. Each packet's CRC remainder is precomputed, and
//! so is each shot's CRC register before its record, so sending touches no sample. Only the end-of-shot record differs
//! between shots. It is written into a separate ring, because a packet from the slot may still be in flight, and is
//! gathered after the last packet's samples. Packets with flipped bits are copies in a second ring, so the slot is
//! never modified.
//!
//! The region is shared memory, so that a transport can send its pages without copying.

use super::samples::Source;
use super::shots::{COPY_RING_BYTES, CopyRing, MAX_HELD_SHOTS, Payload};
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_wire::crc::{self, Shift};
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, PACKET_BYTES, RECORD_BYTES};
use std::sync::Arc;

/// Size of a link's record ring: more records than shots can overtake a held-back packet, doubled for packets in flight
/// in a transport.
const RECORDS: u64 = 2 * MAX_HELD_SHOTS;
/// CRC shift by the length of a record, for each shot's last packet.
static RECORD_SHIFT: Shift = Shift::new(RECORD_BYTES as u64);

/// All distinct shots of all links.
#[derive(Debug)]
pub(super) struct Prebuilt {
    region: Arc<Region>,
    id: RegionId,
    period: u32,
    links: Vec<LinkShots>,
    copies: CopyRing,
}

/// The shots of one link.
#[derive(Debug)]
struct LinkShots {
    stream: u32,
    geometry: Geometry,
    shots_offset: u64,
    records_offset: u64,
    /// CRC register of each shot after samples and padding; empty before the first [`Prebuilt::fill`].
    registers: Vec<u32>,
    /// CRC remainder of each packet's samples and padding, without the record.
    remainders: Vec<u32>,
    /// CRC remainder of each record in the ring.
    record_remainders: Vec<u32>,
}

/// Sizes of the parts of the region, in bytes.
struct Layout {
    /// All distinct shots of a link.
    shots: u64,
    /// Record ring of a link.
    records: u64,
    /// Offset of the copies.
    copies_at: u64,
    /// Size of the region.
    bytes: u64,
}

impl Layout {
    fn new(period: u32, geometry: &Geometry, links: u8) -> Self {
        let shots = u64::from(period) * u64::from(geometry.slot_bytes());
        let records = (RECORDS * u64::from(RECORD_BYTES)).next_multiple_of(PACKET_BYTES.into());
        // Saturate on overflow; the allocation then fails.
        let copies_at = u64::from(links).saturating_mul(shots.saturating_add(records));
        Self { shots, records, copies_at, bytes: copies_at.saturating_add(COPY_RING_BYTES) }
    }
}

/// Returns the memory in bytes of `period` distinct shots of all links.
pub(super) fn memory(period: u32, geometry: &Geometry, links: u8) -> u64 {
    Layout::new(period, geometry, links).bytes
}

impl Prebuilt {
    /// Allocates memory for the shots of `links` links.
    pub(super) fn new(source: &Source, links: u8, registrar: &mut Registrar) -> Result<Self, MemoryError> {
        let geometry = *source.geometry();
        let Layout { shots, records, copies_at, bytes } = Layout::new(source.period(), &geometry, links);
        let links = u64::from(links);
        let region = Region::host(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let id = registrar.add(Arc::clone(&region));
        let link = |link| LinkShots {
            stream: 0,
            geometry,
            shots_offset: link * shots,
            records_offset: links * shots + link * records,
            registers: Vec::new(),
            remainders: Vec::new(),
            record_remainders: vec![0; RECORDS as usize],
        };
        let links = (0..links).map(link).collect();
        let copies = CopyRing::new(Arc::clone(&region), id, copies_at);
        Ok(Self { region, id, period: source.period(), links, copies })
    }

    /// Writes a link's shots. None of its packets may be in flight.
    pub(super) fn fill(&mut self, link: u8, stream: u32, geometry: &Geometry, source: &Source) {
        let shots = &mut self.links[usize::from(link)];
        if (shots.stream, shots.geometry) == (stream, *geometry) && !shots.registers.is_empty() {
            return;
        }
        (shots.stream, shots.geometry) = (stream, *geometry);
        shots.registers.clear();
        shots.remainders.clear();
        let mut bytes = vec![0; geometry.trailer_offset() as usize];
        for pattern in 0..self.period {
            source.write(link, stream, pattern, geometry, &mut bytes[..geometry.sample_bytes() as usize]);
            self.region.write(shots.slot(pattern) as usize, &bytes);
            let mut register = u32::MAX;
            for packet in 0..geometry.packets() {
                let at = (packet * PACKET_BYTES) as usize;
                let payload = &bytes[at..(at + PACKET_BYTES as usize).min(bytes.len())];
                let remainder = crc::remainder(payload);
                register = crc::append(register, payload.len() as u64, remainder);
                shots.remainders.push(remainder);
            }
            shots.registers.push(register);
        }
    }

    /// Returns the ring for packets with flipped bits.
    pub(super) fn copies(&mut self) -> &mut CopyRing {
        &mut self.copies
    }

    /// Returns a link's stream, if its shots have been written.
    pub(super) fn stream(&self, link: u8) -> Option<u32> {
        let shots = &self.links[usize::from(link)];
        (!shots.registers.is_empty()).then_some(shots.stream)
    }

    /// Returns the geometry of a link's shots.
    pub(super) fn geometry(&self, link: u8) -> &Geometry {
        &self.links[usize::from(link)].geometry
    }

    /// Returns the index of the distinct shot that a shot number carries.
    pub(super) fn pattern(&self, shot: u64) -> u32 {
        (shot % u64::from(self.period)) as u32
    }

    /// Writes a shot's record. Its CRC continues the precomputed register, so no sample is read.
    pub(super) fn write_record(&mut self, link: u8, record: &Record) {
        let pattern = self.pattern(record.shot);
        let shots = &mut self.links[usize::from(link)];
        let bytes = record.finish(shots.registers[pattern as usize]);
        self.region.write(shots.record(record.shot) as usize, &bytes);
        shots.record_remainders[(record.shot % RECORDS) as usize] = crc::remainder(&bytes);
    }

    /// Returns a packet's payload. For the last packet, the shot's record must have been written.
    pub(super) fn payload(&self, link: u8, shot: u64, packet: u16) -> Payload {
        let packet = u32::from(packet);
        let pattern = self.pattern(shot);
        let shots = &self.links[usize::from(link)];
        let packets = shots.geometry.packets();
        let offset = shots.slot(pattern) + u64::from(packet * PACKET_BYTES);
        let remainder = shots.remainders[(pattern * packets + packet) as usize];
        let bytes = shots.geometry.packet_bytes(packet);
        if packet + 1 < packets {
            return Payload { gather: [self.sge(offset, bytes), Sge::EMPTY], remainder };
        }
        let record = self.sge(shots.record(shot), RECORD_BYTES);
        let remainder = crc::append(remainder, &RECORD_SHIFT, shots.record_remainders[(shot % RECORDS) as usize]);
        match bytes - RECORD_BYTES {
            0 => Payload { gather: [record, Sge::EMPTY], remainder },
            tail => Payload { gather: [self.sge(offset, tail), record], remainder },
        }
    }

    fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { region: self.id, offset, len }
    }
}

impl LinkShots {
    /// Returns the offset of a distinct shot.
    fn slot(&self, pattern: u32) -> u64 {
        self.shots_offset + u64::from(pattern) * u64::from(self.geometry.slot_bytes())
    }

    /// Returns the offset of a shot's record.
    fn record(&self, shot: u64) -> u64 {
        self.records_offset + shot % RECORDS * u64::from(RECORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Config;
    use crate::probe::faults::{Extent, FaultRates, Injector, PlannedPacket};
    use shotline_wire::record;

    fn prebuilt(config: &Config) -> Prebuilt {
        let source = Source::new(config).unwrap();
        let mut prebuilt = Prebuilt::new(&source, config.links, &mut Registrar::new()).unwrap();
        (0..config.links).for_each(|link| prebuilt.fill(link, link.into(), source.geometry(), &source));
        prebuilt
    }

    fn bytes(prebuilt: &Prebuilt, payload: Payload) -> Vec<u8> {
        let read = |sge: &Sge| {
            let mut bytes = vec![0; sge.len as usize];
            prebuilt.region.read(sge.offset as usize, &mut bytes);
            bytes
        };
        payload.gather.iter().flat_map(read).collect()
    }

    #[test]
    fn gathered_packets_form_complete_shots() {
        // 42 * 96 * 1.5 = 6048: padded, two packets. 28 * 96 * 1.5 = 4032: one full packet with the record.
        // 4096 bytes: the record has its own packet.
        let last =
            |channels, samples| Config { channels, samples: Some(samples), distinct_shots: 3, ..Config::default() };
        for config in [
            last(96, 42),
            last(96, 28),
            Config { bits: 16, packing: shotline_wire::shot::Packing::Int16Le, ..last(64, 32) },
        ] {
            let mut prebuilt = prebuilt(&config);
            for (link, shot) in [(0_u8, 0), (1, 0), (0, 2), (1, 7), (0, RECORDS + 1)] {
                let geometry = *prebuilt.geometry(link);
                let record = Record { shot, stream: link.into(), ..Record::of(&geometry) };
                prebuilt.write_record(link, &record);
                let mut bytes_sent = Vec::new();
                for packet in 0..geometry.packets() as u16 {
                    let payload = prebuilt.payload(link, shot, packet);
                    let found = bytes(&prebuilt, payload);
                    assert_eq!(found.len(), geometry.packet_bytes(packet.into()) as usize);
                    assert_eq!(crc::remainder(&found), payload.remainder, "packet {packet}");
                    bytes_sent.extend(found);
                }
                assert!(record::is_whole(crc::register(u32::MAX, &bytes_sent)));
                let (samples, tail) = bytes_sent.split_at(geometry.sample_bytes() as usize);
                let mut expected = vec![0; samples.len()];
                shotline_compute::prbs::write_shot(link.into(), shot % 3, &geometry, &mut expected);
                assert_eq!(samples, expected);
                assert_eq!(Record::parse(tail.last_chunk().unwrap()).unwrap(), record);
            }
        }
    }

    #[test]
    fn flips_change_exactly_their_bits_and_not_the_shot() {
        let mut prebuilt = prebuilt(&Config { samples: Some(42), distinct_shots: 1, ..Config::default() });
        prebuilt.write_record(
            0,
            &Record::of(&Source::new(&Config { samples: Some(42), ..Config::default() }).unwrap().geometry().clone()),
        );
        let rates = FaultRates { corrupt: 1.0, ..FaultRates::NONE };
        let mut injector = Injector::new(rates, 1, 0, false);
        let mut outgoing = Vec::new();
        for psn in 0..2000_u32 {
            let packet = (psn % 2) as u16;
            let payload = prebuilt.payload(0, 0, packet);
            let before = bytes(&prebuilt, payload);
            let extent = Extent { header: 24, payload: before.len() as u32, uncovered: None };
            injector.push(PlannedPacket { shot: 0, packet, psn }, extent, &mut outgoing);
            let flips = outgoing.pop().unwrap().flips.unwrap();
            let header: [u8; 24] = std::array::from_fn(|i| (i as u32 ^ psn) as u8);
            let mut flipped = header;
            let corrupted = prebuilt.copies().flip(&mut flipped, payload, &flips);
            let after = bytes(&prebuilt, corrupted);
            let changed = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            assert_eq!((changed(&header, &flipped) + changed(&before, &after)) as usize, flips.bits().len());
            assert_eq!(bytes(&prebuilt, payload), before);
            // The ICRC derived from the corrupted packet is that of the original packet.
            let sealed = crc::append(crc::register(5, &flipped), before.len() as u64, corrupted.remainder);
            assert_eq!(sealed, crc::register(crc::register(5, &header), &before));
        }
    }
}
