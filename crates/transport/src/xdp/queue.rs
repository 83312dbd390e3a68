//! One queue of an interface: its socket, its chunks, and frames that span several chunks.
//!
//! The first chunks are for receiving, the others for sending. The fill ring holds the receive chunks in address order
//! and gets them back in the order in which they were used, so the chunks of one frame are adjacent, except at the
//! wrap-around.

use super::config::{CopyMode, XdpConfig};
use super::sys::{self, Rings, Umem};
use crate::payload;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::{Regions, Sge};
use std::io;

/// Bytes of a chunk: a page, the maximum of AF_XDP without huge pages.
pub const CHUNK_BYTES: u32 = 4096;
/// Maximum chunks of one frame: the default of the kernel's `MAX_SKB_FRAGS`.
const MAX_CHUNKS: u32 = 17;
/// Maximum consecutive calls to flush a full send ring.
const MAX_FLUSH_CALLS: u32 = 64;
/// Maximum bytes of a frame.
pub const MAX_FRAME_BYTES: usize = 16 * CHUNK_BYTES as usize;

/// The socket of a queue, with its memory and rings.
pub struct Queue {
    /// Declared before the memory that the kernel writes to, so that it is closed first.
    fd: OwnedFd,
    rings: Rings,
    umem: Umem,
    /// Free send chunks.
    free: Vec<u64>,
    /// Buffer for a frame whose chunks are not adjacent.
    bounce: Vec<u8>,
}

/// A frame to send, in parts.
pub struct TxFrame<'a> {
    /// Headers.
    pub front: &'a [u8],
    /// The payload, in pieces.
    pub gather: &'a [Sge],
    /// The table of regions that `gather` refers to.
    pub regions: &'a Regions,
    /// The trailer.
    pub back: &'a [u8],
}

impl TxFrame<'_> {
    /// Returns the bytes of the frame.
    pub fn len(&self) -> usize {
        self.front.len() + payload::len(self.gather) + self.back.len()
    }

    /// Writes the frame's bytes from offset `begin` on, until `to` is full.
    fn write(&self, begin: usize, to: &mut [u8]) {
        // `at` is the offset of each part in the frame; bytes before `begin` are skipped.
        let (mut at, mut to) = (0, to);
        let mut part = |len: usize, copy: &mut dyn FnMut(usize, &mut [u8])| {
            let skip = begin.saturating_sub(at).min(len);
            let count = (len - skip).min(to.len());
            let (here, rest) = std::mem::take(&mut to).split_at_mut(count);
            copy(skip, here);
            (at, to) = (at + len, rest);
        };
        part(self.front.len(), &mut |skip, to| to.copy_from_slice(&self.front[skip..][..to.len()]));
        for sge in self.gather {
            let region = self.regions.get(sge.region);
            part(sge.len as usize, &mut |skip, to| region.read(sge.offset as usize + skip, to));
        }
        part(self.back.len(), &mut |skip, to| to.copy_from_slice(&self.back[skip..][..to.len()]));
    }
}

/// A frame found in the receive ring.
pub enum RxFrame<'a> {
    /// A complete frame, and its number of chunks.
    Complete(&'a [u8], u32),
    /// A frame longer than the maximum, and its number of chunks.
    TooLong(u32),
}

impl Queue {
    /// Opens a socket for an interface's queue.
    pub fn open(config: &XdpConfig, interface: u32, queue: u32) -> io::Result<Self> {
        let (receive, send) = (config.chunks, config.chunks / 4);
        let umem = Umem::new((receive + send) as usize * CHUNK_BYTES as usize)?;
        let (fd, mut rings) = sys::socket(&umem, CHUNK_BYTES, [receive, send])?;
        for index in 0..receive {
            rings.fill.write(index, u64::from(index * CHUNK_BYTES));
        }
        rings.fill.produce(receive);
        let copy = match config.copy {
            CopyMode::Auto => 0,
            CopyMode::Copy => libc::XDP_COPY,
            CopyMode::Zero => libc::XDP_ZEROCOPY,
        };
        sys::bind(&fd, interface, queue, libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG | copy)?;
        let free = (receive..receive + send).map(|index| u64::from(index * CHUNK_BYTES)).collect();
        Ok(Self { fd, rings, umem, free, bounce: Vec::new() })
    }

    /// Returns the socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Returns `true` if the queue is zero-copy.
    pub fn is_zero_copy(&self) -> bool {
        sys::is_zero_copy(&self.fd).unwrap_or(false)
    }

    /// Reads the kernel's counters of the socket.
    pub fn kernel_counters(&self) -> io::Result<libc::xdp_statistics> {
        sys::kernel_counters(&self.fd)
    }

    /// Returns the number of filled receive chunks; the last frame may be incomplete.
    pub fn filled(&mut self) -> u32 {
        self.rings.rx.available()
    }

    /// Returns the frame that starts in filled chunk `at`, counted from the oldest; `None` if it is incomplete.
    pub fn frame(&mut self, at: u32, filled: u32) -> Option<RxFrame<'_>> {
        let first = self.rings.rx.entry(at);
        let mut len = first.len as usize;
        let mut more = first.options & libc::XDP_PKT_CONTD != 0;
        let mut adjacent = true;
        let mut chunks = 1;
        while more {
            if at + chunks >= filled {
                return None;
            }
            let next = self.rings.rx.entry(at + chunks);
            adjacent &= chunk_address(next.addr) == chunk_address(first.addr) + u64::from(chunks * CHUNK_BYTES);
            len += next.len as usize;
            more = next.options & libc::XDP_PKT_CONTD != 0;
            chunks += 1;
        }
        if len > MAX_FRAME_BYTES || chunks > MAX_CHUNKS {
            return Some(RxFrame::TooLong(chunks));
        }
        if chunks > 1 {
            if !adjacent {
                return Some(RxFrame::Complete(self.gather_chunks(at, chunks), chunks));
            }
            // The content of each further chunk starts after its headroom and is moved up to the end of the previous
            // one: about 8 % of a 4 KiB payload with headers.
            let mut end = first.addr + u64::from(first.len);
            for index in 1..chunks {
                let piece = self.rings.rx.entry(at + index);
                // SAFETY: the kernel has passed these chunks to us, and no slice of them exists.
                unsafe { self.umem.copy_within(piece.addr, end, piece.len as usize) };
                end += u64::from(piece.len);
            }
        }
        // SAFETY: the kernel has passed these chunks to us, and they are returned only through `&mut self`.
        let frame = unsafe { self.umem.get(first.addr, len) }.unwrap_or_default();
        Some(RxFrame::Complete(frame, chunks))
    }

    /// Gathers a frame from chunks that are not adjacent.
    fn gather_chunks(&mut self, at: u32, chunks: u32) -> &[u8] {
        self.bounce.clear();
        for index in 0..chunks {
            let piece = self.rings.rx.entry(at + index);
            // SAFETY: as in `frame`.
            let piece = unsafe { self.umem.get(piece.addr, piece.len as usize) };
            self.bounce.extend_from_slice(piece.unwrap_or_default());
        }
        &self.bounce
    }

    /// Returns the oldest filled chunks to the kernel.
    pub fn recycle(&mut self, chunks: u32) {
        for index in 0..chunks {
            let at = chunk_address(self.rings.rx.entry(index).addr);
            self.rings.fill.write(index, at);
        }
        // There is space: the fill ring has one entry per receive chunk.
        self.rings.fill.produce(chunks);
        self.rings.rx.consume(chunks);
        if self.rings.fill.needs_wakeup() {
            sys::wake_rx(self.fd.as_fd());
        }
    }

    /// Writes a frame and submits it to the kernel. Returns `false` if the send ring or its chunks are exhausted.
    pub fn send(&mut self, frame: &TxFrame<'_>) -> bool {
        let len = frame.len();
        let chunks = (len as u32).div_ceil(CHUNK_BYTES);
        if !self.has_space(chunks) {
            self.reclaim();
            if !self.has_space(chunks) {
                return false;
            }
        }
        let pieces = self.free.split_off(self.free.len() - chunks as usize);
        for (index, at) in pieces.iter().enumerate() {
            let begin = index * CHUNK_BYTES as usize;
            let part = (len - begin).min(CHUNK_BYTES as usize);
            // SAFETY: the chunk is ours until it is submitted below.
            if let Some(chunk) = unsafe { self.umem.get_mut(*at, part) } {
                frame.write(begin, chunk);
            }
            let options = if begin + part < len { libc::XDP_PKT_CONTD } else { 0 };
            self.rings.tx.write(index as u32, libc::xdp_desc { addr: *at, len: part as u32, options });
        }
        self.rings.tx.produce(chunks);
        true
    }

    fn has_space(&mut self, chunks: u32) -> bool {
        self.free.len() >= chunks as usize && self.rings.tx.free_entries() >= chunks
    }

    /// Makes the kernel send the submitted frames. Those that do not fit in its own queue are sent by the next call.
    pub fn flush(&mut self) -> io::Result<()> {
        // The kernel sends a few dozen frames per call.
        let mut calls = 0;
        while self.rings.tx.has_pending() && self.rings.tx.needs_wakeup() && calls < MAX_FLUSH_CALLS {
            if !sys::wake_tx(&self.fd)? {
                break;
            }
            calls += 1;
        }
        self.reclaim();
        Ok(())
    }

    /// Reclaims the chunks of frames that were sent.
    fn reclaim(&mut self) {
        let sent = self.rings.completion.available();
        for index in 0..sent {
            self.free.push(chunk_address(self.rings.completion.entry(index)));
        }
        self.rings.completion.consume(sent);
    }
}

/// Returns the address of the chunk that contains an address.
fn chunk_address(address: u64) -> u64 {
    address & !u64::from(CHUNK_BYTES - 1)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
