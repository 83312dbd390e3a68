//! Iteration over the exported shots: rows, samples, and missing samples.

use super::error::ExportError;
use super::select::Selection;
use crate::info::{LinkInfo, RunInfo};
use crate::read::Recording;
use crate::rows::{NO_NUMBER, Row, State};
use shotline_compute::pack12;
use shotline_wire::shot::{Geometry, Packing};
use std::ops::{ControlFlow, Range};

/// Progress callback, called with the shots done and the total. Returns [`ControlFlow::Break`] to stop.
pub type Progress<'a> = &'a dyn Fn(u64, u64) -> ControlFlow<()>;

/// Table rows read at a time.
const BLOCK_ROWS: u64 = 1024;

/// Counters of the exported shots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ShotCounters {
    pub complete: u64,
    pub partial: u64,
    pub lost: u64,
    pub missing_samples: u64,
}

/// An exported shot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shot<'a> {
    /// Table row of the shot.
    pub row: &'a Row,
    /// Samples: all channels of an instant, then those of the next. Missing samples are zero.
    pub samples: &'a [i16],
    /// Ranges of missing samples.
    pub missing: &'a [Range<usize>],
}

/// The selected shots of a recording.
pub(super) struct Shots<'a> {
    recording: &'a Recording,
    selection: &'a Selection,
    rows: Range<u64>,
    links: Vec<usize>,
    progress: Progress<'a>,
    done: u64,
    counters: ShotCounters,
}

/// Range of the shot numbers and timestamps of the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// First shot number.
    pub first: u64,
    /// Last shot number.
    pub last: u64,
    /// Number and timestamp of the first shot with a timestamp.
    first_stamped: Option<(u64, u64)>,
    /// Number and timestamp of the last shot with a timestamp.
    last_stamped: Option<(u64, u64)>,
    /// Number of rows that are not lost.
    pub recorded: u64,
}

impl Span {
    /// Returns the number of shot numbers from the first to the last.
    pub fn count(&self) -> u64 {
        self.last.checked_sub(self.first).map_or(0, |more| more.saturating_add(1))
    }

    /// Returns the shot rate from the timestamps, if known.
    pub fn rate_hz(&self) -> Option<f64> {
        let ((first, since), (last, until)) = (self.first_stamped?, self.last_stamped?);
        (until > since && last > first).then(|| (last - first) as f64 * 1e9 / (until - since) as f64)
    }
}

impl<'a> Shots<'a> {
    pub fn new(
        recording: &'a Recording,
        selection: &'a Selection,
        progress: Progress<'a>,
    ) -> Result<Self, ExportError> {
        let (rows, links) = (selection.rows(recording)?, selection.links(recording)?);
        Ok(Self { recording, selection, rows, links, progress, done: 0, counters: ShotCounters::default() })
    }

    /// Counts all shots of all links without reading their samples.
    pub fn count_all(&mut self) -> Result<(), ExportError> {
        for link in 0..self.run().links.len() {
            let (geometry, mut next) = (self.link(link).geometry, None);
            for row in self.rows() {
                let row = self.recording.row(row, link)?;
                self.count(&row, &missing(&row, &geometry), next);
                next = (row.number != NO_NUMBER).then_some(row.number.saturating_add(1)).or(next);
            }
        }
        Ok(())
    }

    /// Returns the description of the run.
    pub fn run(&self) -> &'a RunInfo {
        self.recording.run()
    }
    /// Returns the recording.
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }
    /// Returns the selected rows.
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }
    /// Returns the indexes of the selected links.
    pub fn links(&self) -> &[usize] {
        &self.links
    }
    /// Returns the description of a link.
    pub fn link(&self, link: usize) -> &'a LinkInfo {
        &self.recording.run().links[link]
    }
    /// Returns `true` if any selection was made, even one of all shots.
    pub fn are_selected(&self) -> bool {
        let Selection { from, shots, links } = self.selection;
        from.is_some() || shots.is_some() || !links.is_empty()
    }
    /// Reports progress and returns the result of the callback.
    pub fn progress(&self, done: u64, total: u64) -> ControlFlow<()> {
        (self.progress)(done, total)
    }
    /// Returns the counters so far.
    pub fn counters(&self) -> ShotCounters {
        self.counters
    }

    /// Returns the common geometry of all selected links.
    pub fn geometry(&self, format: &'static str) -> Result<Geometry, ExportError> {
        let first = self.link(self.links[0]).geometry;
        if self.links.iter().any(|link| self.link(*link).geometry != first) {
            let why = "its links' shots differ in shape: export them one by one (--links 0, then --links 1, ...)";
            return Err(ExportError::Unsupported { format, why: why.into() });
        }
        Ok(first)
    }

    /// Returns the sample rate of a link in Hz.
    pub fn rate(&self, link: usize, format: &'static str) -> Result<u32, ExportError> {
        match self.link(link).geometry.sample_rate_hz() {
            0 => Err(ExportError::Unsupported {
                format,
                why: "its sample rate is not known, and the format needs it".into(),
            }),
            rate => Ok(rate),
        }
    }

    /// Returns TAI - UTC in nanoseconds, rounded to whole seconds.
    pub fn tai_minus_utc_ns(&self) -> i64 {
        const SECOND: i64 = 1_000_000_000;
        let run = self.run();
        if !run.clock.source.is_empty() {
            return run.clock.tai_minus_utc_s * SECOND;
        }
        let difference_ns = run.start_tai_ns.wrapping_sub(run.start_utc_ns) as i64;
        (difference_ns + SECOND / 2).div_euclid(SECOND) * SECOND
    }

    /// Calls `each` with every table row of a link, without reading samples.
    pub fn each_row(
        &self,
        link: usize,
        mut each: impl FnMut(u64, &Row) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        for first in self.rows.clone().step_by(BLOCK_ROWS as usize) {
            let block = first..self.rows.end.min(first + BLOCK_ROWS);
            for (row, index) in self.recording.read_rows(link, block.clone())?.iter().zip(block) {
                each(index, row)?;
            }
        }
        Ok(())
    }

    /// Returns the range of shot numbers and timestamps of a link.
    pub fn span(&self, link: usize) -> Result<Span, ExportError> {
        let mut span = Span { first: u64::MAX, ..Span::default() };
        self.each_row(link, |_, row| {
            if row.number != NO_NUMBER {
                (span.first, span.last) = (span.first.min(row.number), span.last.max(row.number));
            }
            span.recorded += u64::from(row.state != State::Lost);
            if row.stamp_tai_ns > 0 {
                span.last_stamped = Some((row.number, row.stamp_tai_ns));
                span.first_stamped = span.first_stamped.or(span.last_stamped);
            }
            Ok(())
        })?;
        Ok(span)
    }

    /// Calls `each` with every shot of a link, in the order of the rows. All samples of lost shots are missing.
    pub fn each(
        &mut self,
        link: usize,
        mut each: impl FnMut(Shot<'_>) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let geometry = self.link(link).geometry;
        let mut slots = self.recording.slot_reader();
        let mut samples = vec![0; usize::from(geometry.channels()) * geometry.samples() as usize];
        let total = (self.rows.end - self.rows.start) * self.links.len() as u64;
        let mut next = None;
        for first in self.rows.clone().step_by(BLOCK_ROWS as usize) {
            let block = first..self.rows.end.min(first + BLOCK_ROWS);
            for (row, index) in self.recording.read_rows(link, block.clone())?.iter().zip(block) {
                let missing = missing(row, &geometry);
                if row.state == State::Lost {
                    samples.fill(0);
                } else {
                    decode(slots.read(index, link)?, &geometry, &mut samples);
                }
                self.count(row, &missing, next);
                next = (row.number != NO_NUMBER).then_some(row.number.saturating_add(1)).or(next);
                each(Shot { row, samples: &samples, missing: &missing })?;
                self.done += 1;
                if self.progress(self.done, total).is_break() {
                    return Err(ExportError::Stopped);
                }
            }
        }
        Ok(())
    }

    /// Adds a row to the counters. `next` is the shot number that follows the previous row.
    pub fn count(&mut self, row: &Row, missing: &[Range<usize>], next: Option<u64>) {
        // Skipped shot numbers are in no row.
        if row.number != NO_NUMBER {
            self.counters.lost += next.map_or(0, |next| row.number.saturating_sub(next));
        }
        match row.state {
            State::Lost => self.counters.lost += 1,
            State::Complete => self.counters.complete += 1,
            State::Partial => {
                self.counters.partial += 1;
                self.counters.missing_samples += missing.iter().map(|range| range.len() as u64).sum::<u64>();
            }
        }
    }
}

/// Decodes the samples of a shot.
fn decode(slot: &[u8], geometry: &Geometry, samples: &mut [i16]) {
    let bytes = &slot[..geometry.sample_bytes() as usize];
    match geometry.packing() {
        Packing::Packed12 => pack12::unpack(bytes, samples),
        Packing::Int16Le => {
            for (sample, bytes) in samples.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *sample = i16::from_le_bytes(*bytes);
            }
        }
        Packing::Int16Be => {
            for (sample, bytes) in samples.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *sample = i16::from_be_bytes(*bytes);
            }
        }
        Packing::Uint8 => samples.iter_mut().zip(bytes).for_each(|(sample, byte)| *sample = i16::from(*byte)),
    }
}

/// Returns the ranges of missing samples of a shot, ascending and not adjacent.
pub(super) fn missing(row: &Row, geometry: &Geometry) -> Vec<Range<usize>> {
    let all = usize::from(geometry.channels()) * geometry.samples() as usize;
    if row.state == State::Lost {
        return std::iter::once(0..all).collect();
    }
    let bits = geometry.packing().bits_per_sample() as usize;
    let sample_bytes = geometry.sample_bytes();
    let mut out: Vec<Range<usize>> = Vec::new();
    let mut mark = |bytes: Range<u32>| {
        // A sample is missing if any of its bits is missing.
        let range = bytes.start as usize * 8 / bits..(bytes.end as usize * 8).div_ceil(bits).min(all);
        match out.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    };
    let bytes_of = |index| {
        let start = geometry.packet_offset(index).min(sample_bytes);
        start..(start + geometry.packet_bytes(index)).min(sample_bytes)
    };
    let present = || (0..geometry.packets()).filter(|index| row.contains(*index)).map(bytes_of);
    let present_bytes: u32 = present().map(|bytes| bytes.end - bytes.start).sum();
    // The source ended within a packet: the rest of the packet is padding that was not sent.
    let padding = present_bytes.saturating_sub(row.valid_bytes);
    let last = present().map(|bytes| bytes.end).max().unwrap_or(0);
    for index in 0..geometry.packets() {
        let bytes = bytes_of(index);
        if !row.contains(index) {
            mark(bytes);
        } else if bytes.end == last && padding > 0 {
            mark(bytes.end.saturating_sub(padding).max(bytes.start)..bytes.end);
        }
    }
    out
}

/// Returns the ranges of instants with a missing channel, ascending and not adjacent.
pub(super) fn missing_instants(missing: &[Range<usize>], channels: usize) -> Vec<Range<usize>> {
    let mut out: Vec<Range<usize>> = Vec::new();
    for range in missing {
        let range = range.start / channels..range.end.div_ceil(channels);
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = range.end,
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use shotline_wire::shot::DropCause;

    fn row(packets: u32, present: &[u32], state: State) -> Row {
        let valid_bytes = present.iter().map(|index| (15_000 - index * 4096).min(4096)).sum();
        let mut presence = vec![0; packets.div_ceil(8) as usize];
        present.iter().for_each(|index| presence[(index / 8) as usize] |= 1 << (index % 8));
        Row {
            number: 0,
            stamp_tai_ns: 0,
            arrived_tai_ns: 0,
            completed_tai_ns: 0,
            valid_bytes,
            packets,
            placed: present.len() as u32,
            drops: [0; DropCause::ALL.len()],
            state,
            flags: 0,
            record_good: false,
            presence,
            slot_crc32: 0,
            crc_valid: true,
        }
    }

    #[test]
    fn a_sample_with_a_missing_bit_is_missing() {
        // 4096 bytes are 2730 2/3 samples of 12 bits.
        let g = Geometry::new(10, 1000, 12, Packing::Packed12, 0).unwrap();
        assert_eq!(g.packets(), 4);
        let assert_missing = |row: &Row, expected: Option<Range<usize>>| {
            assert_eq!(missing(row, &g), Vec::from_iter(expected));
        };
        assert_missing(&row(4, &[0, 2, 3], State::Partial), Some(2730..5462));
        assert_missing(&row(4, &[0, 3], State::Partial), Some(2730..8192));
        assert_missing(&row(4, &[0, 1, 2], State::Partial), Some(8192..10_000));
        assert_missing(&row(4, &[0, 1, 2, 3], State::Complete), None);
        assert_missing(&row(4, &[], State::Lost), Some(0..10_000));
        let mut padded = row(4, &[0, 1], State::Partial);
        padded.valid_bytes = 8100;
        // The source ended 92 bytes before the end of the second packet.
        assert_missing(&padded, Some(5400..10_000));
        let instants = missing_instants(&[2730..5462, 5465..5466], 10);
        assert_eq!(instants, Vec::from_iter(Some(273..547)));
    }
}
