//! Reads pcap and pcapng files frame by frame, in fixed memory.

use crate::beneath::open_regular;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use rustix::fs::OFlags;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The reader's window on the file.
const WINDOW: usize = 1 << 20;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The largest block that is believed; beyond it the file is taken for damaged.
const MOST_BLOCK: usize = 64 << 20;

/// Why a capture could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot read {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// It is no capture, or its first bytes are damaged.
    #[error("{} begins like a capture, but its header is damaged: {found}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
}

/// Whether a file begins like a capture.
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

/// Link types of <https://www.tcpdump.org/linktypes.html> whose frames are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// 1.
    Ethernet,
    /// 101, 228, 229: no link header.
    RawIp,
    /// 113: `tcpdump -i any`, older.
    LinuxCooked,
    /// 276: `tcpdump -i any`, newer.
    LinuxCooked2,
    /// Anything else, by its number.
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

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// How it begins.
    pub link: LinkType,
    /// Its bytes, as far as the capture kept them.
    pub data: &'a [u8],
    /// Bytes that it had on the wire.
    pub wire_bytes: u32,
    /// Nanoseconds since 1970, UTC; 0 if the capture does not say.
    pub time_ns: u64,
}

/// Hands every frame of a capture to `take`. Returns why it could not be read to its end, if so: what stands
/// before that place counts.
pub fn for_each_frame(path: &Path, take: impl FnMut(Frame<'_>)) -> Result<Option<String>, CaptureError> {
    let file =
        open_regular(path, OFlags::RDONLY).map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
    read_frames(file, take).map_err(|found| CaptureError::Header { path: path.to_owned(), found })
}

/// The same from anything that gives bytes. The error says what is wrong with the first of them.
pub fn read_frames(from: impl Read + Send, mut take: impl FnMut(Frame<'_>)) -> Result<Option<String>, String> {
    let mut reader = create_reader(WINDOW, from).map_err(|error| error.to_string())?;
    let (mut window, mut interfaces) = (WINDOW, Interfaces::default());
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
                Err(_) => return ended("cannot be read on"),
            },
            Err(PcapError::BufferTooSmall) => {
                window *= 2;
                if window > MOST_BLOCK || !reader.grow(window) || reader.refill().is_err() {
                    return ended("claims a block that is too large to be one");
                }
            }
            Err(PcapError::UnexpectedEof) => return ended("ends within a block"),
            Err(_) => return ended("is damaged"),
        }
    }
}

/// What a file has said of its interfaces so far.
#[derive(Default)]
struct Interfaces {
    known: Vec<Interface>,
    nanoseconds: bool,
}

#[derive(Clone, Copy)]
struct Interface {
    link: LinkType,
    /// Time stamps in a second.
    resolution: u64,
    offset_s: i64,
    snap: u32,
}

impl Interface {
    /// A time stamp as nanoseconds since 1970; 0 for what lies outside 64 bits.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let fraction = i128::from(ticks) * i128::from(SECOND) / i128::from(self.resolution);
        u64::try_from(fraction + i128::from(self.offset_s) * i128::from(SECOND)).unwrap_or(0)
    }
}

impl Interfaces {
    fn read(&mut self, block: PcapBlockOwned<'_>, take: &mut impl FnMut(Frame<'_>)) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.nanoseconds = header.is_nanosecond_precision();
                // The upper bits tell of a frame check sequence.
                self.add(header.network.0 & 0xFFFF, 1, 0, header.snaplen);
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.known.first() else { return };
                let fraction = u64::from(packet.ts_usec) * if self.nanoseconds { 1 } else { 1000 };
                take(Frame {
                    link: interface.link,
                    data: packet.data,
                    wire_bytes: packet.origlen,
                    time_ns: u64::from(packet.ts_sec) * SECOND + fraction,
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
                // Its data runs on into the block's padding.
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
                let kept = packet.origlen.min(snap) as usize;
                let data = packet.data.get(..kept).unwrap_or(packet.data);
                take(Frame { link: interface.link, data, wire_bytes: packet.origlen, time_ns: 0 });
            }
            PcapBlockOwned::NG(_) => {}
        }
    }

    fn add(&mut self, link: i32, resolution: u64, offset_s: i64, snap: u32) {
        self.known.push(Interface { link: link.into(), resolution, offset_s, snap });
    }
}
