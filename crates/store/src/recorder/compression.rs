//! What a recorder of a compressed run knows beyond others: its workers, and where the next chunk goes.
//!
//! It never waits for the workers. A shot that they have no room for is written as it came, and the chunk says so.

use super::config::RecorderConfig;
use crate::StoreError;
use crate::codec::Codec;
use crate::codec::workers::{self, CompletedShot, Workers};
use crate::layout::{Layout, StoredChunk};
use crate::sys::drive::Drive;
use serde::Serialize;
use shotline_memory::{Buffer, Pool, Regions};
use shotline_wire::shot::Geometry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How shots were stored in a compressed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chunks {
    /// Shots that are compressed.
    pub compressed: u64,
    /// Shots that are stored as they came, because compression could not keep up, saved nothing, or would have lost
    /// something.
    pub uncompressed: u64,
    /// Bytes of all these as they came.
    pub bytes_raw: u64,
    /// Bytes that they take in the file.
    pub bytes_stored: u64,
}

impl Chunks {
    /// These counts by the names that they have in the books.
    pub(crate) fn entries(&self) -> [(&'static str, u64); 4] {
        [
            ("chunks_compressed", self.compressed),
            ("chunks_uncompressed", self.uncompressed),
            ("bytes_raw", self.bytes_raw),
            ("bytes_stored", self.bytes_stored),
        ]
    }

    /// The counts that are in the totals of a run; none if it was not compressed, or has not ended.
    pub fn of_totals(totals: &BTreeMap<String, u64>) -> Option<Self> {
        let total = |name| totals.get(name).copied();
        Some(Self {
            compressed: total("chunks_compressed")?,
            uncompressed: total("chunks_uncompressed")?,
            bytes_raw: total("bytes_raw")?,
            bytes_stored: total("bytes_stored")?,
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Compression {
    workers: Workers,
    /// Where the next chunk goes.
    end: u64,
    /// Shots that are done and wait for room in the ring.
    ready: VecDeque<CompletedShot>,
    pub chunks: Chunks,
}

/// Threads if nobody says: all but one, which receives.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1)
}

/// Room for what is made, entered behind the regions that are there.
pub(super) fn room(
    config: &RecorderConfig,
    geometries: &[Geometry],
    regions: &Regions,
) -> Result<(Arc<Pool>, Regions), StoreError> {
    let threads = config.compress_threads.unwrap_or_else(default_threads);
    workers::output_pool(regions, threads, config.in_flight as usize, geometries)
        .map_err(|source| StoreError::Memory { source })
}

impl Compression {
    pub fn start(
        codec: Codec,
        config: &RecorderConfig,
        out: Arc<Pool>,
        geometries: &[Geometry],
        layout: &Layout,
        drive: &dyn Drive,
    ) -> Result<Self, StoreError> {
        let threads = config.compress_threads.unwrap_or_else(default_threads);
        let workers = Workers::start(codec, threads, out, geometries, drive.wake())
            .map_err(|source| StoreError::Thread { source })?;
        // Behind one row of zeros.
        Ok(Self { workers, end: layout.data_end(0), ready: VecDeque::new(), chunks: Chunks::default() })
    }

    /// Hands a shot to the workers, or gives it back if they have no room.
    pub fn submit(&mut self, tag: u64, link: usize, shot: Buffer) -> Result<(), Buffer> {
        self.workers.submit(tag, link, shot)
    }

    /// A place for a chunk behind all others.
    pub fn place(&mut self, compressed: Option<u32>, slot_bytes: u32) -> StoredChunk {
        let bytes = compressed.unwrap_or(slot_bytes);
        let stored = StoredChunk { at: self.end, bytes, compressed: compressed.is_some() };
        self.end = stored.end();
        stored
    }

    /// The next shot to write, if one is done.
    pub fn next(&mut self) -> Option<CompletedShot> {
        if self.ready.is_empty() {
            self.ready.extend(self.workers.drain_completed());
        }
        self.ready.pop_front()
    }

    /// Counts a shot that is in the file.
    pub fn stored(&mut self, stored: StoredChunk, slot_bytes: u32) {
        let chunks = &mut self.chunks;
        *(if stored.compressed { &mut chunks.compressed } else { &mut chunks.uncompressed }) += 1;
        chunks.bytes_raw += u64::from(slot_bytes);
        chunks.bytes_stored += stored.end() - stored.at;
    }

    /// Where the data ends.
    pub fn end(&self) -> u64 {
        self.end
    }
}
