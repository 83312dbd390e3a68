//! Unpacks chunks. A chunk may be anything: nothing of it is believed before it is checked.

use super::{Blocks, Codec, EIGHT, HEAD, element_bytes};
use lzzzz::lz4;
use shotline_compute::{bitshuffle, pack12};
use shotline_wire::shot::{Geometry, Packing};
use zstd_safe::DCtx;

/// Why a chunk cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The chunk ends too early.
    #[error("expected a chunk of {expected} bytes or more, found {found}")]
    Short {
        /// Bytes that its parts need.
        expected: usize,
        /// Bytes of the chunk.
        found: usize,
    },
    /// Its head is not that of a shot of this shape.
    #[error(
        "expected a chunk of {expected} bytes of samples in blocks of a multiple of {unit}, found {found} in blocks of {block}"
    )]
    Head {
        /// Bytes of a shot's samples when unpacked.
        expected: u64,
        /// Bytes that the chunk claims.
        found: u64,
        /// Bytes of eight samples.
        unit: u32,
        /// Bytes of a block that the chunk claims.
        block: u32,
    },
    /// A block does not unpack to what it should.
    #[error("expected a block of {expected} bytes from sample {sample} on, found damage in its compressed bytes")]
    Block {
        /// Bytes of the block when unpacked.
        expected: usize,
        /// Its first sample.
        sample: usize,
    },
    /// What follows the samples is not what closes a shot.
    #[error("expected {expected} bytes behind the samples, found {found}")]
    Trailer {
        /// Bytes that close a shot.
        expected: usize,
        /// Bytes that are there.
        found: usize,
    },
}

/// Unpacks chunks of shots of one shape, on one thread.
pub struct Decoder {
    geometry: Geometry,
    samples: Vec<i16>,
    planes: Vec<u8>,
    /// None for LZ4.
    zstd: Option<DCtx<'static>>,
}

impl Decoder {
    /// A decoder for shots of this shape.
    pub fn new(codec: Codec, geometry: Geometry) -> Self {
        let zstd = match codec {
            Codec::Lz4 => None,
            Codec::Zstd(_) => Some(DCtx::create()),
        };
        Self { geometry, samples: Vec::new(), planes: Vec::new(), zstd }
    }

    /// One for each link of a compressed run; none of another.
    pub(crate) fn of_links(codec: Option<Codec>, links: impl Iterator<Item = Geometry>) -> Vec<Self> {
        codec.map_or_else(Vec::new, |codec| links.map(|geometry| Self::new(codec, geometry)).collect())
    }

    /// Makes a slot again from the chunk that was made of it. What is in the slot after an error is of no meaning.
    ///
    /// # Panics
    /// If the slot has not `slot_bytes` of the geometry.
    pub fn decode(&mut self, chunk: &[u8], slot: &mut [u8]) -> Result<(), DecodeError> {
        let g = self.geometry;
        assert_eq!(slot.len(), g.slot_bytes() as usize, "a slot is as long as the geometry has it");
        let element = element_bytes(g.packing());
        let mut rest = Rest { chunk, at: 0 };
        let bytes = u64::from_be_bytes(rest.array()?);
        let block = u32::from_be_bytes(rest.array()?);
        debug_assert_eq!(rest.at, HEAD);
        let unit = (EIGHT * element) as u32;
        let blocks = Blocks::new(&g, block as usize / element);
        let expected = (blocks.samples * element) as u64;
        if bytes != expected || block == 0 || block % unit != 0 {
            return Err(DecodeError::Head { expected, found: bytes, unit, block });
        }
        let largest = blocks.block.min(blocks.samples);
        self.samples.resize(largest.max(EIGHT), 0);
        self.planes.resize(largest * element, 0);
        for (first, count) in blocks.each() {
            let len = u32::from_be_bytes(rest.array()?) as usize;
            let compressed = rest.take(len)?;
            self.block(compressed, first, count, slot)?;
        }
        let left = blocks.left_over();
        let bytes = rest.take(left * element)?;
        let first = blocks.samples - left;
        if g.packing() == Packing::Uint8 {
            slot[first..first + left].copy_from_slice(bytes);
        } else {
            let pairs = bytes.as_chunks::<2>().0;
            self.samples.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = i16::from_le_bytes(*pair));
            self.place(first, left, slot);
        }
        let (samples, trailer, end) = (g.sample_bytes() as usize, g.trailer_offset() as usize, g.shot_bytes() as usize);
        let closing = rest.take(rest.chunk.len() - rest.at)?;
        if closing.len() != end - trailer {
            return Err(DecodeError::Trailer { expected: end - trailer, found: closing.len() });
        }
        slot[samples..trailer].fill(0);
        slot[trailer..end].copy_from_slice(closing);
        slot[end..].fill(0);
        Ok(())
    }

    fn block(&mut self, compressed: &[u8], first: usize, count: usize, slot: &mut [u8]) -> Result<(), DecodeError> {
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
            self.place(first, count, slot);
        }
        Ok(())
    }

    /// Puts the first samples of `self.samples` to their place in the slot, packed as on the wire.
    fn place(&self, first: usize, count: usize, slot: &mut [u8]) {
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

/// What is left of a chunk.
struct Rest<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.saturating_add(len);
        let bytes = self.chunk.get(self.at..end);
        let bytes = bytes.ok_or(DecodeError::Short { expected: end, found: self.chunk.len() })?;
        self.at = end;
        Ok(bytes)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes as were taken"))
    }
}
