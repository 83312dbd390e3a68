//! One queue of an interface: its socket, its chunks, and frames that lie in several of them.
//!
//! The first chunks are for frames to come, the others for frames to be sent. The fill ring holds the former in the
//! order of their addresses and gets them back in the order in which they came, so a frame that needs several lies in
//! neighbours, but for the one around the end.

use super::config::{Copy, XdpConfig};
use super::sys::{self, Rings, Umem};
use crate::payload;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use shotline_memory::{Regions, Sge};
use std::io;

/// Bytes of a chunk: a page, as AF_XDP has it without huge pages.
pub const CHUNK: u32 = 4096;
/// Most chunks of one frame: 16 fragments behind the first are what the kernel knows (`MAX_SKB_FRAGS`).
const MOST_CHUNKS: u32 = 17;
/// Calls in a row to have a full ring sent.
const MOST_CALLS: u32 = 64;
/// Longest frame.
pub const MOST_BYTES: usize = 16 * CHUNK as usize;

/// A queue's socket.
pub struct Queue {
    /// Before the memory that the kernel writes to, so that it is closed first.
    fd: OwnedFd,
    rings: Rings,
    umem: Umem,
    /// Chunks for frames to be sent that are ours.
    free: Vec<u64>,
    /// For a frame whose chunks are no neighbours.
    bounce: Vec<u8>,
}

/// A frame to be sent, in parts.
pub struct Outgoing<'a> {
    /// Headers.
    pub front: &'a [u8],
    /// The payload, in pieces.
    pub gather: &'a [Sge],
    /// Where they lie.
    pub regions: &'a Regions,
    /// What follows.
    pub back: &'a [u8],
}

impl Outgoing<'_> {
    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.front.len() + payload::len(self.gather) + self.back.len()
    }

    /// Writes the frame's bytes from `begin` on, as many as there is room for.
    fn write(&self, begin: usize, to: &mut [u8]) {
        // Where each part begins; what is before `begin` is left out.
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

/// What a look into the receive ring has found.
pub enum Came<'a> {
    /// A whole frame, in so many chunks.
    Frame(&'a [u8], u32),
    /// One that is longer than a frame can be, in so many chunks.
    TooLong(u32),
}

impl Queue {
    /// Opens a socket for an interface's queue.
    pub fn open(config: &XdpConfig, interface: u32, queue: u32) -> io::Result<Self> {
        let (receive, send) = (config.chunks, config.chunks / 4);
        let umem = Umem::new((receive + send) as usize * CHUNK as usize)?;
        let (fd, mut rings) = sys::socket(&umem, CHUNK, [receive, send])?;
        for index in 0..receive {
            rings.fill.put(index, u64::from(index * CHUNK));
        }
        rings.fill.fill(receive);
        let copy = match config.copy {
            Copy::Auto => 0,
            Copy::Copy => libc::XDP_COPY,
            Copy::Zero => libc::XDP_ZEROCOPY,
        };
        sys::bind(&fd, interface, queue, libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG | copy)?;
        let free = (receive..receive + send).map(|index| u64::from(index * CHUNK)).collect();
        Ok(Self { fd, rings, umem, free, bounce: Vec::new() })
    }

    /// The socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Whether frames come without a copy.
    pub fn is_zero_copy(&self) -> bool {
        sys::is_zero_copy(&self.fd).unwrap_or(false)
    }

    /// What the kernel has counted.
    pub fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        sys::statistics(&self.fd)
    }

    /// Chunks that have frames, perhaps not all of the last one.
    pub fn filled(&mut self) -> u32 {
        self.rings.receive.filled()
    }

    /// The frame that begins with the `at`th of the filled chunks; none unless all of it is there.
    pub fn frame(&mut self, at: u32, filled: u32) -> Option<Came<'_>> {
        let first = self.rings.receive.entry(at);
        let mut len = first.len as usize;
        let mut more = first.options & libc::XDP_PKT_CONTD != 0;
        let mut neighbours = true;
        let mut chunks = 1;
        while more {
            if at + chunks >= filled {
                return None;
            }
            let next = self.rings.receive.entry(at + chunks);
            neighbours &= page(next.addr) == page(first.addr) + u64::from(chunks * CHUNK);
            len += next.len as usize;
            more = next.options & libc::XDP_PKT_CONTD != 0;
            chunks += 1;
        }
        if len > MOST_BYTES || chunks > MOST_CHUNKS {
            return Some(Came::TooLong(chunks));
        }
        if chunks > 1 {
            if !neighbours {
                return Some(Came::Frame(self.bounced(at, chunks), chunks));
            }
            // What begins behind a chunk's headroom moves up to the end of the one before: of 4 KiB and headers a tenth.
            let mut end = first.addr + u64::from(first.len);
            for index in 1..chunks {
                let piece = self.rings.receive.entry(at + index);
                // SAFETY: the kernel has handed these chunks over, and nobody holds a slice of them.
                unsafe { self.umem.shift(piece.addr, end, piece.len as usize) };
                end += u64::from(piece.len);
            }
        }
        // SAFETY: the kernel has handed these chunks over, and gets them back only from `&mut self`.
        let frame = unsafe { self.umem.get(first.addr, len) }.unwrap_or_default();
        Some(Came::Frame(frame, chunks))
    }

    /// Gathers a frame from chunks that are no neighbours.
    fn bounced(&mut self, at: u32, chunks: u32) -> &[u8] {
        self.bounce.clear();
        for index in 0..chunks {
            let piece = self.rings.receive.entry(at + index);
            // SAFETY: as in `frame`.
            let piece = unsafe { self.umem.get(piece.addr, piece.len as usize) };
            self.bounce.extend_from_slice(piece.unwrap_or_default());
        }
        &self.bounce
    }

    /// Gives the oldest filled chunks back to the kernel.
    pub fn give_back(&mut self, chunks: u32) {
        for index in 0..chunks {
            let at = page(self.rings.receive.entry(index).addr);
            self.rings.fill.put(index, at);
        }
        // There is room: the fill ring is as long as there are chunks.
        self.rings.fill.fill(chunks);
        self.rings.receive.empty(chunks);
        if self.rings.fill.sleeps() {
            sys::wake(self.fd.as_fd());
        }
    }

    /// Writes a frame and hands it to the kernel; false if there is no room.
    pub fn send(&mut self, frame: &Outgoing<'_>) -> bool {
        let len = frame.len();
        let chunks = (len as u32).div_ceil(CHUNK);
        if !self.has_room(chunks) {
            self.reclaim();
            if !self.has_room(chunks) {
                return false;
            }
        }
        let pieces = self.free.split_off(self.free.len() - chunks as usize);
        for (index, at) in pieces.iter().enumerate() {
            let begin = index * CHUNK as usize;
            let part = (len - begin).min(CHUNK as usize);
            // SAFETY: the chunk is ours until it is handed over below.
            if let Some(chunk) = unsafe { self.umem.get_mut(*at, part) } {
                frame.write(begin, chunk);
            }
            let options = if begin + part < len { libc::XDP_PKT_CONTD } else { 0 };
            self.rings.send.put(index as u32, libc::xdp_desc { addr: *at, len: part as u32, options });
        }
        self.rings.send.fill(chunks);
        true
    }

    fn has_room(&mut self, chunks: u32) -> bool {
        self.free.len() >= chunks as usize && self.rings.send.room() >= chunks
    }

    /// Has the kernel send what it was given. What its own queue has no room for goes with the next call.
    pub fn flush(&mut self) -> io::Result<()> {
        // It takes a few dozen at each call.
        let mut calls = 0;
        while self.rings.send.is_waiting() && self.rings.send.sleeps() && calls < MOST_CALLS {
            if !sys::kick(&self.fd)? {
                break;
            }
            calls += 1;
        }
        self.reclaim();
        Ok(())
    }

    /// Takes chunks back whose frames were sent.
    fn reclaim(&mut self) {
        let sent = self.rings.completed.filled();
        for index in 0..sent {
            self.free.push(page(self.rings.completed.entry(index)));
        }
        self.rings.completed.empty(sent);
    }
}

/// The chunk that an address is in.
fn page(address: u64) -> u64 {
    address & !u64::from(CHUNK - 1)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
