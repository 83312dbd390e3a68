//! Prebuilt frames: all packets of a block, laid one after another, their headers made once.
//!
//! ```text
//! | gap | Ethernet, IP, UDP | header | payload      | gap | Ethernet, IP, UDP | header | payload …
//!        `- headroom -------'           ^ a whole cache line
//!        `- a frame -------------------------------'
//! ```
//!
//! There are two such blocks: one is filled while the other is sent. The DMA engine writes samples straight into the
//! payloads. From block to block the processor writes what of each header is the block's (16 bytes, 20 of VITA 49) and
//! what stands behind the samples; it reads and writes no sample. Sockets make their own headers: without headroom there
//! is no gap either, and the frames of a block are one piece of memory. A framing that has packets of context has one
//! more frame behind the others, which is sent before them.

use super::block::{Block, Distinct};
use super::config::{Begin, Config, ConfigError};
use super::dma::Piece;
use super::header::Headers;
use shotline_memory::{Region, RegionId};
use shotline_transport::IoError;
use shotline_transport::prebuilt::{PrebuiltIo, Run};
use shotline_wire::block::Description;
use shotline_wire::crc;
use shotline_wire::framing::digitizer::HEADER_LEN;
use shotline_wire::record::Record;
use shotline_wire::shot::{Geometry, Trailer};
use std::sync::Arc;

/// Blocks that are prebuilt.
pub const BUFFERS: usize = 2;
/// Most bytes that a backend wants before the UDP payload.
const MAX_HEADROOM: usize = 64;
/// Room for a packet of context.
const CONTEXT: usize = 256;
/// Payloads begin at multiples of this.
const LINE: usize = 64;

/// The frames of [`BUFFERS`] blocks in one region.
#[derive(Debug)]
pub struct Frames {
    region: Arc<Region>,
    id: RegionId,
    geometry: Geometry,
    headers: Headers,
    header_len: usize,
    /// What all records say.
    record: Record,
    /// Where the frame of the first packet of each buffer begins.
    starts: [usize; BUFFERS],
    stride: usize,
    headroom: usize,
}

impl Config {
    /// Bytes of memory that the prebuilt frames take, whatever sends them.
    pub fn frame_bytes(&self) -> Result<usize, ConfigError> {
        Ok(Frames::bytes(&self.check()?))
    }
}

impl Frames {
    /// Bytes of memory that the frames of such blocks need, whatever the backend.
    pub fn bytes(geometry: &Geometry) -> usize {
        BUFFERS * Self::buffer_bytes(geometry, MAX_HEADROOM)
    }

    fn buffer_bytes(geometry: &Geometry, headroom: usize) -> usize {
        // A line more: a buffer begins where its first payload is at a line's beginning.
        // And the packet of context, where there is one.
        let context = if geometry.trailer() == Trailer::None { headroom + CONTEXT } else { 0 };
        (geometry.packets() as usize * Self::stride(geometry, headroom, HEADER_LEN) + context + LINE)
            .next_multiple_of(LINE)
    }

    /// Bytes from one frame to the next.
    fn stride(geometry: &Geometry, headroom: usize, header: usize) -> usize {
        let frame = headroom + header + geometry.cut().rest as usize;
        if headroom == 0 { frame } else { frame.next_multiple_of(LINE) }
    }

    /// Builds all frames in a region, from byte `base` on, which must be a multiple of 64. There must be
    /// [`Self::bytes`] from there.
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
        let lead = (headroom + header_len).next_multiple_of(LINE) - headroom - header_len;
        let buffer = Self::buffer_bytes(geometry, headroom);
        let record = Record {
            clock_locked: locked,
            triggered: matches!(config.begin, Begin::Trigger(_)),
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
                region.write(frames.header_at(buffer, packet), &frames.headers.first(geometry, packet));
                io.prebuild(config.to, frames.run(buffer, packet, 1).frame(0))?;
            }
            if let Some(context) = frames.context(buffer) {
                io.prebuild(config.to, context.frame(0))?;
            }
        }
        Ok(frames)
    }

    /// Packets of a block.
    pub fn packets(&self) -> u32 {
        self.geometry.packets()
    }

    /// Packets that are as long as the first: all, or all but the last.
    pub fn full_packets(&self) -> u32 {
        let last = self.packets() - 1;
        last + u32::from(self.geometry.packet_bytes(last) == self.geometry.packet_bytes(0))
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self, packet: u32) -> u32 {
        (self.headroom + self.header_len) as u32 + self.geometry.packet_bytes(packet)
    }

    /// Offset of a packet's header.
    pub fn header_at(&self, buffer: usize, packet: u32) -> usize {
        self.starts[buffer] + packet as usize * self.stride + self.headroom
    }

    /// Offset of a packet's payload.
    pub fn payload_at(&self, buffer: usize, packet: u32) -> usize {
        self.header_at(buffer, packet) + self.header_len
    }

    /// Equal frames, to be sent.
    pub fn run(&self, buffer: usize, first: u32, count: u32) -> Run {
        Run {
            region: self.id,
            offset: (self.header_at(buffer, first) - self.headroom) as u64,
            stride: self.stride as u32,
            len: self.frame_bytes(first),
            count,
        }
    }

    /// The frame that goes before the others, if the framing has one.
    pub fn context(&self, buffer: usize) -> Option<Run> {
        let len = (self.headroom + self.headers.context_len()) as u32;
        let offset = (self.header_at(buffer, self.packets()) - self.headroom) as u64;
        (self.headers.context_len() > 0).then_some(Run { region: self.id, offset, stride: len, len, count: 1 })
    }

    /// Where samples belong, in order: the targets of the DMA engine.
    pub fn sample_pieces(&self, buffer: usize) -> impl Iterator<Item = Piece> {
        let samples = self.geometry.trailer_offset();
        (0..self.packets()).map(move |packet| {
            let (offset, bytes) = (self.geometry.packet_offset(packet), self.geometry.packet_bytes(packet));
            let len = bytes.min(samples.saturating_sub(offset));
            Piece { offset: self.payload_at(buffer, packet) as u64, len }
        })
    }

    /// Gives some frames their block's number and stamp.
    pub fn stamp(&self, buffer: usize, packets: std::ops::Range<u32>, block: &Block) {
        for packet in packets {
            let (at, bytes) = self.headers.stamp(&self.geometry, packet, block);
            self.region.write(self.header_at(buffer, packet) + at, &bytes);
        }
    }

    /// Writes what stands behind the samples: the description and the end-of-shot record, whose CRC follows from the one
    /// that is known of the samples. A framing without them has its context instead.
    pub fn close(&self, buffer: usize, block: &Block, distinct: &Distinct, clock_drift_ppb: f32) {
        if self.geometry.trailer() == Trailer::None {
            let context = self.headers.context(block);
            return self.region.write(self.header_at(buffer, self.packets()), &context);
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

    /// Writes bytes of a block wherever they are in its frames.
    fn write(&self, buffer: usize, mut offset: u32, mut bytes: &[u8]) {
        let payload = self.geometry.cut().rest;
        while !bytes.is_empty() {
            let (packet, within) = (offset / payload, offset % payload);
            let (now, later) = bytes.split_at(bytes.len().min((payload - within) as usize));
            self.region.write(self.payload_at(buffer, packet) + within as usize, now);
            offset += now.len() as u32;
            bytes = later;
        }
    }
}
