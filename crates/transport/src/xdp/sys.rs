//! System calls of AF_XDP: programs, maps, sockets and memory shared with the kernel (bpf(2), `linux/if_xdp.h`, the
//! kernel's Documentation/networking/af_xdp.rst).

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
/// `BPF_MAP_CREATE`.
const MAP_CREATE: i32 = 0;
/// `BPF_MAP_UPDATE_ELEM`.
const MAP_UPDATE: i32 = 2;
/// `BPF_PROG_LOAD`.
const PROGRAM_LOAD: i32 = 5;
/// `BPF_LINK_CREATE`.
const LINK_CREATE: i32 = 28;

/// `BPF_MAP_TYPE_XSKMAP`.
const MAP_TYPE_XSKMAP: u32 = 17;
/// `BPF_PROG_TYPE_XDP`.
const PROGRAM_TYPE_XDP: u32 = 6;
/// `BPF_XDP`.
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program supports frames in several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// `XDP_FLAGS_SKB_MODE`: in the kernel's generic path, for every driver.
pub const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: in the driver.
pub const NATIVE: u32 = 1 << 2;

fn last_error() -> io::Error {
    io::Error::last_os_error()
}

/// Calls bpf(2) with a command whose result is a descriptor or 0.
///
/// # Safety
/// Pointers in the attribute must be valid for the command's use of them.
unsafe fn bpf<T>(command: i32, attribute: &T) -> io::Result<i32> {
    // SAFETY: the pointer and the size describe the live attribute; the caller guarantees the pointers in it.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attribute, size_of::<T>()) };
    if rc < 0 { Err(last_error()) } else { Ok(rc as i32) }
}

/// As [`bpf`], for commands that create an object and return its descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_new<T>(command: i32, attribute: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the attribute; the descriptor is new and owned by nothing else.
    unsafe { bpf(command, attribute).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// Creates a map from queue to socket.
pub fn new_map(queues: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        kind: u32,
        key_size: u32,
        value_size: u32,
        entries: u32,
    }
    // SAFETY: no pointers.
    unsafe { bpf_new(MAP_CREATE, &Attribute { kind: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: queues }) }
}

/// Inserts the socket of a queue: from here on frames of this queue can be redirected to it.
pub fn map_insert(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
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

/// Loads a program: the kernel verifies and compiles it.
pub fn load_program(program: &[Instruction]) -> io::Result<OwnedFd> {
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
        kind: PROGRAM_TYPE_XDP,
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

/// Attaches a program to an interface until the returned link is dropped or the process ends.
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
struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    fn new(at: io::Result<*mut c_void>, len: usize) -> io::Result<Self> {
        let base = NonNull::new(at?).ok_or_else(|| io::Error::other("memory was mapped at 0"))?;
        Ok(Self { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was passed to `new`, and every pointer into it is in a value that owns this one.
        let _ = unsafe { munmap(self.base.as_ptr(), self.len) };
    }
}

/// The memory of all chunks. The rings determine which chunks belong to the kernel.
pub struct Umem(Mapping);

impl Umem {
    /// Allocates `len` bytes, a multiple of the page size.
    pub fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
            mmap_anonymous(std::ptr::null_mut(), len, protection, flags)
        };
        Mapping::new(at.map_err(Into::into), len).map(Self)
    }

    /// Returns bytes of our chunks; `None` if they are out of bounds.
    ///
    /// # Safety
    /// The chunks must be ours, and must not be written while the slice lives.
    pub unsafe fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let at = self.inside(at, len)?;
        // SAFETY: inside the mapping; the caller guarantees the rest.
        Some(unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().cast::<u8>().add(at), len) })
    }

    /// As [`Self::get`], mutable.
    ///
    /// # Safety
    /// The chunks must be ours, and must not be accessed otherwise while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the rings determine the owner of a chunk")]
    pub unsafe fn get_mut(&self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = self.inside(at, len)?;
        // SAFETY: inside the mapping; the caller guarantees the rest.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr().cast::<u8>().add(at), len) })
    }

    /// Moves bytes within chunks that are ours.
    ///
    /// # Safety
    /// As [`Self::get_mut`], for both ranges, which may overlap.
    pub unsafe fn copy_within(&self, from: u64, to: u64, len: usize) -> Option<()> {
        let (from, to) = (self.inside(from, len)?, self.inside(to, len)?);
        let base = self.0.base.as_ptr().cast::<u8>();
        // SAFETY: both are inside the mapping; the caller guarantees the rest.
        unsafe { std::ptr::copy(base.add(from), base.add(to), len) };
        Some(())
    }

    fn inside(&self, at: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        at.checked_add(len).filter(|end| *end <= self.0.len)?;
        Some(at)
    }
}

/// Our end of a single-producer, single-consumer ring. `T` is the type of its entries.
pub struct Ring<T> {
    /// Keeps the memory mapped.
    _map: Mapping,
    /// Index of the producer.
    producer: NonNull<AtomicU32>,
    /// Index of the consumer.
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Our own index, of the producer or the consumer.
    cursor: u32,
}

// SAFETY: the memory is shared with the kernel only, and this is the only handle to it on our side.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries, a power of two.
    fn map(fd: &OwnedFd, page: u64, offsets: &libc::xdp_ring_offset, size: u32) -> io::Result<Self> {
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
            mmap(std::ptr::null_mut(), len, protection, flags, fd, page)
        };
        let map = Mapping::new(at.map_err(Into::into), len)?;
        // SAFETY: the kernel returned these offsets for this mapping, and aligns the fields.
        let at = |offset: u64| unsafe { map.base.cast::<u8>().add(offset as usize) };
        let (producer, consumer) = (at(offsets.producer).cast(), at(offsets.consumer).cast());
        let (flags, entries) = (at(offsets.flags).cast(), at(offsets.desc).cast());
        Ok(Self { _map: map, producer, consumer, flags, entries, size, cursor: 0 })
    }

    /// Returns the number of entries that the kernel has produced and we have not consumed.
    pub fn available(&self) -> u32 {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let other = unsafe { self.producer.as_ref() }.load(Ordering::Acquire);
        other.wrapping_sub(self.cursor).min(self.size)
    }

    /// Returns one of the available entries, counted from the oldest.
    pub fn entry(&self, index: u32) -> T {
        let at = self.cursor.wrapping_add(index) & (self.size - 1);
        // SAFETY: inside the ring by the mask; the kernel does not write entries that it has produced.
        unsafe { self.entries.add(at as usize).read() }
    }

    /// Consumes the `count` oldest entries, at most [`Self::available`]; the kernel may reuse them.
    pub fn consume(&mut self, count: u32) {
        self.cursor = self.cursor.wrapping_add(count);
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        unsafe { self.consumer.as_ref() }.store(self.cursor, Ordering::Release);
    }

    /// Returns the number of entries that we can produce.
    pub fn free_entries(&self) -> u32 {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let other = unsafe { self.consumer.as_ref() }.load(Ordering::Acquire);
        self.size - self.cursor.wrapping_sub(other).min(self.size)
    }

    /// Writes one of the free entries, counted from the first. The kernel sees it after [`Self::produce`].
    pub fn write(&mut self, index: u32, value: T) {
        let at = self.cursor.wrapping_add(index) & (self.size - 1);
        // SAFETY: inside the ring by the mask; the kernel does not read entries that were not produced.
        unsafe { self.entries.add(at as usize).write(value) };
    }

    /// Passes the first `count` written entries, at most [`Self::free_entries`], to the kernel.
    pub fn produce(&mut self, count: u32) {
        self.cursor = self.cursor.wrapping_add(count);
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        unsafe { self.producer.as_ref() }.store(self.cursor, Ordering::Release);
    }

    /// Returns `true` if there are entries that the kernel has not consumed.
    pub fn has_pending(&self) -> bool {
        self.free_entries() < self.size
    }

    /// Returns `true` if the kernel must be woken to process entries.
    pub fn needs_wakeup(&self) -> bool {
        // SAFETY: the pointer is into the mapping that `_map` keeps.
        let flags = unsafe { self.flags.as_ref() }.load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The rings of a socket.
pub struct Rings {
    /// Received frames.
    pub rx: Ring<libc::xdp_desc>,
    /// Chunks to receive into.
    pub fill: Ring<u64>,
    /// Frames to send.
    pub tx: Ring<libc::xdp_desc>,
    /// Chunks whose frames were sent.
    pub completion: Ring<u64>,
}

/// Creates an AF_XDP socket with its memory and rings, not bound yet.
pub fn socket(umem: &Umem, chunk: u32, sizes: [u32; 2]) -> io::Result<(OwnedFd, Rings)> {
    // SAFETY: the call takes no memory.
    let raw = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(last_error());
    }
    // SAFETY: the descriptor is new and owned by nothing else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let memory = libc::xdp_umem_reg {
        addr: umem.0.base.as_ptr().addr() as u64,
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
        return Err(last_error());
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
    let offsets: libc::xdp_mmap_offsets = unsafe { get_option(&fd, libc::XDP_MMAP_OFFSETS) }?;
    let rings = Rings {
        rx: Ring::map(&fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, receive)?,
        fill: Ring::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, receive)?,
        tx: Ring::map(&fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, send)?,
        completion: Ring::map(&fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, send)?,
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
    if rc < 0 { Err(last_error()) } else { Ok(()) }
}

/// Returns `true` if the socket's queue is zero-copy.
pub fn is_zero_copy(fd: &OwnedFd) -> io::Result<bool> {
    // SAFETY: all-zero is a valid value of this C struct.
    let options: libc::xdp_options = unsafe { get_option(fd, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Reads the kernel's counters of a socket.
pub fn kernel_counters(fd: &OwnedFd) -> io::Result<libc::xdp_statistics> {
    // SAFETY: all-zero is a valid value of this C struct.
    unsafe { get_option(fd, libc::XDP_STATISTICS) }
}

/// Wakes the kernel to send frames. Returns `true` if it must be woken again.
pub fn wake_tx(fd: &OwnedFd) -> io::Result<bool> {
    loop {
        // SAFETY: no memory is passed.
        let rc = unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if rc >= 0 {
            return Ok(false);
        }
        let error = last_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return Ok(true),
            Some(libc::EBUSY | libc::ENOBUFS) => return Ok(false), // its queue is full: the frames stay in the ring
            _ => return Err(error),
        }
    }
}

/// Wakes the kernel to use the chunks of the fill ring.
pub fn wake_rx(fd: BorrowedFd<'_>) {
    // SAFETY: no memory is passed. Errors are ignored: they show in the rings.
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
/// All-zero must be a valid value of `T`, and so must any value that the kernel writes.
unsafe fn get_option<T>(fd: &impl AsFd, name: i32) -> io::Result<T> {
    // SAFETY: the caller guarantees that all-zero is valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: the pointers describe the live value and its length.
    let rc =
        unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), libc::SOL_XDP, name, (&raw mut value).cast(), &raw mut len) };
    if rc < 0 { Err(last_error()) } else { Ok(value) }
}
