//! Log of the links' clocks, in `/linkN/clock`.
//!
//! The table has a fixed size and libhdf5 allocates it together with the names and types, so it needs no work during
//! the run. Unused rows are zeros. A concurrent reader sees whole rows only, because no row crosses a sector boundary.
//! When the table is full, every other row is discarded and the sampling interval doubles, so it always covers the
//! whole run.

use crate::medium::Medium;
use crate::rows::{I64, U8, U64, compound, field};
use hdf5::types::TypeDescriptor;
use rustix::io::Errno;

/// Number of rows in the table.
pub const CLOCK_ROWS: usize = 256;
/// Bytes of a row: a divisor of the sector size.
pub const CLOCK_BYTES: usize = 64;

/// One comparison of a link's clock with its reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockSample {
    /// Time of the sample in TAI nanoseconds by the reference: the first link's clock, or the receiver's for the first
    /// link.
    pub at_tai_ns: u64,
    /// Offset of the link's clock from the reference, positive if it is ahead.
    pub offset_ns: i64,
    /// Drift in parts per 10^9, positive if the clock runs fast.
    pub drift_ppb: i64,
    /// Median distance of the comparisons from the fitted line, in nanoseconds.
    pub residual_ns: u64,
    /// Number of jumps of the clock so far.
    pub jumps: u64,
    /// The comparisons have been close to a line for some time.
    pub locked: bool,
    /// No packets arrive from the link.
    pub stopped: bool,
}

/// Meanings of the fields, written as HDF5 attributes.
pub(crate) const CLOCK_FIELDS: [(&str, &str); 8] = [
    (
        "description",
        "how this link's clock ran, about once a second, in long runs less often; rows with at_tai_ns = 0 are not used",
    ),
    (
        "at_tai_ns",
        "nanoseconds since 1970-01-01 00:00:00 TAI by the clock that this one is compared with: link 0's, for link 0 the receiver's",
    ),
    ("offset_ns", "time by which this clock is ahead; for link 0 less the transit time of its packets"),
    ("drift_ppb", "rate by which this clock is faster, in parts per 10^9"),
    ("residual_ns", "median distance of the comparisons from the fitted line"),
    ("jumps", "number of jumps of this clock"),
    ("locked", "the comparisons have been close to the fitted line for some time"),
    ("stopped", "no packets arrived on this link"),
];

/// Returns the HDF5 type of a row.
pub(crate) fn clock_descriptor() -> TypeDescriptor {
    let fields = vec![
        field("at_tai_ns", U64, 0),
        field("offset_ns", I64, 8),
        field("drift_ppb", I64, 16),
        field("residual_ns", U64, 24),
        field("jumps", U64, 32),
        field("locked", U8, 40),
        field("stopped", U8, 41),
    ];
    compound(fields, CLOCK_BYTES)
}

impl ClockSample {
    fn row(&self) -> [u8; CLOCK_BYTES] {
        let mut row = [0; CLOCK_BYTES];
        row[..8].copy_from_slice(&self.at_tai_ns.to_le_bytes());
        row[8..16].copy_from_slice(&self.offset_ns.to_le_bytes());
        row[16..24].copy_from_slice(&self.drift_ppb.to_le_bytes());
        row[24..32].copy_from_slice(&self.residual_ns.to_le_bytes());
        row[32..40].copy_from_slice(&self.jumps.to_le_bytes());
        row[40] = self.locked.into();
        row[41] = self.stopped.into();
        row
    }
}

/// Writer of one link's table.
#[derive(Debug)]
pub(crate) struct ClockLog {
    /// File offset of the first row.
    offset: u64,
    rows: Vec<[u8; CLOCK_BYTES]>,
    /// Every `stride`th sample is written; doubles each time the table is full.
    stride: u64,
    /// Number of samples so far, including those that were not written.
    samples: u64,
}

impl ClockLog {
    pub(crate) fn new(offset: u64) -> Self {
        Self { offset, rows: Vec::with_capacity(CLOCK_ROWS), stride: 1, samples: 0 }
    }

    pub(crate) fn push(&mut self, file: &Medium, sample: &ClockSample) -> Result<(), Errno> {
        self.samples += 1;
        if !(self.samples - 1).is_multiple_of(self.stride) {
            return Ok(());
        }
        if self.rows.len() == CLOCK_ROWS {
            self.rows = self.rows.iter().copied().step_by(2).collect();
            self.stride *= 2;
            let mut all = self.rows.concat();
            all.resize(CLOCK_ROWS * CLOCK_BYTES, 0);
            file.write_all(self.offset, &all)?;
        }
        let offset = self.offset + (self.rows.len() * CLOCK_BYTES) as u64;
        self.rows.push(sample.row());
        file.write_all(offset, &sample.row())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::{LinkInfo, RunInfo};
    use crate::layout::{CreateOptions, create, open};
    use shotline_wire::shot::{Geometry, Packing};

    #[test]
    fn fixed_size_table_covers_any_run_in_whole_sectors() {
        let geometry = Geometry::new(2, 10, 12, Packing::Packed12, 0).unwrap();
        let links = (0..2).map(|stream| LinkInfo { name: "a".into(), stream, geometry }).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let opened =
            create(&path, &RunInfo::new(links), CreateOptions { rows: 1, ..CreateOptions::default() }).unwrap();
        let clocks = opened.layout.clocks.clone();
        assert!(clocks.len() == 2 && clocks.iter().all(|at| at.is_multiple_of(512)), "{clocks:?}");
        let mut log = ClockLog::new(clocks[1]);
        let sample = |second| ClockSample { at_tai_ns: 1 + second, offset_ns: -5, drift_ppb: -7, ..Default::default() };
        for (second, unused) in [(0, 255), (255, 0), (256, 127), (257, 127), (258, 126), (5000, 99)] {
            while log.samples <= second {
                let next = log.samples;
                log.push(&opened.file, &sample(next)).unwrap();
            }
            let mut bytes = vec![0; CLOCK_ROWS * CLOCK_BYTES];
            assert_eq!(crate::layout::read_at(&opened.file, clocks[1], &mut bytes), bytes.len());
            let times: Vec<u64> =
                bytes.chunks(CLOCK_BYTES).map(|row| u64::from_le_bytes(row[..8].try_into().unwrap())).collect();
            assert_eq!(times.iter().filter(|at| **at == 0).count(), unused, "after {second} s");
            let used = &times[..CLOCK_ROWS - unused];
            assert!(
                used[0] == 1 && used.windows(3).all(|three| three[2] - three[1] == three[1] - three[0]),
                "{used:?}"
            );
        }
        drop(opened);
        assert_eq!(open(&path).unwrap().1.layout.clocks, clocks);
        let table = hdf5::File::open(&path).unwrap().dataset("link1/clock").unwrap();
        assert_eq!(
            (table.shape(), table.dtype().unwrap().to_descriptor().unwrap()),
            (vec![CLOCK_ROWS], clock_descriptor())
        );
    }
}
