//! Frames that form an HDF5 file in place: "DMA = HDF5 = frame" in one step, as proposed in figure 7 of Ryoshi et al.
//!
//! ```text
//! | names, types, headers (libhdf5) | chunk indexes | frame: headers, payload | frame: headers, payload | …
//!                                       │  │  └───────────────────▲                           ▲
//!                                       │  └──────────────────────┼───────────────────────────┘
//!                                       └─ header fields, description
//! ```
//!
//! The prebuilt frames lie in the mapped file. Each payload is a chunk of the dataset `iq`; the chunk's address is the
//! payload's offset between two headers. A frame written by the DMA engine is therefore already in the file, and
//! readers of the file see the bytes that are sent. The header of each block's first packet is a row of `header`, and
//! the description is a row of `description`, both in wire format.
//!
//! A chunk index is a version-1 B-tree ("HDF5 File Format Specification", III.A.1) with a fan-out large enough for a
//! single node.

use super::config::{Config, SAMPLE_BYTES};
use super::frames::{BUFFERS, Frames};
use super::sys::{Field, compound};
use hdf5::types::VarLenUnicode;
use hdf5::{Datatype, File};
use shotline_memory::{MemoryError, Region};
use shotline_wire::block;
use shotline_wire::framing::digitizer::HEADER_LEN;
use shotline_wire::shot::Geometry;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Alignment of indexes and frames in the file, in bytes.
const PAGE: usize = 4096;
/// Length of a node's header in bytes.
const NODE_HEAD: usize = 24;
/// HDF5's undefined address.
const UNDEFINED: [u8; 8] = [0xFF; 8];

/// Reason why an image could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The path exists.
    #[error("{} exists already: remove it, or choose another file", .0.display())]
    Exists(PathBuf),
    /// libhdf5 failed.
    #[error("cannot create {}: {source}", path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// HDF5's reason.
        source: hdf5::Error,
    },
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file could not be mapped.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A payload size that cannot be a chunk.
    #[error(
        "expected a payload that is a multiple of 256 bytes, so that each chunk holds whole samples and the description is not split, found {0}: change --payload"
    )]
    Payload(u32),
}

/// A mapped HDF5 file with space for frames.
#[derive(Debug)]
pub(super) struct Image {
    region: Arc<Region>,
    frames_offset: usize,
    indexes: [Index; 3],
}

/// The chunk index of a dataset.
#[derive(Clone, Copy, Debug)]
struct Index {
    /// Offset of the node in the file.
    offset: usize,
    /// Dimensions of the dataset.
    rank: usize,
}

/// A chunk: its first element in each dimension, its address in the file, and its size.
struct Chunk {
    first: [u64; 3],
    address: usize,
    bytes: u32,
}

impl Index {
    fn key_bytes(self) -> usize {
        8 + 8 * (self.rank + 1)
    }

    fn node_bytes(self, k: usize) -> usize {
        NODE_HEAD + 2 * k * (self.key_bytes() + 8) + self.key_bytes()
    }

    /// Returns the encoded node for these chunks, which must be in ascending order.
    fn node(self, k: usize, chunks: impl ExactSizeIterator<Item = Chunk>) -> Vec<u8> {
        let mut node = Vec::with_capacity(self.node_bytes(k));
        node.extend(b"TREE\x01\x00");
        node.extend((chunks.len() as u16).to_le_bytes());
        node.extend([UNDEFINED, UNDEFINED].as_flattened());
        let key = |node: &mut Vec<u8>, bytes: u32, first: &[u64]| {
            node.extend(bytes.to_le_bytes());
            node.extend([0; 4]); // filter mask: no filter is skipped
            first.iter().for_each(|first| node.extend(first.to_le_bytes()));
            node.extend([0; 8]);
        };
        for chunk in chunks {
            key(&mut node, chunk.bytes, &chunk.first[..self.rank]);
            node.extend((chunk.address as u64).to_le_bytes());
        }
        // The key after the last chunk is the upper bound.
        key(&mut node, 0, &[BUFFERS as u64, 0, 0][..self.rank]);
        node.resize(self.node_bytes(k), 0);
        node
    }
}

impl Image {
    /// Creates the file without the chunk indexes, which depend on the payload's offset in a frame.
    pub(super) fn create(path: &Path, geometry: &Geometry, config: &Config) -> Result<Self, ImageError> {
        let trailer = geometry.trailer_offset() % config.payload;
        if !config.payload.is_multiple_of(SAMPLE_BYTES) || trailer + block::LEN as u32 > config.payload {
            return Err(ImageError::Payload(config.payload));
        }
        let failed = |source| ImageError::File { path: path.into(), source };
        if path.symlink_metadata().is_ok() {
            return Err(ImageError::Exists(path.into()));
        }
        skeleton(path, geometry, config).map_err(|source| ImageError::Hdf5 { path: path.into(), source })?;
        let mut head = std::fs::read(path).map_err(failed)?;
        let k = fan_out_half(geometry, config);
        let mut at = head.len().next_multiple_of(PAGE);
        let mut indexes = [Index { offset: 0, rank: 0 }; 3];
        for (index, (layout, rank)) in indexes.iter_mut().zip(layouts(geometry, config)) {
            *index = Index { offset: at, rank };
            at += index.node_bytes(k).next_multiple_of(PAGE);
            let address = find(&head, &layout).and_then(|found| head.get_mut(found + 3..found + 11));
            // The message is missing only if libhdf5 did not write its earliest format.
            let address =
                address.ok_or_else(|| failed(std::io::Error::other("HDF5 wrote an unknown layout message")))?;
            address.copy_from_slice(&(index.offset as u64).to_le_bytes());
        }
        let (frames_offset, len) = (at, at + Frames::bytes(geometry));
        // Offset of the end-of-file address: superblock version 0, or version 1, which has 4 more bytes before it.
        let end = if head.get(8) == Some(&0) { 40 } else { 44 };
        if let Some(field) = head.get_mut(end..end + 8) {
            field.copy_from_slice(&(len as u64).to_le_bytes());
        }
        std::fs::write(path, &head).map_err(failed)?;
        let region = Region::file(path, len, true)?;
        // Allocate every page before the first block.
        region.zero(head.len(), len - head.len());
        Ok(Self { region, frames_offset, indexes })
    }

    /// Returns the mapped file and the offset of the frames in it.
    pub(super) fn frame_memory(&self) -> (Arc<Region>, usize) {
        (Arc::clone(&self.region), self.frames_offset)
    }

    /// Writes the chunk indexes, after which the file's datasets are the frames.
    pub(super) fn write_indexes(&self, frames: &Frames, geometry: &Geometry, config: &Config) {
        let k = fan_out_half(geometry, config);
        let chunk_samples = u64::from(chunk_samples(geometry, config));
        let per_block = chunks_per_block(geometry, config);
        let sample_chunks = (0..BUFFERS as u32 * per_block).map(|chunk| {
            let (buffer, packet) = (chunk / per_block, chunk % per_block);
            Chunk {
                first: [buffer.into(), u64::from(packet) * chunk_samples, 0],
                address: frames.payload_offset(buffer as usize, packet),
                bytes: chunk_samples as u32 * SAMPLE_BYTES,
            }
        });
        let (last, within) = (geometry.trailer_offset() / config.payload, geometry.trailer_offset() % config.payload);
        let row = |buffer: usize, address, bytes| Chunk { first: [buffer as u64, 0, 0], address, bytes };
        let headers = (0..BUFFERS).map(|buffer| row(buffer, frames.header_offset(buffer, 0), HEADER_LEN as u32));
        let described = (0..BUFFERS)
            .map(|buffer| row(buffer, frames.payload_offset(buffer, last) + within as usize, block::LEN as u32));
        let [samples, header, description] = self.indexes;
        self.region.write(samples.offset, &samples.node(k, sample_chunks));
        self.region.write(header.offset, &header.node(k, headers));
        self.region.write(description.offset, &description.node(k, described));
    }
}

/// Returns the number of samples per chunk, which is that of a payload.
fn chunk_samples(geometry: &Geometry, config: &Config) -> u32 {
    (config.payload / SAMPLE_BYTES).min(geometry.samples())
}

/// Returns the number of packets per block that carry samples.
fn chunks_per_block(geometry: &Geometry, config: &Config) -> u32 {
    geometry.samples().div_ceil(chunk_samples(geometry, config))
}

/// Returns half the number of entries per node such that all chunks fit one node: at most 16384, and HDF5 allows 32767.
fn fan_out_half(geometry: &Geometry, config: &Config) -> usize {
    (BUFFERS as u32 * chunks_per_block(geometry, config)).div_ceil(2).max(1) as usize
}

/// Returns the layout messages of the three datasets and their ranks, to locate the index addresses in the file. A
/// message is: version 3, chunked, the dataset's rank plus one, undefined index address, chunk extents, element size.
fn layouts(geometry: &Geometry, config: &Config) -> [(Vec<u8>, usize); 3] {
    let message = |extents: &[u32]| {
        let mut message = vec![3, 2, extents.len() as u8];
        message.extend(UNDEFINED);
        extents.iter().for_each(|extent| message.extend(extent.to_le_bytes()));
        (message, extents.len() - 1)
    };
    let samples = chunk_samples(geometry, config);
    [message(&[1, samples, 2, 2]), message(&[1, HEADER_LEN as u32]), message(&[1, block::LEN as u32])]
}

/// Returns the offset of `bytes` if they occur exactly once.
fn find(within: &[u8], bytes: &[u8]) -> Option<usize> {
    let mut matches = within.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let (at, _) = matches.next()?;
    matches.next().is_none().then_some(at)
}

/// Creates datasets and attributes with libhdf5 in its earliest format, whose metadata has no checksums.
fn skeleton(path: &Path, geometry: &Geometry, config: &Config) -> hdf5::Result<()> {
    let file = File::with_options()
        .with_fcpl(|p| p.istore_k(fan_out_half(geometry, config) as u32))
        .with_fapl(|p| p.libver_earliest())
        .create_excl(path)?;
    let (samples, chunk) = (geometry.samples() as usize, chunk_samples(geometry, config) as usize);
    let iq = file.new_dataset::<i16>().shape([BUFFERS, samples, 2]).chunk([1, chunk, 2]).create("iq")?;
    for (name, value) in [
        ("sample_rate_hz", config.sample_rate_hz),
        ("centre_hz", config.centre_hz),
        ("volts_per_count", config.volts_per_count),
    ] {
        iq.new_attr::<f64>().create(name)?.write_scalar(&value)?;
    }
    let text = |text: &str| VarLenUnicode::from_str(text).map_err(|error| hdf5::Error::from(error.to_string()));
    iq.new_attr::<VarLenUnicode>().create("units")?.write_scalar(&text("counts")?)?;
    let axes =
        "frame buffer, sample, I and Q; each chunk is the payload of a packet, at the address from which it is sent";
    iq.new_attr::<VarLenUnicode>().create("axes")?.write_scalar(&text(axes)?)?;
    for (name, datatype) in [("header", header_type()?), ("description", description_type()?)] {
        file.new_dataset_builder().empty_as(datatype).shape([BUFFERS]).chunk([1]).create(name)?;
    }
    Ok(())
}

/// Returns the type of a packet header (`wire::framing::digitizer`), big-endian.
fn header_type() -> hdf5::Result<Datatype> {
    let fields = [
        (c"version", 4, Field::U8),
        (c"flags", 5, Field::U8),
        (c"channels", 6, Field::U8),
        (c"bits", 7, Field::U8),
        (c"stream", 8, Field::U32),
        (c"block_bytes", 12, Field::U32),
        (c"block", 16, Field::U64),
        (c"tai_ns", 24, Field::U64),
        (c"offset", 32, Field::U32),
        (c"payload_bytes", 36, Field::U32),
        (c"sample_rate_hz", 40, Field::F64),
        (c"centre_hz", 48, Field::F64),
        (c"volts_per_count", 56, Field::F64),
    ];
    compound(HEADER_LEN, true, &fields)
}

/// Returns the type of a description (`wire::block`), little-endian.
fn description_type() -> hdf5::Result<Datatype> {
    use block::offset;
    let peak = |index: usize| offset::PEAKS + index * block::PEAK_BYTES;
    let fields = [
        (c"peaks", offset::COUNT, Field::U8),
        (c"centre_hz", offset::CENTRE, Field::F64),
        (c"volts_per_count", offset::VOLTS_PER_COUNT, Field::F64),
        (c"clock_offset_ns", offset::CLOCK_OFFSET, Field::I64),
        (c"clock_drift_ppb", offset::CLOCK_DRIFT, Field::F32),
        (c"snr_db", offset::SNR, Field::F32),
        (c"overrun", offset::OVERRUN, Field::U64),
        (c"points", offset::POINTS, Field::U32),
        (c"peak0_hz", peak(0), Field::F64),
        (c"peak0_dbfs", peak(0) + 8, Field::F32),
        (c"peak1_hz", peak(1), Field::F64),
        (c"peak1_dbfs", peak(1) + 8, Field::F32),
        (c"peak2_hz", peak(2), Field::F64),
        (c"peak2_dbfs", peak(2) + 8, Field::F32),
        (c"peak3_hz", peak(3), Field::F64),
        (c"peak3_dbfs", peak(3) + 8, Field::F32),
        (c"peak4_hz", peak(4), Field::F64),
        (c"peak4_dbfs", peak(4) + 8, Field::F32),
    ];
    compound(block::LEN, false, &fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_returns_unique_matches_only() {
        assert_eq!(find(b"abcabd", b"abd"), Some(3));
        assert_eq!((find(b"abcabd", b"ab"), find(b"abc", b"x")), (None, None));
    }

    #[test]
    fn existing_files_and_split_descriptions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image.h5");
        let config = Config { block_bytes: 64_000, ..Config::new(([127, 0, 0, 1], 1).into()) };
        let create = |config: &Config| Image::create(&path, &config.check().unwrap(), config).unwrap_err().to_string();
        // 64000 is 90 * 704 + 640: the description would begin in one packet and end in the next.
        assert!(create(&Config { payload: 704, ..config.clone() }).contains("multiple of 256"));
        std::fs::write(&path, "precious").unwrap();
        assert!(create(&config).contains("exists"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
