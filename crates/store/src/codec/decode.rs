//! Decompression of chunks. Chunks are untrusted: every field is validated before use.

use super::{Blocks, Codec, GROUP_SAMPLES, HEADER_BYTES, element_bytes};
use lzzzz::lz4;
use shotline_compute::{bitshuffle, pack12};
use shotline_wire::shot::{Geometry, Packing};
use zstd_safe::DCtx;

/// Error of the decompression of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The chunk is truncated.
    #[error("expected a chunk of {expected} bytes or more, found {found}")]
    Short {
        /// Minimum length, in bytes.
        expected: usize,
        /// Length of the chunk, in bytes.
        found: usize,
    },
    /// The header does not match the geometry.
    #[error(
        "expected a chunk of {expected} bytes of samples in blocks of a multiple of {unit} bytes, found {found} in blocks of {block}"
    )]
    Header {
        /// Decompressed bytes of a shot's samples.
        expected: u64,
        /// Decompressed bytes in the header.
        found: u64,
        /// Bytes of eight samples, of which a block is a multiple.
        unit: u32,
        /// Decompressed bytes per block in the header.
        block: u32,
    },
    /// A block does not decompress to its expected length.
    #[error("expected a block of {expected} bytes from sample {sample} on, found damage in its compressed bytes")]
    Block {
        /// Decompressed bytes of the block.
        expected: usize,
        /// First sample of the block.
        sample: usize,
    },
    /// The data after the samples does not have the length of the trailer.
    #[error("expected {expected} bytes after the samples, found {found}")]
    Trailer {
        /// Bytes of a trailer.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
}

/// Decompresses chunks of shots of one geometry, on one thread.
pub struct Decoder {
    geometry: Geometry,
    samples: Vec<i16>,
    planes: Vec<u8>,
    /// `None` for LZ4.
    zstd: Option<DCtx<'static>>,
}

impl Decoder {
    /// Creates a decoder for shots of a geometry.
    pub fn new(codec: Codec, geometry: Geometry) -> Self {
        let zstd = match codec {
            Codec::Lz4 => None,
            Codec::Zstd(_) => Some(DCtx::create()),
        };
        Self { geometry, samples: Vec::new(), planes: Vec::new(), zstd }
    }

    /// Creates one decoder per link of a compressed run, and none for an uncompressed run.
    pub(crate) fn for_links(codec: Option<Codec>, links: impl Iterator<Item = Geometry>) -> Vec<Self> {
        codec.map_or_else(Vec::new, |codec| links.map(|geometry| Self::new(codec, geometry)).collect())
    }

    /// Restores a slot from its chunk.
    ///
    /// # Errors
    /// Fails if the chunk is damaged, or is not one of this codec and geometry. The contents of the slot are then
    /// unspecified.
    ///
    /// # Panics
    /// If the slot is not `slot_bytes` of the geometry long.
    pub fn decode(&mut self, chunk: &[u8], slot: &mut [u8]) -> Result<(), DecodeError> {
        let g = self.geometry;
        assert_eq!(slot.len(), g.slot_bytes() as usize, "a slot is as long as the geometry has it");
        let element = element_bytes(g.packing());
        let mut reader = ChunkReader { chunk, offset: 0 };
        let bytes = u64::from_be_bytes(reader.array()?);
        let block = u32::from_be_bytes(reader.array()?);
        debug_assert_eq!(reader.offset, HEADER_BYTES);
        let unit = (GROUP_SAMPLES * element) as u32;
        let blocks = Blocks::new(&g, block as usize / element);
        let expected = (blocks.samples * element) as u64;
        if bytes != expected || block == 0 || block % unit != 0 {
            return Err(DecodeError::Header { expected, found: bytes, unit, block });
        }
        let largest = blocks.block.min(blocks.samples);
        self.samples.resize(largest.max(GROUP_SAMPLES), 0);
        self.planes.resize(largest * element, 0);
        for (first, count) in blocks.iter() {
            let len = u32::from_be_bytes(reader.array()?) as usize;
            let compressed = reader.take(len)?;
            self.decode_block(compressed, first, count, slot)?;
        }
        let remainder = blocks.remainder();
        let bytes = reader.take(remainder * element)?;
        let first = blocks.samples - remainder;
        if g.packing() == Packing::Uint8 {
            slot[first..first + remainder].copy_from_slice(bytes);
        } else {
            let pairs = bytes.as_chunks::<2>().0;
            self.samples.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = i16::from_le_bytes(*pair));
            self.pack_samples(first, remainder, slot);
        }
        let (samples, trailer, end) = (g.sample_bytes() as usize, g.trailer_offset() as usize, g.shot_bytes() as usize);
        let found_trailer = reader.take(reader.chunk.len() - reader.offset)?;
        if found_trailer.len() != end - trailer {
            return Err(DecodeError::Trailer { expected: end - trailer, found: found_trailer.len() });
        }
        slot[samples..trailer].fill(0);
        slot[trailer..end].copy_from_slice(found_trailer);
        slot[end..].fill(0);
        Ok(())
    }

    fn decode_block(
        &mut self,
        compressed: &[u8],
        first: usize,
        count: usize,
        slot: &mut [u8],
    ) -> Result<(), DecodeError> {
        let expected = count * element_bytes(self.geometry.packing());
        let planes = &mut self.planes[..expected];
        let found = match &mut self.zstd {
            None => lz4::decompress(compressed, planes).ok(),
            Some(context) => context.decompress(planes, compressed).ok(),
        };
        if found != Some(expected) {
            return Err(DecodeError::Block { expected, sample: first });
        }
        if self.geometry.packing() == Packing::Uint8 {
            bitshuffle::unshuffle(planes, &mut slot[first..first + count]);
        } else {
            bitshuffle::unshuffle(planes, &mut self.samples[..count]);
            self.pack_samples(first, count, slot);
        }
        Ok(())
    }

    /// Packs the first `count` samples of `self.samples` into the slot, as on the wire.
    fn pack_samples(&self, first: usize, count: usize, slot: &mut [u8]) {
        let bits = self.geometry.packing().bits_per_sample() as usize;
        let (samples, to) = (&self.samples[..count], &mut slot[first * bits / 8..(first + count) * bits / 8]);
        if self.geometry.packing() == Packing::Packed12 {
            pack12::pack(samples, to);
        } else {
            let pairs = to.as_chunks_mut::<2>().0;
            pairs.iter_mut().zip(samples).for_each(|(pair, sample)| *pair = sample.to_le_bytes());
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({:?})", self.geometry)
    }
}

/// Bounds-checked reader of a chunk.
struct ChunkReader<'a> {
    chunk: &'a [u8],
    offset: usize,
}

impl<'a> ChunkReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.offset.saturating_add(len);
        let bytes = self.chunk.get(self.offset..end);
        let bytes = bytes.ok_or(DecodeError::Short { expected: end, found: self.chunk.len() })?;
        self.offset = end;
        Ok(bytes)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes as were taken"))
    }
}
