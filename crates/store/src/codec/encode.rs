//! Compression of shots to chunks.

use super::{Blocks, Codec, GROUP_SAMPLES, HEADER_BYTES, element_bytes};
use lzzzz::lz4;
use shotline_compute::{bitshuffle, pack12};
use shotline_memory::Buffer;
use shotline_wire::shot::{Geometry, Packing};
use zstd_safe::zstd_sys::ZSTD_EndDirective::{ZSTD_e_end, ZSTD_e_flush};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

/// Allocation unit of the file, in bytes. A chunk that saves less than one unit is stored uncompressed.
const ALIGN: usize = 4096;

/// Compresses shots of one geometry, on one thread.
pub struct Encoder {
    geometry: Geometry,
    blocks: Blocks,
    packed: Vec<u8>,
    samples: Vec<i16>,
    planes: Vec<u8>,
    compressed: Vec<u8>,
    /// `None` for LZ4.
    zstd: Option<CCtx<'static>>,
}

impl Encoder {
    /// Creates an encoder for shots of a geometry.
    pub fn new(codec: Codec, geometry: Geometry) -> Self {
        let blocks = Blocks::new(&geometry, codec.block_samples());
        let bytes = codec.block_samples() * element_bytes(geometry.packing());
        let zstd = match codec {
            Codec::Lz4 => None,
            Codec::Zstd(level) => {
                let mut context = CCtx::create();
                // zstd clamps levels outside its range.
                context.set_parameter(CParameter::CompressionLevel(level)).expect("zstd takes any level");
                Some(context)
            }
        };
        // Upper bound for incompressible data, plus a few bytes for the flush after each plane.
        let bound = lz4::max_compressed_size(bytes).max(zstd_safe::compress_bound(bytes) + 16 * 16);
        Self {
            geometry,
            blocks,
            packed: vec![0; bytes],
            samples: vec![0; codec.block_samples()],
            planes: vec![0; bytes],
            compressed: vec![0; bound],
            zstd,
        }
    }

    /// Compresses the shot in a slot into a buffer of the same length, padded with zeros to the next multiple of 4096.
    ///
    /// Returns the length of the chunk, or `None` if the chunk would save less than 4096 bytes or would not be
    /// lossless.
    pub fn encode(&mut self, slot: &Buffer, out: &Buffer) -> Option<u32> {
        let g = self.geometry;
        if !Self::is_zero(slot, g.sample_bytes(), g.trailer_offset())
            || !Self::is_zero(slot, g.shot_bytes(), g.slot_bytes())
        {
            return None;
        }
        // Maximum length after each block, so that the trailer still fits.
        let trailer = (g.shot_bytes() - g.trailer_offset()) as usize;
        let max_len = (g.slot_bytes().min(out.len()) as usize).checked_sub(ALIGN + trailer + 2 * GROUP_SAMPLES)?;
        let element = element_bytes(g.packing());
        let mut at = HEADER_BYTES;
        out.write(0, &((self.blocks.samples * element) as u64).to_be_bytes());
        out.write(8, &((self.blocks.block * element) as u32).to_be_bytes());
        for (first, count) in self.blocks.iter() {
            let block = self.compress_block(slot, first, count)?;
            if at + 4 + block.len() > max_len {
                return None;
            }
            out.write(at as u32, &(block.len() as u32).to_be_bytes());
            out.write(at as u32 + 4, block);
            at += 4 + block.len();
        }
        // The remaining samples, the trailer, and zeros, so that no stale byte of the buffer reaches the file.
        let rest = self.blocks.remainder();
        self.load(slot, self.blocks.samples - rest, rest);
        let mut tail: Vec<u8> = match g.packing() {
            Packing::Uint8 => self.packed[..rest].to_vec(),
            _ => self.samples[..rest].iter().flat_map(|sample| sample.to_le_bytes()).collect(),
        };
        let trailer_start = tail.len();
        tail.resize(trailer_start + trailer, 0);
        slot.read(g.trailer_offset(), &mut tail[trailer_start..]);
        out.write(at as u32, &tail);
        at += tail.len();
        out.zero(at as u32, (at.next_multiple_of(ALIGN) - at) as u32);
        Some(at as u32)
    }

    /// Loads samples into `self.samples`, or 8-bit samples into `self.packed`.
    fn load(&mut self, slot: &Buffer, first: usize, count: usize) {
        let bits = self.geometry.packing().bits_per_sample() as usize;
        let packed = &mut self.packed[..count * bits / 8];
        slot.read((first * bits / 8) as u32, packed);
        let samples = &mut self.samples[..count];
        match self.geometry.packing() {
            Packing::Packed12 => pack12::unpack(packed, samples),
            // The byte order is kept; the dataset's type states it.
            Packing::Int16Le | Packing::Int16Be => {
                let pairs = packed.as_chunks::<2>().0;
                samples.iter_mut().zip(pairs).for_each(|(sample, pair)| *sample = i16::from_le_bytes(*pair));
            }
            Packing::Uint8 => {}
        }
    }

    /// Returns the compressed bit planes of a block.
    fn compress_block(&mut self, slot: &Buffer, first: usize, count: usize) -> Option<&[u8]> {
        self.load(slot, first, count);
        let packing = self.geometry.packing();
        let bits = packing.bits_per_sample() as usize;
        let planes = &mut self.planes[..count * element_bytes(packing)];
        match packing {
            Packing::Uint8 => bitshuffle::shuffle(&self.packed[..count], bits, planes),
            _ => bitshuffle::shuffle(&self.samples[..count], bits, planes),
        }
        let len = match &mut self.zstd {
            None => lz4::compress(planes, &mut self.compressed, lz4::ACC_LEVEL_DEFAULT).ok()?,
            Some(context) => compress_planes(context, planes, count / GROUP_SAMPLES, &mut self.compressed)?,
        };
        Some(&self.compressed[..len])
    }

    fn is_zero(slot: &Buffer, from: u32, to: u32) -> bool {
        let mut bytes = [0; ALIGN];
        (from..to).step_by(ALIGN).all(|at| {
            let bytes = &mut bytes[..(to - at).min(ALIGN as u32) as usize];
            slot.read(at, bytes);
            bytes.iter().fold(0, |all, byte| all | byte) == 0
        })
    }
}

/// Compresses the planes into one zstd frame with one block per plane.
///
/// The statistics of the planes differ and zstd has one entropy table per block. A plane of noise is stored raw, a
/// plane of zeros as a single byte.
fn compress_planes(context: &mut CCtx<'_>, planes: &[u8], plane_bytes: usize, to: &mut [u8]) -> Option<usize> {
    let mut out = OutBuffer::around(to);
    let mut compress = || {
        context.set_pledged_src_size(Some(planes.len() as u64)).ok()?;
        let last = planes.len() / plane_bytes - 1;
        for (index, plane) in planes.chunks_exact(plane_bytes).enumerate() {
            let directive = if index == last { ZSTD_e_end } else { ZSTD_e_flush };
            // The output buffer holds incompressible data, so a flush always completes.
            (context.compress_stream2(&mut out, &mut InBuffer::around(plane), directive) == Ok(0)).then_some(())?;
        }
        Some(())
    };
    let done = compress();
    if done.is_none() {
        let _ = context.reset(ResetDirective::SessionOnly);
    }
    done.map(|()| out.pos())
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoder({:?}, {:?})", self.geometry, self.blocks)
    }
}
