//! Reads pcap and pcapng files frame by frame, in fixed memory.

use crate::confined_path::open_regular;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use rustix::fs::OFlags;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Initial size of the read buffer, in bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// Nanoseconds per second.
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Maximum size of a block, in bytes. A larger one means that the file is damaged.
const MAX_BLOCK_BYTES: usize = 64 << 20;

/// Error of opening a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The file is not a capture, or its header is damaged.
    #[error("{} begins like a capture, but its header is damaged: {found}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
}

/// Returns `true` if the first bytes of a file are the magic number of a capture.
pub fn is_capture(first: &[u8]) -> bool {
    const MAGICS: [[u8; 4]; 6] = [
        [0xD4, 0xC3, 0xB2, 0xA1],
        [0xA1, 0xB2, 0xC3, 0xD4],
        [0x4D, 0x3C, 0xB2, 0xA1],
        [0xA1, 0xB2, 0x3C, 0x4D],
        [0x34, 0xCD, 0xB2, 0xA1],
        [0x0A, 0x0D, 0x0D, 0x0A],
    ];
    first.first_chunk().is_some_and(|magic| MAGICS.contains(magic))
}

/// Supported link types of <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet (1).
    Ethernet,
    /// Raw IP without a link header (101, 228, 229).
    RawIp,
    /// Linux cooked capture v1 (113), written by older `tcpdump -i any`.
    LinuxCooked,
    /// Linux cooked capture v2 (276), written by newer `tcpdump -i any`.
    LinuxCooked2,
    /// Any other link type, by its number.
    Other(i32),
}

impl From<i32> for LinkType {
    fn from(number: i32) -> Self {
        match number {
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            other => Self::Other(other),
        }
    }
}

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Link type, which determines the header.
    pub link: LinkType,
    /// Captured bytes, possibly truncated.
    pub data: &'a [u8],
    /// Length on the wire, in bytes.
    pub wire_bytes: u32,
    /// Nanoseconds since 1970, UTC; 0 if unknown.
    pub time_ns: u64,
}

/// Calls `take` with every frame of a capture. If the capture cannot be read to its end, returns the reason; the frames
/// before the damage are valid.
///
/// # Errors
/// [`CaptureError`] if the file cannot be opened, or its beginning is not the header of a capture.
pub fn for_each_frame(path: &Path, take: impl FnMut(Frame<'_>)) -> Result<Option<String>, CaptureError> {
    let file =
        open_regular(path, OFlags::RDONLY).map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
    read_frames(file, take).map_err(|found| CaptureError::Header { path: path.to_owned(), found })
}

/// Same as [`for_each_frame`], from any reader.
///
/// # Errors
/// If the beginning is not the header of a capture, with the reason.
pub fn read_frames(from: impl Read + Send, mut take: impl FnMut(Frame<'_>)) -> Result<Option<String>, String> {
    let mut reader = create_reader(BUFFER_BYTES, from).map_err(|error| error.to_string())?;
    let (mut buffer_bytes, mut interfaces) = (BUFFER_BYTES, Interfaces::default());
    loop {
        let at = reader.consumed();
        let ended = |why: &str| Ok(Some(format!("the file {why} after {at} bytes")));
        match reader.next() {
            Ok((offset, block)) => {
                interfaces.read(block, &mut take);
                reader.consume(offset);
            }
            Err(PcapError::Eof) => return Ok(None),
            Err(PcapError::Incomplete(_)) => match reader.refill() {
                Ok(()) => {}
                Err(_) => return ended("cannot be read further"),
            },
            Err(PcapError::BufferTooSmall) => {
                buffer_bytes *= 2;
                if buffer_bytes > MAX_BLOCK_BYTES || !reader.grow(buffer_bytes) || reader.refill().is_err() {
                    return ended("claims a block above the maximum size");
                }
            }
            Err(PcapError::UnexpectedEof) => return ended("ends within a block"),
            Err(_) => return ended("is damaged"),
        }
    }
}

/// Interfaces described by the blocks read so far.
#[derive(Default)]
struct Interfaces {
    known: Vec<Interface>,
    /// Timestamps of the pcap file are in nanoseconds, not microseconds.
    nanoseconds: bool,
}

/// Interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link: LinkType,
    /// Timestamp ticks per second.
    resolution: u64,
    /// Seconds added to timestamps.
    offset_s: i64,
    /// Snapshot length in bytes; 0 for no limit.
    snap: u32,
}

impl Interface {
    /// Converts a timestamp to nanoseconds since 1970; 0 if it does not fit 64 bits.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let fraction = i128::from(ticks) * i128::from(NS_PER_SECOND) / i128::from(self.resolution);
        u64::try_from(fraction + i128::from(self.offset_s) * i128::from(NS_PER_SECOND)).unwrap_or(0)
    }
}

impl Interfaces {
    fn read(&mut self, block: PcapBlockOwned<'_>, take: &mut impl FnMut(Frame<'_>)) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.nanoseconds = header.is_nanosecond_precision();
                // The upper bits describe the frame check sequence.
                self.add(header.network.0 & 0xFFFF, 1, 0, header.snaplen);
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.known.first() else { return };
                let fraction = u64::from(packet.ts_usec) * if self.nanoseconds { 1 } else { 1000 };
                take(Frame {
                    link: interface.link,
                    data: packet.data,
                    wire_bytes: packet.origlen,
                    time_ns: u64::from(packet.ts_sec) * NS_PER_SECOND + fraction,
                });
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.known.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let resolution = interface.ts_resolution().unwrap_or(1_000_000).max(1);
                self.add(interface.linktype.0, resolution, interface.ts_offset(), interface.snaplen);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let Some(interface) = self.known.get(packet.if_id as usize) else { return };
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                // The data includes the block's padding.
                let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                take(Frame {
                    link: interface.link,
                    data,
                    wire_bytes: packet.origlen,
                    time_ns: interface.nanoseconds(ticks),
                });
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let Some(interface) = self.known.first() else { return };
                let snap = if interface.snap == 0 { u32::MAX } else { interface.snap };
                let captured = packet.origlen.min(snap) as usize;
                let data = packet.data.get(..captured).unwrap_or(packet.data);
                take(Frame { link: interface.link, data, wire_bytes: packet.origlen, time_ns: 0 });
            }
            PcapBlockOwned::NG(_) => {}
        }
    }

    fn add(&mut self, link: i32, resolution: u64, offset_s: i64, snap: u32) {
        self.known.push(Interface { link: link.into(), resolution, offset_s, snap });
    }
}
