//! Configuration of a recorder.

use std::time::Duration;

/// Configuration of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderConfig {
    /// Number of rows to allocate, the maximum of the run.
    pub rows: u64,
    /// Maximum number of writes in flight.
    pub in_flight: u32,
    /// Use direct I/O, which bypasses the page cache.
    pub direct: bool,
    /// Survive a power cut as well as `kill -9`: data is synced before its rows become visible.
    pub durable: bool,
    /// Replace an existing file.
    pub overwrite: bool,
    /// With `overwrite`: discard the old file at once and reuse its blocks, which is faster than writing to new ones.
    pub recycle: bool,
    /// With `overwrite`: serial number of the raw device whose contents may be discarded ([`crate::nvme`]).
    pub serial: Option<String>,
    /// Maximum time between two commits.
    pub commit_every: Duration,
    /// Maximum number of rows between two commits.
    pub commit_rows: u64,
    /// Number of threads that compress the shots of a run with a codec; `None`:
    /// [`default_threads`](super::default_threads). With 0 every shot is stored uncompressed.
    pub compress_threads: Option<usize>,
}

impl RecorderConfig {
    /// Returns the default configuration for `rows` rows.
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
