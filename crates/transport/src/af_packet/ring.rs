//! A receive ring shared with the kernel (`TPACKET_V3`; the kernel's Documentation/networking/packet_mmap.rst).
//!
//! The ring consists of blocks. The kernel fills a block with frames until it is full or [`RETIRE_MS`] have passed
//! since its first frame, then passes it to user space; the block is returned to the kernel when all its frames have
//! been read. No system call is made per frame.

use super::offload::{Offload, RxFrame, VNET_HEADER};
use crate::sys::set_option;
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block: sixteen of the longest unsegmented frames.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Timeout, in milliseconds, after which the kernel passes on a block that is not full.
const RETIRE_MS: u32 = 1;
/// Maximum number of blocks; a ring's memory is pinned.
const MAX_BLOCKS: usize = 256;
/// Offset of the `sockaddr_ll` of a frame, after its header.
const ADDRESS_OFFSET: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// Offsets in the header of a block, whose status is shared with the kernel.
const STATUS_OFFSET: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
const PACKETS_OFFSET: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST_OFFSET: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);

/// The ring of a socket.
pub struct Ring {
    base: NonNull<u8>,
    blocks: usize,
    /// Index of the current block.
    block: usize,
    /// Unread frames of the current block, and the offset of the next one.
    unread: u32,
    next: usize,
}

// SAFETY: the mapping is owned by this value, and shared with the kernel only.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates a ring of about `bytes` bytes. The socket must not have received anything yet.
    pub fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = bytes.div_ceil(BLOCK_BYTES).clamp(2, MAX_BLOCKS);
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: BLOCK_BYTES as u32, // unused in TPACKET_V3, but must divide the block size
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
        let at = unsafe { mmap(std::ptr::null_mut(), blocks * BLOCK_BYTES, protection, flags, fd, 0) }?;
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("memory was mapped at 0"))?;
        Ok(Self { base, blocks, block: 0, unread: 0, next: 0 })
    }

    /// Returns the size of the ring in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// Returns the next frame, which is valid until the next call.
    pub fn next(&mut self) -> Option<RxFrame<'_>> {
        if self.unread == 0 && !self.next_block() {
            return None;
        }
        let at = self.next;
        let header: libc::tpacket3_hdr = self.read(at)?;
        self.unread -= 1;
        self.next = at + header.tp_next_offset as usize;
        let address: libc::sockaddr_ll = self.read(at + ADDRESS_OFFSET)?;
        let offload: Offload = self.read((at + usize::from(header.tp_mac)).checked_sub(VNET_HEADER)?)?;
        let (len, begin) = (header.tp_snaplen as usize, at + usize::from(header.tp_mac));
        let is_complete =
            header.tp_snaplen == header.tp_len && begin.checked_add(len).is_some_and(|end| end <= BLOCK_BYTES);
        let is_ours = address.sll_pkttype == libc::PACKET_HOST;
        let bytes = if is_complete {
            // SAFETY: inside the block (`is_complete`), which belongs to user space until `next_block`, which needs
            // `&mut self`, returns it.
            unsafe { std::slice::from_raw_parts(self.block_base().add(begin), len) }
        } else {
            &[]
        };
        Some(RxFrame { bytes, segment: offload.segment(), is_ours })
    }

    /// Returns the finished block, if any, to the kernel and starts the next one. Returns `false` if the kernel still
    /// owns that one.
    fn next_block(&mut self) -> bool {
        if self.next > 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % self.blocks;
            self.next = 0;
        }
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let (Some(packets), Some(first)) = (self.read(PACKETS_OFFSET), self.read::<u32>(FIRST_OFFSET)) else {
            return false;
        };
        (self.unread, self.next) = (packets, first as usize);
        self.unread > 0
    }

    fn block_base(&self) -> *mut u8 {
        // SAFETY: `block` is below `blocks`, so that this is inside the mapping.
        unsafe { self.base.as_ptr().add(self.block * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: inside the block's header, aligned, and only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.block_base().add(STATUS_OFFSET).cast()) }
    }

    /// Reads a value at an offset of the block; `None` if it is not inside the block.
    fn read<T: Plain>(&self, at: usize) -> Option<T> {
        at.checked_add(size_of::<T>()).filter(|end| *end <= BLOCK_BYTES)?;
        // SAFETY: inside the block, which belongs to user space, and any bytes are a valid value.
        Some(unsafe { self.block_base().add(at).cast::<T>().read_unaligned() })
    }
}

/// Types for which any bytes are a valid value.
///
/// # Safety
/// The type must consist of integers only.
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
        // SAFETY: the mapping was created in `new`, and every pointer into it borrows `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes()) };
    }
}
