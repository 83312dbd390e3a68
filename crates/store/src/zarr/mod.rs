//! Zarr's objects and shards: what an export writes and an import reads.

pub mod objects;
pub(crate) mod shard;

/// The root attribute `format`, by which an import knows its own.
pub(crate) const KIND: &str = "shotline zarr";
/// Bytes of a shard, at most: it is put together in memory.
pub(crate) const MOST_BYTES: u64 = 1 << 30;
/// Bytes of a `zarr.json`, at most.
pub(crate) const MOST_NODE: u64 = 16 << 20;
