//! Checks the bytes of one slot against its table row.

use super::verdict::LinkVerdict;
use crate::info::{LinkInfo, RunInfo};
use crate::rows::{Row, State};
use shotline_compute::prbs;
use shotline_wire::crc;
use shotline_wire::hsb::Metadata;
use shotline_wire::record::{self, Record};
use shotline_wire::shot::{Geometry, Trailer};
use std::sync::OnceLock;

/// Maximum size of the pattern cache, in bytes. Larger sets of patterns are regenerated for each shot.
const MAX_CACHE_BYTES: u64 = 512 << 20;

/// Test patterns of every link, generated on first use and shared by the threads.
#[derive(Debug)]
pub(super) struct Patterns {
    period: u64,
    /// Patterns by link and pattern number; empty if they exceed the cache size.
    cache: Vec<Vec<OnceLock<Box<[u8]>>>>,
}

impl Patterns {
    pub(super) fn new(run: &RunInfo, period: u64) -> Self {
        let bytes: u64 = run.links.iter().map(|link| u64::from(link.geometry.sample_bytes())).sum();
        let fits = period.checked_mul(bytes).is_some_and(|bytes| bytes <= MAX_CACHE_BYTES);
        let per_link = || (0..if fits { period } else { 0 }).map(|_| OnceLock::new()).collect();
        Self { period, cache: run.links.iter().map(|_| per_link()).collect() }
    }
}

/// Checks the slots of one link, on one thread.
#[derive(Debug)]
pub(super) struct Checker<'a> {
    link: usize,
    stream: u32,
    geometry: Geometry,
    /// Each packet was checked by its own CRC on arrival.
    sealed: bool,
    patterns: Option<&'a Patterns>,
    scratch: Vec<u8>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(link: usize, run: &RunInfo, patterns: Option<&'a Patterns>) -> Self {
        let info: &LinkInfo = &run.links[link];
        // Packets of an unknown framing are assumed to be checked.
        let sealed = run.framing_kind().is_none_or(|kind| kind.description().sealed);
        Self { link, stream: info.stream, geometry: info.geometry, sealed, patterns, scratch: Vec::new() }
    }

    pub(super) fn check(&mut self, row: &Row, slot: &[u8], found: &mut LinkVerdict, mut mismatch: impl FnMut(String)) {
        let g = self.geometry;
        if !row.crc_valid {
            mismatch("its table row is damaged: row_crc32 does not match".into());
        }
        let placed = (0..g.packets()).filter(|index| row.contains(*index)).count() as u32;
        if (row.packets, row.placed) != (g.packets(), placed) {
            mismatch(format!(
                "its row has {} of {} packets, its presence map and geometry {placed} of {}",
                row.placed,
                row.packets,
                g.packets()
            ));
        }
        if let Some(at) = first_not_zero(&slot[g.shot_bytes() as usize..]) {
            mismatch(format!("expected zeros after the shot, found other bytes at {}", g.shot_bytes() as usize + at));
        }
        if row.state == State::Lost {
            if let Some(at) = first_not_zero(slot) {
                mismatch(format!("it is lost, so zeros were expected: found other bytes at {at}"));
            }
            return;
        }
        let whole = placed == g.packets();
        if row.slot_crc32 != 0 {
            let found = crc::crc32(&slot[..g.shot_bytes() as usize]);
            if found != row.slot_crc32 {
                mismatch(format!("expected a CRC-32 of {:08x} over the shot, found {found:08x}", row.slot_crc32));
            }
        }
        if (row.state == State::Complete) != (whole && row.record_good) {
            mismatch(format!(
                "its state is {}, with {placed} packets and record_good {}",
                row.state.name(),
                row.record_good
            ));
        }
        for index in (0..g.packets()).filter(|index| !row.contains(*index)) {
            let at = g.packet_offset(index) as usize;
            if first_not_zero(&slot[at..at + g.packet_bytes(index) as usize]).is_some() {
                mismatch(format!("packet {index} is missing, so zeros were expected: found other bytes"));
            }
        }
        if !row.record_good && !self.sealed {
            // No CRC covers this shot. It is kept as received, without a claim that it is intact.
            found.unverified += 1;
            return;
        }
        if row.contains(g.packets() - 1) {
            match g.trailer() {
                Trailer::Record | Trailer::Block => self.check_record(row, slot, found, &mut mismatch),
                Trailer::HsbMetadata => self.check_metadata(row, slot, found, &mut mismatch),
                Trailer::None | Trailer::Context => {}
            }
        }
        if whole && !row.record_good {
            found.unverified += 1;
        } else {
            self.check_pattern(row, slot, found, &mut mismatch);
        }
    }

    fn check_record(&self, row: &Row, slot: &[u8], found: &mut LinkVerdict, mismatch: &mut impl FnMut(String)) {
        let g = self.geometry;
        if row.record_good {
            let register = crc::register(u32::MAX, &slot[..g.shot_bytes() as usize]);
            if record::is_whole(register) {
                found.records += 1;
            } else {
                mismatch(format!(
                    "its record's CRC does not match: expected {:08x} over the shot, found {register:08x}",
                    crc::RESIDUE
                ));
            }
        }
        // The record may span two packets; it is present only if both arrived.
        let (start, last) = (g.record_offset().unwrap_or(0), g.packets() - 1);
        if start < g.packet_offset(last) && !row.contains(last - 1) {
            return;
        }
        let Some(bytes) = slot[start as usize..].first_chunk::<{ record::LEN }>() else { return };
        match Record::parse(bytes) {
            Ok(record) if (record.shot, record.stream) != (row.number, self.stream) => mismatch(format!(
                "expected the record of shot {} of stream {}, found that of shot {} of stream {}",
                row.number, self.stream, record.shot, record.stream
            )),
            Ok(record) if row.record_good && record.tai_ns != row.stamp_tai_ns => {
                mismatch(format!("its record has the timestamp {} ns, its row {}", record.tai_ns, row.stamp_tai_ns));
            }
            Ok(record) if row.record_good && !record.describes(&g) => {
                mismatch("its record describes another geometry than the link's attributes".into());
            }
            Err(error) if row.record_good => mismatch(format!("its record cannot be read: {error}")),
            Ok(_) | Err(_) => {}
        }
    }

    fn check_metadata(&self, row: &Row, slot: &[u8], found: &mut LinkVerdict, mismatch: &mut impl FnMut(String)) {
        let at = self.geometry.trailer_offset() as usize;
        match slot.get(at..at + Metadata::LEN).map(Metadata::parse) {
            Some(Ok(metadata)) if row.record_good => {
                if metadata.first_ns != row.stamp_tai_ns {
                    let (stamp, row_stamp) = (metadata.first_ns, row.stamp_tai_ns);
                    mismatch(format!("its metadata has the timestamp {stamp} ns, its row {row_stamp}"));
                } else {
                    found.records += 1;
                }
            }
            Some(Ok(_)) => {}
            _ if row.record_good => mismatch("its metadata cannot be read".into()),
            _ => {}
        }
    }

    fn check_pattern(&mut self, row: &Row, slot: &[u8], found: &mut LinkVerdict, mismatch: &mut impl FnMut(String)) {
        let Some(patterns) = self.patterns else { return };
        let g = self.geometry;
        let number = row.number % patterns.period;
        let generate = |bytes: &mut [u8]| prbs::write_shot(self.stream, number, &g, bytes);
        let expected: &[u8] = match patterns.cache[self.link].get(number as usize) {
            Some(cached) => cached.get_or_init(|| {
                let mut bytes = vec![0; g.sample_bytes() as usize].into_boxed_slice();
                generate(&mut bytes);
                bytes
            }),
            None => {
                self.scratch.resize(g.sample_bytes() as usize, 0);
                generate(&mut self.scratch);
                &self.scratch
            }
        };
        if row.placed == g.packets() && slot[..expected.len()] == *expected {
            found.pattern_packets += u64::from(g.packets());
            return;
        }
        for index in (0..g.packets()).filter(|index| row.contains(*index)) {
            let at = g.packet_offset(index) as usize;
            let end = (at + g.packet_bytes(index) as usize).min(expected.len());
            let Some(expected) = expected.get(at..end) else { continue }; // a trailer alone
            let bytes = &slot[at..end];
            found.pattern_packets += 1;
            if let Some(byte) = bytes.iter().zip(expected).position(|(a, b)| a != b) {
                mismatch(format!(
                    "packet {index} does not match pattern {number}: expected byte {:#04x} at {}, found {:#04x}",
                    expected[byte],
                    at + byte,
                    bytes[byte]
                ));
            }
        }
    }
}

/// Returns the offset of the first byte that is not zero.
fn first_not_zero(bytes: &[u8]) -> Option<usize> {
    // Whole blocks first, so that the compiler can vectorise the loop.
    let block = bytes.chunks(256).position(|block| block.iter().fold(0, |a, b| a | b) != 0)?;
    bytes[256 * block..].iter().position(|byte| *byte != 0).map(|at| 256 * block + at)
}
