//! Everything a probe can send, made before the first shot, in one region.
//!
//! ```text
//! | shots: links x period slots | records: links x RECORDS x 64 | copies: COPIES x 4096 |
//! ```
//!
//! A slot holds samples and padding where a receiver's slot will hold them. Of each packet the CRC remainder
//! is known, and of each shot the CRC register that its record continues from: sending touches no sample.
//! Only the end-of-shot record differs from shot to shot. It is not written into the slot, from which a packet
//! may still be on its way, but into a ring of its own, and is gathered behind the last packet's samples.
//! Packets with flipped bits are copies in a second ring, so the good bytes stay good.
//!
//! The region is shared memory, so that a transport may send its pages without copying them.

use super::samples::Source;
use super::shots::{COPIES_BYTES, Copies, HELD_SHOTS, Payload};
use shotline_memory::{MemoryError, Region, RegionId, Registrar, Sge};
use shotline_wire::crc::{self, Shift};
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, PACKET_BYTES, RECORD_BYTES};
use std::sync::Arc;

/// Records of a link that stay untouched after they were written: more than shots can pass a packet that is
/// held back, with as many again on their way through a transport.
const RECORDS: u64 = 2 * HELD_SHOTS;
/// One record, for every shot's last packet.
static RECORD_SHIFT: Shift = Shift::new(RECORD_BYTES as u64);

/// All distinct shots of all links.
#[derive(Debug)]
pub(super) struct Prebuilt {
    region: Arc<Region>,
    id: RegionId,
    period: u32,
    links: Vec<LinkShots>,
    copies: Copies,
}

/// The shots of one link.
#[derive(Debug)]
struct LinkShots {
    stream: u32,
    geometry: Geometry,
    shots_at: u64,
    records_at: u64,
    /// After samples and padding, a shot each; empty before the first [`Prebuilt::fill`].
    registers: Vec<u32>,
    /// Of samples and padding, a packet each; the record is missing from the last.
    remainders: Vec<u32>,
    /// A record each.
    record_remainders: Vec<u32>,
}

impl Prebuilt {
    /// Room for the shots of `links` links.
    pub(super) fn new(source: &Source, links: u8, registrar: &mut Registrar) -> Result<Self, MemoryError> {
        let geometry = *source.geometry();
        let (links, page) = (u64::from(links), u64::from(PACKET_BYTES));
        let shots = u64::from(source.period()) * u64::from(geometry.slot_bytes());
        let records = (RECORDS * u64::from(RECORD_BYTES)).next_multiple_of(page);
        // What is too much for 64 bits is too much for any machine.
        let copies_at = links.saturating_mul(shots.saturating_add(records));
        let bytes = copies_at.saturating_add(COPIES_BYTES);
        let region = Region::host(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let id = registrar.add(Arc::clone(&region));
        let link = |link| LinkShots {
            stream: 0,
            geometry,
            shots_at: link * shots,
            records_at: links * shots + link * records,
            registers: Vec::new(),
            remainders: Vec::new(),
            record_remainders: vec![0; RECORDS as usize],
        };
        let links = (0..links).map(link).collect();
        let copies = Copies::new(Arc::clone(&region), id, copies_at);
        Ok(Self { region, id, period: source.period(), links, copies })
    }

    /// Makes a link's shots. Nothing of it may be on its way.
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

    /// Where packets with flipped bits are made.
    pub(super) fn copies(&mut self) -> &mut Copies {
        &mut self.copies
    }

    /// The stream of a link whose shots were made.
    pub(super) fn stream(&self, link: u8) -> Option<u32> {
        let shots = &self.links[usize::from(link)];
        (!shots.registers.is_empty()).then_some(shots.stream)
    }

    /// The shape of a link's shots.
    pub(super) fn geometry(&self, link: u8) -> &Geometry {
        &self.links[usize::from(link)].geometry
    }

    /// The distinct shot that stands for this number.
    pub(super) fn pattern(&self, shot: u64) -> u32 {
        (shot % u64::from(self.period)) as u32
    }

    /// Closes a shot: finishes its record, for which the samples are not read.
    pub(super) fn write_record(&mut self, link: u8, record: &Record) {
        let pattern = self.pattern(record.shot);
        let shots = &mut self.links[usize::from(link)];
        let bytes = record.finish(shots.registers[pattern as usize]);
        self.region.write(shots.record(record.shot) as usize, &bytes);
        shots.record_remainders[(record.shot % RECORDS) as usize] = crc::remainder(&bytes);
    }

    /// The payload of a packet, whose shot's record, if it is the last, must have been written.
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
    /// Offset of a distinct shot.
    fn slot(&self, pattern: u32) -> u64 {
        self.shots_at + u64::from(pattern) * u64::from(self.geometry.slot_bytes())
    }

    /// Offset of a shot's record.
    fn record(&self, shot: u64) -> u64 {
        self.records_at + shot % RECORDS * u64::from(RECORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Config;
    use crate::probe::faults::{Extent, FaultRates, Injector, Planned};
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
    fn gathered_packets_make_whole_shots_whatever_the_length_of_the_last() {
        // 42 * 96 * 1.5 = 6048: padded, in two packets. 28 * 96 * 1.5 = 4032: with the record one full packet;
        // 4096 bytes: the record is alone in its packet.
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
                let mut whole = Vec::new();
                for packet in 0..geometry.packets() as u16 {
                    let payload = prebuilt.payload(link, shot, packet);
                    let found = bytes(&prebuilt, payload);
                    assert_eq!(found.len(), geometry.packet_bytes(packet.into()) as usize);
                    assert_eq!(crc::remainder(&found), payload.remainder, "packet {packet}");
                    whole.extend(found);
                }
                assert!(record::is_whole(crc::register(u32::MAX, &whole)));
                let (samples, tail) = whole.split_at(geometry.sample_bytes() as usize);
                let mut expected = vec![0; samples.len()];
                shotline_compute::prbs::shot_bytes(link.into(), shot % 3, &geometry, &mut expected);
                assert_eq!(samples, expected);
                assert_eq!(Record::parse(tail.last_chunk().unwrap()).unwrap(), record);
            }
        }
    }

    #[test]
    fn flips_change_exactly_the_bits_they_name_and_leave_the_shot_alone() {
        let mut prebuilt = prebuilt(&Config { samples: Some(42), distinct_shots: 1, ..Config::default() });
        prebuilt.write_record(
            0,
            &Record::of(&Source::new(&Config { samples: Some(42), ..Config::default() }).unwrap().geometry().clone()),
        );
        let rates = FaultRates { corrupt: 1.0, ..FaultRates::NONE };
        let mut injector = Injector::new(rates, 1, 0, false);
        let mut emits = Vec::new();
        for psn in 0..2000_u32 {
            let packet = (psn % 2) as u16;
            let payload = prebuilt.payload(0, 0, packet);
            let before = bytes(&prebuilt, payload);
            let extent = Extent { header: 24, payload: before.len() as u32, uncovered: None };
            injector.push(Planned { shot: 0, packet, psn }, extent, &mut emits);
            let flips = emits.pop().unwrap().flips.unwrap();
            let header: [u8; 24] = std::array::from_fn(|i| (i as u32 ^ psn) as u8);
            let mut flipped = header;
            let corrupted = prebuilt.copies().flip(&mut flipped, payload, &flips);
            let after = bytes(&prebuilt, corrupted);
            let changed = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            assert_eq!((changed(&header, &flipped) + changed(&before, &after)) as usize, flips.bits().len());
            assert_eq!(bytes(&prebuilt, payload), before);
            // The CRC that follows from what is sent is that of what should have been sent.
            let sealed = crc::append(crc::register(5, &flipped), before.len() as u64, corrupted.remainder);
            assert_eq!(sealed, crc::register(crc::register(5, &header), &before));
        }
    }
}
