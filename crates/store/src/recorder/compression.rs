//! Compression of a recorder: its worker threads, and the allocation of chunks.
//!
//! The recorder never waits for the workers. If their queue is full, the shot is written uncompressed, as recorded in
//! the filter mask of its chunk.

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

/// Chunk storage of a compressed run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Chunks {
    /// Number of compressed shots.
    pub compressed: u64,
    /// Number of shots stored uncompressed, because compression could not keep up, saved nothing, or would not have
    /// been lossless.
    pub uncompressed: u64,
    /// Uncompressed bytes of all shots.
    pub bytes_raw: u64,
    /// Bytes of all shots in the file.
    pub bytes_stored: u64,
}

impl Chunks {
    /// Returns the counters with their names in `/counters`.
    pub(crate) fn entries(&self) -> [(&'static str, u64); 4] {
        [
            ("chunks_compressed", self.compressed),
            ("chunks_uncompressed", self.uncompressed),
            ("bytes_raw", self.bytes_raw),
            ("bytes_stored", self.bytes_stored),
        ]
    }

    /// Reads the counters from the totals of a run; `None` if it was not compressed, or has not ended.
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

/// Compression of a recorder. See the module.
#[derive(Debug)]
pub(super) struct Compression {
    workers: Workers,
    /// File offset of the next chunk.
    end: u64,
    /// Shots from the workers that are not passed to the drive yet.
    ready: VecDeque<CompletedShot>,
    pub chunks: Chunks,
}

/// Default number of threads: all processors but one, which receives.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1)
}

/// Allocates the output buffers and appends them to the regions.
pub(super) fn output_buffers(
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
        // The first chunk is after the row of zeros.
        Ok(Self { workers, end: layout.data_end(0), ready: VecDeque::new(), chunks: Chunks::default() })
    }

    /// Passes a shot to the workers; returns it if their queue is full.
    pub fn submit(&mut self, tag: u64, link: usize, shot: Buffer) -> Result<(), Buffer> {
        self.workers.submit(tag, link, shot)
    }

    /// Allocates the next chunk.
    pub fn allocate(&mut self, compressed: Option<u32>, slot_bytes: u32) -> StoredChunk {
        let bytes = compressed.unwrap_or(slot_bytes);
        let stored = StoredChunk { offset: self.end, bytes, compressed: compressed.is_some() };
        self.end = stored.end();
        stored
    }

    /// Returns the next compressed shot to write.
    pub fn next(&mut self) -> Option<CompletedShot> {
        if self.ready.is_empty() {
            self.ready.extend(self.workers.drain_completed());
        }
        self.ready.pop_front()
    }

    /// Counts a shot that was written.
    pub fn count_stored(&mut self, stored: StoredChunk, slot_bytes: u32) {
        let chunks = &mut self.chunks;
        *(if stored.compressed { &mut chunks.compressed } else { &mut chunks.uncompressed }) += 1;
        chunks.bytes_raw += u64::from(slot_bytes);
        chunks.bytes_stored += stored.end() - stored.offset;
    }

    /// Returns the end of the data.
    pub fn end(&self) -> u64 {
        self.end
    }
}
