//! Prebuilt frames: all packets of a block, contiguous in memory, with headers built once.
//!
//! ```text
//! | gap | Ethernet, IP, UDP | header | payload      | gap | Ethernet, IP, UDP | header | payload …
//!        `- headroom -------'           ^ a whole cache line
//!        `- a frame -------------------------------'
//! ```
//!
//! There are two buffers of such frames: one is filled while the other is sent. The DMA engine writes samples directly
//! into the payloads. For each block the processor writes only the block-specific part of each header (16 bytes; 20 for
//! VITA 49) and the trailer after the samples; it reads and writes no sample. Sockets build their own headers: without
//! headroom there is no gap, and the frames of a block are one contiguous range. A framing with context packets has one
//! more frame after the others, which is sent first.

use super::block::{Block, DistinctBlock};
use super::config::{BlockStart, Config, ConfigError};
use super::dma::Piece;
use super::header::Headers;
use shotline_memory::{Region, RegionId};
use shotline_transport::IoError;
use shotline_transport::prebuilt::{FrameRun, PrebuiltIo};
use shotline_wire::block::Description;
use shotline_wire::crc;
use shotline_wire::framing::digitizer::HEADER_LEN;
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, Trailer};
use std::sync::Arc;

/// Number of prebuilt blocks.
pub const BUFFERS: usize = 2;
/// Maximum headroom of a backend before the UDP payload, in bytes.
const MAX_HEADROOM: usize = 64;
/// Space for a context packet, in bytes.
const CONTEXT_BYTES: usize = 256;
/// Alignment of payloads in bytes.
const CACHE_LINE: usize = 64;

/// The frames of [`BUFFERS`] blocks in one region.
#[derive(Debug)]
pub struct Frames {
    region: Arc<Region>,
    id: RegionId,
    geometry: Geometry,
    headers: Headers,
    header_len: usize,
    /// Fields common to all end-of-shot records.
    record: Record,
    /// Offset of each buffer's first frame.
    starts: [usize; BUFFERS],
    stride: usize,
    headroom: usize,
}

impl Config {
    /// Returns the memory that the prebuilt frames need with any backend, in bytes.
    pub fn frame_bytes(&self) -> Result<usize, ConfigError> {
        Ok(Frames::bytes(&self.check()?))
    }
}

impl Frames {
    /// Returns the memory that the frames need with any backend, in bytes.
    pub fn bytes(geometry: &Geometry) -> usize {
        BUFFERS * Self::buffer_bytes(geometry, MAX_HEADROOM)
    }

    fn buffer_bytes(geometry: &Geometry, headroom: usize) -> usize {
        // One extra cache line aligns the buffer's first payload.
        // VITA 49 also needs space for the context packet.
        let context = if geometry.trailer() == Trailer::None { headroom + CONTEXT_BYTES } else { 0 };
        (geometry.packets() as usize * Self::stride(geometry, headroom, HEADER_LEN) + context + CACHE_LINE)
            .next_multiple_of(CACHE_LINE)
    }

    /// Returns the distance between consecutive frames in bytes.
    fn stride(geometry: &Geometry, headroom: usize, header: usize) -> usize {
        let frame = headroom + header + geometry.packetization().rest as usize;
        if headroom == 0 { frame } else { frame.next_multiple_of(CACHE_LINE) }
    }

    /// Builds all frames in a region starting at offset `base`, which must be a multiple of 64 and be followed by
    /// [`Self::bytes`] bytes.
    pub fn build(
        (region, id, base): (&Arc<Region>, RegionId, usize),
        geometry: &Geometry,
        config: &Config,
        locked: bool,
        io: &mut impl PrebuiltIo,
    ) -> Result<Self, IoError> {
        let headroom = io.headroom();
        if headroom > MAX_HEADROOM {
            return Err(IoError::Config(format!("{headroom} bytes before a payload are more than {MAX_HEADROOM}")));
        }
        let headers = Headers::new(config, geometry, locked);
        let header_len = headers.len();
        let lead = (headroom + header_len).next_multiple_of(CACHE_LINE) - headroom - header_len;
        let buffer = Self::buffer_bytes(geometry, headroom);
        let record = Record {
            clock_locked: locked,
            triggered: matches!(config.block_start, BlockStart::Trigger(_)),
            stream: config.stream,
            ..Record::of(geometry)
        };
        let frames = Self {
            region: Arc::clone(region),
            id,
            geometry: *geometry,
            headers,
            header_len,
            record,
            starts: std::array::from_fn(|index| base + index * buffer + lead),
            stride: Self::stride(geometry, headroom, header_len),
            headroom,
        };
        for buffer in 0..BUFFERS {
            for packet in 0..geometry.packets() {
                region.write(frames.header_offset(buffer, packet), &frames.headers.initial(geometry, packet));
                io.prebuild(config.to, frames.run(buffer, packet, 1).frame(0))?;
            }
            if let Some(context) = frames.context(buffer) {
                io.prebuild(config.to, context.frame(0))?;
            }
        }
        Ok(frames)
    }

    /// Returns the number of packets per block.
    pub fn packets(&self) -> u32 {
        self.geometry.packets()
    }

    /// Returns the number of packets as long as the first: all, or all but the last.
    pub fn full_packets(&self) -> u32 {
        let last = self.packets() - 1;
        last + u32::from(self.geometry.packet_bytes(last) == self.geometry.packet_bytes(0))
    }

    /// Returns the length of a frame in bytes.
    pub fn frame_bytes(&self, packet: u32) -> u32 {
        (self.headroom + self.header_len) as u32 + self.geometry.packet_bytes(packet)
    }

    /// Returns the offset of a packet's header.
    pub fn header_offset(&self, buffer: usize, packet: u32) -> usize {
        self.starts[buffer] + packet as usize * self.stride + self.headroom
    }

    /// Returns the offset of a packet's payload.
    pub fn payload_offset(&self, buffer: usize, packet: u32) -> usize {
        self.header_offset(buffer, packet) + self.header_len
    }

    /// Returns `count` consecutive frames of equal length for sending.
    pub fn run(&self, buffer: usize, first: u32, count: u32) -> FrameRun {
        FrameRun {
            region: self.id,
            offset: (self.header_offset(buffer, first) - self.headroom) as u64,
            stride: self.stride as u32,
            len: self.frame_bytes(first),
            count,
        }
    }

    /// Returns the context frame, which is sent before the others, if the framing has one.
    pub fn context(&self, buffer: usize) -> Option<FrameRun> {
        let len = (self.headroom + self.headers.context_len()) as u32;
        let offset = (self.header_offset(buffer, self.packets()) - self.headroom) as u64;
        (self.headers.context_len() > 0).then_some(FrameRun { region: self.id, offset, stride: len, len, count: 1 })
    }

    /// Returns the payload ranges for samples, in order: the targets of the DMA engine.
    pub fn sample_pieces(&self, buffer: usize) -> impl Iterator<Item = Piece> {
        let samples = self.geometry.trailer_offset();
        (0..self.packets()).map(move |packet| {
            let (offset, bytes) = (self.geometry.packet_offset(packet), self.geometry.packet_bytes(packet));
            let len = bytes.min(samples.saturating_sub(offset));
            Piece { offset: self.payload_offset(buffer, packet) as u64, len }
        })
    }

    /// Writes the block's number and timestamp into some frames' headers.
    pub fn stamp(&self, buffer: usize, packets: std::ops::Range<u32>, block: &Block) {
        for packet in packets {
            let (at, bytes) = self.headers.stamp(&self.geometry, packet, block);
            self.region.write(self.header_offset(buffer, packet) + at, &bytes);
        }
    }

    /// Writes the description and the end-of-shot record after the samples; the record's CRC continues the precomputed
    /// CRC of the samples. For a framing without a trailer, writes the context packet instead.
    pub fn write_trailer(&self, buffer: usize, block: &Block, distinct: &DistinctBlock, clock_drift_ppb: f32) {
        if self.geometry.trailer() == Trailer::None {
            let context = self.headers.context(block);
            return self.region.write(self.header_offset(buffer, self.packets()), &context);
        }
        let description = Description {
            clock_offset_ns: block.clock_offset_ns,
            clock_drift_ppb,
            overrun: block.overrun,
            ..distinct.description.clone()
        };
        let description = description.emit();
        let record = Record { shot: block.number, tai_ns: block.tai_ns, ..self.record };
        let record = record.finish(crc::register(distinct.register, &description));
        self.write(buffer, self.geometry.trailer_offset(), &description);
        self.write(buffer, self.geometry.shot_bytes() - record.len() as u32, &record);
    }

    /// Writes bytes at an offset of the block, which may span frames.
    fn write(&self, buffer: usize, mut offset: u32, mut bytes: &[u8]) {
        let payload = self.geometry.packetization().rest;
        while !bytes.is_empty() {
            let (packet, within) = (offset / payload, offset % payload);
            let (now, later) = bytes.split_at(bytes.len().min((payload - within) as usize));
            self.region.write(self.payload_offset(buffer, packet) + within as usize, now);
            offset += now.len() as u32;
            bytes = later;
        }
    }
}
