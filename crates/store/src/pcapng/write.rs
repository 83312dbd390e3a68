//! Writes pcapng in whole blocks (draft-ietf-opsawg-pcapng-03; option codes of its sections 3.5 and 4).

use std::io::{self, Write};

const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Says in which order the writer's bytes are.
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
/// Link type of Ethernet.
const ETHERNET: u16 = 1;
/// Bytes gathered before they are written, whole blocks only.
const GATHERED: usize = 1 << 20;

/// Options of all blocks.
mod option {
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SECTION_APPLICATION: u16 = 4;
    pub(super) const NAME: u16 = 2;
    pub(super) const DESCRIPTION: u16 = 3;
    pub(super) const RESOLUTION: u16 = 9;
    pub(super) const FILTER: u16 = 11;
    pub(super) const HARDWARE: u16 = 15;
    pub(super) const START: u16 = 2;
    pub(super) const END: u16 = 3;
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
    pub(super) const ACCEPTED: u16 = 6;
    pub(super) const OS_DROPPED: u16 = 7;
}

/// An Ethernet interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// What was captured of it, in the words of a capture filter.
    pub filter: String,
    /// The hardware; here, that there was none.
    pub hardware: String,
}

/// How an interface did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// When it began, in UTC nanoseconds.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Packets that reached it.
    pub received: u64,
    /// Packets that it dropped for lack of resources.
    pub dropped: u64,
    /// Packets that passed its filter.
    pub accepted: u64,
    /// Packets that the system dropped.
    pub os_dropped: u64,
    /// Everything else, in words.
    pub comment: String,
}

/// A capture in the making. Whatever stands in the file is whole blocks.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    gathered: Vec<u8>,
    bytes: u64,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a capture by this program. `comment` is about all of it.
    pub fn new(out: W, application: &str, comment: &str) -> io::Result<Self> {
        let mut writer = Self { out, gathered: Vec::with_capacity(GATHERED + (1 << 17)), bytes: 0, written: 0 };
        let block = writer.begin(SECTION);
        writer.u32(BYTE_ORDER);
        writer.gathered.extend([1, 0, 0, 0]); // version 1.0
        writer.u64(u64::MAX); // the section's length is not known
        writer.option(option::COMMENT, comment.as_bytes());
        writer.option(option::SECTION_APPLICATION, application.as_bytes());
        writer.end(block)?;
        Ok(writer)
    }

    /// Adds an interface whose time stamps are nanoseconds. They are numbered from 0.
    pub fn interface(&mut self, interface: &Interface) -> io::Result<()> {
        let block = self.begin(INTERFACE);
        self.gathered.extend(ETHERNET.to_le_bytes());
        self.gathered.extend([0, 0]);
        self.u32(0); // packets are whole
        self.option(option::NAME, interface.name.as_bytes());
        self.option(option::DESCRIPTION, interface.description.as_bytes());
        self.option(option::RESOLUTION, &[9]);
        // A leading zero says that the filter is words.
        self.option(option::FILTER, &[&[0], interface.filter.as_bytes()].concat());
        self.option(option::HARDWARE, interface.hardware.as_bytes());
        self.end(block)
    }

    /// Adds a frame, which is given in pieces.
    pub fn packet(&mut self, interface: u32, utc_ns: u64, frame: &[&[u8]]) -> io::Result<()> {
        let bytes = frame.iter().map(|piece| piece.len()).sum::<usize>();
        let block = self.begin(PACKET);
        self.u32(interface);
        self.time(utc_ns);
        self.u32(bytes as u32);
        self.u32(bytes as u32);
        frame.iter().for_each(|piece| self.gathered.extend_from_slice(piece));
        self.pad();
        self.end_without_options(block)
    }

    /// Adds how an interface did.
    pub fn statistics(&mut self, interface: u32, statistics: &Statistics) -> io::Result<()> {
        let block = self.begin(STATISTICS);
        self.u32(interface);
        self.time(statistics.end_ns);
        self.option(option::COMMENT, statistics.comment.as_bytes());
        for (code, ns) in [(option::START, statistics.start_ns), (option::END, statistics.end_ns)] {
            let (high, low) = ((ns >> 32) as u32, ns as u32);
            self.option(code, &[high.to_le_bytes(), low.to_le_bytes()].concat());
        }
        for (code, count) in [
            (option::RECEIVED, statistics.received),
            (option::DROPPED, statistics.dropped),
            (option::ACCEPTED, statistics.accepted),
            (option::OS_DROPPED, statistics.os_dropped),
        ] {
            self.option(code, &count.to_le_bytes());
        }
        self.end(block)
    }

    /// Writes what was gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.gathered)?;
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        self.out.flush()
    }

    /// Bytes of whole blocks that were given away.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn begin(&mut self, kind: u32) -> usize {
        let block = self.gathered.len();
        self.u32(kind);
        self.u32(0); // its length, when it is known
        block
    }

    fn end(&mut self, block: usize) -> io::Result<()> {
        self.u32(0); // the end of the options
        self.end_without_options(block)
    }

    fn end_without_options(&mut self, block: usize) -> io::Result<()> {
        let bytes = (self.gathered.len() + 4 - block) as u32;
        self.u32(bytes);
        self.gathered[block + 4..block + 8].copy_from_slice(&bytes.to_le_bytes());
        self.bytes += u64::from(bytes);
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        if value.is_empty() || value == [0] {
            return; // nothing was said
        }
        self.gathered.extend(code.to_le_bytes());
        self.gathered.extend((value.len() as u16).to_le_bytes());
        self.gathered.extend_from_slice(value);
        self.pad();
    }

    fn time(&mut self, ns: u64) {
        self.u32((ns >> 32) as u32);
        self.u32(ns as u32);
    }
    fn u32(&mut self, value: u32) {
        self.gathered.extend(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.gathered.extend(value.to_le_bytes());
    }
    fn pad(&mut self) {
        // Every block is a multiple of 4 long, and they follow each other from an empty buffer on.
        self.gathered.resize(self.gathered.len().next_multiple_of(4), 0);
    }
}
