//! How to record.

use std::time::Duration;

/// How to record.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Rows to lay out: no run records more.
    pub rows: u64,
    /// Writes under way at once.
    pub in_flight: u32,
    /// Write past the page cache.
    pub direct: bool,
    /// Survive a power cut, not only a kill: data is synced before its rows become visible.
    pub durable: bool,
    /// Replace a file that is there.
    pub overwrite: bool,
    /// With `overwrite`: give up the old file at once and write into its blocks, which is faster than into new ones.
    pub recycle: bool,
    /// With `overwrite`: the serial number of the raw device whose contents may go ([`crate::nvme`]).
    pub serial: Option<String>,
    /// Rows become visible at least this often.
    pub commit_every: Duration,
    /// Upper bound of rows between two commits.
    pub commit_rows: u64,
    /// Threads that compress the shots of a run with a codec; none:
    /// [`default_threads`](super::default_threads). With 0 every shot is stored as it came.
    pub compress_threads: Option<usize>,
}

impl RecorderConfig {
    /// The usual way for `rows` rows.
    pub fn new(rows: u64) -> Self {
        Self {
            rows,
            in_flight: 16,
            direct: true,
            durable: false,
            overwrite: false,
            recycle: false,
            serial: None,
            commit_every: Duration::from_millis(20),
            commit_rows: 1024,
            compress_threads: None,
        }
    }
}
