//! The system calls of AF_XDP: programs, maps, sockets and what they share with the kernel (bpf(2),
//! `linux/if_xdp.h`, the kernel's Documentation/networking/af_xdp.rst).

use super::program::Instruction;
use crate::sys::set_option;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

// Commands of bpf(2).
const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program may meet frames in several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// `XDP_FLAGS_SKB_MODE`: in the kernel's own path, for every driver.
pub const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: in the driver.
pub const NATIVE: u32 = 1 << 2;

fn last() -> io::Error {
    io::Error::last_os_error()
}

/// One command of bpf(2) whose result is a descriptor or 0.
///
/// # Safety
/// Pointers in the attribute must be good for what the command does with them.
unsafe fn bpf<T>(command: i32, attribute: &T) -> io::Result<i32> {
    // SAFETY: the pointer and the size describe the live attribute; for what it points at the caller vouches.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attribute, size_of::<T>()) };
    if rc < 0 { Err(last()) } else { Ok(rc as i32) }
}

/// As [`bpf`], for commands that make something.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_new<T>(command: i32, attribute: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the attribute; the descriptor is new and nobody else's.
    unsafe { bpf(command, attribute).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// A map from queue to socket.
pub fn new_map(queues: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    // SAFETY: no pointers.
    unsafe { bpf_new(MAP_CREATE, &Attribute { kind: MAP_OF_SOCKETS, key_size: 4, value_size: 4, entries: queues }) }
}

/// From here on frames of this queue can be sent to this socket.
pub fn insert(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    #[repr(C)]
    struct Attribute {
        map: u32,
        zero: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let value = socket.as_raw_fd();
    let [key, value] = [(&raw const queue).addr() as u64, (&raw const value).addr() as u64];
    // SAFETY: key and value are live for the call, which reads four bytes of each.
    unsafe { bpf(MAP_UPDATE, &Attribute { map: map.as_raw_fd() as u32, zero: 0, key, value, flags: 0 }) }?;
    Ok(())
}

/// Has the kernel verify and translate a program.
pub fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        kind: u32,
        instructions: u32,
        at: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    const LICENSE: &CStr = c"Dual MIT/GPL";
    let attribute = Attribute {
        kind: PROGRAM_XDP,
        instructions: program.len() as u32,
        at: program.as_ptr().addr() as u64,
        license: LICENSE.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGMENTS,
        name: *b"shotline\0\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: instructions and license are live for the call, which copies them.
    unsafe { bpf_new(PROGRAM_LOAD, &attribute) }
}

/// Runs a program for an interface's frames, until the link is dropped or its process ends.
pub fn attach(program: &OwnedFd, interface: u32, mode: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    // SAFETY: no pointers.
    unsafe { bpf_new(LINK_CREATE, &Attribute { program, interface, attach_type: ATTACH_XDP, flags: mode }) }
}

/// Memory shared with the kernel.
struct Map {
    at: NonNull<c_void>,
    len: usize,
}

impl Map {
    fn new(at: io::Result<*mut c_void>, len: usize) -> io::Result<Self> {
        let at = NonNull::new(at?).ok_or_else(|| io::Error::other("memory was mapped at 0"))?;
        Ok(Self { at, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the one mapping made in `new`, and whoever had a pointer into it owned this.
        let _ = unsafe { munmap(self.at.as_ptr(), self.len) };
    }
}

/// Chunks of memory that frames lie in: the kernel's or ours, by the rings.
pub struct Umem(Map);

impl Umem {
    /// So many bytes, a multiple of the page.
    pub fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
            mmap_anonymous(std::ptr::null_mut(), len, protection, flags)
        };
        Map::new(at.map_err(Into::into), len).map(Self)
    }

    /// Bytes that are ours; none if they are not inside.
    ///
    /// # Safety
    /// The chunks must be ours, and nobody may write them as long as the slice lives.
    pub unsafe fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let at = self.inside(at, len)?;
        // SAFETY: inside the mapping; for the rest the caller vouches.
        Some(unsafe { std::slice::from_raw_parts(self.0.at.as_ptr().cast::<u8>().add(at), len) })
    }

    /// As [`Self::get`], to write.
    ///
    /// # Safety
    /// The chunks must be ours, and nobody may look at them as long as the slice lives.
    #[expect(clippy::mut_from_ref, reason = "whose a chunk is follows from the rings")]
    pub unsafe fn get_mut(&self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = self.inside(at, len)?;
        // SAFETY: inside the mapping; for the rest the caller vouches.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.at.as_ptr().cast::<u8>().add(at), len) })
    }

    /// Moves bytes within chunks that are ours.
    ///
    /// # Safety
    /// As [`Self::get_mut`], of both places, which may overlap.
    pub unsafe fn shift(&self, from: u64, to: u64, len: usize) -> Option<()> {
        let (from, to) = (self.inside(from, len)?, self.inside(to, len)?);
        let base = self.0.at.as_ptr().cast::<u8>();
        // SAFETY: both are inside the mapping; for the rest the caller vouches.
        unsafe { std::ptr::copy(base.add(from), base.add(to), len) };
        Some(())
    }

    fn inside(&self, at: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        at.checked_add(len).filter(|end| *end <= self.0.len)?;
        Some(at)
    }
}

/// One side of a ring that one side fills and the other empties: ours. `T` is what the kernel's header says.
pub struct Ring<T> {
    /// Keeps the memory.
    _map: Map,
    /// Counted up by whoever fills.
    producer: NonNull<AtomicU32>,
    /// Counted up by whoever empties.
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our own counter.
    own: u32,
}

// SAFETY: the memory is shared with the kernel alone, and this is the only handle on our side of it.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of so many entries, a power of two.
    fn map(fd: &OwnedFd, page: u64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
            mmap(std::ptr::null_mut(), len, protection, flags, fd, page)
        };
        let map = Map::new(at.map_err(Into::into), len)?;
        // SAFETY: the kernel gave these offsets for this mapping, and aligns what lies there.
        let at = |offset: u64| unsafe { map.at.cast::<u8>().add(offset as usize) };
        let (producer, consumer) = (at(offsets.producer).cast(), at(offsets.consumer).cast());
        let (flags, entries) = (at(offsets.flags).cast(), at(offsets.desc).cast());
        Ok(Self { _map: map, producer, consumer, flags, entries, size, own: 0 })
    }

    /// Entries that the kernel has filled and we have not emptied.
    pub fn filled(&self) -> u32 {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let other = unsafe { self.producer.as_ref() }.load(Ordering::Acquire);
        other.wrapping_sub(self.own).min(self.size)
    }

    /// One of the filled entries, counted from the oldest.
    pub fn entry(&self, index: u32) -> T {
        let at = self.own.wrapping_add(index) & (self.size - 1);
        // SAFETY: inside the ring by the mask; the kernel does not write what it has handed over.
        unsafe { self.entries.add(at as usize).read() }
    }

    /// Gives the oldest entries back to the kernel.
    pub fn empty(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        unsafe { self.consumer.as_ref() }.store(self.own, Ordering::Release);
    }

    /// Entries that are ours to fill.
    pub fn room(&self) -> u32 {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let other = unsafe { self.consumer.as_ref() }.load(Ordering::Acquire);
        self.size - self.own.wrapping_sub(other).min(self.size)
    }

    /// Fills one of the entries that are ours, counted from the first.
    pub fn put(&mut self, index: u32, value: T) {
        let at = self.own.wrapping_add(index) & (self.size - 1);
        // SAFETY: inside the ring by the mask; the kernel does not read what was not handed over.
        unsafe { self.entries.add(at as usize).write(value) };
    }

    /// Hands the first entries over to the kernel.
    pub fn fill(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        unsafe { self.producer.as_ref() }.store(self.own, Ordering::Release);
    }

    /// Whether there are entries that the kernel has not emptied.
    pub fn is_waiting(&self) -> bool {
        self.room() < self.size
    }

    /// Whether the kernel sleeps until it is told that there are entries.
    pub fn sleeps(&self) -> bool {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let flags = unsafe { self.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The four rings of a socket.
pub struct Rings {
    /// Frames that came.
    pub receive: Ring<libc::xdp_desc>,
    /// Chunks for frames to come.
    pub fill: Ring<u64>,
    /// Frames to be sent.
    pub send: Ring<libc::xdp_desc>,
    /// Chunks whose frames were sent.
    pub completed: Ring<u64>,
}

/// An AF_XDP socket with its memory and rings, not bound yet.
pub fn socket(umem: &Umem, chunk: u32, sizes: [u32; 2]) -> io::Result<(OwnedFd, Rings)> {
    // SAFETY: the call takes no memory.
    let raw = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(last());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let memory = libc::xdp_umem_reg {
        addr: umem.0.at.as_ptr().addr() as u64,
        len: umem.0.len as u64,
        chunk_size: chunk,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    // SAFETY: the pointer and length describe the live struct; the socket keeps the pages that it names.
    let rc = unsafe {
        let (at, len) = ((&raw const memory).cast(), size_of::<libc::xdp_umem_reg>() as u32);
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, at, len)
    };
    if rc < 0 {
        return Err(last());
    }
    let [receive, send] = sizes;
    for (name, size) in [
        (libc::XDP_UMEM_FILL_RING, receive),
        (libc::XDP_RX_RING, receive),
        (libc::XDP_UMEM_COMPLETION_RING, send),
        (libc::XDP_TX_RING, send),
    ] {
        set_option(&fd, libc::SOL_XDP, name, size as i32)?;
    }
    // SAFETY: all-zero is a valid value of this C struct.
    let offsets: libc::xdp_mmap_offsets = unsafe { option(&fd, libc::XDP_MMAP_OFFSETS) }?;
    let rings = Rings {
        receive: Ring::map(&fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, receive)?,
        fill: Ring::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, receive)?,
        send: Ring::map(&fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, send)?,
        completed: Ring::map(&fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, send)?,
    };
    Ok((fd, rings))
}

/// Binds a socket to a queue with these flags (`XDP_COPY`, ...).
pub fn bind(fd: &OwnedFd, interface: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the pointer and the length describe the live address, which the kernel only reads.
    let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_xdp>() as u32) };
    if rc < 0 { Err(last()) } else { Ok(()) }
}

/// Whether the socket's queue works without a copy.
pub fn is_zero_copy(fd: &OwnedFd) -> io::Result<bool> {
    // SAFETY: all-zero is a valid value of this C struct.
    let options: libc::xdp_options = unsafe { option(fd, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// What the kernel has counted of a socket.
pub fn statistics(fd: &OwnedFd) -> io::Result<libc::xdp_statistics> {
    // SAFETY: all-zero is a valid value of this C struct.
    unsafe { option(fd, libc::XDP_STATISTICS) }
}

/// Tells the kernel that there are frames to send. True if it wants to be told again.
pub fn kick(fd: &OwnedFd) -> io::Result<bool> {
    loop {
        // SAFETY: no memory is handed over.
        let rc = unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if rc >= 0 {
            return Ok(false);
        }
        let error = last();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return Ok(true),
            Some(libc::EBUSY | libc::ENOBUFS) => return Ok(false), // its queue is full: the frames stay in the ring
            _ => return Err(error),
        }
    }
}

/// Tells the kernel that there are chunks to fill.
pub fn wake(fd: BorrowedFd<'_>) {
    // SAFETY: no memory is handed over. What fails here shows in the rings.
    unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// Reads an option of a socket.
///
/// # Safety
/// All-zero must be a valid value of `T`, and so must whatever the kernel writes.
unsafe fn option<T>(fd: &impl AsFd, name: i32) -> io::Result<T> {
    // SAFETY: the caller vouches for all-zero.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: the pointers describe the live value and its length.
    let rc =
        unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), libc::SOL_XDP, name, (&raw mut value).cast(), &raw mut len) };
    if rc < 0 { Err(last()) } else { Ok(value) }
}
