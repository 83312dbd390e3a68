//! Shards and chunk codecs of Zarr version 3.
//!
//! A shard is the concatenation of its chunks, followed by their index: offset and length of each chunk, little-endian,
//! both 2^64 - 1 for an absent chunk; then a CRC-32C of the index (`sharding_indexed`, `index_location: end`).
//! Implemented here because a complete Zarr library would double the build time.

use serde_json::{Value, json};

/// Offset and length of an absent chunk.
const ABSENT: u64 = u64::MAX;

/// Encoding of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// Uncompressed.
    Plain,
    /// Compressed with Zstandard at this level.
    Zstd(i32),
}

impl Codec {
    /// Returns the `codecs` metadata of an array.
    pub fn metadata(self) -> Value {
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        match self {
            Self::Plain => json!([bytes]),
            Self::Zstd(level) => {
                json!([bytes, {"name": "zstd", "configuration": {"level": level, "checksum": false}}])
            }
        }
    }

    /// Parses `codecs` metadata; `None` for unsupported codecs.
    pub fn of(codecs: &Value) -> Option<Self> {
        let codecs = codecs.as_array()?;
        let (bytes, more) = codecs.split_first()?;
        let endian = &bytes["configuration"]["endian"];
        if bytes["name"] != "bytes" || !(endian.is_null() || endian == "little") {
            return None;
        }
        match more {
            [] => Some(Self::Plain),
            [zstd] if zstd["name"] == "zstd" => Some(Self::Zstd(0)),
            _ => None,
        }
    }

    fn encode(self, chunk: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Self::Plain => out.extend_from_slice(chunk),
            Self::Zstd(level) => out.extend(zstd::bulk::compress(chunk, level)?),
        }
        Ok(())
    }

    /// Decodes a chunk; `None` if it does not decode to `bytes` bytes.
    pub fn decode(self, stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let chunk = match self {
            Self::Plain => stored.to_vec(),
            Self::Zstd(_) => zstd::bulk::decompress(stored, bytes).ok()?,
        };
        (chunk.len() == bytes).then_some(chunk)
    }
}

/// A shard under construction, filled chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    bytes: Vec<u8>,
    index: Vec<[u64; 2]>,
}

impl Shard {
    /// Adds the next chunk. `None` adds an absent chunk, which reads as the fill value.
    pub fn push(&mut self, chunk: Option<&[u8]>, codec: Codec) -> std::io::Result<()> {
        let Some(chunk) = chunk else {
            self.index.push([ABSENT; 2]);
            return Ok(());
        };
        let start = self.bytes.len();
        codec.encode(chunk, &mut self.bytes)?;
        self.index.push([start as u64, (self.bytes.len() - start) as u64]);
        Ok(())
    }

    /// Returns the number of chunks, including absent ones.
    pub fn chunks(&self) -> usize {
        self.index.len()
    }

    /// Returns the finished shard of `chunks` chunks, or `None` if all chunks are absent, and starts a new one.
    pub fn take(&mut self, chunks: usize) -> Option<Vec<u8>> {
        self.index.resize(chunks, [ABSENT; 2]);
        let mut bytes = std::mem::take(&mut self.bytes);
        let index: Vec<u8> = self.index.drain(..).flatten().flat_map(u64::to_le_bytes).collect();
        if bytes.is_empty() {
            return None;
        }
        bytes.extend(&index);
        bytes.extend(crc32c::crc32c(&index).to_le_bytes());
        Some(bytes)
    }
}

/// Splits a shard into its encoded chunks; `None` if it is not a valid shard of `chunks` chunks.
pub(crate) fn split(shard: &[u8], chunks: usize) -> Option<Vec<Option<&[u8]>>> {
    let start = shard.len().checked_sub(chunks * 16 + 4)?;
    let (index, crc) = shard[start..].split_at(chunks * 16);
    if crc != crc32c::crc32c(index).to_le_bytes() {
        return None;
    }
    let chunk = |[offset, length]: [u64; 2]| match (offset, length) {
        (ABSENT, ABSENT) => Some(None),
        _ => {
            let end = offset.checked_add(length).filter(|end| *end <= start as u64)?;
            Some(Some(&shard[offset as usize..end as usize]))
        }
    };
    let entries = index.as_chunks::<8>().0.as_chunks::<2>().0;
    entries.iter().map(|[offset, length]| chunk([u64::from_le_bytes(*offset), u64::from_le_bytes(*length)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_round_trip_and_absent_ones_stay_absent() {
        for codec in [Codec::Plain, Codec::Zstd(3)] {
            let mut shard = Shard::default();
            let chunks = [Some([7_u8; 1000]), None, Some([9; 1000])];
            chunks.iter().for_each(|chunk| shard.push(chunk.as_ref().map(<[u8; 1000]>::as_slice), codec).unwrap());
            let bytes = shard.take(4).unwrap();
            let back = split(&bytes, 4).unwrap();
            let decoded = back.iter().map(|chunk| chunk.map(|chunk| codec.decode(chunk, 1000).unwrap()));
            let expected = chunks.into_iter().chain([None]).map(|chunk| chunk.map(|chunk| chunk.to_vec()));
            assert!(decoded.eq(expected));
            assert_eq!(shard.take(4), None, "nothing is left");
            assert!(Codec::of(&codec.metadata()).is_some());
        }
    }

    #[test]
    fn a_damaged_index_is_refused() {
        let mut shard = Shard::default();
        shard.push(Some(&[1, 2, 3]), Codec::Plain).unwrap();
        let good = shard.take(1).unwrap();
        assert!(split(&good, 1).is_some() && split(&good, 2).is_none() && split(&good[1..], 1).is_none());
        for at in 3..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(split(&bad, 1), None, "byte {at}");
        }
    }
}
