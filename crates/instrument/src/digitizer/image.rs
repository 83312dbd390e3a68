//! Frames that are at the same time an HDF5 file: "DMA = HDF5 = frame" in one step, the wish of the paper's figure 7.
//!
//! ```text
//! | names, types, headers (libhdf5) | chunk indexes | frame: headers, payload | frame: headers, payload | …
//!                                       │  │  └───────────────────▲                           ▲
//!                                       │  └──────────────────────┼───────────────────────────┘
//!                                       └─ the header's own fields, the description
//! ```
//!
//! The file is mapped, and the prebuilt frames lie in it. Each payload is a chunk of the dataset `iq`, whose address in
//! the file is where the payload stands between two headers. So when the DMA engine has written a frame, it has written
//! the file, and what is sent is what a reader of the file sees. The header of each block's first packet is a row of
//! `header`, the description a row of `description`: their bytes are those on the wire.
//!
//! A chunk index is a version-1 B-tree ("HDF5 File Format Specification", III.A.1) of one node, which its rank is chosen
//! for.

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

/// Indexes and frames begin at multiples of this.
const PAGE: usize = 4096;
/// Bytes before a node's first key.
const NODE_HEAD: usize = 24;
/// Undefined addresses in HDF5.
const UNDEFINED: [u8; 8] = [0xFF; 8];

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is something there.
    #[error("{} exists: remove it, or name another file", .0.display())]
    Exists(PathBuf),
    /// HDF5 could not write what it should.
    #[error("cannot make {}: {source}", path.display())]
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
    /// Payloads that cannot be chunks.
    #[error(
        "payloads of {0} bytes cannot be chunks of samples with the description in one piece: make --payload a multiple of 256"
    )]
    Payload(u32),
}

/// A file with room for frames.
#[derive(Debug)]
pub(super) struct Image {
    region: Arc<Region>,
    frames_at: usize,
    indexes: [Index; 3],
}

/// The chunk index of a dataset.
#[derive(Clone, Copy, Debug)]
struct Index {
    /// Where the node stands.
    at: usize,
    /// Dimensions of the dataset.
    rank: usize,
}

/// One chunk: its first element in each dimension, its place in the file, its bytes.
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

    /// The node with these chunks, ascending.
    fn node(self, k: usize, chunks: impl ExactSizeIterator<Item = Chunk>) -> Vec<u8> {
        let mut node = Vec::with_capacity(self.node_bytes(k));
        node.extend(b"TREE\x01\x00");
        node.extend((chunks.len() as u16).to_le_bytes());
        node.extend([UNDEFINED, UNDEFINED].as_flattened());
        let key = |node: &mut Vec<u8>, bytes: u32, first: &[u64]| {
            node.extend(bytes.to_le_bytes());
            node.extend([0; 4]); // no filter is skipped
            first.iter().for_each(|first| node.extend(first.to_le_bytes()));
            node.extend([0; 8]);
        };
        for chunk in chunks {
            key(&mut node, chunk.bytes, &chunk.first[..self.rank]);
            node.extend((chunk.address as u64).to_le_bytes());
        }
        // The key behind the last chunk bounds it from above.
        key(&mut node, 0, &[BUFFERS as u64, 0, 0][..self.rank]);
        node.resize(self.node_bytes(k), 0);
        node
    }
}

impl Image {
    /// Makes the file: everything but the indexes, which depend on where in a frame its payload begins.
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
        let mut indexes = [Index { at: 0, rank: 0 }; 3];
        for (index, (layout, rank)) in indexes.iter_mut().zip(layouts(geometry, config)) {
            *index = Index { at, rank };
            at += index.node_bytes(k).next_multiple_of(PAGE);
            let place = find(&head, &layout).and_then(|found| head.get_mut(found + 3..found + 11));
            // Only if libhdf5 wrote other messages than those of its earliest version.
            let place = place.ok_or_else(|| failed(std::io::Error::other("HDF5 wrote an unknown layout message")))?;
            place.copy_from_slice(&(index.at as u64).to_le_bytes());
        }
        let (frames_at, len) = (at, at + Frames::bytes(geometry));
        // The end of the file, in a superblock of version 0, or of version 1 with its 4 bytes more.
        let end = if head.get(8) == Some(&0) { 40 } else { 44 };
        if let Some(field) = head.get_mut(end..end + 8) {
            field.copy_from_slice(&(len as u64).to_le_bytes());
        }
        std::fs::write(path, &head).map_err(failed)?;
        let region = Region::file(path, len, true)?;
        // Every page of it is there before the first block.
        region.zero(head.len(), len - head.len());
        Ok(Self { region, frames_at, indexes })
    }

    /// The mapped file, and where frames belong in it.
    pub(super) fn place(&self) -> (Arc<Region>, usize) {
        (Arc::clone(&self.region), self.frames_at)
    }

    /// Writes the indexes: from now on the file holds what the frames hold.
    pub(super) fn index(&self, frames: &Frames, geometry: &Geometry, config: &Config) {
        let k = fan_out_half(geometry, config);
        let chunk_samples = u64::from(chunk_samples(geometry, config));
        let per_block = chunks_per_block(geometry, config);
        let sample_chunks = (0..BUFFERS as u32 * per_block).map(|chunk| {
            let (buffer, packet) = (chunk / per_block, chunk % per_block);
            Chunk {
                first: [buffer.into(), u64::from(packet) * chunk_samples, 0],
                address: frames.payload_at(buffer as usize, packet),
                bytes: chunk_samples as u32 * SAMPLE_BYTES,
            }
        });
        let (last, within) = (geometry.trailer_offset() / config.payload, geometry.trailer_offset() % config.payload);
        let row = |buffer: usize, address, bytes| Chunk { first: [buffer as u64, 0, 0], address, bytes };
        let headers = (0..BUFFERS).map(|buffer| row(buffer, frames.header_at(buffer, 0), HEADER_LEN as u32));
        let described = (0..BUFFERS)
            .map(|buffer| row(buffer, frames.payload_at(buffer, last) + within as usize, block::LEN as u32));
        let [samples, header, description] = self.indexes;
        self.region.write(samples.at, &samples.node(k, sample_chunks));
        self.region.write(header.at, &header.node(k, headers));
        self.region.write(description.at, &description.node(k, described));
    }
}

/// Samples of a chunk: those of a payload.
fn chunk_samples(geometry: &Geometry, config: &Config) -> u32 {
    (config.payload / SAMPLE_BYTES).min(geometry.samples())
}

/// Packets of a block that have samples.
fn chunks_per_block(geometry: &Geometry, config: &Config) -> u32 {
    geometry.samples().div_ceil(chunk_samples(geometry, config))
}

/// Half of the entries of a node: all chunks are in one. At most 2 * 16384 of them, and HDF5 allows 2 * 32767.
fn fan_out_half(geometry: &Geometry, config: &Config) -> usize {
    (BUFFERS as u32 * chunks_per_block(geometry, config)).div_ceil(2).max(1) as usize
}

/// The layout messages of the three datasets, by which they are found, and their ranks: version 3, chunked, one dimension
/// more than the dataset's, no index yet, the chunk's extents and the element's bytes.
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

/// Where bytes stand, if they stand in one place only.
fn find(within: &[u8], bytes: &[u8]) -> Option<usize> {
    let mut places = within.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let (at, _) = places.next()?;
    places.next().is_none().then_some(at)
}

/// Names and types, written by libhdf5 in its earliest format, whose fields have no checksums.
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
    let words = |words: &str| VarLenUnicode::from_str(words).map_err(|error| hdf5::Error::from(error.to_string()));
    iq.new_attr::<VarLenUnicode>().create("units")?.write_scalar(&words("counts")?)?;
    let axes = "buffer of frames, sample, I and Q; each chunk is a packet's payload where it is sent from";
    iq.new_attr::<VarLenUnicode>().create("axes")?.write_scalar(&words(axes)?)?;
    for (name, datatype) in [("header", header_type()?), ("description", description_type()?)] {
        file.new_dataset_builder().empty_as(datatype).shape([BUFFERS]).chunk([1]).create(name)?;
    }
    Ok(())
}

/// The fields of `wire::framing::digitizer`, big-endian.
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

/// The fields of `wire::block`, little-endian.
fn description_type() -> hdf5::Result<Datatype> {
    use block::at;
    let peak = |index: usize| at::PEAKS + index * block::PEAK_BYTES;
    let fields = [
        (c"peaks", at::COUNT, Field::U8),
        (c"centre_hz", at::CENTRE, Field::F64),
        (c"volts_per_count", at::SCALE, Field::F64),
        (c"clock_offset_ns", at::OFFSET, Field::I64),
        (c"clock_drift_ppb", at::DRIFT, Field::F32),
        (c"snr_db", at::SNR, Field::F32),
        (c"overrun", at::OVERRUN, Field::U64),
        (c"points", at::POINTS, Field::U32),
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
    fn bytes_are_found_where_they_stand_once() {
        assert_eq!(find(b"abcabd", b"abd"), Some(3));
        assert_eq!((find(b"abcabd", b"ab"), find(b"abc", b"x")), (None, None));
    }

    #[test]
    fn a_file_that_exists_is_left_alone_and_a_description_in_two_pieces_is_refused() {
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
