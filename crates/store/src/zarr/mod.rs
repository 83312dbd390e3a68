//! Zarr objects and shards, for export and import.

pub mod objects;
pub(crate) mod shard;

/// Value of the root attribute `format`, by which an import recognises exports of this crate.
pub(crate) const FORMAT_NAME: &str = "shotline zarr";
/// Maximum size of a shard in bytes. Shards are assembled in memory.
pub(crate) const MAX_SHARD_BYTES: u64 = 1 << 30;
/// Maximum size of a `zarr.json`, in bytes.
pub(crate) const MAX_NODE_BYTES: u64 = 16 << 20;
