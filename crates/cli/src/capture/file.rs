//! Reads pcap and pcapng files frame by frame, in fixed memory.

use crate::Result;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::Path;

/// The reader's window on the file.
const WINDOW: usize = 1 << 20;
/// The largest block that is believed; beyond it the file is taken for damaged.
const MOST_BLOCK: usize = 64 << 20;

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
    /// Seconds since 1970.
    pub time_s: f64,
}

/// Hands every frame of a capture to `take`. Returns why it could not be read to its end, if so: what stands
/// before that place counts.
pub fn for_each_frame(path: &Path, mut take: impl FnMut(Frame<'_>)) -> Result<Option<String>> {
    let file = File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut reader = create_reader(WINDOW, file)
        .map_err(|error| format!("{} begins like a capture, but its header is damaged: {error}", path.display()))?;
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
    resolution: f64,
    offset_s: f64,
    snap: u32,
}

impl Interfaces {
    fn read(&mut self, block: PcapBlockOwned<'_>, take: &mut impl FnMut(Frame<'_>)) {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.nanoseconds = header.is_nanosecond_precision();
                // The upper bits tell of a frame check sequence.
                self.add(header.network.0 & 0xFFFF, 1.0, 0.0, header.snaplen);
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.known.first() else { return };
                let fraction = f64::from(packet.ts_usec) * if self.nanoseconds { 1e-9 } else { 1e-6 };
                take(Frame {
                    link: interface.link,
                    data: packet.data,
                    wire_bytes: packet.origlen,
                    time_s: f64::from(packet.ts_sec) + fraction,
                });
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.known.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let resolution = interface.ts_resolution().unwrap_or(1_000_000).max(1) as f64;
                self.add(interface.linktype.0, resolution, interface.ts_offset() as f64, interface.snaplen);
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
                    time_s: ticks as f64 / interface.resolution + interface.offset_s,
                });
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let Some(interface) = self.known.first() else { return };
                let snap = if interface.snap == 0 { u32::MAX } else { interface.snap };
                let kept = packet.origlen.min(snap) as usize;
                let data = packet.data.get(..kept).unwrap_or(packet.data);
                take(Frame { link: interface.link, data, wire_bytes: packet.origlen, time_s: 0.0 });
            }
            PcapBlockOwned::NG(_) => {}
        }
    }

    fn add(&mut self, link: i32, resolution: f64, offset_s: f64, snap: u32) {
        self.known.push(Interface { link: link.into(), resolution, offset_s, snap });
    }
}
