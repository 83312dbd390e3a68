//! A ring that the kernel copies frames into (`TPACKET_V3`; the kernel's Documentation/networking/packet_mmap.rst).
//!
//! The ring is a row of blocks. The kernel fills one with as many frames as it holds, or until [`RETIRE_MS`] have passed
//! since its first, then hands it over; it gets it back when all of its frames were read. No frame costs a system call.

use super::came::{Came, Offload, VNET_HEADER};
use crate::sys::set_option;
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block: room for sixteen of the longest frames that an offload has left whole.
pub const BLOCK: usize = 1 << 20;
/// A block that is not full is handed over after so many milliseconds.
const RETIRE_MS: u32 = 1;
/// Most blocks: a ring is memory that nobody else gets.
const MOST_BLOCKS: usize = 256;
/// Where the sender's kind of a frame is told, behind its header.
const ADDRESS: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// The header of a block, whose status is shared with the kernel.
const STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
const PACKETS: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

/// The ring of a socket.
pub struct Ring {
    at: NonNull<u8>,
    blocks: usize,
    /// The block whose turn it is.
    block: usize,
    /// Frames of it that are not read yet, and where the next one begins.
    left: u32,
    next: usize,
}

// SAFETY: the mapping is this value's own, and what it shares with the kernel is shared with no thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Of about so many bytes. Nothing may have been received by the socket yet.
    pub fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = bytes.div_ceil(BLOCK).clamp(2, MOST_BLOCKS);
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: BLOCK as u32, // means nothing here, but that it divides the block
            tp_frame_nr: blocks as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        // SAFETY: the pointer and the length describe the live request, which the kernel only reads.
        let rc = unsafe {
            let (at, len) = ((&raw const request).cast(), size_of::<libc::tpacket_req3>() as u32);
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, at, len)
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { mmap(std::ptr::null_mut(), blocks * BLOCK, protection, flags, fd, 0) }?;
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("memory was mapped at 0"))?;
        Ok(Self { at, blocks, block: 0, left: 0, next: 0 })
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.blocks * BLOCK
    }

    /// The next frame. It is the kernel's again with the call after.
    pub fn next(&mut self) -> Option<Came<'_>> {
        if self.left == 0 && !self.turn() {
            return None;
        }
        let at = self.next;
        let header: libc::tpacket3_hdr = self.read(at)?;
        self.left -= 1;
        self.next = at + header.tp_next_offset as usize;
        let address: libc::sockaddr_ll = self.read(at + ADDRESS)?;
        let offload: Offload = self.read((at + usize::from(header.tp_mac)).checked_sub(VNET_HEADER)?)?;
        let (len, begin) = (header.tp_snaplen as usize, at + usize::from(header.tp_mac));
        let whole = header.tp_snaplen == header.tp_len && begin.checked_add(len).is_some_and(|end| end <= BLOCK);
        let ours = address.sll_pkttype == libc::PACKET_HOST;
        // SAFETY: inside the block (`whole`), which is ours until `turn` gives it back, from `&mut self`.
        let bytes = if whole { unsafe { std::slice::from_raw_parts(self.block_at().add(begin), len) } } else { &[] };
        Some(Came { bytes, segment: offload.segment(), ours })
    }

    /// Gives back the block that was read, if any, and begins the next one. False if the kernel has it still.
    fn turn(&mut self) -> bool {
        if self.next > 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % self.blocks;
            self.next = 0;
        }
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let (Some(packets), Some(first)) = (self.read(PACKETS), self.read::<u32>(FIRST)) else { return false };
        (self.left, self.next) = (packets, first as usize);
        self.left > 0
    }

    fn block_at(&self) -> *mut u8 {
        // SAFETY: `block` is below `blocks`, so that this is inside the mapping.
        unsafe { self.at.as_ptr().add(self.block * BLOCK) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: inside the block's header, aligned, and shared with the kernel, which is what an atomic is for.
        unsafe { AtomicU32::from_ptr(self.block_at().add(STATUS).cast()) }
    }

    /// What the kernel has written at a place of the block; none if it is not inside.
    fn read<T: Plain>(&self, at: usize) -> Option<T> {
        at.checked_add(size_of::<T>()).filter(|end| *end <= BLOCK)?;
        // SAFETY: inside the block, which the kernel has handed over, and any bytes are such a value.
        Some(unsafe { self.block_at().add(at).cast::<T>().read_unaligned() })
    }
}

/// Values that any bytes are.
///
/// # Safety
/// They consist of integers only.
unsafe trait Plain: Copy {}
// SAFETY: integers only.
unsafe impl Plain for u32 {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket3_hdr {}
// SAFETY: integers only.
unsafe impl Plain for libc::sockaddr_ll {}
// SAFETY: integers only.
unsafe impl Plain for Offload {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the one mapping made in `new`, and whoever had a pointer into it borrowed this.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes()) };
    }
}
