//! Writes pcapng in whole blocks (draft-ietf-opsawg-pcapng-03; option codes of its sections 3.5 and 4).

use std::io::{self, Write};

/// Block types.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// Byte-order magic.
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
/// Link type of Ethernet.
const ETHERNET: u16 = 1;
/// Buffered bytes that trigger a write. Only whole blocks are written.
const FLUSH_BYTES: usize = 1 << 20;

/// Option codes. Those from 2 on have a different meaning in each type of block.
mod option {
    pub(super) const COMMENT: u16 = 1;
    // Section header.
    pub(super) const SECTION_APPLICATION: u16 = 4;
    // Interface description.
    pub(super) const NAME: u16 = 2;
    pub(super) const DESCRIPTION: u16 = 3;
    pub(super) const RESOLUTION: u16 = 9;
    pub(super) const FILTER: u16 = 11;
    pub(super) const HARDWARE: u16 = 15;
    // Interface statistics.
    pub(super) const START: u16 = 2;
    pub(super) const END: u16 = 3;
    pub(super) const RECEIVED: u16 = 4;
    pub(super) const DROPPED: u16 = 5;
    pub(super) const ACCEPTED: u16 = 6;
    pub(super) const OS_DROPPED: u16 = 7;
}

/// Description of an Ethernet interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Description of the interface.
    pub description: String,
    /// Capture filter expression.
    pub filter: String,
    /// Description of the hardware.
    pub hardware: String,
}

/// Statistics of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Start of the capture, in nanoseconds since 1970, UTC.
    pub start_ns: u64,
    /// End of the capture, in nanoseconds since 1970, UTC.
    pub end_ns: u64,
    /// Packets received by the interface.
    pub received: u64,
    /// Packets dropped by the interface for lack of resources.
    pub dropped: u64,
    /// Packets accepted by the filter.
    pub accepted: u64,
    /// Packets dropped by the operating system.
    pub os_dropped: u64,
    /// Any other information.
    pub comment: String,
}

/// Writer of a capture. Only whole blocks are written; all methods fail as [`Self::flush`] does.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
    /// Bytes of all blocks, including buffered ones.
    bytes: u64,
    /// Bytes written to `out`.
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a capture written by `application`. `comment` describes the whole capture.
    pub fn new(out: W, application: &str, comment: &str) -> io::Result<Self> {
        let mut writer = Self { out, buffer: Vec::with_capacity(FLUSH_BYTES + (1 << 17)), bytes: 0, written: 0 };
        let block = writer.begin(SECTION);
        writer.u32(BYTE_ORDER);
        writer.buffer.extend([1, 0, 0, 0]); // version 1.0
        writer.u64(u64::MAX); // section length: unknown
        writer.option(option::COMMENT, comment.as_bytes());
        writer.option(option::SECTION_APPLICATION, application.as_bytes());
        writer.end(block)?;
        Ok(writer)
    }

    /// Adds an interface with timestamps in nanoseconds. Interfaces are numbered from 0.
    pub fn interface(&mut self, interface: &Interface) -> io::Result<()> {
        let block = self.begin(INTERFACE);
        self.buffer.extend(ETHERNET.to_le_bytes());
        self.buffer.extend([0, 0]);
        self.u32(0); // no snapshot length
        self.option(option::NAME, interface.name.as_bytes());
        self.option(option::DESCRIPTION, interface.description.as_bytes());
        self.option(option::RESOLUTION, &[9]);
        // A leading zero means a filter expression in text form.
        self.option(option::FILTER, &[&[0], interface.filter.as_bytes()].concat());
        self.option(option::HARDWARE, interface.hardware.as_bytes());
        self.end(block)
    }

    /// Adds a frame, given in pieces.
    pub fn packet(&mut self, interface: u32, utc_ns: u64, frame: &[&[u8]]) -> io::Result<()> {
        let bytes = frame.iter().map(|piece| piece.len()).sum::<usize>();
        let block = self.begin(PACKET);
        self.u32(interface);
        self.time(utc_ns);
        self.u32(bytes as u32);
        self.u32(bytes as u32);
        frame.iter().for_each(|piece| self.buffer.extend_from_slice(piece));
        self.pad();
        self.end_without_options(block)
    }

    /// Adds the statistics of an interface.
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

    /// Writes the buffered blocks.
    ///
    /// # Errors
    /// If the output fails. It may then end within a block; [`Self::written`] is the length of the whole blocks.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.out.flush()
    }

    /// Returns the bytes written to the output, all in whole blocks.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the size of the capture so far in bytes, including buffered blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn begin(&mut self, kind: u32) -> usize {
        let block = self.buffer.len();
        self.u32(kind);
        self.u32(0); // block length, set by `end`
        block
    }

    fn end(&mut self, block: usize) -> io::Result<()> {
        self.u32(0); // end of options
        self.end_without_options(block)
    }

    fn end_without_options(&mut self, block: usize) -> io::Result<()> {
        let bytes = (self.buffer.len() + 4 - block) as u32;
        self.u32(bytes);
        self.buffer[block + 4..block + 8].copy_from_slice(&bytes.to_le_bytes());
        self.bytes += u64::from(bytes);
        if self.buffer.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        if value.is_empty() || value == [0] {
            return; // empty options are omitted
        }
        self.buffer.extend(code.to_le_bytes());
        self.buffer.extend((value.len() as u16).to_le_bytes());
        self.buffer.extend_from_slice(value);
        self.pad();
    }

    fn time(&mut self, ns: u64) {
        self.u32((ns >> 32) as u32);
        self.u32(ns as u32);
    }
    fn u32(&mut self, value: u32) {
        self.buffer.extend(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.buffer.extend(value.to_le_bytes());
    }
    fn pad(&mut self) {
        // Every block is a multiple of 4 bytes long, so the buffer length gives the alignment within a block.
        self.buffer.resize(self.buffer.len().next_multiple_of(4), 0);
    }
}
